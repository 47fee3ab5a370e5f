"""Decoders ranked by block efficiency, beside the best that their drafts allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from otm import drawing
from otm.errors import InvalidParameter, Unsupported
from otm.sequence.best_step_lp import best_step
from otm.sequence.decoder import Decoder, check_step_arguments
from otm.sequence.deferred import expected_step
from otm.sequence.enumeration import step_law
from otm.sequence.models import LanguageModel
from otm.tabular import OneTable, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class RankedDecoder:
    """A decoder beside the best that could be done with its drafts.

    Attributes:
        decoder: what is ranked.
        num_drafts: drafted vertices per step.
        block_efficiency: its expected number of tokens per target call.
        best: the certified upper bound for its drafts.
    """

    decoder: Decoder
    num_drafts: int
    block_efficiency: float
    best: float

    @property
    def loss(self) -> float:
        """Tokens per call that a better verification of the same drafts could win."""
        return self.best - self.block_efficiency


@dataclasses.dataclass(frozen=True, repr=False)
class DecoderRanking(OneTable, Sequence[RankedDecoder]):
    """A sequence of decoders in descending order of block efficiency.

    Attributes:
        rows: the decoders, each beside the best that its drafts allow.
    """

    rows: tuple[RankedDecoder, ...]

    def __repr__(self) -> str:
        return f"DecoderRanking({len(self.rows)} decoders)"

    def __str__(self) -> str:
        return self.data().text()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def data(self) -> Table:
        """Return a row for each decoder."""
        rows = [
            (str(row.decoder), row.num_drafts, row.block_efficiency, row.best, row.loss)
            for row in self.rows
        ]
        return Table(
            columns=("decoder", "drafts", "tokens per call", "best of its drafts", "loss"),
            rows=tuple(rows),
        )

    def _draw(self, ax: Axes) -> None:
        names = [str(row.decoder) for row in self.rows]
        drawing.draw_bars(
            ax, names, [row.block_efficiency for row in self.rows], xlabel="tokens per call"
        )
        for at, row in enumerate(reversed(self.rows)):
            ax.plot([row.best] * 2, [at - 0.4, at + 0.4], color=drawing.INK, lw=2)
        ax.set_title("black: the best that the drafts allow", fontsize=10)


def rank_decoders(
    decoders: Sequence[Decoder],
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
) -> DecoderRanking:
    """Rank decoders by block efficiency, each beside the best that its drafts allow.

    Compare decoders that draft equally many tokens: then block efficiency ranks drafting and
    verification together, and `loss` is what verification alone leaves on the table.

    Args:
        decoders: lossless ones, any number.
        draft, target, context: as for `best_step`.

    Returns:
        A DecoderRanking: a RankedDecoder for each, the most tokens per call first; `print` it or
        `plot` it.

    Raises:
        Unsupported: for a lossy decoder, to which the bound does not apply.

    Cost: one `best_step` and one exact law for each decoder.
    Reference: docs/theory.md, "The best step".

    >>> from otm.sequence import BlockVerification, SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> ranked = rank_decoders(
    ...     [SpeculativeSampling(2), BlockVerification(2)], draft=draft, target=target, context=[]
    ... )
    >>> [(row.decoder.title, round(row.block_efficiency, 4)) for row in ranked]
    [('block verification', 2.2222), ('speculative sampling', 2.1111)]
    >>> [round(row.loss, 4) for row in ranked]
    [0.0, 0.1111]
    """
    rows = []
    if not isinstance(decoders, Sequence):
        raise InvalidParameter(
            f"decoders must be a list of decoders; got {decoders!r:.80}. Pass "
            "[SpeculativeSampling(2)], say."
        )
    for decoder in decoders:
        check_step_arguments(decoder, draft=draft, target=target, context=context)
        if not decoder.lossless:
            raise Unsupported(
                f"Only lossless decoders have the best lossless step as their bound; {decoder!r} "
                "is lossy. Weigh its block efficiency against otm.sequence.divergence_by_position."
            )
        best = best_step(decoder, draft=draft, target=target, context=context)
        efficiency = _efficiency(decoder, draft, target, context)
        rows.append(RankedDecoder(decoder, decoder.num_nodes, efficiency, best.upper))
    return DecoderRanking(tuple(sorted(rows, key=lambda row: -row.block_efficiency)))


def _efficiency(
    decoder: Decoder, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> float:
    try:
        return expected_step(decoder, draft=draft, target=target, context=context).block_efficiency
    except Unsupported:  # drafts that are not fresh when they are looked at
        return step_law(decoder, draft=draft, target=target, context=context).block_efficiency
