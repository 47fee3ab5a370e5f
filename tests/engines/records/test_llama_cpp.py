"""llama.cpp's log: steps recovered from rounded numbers, lists that are cut short, totals that
start anew.
"""

import numpy as np
import pytest

from otm.engines.records import estimate_tokens, parse_acceptance, survival_bounds


def one_line(accepted, drafted, positions):
    """Print a request as the server does: rates to three decimals, the mean to two."""
    steps = accepted.size
    rates = ", ".join(f"{np.mean(accepted > i):.3f}" for i in range(positions))
    return (
        f"slot print_timing: id  0 | task 7 | draft acceptance = {accepted.sum() / drafted:.5f} "
        f"({accepted.sum():5} "
        "accepted / "
        f"{drafted:5} generated), mean acceptance length = {1 + accepted.sum() / steps:5.2f}, "
        f"acceptance rate per position = ({rates})"
    )


@pytest.mark.parametrize("seed", range(3))
def test_steps_and_counts_are_recovered_up_to_what_rounding_hides(seed):
    """Below 400 steps three decimals tell counts apart; the mean's two decimals leave few
    candidates for the steps, and another number of them prints the same line.
    """
    rng = np.random.default_rng(seed)
    right = 0
    for _ in range(40):
        accepted = np.minimum(rng.geometric(0.35, size=rng.integers(5, 400)) - 1, 4)
        (part,) = parse_acceptance(one_line(accepted, 4 * accepted.size, 4)).parts
        survivors = [(accepted > i).sum() for i in range(4)]
        assert part.accepted == accepted.sum()
        found, known = part.survivors / part.steps, np.array(survivors) / accepted.size
        assert [f"{rate:.3f}" for rate in found] == [f"{rate:.3f}" for rate in known]
        right += part.steps == accepted.size and part.survivors.tolist() == survivors
    assert right >= 35


def test_of_the_steps_that_fit_the_nearest_to_the_mean_are_taken():
    """200 and 202 steps print the rate .5 and the mean 1.50."""
    (part,) = parse_acceptance(one_line(np.repeat([0, 1], 100), 200, 1)).parts
    assert (part.steps, part.accepted) == (200, 100)
    (single,) = parse_acceptance(one_line(np.array([2]), 2, 2)).parts
    assert (single.steps, single.survivors.tolist()) == (1, [1, 1])


@pytest.mark.parametrize(("steps", "positions"), [(400, 1), (900, 1), (450, 3)])
def test_a_mean_of_one_leaves_the_steps_to_the_drafts(steps, positions):
    accepted = np.zeros(steps, dtype=int)
    accepted[0] = 1
    line = one_line(accepted, positions * steps, positions)
    assert " 1.00," in line
    record = parse_acceptance(line)
    assert (record.parts[0].steps, record.unlocated) == (steps, 0)


def test_steps_that_the_mean_rules_out_are_not_taken():
    """Eleven steps would fit the rate, 3/11, but the mean says ten."""
    line = one_line(np.repeat([0, 1], [7, 3]), 10, 1)
    line = line.replace("    3 accepted", "   10 accepted").replace(" 1.30", " 2.00")
    (part,) = parse_acceptance(line.replace("(0.300)", "(0.273)")).parts
    assert (part.steps, part.accepted) == (10, 10)


def test_a_list_that_is_cut_short_is_not_the_mean():
    """An n-gram drafter drafts 16 tokens; the list has the 3 positions of the draft model."""
    accepted = np.array([0, 2, 16, 16, 5, 0, 1, 16, 3, 16])
    record = parse_acceptance(one_line(accepted, 160, 3))
    assert record.unlocated == pytest.approx(np.maximum(accepted - 3, 0).mean())
    assert any("cut short" in note for note in record.notes)
    # Up to the list's end tokens are right; the engine's own mean is the whole.
    estimate = estimate_tokens(record)
    assert estimate.tokens[-1] == pytest.approx(1 + np.minimum(accepted, 3).mean())
    assert estimate.engine_tokens == record.pooled_mean == pytest.approx(1 + accepted.mean())
    assert record.censoring == "hidden"
    assert survival_bounds(record).upper.tolist() == [1, 1, 1]


def totals(drafter, calls, drafted, accepted, rates):
    return (
        f"statistics {drafter:>16}: #calls(b,g,a) = {1:4} {calls:6} {calls:6}, #gen drafts = "
        f"{calls:6}, #acc drafts = {calls:5}, "
        f"#gen tokens = {drafted:6}, #acc tokens = {accepted:5}, #mean acc len = "
        f"{1 + accepted / calls:.2f}, "
        f"#acc rate/pos = ({rates})\n"
    )


def test_running_totals_count_once_and_start_anew():
    log = (
        totals("draft-mtp", 5, 10, 7, "0.800, 0.600")
        + (
            "statistics        ngram-mod: #calls(b,g,a) =    1      7      0, #gen tokens = 0, "
            "#acc tokens = 0\n"
        )
        + totals("draft-mtp", 10, 20, 14, "0.800, 0.600")
        + totals("ngram-mod", 4, 64, 40, "1.000, 1.000")
        + totals("draft-mtp", 4, 8, 4, "0.750, 0.250")
    )
    record = parse_acceptance(log)
    assert [(part.name, part.steps, part.accepted, part.drafted) for part in record.parts] == [
        ("draft-mtp", 14, 18, 28),
        ("ngram-mod", 4, 40, 64),
    ]
    assert record.parts[0].survivors.tolist() == [11, 7]
    assert record.unit == "drafter"
    assert record.unlocated == pytest.approx(32 / 18)


def test_interleaved_slots_keep_their_own_sums():
    def line(slot, text):
        return f"slot print_timing: id  {slot} | task 3 | {text}\n"

    log = (
        line(0, "draft acceptance = 0.70000 (   14 accepted /    20 generated), mean len =  2.40")
        + line(1, "draft acceptance = 0.25000 (    5 accepted /    20 generated), mean len =  1.50")
        + line(1, "     acc per pos = (0.400, 0.100)")
        + line(0, "     acc per pos = (0.800, 0.600)")
    )
    record = parse_acceptance(log)
    assert [(part.steps, part.accepted) for part in record.parts] == [(10, 14), (10, 5)]
    bare = parse_acceptance("acc per pos = (0.800, 0.600)")
    assert bare.steps is None
    assert bare.survival.survival.tolist() == [0.8, 0.6]


def test_without_trace_level_there_are_means():
    """A request that accepts nothing took as many steps a draft as the others."""
    line = "slot print_timing: id  0 | task 1 | draft acceptance = 0.5 ({} accepted / 20 generated)"
    text = f"{line.format(14)}, mean len = 2.40\n{line.format(0)}, mean len =  1.00\n"
    record = parse_acceptance(text)
    assert (record.requests, record.measured, record.request_mean) == (2, 0, pytest.approx(1.7))
