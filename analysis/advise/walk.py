"""A decoder's walk along a text: how many tokens a step yields, exactly, once the text is given.

A step that starts after t tokens of the text accepts at least i drafts with probability G_i(t), a
product over the positions in between, and the next one starts after t + 1 + j tokens if it accepts
exactly j. So the expected number of steps that start at t is

    v(0) = 1,      v(t + 1 + j) += v(t) (G_j(t) − G_{j+1}(t)),

the decoder's own path, and tokens per step are Σ_t v(t) E_t / Σ_t v(t), with E_t = 1 + Σ_i S_i(t),
where S_i averages over what stands at the last of the i positions as well.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm.sequence import LanguageModel, RefinedScores, Sampled
from otm.sequence.decoding import evaluate
from otm.sequence.gains import ends_of, refined_scores_gain
from otm.trees import TreeShape

from ..steps.texts import SampledText
from .laws import RankLaw, SurvivorLaw


@dataclasses.dataclass(frozen=True, eq=False)
class Walk:
    """The expected steps of a decoder along one text, by starting position.

    Attributes:
        visits: `(starts,)` v, the expected number of steps that start there.
        reached: `(L + 1, starts)` G, which determines where the next step starts.
        gained: `(L, starts)` S, the expected accepted drafts of the steps by level.
    """

    visits: Floats
    reached: Floats
    gained: Floats

    @classmethod
    def of(cls, reached: Floats, gained: Floats) -> Walk:
        """Return the walk by G with the gains S."""
        return cls(_visits(reached), reached, gained)

    @property
    def steps(self) -> float:
        """Expected number of steps that start within the text."""
        return float(self.visits.sum())

    @functools.cached_property
    def accepted(self) -> Floats:
        """Expected number of these steps that accept at least 1, …, L drafts, `(L,)`."""
        return np.asarray(self.gained @ self.visits)

    @property
    def tokens(self) -> float:
        """Expected tokens of these steps."""
        return self.steps + float(self.accepted.sum())


def along_all_lengths(law: SurvivorLaw, *, num_drafts: int, most: int, starts: int) -> list[Walk]:
    """Walk with K i.i.d. sequences of 1, 2, …, `most` drafts.

    The sequences that agree with the output survive.

    Args:
        law: at the positions of one text, for at least K drafts.
        num_drafts, most: K, and the number of lengths.
        starts: steps start before this position.
    """
    number = len(law.given)
    starts = min(starts, number)
    state = np.zeros((starts, num_drafts + 1))
    state[:, num_drafts] = 1.0
    reached, gained = [np.ones(starts)], []
    for i in range(most):
        here = np.arange(starts) + i
        inside = here < number
        at = np.minimum(here, number - 1)
        steps, alive = (
            law.given[at, : num_drafts + 1, : num_drafts + 1],
            law.alive[at, : num_drafts + 1],
        )
        gained.append(np.where(inside, (state * alive).sum(axis=1), 0.0))
        state = np.where(inside[:, None], np.einsum("tm,tmj->tj", state, steps), 0.0)
        state[:, 0] = 0.0
        reached.append(state.sum(axis=1))
    return [Walk.of(np.array(reached[: n + 1]), np.array(gained[:n])) for n in range(1, most + 1)]


def along_block(text: SampledText, *, most: int, starts: int, eos: int | None) -> list[Walk]:
    """Walk with block verification of one sequence of 1, 2, …, `most` drafts.

    A prefix u of the output is drafted and kept with probability f(u) = min(f(u') q, P(u)), and
    what follows has the target's law whether or not it is, whatever L. So G_i is the least of 1
    and P/Q of the text's next 1, …, i tokens, and S_i = Σ_y min(G_{i−1} q(y), (P/Q)(u') p(y)).

    Args:
        text: with both models' distributions.
        most: how many lengths.
        starts: steps start before this position.
        eos: the token that ends a text.
    """
    number = len(text.tokens)
    starts = min(starts, number)
    at = np.arange(number), text.tokens
    ratio = text.draft[at] / text.target[at]
    wins = np.ones(text.target.shape[1])
    if eos is not None:
        wins[eos] = 0.0
    reached, gained = np.zeros((most + 1, starts)), np.zeros((most, starts))
    reached[0], odds = 1.0, np.ones(starts)
    for i in range(min(most, number)):
        inside = np.arange(min(starts, number - i))
        here, odds = inside + i, odds[inside]
        kept = reached[i, inside]
        gained[i, inside] = (
            np.minimum(kept[:, None] * text.target[here], odds[:, None] * text.draft[here]) @ wins
        )
        odds = odds * ratio[here]
        reached[i + 1, inside] = np.minimum(kept, odds)
    return [Walk.of(reached[: n + 1], gained[:n]) for n in range(1, most + 1)]


def along_scores(
    draft: LanguageModel,
    target: LanguageModel,
    prompt: Sequence[int],
    *,
    decoder: RefinedScores,
    starts: int,
    longest: int,
    eos: int | None,
    rng: np.random.Generator,
) -> Walk:
    """Decode a text by refined scores; each step counts with the expected tokens given the drafts.

    Args:
        draft, target: the models.
        prompt: what is continued.
        decoder: K and L.
        starts: steps start before this position.
        longest: positions that both models have.
        eos: the token that ends a text; None if none does.
        rng: draws drafts and verdicts.
    """
    randomness, context, length = Sampled(rng), tuple(prompt), decoder.length
    reached, gained = np.zeros((length + 1, starts)), np.zeros((length, starts))
    end = min(len(prompt) + starts, longest - length + 1)
    while len(context) < end:
        at = len(context) - len(prompt)
        tree = decoder.draft(draft, context, randomness)
        asked = evaluate(target, tree).__getitem__
        gained[:, at] = refined_scores_gain(tree, asked, ends_of(tree), decoder.num_drafts, eos)
        one = decoder.verify(tree, asked, randomness)
        reached[: one.accepted + 1, at] = 1.0
        context = (*context, *one.tokens)
        if eos in one.tokens:
            break
    return Walk(reached[0].copy(), reached, gained)


def along_tree(law: RankLaw, *, shape: TreeShape, starts: int) -> Walk:
    """Walk with a tree whose vertices' children are drawn without replacement.

    Args:
        law: at the positions of one text, for as many ranks as the tree is wide.
        shape: the tree.
        starts: steps start before this position.
    """
    starts = min(starts, len(law.given))
    reached, gained = _levels([law], shape, starts)
    levels = shape.levels[1:]
    by_level = np.array(
        [gained[1:, 0][levels == level].sum(axis=0) for level in range(1, shape.depth + 1)]
    )
    return Walk.of(reached[:, 0], by_level)


def tree_gains(laws: Sequence[RankLaw], *, shape: TreeShape, starts: int) -> Floats:
    """Return the number of each text's steps that accept each vertex, `(texts, n + 1)`.

    All steps accept the root.

    Args:
        laws: at the positions of each text.
        shape, starts: as for `along_tree`, whose tokens are the sum.
    """
    reached, gained = _levels(laws, shape, starts)
    lengths = np.array([len(law.given) for law in laws])
    # nothing starts after the end
    visits = np.where(np.arange(starts) < lengths[:, None], _visits(reached), 0.0)
    return np.asarray((gained * visits).sum(axis=2).T)


def _levels(laws: Sequence[RankLaw], shape: TreeShape, starts: int) -> tuple[Floats, Floats]:
    """Return G `(depth + 1, texts, starts)` and vertices' gains `(n + 1, texts, starts)`."""
    size = starts + shape.depth
    # beyond a text's end nothing is accepted
    given, accepted = np.zeros((2, max(shape.width, 1), len(laws), size))
    for text, law in enumerate(laws):
        for padded, values in ((given, law.given), (accepted, law.accepted)):
            inside = values[:size, : padded.shape[0]]
            padded[: inside.shape[1], text, : len(inside)] = inside.T
    weight = np.zeros((shape.num_nodes + 1, len(laws), starts))
    reached = np.zeros((shape.depth + 1, len(laws), starts))
    gained = np.ones((shape.num_nodes + 1, len(laws), starts))
    weight[0] = reached[0] = 1.0
    for vertex in range(1, shape.num_nodes + 1):
        depth, rank = int(shape.levels[vertex]), int(shape.ranks[vertex])
        above, here = weight[int(shape.parents[vertex - 1])], slice(depth - 1, depth - 1 + starts)
        gained[vertex] = above * accepted[rank, :, here]
        weight[vertex] = above * given[rank, :, here]
        reached[depth] += weight[vertex]
    return reached, gained


def _visits(reached: Floats) -> Floats:
    """Return v, the expected number of steps that start at each position, from G."""
    starts = reached.shape[-1]
    visits = np.zeros(reached.shape[1:])
    visits[..., 0] = 1.0
    exactly = reached - np.append(reached[1:], np.zeros((1, *visits.shape)), axis=0)
    for t in range(starts):
        ends = min(len(exactly), starts - 1 - t)
        visits[..., t + 1 : t + 1 + ends] += visits[..., t, None] * np.moveaxis(
            exactly[:ends, ..., t], 0, -1
        )
    return visits
