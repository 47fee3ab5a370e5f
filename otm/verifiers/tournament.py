"""Khisti et al.'s scheme: drafts are compared in pairs, and a small linear program decides.

The selected draft of the canonical decomposition need not come from a plan over all draft
sequences. Two drafts at a time are enough to describe a selection: x beats y with a probability of
its own for each pair of tokens. For the first two drafts that is no restriction; with more, the
winner meets the next draft, which is one. Only the h tokens that the target wants most beyond what
both drafts give them, by q − p₁p₂, get a free choice against each other; a token outside loses to
those before it in this order. So the program has h(h − 1)/2 unknowns at any vocabulary, and the law
of the winner is known in closed form whatever the program answers.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.pmf import check_count
from otm.problem import Problem
from otm.scheme import parameter
from otm.transport.highs import maximised
from otm.verifiers.rules import single_draft_rejection
from otm.verifiers.select_then_reject import SelectionVerifier, SelectThenRejectRule

MOST_TOKENS = 64
"""Largest number of tokens in the program: 2,016 pairs."""

_SCALE = 2.0**20  # solver tolerances are absolute, masses of pairs are small


@dataclasses.dataclass(frozen=True)
class Tournament(SelectionVerifier):
    """Compare drafts in pairs and accept the last winner, of law s, with min(1, q/s).

    The winner so far, of law p₁, meets a draft of law p₂ = p: among the tokens with the largest q −
    p₁p₂ the shares are those that maximise Σ min(law, q) over them; otherwise the token with the
    larger q − p₁p₂ wins. Acceptance by the rule Σ min(s, q).

    Args:
        tokens: h ≥ 1, how many tokens take part in the program.

    Lossless, since s is the winner's true law. Law: `IID(k)`. With V tokens or more in the program
    and k = 2 it is optimal.

    Raises:
        InvalidParameter: unless `tokens` is an integer in [1, 64].
        SolverFailure: on use, if HiGHS stops early.
        TooLarge: on use, for the acceptance by membership, beyond four million draft sequences.

    Cost: per match a sort and a program of h(h − 1)/2 unknowns; acceptance by membership enumerates
        the drafts, O(V^k).
    Accuracy: rounding; the program's tolerance costs acceptance, never losslessness.
    Reference: Khisti et al. 2025, Section 4 and Appendix I (2410.18234v2); docs/theory.md, "Matches
        in pairs".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.1, 0.2, 0.7], target=[0.1, 0.1, 0.8], law=otm.IID(2))
    >>> found = [otm.acceptance(Tournament(s), problem, by="rule") for s in (1, 2, 3)]
    >>> [round(float(value), 9) for value in found]  # .8 + .05 + .04 for one token
    [0.89, 0.94, 1.0]
    """

    title = "tournament"
    laws = (IID,)
    display_fields = ("tokens",)

    tokens: int = parameter(check_count, default=5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens > MOST_TOKENS:
            raise InvalidParameter(
                f"tokens must be at most {MOST_TOKENS}, the program's size; got {self.tokens}. "
                "otm.Optimal() needs no program."
            )

    def prepare(self, problem: Problem) -> SelectThenRejectRule:
        """Play the matches; single-draft rejection with the law of the last winner."""
        winner, matches = problem.draft, []
        for _ in range(problem.num_drafts - 1):
            match = Match.of(winner, problem.draft, problem.target, self.tokens)
            matches.append(match)
            winner = match.winner
        keep, residual = single_draft_rejection(winner, problem.target)
        return SelectThenRejectRule(
            problem=problem,
            selection=Matches(tuple(matches)),
            law=winner,
            keep=keep,
            residual=residual,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Match:
    """The decision between two tokens, and the law of the kept token.

    Attributes:
        place: each token's place in the order of q − p₁p₂, the largest first, `(V,)`.
        share: among the first h places, the probability that the row's token is kept against the
            column's, `(h, h)`.
        winner: the law of the kept token, `(V,)`.
    """

    place: NDArray[np.int64]
    share: NDArray[np.float64]
    winner: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        first: NDArray[np.float64],
        second: NDArray[np.float64],
        target: NDArray[np.float64],
        size: int,
    ) -> Match:
        """Solve the program for two independent drafts of laws p₁ and p₂."""
        order = np.argsort(-(target - first * second), kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        one, other, wanted = first[order], second[order], target[order]
        head = min(size, len(order))
        # What a token has for certain: both drafts, or a match with one behind it; in the program's
        # rows, behind all of them.
        behind = [np.concatenate([np.cumsum(mass[:0:-1])[::-1], [0.0]]) for mass in (one, other)]
        for mass in behind:
            mass[:head] = mass[head - 1]
        certain = one * other + one * behind[1] + behind[0] * other
        meeting = np.outer(one[:head], other[:head]) + np.outer(other[:head], one[:head])
        share = _shares(meeting, certain[:head], wanted[:head])
        certain[:head] += (meeting * share).sum(axis=1)
        return cls(place=place, share=share, winner=certain[place])

    def keeps(
        self, champion: NDArray[np.int64], challenger: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the probability that the champion is kept, elementwise."""
        head = len(self.share)
        ours, theirs = self.place[champion], self.place[challenger]
        played = self.share[np.minimum(ours, head - 1), np.minimum(theirs, head - 1)]
        return np.asarray(
            np.where((ours < head) & (theirs < head) & (ours != theirs), played, ours <= theirs)
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """The matches as a selection rule: the probability that each draft is the last winner."""

    matches: tuple[Match, ...]

    def __call__(self, problem: Problem, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights `(n, k)`."""
        weights = np.zeros(drafts.shape)
        weights[:, 0] = 1.0
        for column, match in enumerate(self.matches, start=1):
            for earlier in range(column):
                kept = match.keeps(drafts[:, earlier], drafts[:, column])
                weights[:, column] += weights[:, earlier] * (1.0 - kept)
                weights[:, earlier] *= kept
        return weights


def _shares(
    meeting: NDArray[np.float64], certain: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve for the shares `(h, h)` that maximise Σ min(certain + Σ_j meeting·share, wanted)."""
    # Variables: the share of i against j for i < j, then what of each token's law counts, z.
    size = len(wanted)
    row, column = np.triu_indices(size, k=1)
    share = np.zeros((size, size))
    if not len(row):
        return share
    pairs, mass = np.arange(len(row)), meeting[row, column] * _SCALE
    lost = np.zeros(size)
    np.add.at(lost, column, mass)  # z_j ≤ certain_j + Σ (1 − share) · meeting
    found, _ = maximised(
        np.concatenate([np.zeros(len(row)), np.ones(size)]),
        np.concatenate([np.ones(len(row)), wanted * _SCALE]),
        certain * _SCALE + lost,
        starts=np.concatenate([2 * pairs, 2 * len(row) + np.arange(size)]),
        rows=np.concatenate([np.stack([row, column], axis=1).reshape(-1), np.arange(size)]),
        entries=np.concatenate([np.stack([-mass, mass], axis=1).reshape(-1), np.ones(size)]),
        remedy="Take fewer tokens.",
        solver="simplex",
    )
    share[row, column] = np.clip(found[: len(row)], 0.0, 1.0)
    share[column, row] = 1.0 - share[row, column]
    return share
