"""Greedy multi-path block verification: the highest-ranked of K sequences, verified as a block.

Tokens after a context are ranked by q/p, sequences by their first token, then by the second, and so
on. The highest-ranked of K sequences is a sequence with a law of its own, known exactly along it,
and block verification against that law is lossless. Tokens that the target wants and the draft
underrates come first, so the selected sequence is closer to the target than a drafted one.

Let F be the draft's distribution function in the ranking after a node, A the mass of the sequences
ranked below the node and u the node's own. The highest of K sequences passes the node's child x,
given that it passes the node, with probability

    s(x) = [(A + u F(x))^K − (A + u (F(x) − p(x)))^K] / [(A + u)^K − A^K],

a quotient of differences of high powers of numbers that may nearly agree, or underflow. Only the
odds α = A/u enter,

    s(x) = ((α + F)/(α + 1))^K · [1 − (1 − p/(α + F))^K] / [1 − (1 − 1/(α + 1))^K],

with α ← (α + F − p)/p in the child,
where every factor is computed to full relative accuracy, by log1p and expm1, for any K and any
length.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.pmf import check_count
from otm.scheme import parameter
from otm.sequence.block_verification import after_rejection, next_weight, verify_block
from otm.sequence.decoder import SequencesDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, longest_paths
from otm.sequence.exact_laws import StepModels, StepTally
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness
from otm.sequence.vertex_decoder import LawDecoder

MOST_ODDS = 1e100
"""Odds beyond which a node's share no longer bends the law: s = p up to 1/α."""


@dataclasses.dataclass(frozen=True)
class GreedyMultipath(SequencesDecoder, LawDecoder):
    """Draw K i.i.d. sequences, select the highest in the order of q/p, and verify the winner as a
    block.

    Selected with probability s(x) after each of its prefixes (the formula of the module), the
    sequence goes through block verification with s in the place of p: w_i = min(1, w_{i−1}
    q(x_i)/s(x_i)), and so on. K = 1 is `BlockVerification`. Equal ratios are ranked by the tokens'
    numbers: a strict order, without which the law of the selected sequence is another one
    (docs/theory.md).

    Args:
        num_drafts: K ≥ 1 sequences.
        length: L ≥ 1 tokens each.
        stem: tokens drafted once, before the sequences branch: delayed expansion.

    Raises:
        InvalidParameter: if a count is no integer of at least 1 (`stem`: 0).

    Cost: stem + L draft calls and one target call per step; a sort of the vocabulary for each of
        the L selected tokens.
    Accuracy: the law of the selected sequence is right to a few units in the last place of its
        largest entries, for any K.
    Reference: Thomas & Pal 2026 (2602.16961); stem: Thomas et al. 2026 (2602.16994); proof:
        docs/theory.md, "Greedy multi-path block verification".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> one_level = GreedyMultipath(2, 1)  # s = (4/9, 5/9), and 1 + Σ min(s, q) = 1 + 1/3 + 5/9
    >>> round(step_law(one_level, draft=draft, target=target, context=[]).block_efficiency, 12)
    1.888888888889
    """

    title = "greedy multi-path block verification"
    lossless = True  # docs/theory.md, "Greedy multi-path block verification"

    stem: int = parameter(check_count, default=0, minimum=0)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Select the highest-ranked sequence, and verify the winner as a block by the law of
        winners.
        """
        context, odds = tree.context, 0.0
        selected = dict(tree.draft)
        paths = longest_paths(tree.shape)
        for level in range(self.depth):
            tokens = [int(tree.tokens[path[level]]) for path in paths]
            token = tokens[0]
            if level >= self.stem:
                ranked = RankedTokens.of(
                    tree.draft[context], target(context), odds, self.num_drafts
                )
                token = max(tokens, key=ranked.place.__getitem__)
                selected[context], odds = ranked.selected, ranked.odds(token)
            context = (*context, token)
            paths = [path for path, drafted in zip(paths, tokens, strict=True) if drafted == token]
        kept, after = verify_block(
            tree.contexts_along(paths[0]), selected.__getitem__, target, randomness
        )
        return tree.step_along(paths[0][:kept], randomness.choose(after))

    def tally(self, models: StepModels) -> StepTally:
        """Follow the selected sequence, whose law is known, and the block verification.

        The mass that a node and all vertices beyond reject is handed back by the place j of the
        selected sequence among the K, so that each vertex's share is known. The first of the
        highest is j with probability ∝ (1 − t)^j, t = 1/(α + 1) the sequence's mass among those
        that are not ranked higher.
        """
        tally = StepTally(self.shape, models.start)
        paths = longest_paths(self.shape)

        def visit(context: Context, weight: float, odds: float, mass: float) -> NDArray[np.float64]:
            level = len(context) - len(models.start)
            target = models.target(context)
            if level == self.depth:
                # 1 − t, which 1 − 1/(α + 1) loses for small odds.
                before = 1.0 / (1.0 + 1.0 / odds) if odds > 0 else 0.0
                places = before ** np.arange(self.num_drafts)
                left, passed, after = mass * places / places.sum(), weight, target
            else:
                left, law, ranked = np.zeros(len(paths)), models.draft(context), None
                if level >= self.stem:
                    ranked = RankedTokens.of(law, target, odds, self.num_drafts)
                    law = ranked.selected
                for token in np.flatnonzero(law > 0).tolist():
                    following = next_weight(weight, law, target, token)
                    beyond = odds if ranked is None else ranked.odds(token)
                    left += visit((*context, token), following, beyond, mass * float(law[token]))
                passed, after = after_rejection(weight, law, target)
            accepted = left * passed
            if accepted.any():
                tally.end_by(context, float(accepted.sum()) * after)
                for path, share in zip(paths, accepted.tolist(), strict=True):
                    tally.reached[list(path[:level])] += share
            return np.asarray(left - accepted)

        visit(models.start, 1.0, 0.0, 1.0)
        return tally


@dataclasses.dataclass(frozen=True, eq=False)
class RankedTokens:
    """The tokens after a node of the selected sequence.

    Attributes:
        draft: p `(V,)`.
        place: each token's place in the order of q/p, `(V,)`, the highest last.
        lower: F − p, the draft mass ranked below each token, `(V,)`.
        selected: s, the law of the selected sequence's next token, `(V,)`.
        against: the node's own odds α.
    """

    draft: NDArray[np.float64]
    place: NDArray[np.int64]
    lower: NDArray[np.float64]
    selected: NDArray[np.float64]
    against: float

    @classmethod
    def of(
        cls, draft: NDArray[np.float64], target: NDArray[np.float64], odds: float, count: int
    ) -> RankedTokens:
        """Rank the tokens after a node with odds α = A/u, of K = `count` sequences."""
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.divide(target, draft, out=np.full_like(draft, np.inf), where=draft > 0)
        order = np.argsort(ratio)
        if (
            ratio[order[1:]] == ratio[order[:-1]]
        ).any():  # equal ratios: a slower sort keeps the order of the tokens' numbers
            order = np.argsort(ratio, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        mass = draft[order]
        lower = np.concatenate([[0.0], np.cumsum(mass[:-1])])
        higher = np.concatenate([np.cumsum(mass[:0:-1])[::-1], [0.0]])
        selected = selected_law(mass, lower=lower, higher=higher, odds=odds, count=count)
        return cls(draft, place, lower[place], selected[place], odds)

    def odds(self, token: int) -> float:
        """Return α of a drafted child."""
        return min((self.against + float(self.lower[token])) / float(self.draft[token]), MOST_ODDS)


def selected_law(
    mass: NDArray[np.float64],
    *,
    lower: NDArray[np.float64],
    higher: NDArray[np.float64],
    odds: float,
    count: int,
) -> NDArray[np.float64]:
    """Return the law of the highest sequence's next token, given that the sequence passes the node.

    Args:
        mass: p in ascending order of rank `(V,)`.
        lower, higher: the mass below and above each token `(V,)`.
        odds: α ≥ 0.
        count: K.

    >>> import numpy as np
    >>> half = np.array([0.5, 0.5])  # both are low; one is high
    >>> selected_law(half, lower=np.array([0, 0.5]), higher=np.array([0.5, 0]), odds=0.0, count=2)
    array([0.25, 0.75])
    """
    whole, upto = odds + 1.0, odds + lower + mass
    share = np.divide(mass, upto, out=np.zeros_like(mass), where=mass > 0)
    with np.errstate(divide="ignore"):  # the highest token's share may be all there is
        reach = np.where(
            2 * higher < whole, np.log1p(-np.minimum(higher / whole, 1.0)), np.log(upto / whole)
        )
        inside = -np.expm1(count * np.log1p(-share)) / -np.expm1(count * np.log1p(-1.0 / whole))
    return np.asarray(np.exp(count * reach) * inside)
