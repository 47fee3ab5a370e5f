"""The exact law of a step by enumeration: what it outputs, how many drafts it accepts.

Drafting and verification are enumerated one inside the other: for every drafted tree, every
verdict. Nothing is assumed of the decoder but that all its random steps are those of a
`Randomness`, so the result is an oracle for closed forms and a proof of losslessness on the
instance, to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.divergences import divergence_term
from otm.drafts.base import PAD
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_count, check_instance, plain_reals
from otm.sequence.decoder import Decoder, check_step_arguments, evaluate
from otm.sequence.models import (
    Context,
    LanguageModel,
    Memoised,
    check_context,
    check_model,
    sequence_law,
)
from otm.sequence.randomness import outcomes

MAX_LAW = 1 << 24
"""Largest number of entries of a joint law over token sequences."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StepLaw:
    """The joint law of what one step decodes and how many drafts it accepts.

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
        TooLarge: beyond twenty million outcomes of drafting or verification.

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
    """Return the law whose outcomes (decoded tokens, accepted drafts) have these masses.

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

    Cost: one `step_law` per context that a step may begin at.

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> lossy = SpeculativeSampling(1, otm.Lenience(0.5))  # accepts every draft, a token from p
    >>> law = generated_law(lossy, draft=draft, target=target, context=[], length=3)
    >>> law.sum(axis=(1, 2)).tolist()
    [0.75, 0.25]
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
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
    """Return the joint law of `length` tokens: a step's, then `rest(tokens, how many more)`."""
    count = check_count(length, name="length")
    if num_tokens ** min(count, 64) > MAX_LAW:  # no larger powers are computed or printed
        raise TooLarge(
            f"A joint law is limited to {MAX_LAW:,} sequences; V = {num_tokens} and length {count} "
            f"have V^{count}. Sample instead: otm.sequence.generate."
        )
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
        (`otm.divergences.divergence_term`), so none is
    negative, and entries of 1e-19 keep their digits as far as the masses given have them.
    Reference: the chain rule; mentored decoding's budget holds per position [Tran-Thien 2023].

    >>> target = np.full((2, 2), 0.25)
    >>> skewed = np.array([[0.375, 0.375], [0.125, 0.125]])
    >>> divergence_by_position(skewed, target=target).round(
    ...     6
    ... )  # ½ ln(½/¾) + ½ ln(½/¼), then nothing
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
    """Return E_{y ~ Q} KL(Q(· | y) ‖ Π(· | y)) of the last token given the ones before it.

    Q is compared with Q(y) Π(· | y), which has its sum: a difference of the divergences of longer
    and shorter prefixes would lose what they share. A prefix that Π cannot reach leaves nothing of
    it, so where Q can reach it the divergence is infinite.
    """
    before = law.sum(axis=-1, keepdims=True)
    conditional = np.divide(law, before, out=np.zeros_like(law, dtype=np.float64), where=before > 0)
    return float(divergence_term(target, conditional * target.sum(axis=-1, keepdims=True)).sum())
