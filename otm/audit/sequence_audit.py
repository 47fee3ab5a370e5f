"""The sequence audit: the joint law of a block of tokens, where position, early stop and bonus
token are what goes wrong.

A block verifier sees γ drafted tokens with the laws along them and returns 1 to γ + 1 tokens. It is
lossless when its output, followed by samples of the target, has the target's law over γ + 1 tokens
(SpecTr, Theorem 3). On toy models all of it is enumerated: every drafted block with its
probability, the law of the output given it (`otm.tracing.output_law`), every completion by the
target. A fault at one position is a fault at every later one, so the laws of the first 1, 2, …
tokens tell where it begins.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from otm import drawing
from otm.audit.candidate import Candidate, as_candidate, read_block
from otm.audit.coverage import Coverage
from otm.audit.integration import IntegratedAudit, allowed_by, check_tolerance
from otm.audit.probabilities import MOST_ENTRIES, number, numbers
from otm.divergences import divergence_term
from otm.drafts.base import MAX_SEQUENCES, all_sequences
from otm.errors import ShapeMismatch, TooLarge
from otm.pmf import check_count
from otm.sequence.models import LanguageModel, check_context, check_model, next_distribution
from otm.tabular import markdown
from otm.tracing.answers import outcome_of
from otm.tracing.output_law import OutputLaw, output_law_of, refine_until_decided

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tables = Mapping[tuple[int, ...], NDArray[np.float64]]
"""Next-token distributions by what follows the context."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SequenceAudit(IntegratedAudit):
    """What a block verifier does on one pair of models, exactly; `str` gives the report in
    Markdown.

    Attributes:
        name, tolerance, error, unproved, method, cells: as of `IntegratedAudit`.
        context: what the block continues.
        draft_tables, target_tables: the laws used, by what follows the context.
        law: π over γ + 1 tokens, the output followed by samples of the target, `(V,)*(γ+1)`.
        target_law: the target's law over γ + 1 tokens.
        tokens_per_call: mean number of tokens in the output.
        accepted: mean number that the verifier says it accepted; None if it does not say.
    """

    context: tuple[int, ...]
    draft_tables: Tables
    target_tables: Tables
    law: NDArray[np.float64]
    target_law: NDArray[np.float64]
    tokens_per_call: float
    accepted: float | None

    @property
    def num_drafts(self) -> int:
        """γ, the number of drafted tokens."""
        return self.law.ndim - 1

    @functools.cached_property
    def prefix_variations(self) -> tuple[float, ...]:
        """Total variation between the laws of the first 1, 2, …, γ + 1 tokens; non-decreasing."""
        missing = max(0.0, 1.0 - float(self.law.sum()))
        found = []
        for length in range(1, self.law.ndim + 1):
            rest = tuple(range(length, self.law.ndim))
            difference = np.abs(self.law.sum(axis=rest) - self.target_law.sum(axis=rest)).sum()
            found.append(0.5 * (float(difference) + missing))
        return tuple(found)

    @property
    def total_variation(self) -> float:
        """½ Σ |π − q| over blocks of γ + 1 tokens."""
        return self.prefix_variations[-1]

    @functools.cached_property
    def kl(self) -> float:
        """KL(q‖π) in nats over blocks; ∞ where a block of the target never comes out."""
        return float(divergence_term(self.target_law.reshape(-1), self.law.reshape(-1)).sum())

    @property
    def first_position(self) -> int | None:
        """The first position, from 1, at which the law of the tokens so far is not the target's;
        None if there is none.
        """
        for position, variation in enumerate(self.prefix_variations, start=1):
            if variation - max(self.error, self.unproved) > self.tolerance:
                return position
        return None

    @property
    def worst_block(self) -> tuple[int, ...]:
        """The block whose probability is furthest from the target's."""
        index = int(np.abs(self.law - self.target_law).argmax())
        return tuple(int(i) for i in np.unravel_index(index, self.law.shape))

    @property
    def coverage(self) -> Coverage:
        """One pair of models, the joint law of γ + 1 tokens."""
        laws = np.stack([*self.draft_tables.values(), *self.target_tables.values()])
        return Coverage(
            instances=("the models given",),
            drafts=(self.num_drafts,),
            tokens=(self.num_drafts + 1,),
            vocabulary=(laws.shape[-1],),
            least=float(laws[laws > 0].min()),
            by=self.means,
            untested=(*self.hidden, "several drafts a position"),
        )

    def _draw(self, ax: Axes) -> None:
        names = [f"first {n} token{'s' * (n > 1)}" for n in range(1, self.law.ndim + 1)]
        drawing.draw_bars(ax, names, self.prefix_variations, xlabel="total variation to the target")
        ax.set_title(f"{self.name}: {self.verdict}", fontsize=10)

    def row(self) -> tuple[str, str, str]:
        """Return the figures that a battery shows."""
        where = "" if self.first_position is None else f"from position {self.first_position}, "
        return (
            number(self.total_variation),
            number(self.kl),
            f"{where}{number(self.tokens_per_call)} tokens per call",
        )

    def figures(self) -> str:
        """Return the report without its heading."""
        worst = self.worst_block
        accepted = (
            ""
            if self.accepted is None
            else f"; {number(self.accepted)} of them counted as accepted"
        )
        by_length = ", ".join(number(x) for x in self.prefix_variations)
        where = (
            "" if self.first_position is None else f"; fails from position {self.first_position}"
        )
        rows = [
            ("block", f"γ = {self.num_drafts} drafts, after context {self.context}"),
            ("draft p", _written(self.draft_tables)),
            ("target q", _written(self.target_tables)),
            ("total variation", f"**{number(self.total_variation)}** {self.allowance()}"),
            ("by length", f"first 1, 2, … tokens: {by_length}{where}"),
            ("KL(q‖π)", f"{number(self.kl)} nats"),
            (
                "worst block",
                f"{worst}: comes out with {number(self.law[worst])}, should with "
                f"{number(self.target_law[worst])}",
            ),
            ("tokens per call", f"{number(self.tokens_per_call)}{accepted}"),
            ("how", self.how("drafted block")),
        ]
        return markdown(("", ""), rows)


def _written(tables: Tables) -> str:
    """Print a model: one law where it is the same everywhere, else by context, shortened."""
    laws = {context: numbers(law) for context, law in tables.items()}
    if len(set(laws.values())) == 1:
        return f"{next(iter(laws.values()))} after every context"
    shown = [f"{law} after {context}" for context, law in laws.items()]
    return "; ".join(shown[:MOST_ENTRIES]) + ("; …" if len(shown) > MOST_ENTRIES else "")


def sequence(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_drafts: int,
    context: Sequence[int] = (),
    tolerance: float | None = None,
) -> SequenceAudit:
    """Integrate a block verifier over its uniforms and over every drafted block, and compare the
    joint law with the target's.

    Args:
        candidate: a function `verify(draft, target, drafts, uniforms)` or a `Candidate`, with
            `draft` `(γ, V)`, `target` `(γ+1, V)`, `drafts` `(γ,)`, that returns 1 to γ + 1 tokens,
            or (tokens, number accepted); trailing −1 is padding. It has γ + 1 uniforms unless the
            `Candidate` says otherwise.
        draft, target: toy models, `(V,)` after any context (`otm.sequence.TableModel`). A target
            that ends a text repeats its end-of-sequence token with certainty.
        num_drafts: γ.
        context: what the block continues.
        tolerance: largest total variation that counts as rounding.

    Returns:
        SequenceAudit: verdict, joint law, TV, KL, the first position that fails, mean tokens per
        call.

    Raises:
        CandidateFailure: if the callable raises or returns no block. InvalidDistribution: if a
            model's answer is no distribution.
        ShapeMismatch: if vocabularies differ. TooLarge: beyond four million blocks.

    Cost: V^γ drafted blocks, each two calls for each box of uniforms; V^(γ+1) output blocks.
    Reference: SpecTr, Theorem 3; docs/theory.md, "Audits".

    >>> draft, target = (
    ...     TableModel({c: mass for c in [(), (0,), (1,)]}) for mass in ([0.75, 0.25], [0.5, 0.5])
    ... )
    >>> def always(p, q, drafts, uniforms):  # keeps the draft and adds a token of the target
    ...     return [drafts[0], int(uniforms[0] >= q[1, 0])]
    >>> audit = sequence(always, draft=draft, target=target, num_drafts=1)
    >>> audit.verdict, audit.total_variation, audit.first_position
    ('not lossless', 0.25, 1)
    """
    function = as_candidate(candidate)
    gamma = check_count(num_drafts, name="num_drafts")
    check_model(draft, name="draft")
    check_model(target, name="target")
    start = check_context(context)
    target_tables = tables_of(target, start, gamma, "target")
    draft_tables = tables_of(draft, start, gamma - 1, "draft")
    num_tokens = len(target_tables[()])
    if len(draft_tables[()]) != num_tokens:
        raise ShapeMismatch(
            f"draft and target must share one vocabulary; they have {len(draft_tables[()])} and "
            f"{num_tokens} tokens."
            " Pad the shorter one with zeros."
        )
    allowed = check_tolerance(tolerance, num_tokens * (gamma + 1), gamma)
    blocks = [tuple(row) for row in all_sequences(num_tokens, gamma).tolist()]
    live = {block: weight for block in blocks if (weight := _chain(draft_tables, block)) > 0}
    answers = output_law_of(
        [_block_of(function, draft_tables, target_tables, block) for block in live],
        list(live.values()),
        function.count(gamma, num_tokens),
        tolerance=allowed,
        described="these models",
    )
    allowed = allowed_by(answers, tolerance, allowed)
    counted = all(count is not None for (_, count), _ in answers.totals)
    law = _completed(answers, target_tables, gamma + 1)

    def conclude(known: OutputLaw) -> SequenceAudit:
        return SequenceAudit(
            name=function.name,
            context=start,
            draft_tables=draft_tables,
            target_tables=target_tables,
            law=law,
            target_law=completions(target_tables, (), gamma + 1),
            tokens_per_call=math.fsum(mass * len(output) for (output, _), mass in known.totals),
            accepted=math.fsum(mass * count for (_, count), mass in known.totals)
            if counted
            else None,
            tolerance=allowed,
            error=known.error,
            unproved=known.unproved,
            method=known.method,
            cells=known.cells,
            reason=known.reason,
        )

    return refine_until_decided(answers, conclude)


def tables_of(model: LanguageModel, start: tuple[int, ...], depth: int, name: str) -> Tables:
    """Return the next-token distribution after every continuation of the context of at most `depth`
    tokens.
    """
    found: dict[tuple[int, ...], NDArray[np.float64]] = {
        (): next_distribution(model, start, name=name)
    }
    num_tokens = len(found[()])
    if num_tokens ** min(depth + 1, MAX_SEQUENCES.bit_length()) > MAX_SEQUENCES:
        raise TooLarge(
            f"The joint law is enumerated up to {MAX_SEQUENCES:,} blocks; {num_tokens} tokens and "
            f"{depth} drafts have "
            f"{num_tokens}^{depth + 1}. Use smaller toy models: faults show on two or three tokens."
        )
    for length in range(1, depth + 1):
        for path in itertools.product(range(num_tokens), repeat=length):
            found[path] = next_distribution(model, (*start, *path), name=name)
    return found


def _chain(tables: Tables, block: tuple[int, ...]) -> float:
    return math.prod(float(tables[block[:i]][token]) for i, token in enumerate(block))


def _completed(answers: OutputLaw, tables: Tables, length: int) -> NDArray[np.float64]:
    """Return the law of the answers, each followed by samples of the target up to `length` tokens
    in all.
    """
    outputs: dict[tuple[int, ...], float] = {}
    for (output, _), mass in answers.totals:
        outputs[output] = outputs.get(output, 0.0) + mass
    law = np.zeros((len(tables[()]),) * length)
    for output, mass in outputs.items():
        law[output] += mass * completions(tables, output, length)
    return law


def completions(tables: Tables, output: tuple[int, ...], length: int) -> NDArray[np.float64]:
    """Return the law of samples of the target after `output`, up to `length` tokens in all."""
    if len(output) == length:
        return np.ones(())
    mass = tables[output]
    return np.stack([mass[x] * completions(tables, (*output, x), length) for x in range(len(mass))])


def _block_of(
    candidate: Candidate, draft_tables: Tables, target_tables: Tables, block: tuple[int, ...]
) -> Callable[[NDArray[Any]], Any]:
    """Return the candidate on this drafted block as a function of its uniforms."""
    gamma = len(block)
    draft = np.stack([draft_tables[block[:i]] for i in range(gamma)])
    target = np.stack([target_tables[block[:i]] for i in range(gamma + 1)])
    drafts = np.asarray(block, dtype=np.int64)

    def value(uniforms: NDArray[Any]) -> Any:
        def run() -> tuple[tuple[int, ...], int | None]:
            answer = candidate.verify(draft.copy(), target.copy(), drafts.copy(), uniforms)
            return read_block(answer, target.shape[1], gamma + 1)

        return outcome_of(run)

    return value
