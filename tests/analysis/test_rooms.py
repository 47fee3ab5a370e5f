"""The rooms of `analysis` form floors: each imports from below only, by relative names, so that the package has any name."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _imports(folder: str) -> dict[str, set[str]]:
    """Return the modules of this repository that each module of a folder imports, at any depth of its code."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        package = path.relative_to(ROOT).parent.parts
        module = ".".join((*package, path.stem))
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                name = ".".join((*base, *([node.module] if node.module else [])))
                inside = [f"{name}.{alias.name}" for alias in node.names if _is_module(f"{name}.{alias.name}")]
                found[module] |= set(inside) or {name}
    return found


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@pytest.mark.parametrize("depth", [2, 3], ids=["rooms", "files"])
def test_nothing_imports_in_a_circle(depth: int) -> None:
    graph: dict[str, set[str]] = {}
    for module, imported in _imports("analysis").items():
        here = ".".join(module.split(".")[:depth])
        there = {".".join(name.split(".")[:depth]) for name in imported if name.startswith("analysis.")}
        graph.setdefault(here, set()).update(there - {here})
    assert len(graph) > 12
    graphlib.TopologicalSorter(graph).prepare()


def test_the_package_names_itself_nowhere_and_no_figure() -> None:
    for path in (ROOT / "analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {"analysis", "figures", "benchmarks"} & {name.split(".")[0] for name in names}, path


def test_figures_take_from_the_analysis_what_needs_no_torch() -> None:
    used = {name for names in _imports("figures").values() for name in names if name.startswith("analysis")}
    assert used == {"analysis.provenance", "analysis.papers.selection_run"}
    below = _imports("analysis")
    assert all(
        name.split(".")[0] in ("__future__", "collections", "numpy", "otm") for name in below["analysis.papers.selection_run"]
    )
