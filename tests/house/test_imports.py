"""Who imports whom: no circle, no arrow that climbs, the picture of it up to date; what the
applications may import.
"""

import ast
import json
import re

import pytest

from figures import house
from figures.work import Work
from tests.paths import ROOT

REDRAW = "run `python -m figures house --out docs/images`"


@pytest.fixture(scope="module")
def drawn():
    import numpy as np

    return house.compute(
        Work(samples=0, rng=np.random.default_rng(0), fast=True, tick=lambda: None)
    )["packages"]


@pytest.mark.parametrize("package", house.PACKAGES)
def test_nothing_imports_in_a_circle_and_no_arrow_climbs(drawn, package):
    files = {name: found - {package} for name, found in house.imports(package).items()}
    assert sum(len(found) for found in files.values()) > 100
    assert package not in {name for found in house.imports(package).values() for name in found}, (
        "a file imports from the top"
    )
    assert drawn[package]["circles"] == {"files": [], "rooms": []}
    floors = drawn[package]["rooms"]
    for name, found in files.items():
        for other in found & files.keys():
            here, there = house.room_of(name), house.room_of(other)
            assert name == package or here == there or floors[here] > floors[there], (
                f"{name} imports {other}, which is not below"
            )


def test_a_circle_would_be_found_and_an_arrow_that_follows_from_others_is_left_out():
    assert set(house.circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    arrows = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert house.circle(arrows) == []
    assert house.reduced(arrows) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert house.floors_of(arrows) == {"a": 2, "b": 1, "c": 0}


def test_the_picture_of_the_house_is_up_to_date(drawn):
    record = json.loads((ROOT / "docs" / "images" / "house.json").read_text(encoding="utf-8"))
    for package, now in drawn.items():
        shown = record["data"]["packages"][package]
        assert (shown["boxes"], shown["arrows"]) == (now["boxes"], now["arrows"]), REDRAW


def test_the_library_imports_nothing_of_the_auditor(drawn):
    """And every room of `otm` stands in one wing; the auditor serves commands and pytest alone."""
    rooms = {f"otm.{room}" for found in house.WINGS.values() for room in found}
    assert rooms == drawn["otm"]["rooms"].keys()
    entered = {
        house.room_of(name)
        for name, found in house.imports("otm").items()
        if any(house.room_of(other) == "otm.audit" for other in found)
    }
    assert entered - {"otm.audit"} == {"otm.commands", "otm.pytest_plugin"}


def test_analysis_names_itself_nowhere_and_no_figure():
    """Its imports are relative, so that the package has any name."""
    for path in (ROOT / "analysis").rglob("*.py"):
        for node in house.statements(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += (
                [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            assert not {"analysis", "figures", "benchmarks"} & {
                name.split(".")[0] for name in names
            }, path


def test_figures_take_from_the_analysis_what_needs_no_torch():
    used = {
        name
        for names in house.imports("figures").values()
        for name in names
        if name.startswith("analysis")
    }
    assert used == {"analysis.provenance", "analysis.papers.selection_run"}
    below = house.imports("analysis")["analysis.papers.selection_run"]
    assert all(
        name.split(".")[0] in ("__future__", "collections", "numpy", "otm") for name in below
    )


def test_every_room_has_a_row_in_the_map(drawn):
    text = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    rooms = {room.partition(".")[2] for package in drawn.values() for room in package["rooms"]}
    assert rooms - {"__main__"} <= named, f"docs/house.md says nothing of {sorted(rooms - named)}"


def test_no_test_imports_from_another():
    """What several tests need stands beside them, in a file of its own."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in house.statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                named = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                assert not any(name.startswith("test_") for name in named), (
                    f"{path.relative_to(ROOT)}, line {node.lineno}"
                )
