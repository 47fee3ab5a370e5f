"""When rows are read as they are, divided, sorted, or sorted once more."""

import numpy as np
import pytest

import otm
from otm.overlap import compiled
from otm.overlap.curve import Containment
from otm.table import acceptance_table
from otm.table.arrays import RACES
from otm.table.compiled import driver, first_pass, second_pass
from otm.table.table import NAMES
from tests.counted import told
from tests.tolerance import rounding


def test_rows_are_divided_unless_they_sum_to_1_and_have_no_sign():
    rows = np.array([[0.25, 0.75, -0.0], [1.0, 2.0, 1.0], [0.5, 0.5, 0.0], [-1.0, 1.0, 1.0]])
    for number, least in ((0, 0.25), (1, 0.25), (2, 0.5)):
        (unit,), (whole,), (zeros,) = driver.unit_chunk(rows[[number]])
        assert (unit.sum(), unit[0], whole) == (1.0, least, rows[number].sum())
        assert not np.signbit(unit).any()
        assert zeros == (rows[number] == 0).sum()
    assert np.isnan(driver.unit_chunk(rows)[1]).tolist() == [False] * 3 + [True]


def test_rows_without_the_races_are_not_sorted(monkeypatch):
    """But those whose groups are too long to be put in order: nearly equal ratios in the middle,
    far ones around.
    """
    rng = np.random.default_rng(8)
    q = np.full((2, 4096), 1 / 4096)
    p = q * np.exp(rng.standard_normal(q.shape))
    p[1] = q[1] * (1 + 1e-9 * (rng.random(4096) - 0.5))
    p[1, :64] = otm.normalise(np.exp(rng.standard_normal(64))) / 64
    p = otm.normalise(p)
    again, fill = [], driver._Batch._fill_again
    monkeypatch.setattr(
        driver._Batch, "_fill_again", lambda batch, row: again.append((row, fill(batch, row)))
    )
    names = ["optimum_iid", "kseq_iid"]
    found = acceptance_table(draft=p, target=q, k=[1, 4], columns=names)
    assert [row for row, _ in again] == [1]
    plain = acceptance_table(draft=p, target=q, k=[1, 4])
    assert len(again) == 1
    for column in found.columns:
        np.testing.assert_allclose(
            found[column.name], plain[column.name], rtol=0, atol=rounding(4096, column.k)
        )


def test_what_memory_held_before_changes_nothing(monkeypatch):
    rng, names = np.random.default_rng(3), [name for name in NAMES if name not in RACES]
    p, q = (otm.examples.dirichlet(300, rng=rng, rows=2, concentration=0.5) for _ in range(2))
    monkeypatch.setattr(driver, "_SHORTEST_BINNED", 2)
    found, empty = [], np.empty
    for left in (1, 7):
        monkeypatch.setattr(
            np, "empty", lambda *shape, left=left, **of: np.full_like(empty(*shape, **of), left)
        )
        for wanted in (NAMES, names):  # in order, in groups
            found.append(acceptance_table(draft=p, target=q, k=[1, 2], columns=wanted).values)
        found.append(compiled.optimum(p, q, [Containment(k=2), Containment(c=3.0)])[0])
        found.append(compiled.kseq_roots(p, q, [1, 3])[0])
    for before, after in zip(found[:4], found[4:], strict=True):
        np.testing.assert_array_equal(before, after)


def test_ratios_that_differ_in_the_last_bits_only_are_told_apart():
    rng = np.random.default_rng(6)
    q = np.full((2, 300), 1 / 300)
    p = q * (1 + 2.0**-50 * rng.permutation(300))
    q[1, ::2] = p[1, ::2] = 0.0
    found, _, _ = driver.chunk_values(p, q, [1, 3], NAMES)
    for row, (unit_p, unit_q) in enumerate(zip(otm.normalise(p), otm.normalise(q), strict=True)):
        problem = otm.Problem(draft=unit_p, target=unit_q, law=otm.IID(3))
        assert abs(
            found["list_race_rule_iid", 3][row] - otm.acceptance(otm.ListRace(), problem, by="rule")
        ) < rounding(300, 3)


@pytest.mark.parametrize("width", [3, 40, 3000])
def test_rows_that_are_no_distributions_end_and_are_refused(width):
    """One side at a time, whatever is asked for; in order, in groups, and as they are read."""
    good = np.full(width, 1.0 / width)
    for bad in (np.nan, np.inf, -1.0, 0.0, 1e-320):
        wrong = good.copy()
        wrong[0] = bad
        if bad in (0.0, 1e-320):
            wrong[1:] = 0.0
        for names in (None, ["race_iid"], ["optimum_iid", "kseq_iid"], ["maximal_iid"]):
            for draft, target in ((wrong, good), (good, wrong)):
                driver.chunk_values(draft[None], target[None], [1, 2], names or NAMES)
                with pytest.raises(otm.errors.InvalidDistribution):
                    acceptance_table(draft=draft, target=target, k=[1, 2], columns=names)


@pytest.mark.parametrize("width", [1000, 128_256])
def test_races_of_equals_lose_nothing_to_their_sum(width):
    """Of flat rows, on which additions round alike (docs/theory.md, "The races' order and
    merge").
    """
    flat = np.full((1, width), 1.0 / width)
    values, _, _ = driver.chunk_values(flat, flat, [1, 2, 8], ["race_iid", "race_threshold_race"])
    assert abs(values["race_iid", 1] - 1.0) <= 95 * 2.0**-53
    for c in (1, 2, 8):  # h = 1/F, F(1/c) = 1
        assert abs(values["race_threshold_race", c] - 1.0) <= 95 * 2.0**-53


def test_read_only_arrays_are_compiled_for_no_anew():
    acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1])
    made = (first_pass.read_rows, second_pass.walk_rows)
    before = [len(f.signatures) for f in made]
    mass = np.array([[0.5, 0.25, 0.25, 0.0]])
    mass.flags.writeable = False
    acceptance_table(draft=mass, target=mass, k=[1], log_draft=np.zeros((1, 4)))
    acceptance_table(draft=mass.astype(np.float32), target=mass.astype(np.float32), k=[1])
    assert [len(f.signatures) for f in made] == before


def test_what_no_distribution_is_beside_a_row_changes_none_of_its_bits(
    monkeypatch,
):
    """A distribution is read as it stands; beside weights, signs or a row that is mostly empty it
    is not divided either.
    """
    rng = np.random.default_rng(9)
    p, q = (otm.examples.dirichlet(3000, rng=rng, rows=1, concentration=3.0) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(driver, "unit_chunk", lambda _: pytest.fail("summed first"))
        alone, described, sums = driver.chunk_values(p, q, [1, 4], NAMES)
    np.testing.assert_allclose(sums, 1.0, rtol=0, atol=2.0**-50)
    signed, empty = p.copy(), p.copy()
    signed[0, 1] = -0.0
    empty[0, np.arange(3000) % (3000 // driver._SAMPLE) > 0] = (
        0.0  # but for what is looked at first
    )
    for beside in (2.0 * p, signed, empty):
        values, said, sums = driver.chunk_values(
            np.concatenate([p, beside]), np.concatenate([q, beside]), [1, 4], NAMES
        )
        np.testing.assert_allclose(sums[:, 1], beside.sum(), rtol=1e-14)
        for mine, others in ((alone, values), (described, said)):
            assert all(np.array_equal(mine[name], others[name][:1]) for name in mine)
        assert values["maximal_iid", 1][1] == pytest.approx(1.0, abs=1e-14)
        assert said["kl_target_draft"][1] == 0.0
    for other in (q[:, 1:], q.astype(np.float32)):
        with pytest.raises(otm.errors.ShapeMismatch, match="rows must be alike"):
            driver.chunk_values(p, other, [1], NAMES)
    for wrong in (-p, np.full_like(p, np.nan)):
        assert np.isnan(driver.chunk_values(wrong, wrong, [1], NAMES)[2]).all()


def test_logarithms_that_a_softmax_has_left_are_read():
    """With zeros and tokens of one side only, in a distribution as it stands; of other rows they
    are taken, whatever is given.
    """
    rng = np.random.default_rng(10)
    p, q = (otm.examples.dirichlet(2000, rng=rng, rows=2, concentration=3.0) for _ in range(2))
    p[1, 3::700] = q[1, 4::700] = p[1, 5] = q[1, 5] = 0.0  # not where a row is sampled
    p, q = otm.normalise(p), otm.normalise(q)
    logs = tuple(
        np.where(a > 0, np.log(np.maximum(a, 1e-300)), -1.7976931348623157e308) for a in (p, q)
    )
    values, taken, _ = driver.chunk_values(p, q, [1, 2], NAMES)
    same, read, _ = driver.chunk_values(p, q, [1, 2], NAMES, logs)
    for name, value in taken.items():
        np.testing.assert_allclose(read[name], value, rtol=1e-13)
    assert (
        np.isinf(read["kl_target_draft"]).tolist()
        == np.isinf(read["kl_draft_target"]).tolist()
        == [False, True]
    )
    for key, value in values.items():
        np.testing.assert_allclose(same[key], value, rtol=0, atol=1e-15)
    halves = tuple(0.5 * log for log in logs)
    assert driver.chunk_values(p, q, [1], NAMES, halves)[1]["draft_entropy"] == pytest.approx(
        0.5 * taken["draft_entropy"]
    )
    weights = driver.chunk_values(2.0 * p, 2.0 * q, [1], NAMES, halves)[1]
    np.testing.assert_allclose(weights["draft_entropy"], taken["draft_entropy"], rtol=1e-13)


COUNTED = """
from otm.table.compiled import driver
from otm.table.table import NAMES

rng, empty, uses = np.random.default_rng(0), np.empty, []
logits = 3.0 * rng.standard_normal(4096)
p, q = np.exp(logits), np.exp(logits + rng.standard_normal(4096))
p, q = (a[None].view(Counted) / a.sum() for a in (p, q))
for counted in (empty, lambda *shape, **of: empty(*shape, **of).view(Counted)):
    np.empty = counted
    for ks in ([1], [1, 2, 3]):
        Counted.uses = 0
        driver.chunk_values(p, q, ks, NAMES)
        uses.append(Counted.uses / 4096)
print(json.dumps(uses))
"""


def test_a_row_is_passed_over_so_many_times():
    """Reads and writes of one number a token by the interpreted loops, of a table of all columns:
    p and q four times each, scratch arrays 80 times, and 24 times for each further draft.
    """
    given, given_more, all_arrays, all_more = told(COUNTED)
    assert given <= 8.5
    assert given_more <= given + 2 * 1.25  # the likeliest tokens, and one block for each draft
    assert all_arrays <= 90
    assert all_more - all_arrays <= 2 * 25
    assert all_arrays > 4 * given  # it does count
