"""Checks of counts against exact laws, with a stated rate of false alarms and computed power."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

import otm
from otm import Problem

FALSE_ALARM = 1e-9
SAMPLES = 40_000


def acceptance_region(
    mass: np.ndarray, samples: int, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest allowed count of a cell with this mass.

    Counts lie outside with probability at most `level` per cell.
    """
    clipped = np.clip(mass, 0.0, 1.0)
    return binom.ppf(level / 2, samples, clipped), binom.isf(level / 2, samples, clipped)


def alarms(
    counts: np.ndarray, mass: np.ndarray, samples: int, level: float = FALSE_ALARM
) -> np.ndarray:
    """Return the cells whose count is impossible at the given family-wise level.

    A cell without mass allows no count at all.
    """
    low, high = acceptance_region(mass, samples, level / mass.size)
    # rounding of the exact law: probability < 1e-9 to be hit once in 40,000 draws
    dust = mass < 1e-14
    return np.where(dust, counts > 0, (counts < low) | (counts > high))


def power(
    truth: np.ndarray, claimed: np.ndarray, samples: int, level: float = FALSE_ALARM
) -> float:
    """Return the probability of an alarm by the most telling cell if counts follow `truth`."""
    low, high = acceptance_region(claimed, samples, level / claimed.size)
    missed = binom.cdf(high, samples, truth) - binom.cdf(low - 1, samples, truth)
    return float(1 - missed.min())


def joint_law(verifier: otm.Verifier, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The draft sequences `(n, k)` in ascending order of `keys`, and the exact joint table `(n,
    V)`.
    """
    plan = otm.coupling(verifier, problem)
    order = np.argsort(keys(plan.drafts, problem.num_tokens))
    return plan.drafts[order], plan.joint.toarray()[order]


def keys(drafts: np.ndarray, num_tokens: int) -> np.ndarray:
    """One integer per draft sequence; −1 (no draft) is a digit like any other."""
    return (drafts + 1) @ (num_tokens + 1) ** np.arange(drafts.shape[1])


def which_row(drafts: np.ndarray, rows: np.ndarray, num_tokens: int) -> np.ndarray:
    """Return the row number of each draft sequence; a sequence outside the table fails the test."""
    known, asked = keys(rows, num_tokens), keys(drafts, num_tokens)
    found = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    assert (known[found] == asked).all(), "a draft sequence without mass was drawn"
    return found


def tabulate(samples: otm.results.Samples, rows: np.ndarray, num_tokens: int) -> np.ndarray:
    """Counts of (drafts, output)."""
    cell = which_row(samples.drafts, rows, num_tokens) * num_tokens + samples.output
    return np.bincount(cell, minlength=len(rows) * num_tokens).reshape(len(rows), num_tokens)
