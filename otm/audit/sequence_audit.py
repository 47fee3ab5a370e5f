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
from otm.audit.candidate import UniformsCandidate, read_block
from otm.audit.coverage import Coverage
from otm.audit.integration import IntegratedAudit, allowed_by, check_tolerance
from otm.audit.report import MOST_ENTRIES, facts, format_probabilities, format_probability
from otm.divergences import divergence_term
from otm.drafts.base import MAX_SEQUENCES, all_sequences
from otm.errors import ShapeMismatch, TooLarge
from otm.pmf import check_count
from otm.sequence.models import LanguageModel, check_context, check_model, next_distribution
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
    def tested(self) -> Coverage:
        """One pair of models, the joint law of γ + 1 tokens."""
        return coverage_of_models(self.draft_tables, self.target_tables, self.num_drafts)

    @property
    def again(self) -> str:
        """The models, and the audit on them."""
        tables = self.draft_tables, self.target_tables
        draft, target = (
            ", ".join(f"{context}: {law.tolist()}" for context, law in table.items())
            for table in tables
        )
        return (
            f"draft = otm.sequence.TableModel({{{{{draft}}}}})\n"
            f"target = otm.sequence.TableModel({{{{{target}}}}})\n"
            "result = otm.audit.sequence({}, draft=draft, target=target, "
            f"num_drafts={self.num_drafts})"
        )

    def picture(self) -> Callable[[Axes], None]:
        """Return the total variation of the first 1, 2, … tokens."""
        names = [f"first {n} token{'s' * (n > 1)}" for n in range(1, self.law.ndim + 1)]
        return functools.partial(
            drawing.draw_bars,
            names=names,
            values=self.prefix_variations,
            xlabel="total variation to the target",
        )

    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π), where it begins, and tokens per call."""
        where = "" if self.first_position is None else f"from position {self.first_position}, "
        return (
            format_probability(self.total_variation),
            format_probability(self.kl),
            f"{where}{format_probability(self.tokens_per_call)} tokens per call",
        )

    def sections(self) -> list[str]:
        """Return the models, how far the laws of the blocks are apart, from which position on."""
        worst, shown = self.worst_block, format_probability
        comes, should = shown(self.law[worst]), shown(self.target_law[worst])
        accepted = ""
        if self.accepted is not None:
            accepted = f"; {shown(self.accepted)} of them counted as accepted"
        by_length = ", ".join(map(shown, self.prefix_variations))
        where = (
            "" if self.first_position is None else f"; fails from position {self.first_position}"
        )
        rows = [
            ("block", f"γ = {self.num_drafts} drafts, after context {self.context}"),
            ("draft p", _written(self.draft_tables)),
            ("target q", _written(self.target_tables)),
            ("total variation", self.variation(shown(self.total_variation))),
            ("by length", f"first 1, 2, … tokens: {by_length}{where}"),
            ("KL(q‖π)", f"{shown(self.kl)} nats"),
            ("worst block", f"{worst}: comes out with {comes}, should with {should}"),
            ("tokens per call", f"{shown(self.tokens_per_call)}{accepted}"),
            ("how", self.how("drafted block")),
        ]
        return [facts(rows)]


def _written(tables: Tables) -> str:
    """Write a model: one law where it is the same everywhere, else by context, shortened."""
    laws = {context: format_probabilities(law) for context, law in tables.items()}
    if len(set(laws.values())) == 1:
        return f"{next(iter(laws.values()))} after every context"
    shown = [f"{law} after {context}" for context, law in laws.items()]
    return "; ".join(shown[:MOST_ENTRIES]) + ("; …" if len(shown) > MOST_ENTRIES else "")


def coverage_of_models(draft: Tables, target: Tables, num_drafts: int) -> Coverage:
    """Return what an audit of blocks on one pair of models covers, but for how."""
    laws = np.stack([*draft.values(), *target.values()])
    return Coverage(
        instances=("the models given",),
        drafts=(num_drafts,),
        tokens=(num_drafts + 1,),
        vocabulary=(laws.shape[-1],),
        least=float(laws[laws > 0].min()),
        untested=("several drafts a position",),
    )


def enumerate_models(
    draft: LanguageModel, target: LanguageModel, num_drafts: int, context: Sequence[int]
) -> tuple[Tables, Tables]:
    """Return the laws of both models after every continuation that a block of drafts can reach.

    Raises:
        InvalidDistribution: if a model's answer is no distribution.
        ShapeMismatch: if vocabularies differ. TooLarge: if there are too many blocks.
    """
    gamma = check_count(num_drafts, name="num_drafts")
    check_model(draft, name="draft")
    check_model(target, name="target")
    start = check_context(context)
    target_tables = _enumerate(target, start, gamma, "target")
    draft_tables = _enumerate(draft, start, gamma - 1, "draft")
    sizes = len(draft_tables[()]), len(target_tables[()])
    if sizes[0] != sizes[1]:
        raise ShapeMismatch(
            f"draft and target must share one vocabulary; they have {sizes[0]} and {sizes[1]} "
            "tokens. Pad the shorter one with zeros."
        )
    return draft_tables, target_tables


def _enumerate(model: LanguageModel, start: tuple[int, ...], depth: int, name: str) -> Tables:
    """Return the next-token laws after every continuation of at most `depth` tokens."""
    found: dict[tuple[int, ...], NDArray[np.float64]] = {
        (): next_distribution(model, start, name=name)
    }
    num_tokens = len(found[()])
    if num_tokens ** min(depth + 1, MAX_SEQUENCES.bit_length()) > MAX_SEQUENCES:
        raise TooLarge(
            f"The joint law is enumerated up to {MAX_SEQUENCES:,} blocks; {num_tokens} tokens and "
            f"{depth} drafts have {num_tokens}^{depth + 1}. Use smaller toy models: faults show on "
            "two or three tokens."
        )
    for length in range(1, depth + 1):
        for path in itertools.product(range(num_tokens), repeat=length):
            found[path] = next_distribution(model, (*start, *path), name=name)
    return found


def integrate_blocks(
    candidate: UniformsCandidate,
    draft: Tables,
    target: Tables,
    *,
    num_drafts: int,
    context: Sequence[int],
    tolerance: float | None,
) -> SequenceAudit:
    """Integrate a verifier over its uniforms and every drafted block: see `otm.audit.sequence`."""
    num_tokens = len(target[()])
    allowed = check_tolerance(tolerance, num_tokens * (num_drafts + 1), num_drafts)
    blocks = map(tuple, all_sequences(num_tokens, num_drafts).tolist())
    live = {block: mass for block in blocks if (mass := _mass(draft, block)) > 0}
    answers = output_law_of(
        [_on_block(candidate, draft, target, block) for block in live],
        list(live.values()),
        candidate.count(num_drafts, num_tokens),
        tolerance=allowed,
        described="these models",
    )
    allowed = allowed_by(answers, tolerance, allowed)
    counted = all(count is not None for (_, count), _ in answers.totals)
    law = np.zeros((num_tokens,) * (num_drafts + 1))
    outputs: dict[tuple[int, ...], float] = {}
    for (output, _), mass in answers.totals:
        outputs[output] = outputs.get(output, 0.0) + mass
    for output, mass in outputs.items():
        law[output] += mass * completions(target, output, num_drafts + 1)

    def conclude(known: OutputLaw) -> SequenceAudit:
        accepted = math.fsum(mass * count for (_, count), mass in known.totals) if counted else None
        return SequenceAudit(
            name=candidate.name,
            context=check_context(context),
            draft_tables=draft,
            target_tables=target,
            law=law,
            target_law=completions(target, (), num_drafts + 1),
            tokens_per_call=math.fsum(mass * len(output) for (output, _), mass in known.totals),
            accepted=accepted,
            tolerance=allowed,
            error=known.error,
            unproved=known.unproved,
            method=known.method,
            cells=known.cells,
            reason=known.reason,
        )

    return refine_until_decided(answers, conclude)


def _mass(tables: Tables, block: tuple[int, ...]) -> float:
    """Return the probability of a drafted block."""
    return math.prod(float(tables[block[:i]][token]) for i, token in enumerate(block))


def completions(tables: Tables, output: tuple[int, ...], length: int) -> NDArray[np.float64]:
    """Return the law of samples of the target after `output`, up to `length` tokens in all."""
    if len(output) == length:
        return np.ones(())
    mass = tables[output]
    return np.stack([mass[x] * completions(tables, (*output, x), length) for x in range(len(mass))])


def _on_block(
    candidate: UniformsCandidate,
    draft_tables: Tables,
    target_tables: Tables,
    block: tuple[int, ...],
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
