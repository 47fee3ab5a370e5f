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
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm import drawing
from otm.audit.candidate import UniformsCandidate, read_block
from otm.audit.coverage import Coverage
from otm.audit.integration import IntegratedAudit, Row, check_tolerance, completions, decided
from otm.audit.report import MOST_ENTRIES, format_probabilities, format_probability
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import ShapeMismatch, TooLarge
from otm.pmf import check_count
from otm.sequence.models import LanguageModel, check_context, check_model, next_distribution
from otm.tracing.answers import outcome_of
from otm.tracing.output_law import output_law_of
from otm.verifiers.callables import count_uniforms

Tables = Mapping[Row, NDArray[np.float64]]
"""Next-token distributions by what follows the context."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SequenceAudit(IntegratedAudit):
    """What a block verifier does on one pair of models, exactly; `str` gives the report in
    Markdown.

    Its `law` is that of γ + 1 tokens, the output followed by samples of the target.

    Attributes:
        context: what the block continues.
        draft_tables, target_tables: the laws used, by what follows the context.
        tokens_per_call: mean number of tokens in the output.
        accepted: mean number that the verifier says it accepted; None if it does not say.
    """

    context: Row
    draft_tables: Tables
    target_tables: Tables
    tokens_per_call: float
    accepted: float | None

    drafts: ClassVar[str] = "drafted block"
    outcome: ClassVar[str] = "block"

    @property
    def num_drafts(self) -> int:
        """γ, the number of drafted tokens."""
        return self.law.ndim - 1

    @functools.cached_property
    def prefix_variations(self) -> tuple[float, ...]:
        """Total variation between the laws of the first 1, 2, …, γ + 1 tokens; non-decreasing."""
        places = range(self.law.ndim)
        return tuple(
            self.variation_over(tuple(places[length:])) for length in range(1, len(places) + 1)
        )

    @property
    def first_position(self) -> int | None:
        """The first position, from 1, at which the law of the tokens so far is not the target's;
        None if there is none.
        """
        explained = self.tolerance + max(self.error, self.unproved)
        beyond = (variation > explained for variation in self.prefix_variations)
        return next((position for position, fails in enumerate(beyond, start=1) if fails), None)

    def picture(self, ax: Any) -> None:
        """Draw the total variation of the first 1, 2, … tokens."""
        drawing.draw_bars(
            ax,
            names=[f"first {n} token{'s' * (n > 1)}" for n in range(1, self.law.ndim + 1)],
            values=self.prefix_variations,
            xlabel="total variation to the target",
        )

    def remark(self) -> str:
        """Return where it begins, and tokens per call."""
        where = "" if self.first_position is None else f"from position {self.first_position}, "
        return f"{where}{format_probability(self.tokens_per_call)} tokens per call"

    def given(self) -> list[tuple[str, str]]:
        """Return the models."""
        return [
            ("block", f"γ = {self.num_drafts} drafts, after context {self.context}"),
            ("draft p", _written(self.draft_tables)),
            ("target q", _written(self.target_tables)),
        ]

    def beside(self) -> list[tuple[str, str]]:
        """Return from which position on the laws of the blocks are apart, and how long they are."""
        shown, first, accepted = format_probability, self.first_position, ""
        if self.accepted is not None:
            accepted = f"; {shown(self.accepted)} of them counted as accepted"
        by_length = ", ".join(map(shown, self.prefix_variations))
        where = "" if first is None else f"; fails from position {first}"
        return [
            ("by length", f"first 1, 2, … tokens: {by_length}{where}"),
            ("tokens per call", f"{shown(self.tokens_per_call)}{accepted}"),
        ]


def _again(name: str, table: Tables) -> str:
    """Return Python that makes a model, to be formatted."""
    rows = ", ".join(f"{context}: {law.tolist()}" for context, law in table.items())
    return f"{name} = otm.sequence.TableModel({{{{{rows}}}}})\n"


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
        untested=("several drafts a position", "processing of logits", "laws in float32"),
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


def _enumerate(model: LanguageModel, start: Row, depth: int, name: str) -> Tables:
    """Return the next-token laws after every continuation of at most `depth` tokens."""
    found: dict[Row, NDArray[np.float64]] = {(): next_distribution(model, start, name=name)}
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
    draft_model: LanguageModel,
    target_model: LanguageModel,
    num_drafts: int,
    context: Sequence[int],
    *,
    tolerance: float | None,
) -> SequenceAudit:
    """Integrate a verifier over its uniforms and every drafted block: see `otm.audit.sequence`."""
    draft, target = enumerate_models(draft_model, target_model, num_drafts, context)
    num_tokens = len(target[()])
    allowed = check_tolerance(tolerance, num_tokens * (num_drafts + 1), num_drafts)
    drafted = completions(draft.__getitem__, (), num_drafts)
    answers = output_law_of(
        [
            functools.partial(_answer, candidate, draft, target, tuple(block))
            for block in np.argwhere(drafted > 0).tolist()
        ],
        drafted[drafted > 0].tolist(),
        count_uniforms(candidate.num_uniforms, num_drafts, num_tokens),
        tolerance=allowed,
        described="these models",
    )
    after = functools.partial(completions, target.__getitem__, length=num_drafts + 1)
    law = np.zeros((num_tokens,) * (num_drafts + 1))
    for (output, _), mass in answers.totals:
        law[output] += mass * after(output)
    counted = all(count is not None for (_, count), _ in answers.totals)
    asked = f"draft=draft, target=target, num_drafts={num_drafts}"
    audit = SequenceAudit(
        name=candidate.name,
        again=f"{_again('draft', draft)}{_again('target', target)}"
        f"result = otm.audit.sequence({{}}, {asked})",
        context=check_context(context),
        draft_tables=draft,
        target_tables=target,
        law=law,
        target_law=after(()),
        tested=coverage_of_models(draft, target, num_drafts),
        tokens_per_call=math.fsum(mass * len(output) for (output, _), mass in answers.totals),
        accepted=math.fsum(mass * count for (_, count), mass in answers.totals)
        if counted
        else None,
        tolerance=allowed,
    )
    return decided(audit, answers, tolerance)


def _answer(
    candidate: UniformsCandidate, draft: Tables, target: Tables, block: Row, uniforms: Any
) -> Any:
    """Run the candidate on a drafted block and uniforms, with arrays that it may write into."""
    laws = [
        np.stack([tables[block[:i]] for i in range(depth)])
        for tables, depth in ((draft, len(block)), (target, len(block) + 1))
    ]
    return outcome_of(
        lambda: read_block(
            candidate.verify(*laws, np.asarray(block, dtype=np.int64), uniforms),
            laws[1].shape[1],
            len(block) + 1,
        )
    )
