"""Rules of several verifiers: drafts in turn, one draft, or residuals by drafts.

A rejected draft leaves a residual, the law of the output if nothing is accepted. What sets the
verifiers apart is which keep probabilities and which residual they compute; what follows, as a law
(`split`) and as steps on uniforms (`verify`), is here.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import inverse_cdf, normalised_excess, quiet
from otm.drafts.base import members
from otm.results import is_member
from otm.verifiers.base import Conditional


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AcceptInTurn(Conditional):
    """Accept the first draft with η_i < keep_i(x_i), otherwise draw from the residual.

    Attributes:
        keep: acceptance probabilities of the i-th draft `(k, V)`.
        residual: law of the output after k rejections `(V,)`.
    """

    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for each accept step, one for the residual draw."""
        return self.problem.num_drafts + 1

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Follow each draft to acceptance; the mass rejected by all drafts goes to the residual."""
        accepted, left = accepted_in_turn(drafts, self._keep(drafts), self.problem.num_tokens)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the first draft that passes the accept step, else a residual draw."""
        return first_accepted(
            drafts,
            uniforms[:, :-1] < self._keep(drafts),
            inverse_cdf(self.residual, uniforms[:, -1]),
        )

    def _keep(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.keep[np.arange(drafts.shape[1]), drafts]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AcceptOneOrCatch(Conditional):
    """Accept one of the drafts with η < keep(x), otherwise draw from the residual.

    A residual draw counts as accepted if any draft equals it.

    Attributes:
        position: which draft is tried, 0 the first, −1 the last.
        keep: its acceptance probabilities `(V + 1,)`, the last one, where there is no draft, being
            0.
        residual: law of the output after its rejection `(V,)`.
    """

    num_uniforms = 2  # one for the accept step, one for the draw after a rejection

    position: int
    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put keep on the draft, the rest on the residual; mass on any draft is accepted."""
        tried = drafts[:, self.position]
        law = (1.0 - self.keep[tried])[:, None] * self.residual
        law[np.arange(len(drafts)), tried] += self.keep[tried]
        accepted = np.where(members(drafts, self.problem.num_tokens), law, 0.0)
        return accepted, law - accepted

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Try the one draft, otherwise draw from the residual; then compare with all drafts."""
        tried = drafts[:, self.position]
        output = np.where(
            uniforms[:, 0] < self.keep[tried], tried, inverse_cdf(self.residual, uniforms[:, 1])
        )
        return output, is_member(output, drafts)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ResidualByDrafts(Conditional):
    """Accept drafts in turn by one uniform, otherwise draw from a residual of these drafts."""

    num_uniforms = 2  # one for the drafts together, one for the draw after their rejection

    @abc.abstractmethod
    def cumulative_acceptance(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability `(n, k)` that one of the drafts up to each is accepted."""

    @abc.abstractmethod
    def residual_weights(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights `(V,)` of the draw after the rejection of drafts `(k,)`."""

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put the added acceptance of each draft on the draft, and the rest on the residual."""
        reached, rows = self.cumulative_acceptance(drafts), np.arange(len(drafts))
        accepted, residual = np.zeros((2, len(drafts), self.problem.num_tokens))
        for draft, chance in zip(drafts.T, np.diff(reached, axis=1, prepend=0.0).T, strict=True):
            accepted[rows, draft] += chance
        for row in np.flatnonzero(reached[:, -1] < 1.0).tolist():
            weights = self.residual_weights(drafts[row])
            residual[row] = (1.0 - reached[row, -1]) * weights / weights.sum()
        return accepted, residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Look up the place of the uniform; drafts that are rejected alike share a residual."""
        wins = uniforms[:, :1] < self.cumulative_acceptance(drafts)
        otherwise = np.zeros(len(drafts), dtype=np.int64)
        lost = np.flatnonzero(~wins.any(axis=1))
        kinds, kind = np.unique(drafts[lost], axis=0, return_inverse=True)
        for number, rejected in enumerate(kinds):
            rows = lost[kind.reshape(-1) == number]
            otherwise[rows] = inverse_cdf(self.residual_weights(rejected), uniforms[rows, 1])
        return first_accepted(drafts, wins, otherwise)


def accepted_in_turn(
    drafts: NDArray[np.int64], keep: NDArray[np.float64], num_tokens: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Try drafts in turn with `keep` `(n, k)`; return accepted mass `(n, V)` and the rest `(n,)`.

    Where there is no draft, keep is 0.
    """
    rows, left = np.arange(len(drafts)), np.ones(len(drafts))
    accepted = np.zeros((len(drafts), num_tokens))
    for draft, chance in zip(drafts.T, keep.T, strict=True):
        accepted[rows, draft] += left * chance
        left = left * (1.0 - chance)
    return accepted, left


def first_accepted(
    drafts: NDArray[np.int64], wins: NDArray[np.bool_], otherwise: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the first winning draft of each row, or `otherwise`, and a flag for any win."""
    accepted = np.asarray(wins.any(axis=1))
    first = np.take_along_axis(drafts, wins.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(accepted, first, otherwise), accepted


def single_draft_rejection(
    selection: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return min(1, q/s) and the residual ∝ (q − s)₊ for a draft with law s.

    Tokens that are never drafted get 0.

    The residual is normalised by its own sum, never by 1 − Σ min, which loses every digit when s is
    close to q. Where s = q nothing is ever rejected and the target stands in as a law to draw from.
    """
    with quiet():
        keep = np.where(selection > 0, np.minimum(1.0, target / selection), 0.0)
    return keep, normalised_excess(np.maximum(target - selection, 0.0), target)
