"""Records of numbers that somebody types in: counts, a mean, rates by position, means by length."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from otm.engines.positions import MAX_POSITIONS
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter
from otm.pmf import check_count, check_counts, check_real

FORM = "numbers typed in"
"""The form that such records name."""

_LEVELLED = 5e-3  # tokens a step: a change of half a unit in the second decimal is rounding


def record_of_counts(accepted: int, steps: int, *, drafts: int | None = None) -> AcceptanceRecord:
    """Build a record from the numbers of accepted drafts and of verification steps.

    Args:
        accepted: accepted drafts in all steps, without the tokens that the target adds.
        steps: verification steps, at least one.
        drafts: drafts of every step, if known.

    Returns:
        AcceptanceRecord of a mean, 1 + accepted/steps tokens a step.

    Raises:
        InvalidParameter: if the numbers are no counts, or more is accepted than drafted.

    Cost: O(1).

    >>> record_of_counts(68159, 40280, drafts=7).mean.__round__(3)
    2.692
    """
    hits = check_count(accepted, name="accepted", minimum=0)
    tally = Tally("", float(check_count(steps, name="steps")), float(hits))
    return _of(tally, drafts, "accepted drafts do not count the target's token")


def record_of_mean(mean: float, *, drafts: int | None = None) -> AcceptanceRecord:
    """Build a record from the tokens of a step.

    Args:
        mean: tokens a step ≥ 1, with the one that the target adds.
        drafts: drafts of every step, if known.

    Returns:
        AcceptanceRecord of a mean.

    Raises:
        InvalidParameter: if the mean is below 1, or above drafts + 1.

    Cost: O(1).

    >>> record_of_mean(2.69, drafts=7).drafts_per_step
    7.0
    """
    tally = Tally.of_mean(mean, name="")
    return _of(tally, drafts, "the mean counts the target's token")


def record_of_rates(rates: ArrayLike) -> AcceptanceRecord:
    """Build a record from the shares of steps that accepted at least 1, 2, …, L drafts.

    Args:
        rates: `(L,)`, in [0, 1], non-increasing but for rounding to three decimals; every step made
            L drafts.

    Returns:
        AcceptanceRecord with rates by position.

    Raises:
        InvalidDistribution: if the rates are no array of real numbers.
        InvalidParameter: if they are no such rates.

    Cost: O(L).

    >>> record_of_rates([0.94, 0.88, 0.80]).mean.__round__(3)
    3.62
    """
    tally = Tally.of_rates(rates, name="the numbers")
    return _of(tally, np.size(rates), "rates are shares of all steps, each of so many drafts")


def record_of_means(means: Mapping[int, float]) -> AcceptanceRecord:
    """Build a record from the tokens of a step at several draft lengths.

    E_k = 1 + S_1 + … + S_k, so that means at k' < k differ by the survival between them. There it
    is taken as constant: E is concave in k, so that its chord is a lower bound. Slopes that rise by
    noise are levelled: the nearest non-increasing ones, weighted by k − k'.

    Args:
        means: tokens a step ≥ 1, with the one that the target adds, by drafts a step ≥ 1.

    Returns:
        AcceptanceRecord with rates by position up to the longest length.

    Raises:
        InvalidParameter: if a mean is below 1 or above k + 1, or there is none.

    Cost: O(longest length). Reference: docs/records.md, "Numbers typed in".

    >>> record_of_means({1: 1.8, 3: 2.8}).survival.survival.round(3).tolist()
    [0.8, 0.5, 0.5]
    """
    if not isinstance(means, Mapping) or not means:
        raise InvalidParameter(
            f"Means are a mapping from draft lengths; got {means!r:.60}. Pass {{3: 2.59, 5: 2.8}}."
        )
    lengths = sorted(check_counts(list(means), name="draft lengths"))
    check_real(lengths[-1], name="the longest draft", low=1, high=MAX_POSITIONS)
    tokens = [
        check_real(means[k], name=f"tokens a step at {k} drafts", low=1.0, high=k + 1.0)
        for k in lengths
    ]
    widths = np.diff([0, *lengths])
    slopes = np.diff([1.0, *tokens]) / widths
    level = scipy.optimize.isotonic_regression(slopes, weights=widths, increasing=False).x
    level = np.clip(level, 0.0, 1.0)
    moved = float(np.abs(np.cumsum(widths * (level - slopes))).max())
    notes = [
        f"The longest typed length, {lengths[-1]}, stands for what ran. Between typed lengths "
        "acceptance is taken as constant: a lower bound of the tokens."
    ]
    if widths[-1] > 1:
        notes.append(f"Beyond {lengths[-1]} drafts --extend goes on so: an upper bound.")
    if moved > _LEVELLED:
        notes.append(
            f"Tokens a step are concave in the drafts, the typed ones are not: levelled by up to "
            f"{moved:.2f}."
        )
    tally = Tally.of_rates(np.repeat(level, widths), name="the numbers")
    return _of(tally, lengths[-1], "means count the target's token", notes)


def _of(
    tally: Tally, drafts: int | None, convention: str, notes: Sequence[str] = ()
) -> AcceptanceRecord:
    """Return the record of one tally, of which every step made the given number of drafts."""
    if drafts is not None:
        check_real(check_count(drafts, name="drafts"), name="drafts", low=1, high=MAX_POSITIONS)
        if tally.accepted > tally.steps * drafts * (1 + 1e-9):
            raise InvalidParameter(
                f"A step accepts at most the drafts that it makes, {drafts}; got "
                f"{tally.accepted / tally.steps:.4g} accepted a step. Count the target's token in "
                "a mean, not in accepted drafts."
            )
        tally = dataclasses.replace(tally, drafted=tally.steps * drafts)
    return AcceptanceRecord(FORM, "run", (tally,), convention, length=drafts, notes=tuple(notes))
