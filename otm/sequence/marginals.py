"""Drafters that see no path: block-diffusion and parallel heads give one law per position.

Such a drafter (DFlash, DSpark, Medusa's heads) fills a block in one pass. Its law of a block is the
product of its positions' laws: even a perfect one, whose positions are the target's own marginals,
does not know which token goes with which. What can be made of its drafts is told by the decoders as
for any other draft model: sampled (`BlockVerification`, `SpeculativeSampling`), by argmax
(`LikeliestTree(size, length, width=1)`) or as a tree (`LikeliestTree`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import as_pmf, check_count
from otm.sequence.models import LanguageModel, OneByOne, check_context, sequence_law


@dataclasses.dataclass(frozen=True, eq=False)
class BlockMarginals(OneByOne):
    """A draft model whose law at a position ignores the path to it.

    Args:
        rows: the laws of the block's positions, `(L, V)`.
        start: how many tokens stand before the block.

    Raises:
        InvalidDistribution: if `rows` are not distributions `(L, V)`.
        InvalidParameter: if `start` is no integer ≥ 0; on use, for a position outside the block.

    Reference: DFlash; DDTree 2026 (2604.12989); docs/theory.md, "Drafters of marginals".

    >>> BlockMarginals([[0.5, 0.5], [0.25, 0.75]], start=1).next([0, 1])
    array([0.25, 0.75])
    """

    rows: NDArray[np.float64]
    start: int = 0

    def __post_init__(self) -> None:
        rows = np.asarray(as_pmf(self.rows, name="rows"), dtype=np.float64)
        if rows.ndim != 2:
            raise InvalidDistribution(
                f"rows must be one distribution per position, (L, V); their shape is {rows.shape}. "
                "Stack them."
            )
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "start", check_count(self.start, name="start", minimum=0))

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.rows.shape[1])

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the law of the position after `context`, whatever its tokens.

        Raises:
            InvalidParameter: if that is no position of the block, or the context no sequence of
                tokens.
        """
        context = check_context(context)
        position = len(context) - self.start
        if not 0 <= position < len(self.rows):
            raise InvalidParameter(
                f"The block has {len(self.rows)} positions after {self.start} tokens; "
                f"{len(context)} tokens precede another. Draft at most the block's length, from "
                "its start."
            )
        return np.asarray(self.rows[position])


def block_marginals(model: LanguageModel, *, context: Sequence[int], length: int) -> BlockMarginals:
    """Return the drafter of a model's exact marginals, the best that heads per position can learn.

    p_i(y) = Pr(the i-th token after `context` is y), i = 1 … L.

    Args:
        model: any model, such as the target.
        context: tokens so far.
        length: L ≥ 1 positions.

    Returns:
        BlockMarginals, for a step that starts at `context`.

    Raises:
        TooLarge: beyond the limit of `otm.sequence.sequence_law`.

    Cost: V^L. Reference: docs/theory.md, "Drafters of marginals".

    >>> from otm.sequence import MarkovModel
    >>> block_marginals(MarkovModel([[1.0, 0.0], [0.0, 1.0]]), context=[1], length=2).rows.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    start = check_context(context)
    law = sequence_law(model, start, length)
    axes = range(law.ndim)
    rows = np.stack(
        [law.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    )
    return BlockMarginals(rows / rows.sum(axis=1, keepdims=True), start=len(start))
