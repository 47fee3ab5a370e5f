"""Rankings of decoders by block efficiency beside the optimum, and of shapes by speed.

*Delayed expansion*, some drafts in a row and then several branches, is tried in every shape.
Branches from the root share nothing and pay for the first tokens several times over, though there
the models may agree anyway. With L₁ drafts in a row, then K branches of L₂, a budget of n drafted
tokens allows L₁ + K·L₂ ≤ n: few enough shapes to try them all.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from otm._display import drawing
from otm._display.tabular import OneTable, Table
from otm.errors import InvalidParameter, Unsupported
from otm.pmf import check_count, check_real
from otm.sequence.best_step_lp import best_step
from otm.sequence.decoder import Decoder
from otm.sequence.decoding import check_step_arguments
from otm.sequence.exact_laws import expected_step, step_law
from otm.sequence.models import LanguageModel, Memoised

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MakeDelayed = Callable[[int, int, int], Decoder]
"""A decoder for (stem L₁, branches K, length L₂)."""


@dataclasses.dataclass(frozen=True)
class RankedDecoder:
    """A decoder's block efficiency beside the best possible one with the same drafts.

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
    """Rank decoders by block efficiency, each beside the optimum for the same drafts.

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
    >>> decoders = [SpeculativeSampling(2), BlockVerification(2)]
    >>> ranked = rank_decoders(decoders, draft=draft, target=target, context=[])
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


@dataclasses.dataclass(frozen=True)
class DelayedExpansion:
    """A stem with branches, with expected tokens and speed.

    Attributes:
        stem, num_branches, length: L₁ ≥ 0 tokens in a row, then K ≥ 1 branches of L₂ ≥ 1 tokens.
        tokens: exact expected tokens per target call.
        speed: tokens per unit of time, a target call being one: tokens/(1 + c·(L₁ + L₂)).
    """

    stem: int
    num_branches: int
    length: int
    tokens: float
    speed: float


def delayed_expansions(
    make: MakeDelayed,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    num_nodes: int,
    draft_cost: float = 0.0,
) -> list[DelayedExpansion]:
    """Return every delayed expansion within a budget of drafted tokens, the fastest first.

    Args:
        make: (L₁, K, L₂) → a decoder, of `otm.trees.TreeShape.delayed(L₁, K, L₂)`, say.
        draft, target: two models; a small vocabulary.
        context: tokens so far.
        num_nodes: the budget n ≥ 1, L₁ + K·L₂ ≤ n.
        draft_cost: c ≥ 0, the time of a draft call in target calls; 0 ranks by tokens per call.

    Returns:
        A DelayedExpansion for each shape, by falling speed, of equals the one with fewer tokens
        drafted; chains as K = 1, L₁ = 0.

    Raises:
        InvalidParameter: if the budget is no integer of at least 1, or the cost is negative.

    Cost: one `expected_step` per shape; n² of them, in round numbers.
    Reference: Thomas et al. 2026 (2602.16994).

    >>> from otm.sequence import GreedyMultipath, MarkovModel
    >>> draft = MarkovModel([[0.0, 1.0], [0.75, 0.25]])
    >>> target = MarkovModel([[0.0, 1.0], [0.25, 0.75]])  # agrees after 0, not after 1
    >>> make = lambda stem, branches, length: GreedyMultipath(branches, length, stem)
    >>> models = {"draft": draft, "target": target}
    >>> best, *_ = delayed_expansions(make, **models, context=[0], num_nodes=4, draft_cost=0.1)
    >>> best.stem, best.num_branches, best.length
    (1, 3, 1)
    >>> round(best.tokens, 6)  # 1 + 1 + (1 − (3/4)³) + 1/4
    2.828125
    """
    try:
        inspect.signature(make).bind(0, 1, 1)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"make must be a function of (stem, branches, length) to a decoder; got {make!r:.80}. "
            "Pass the function itself."
        ) from error
    budget = check_count(num_nodes, name="num_nodes")
    check_step_arguments(make(0, 1, 1), draft=draft, target=target, context=context)
    cost = check_real(draft_cost, name="draft_cost", low=0.0)
    drafter, judge = Memoised(draft), Memoised(target)
    found = []
    for stem, branches, length in _shapes(budget):
        decoder = make(stem, branches, length)
        step = expected_step(decoder, draft=drafter, target=judge, context=context)
        tokens = step.block_efficiency
        speed = tokens / (1.0 + cost * (stem + length))
        found.append(DelayedExpansion(stem, branches, length, tokens, speed))
    return sorted(found, key=lambda one: (-one.speed, one.stem + one.num_branches * one.length))


def _shapes(budget: int) -> Iterator[tuple[int, int, int]]:
    """List (L₁, K, L₂) with L₁ + K·L₂ ≤ n: chains once, then every branching."""
    yield from ((0, 1, length) for length in range(1, budget + 1))
    for branches in range(2, budget + 1):
        for length in range(1, budget // branches + 1):
            yield from ((stem, branches, length) for stem in range(budget - branches * length + 1))
