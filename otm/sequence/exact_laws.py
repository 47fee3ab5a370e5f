"""The exact law of a step, by enumeration or by deferred decisions.

*Enumeration.* Drafting and verification are enumerated one inside the other: for every drafted
tree, every verdict. Nothing is assumed of the decoder but that all its random steps are those of a
`Randomness`, so `step_law` is an oracle for closed forms and a proof of losslessness on the
instance, to rounding.

*Deferred decisions.* Drafts that the output never reaches do not matter, and those that it reaches
are fresh given the past: a draft may as well be drawn when the verifier first looks at it. So
nothing needs to be enumerated but the drafts of one vertex at a time: V^m sequences for the m
children that are verified together, instead of V^n trees. Each decoder whose drafts can be deferred
so says how a step of it proceeds, by a tally of its outcomes: level by level, path by path, or in a
way of its own. `step_law` assumes nothing of the kind and is the oracle of all of them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.divergences import divergence_term
from otm.drafts.base import PAD
from otm.errors import InvalidParameter, TooLarge, Unsupported
from otm.pmf import check_count, check_instance, plain_reals
from otm.sequence.decoder import Decoder, require_fresh
from otm.sequence.decoding import check_step_arguments, evaluate
from otm.sequence.drafted_tree import Conditionals, children_of
from otm.sequence.models import (
    Context,
    LanguageModel,
    Memoised,
    check_context,
    check_model,
    next_distribution,
    require_affordable_law,
    sequence_law,
)
from otm.sequence.randomness import outcomes
from otm.trees.shape import TreeShape

Transition = tuple[int, tuple[int, ...], float]
"""An output token, the positions of the drafts with this token, and the probability of both."""

MAX_CONTEXTS = 1_000_000
"""Largest number of outcomes, or of contexts at one level, that are kept."""

MAX_ENTRIES = 1 << 30
"""Largest number of (drafts of one vertex, output) pairs that are gone through, block by block."""

_ENTRIES_AT_ONCE = 1 << 22


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StepLaw:
    """The joint law of the tokens decoded by one step and the number of accepted drafts.

    Attributes:
        tokens: `(n, width)` int64, one row per outcome, padded with −1.
        accepted: `(n,)` numbers of accepted drafts.
        mass: `(n,)` probabilities, summing to 1.
    """

    tokens: NDArray[np.int64]
    accepted: NDArray[np.int64]
    mass: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"StepLaw({len(self.mass)} outcomes, block_efficiency={self.block_efficiency:.6g})"

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of decoded tokens of each outcome, `(n,)`."""
        return np.asarray((self.tokens != PAD).sum(axis=1), dtype=np.int64)

    @property
    def block_efficiency(self) -> float:
        """Expected number of decoded tokens per target call."""
        return float(self.mass @ self.lengths)

    @property
    def accepted_law(self) -> NDArray[np.float64]:
        """Probability of each number of accepted drafts, `(max + 1,)`."""
        return np.asarray(np.bincount(self.accepted, weights=self.mass), dtype=np.float64)


def step_law(
    decoder: Decoder,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    memory: dict[object, Any] | None = None,
) -> StepLaw:
    """Return the exact law of one step by enumeration of every draft and every verdict.

    Args:
        decoder: any of `otm.sequence.DECODERS`, or your own.
        draft, target: two small models.
        context: tokens so far.
        memory: laws of single steps kept between calls on the same decoder and models.

    Returns:
        StepLaw.

    Raises:
        TooLarge: where the outcomes of drafting and verification would take more than 60 seconds.

    Cost: number of drafted trees × verdicts per tree × a few microseconds per vertex: V^n trees of
        n i.i.d. drafts.
    Accuracy: rounding, about 1e-14; races: 1e-12.
    Reference: SpecTr, Theorem 3, is what it checks.

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> step_law(SpeculativeSampling(1), draft=draft, target=target, context=[]).accepted_law
    array([0.25, 0.75])
    """
    prefix = check_step_arguments(decoder, draft=draft, target=target, context=context)
    drafter, judge = Memoised(draft), Memoised(target)
    known: dict[object, Any] = {} if memory is None else memory
    found: dict[tuple[Context, int], float] = {}
    for tree, drafted in outcomes(
        lambda randomness: decoder.draft(drafter, prefix, randomness), memory=known
    ):
        conditionals = evaluate(judge, tree).__getitem__
        for one, decided in outcomes(
            functools.partial(decoder.verify, tree, conditionals), memory=known
        ):
            key = (one.tokens, one.accepted)
            found[key] = found.get(key, 0.0) + drafted * decided
    return law_of_outcomes(found)


def law_of_outcomes(found: dict[tuple[Context, int], float]) -> StepLaw:
    """Return the law with the given masses of outcomes (decoded tokens, accepted drafts).

    >>> law_of_outcomes({((1, 0), 1): 0.25, ((0,), 0): 0.75}).tokens.tolist()
    [[0, -1], [1, 0]]
    """
    width = max(len(tokens) for tokens, _ in found)
    rows = sorted(found)
    return StepLaw(
        tokens=np.array(
            [[*tokens, *(PAD,) * (width - len(tokens))] for tokens, _ in rows], dtype=np.int64
        ),
        accepted=np.array([accepted for _, accepted in rows], dtype=np.int64),
        mass=np.array([found[row] for row in rows]),
    )


def completed_law(
    law: StepLaw, *, target: LanguageModel, context: Sequence[int], length: int
) -> NDArray[np.float64]:
    """Return the law of the first `length` tokens where target samples follow a step's output.

    A decoder is lossless when this is `sequence_law(target, context, length)`: SpecTr, Theorem 3.
    One that carries noise (`NoiseTree`) needs target samples on that noise, which are not these.

    Args:
        law: of one step, by `step_law`.
        target: the target model.
        context: tokens so far.
        length: L ≥ 1 tokens.

    Returns:
        Probabilities of shape `(V,) * L`.

    Raises:
        TooLarge: beyond 2²⁴ sequences.

    Cost: O(outcomes · V^L).

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> law = step_law(SpeculativeSampling(1), draft=draft, target=target, context=[])
    >>> completed_law(law, target=target, context=[], length=2).round(12).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    check_instance(law, StepLaw, name="law")
    check_model(target, name="target")
    prefix, model = check_context(context), Memoised(target)
    return _followed(
        law,
        target.num_tokens,
        length,
        lambda tokens, rest: sequence_law(model, (*prefix, *tokens), rest),
    )


def generated_law(
    decoder: Decoder,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    length: int,
) -> NDArray[np.float64]:
    """Return the law of the first `length` tokens of a text decoded step after step.

    For lossy decoders this differs from `completed_law`: every further step is lossy as well.

    Args:
        decoder, draft, target, context: as for `step_law`.
        length: L ≥ 1 tokens.

    Returns:
        Probabilities of shape `(V,) * L`.

    Raises:
        TooLarge: beyond the limits of `step_law` and `completed_law`.
        Unsupported: for a decoder that carries noise from step to step.

    Cost: one `step_law` per context that a step may begin at.

    >>> import otm
    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> lossy = SpeculativeSampling(1, otm.Lenience(0.5))  # accepts every draft, a token from p
    >>> law = generated_law(lossy, draft=draft, target=target, context=[], length=3)
    >>> law.sum(axis=(1, 2)).tolist()
    [0.75, 0.25]
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
    require_fresh(decoder)
    drafter, judge = Memoised(draft), Memoised(target)
    memory: dict[object, Any] = {}
    known: dict[tuple[Context, int], NDArray[np.float64]] = {}

    def following(before: Context, rest: int) -> NDArray[np.float64]:
        if (before, rest) not in known:
            law = step_law(decoder, draft=drafter, target=judge, context=before, memory=memory)
            known[before, rest] = _followed(
                law,
                target.num_tokens,
                rest,
                lambda tokens, left: following((*before, *tokens), left),
            )
        return known[before, rest]

    return following(start, check_count(length, name="length"))


def _followed(
    law: StepLaw, num_tokens: int, length: int, rest: Callable[[Context, int], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the joint law of `length` tokens: a step's, then `rest(tokens, number left)`."""
    count = check_count(length, name="length")
    require_affordable_law(num_tokens, count)
    joint = np.zeros((num_tokens,) * count)
    prefixes: dict[Context, float] = {}
    for row, size, mass in zip(
        law.tokens.tolist(), law.lengths.tolist(), law.mass.tolist(), strict=True
    ):
        tokens = tuple(row[: min(size, count)])
        prefixes[tokens] = prefixes.get(tokens, 0.0) + mass
    for tokens, mass in prefixes.items():
        joint[tokens] += mass if len(tokens) == count else mass * rest(tokens, count - len(tokens))
    return joint


def divergence_by_position(
    law: NDArray[np.float64], *, target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the KL divergence of an output law from the target's by position, in nats.

    The chain rule: KL(Q‖Π) = Σ_i E_{y ~ Q} KL(Q(· | y₁ … y_{i−1}) ‖ Π(· | y₁ … y_{i−1})); the
    entries are its terms.

    Args:
        law: Π, the output's joint law `(V,) * L`.
        target: Q, the target's, of the same shape.

    Returns:
        `(L,)`, nats; infinite from the first position on where the target can go and the output
        cannot.

    Raises:
        InvalidParameter: if the shapes differ.

    Cost: O(L V^L). Accuracy: each entry is summed from non-negative terms
        (`otm.divergences.divergence_term`), so none is negative, and entries of 1e-19 keep their
        digits as far as the masses given have them.
    Reference: the chain rule; mentored decoding's budget holds per position [Tran-Thien 2023].

    >>> import numpy as np
    >>> target = np.full((2, 2), 0.25)
    >>> skewed = np.array([[0.375, 0.375], [0.125, 0.125]])
    >>> found = divergence_by_position(skewed, target=target)
    >>> found.round(6)  # ½ ln(½/¾) + ½ ln(½/¼), then nothing
    array([0.143841, 0.      ])
    """
    law, target = plain_reals(law, "law"), plain_reals(target, "target")
    if law.shape != target.shape or law.ndim == 0:
        raise InvalidParameter(
            f"Both laws must have one shape (V,) * L; got {law.shape} and {target.shape}. Compare "
            "equal lengths."
        )
    return np.asarray(
        [_added_divergence(_leading(target, i), _leading(law, i)) for i in range(1, law.ndim + 1)]
    )


def _leading(law: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.asarray(law.sum(axis=tuple(range(count, law.ndim))))


def _added_divergence(target: NDArray[np.float64], law: NDArray[np.float64]) -> float:
    """Return E_{y ~ Q} KL(Q(· | y) ‖ Π(· | y)) of the last token given the earlier tokens.

    Q is compared with Q(y) Π(· | y), which has its sum: a difference of the divergences of longer
    and shorter prefixes would lose their common part. A prefix that Π cannot reach leaves nothing
    of it, so where Q can reach it the divergence is infinite.
    """
    before = law.sum(axis=-1, keepdims=True)
    conditional = np.divide(law, before, out=np.zeros_like(law, dtype=np.float64), where=before > 0)
    return float(divergence_term(target, conditional * target.sum(axis=-1, keepdims=True)).sum())


@dataclasses.dataclass(frozen=True, eq=False)
class StepModels:
    """The context and the models of a step.

    Attributes:
        start: the context before the step.
        drafter: the draft model.
        draft, target: the two models' checked distributions after a context, each asked for once.
    """

    start: Context
    drafter: LanguageModel
    draft: Conditionals
    target: Conditionals


class StepTally:
    """Probabilities of the outcomes of a step, and of the drafted vertices reached by the step.

    Attributes:
        outcomes: mass of each pair (decoded tokens, number of accepted drafts).
        reached: `(n + 1,)` mass of the steps that accept each vertex; 1 at the root.
    """

    def __init__(self, shape: TreeShape, start: Context) -> None:
        self.outcomes: dict[tuple[Context, int], float] = {}
        self.reached = np.zeros(shape.num_nodes + 1)
        self.reached[0] = 1.0
        self._start = len(start)

    def end(self, context: Context, token: int, mass: float) -> None:
        """Count a step that accepts the drafts up to a context and adds a token."""
        require_affordable(len(self.outcomes))
        accepted = context[self._start :]
        key = ((*accepted, token), len(accepted))
        self.outcomes[key] = self.outcomes.get(key, 0.0) + mass

    def end_by(self, context: Context, mass: NDArray[np.float64]) -> None:
        """Count the steps that accept the drafts up to a context, by the token added `(V,)`."""
        for token in np.flatnonzero(mass > 0).tolist():
            self.end(context, token, float(mass[token]))


@dataclasses.dataclass(frozen=True)
class DeferredDecoder(Decoder):
    """A decoder whose drafts are fresh when the verifier first looks at a vertex."""

    @abc.abstractmethod
    def tally(self, models: StepModels) -> StepTally:
        """Return the probabilities of a step, from the distributions along the paths only."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExpectedStep:
    """The exact law of one step.

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


def expected_step(
    decoder: Decoder, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> ExpectedStep:
    """Return the exact law of one step by deferred decisions.

    E[tokens] = 1 + Σ_i Pr(at least i drafts are accepted).

    Args:
        decoder: a `DeferredDecoder`; all lossless ones of the library are but `SampledTree`,
            `StochasticBeam`, `NoiseTree` and `Staged`, and all greedy chains.
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
    Accuracy: rounding; races: 1e-12.
    Reference: docs/theory.md, "Deferred decisions".

    >>> from otm.sequence import Gsd, ZerothOrder
    >>> from otm.trees import TreeShape
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> tree = TreeShape.from_paths([(0,), (1,), (0, 0)])  # first children pass with 3/4
    >>> found = expected_step(Gsd(tree), draft=draft, target=target, context=[])
    >>> found.reached.tolist(), found.block_efficiency  # 1 + 3/4 + 1/4 + 9/16
    ([1.0, 0.75, 0.25, 0.5625], 2.5625)
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
    if not isinstance(decoder, DeferredDecoder):
        raise Unsupported(
            "Decisions can be deferred where a drafted token is fresh when it is first looked at, "
            f"as a DeferredDecoder says; not for {decoder!r}. Call otm.sequence.step_law, which "
            "enumerates any decoder."
        )
    models = StepModels(
        start=start,
        drafter=draft,
        draft=functools.cache(lambda prefix: next_distribution(draft, prefix, name="draft")),
        target=functools.cache(lambda prefix: next_distribution(target, prefix, name="target")),
    )
    tally = decoder.tally(models)
    return ExpectedStep(law=law_of_outcomes(tally.outcomes), reached=tally.reached)


def walk_levels(
    shape: TreeShape,
    models: StepModels,
    transitions: Callable[[Context, int], list[Transition]],
) -> StepTally:
    """Carry the law of (context, agreeing vertices) from level to level.

    Args:
        shape: of the drafted tree.
        models: where the step starts, and the target for the token after the last draft.
        transitions: (context, number of children that are verified together) → transitions.
    """
    known = functools.cache(transitions)
    below, tally = children_of(shape), StepTally(shape, models.start)
    level: dict[tuple[Context, tuple[int, ...]], float] = {(models.start, (0,)): 1.0}
    while level:
        following: dict[tuple[Context, tuple[int, ...]], float] = {}
        for (context, vertices), mass in level.items():
            children = [child for vertex in vertices for child in below[vertex]]
            if not children:
                tally.end_by(context, mass * models.target(context))
                continue
            for token, agreeing, share in known(context, len(children)):
                current = tuple(children[position] for position in agreeing)
                if current:
                    tally.reached[list(current)] += mass * share
                    require_affordable(len(following))
                    state = ((*context, token), current)
                    following[state] = following.get(state, 0.0) + mass * share
                else:
                    tally.end(context, token, mass * share)
        level = following
    return tally


def walk_sequences(
    shape: TreeShape,
    models: StepModels,
    *,
    weight: Callable[[Context], float],
    accepted: Callable[[Context], NDArray[np.float64]],
    shares: NDArray[np.float64],
) -> StepTally:
    """Follow the winner of K independent sequences, each with the same law if the winner.

    With f(u) the probability that path u is accepted and P(u) that one sequence begins with it, the
    step ends after u with y with probability f(u) q(y | u) − f(uy).

    Args:
        shape: K chains.
        models: draft and target, asked once for each context.
        weight: u → f(u)/P(u).
        accepted: u → f(uy)/P(u) for every next token y `(V,)`.
        shares: `(K,)` how often each sequence is the winner, over all of them.
    """
    tally = StepTally(shape, models.start)
    level = {models.start: 1.0}  # P(u) of the paths that can be accepted
    for depth in range(1, shape.depth + 1):
        following: dict[Context, float] = {}
        for context, mass in level.items():
            passing, drawn = accepted(context), models.draft(context)
            ending = mass * (weight(context) * models.target(context) - passing)
            tally.end_by(context, np.maximum(ending, 0.0))
            for token in np.flatnonzero((passing > 0) & (drawn > 0)).tolist():
                require_affordable(len(following))
                following[*context, token] = mass * float(drawn[token])
        level = following
        reached = sum(mass * weight(context) for context, mass in level.items())
        tally.reached[shape.levels == depth] = reached * shares
    for context, mass in level.items():
        tally.end_by(context, mass * weight(context) * models.target(context))
    return tally


def sum_by_agreement(
    drafts: NDArray[np.int64], num_tokens: int, joint: Callable[[slice], NDArray[np.float64]]
) -> list[Transition]:
    """Sum a joint law of drafts and output over the drafts that differ from the output.

    Args:
        drafts: `(n, k)` draft sequences; −1 is no draft.
        num_tokens: V.
        joint: rows of the joint law `(m, V)` for a block of m sequences.
    """
    k = drafts.shape[1]
    disagreeing, agreeing = np.zeros(num_tokens), dict[tuple[int, tuple[int, ...]], float]()
    step = max(1, _ENTRIES_AT_ONCE // max(num_tokens, k * k))
    for start in range(0, len(drafts), step):
        block = slice(start, start + step)
        rows, table = drafts[block], joint(block)
        # Each token of a sequence once, where it stands first, with all the places that it has.
        same = rows[:, :, None] == rows[:, None, :]
        first = ~np.tril(same, -1).any(axis=2) & (rows >= 0)
        sequence, token = np.nonzero(first)[0], rows[first]
        patterns, group = np.unique(
            np.column_stack([token, same[first]]), axis=0, return_inverse=True
        )
        masses = np.bincount(group.reshape(-1), weights=table[sequence, token])
        for (output, *places), mass in zip(patterns.tolist(), masses.tolist(), strict=True):
            key = output, tuple(np.flatnonzero(places).tolist())
            agreeing[key] = agreeing.get(key, 0.0) + mass
        # What is left of the table are outputs that no draft equals.
        table[sequence, token] = 0.0
        disagreeing += table.sum(axis=0)
    found: list[Transition] = [(token, (), mass) for token, mass in enumerate(disagreeing.tolist())]
    found += [(token, places, mass) for (token, places), mass in agreeing.items()]
    return sorted(transition for transition in found if transition[2] > 0)


def require_affordable(num_contexts: int) -> None:
    """Raise `TooLarge` before contexts, of which there are V^depth, fill the memory."""
    if num_contexts >= MAX_CONTEXTS:
        raise TooLarge(
            f"A step's law is computed for at most {MAX_CONTEXTS:,} contexts; this one has more. "
            "Take a smaller vocabulary or a shallower tree, or sample with otm.sequence.generate."
        )


def require_table(num_drafts: int, num_tokens: int, most: int) -> None:
    """Raise `TooLarge` before work on too large a table of drafts and outputs."""
    if num_drafts * num_tokens > most:
        raise TooLarge(
            f"A step's law is computed for at most {most:,} pairs of the drafts of one vertex and "
            f"an output; here are {num_drafts:,} draft sequences × {num_tokens:,} tokens. Take a "
            "smaller vocabulary or fewer children, or sample with otm.sequence.generate."
        )
