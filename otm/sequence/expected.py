"""The exact law of a step without enumerating drafts: a draft is drawn when the verifier first
looks at it.

Drafts that the output never reaches do not matter, and those that it reaches are fresh given the
past. So nothing needs to be enumerated but the drafts of one vertex at a time: V^m sequences for
the m children that are verified together, instead of V^n trees. The enumeration of whole trees,
`otm.sequence.step_law`, assumes nothing of the kind and is the oracle of this module.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import enumerate_drafts
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import TooLarge, Unsupported
from otm.problem import Problem
from otm.sequence.block_kseq import BlockKSeq
from otm.sequence.block_verification import BlockVerification, next_weight, pass_probability
from otm.sequence.decoder import Conditionals, Decoder, DraftTree, check_asked
from otm.sequence.enumeration import StepLaw, collect
from otm.sequence.ersd import Ersd
from otm.sequence.greedy_chain import GreedyChain, along
from otm.sequence.greedy_multipath import GreedyMultipath, Ranked
from otm.sequence.likeliest_tree import LikeliestTree
from otm.sequence.models import Context, LanguageModel, next_distribution
from otm.sequence.refined_scores import RefinedScores, ScoredPaths, registered
from otm.sequence.source import Outcomes, prepare_conditional
from otm.sequence.traversal_verification import Pending, TraversalVerification
from otm.sequence.vertex_decoder import VertexDecoder, children_of
from otm.trees.shape import TreeShape
from otm.verifiers.race import Race

Transition = tuple[int, tuple[int, ...], float]
"""An output token, the positions of the drafts that equal it, and the probability of both."""

MAX_CONTEXTS = 1_000_000
"""Largest number of outcomes, or of contexts at one level, that are kept."""

MAX_ENTRIES = 1 << 30
"""Largest number of (drafts of one vertex, output) pairs that are gone through; a few million at
once are held.
"""

MAX_RACE_ENTRIES = 1 << 27
"""Largest number of (draft, output) pairs of a race, whose table is held."""

_ENTRIES_AT_ONCE = 1 << 22

DEFERRABLE: tuple[type[Decoder], ...] = (
    VertexDecoder,
    Ersd,
    BlockVerification,
    TraversalVerification,
    GreedyMultipath,
    LikeliestTree,
    RefinedScores,
    BlockKSeq,
    GreedyChain,
)
"""What `expected_step` computes. Where the shape of a tree is sampled with its tokens, drafts are
not fresh vertex by vertex.
"""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExpectedStep:
    """What one step does, exactly.

    Attributes:
        law: the joint law of the decoded tokens and the number of accepted drafts.
        reached: `(n + 1,)`, the probability that each drafted vertex is among `Step.survivors`; 1
            at the root.
    """

    law: StepLaw
    reached: NDArray[np.float64]

    def __repr__(self) -> str:
        return (
            f"ExpectedStep({len(self.reached) - 1} vertices, "
            f"block_efficiency={self.block_efficiency:.6g})"
        )

    @property
    def block_efficiency(self) -> float:
        """Expected number of decoded tokens per target call."""
        return self.law.block_efficiency

    @property
    def accepted_law(self) -> NDArray[np.float64]:
        """Probability of each number of accepted drafts."""
        return self.law.accepted_law


def expected_step(
    decoder: Decoder, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> ExpectedStep:
    """Return the exact law of one step by deferred decisions.

    E[tokens] = 1 + Σ_i Pr(at least i drafts are accepted).

    Args:
        decoder: one that verifies vertex by vertex (every `VertexDecoder`, so any verifier on any
            tree), `Ersd`, `BlockVerification`, `TraversalVerification`, `GreedyMultipath`,
            `LikeliestTree`, or `RefinedScores` and `BlockKSeq`, whose paths are accepted with known
            probabilities, or a `GreedyChain`.
        draft, target: two models; a small vocabulary.
        context: tokens so far.

    Returns:
        ExpectedStep: equal to `step_law` up to rounding, with the probability that each vertex is
        reached.

    Raises:
        Unsupported: for other decoders; `otm.sequence.step_law` enumerates any.
        TooLarge: where the drafts of one vertex, or these times V, are too many, or beyond a
            million contexts.

    Cost: at most V^i contexts at level i; V^m draft sequences at a vertex with m children, or where
        survivors have m together.
    Accuracy: rounding; races: 1e-12. Reference: docs/theory.md, "Deferred decisions".

    >>> from otm.sequence import Gsd, ZerothOrder
    >>> from otm.trees import TreeShape
    >>> draft, target = (
    ...     ZerothOrder([0.75, 0.25]),
    ...     ZerothOrder([0.5, 0.5]),
    ... )  # first children pass with 3/4, second ones with 1/4
    >>> found = expected_step(
    ...     Gsd(TreeShape.from_paths([(0,), (1,), (0, 0)])), draft=draft, target=target, context=[]
    ... )
    >>> found.reached.tolist(), found.block_efficiency  # 1 + 3/4 + 1/4 + 9/16
    ([1.0, 0.75, 0.25, 0.5625], 2.5625)
    """
    start = check_asked(decoder, draft=draft, target=target, context=context)
    drafter = functools.cache(lambda prefix: next_distribution(draft, prefix, name="draft"))
    judge = functools.cache(lambda prefix: next_distribution(target, prefix, name="target"))
    if isinstance(decoder, VertexDecoder):
        tally = _descend(
            decoder.shape, start, judge, _conditional_transitions(decoder, drafter, judge)
        )
    elif isinstance(decoder, Ersd):
        tally = _descend(decoder.shape, start, judge, _race_transitions(drafter, judge))
    elif isinstance(decoder, RefinedScores):
        drawn = functools.cache(lambda context: registered(drafter(context)))
        paths = ScoredPaths(decoder.num_drafts, decoder.cells, start, drawn, judge)
        tally = _by_paths(
            decoder,
            start,
            drawn,
            judge,
            lambda u: (paths.weight(u), paths.accepted(u)),
            paths.weight,
        )
    elif isinstance(decoder, BlockKSeq):
        tally = _block_kseq(decoder, start, drafter, judge)
    elif isinstance(decoder, BlockVerification):
        tally = _traverse(TraversalVerification(decoder.shape, IID(1)), start, drafter, judge)
    elif isinstance(decoder, TraversalVerification):
        tally = _traverse(decoder, start, drafter, judge)
    elif isinstance(decoder, GreedyMultipath):
        tally = _select(decoder, start, drafter, judge)
    elif isinstance(decoder, LikeliestTree):
        tree = decoder.draft(draft, start, Outcomes({}))
        tally = _descend(tree.shape, start, judge, _matching_transitions(tree, judge))
    elif isinstance(decoder, GreedyChain):
        tally = _chain(decoder, decoder.draft(draft, start, Outcomes({})), judge)
    else:
        raise Unsupported(
            "Decisions can be deferred for trees of one shape, verified vertex by vertex, by races "
            "or as blocks, for block K-SEQ, "
            f"refined scores, trees of likeliest paths and greedy chains; not for {decoder!r}. "
            "Call otm.sequence.step_law, which "
            "enumerates any decoder."
        )
    return ExpectedStep(law=collect(tally.found), reached=tally.reached)


def require_affordable(num_contexts: int) -> None:
    """Raise `TooLarge` before contexts fill the memory: there are V^depth of them."""
    if num_contexts >= MAX_CONTEXTS:
        raise TooLarge(
            f"A step's law is computed for at most {MAX_CONTEXTS:,} contexts; this one has more. "
            "Take a smaller vocabulary or a "
            "shallower tree, or sample with otm.sequence.generate."
        )


def _require_table(num_drafts: int, num_tokens: int, most: int) -> None:
    if num_drafts * num_tokens > most:
        raise TooLarge(
            f"A step's law is computed for at most {most:,} pairs of the drafts of one vertex and "
            "an output; here are "
            f"{num_drafts:,} draft sequences × {num_tokens:,} tokens. Take a smaller vocabulary or "
            "fewer children, or sample with "
            "otm.sequence.generate."
        )


class _Tally:
    """Masses of the outcomes (decoded tokens, accepted) and of the vertices."""

    def __init__(self, shape: TreeShape, start: Context) -> None:
        self.found: dict[tuple[Context, int], float] = {}
        self.reached = np.zeros(shape.num_nodes + 1)
        self.reached[0] = 1.0
        self._start = len(start)

    def stop(self, context: Context, accepted: int, mass: float) -> None:
        require_affordable(len(self.found))
        key = (context[self._start :], accepted)
        self.found[key] = self.found.get(key, 0.0) + mass

    def stop_by(self, context: Context, accepted: int, mass: NDArray[np.float64]) -> None:
        for token in np.flatnonzero(mass > 0).tolist():
            self.stop((*context, token), accepted, float(mass[token]))


def _descend(
    shape: TreeShape,
    start: Context,
    target: Conditionals,
    transitions: Callable[[Context, int], list[Transition]],
) -> _Tally:
    """Carry the law of (context, current vertices) from level to level."""
    below, tally = children_of(shape), _Tally(shape, start)
    level: dict[tuple[Context, tuple[int, ...]], float] = {(start, (0,)): 1.0}
    depth = 0
    while level:
        following: dict[tuple[Context, tuple[int, ...]], float] = {}
        for (context, vertices), mass in level.items():
            children = [child for vertex in vertices for child in below[vertex]]
            if not children:
                tally.stop_by(context, depth, mass * target(context))
                continue
            for token, agreeing, share in transitions(context, len(children)):
                current = tuple(children[position] for position in agreeing)
                if current:
                    tally.reached[list(current)] += mass * share
                    require_affordable(len(following))
                    state = ((*context, token), current)
                    following[state] = following.get(state, 0.0) + mass * share
                else:
                    tally.stop((*context, token), depth, mass * share)
        level, depth = following, depth + 1
    return tally


def _conditional_transitions(
    decoder: VertexDecoder, draft: Conditionals, target: Conditionals
) -> Callable[[Context, int], list[Transition]]:
    @functools.cache
    def transitions(context: Context, count: int) -> list[Transition]:
        law = decoder.law(count)
        law.align(draft(context), target(context))
        table = enumerate_drafts(law, draft(context))
        live = table.mass > 0
        tokens, mass = table.tokens[live], table.mass[live]
        num_tokens = len(draft(context))
        _require_table(len(mass), num_tokens, MAX_ENTRIES)
        rule = prepare_conditional(decoder.verification, draft(context), target(context), law)

        def joint(block: slice) -> NDArray[np.float64]:
            accepted, residual = rule.split(tokens[block])
            return mass[block, None] * (accepted + residual)

        return _by_agreement(tokens, num_tokens, joint)

    return transitions


def _matching_transitions(
    tree: DraftTree, target: Conditionals
) -> Callable[[Context, int], list[Transition]]:
    """Return the target's own tokens, with the child that has each."""
    below = children_of(tree.shape)
    drafted = {
        context: tree.tokens[list(below[vertex])].tolist()
        for vertex, context in enumerate(tree.contexts())
        if context is not None
    }

    def transitions(context: Context, count: int) -> list[Transition]:
        places = {token: (position,) for position, token in enumerate(drafted[context])}
        mass = target(context)
        return [
            (token, places.get(token, ()), float(mass[token]))
            for token in np.flatnonzero(mass > 0).tolist()
        ]

    return transitions


def _race_transitions(
    draft: Conditionals, target: Conditionals
) -> Callable[[Context, int], list[Transition]]:
    @functools.cache
    def transitions(context: Context, count: int) -> list[Transition]:
        problem = Problem(
            draft=draft(context), target=target(context), law=WithoutReplacement(count)
        )
        _require_table(int(np.count_nonzero(problem.draft)), problem.num_tokens, MAX_RACE_ENTRIES)
        joint = Race().prepare(problem).joint()
        return _by_agreement(
            joint.drafts, problem.num_tokens, lambda block: joint.joint[block].toarray()
        )

    return transitions


def _by_agreement(
    drafts: NDArray[np.int64], num_tokens: int, joint: Callable[[slice], NDArray[np.float64]]
) -> list[Transition]:
    """Sum a joint law of drafts `(n, k)` and output, asked for in blocks `(m, V)`, over the drafts
    that differ from the output.
    """
    k = drafts.shape[1]
    disagreeing, agreeing = np.zeros(num_tokens), dict[tuple[int, tuple[int, ...]], float]()
    step = max(1, _ENTRIES_AT_ONCE // max(num_tokens, k * k))
    for start in range(0, len(drafts), step):
        block = slice(start, start + step)
        rows, table = drafts[block], joint(block)
        same = rows[:, :, None] == rows[:, None, :]
        first = ~np.tril(same, -1).any(axis=2) & (rows >= 0)  # −1 is no draft
        sequence, token = np.nonzero(first)[0], rows[first]
        patterns, group = np.unique(
            np.column_stack([token, same[first]]), axis=0, return_inverse=True
        )
        masses = np.bincount(group.reshape(-1), weights=table[sequence, token])
        for (output, *places), mass in zip(patterns.tolist(), masses.tolist(), strict=True):
            key = output, tuple(np.flatnonzero(places).tolist())
            agreeing[key] = agreeing.get(key, 0.0) + mass
        table[sequence, token] = 0.0
        disagreeing += table.sum(axis=0)
    found: list[Transition] = [(token, (), mass) for token, mass in enumerate(disagreeing.tolist())]
    found += [(token, places, mass) for (token, places), mass in agreeing.items()]
    return sorted(transition for transition in found if transition[2] > 0)


def _traverse(
    decoder: TraversalVerification, start: Context, draft: Conditionals, target: Conditionals
) -> _Tally:
    """Follow traversal verification, with everything below a rejected child summed to 1 − w of that
    child.
    """
    below, tally = children_of(decoder.shape), _Tally(decoder.shape, start)
    independent = isinstance(decoder.drafts, IID)

    def visit(
        vertex: int, context: Context, state: Pending, rest: tuple[int, ...], mass: float
    ) -> None:
        tokens = np.flatnonzero(state.draft > 0).tolist() if rest else []
        if not tokens:
            tally.stop_by(context, len(context) - len(start), mass * state.weight * state.target)
            return
        child, younger = rest[0], rest[1:]
        rejected = {}
        for token in tokens:
            drawn, weight = (
                mass * float(state.draft[token]),
                next_weight(state.weight, state.draft, state.target, token),
            )
            tally.reached[child] += drawn * weight
            rejected[token] = drawn * (1.0 - weight)
            if weight > 0:
                visit(
                    child,
                    (*context, token),
                    fresh((*context, token), weight, below[child]),
                    below[child],
                    drawn,
                )
        if independent:  # what is left does not depend on the token
            rejected = {tokens[0]: sum(rejected.values())}
        for token, lost in rejected.items():
            if lost > 0:
                visit(vertex, context, state.after(token, decoder.drafts), younger, lost)

    def fresh(context: Context, weight: float, children: tuple[int, ...]) -> Pending:
        return Pending(weight, target(context), draft(context) if children else target(context))

    law = decoder.law(decoder.shape.width)
    law.align(draft(start), target(start))
    visit(0, start, fresh(start, 1.0, below[0]), below[0], 1.0)
    return tally


def _select(
    decoder: GreedyMultipath, start: Context, draft: Conditionals, target: Conditionals
) -> _Tally:
    """Follow the selected sequence, whose law is known, and its block verification.

    What a node and all beyond it rejects is handed back by the place j of the selected sequence
    among the K, so that each vertex's share is known. The first of the highest is j with
    probability ∝ (1 − t)^j, t = 1/(α + 1) the sequence's mass among those that are not ranked
    higher.
    """
    below, tally = children_of(decoder.shape), _Tally(decoder.shape, start)
    ways: list[list[int]] = [[0] for _ in range(decoder.num_drafts)]
    for place, way in enumerate(ways):  # the stem is shared, from there each has a chain
        while children := below[way[-1]]:
            way.append(children[place if len(children) > 1 else 0])

    def visit(context: Context, weight: float, odds: float, mass: float) -> NDArray[np.float64]:
        level = len(context) - len(start)
        if level == decoder.depth:
            before = (
                1.0 / (1.0 + 1.0 / odds) if odds > 0 else 0.0
            )  # 1 − t, which 1 − 1/(α + 1) loses for small odds
            places = before ** np.arange(decoder.num_drafts)
            left, passed, after = mass * places / places.sum(), weight, target(context)
        else:
            left, law, ranked = np.zeros(len(ways)), draft(context), None
            if level >= decoder.stem:
                ranked = Ranked.of(law, target(context), odds, decoder.num_drafts)
                law = ranked.selected
            for token in np.flatnonzero(law > 0).tolist():
                following = next_weight(weight, law, target(context), token)
                beyond = odds if ranked is None else ranked.odds(token)
                left += visit((*context, token), following, beyond, mass * float(law[token]))
            excess = np.maximum(weight * target(context) - law, 0.0)
            passed = pass_probability(float(excess.sum()), weight) if level else 1.0
            after = excess / excess.sum() if excess.sum() > 0 else target(context)
        accepted = left * passed
        if accepted.any():
            tally.stop_by(context, level, float(accepted.sum()) * after)
            for way, share in zip(ways, accepted.tolist(), strict=True):
                tally.reached[way[1 : level + 1]] += share
        return np.asarray(left - accepted)

    visit(start, 1.0, 0.0, 1.0)
    return tally


def _chain(decoder: GreedyChain, tree: DraftTree, target: Conditionals) -> _Tally:
    """Weigh every number of drafts of the one chain with the probability that it is kept."""
    contexts, tokens, rows = along(tree, target)
    tally = _Tally(tree.shape, contexts[0])
    kept = decoder.kept_law(tokens, rows[:-1])
    for level, (context, mass) in enumerate(zip(contexts, kept.tolist(), strict=True)):
        if mass > 0:
            rejected = int(tokens[level]) if level < len(tokens) else None
            tally.stop_by(context, level, mass * decoder.following(rows[level], rejected))
    tally.reached[1:] = np.cumsum(kept[::-1])[::-1][1:]
    return tally


def _block_kseq(
    decoder: BlockKSeq, start: Context, draft: Conditionals, target: Conditionals
) -> _Tally:
    gamma = decoder.gamma(draft(start), target(start))
    weights = {start: 1.0}

    def weight(context: Context) -> float:
        if context not in weights:
            before, token = context[:-1], context[-1]
            weights[context] = gamma * next_weight(
                weight(before) / gamma, draft(before), target(before), token
            )
        return weights[context]

    def split(context: Context) -> tuple[float, NDArray[np.float64]]:
        return weight(context), np.minimum(
            weight(context) * target(context), gamma * draft(context)
        )

    return _by_paths(decoder, start, draft, target, split, weight)


def _by_paths(
    decoder: RefinedScores | BlockKSeq,
    start: Context,
    draft: Conditionals,
    target: Conditionals,
    split: Callable[[Context], tuple[float, NDArray[np.float64]]],
    weight_of: Callable[[Context], float],
) -> _Tally:
    """Follow every path by the probability with which it is accepted: Pr(the step ends at u with y)
    = f(u) q(y | u) − f(uy).

    `weight_of` gives F(u) = f(u)/P(u), `split` also f(uy)/P(u) for every next token.
    """
    tally = _Tally(decoder.shape, start)
    level = {start: 1.0}  # P(u) of the paths that can be accepted
    for depth in range(decoder.length):
        following: dict[Context, float] = {}
        for context, mass in level.items():
            (weight, accepted), drawn = split(context), draft(context)
            tally.stop_by(
                context, depth, np.maximum(mass * (weight * target(context) - accepted), 0.0)
            )
            for token in np.flatnonzero((accepted > 0) & (drawn > 0)).tolist():
                require_affordable(len(following))
                following[*context, token] = mass * float(drawn[token])
        level = following
        at_depth = np.flatnonzero(
            decoder.shape.levels == depth + 1
        )  # each sequence is as likely as the others to win
        tally.reached[at_depth] = (
            sum(mass * weight_of(context) for context, mass in level.items()) / decoder.num_drafts
        )
    for context, mass in level.items():
        tally.stop_by(context, decoder.length, mass * weight_of(context) * target(context))
    return tally
