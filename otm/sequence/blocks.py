"""Drafters that fill a block in one pass: a law per position, perhaps shifted by the token before.

Block diffusion and parallel heads (DFlash, Medusa) give every position a law of its own. A law of a
block is then the product of its positions' laws: even a perfect one, whose positions are the
target's own marginals, does not know which token goes with which. What a head adds that looks back
by one token (DSpark, DFlash 2) is a transition: logits of a position that depend on the token
before it. They are of low rank, since a table of V × V numbers would be larger than the model:

    log p_i(y | x) = log r_i(y) + A(x)·B(y) + constant,    A, B of V × r numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import brief_repr
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch
from otm.pmf import check_count, plain_reals
from otm.sequence.models import (
    LanguageModel,
    check_context,
    distributions_of,
    sequence_law,
)

Transition = Callable[[NDArray[np.int64], NDArray[np.int64]], ArrayLike]
"""(positions in the block `(n,)`, the tokens before these `(n,)`) → summands of the logarithms of
the positions' laws, `(n, V)`; −∞ for impossible tokens.
"""


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class BlockMarginals:
    """A drafter of a block: a law for each position, perhaps shifted by the token before.

    p_i(y | x) ∝ r_i(y) exp(t_i(x, y)), x the token before position i. Without a transition t the
    path to a position is ignored. What can be made of such drafts is told by the decoders as for
    any other draft model: sampled along the chain (`BlockVerification`, `SpeculativeSampling`), by
    argmax (`LikeliestTree(size, length, width=1)`), or as a tree (`LikeliestTree`, `NoiseTree`).

    Args:
        rows: the laws r of the block's positions, `(L, V)`.
        start: how many tokens stand before the block; without any the first position has law r_1.
        transition: t, as a pair of matrices `(V, r)`, A and B of t(x, y) = A(x)·B(y), as
            checkpoints of DSpark have them; as a table `(V, V)` where V is small; or as a
            `Transition`, for heads that depend on the position: of DFlash 2, where A(x) is
            multiplied by H_i, `lambda at, before: (A[before] * H[at]) @ B.T`. None for none. At
            temperature T both the rows and t are of logits divided by T.

    Raises:
        InvalidDistribution: if `rows` are not distributions `(L, V)`; on use, if a transition
            leaves no token possible, or is NaN.
        ShapeMismatch: if a transition has another form.
        InvalidParameter: if `start` is no integer ≥ 0; on use, for a position outside the block, or
            a token outside the vocabulary.

    Cost: O(rV) per context with a transition of rank r, by one product for a batch.
    Reference: DFlash; DDTree 2026 (2604.12989); DSpark (deepseek-ai/DeepSpec at afdfa7c,
        deepspec/modeling/dspark/markov_head.py); DFlash 2 (z-lab/dflash at 0a7587c,
        dflash/model_mlx.py); docs/theory.md, "Drafters of marginals".

    >>> BlockMarginals([[0.5, 0.5], [0.25, 0.75]], start=1).next([0, 1])
    array([0.25, 0.75])
    >>> import numpy as np
    >>> again = np.diag([np.log(3), np.log(3)])  # a token repeats three times likelier
    >>> BlockMarginals([[0.5, 0.5], [0.25, 0.75]], start=1, transition=again).next([0, 1])
    array([0.1, 0.9])
    """

    rows: NDArray[np.float64]
    start: int
    transition: Transition | None

    __repr__ = brief_repr

    def __init__(
        self,
        rows: ArrayLike,
        start: int = 0,
        transition: ArrayLike | tuple[ArrayLike, ArrayLike] | Transition | None = None,
    ) -> None:
        checked = distributions_of(rows, name="rows", form="(L, V)", ndim=2)
        vars(self).update(
            rows=checked,
            start=check_count(start, name="start", minimum=0),
            transition=_as_transition(transition, checked.shape[1]),
        )

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.rows.shape[1])

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the law of the position after `context`, given the last token.

        Raises:
            InvalidParameter: if that is no position of the block, or the context no sequence of
                tokens.
        """
        return np.asarray(self.next_batch([context])[0])

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the laws `(n, V)` of the positions after n contexts."""
        checked = [check_context(context) for context in contexts]
        positions = np.array([len(context) - self.start for context in checked], dtype=np.int64)
        for position, context in zip(positions.tolist(), checked, strict=True):
            if not 0 <= position < len(self.rows):
                raise InvalidParameter(
                    f"The block has {len(self.rows)} positions after {self.start} tokens; "
                    f"{len(context)} tokens precede another. Draft at most the block's length, "
                    "from its start."
                )
        laws = self.rows[positions]
        led = np.flatnonzero(positions > -self.start)  # where a token precedes
        if self.transition is not None and led.size:
            before = np.array([checked[row][-1] for row in led])
            laws[led] = self._shifted(self.transition, positions[led], before)
        return laws

    def _shifted(
        self, transition: Transition, positions: NDArray[np.int64], before: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the laws of positions given the tokens before these."""
        if before.max() >= self.num_tokens:
            raise InvalidParameter(
                f"The token before a position must lie in [0, {self.num_tokens}); got "
                f"{before.max()}. Check the vocabulary."
            )
        with np.errstate(over="ignore", invalid="ignore"):  # what is no number is refused below
            shift = plain_reals(transition(positions, before), "transition")
        if shift.shape != (len(before), self.num_tokens):
            raise ShapeMismatch(
                f"A transition must answer with ({len(before)}, {self.num_tokens}) logits for "
                f"{len(before)} tokens; it returned shape {shift.shape}."
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            logits = np.log(self.rows[positions]) + shift
        if not np.isfinite(logits.max(axis=1)).all():
            raise InvalidDistribution(
                "A transition must leave a token possible after every other, by numbers below ∞; "
                f"after {before.tolist()} it does not. Check it for NaN and for rows of −∞."
            )
        return np.asarray(scipy.special.softmax(logits, axis=1))


def block_marginals(
    model: LanguageModel, *, context: Sequence[int], length: int, memory: int = 0
) -> BlockMarginals:
    """Return the drafter of a model's exact marginals, the best drafter with one head per position.

    p_i(y) = Pr(the i-th token after `context` is y), i = 1 … L; with a memory of one token
    p_i(y | x) = Pr(the i-th token is y | the one before is x), of all drafters that look back by
    one token the nearest to the model in relative entropy.

    Args:
        model: any model, such as the target.
        context: tokens so far.
        length: L ≥ 1 positions.
        memory: how many tokens of the block a position looks back, 0 or 1.

    Returns:
        BlockMarginals, for a step that starts at `context`.

    Raises:
        InvalidParameter: if `memory` is neither 0 nor 1.
        TooLarge: beyond the limit of `otm.sequence.sequence_law`.

    Cost: V^L. Reference: docs/theory.md, "Drafters of marginals".

    >>> from otm.sequence import MarkovModel
    >>> block_marginals(MarkovModel([[1.0, 0.0], [0.0, 1.0]]), context=[1], length=2).rows.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    >>> chain = MarkovModel([[0.75, 0.25], [0.5, 0.5]])
    >>> knowing = block_marginals(chain, context=[], length=2, memory=1)
    >>> knowing.next([]).tolist(), [round(x, 12) for x in knowing.next([1]).tolist()]
    ([0.75, 0.25], [0.5, 0.5])
    """
    if check_count(memory, name="memory", minimum=0) > 1:
        raise InvalidParameter(
            f"memory must be 0 or 1, the tokens that a head looks back; got {memory}. Pass 1 for a "
            "transition, 0 for none."
        )
    start = check_context(context)
    law = sequence_law(model, start, length)
    axes = range(law.ndim)
    rows = np.stack(
        [law.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    )
    if not memory:
        return BlockMarginals(rows / rows.sum(axis=1, keepdims=True), start=len(start))
    shifts = np.zeros((len(rows), *law.shape[:1], *law.shape[:1]))
    for axis in axes[1:]:
        pair = law.sum(axis=tuple(other for other in axes if other not in (axis - 1, axis)))
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.log(pair) - np.log(pair.sum(axis=1, keepdims=True)) - np.log(rows[axis])
        # NaN where a token has no probability at its place: what follows it is asked of nobody
        shifts[axis] = np.nan_to_num(shift, nan=0.0, neginf=-np.inf)
    rows /= rows.sum(axis=1, keepdims=True)
    return BlockMarginals(rows, len(start), lambda at, before: shifts[at, before])


def _as_transition(given: Any, size: int) -> Transition | None:
    """Return a transition as a function of positions and preceding tokens."""
    if given is None or callable(given):
        return given  # type: ignore[no-any-return]  # what it answers is checked on use
    # copies in float64: products of small integers would wrap
    parts = [
        np.array(plain_reals(part, "transition"), dtype=np.float64)
        for part in (given if isinstance(given, tuple) else [given])
    ]
    shapes = [part.shape for part in parts]
    if shapes == [(size, size)]:
        return lambda at, before: parts[0][before]
    if len(parts) != 2 or shapes[0] != shapes[1] or len(shapes[0]) != 2 or len(parts[0]) != size:
        raise ShapeMismatch(
            f"A transition must be a table (V, V), a pair of matrices (V, r), or a function, for "
            f"V = {size}; got shapes {shapes}. Pass A and B of A(x)·B(y)."
        )
    return lambda at, before: parts[0][before] @ parts[1].T
