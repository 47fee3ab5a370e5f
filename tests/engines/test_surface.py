"""Cost surfaces: points between measured ones, nothing beyond them unasked, both files read."""

import itertools
import json

import numpy as np
import pytest

from otm.engines.surface import CostSurface, read_costs
from otm.errors import InvalidParameter

BATCHES, CONTEXTS, TOKENS = (1, 4, 16), (128, 1024), (1, 2, 9)


def draft(b, c):
    return 0.001 + 1e-4 * b + 1e-6 * c + 1e-8 * b * c


def target(b, c, n):
    """Linear in each: what interpolation gives back exactly."""
    return 0.01 + 1e-3 * b + 1e-5 * c + 2e-4 * n + 1e-4 * b * n + 1e-8 * b * c * n


def surface():
    cells = list(itertools.product(BATCHES, CONTEXTS))
    return CostSurface.of_points(
        {cell: draft(*cell) for cell in cells},
        {(*cell, n): target(*cell, n) for cell in cells for n in TOKENS},
        source="test",
    )


@pytest.mark.parametrize(
    ("batch", "context", "length", "outside"),
    [
        *((1, 128, 0, False), (4, 1024, 8, False), (3, 500, 4, False), (10, 1000, 7, False)),
        *((32, 128, 0, True), (1, 64, 0, True), (1, 4096, 2, True), (1, 128, 9, True)),
    ],
)
def test_multilinear_costs_are_reproduced(batch, context, length, outside):
    """And continued only where that is asked for."""
    if outside:
        with pytest.raises(InvalidParameter, match="outside"):
            surface().at(batch=batch, context=context, length=length)
    cost = surface().at(batch=batch, context=context, length=length, extrapolate=outside)
    assert cost.draft == pytest.approx(draft(batch, context), rel=1e-12)
    assert cost.plain == pytest.approx(target(batch, context, 1), rel=1e-12)
    assert cost.target == pytest.approx(target(batch, context, length + 1), rel=1e-12)
    assert cost.extrapolated == outside
    assert cost.seconds == length * cost.draft + cost.target


def test_times_of_one_cell_stand_for_all_and_say_so():
    flat = CostSurface.flat(draft=0.002, target=0.02)
    cost = flat.at(batch=64, context=9999, length=30)
    assert (cost.draft, cost.target, cost.plain, cost.extrapolated) == (0.002, 0.02, 0.02, False)
    assert flat.longest is None and len(flat.assumptions) == 2
    by_drafts = CostSurface.flat(draft=0.002, target={0: 0.02, 8: 0.024})
    assert by_drafts.at(batch=64, context=0, length=4).target == pytest.approx(0.022)
    assert by_drafts.longest == 8 and len(by_drafts.assumptions) == 1
    with pytest.raises(InvalidParameter, match="tokens per sequence 10"):
        by_drafts.at(batch=1, context=0, length=9)
    assert surface().longest == 8 and not surface().assumptions


@pytest.fixture
def file(tmp_path):
    return tmp_path / "costs.json"


def test_the_format_reads_back_exactly(file):
    file.write_text(surface().to_json(), encoding="utf-8")
    again = read_costs(file)
    assert (again.batches, again.contexts, again.tokens) == (BATCHES, CONTEXTS, TOKENS)
    assert (again.draft == surface().draft).all() and (again.target == surface().target).all()
    assert again.source == "costs.json: test"
    document = json.loads(surface().to_json()) | {"unit": "ms"}
    for name in ("draft", "target"):
        document[name] = [[*cell, 1e3 * seconds] for *cell, seconds in document[name]]
    file.write_text(json.dumps(document), encoding="utf-8")
    assert read_costs(file).target == pytest.approx(surface().target, rel=1e-12)


def test_a_record_of_advise_holds_a_surface(file):
    held = ({"costs": {"passes": surface().to_json()}}, {}, {"costs": 3})
    for found in (*held, {"costs": {"passes": "[]"}}, {"costs": {"passes": {}}}):
        file.write_text(json.dumps({"format": "otm.advice"} | found), encoding="utf-8")
        if found is held[0]:
            np.testing.assert_array_equal(read_costs(file).target, surface().target)
        else:
            with pytest.raises(InvalidParameter, match=r"costs\.passes"):
                read_costs(file)


def latency(context):
    """What the command `latency` writes, as far as it is used here."""
    lengths, batches = [1, 2, 4], [1, 8]
    passes = {
        model: [
            [{"median": scale * (1 + n * b + context), "low": 0.0, "high": 9.0} for b in batches]
            for n in lengths
        ]
        for model, scale in (("draft", 0.001), ("target", 0.01))
    }
    found = {"context": context, "lengths": lengths, "batches": batches, "passes": passes}
    return found | {"unit": "seconds", "manifest": {"device": "cpu"}}


def test_records_of_latency_are_put_together_by_context(tmp_path):
    for context in (128, 512):
        (tmp_path / f"{context}").write_text(json.dumps(latency(context)), encoding="utf-8")
    costs = read_costs(tmp_path / "128", tmp_path / "512")
    assert (costs.batches, costs.contexts, costs.tokens) == ((1, 8), (128, 512), (1, 2, 4))
    cost = costs.at(batch=8, context=512, length=3)
    assert (cost.draft, cost.plain, cost.target) == pytest.approx((0.521, 5.21, 5.45))
    assert "latency, forward passes on cpu" in costs.source


GOOD = {
    "format": "otm.cost-surface",
    "version": 1,
    "unit": "s",
    "draft": [[1, 0, 0.1]],
    "target": [[1, 0, 1, 1.0]],
}


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "x"},
        {"version": 2},
        {"unit": "us"},
        {"draft": []},
        {"draft": [[1, 0]]},
        {"draft": [[1, 0, "0.1"]]},
        {"draft": [[1, 0, -0.1]]},
        {"draft": [[1.0, 0, 0.1]]},
        {"draft": None},
        {"target": [[1, 0, 2, 1.0]]},
        {"target": [[1, 0, 1, 0.0]]},
        {"target": [[1, 0, 1, 1.0], [2, 0, 1, 1.0]]},
        {"target": [[1, 0, 1, 1.0], [1, 0, 3, 1.0], [1, 5, 1, 1.0]]},
        {"target": [[0, 0, 1, 1.0]]},
        {"passes": 3},
        {"passes": {"draft": [], "target": []}, "context": 1, "lengths": [2], "batches": [1]},
    ],
    ids=str,
)
def test_damaged_costs_are_refused(file, changed):
    file.write_text(json.dumps(GOOD | changed), encoding="utf-8")
    with pytest.raises(InvalidParameter):
        read_costs(file)


def test_what_is_no_file_of_costs(file):
    file.write_text("[1]", encoding="utf-8")
    for paths in ((), (file,), (file.with_name("absent"),), (file.parent,), (None,)):
        with pytest.raises(InvalidParameter):
            read_costs(*paths)
