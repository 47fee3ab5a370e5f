"""An adaptive list of drafts: all tokens that arrive soon after the first in the draft's race."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, inverse_cdf, quiet, unit_rows
from otm.drafts.base import PAD, DraftTable, all_subsets, rows_of_members
from otm.drafts.curve_cut import CurveLaw
from otm.errors import InvalidParameter, TooLarge
from otm.overlap.curve import Containment
from otm.pmf import check_real, host_pmf
from otm.scheme import parameter

MOST_IN_TURN = 1 << 22
"""Largest number of i.i.d. draws that one row may need: c up to 114,000."""

_LARGEST = 2.0**53
_SETTLED = 1e-9  # a step of Newton's method below it leaves its square


@dataclasses.dataclass(frozen=True)
class ThresholdRace(CurveLaw):
    """Every token that arrives before c times the first in an exponential race with rates p.

    With E_x independent standard exponentials the drafts are {x: E_x/p(x) ≤ c min_z E_z/p(z)}: in
    Gumbel's terms log p + g within log c of the largest. The same set in law as the different
    tokens among i.i.d. draws whose number is geometric with mean c, which is what c is:

        b(T) = P(T)/(P(T) + c (1 − P(T))),    Pr(x is drafted) = c p(x)/(1 + (c − 1) p(x)).

    One token where the draft model is sure, many where it is not. A row lists them in ascending
    order and then −1, V places in all. ThresholdRace(1) is a single draft.

    Args:
        c: how much later than the first a draft may arrive, a real number in [1, 2⁵³].

    Raises:
        InvalidParameter: unless c is such a number.

    Cost of the optimum: as for i.i.d. drafts, O(V) on long rows. Accuracy: about 1e-14.
    Reference: exponential races of drafts, ERSD [Kobus & Gündüz 2025]; the threshold and its law:
        docs/theory.md, "Threshold races".

    >>> import numpy as np
    >>> import otm
    >>> law = otm.ThresholdRace(2)
    >>> law.containment(np.array([0.5, 0.25, 0.25]), np.array([True, False, True]))  # .75/1.25
    0.6
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=law)
    >>> round(otm.optimal_acceptance(problem), 12)  # 1 + 1/2 − 3/5
    0.9
    """

    title = "threshold race"
    distinct = True

    c: float = parameter(check_real, low=1.0, high=_LARGEST)

    @classmethod
    def with_mean_drafts(cls, draft: object, mean: float) -> Self:
        """Return the law whose mean number of different drafts, averaged over rows, is `mean`.

        Σ c p/(1 + (c − 1) p) averaged over the rows, one c for all: contexts in which the draft
        model is sure give up drafts to contexts in which the model is unsure.

        Args:
            draft: probabilities `(..., V)`.
            mean: a number from 1 to below the mean number of tokens with mass.

        Raises:
            InvalidParameter: if `mean` is out of this range, or c would exceed 2⁵³.
                InvalidDistribution: see `otm.Problem`.

        Cost: some ten passes. Accuracy: to rounding.

        >>> import otm
        >>> law = otm.ThresholdRace.with_mean_drafts([0.5, 0.5], 1.5)  # 2 · .5 c/(.5 + .5 c)
        >>> round(law.c, 12)
        3.0
        """
        p = host_pmf(draft, name="draft")
        rows = math.prod(p.shape[:-1])
        most = np.count_nonzero(p) / rows
        wanted = check_real(mean, name="mean", low=1.0, high=most)
        c = step = 1.0
        # The mean is concave in c: Newton's steps from below never pass the solution.
        while step > _SETTLED * c and c <= _LARGEST:
            late = 1.0 + (c - 1.0) * p
            with quiet():  # 0/0 where every row has one token
                step = (wanted * rows - (c * p / late).sum()) / (p * (1.0 - p) / late**2).sum()
            c += step if step > 0 else 0.0
        if c > _LARGEST or (wanted == most > 1.0):
            raise InvalidParameter(
                f"mean must lie below the mean number of tokens with mass, {most:g}, by enough for "
                f"a threshold to leave some out; got {mean!r}. Choose a smaller one."
            )
        return cls(c)

    def draft_shape(self, num_tokens: int) -> tuple[int, ...]:
        """Return `(V,)`."""
        return (num_tokens,)

    def row_length(self, num_tokens: int) -> int:
        """Return V: every token may arrive in time."""
        return num_tokens

    @property
    def least_token(self) -> int:
        """−1: rows are padded behind the last draft."""
        return PAD

    @property
    def contained(self) -> Containment:
        """The containment b as a function of the mass outside the set."""
        return Containment(c=self.c)

    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return P(T)/(P(T) + c P(Tᶜ))."""
        inside, outside = math.fsum(draft[members]), math.fsum(draft[~members])
        return inside / (inside + self.c * outside)

    def inclusion(self, draft: Array) -> Array:
        """Return c p/(1 + (c − 1) p)."""
        p = unit_rows(draft)
        return self.c * p / (1.0 + (self.c - 1.0) * p)

    def num_sequences(self, num_tokens: int) -> int:
        """Return 2^V − 1, the number of sets that are not empty."""
        return int(2**num_tokens) - 1

    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List the sets of tokens with mass; each set's mass is summed over the last new token."""
        # By new tokens in turn: from the set S the race goes on to a new
        # token y with probability (c − 1) p(y)/(P(S) + c P(Sᶜ)), and ends with the rest,
        # 1/(P(S) + c P(Sᶜ)). No term is negative.
        support = np.flatnonzero(draft > 0)
        p, subsets = draft[support], all_subsets(len(support))
        c = Fraction(self.c) if draft.dtype == object else self.c
        inside, outside = (
            np.asarray(
                sum(np.where(held, mass, 0 * mass) for held, mass in zip(sets.T, p, strict=True))
            )
            for sets in (subsets, ~subsets)
        )
        last = 1 / (inside + c * outside)
        reached = np.where(subsets.sum(axis=1) == 1, inside, 0 * p[0])
        codes, size = np.arange(len(subsets)), subsets.sum(axis=1)
        for grown in range(2, len(support) + 1):
            for y, mass in enumerate(p):
                after = codes[(size == grown) & subsets[:, y]]
                before = after ^ (1 << y)
                reached[after] += reached[before] * ((c - 1) * mass) * last[before]
        drafted = np.zeros((len(subsets) - 1, len(draft)), dtype=bool)
        drafted[:, support] = subsets[1:]
        return DraftTable(tokens=rows_of_members(drafted), mass=(reached * last)[1:])

    def num_uniforms(self, num_tokens: int) -> int:
        """Return V + 2: for the first draft, the time of this draft, and one for each token."""
        return num_tokens + 2

    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Draw the first arrival and the time m, then let each token arrive within (c − 1) m."""
        first = inverse_cdf(draft, uniforms[:, 0])
        with quiet():
            waiting = -(self.c - 1.0) * np.log1p(-uniforms[:, 1, None])
            drafted = uniforms[:, 2:] < -np.expm1(-waiting * draft)
        drafted[np.arange(len(first)), first] = True
        return rows_of_members(drafted)

    def draw_in_turn(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Draw a geometric number of i.i.d. tokens, in order and with repetitions.

        Args:
            draft: p `(V,)`.
            uniforms: `(n, most_in_turn + 1)`.

        Returns:
            Tokens `(n, most_in_turn)`, −1 behind the last.
        """
        most = uniforms.shape[1] - 1
        with quiet():
            number = 1.0 + np.floor(np.log1p(-uniforms[:, 0]) / np.log1p(-1.0 / self.c))
        tokens = inverse_cdf(draft, uniforms[:, 1:])
        return np.where(np.arange(most) < number[:, None], tokens, PAD)

    @property
    def most_in_turn(self) -> int:
        """The number of draws that a uniform of 53 bits can stand for, up to `MOST_IN_TURN`."""
        with quiet():
            most = 1 + int(-53.0 * math.log(2.0) / np.log1p(-1.0 / self.c))
        if most > MOST_IN_TURN:
            raise TooLarge(
                f"Drafts in turn are limited to {MOST_IN_TURN:,} of a row; {self!r} may need "
                f"{most:,}. Choose a smaller c, or otm.Race(), which needs no repetitions."
            )
        return most
