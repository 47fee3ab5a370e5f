"""Steps, kernels of trees and generations in the battery: told apart by their arguments, passed
when right, found when wrong.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.corpus import steps, trees
from otm import audit
from otm.audit import exports
from otm.audit.batteries import BatteryAudit
from otm.audit.budget import ENOUGH
from otm.audit.templates import generate as generation_template
from otm.tracing.answers import CandidateFailure

SECONDS = 120.0
"""Enough on a busy machine; a few are used."""


def plain(draft: Any, target: Any, request: Any) -> list[list[int]]:
    """Write one row, a token at a time, and refuse more."""
    (ids,) = request.input_ids
    text = ids.tolist()
    for _ in range(request.length):
        mass = otm.Processing(temperature=request.temperature, top_p=request.top_p)(
            target([text]).logits[0, -1]
        )
        text.append(int(request.rng.choice(len(mass), p=mass)))
        if text[-1] == request.end:
            break
    return [text[len(ids) :]]


def unprocessed(draft: Any, target: Any, request: Any) -> list[list[int]]:
    """Forget the temperature."""
    return plain(draft, target, dataclasses.replace(request, temperature=1.0))


@pytest.mark.parametrize(
    ("candidate", "means"),
    [
        (steps.step, "a step that drafts by itself, 3 tokens"),
        (trees.recursive, "a tree of 2 drafts"),
        (generation_template.candidate, "a generation of 1 row"),
    ],
)
def test_what_is_right_is_lossless(candidate: Any, means: str) -> None:
    found = audit.battery(candidate, seconds=SECONDS)
    assert found.verdict == "lossless", str(found)
    assert means in str(found.coverage)
    assert "by branching on draws" in str(found.coverage)
    assert not found.left_out


def repeated(found: BatteryAudit, candidate: Any) -> None:
    """Carry out the counterexample of a battery as the test to keep, on a candidate."""
    source = exports.as_test(found.counterexample, "candidate")
    names: dict[str, Any] = {"candidate": candidate}
    exec(source.replace("# import candidate here", ""), names)
    names["test_candidate_on_the_smallest_problem_found"]()


@pytest.mark.parametrize(
    "candidate",
    [
        steps.shared_noise,
        steps.stale_row,
        audit.TreeCandidate(trees.youngest_first, siblings="without"),
        unprocessed,
    ],
)
def test_what_is_wrong_is_found(candidate: Any) -> None:
    found = audit.battery(candidate, seconds=SECONDS)
    assert found.verdict == "not lossless"
    assert found.severity > 0.02
    assert "not lossless" in str(found)
    with pytest.raises(AssertionError, match="not lossless"):
        repeated(found, candidate)


def test_what_a_loop_does_not_take_is_left_out_and_named() -> None:
    found = audit.battery(plain, seconds=SECONDS)
    assert found.verdict == "lossless"
    assert any(note.startswith("two rows of different lengths") for note in found.left_out)
    assert "two rows of different lengths" in str(found.coverage)


@pytest.mark.parametrize("gamma", [5, pytest.param(10, marks=pytest.mark.long)])
def test_long_steps_are_told_by_a_few_positions_at_a_time(gamma: int) -> None:
    """Right, or wrong in the last token only: 3^γ drafts are too many to branch on, windows of a
    few are not.
    """

    def written(draft: Any, target: Any, rng: Any, bonus: Any) -> list[int]:
        drafts: list[int] = []
        for _ in range(gamma):
            law = draft.next(drafts)
            drafts.append(int(rng.choice(len(law), p=law)))
        for i, x in enumerate(drafts):
            p, q = draft.next(drafts[:i]), target.next(drafts[:i])
            if not rng.random() * p[x] < q[x]:
                rest = np.maximum(q - p, 0.0)
                return [*drafts[:i], int(rng.choice(len(rest), p=rest / rest.sum()))]
        law = bonus.next(drafts)
        return [*drafts, int(rng.choice(len(law), p=law))]

    def step(draft: Any, target: Any, rng: Any) -> list[int]:
        return written(draft, target, rng, target)

    found = audit.battery(step, seconds=SECONDS, shrink_for=0)
    assert (found.verdict, found.left_out, found.coverage.by[0][0]) == (
        "lossless",
        (),
        "branching on draws",
    )
    assert found.coverage.tokens == (gamma + 1,)
    wrong = audit.battery(
        lambda draft, target, rng: written(draft, target, rng, draft), seconds=SECONDS
    )
    assert wrong.verdict == "not lossless"
    assert {label for label in wrong.failed if "tokens" in label} == {
        label for label in wrong.audits if label.endswith(f"to {gamma + 1}")
    }
    repeated(wrong, step)  # the right one passes


def summed(draft: Any, target: Any, rng: Any) -> list[int]:
    """Sample the target by a sum of uniforms, which has no branches."""
    u = (rng.random() + rng.random()) % 1.0
    return [int(np.searchsorted(np.cumsum(target.next([]))[:-1], u, side="right"))]


def test_samples_find_what_their_time_allows_or_what_is_asked() -> None:
    def slow(draft: Any, target: Any, rng: Any) -> list[int]:
        time.sleep(1e-4)
        return summed(draft, target, rng)

    mass = np.full(2, 0.5)
    model = otm.sequence.ZerothOrder(mass)
    given = {
        "draft": model,
        "target": model,
        "length": 1,
        "rng": np.random.default_rng(0),
    }
    levels = (0.1, 0.2, 0.3)
    planned = [
        audit.samples_needed(mass, detect=level, false_alarm=1e-9 / 6, missed=1e-3)
        for level in levels
    ]
    for seconds, detect in ((1e6, 0.1), (0.0, 0.3)):
        found = audit.step(
            slow, errors=audit.Errors(detect=audit.DetectionBudget(levels, seconds)), **given
        )
        # what is chosen by the time alone clears nobody where it is large
        verdict = "no difference found" if detect <= ENOUGH else "little power"
        assert (found.verdict, found.asked, found.planned) == (
            verdict,
            detect,
            planned[levels.index(detect)],
        )
        assert found.errors.false_alarm <= 1e-9 / 3


def test_without_branches_samples_decide_and_their_false_alarm_is_counted() -> None:
    found = audit.battery(summed, seconds=SECONDS, errors=audit.Errors(detect=0.2))
    assert (found.verdict, found.coverage.detect) == ("no difference found", 0.2)
    assert 0.0 < found.false_alarm <= 1e-9 + 1e-15
    assert "samples" in found.summary()


def test_what_fails_everywhere_says_so() -> None:
    with pytest.raises(CandidateFailure, match=r"ZeroDivisionError.*test_end_to_end.py:\d+ in "):
        audit.battery(lambda tree, rng: tree.tokens[0] + 1 // 0)


def test_what_reads_no_tree_is_no_kernel_of_trees() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="reads nothing of its tree"):
        audit.battery(lambda p, q: 1)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: audit.battery(steps.step, laws=[otm.IID(1)]), "drafts by itself"),
        (lambda: audit.battery(steps.step, only="sampled"), "its draws are branched on"),
        (lambda: audit.shrink(audit.TreeCandidate(trees.recursive)), "needs a function"),
        (lambda: audit.TreeCandidate(steps.step, siblings="some"), "must be 'with'"),
    ],
)
def test_laws_and_lengths_are_not_of_wholes(ask: Any, said: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        ask()
