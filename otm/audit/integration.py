"""Audits by integration: the law of the output is known, and compared with the target's.

The law comes from the best of three sources: a verifier of this library has it (*kernel*), other
code is traced or, failing that, probed as a black box (`tracing.output_law`), which is called
"not lossless" beyond what is unproved of it only. All these audits are `IntegratedAudit`s; an
`ExactAudit` is of one token on one problem, a `SequenceAudit` of a block on two models.

A block verifier sees γ drafted tokens with the laws along them and returns 1 to γ + 1 tokens. It is
lossless when its output, followed by samples of the target, has the target's law over γ + 1 tokens
(SpecTr, Theorem 3). On toy models all of it is enumerated: every drafted block with its
probability, the law of the output given it, every completion by the target. A fault at one position
is a fault at every later one, so the laws of the first 1, 2, … tokens tell where it begins.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._display import drawing
from otm.audit.callables import count_uniforms
from otm.audit.candidate import UniformsCandidate, read_block
from otm.audit.report import (
    MOST_ENTRIES,
    PROBING,
    STATE,
    Audit,
    Coverage,
    Verdict,
    coverage_of_problem,
    facts,
    format_probabilities,
    format_probability,
)
from otm.audit.tracing.answers import NO_TOKEN, outcome_of
from otm.audit.tracing.output_law import Method, OutputLaw, output_law_of, rounding_tolerance
from otm.audit.tracing.precision import MOST_ROUNDED, explained
from otm.audit.tracing.probing import FALSE_ALARM, GRID
from otm.divergences import divergence_term
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import ShapeMismatch, TooLarge
from otm.pmf import check_count, check_real
from otm.problem import Problem
from otm.results import Coupling
from otm.sequence.models import (
    LanguageModel,
    check_context,
    check_model,
    next_distribution,
    next_distributions,
)
from otm.verbs import coupling, optimal_acceptance, prepare
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance

NEARLY = 1e-6
"""Total variation up to which a deviation is of the size of a code's own ε."""

UNFOLLOWED = 1e-8
"""Largest probability of draws that may be left unfollowed without a change of the verdict."""

LARGE_VOCABULARY = 128_256
"""Vocabulary size of a language model, to which a small deviation is extrapolated."""

_QUADRATURE = 1e-10
"""Races integrate their joint law numerically, with errors below 2e-12 per entry."""

_MEANS: dict[Method, str] = {
    "kernel": "summing the kernel",
    "traced": "exact integration",
    "branched": "branching on draws",
    "probed": PROBING,
}
_HOW = {
    "kernel": "the verifier's own kernel, summed over every {drafts}",
    "traced": "run on tracing numbers over every {drafts}: exact integration over the uniforms, "
    "{cells} boxes",
    "branched": "run on tracing numbers over every {drafts}, divided by the outcomes of what it "
    "draws itself: exact, {cells} parts",
    "probed": "probed as a black box over every {drafts}: exact if no cell of the uniforms is "
    "narrower than 1/64 along an axis; without that assumption at most {unproved:.2g} is unproved, "
    "{cells} cells",
}

Facts = list[tuple[str, str]]
"""Rows of a report: names and figures."""

Row = tuple[int, ...]
"""Tokens, one after the other."""

Next = Callable[[Row], NDArray[np.float64]]
"""A model's distribution after the tokens of a row."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedAudit(Audit):
    """An audit that knows the law of the output.

    Attributes:
        law: π, the law of the output, an axis for each token.
        target_law: the target's.
        tested: what was tested, but for how.
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of `total_variation` and of the acceptances beyond rounding; 0
            where the trace is complete.
        unproved: bound on the probability of what a black box may do otherwise than probing found,
            exceeded with a probability of at most 1e-9; 0 where it was no black box.
        method: how the law of the output was found.
        cells: how many boxes of uniforms were told apart, over all drafts.
        rounded: the largest total variation that counts as rounding of the arrays in sight.
        draft: the draft's law of the first token `(V,)`; None if there is none, or more than one.
        drafts, outcome: what it was found over every one of, and what came out, in words.
    """

    law: NDArray[np.float64]
    target_law: NDArray[np.float64]
    tested: Coverage
    tolerance: float
    error: float = 0.0
    unproved: float = 0.0
    method: Method = "kernel"
    cells: int = 0
    rounded: float = 0.0
    draft: NDArray[np.float64] | None = None

    drafts: ClassVar[str]
    outcome: ClassVar[str]

    @abc.abstractmethod
    def around(self, distance: Facts) -> Facts:
        """Return the instance, the distance of the laws, and side information, a row each."""

    @abc.abstractmethod
    def footnote(self) -> str:
        """Return the remark in a table of many audits, beside the distances."""

    @functools.cached_property
    def total_variation(self) -> float:
        """½ Σ |π − q|, with the mass of outputs beyond the vocabulary included."""
        return self.variation_over(())

    def variation_over(self, ignored: tuple[int, ...]) -> float:
        """Return the total variation after summing both laws over the `ignored` axes."""
        missing = max(0.0, 1.0 - float(self.law.sum()))
        difference = self.law.sum(axis=ignored) - self.target_law.sum(axis=ignored)
        return float(0.5 * (np.abs(difference).sum() + missing))

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

    @functools.cached_property
    def kl(self) -> float:
        """KL(q‖π) in nats; ∞ where a token of the target never comes out."""
        return float(divergence_term(self.target_law.reshape(-1), self.law.reshape(-1)).sum())

    @property
    def worst(self) -> Row:
        """The tokens whose joint probability is furthest from the target's."""
        index = int(np.abs(self.law - self.target_law).argmax())
        return tuple(int(i) for i in np.unravel_index(index, self.law.shape))

    @property
    def verdict(self) -> Verdict:
        """The verdict on the output's law, given rounding, `error` and `unproved`."""
        most = self.total_variation + self.error
        known = self.tolerance + 2.0 * self.error if self.error <= UNFOLLOWED else self.tolerance
        if most <= known:
            return "lossless"
        if most <= self.rounded:
            return "rounding"
        if self.total_variation - max(self.error, self.unproved) > self.tolerance:
            return "not exact" if most <= NEARLY else "not lossless"
        return "undecided"

    @property
    def severity(self) -> float:
        """The total variation."""
        return self.total_variation

    @property
    def coverage(self) -> Coverage:
        """The tested instances, the method behind the law, and the faults hidden from the
        method.
        """
        hidden = {
            "kernel": (),
            "probed": (STATE, f"cells of the uniforms narrower than 1/{GRID}"),
        }.get(self.method, (STATE,))
        return dataclasses.replace(
            self.tested,
            by=((_MEANS[self.method], 1),),
            unfollowed=self.error if self.error > self.tolerance else 0.0,
            # the prediction of a black box is held against samples of it
            false_alarm=FALSE_ALARM if self.unproved else 0.0,
            untested=(*hidden, *self.tested.untested),
        )

    @property
    def how(self) -> str:
        """The method that found the law."""
        return _HOW[self.method].format(
            drafts=self.drafts, cells=self.cells, unproved=self.unproved
        )

    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π) and a remark."""
        return (
            format_probability(self.total_variation),
            format_probability(self.kl),
            self.footnote(),
        )

    def sections(self) -> list[str]:
        """Return the instance, the distance of the laws, the worst tokens, and further rows."""
        worst, shown = self.worst, format_probability
        error = f", known to ± {self.error:.2g}" if self.error else ""
        unproved = f", unproved at most {self.unproved:.2g}" if self.unproved else ""
        allowed = f"(rounding explains {self.tolerance:.1g}{error}{unproved})"
        odds = (
            f"comes out with {shown(self.law[worst])}, should with {shown(self.target_law[worst])}"
        )
        distance = [
            ("total variation", f"**{shown(self.total_variation)}** {allowed}"),
            ("KL(q‖π)", f"{shown(self.kl)} nats"),
            (f"worst {self.outcome}", f"{worst[0] if len(worst) == 1 else worst}: {odds}"),
        ]
        return [facts([*self.around(distance), *self._at_large(), ("how", self.how)])]

    def _at_large(self) -> Facts:
        """Return the sum of all small deviations over the vocabulary of a language model."""
        if self.verdict != "not exact":
            return []
        each = float(np.abs(self.law - self.target_law).max())
        most = min(1.0, 0.5 * LARGE_VOCABULARY * each)
        said = f"at most {most:.2g}, if no token deviates by more than here, {each:.2g}"
        return [(f"at V = {LARGE_VOCABULARY:,}", said)]


def completions(law: Next, row: Row, length: int) -> NDArray[np.float64]:
    """Return the law of samples of a model after a row, up to `length` tokens in all."""
    if len(row) == length:
        return np.ones(())
    mass = law(row)
    if len(row) == length - 1:
        return mass.copy()
    impossible = np.zeros((len(mass),) * (length - len(row) - 1))
    return np.stack(
        [
            mass[x] * completions(law, (*row, x), length) if mass[x] else impossible
            for x in range(len(mass))
        ]
    )


def check_tolerance(tolerance: float | None, num_tokens: int, k: int) -> float:
    """Return the given tolerance, or the total variation that rounding explains."""
    if tolerance is None:
        return rounding_tolerance(num_tokens, k)
    return check_real(tolerance, name="tolerance", low=0.0, high=1.0)


Integrated = TypeVar("Integrated", bound=IntegratedAudit)


def decided(audit: Integrated, law: OutputLaw, tolerance: float | None) -> Integrated:
    """Complete an audit by the error, method and rounding of the traced law.

    The tolerance is the rounding of the arithmetic that random numbers met, unless one was given; a
    small deviation beyond it is "rounding" where arrays are in sight that explain it. A black box
    is compared at more points while the verdict is "undecided".
    """
    allowed = audit.tolerance * (law.rounding if tolerance is None else 1.0)
    if tolerance is None and allowed < audit.total_variation <= MOST_ROUNDED:
        bound = explained(kind := law.coarsest_type())
        said = f"{audit.total_variation:.2g}, of which {kind} in its arrays explains {bound:.2g}"
        if audit.total_variation <= bound:
            audit = dataclasses.replace(audit, rounded=bound, detail=said)
    for known in law.looks():
        audit = dataclasses.replace(
            audit,
            tolerance=allowed,
            error=known.error,
            unproved=known.unproved,
            method=known.method,
            cells=known.cells,
            reason=known.reason,
        )
        if audit.verdict != "undecided":
            break
    return audit


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExactAudit(IntegratedAudit):
    """The exact law of a verifier's outputs on one problem; `str` gives the report in Markdown.

    Attributes:
        problem: what it was run on.
        coupling: the joint law of (drafts, output).
        rule: acceptance by the rule, Pr(it said that it accepted); None if it does not say.
        optimum: α*, the most that any lossless verifier accepts here.
    """

    problem: Problem
    coupling: Coupling
    rule: float | None
    optimum: float

    drafts: ClassVar[str] = "draft sequence"
    outcome: ClassVar[str] = "token"

    @property
    def membership(self) -> float:
        """Pr(the output is among the drafts)."""
        return self.coupling.acceptance

    @property
    def gap(self) -> float:
        """The optimum minus the acceptance by membership; negative only where the output law is not
        the target.
        """
        return self.optimum - self.membership

    def picture(self, ax: Any) -> None:
        """Draw the output's law and the target's, side by side."""
        drawing.draw_pair(
            ax,
            self.law,
            self.target_law,
            names=[str(token) for token in range(len(self.law))],
            labels=("output π", "target q"),
        )

    def footnote(self) -> str:
        """Return acceptance and optimum."""
        accepted, best = format_probability(self.membership), format_probability(self.optimum)
        return f"acceptance {accepted}, optimum {best}"

    def around(self, distance: Facts) -> Facts:
        """Return the laws, the distance, acceptance and optimum."""
        problem, shown = self.problem, format_probability
        rule = "" if self.rule is None else f"; by the rule {shown(self.rule)}"
        return [
            ("draft p", f"{format_probabilities(problem.draft)}, drafts by `{problem.law!r}`"),
            ("target q", format_probabilities(problem.target)),
            ("output π", format_probabilities(self.law)),
            *distance,
            ("acceptance", f"by membership {shown(self.membership)}{rule}"),
            ("optimum", f"{shown(self.optimum)}; gap {shown(self.gap)}"),
        ]


def audit_of_answers(
    answers: OutputLaw,
    drafts: NDArray[np.int64],
    problem: Problem,
    *,
    name: str,
    tolerance: float | None,
) -> ExactAudit:
    """Return the audit of the joint law of (drafts, output) that answers add up to."""
    joint = np.zeros((len(drafts), problem.num_tokens))
    for rows, (token, _), mass in answers.found:
        if token != NO_TOKEN:
            joint[rows, token] += mass
    rule = math.fsum(mass for (_, accepted), mass in answers.totals if accepted)
    said = all(accepted is not None for (_, accepted), _ in answers.totals)
    plan = Coupling(drafts=drafts, joint=scipy.sparse.csr_array(joint))
    audit = _audit_of_coupling(plan, problem, name, rule if said else None, tolerance)
    return decided(audit, answers, tolerance)


def audit_of_kernel(verifier: Verifier, problem: Problem, tolerance: float | None) -> ExactAudit:
    """Return the audit of the joint law that a verifier's own kernel gives."""
    joint, rule = coupling(verifier, problem), prepare(verifier, problem)
    if isinstance(rule, Conditional):
        accepted, least = enumerated_acceptance(rule, "rule"), 0.0
    else:
        accepted, least = float(verifier.acceptance(problem, "rule")), _QUADRATURE
    audit = _audit_of_coupling(joint, problem, repr(verifier), accepted, tolerance)
    allowed = max(audit.tolerance, least)
    return dataclasses.replace(audit, tolerance=allowed, cells=len(joint.drafts))


def _audit_of_coupling(
    joint: Coupling, problem: Problem, name: str, rule: float | None, tolerance: float | None
) -> ExactAudit:
    """Return the audit of a joint law of (drafts, output) that is known exactly."""
    laws = f"draft={problem.draft.tolist()}, target={problem.target.tolist()}"
    return ExactAudit(
        name=name,
        again=f"problem = otm.Problem({laws}, law=otm.{problem.law!r})\n"
        "result = otm.audit.exact({}, problem)",
        problem=problem,
        coupling=joint,
        rule=rule,
        optimum=optimal_acceptance(problem),
        law=joint.output_marginal,
        target_law=problem.target,
        draft=problem.draft if problem.draft.ndim == 1 else None,
        tested=coverage_of_problem(problem),
        tolerance=check_tolerance(tolerance, problem.num_tokens, problem.num_drafts),
    )


Tables = Mapping[Row, NDArray[np.float64]]
"""Next-token distributions by continuation of the context."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SequenceAudit(IntegratedAudit):
    """The exact law of a block verifier's outputs on two models; `str` gives the report in
    Markdown.

    `law` is the law of γ + 1 tokens, the output followed by samples of the target.

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

    def picture(self, ax: Any) -> None:
        """Draw the total variation of the first 1, 2, … tokens."""
        drawing.draw_bars(
            ax,
            names=[f"first {n} token{'s' * (n > 1)}" for n in range(1, self.law.ndim + 1)],
            values=self.prefix_variations,
            xlabel="total variation to the target",
        )

    def footnote(self) -> str:
        """Return the first failing position, and the tokens per call."""
        where = "" if self.first_position is None else f"from position {self.first_position}, "
        return f"{where}{format_probability(self.tokens_per_call)} tokens per call"

    def around(self, distance: Facts) -> Facts:
        """Return the models, the distance, also by length, and tokens per call."""
        shown, first, accepted = format_probability, self.first_position, ""
        if self.accepted is not None:
            accepted = f"; {shown(self.accepted)} of them counted as accepted"
        by_length = ", ".join(map(shown, self.prefix_variations))
        where = "" if first is None else f"; fails from position {first}"
        return [
            ("block", f"γ = {self.num_drafts} drafts, after context {self.context}"),
            ("draft p", _written(self.draft_tables)),
            ("target q", _written(self.target_tables)),
            *distance,
            ("by length", f"first 1, 2, … tokens: {by_length}{where}"),
            ("tokens per call", f"{shown(self.tokens_per_call)}{accepted}"),
        ]


def _again(name: str, table: Tables) -> str:
    """Return Python code for a model, to be formatted."""
    rows = ", ".join(f"{context}: {law.tolist()}" for context, law in table.items())
    return f"{name} = otm.sequence.TableModel({{{{{rows}}}}})\n"


def _written(tables: Tables) -> str:
    """Format a model: one law if the same after all contexts, else by context, shortened."""
    laws = {context: format_probabilities(law) for context, law in tables.items()}
    if len(set(laws.values())) == 1:
        return f"{next(iter(laws.values()))} after every context"
    shown = [f"{law} after {context}" for context, law in laws.items()]
    return "; ".join(shown[:MOST_ENTRIES]) + ("; …" if len(shown) > MOST_ENTRIES else "")


def coverage_of_models(draft: Tables, target: Tables, num_drafts: int) -> Coverage:
    """Return the coverage of an audit of blocks on one pair of models, without the method."""
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
        paths = [*itertools.product(range(num_tokens), repeat=length)]
        laws = next_distributions(model, [(*start, *path) for path in paths], name=name)
        found |= {path: laws[(*start, *path)] for path in paths}
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
    """Integrate a verifier over the uniforms and every drafted block: see `otm.audit.sequence`."""
    draft, target = enumerate_models(draft_model, target_model, num_drafts, context)
    num_tokens = len(target[()])
    allowed = check_tolerance(tolerance, num_tokens * (num_drafts + 1), num_drafts)
    drafted = completions(draft.__getitem__, (), num_drafts)
    answers = output_law_of(
        [
            functools.partial(
                _answer,
                candidate,
                _laws_along(draft, block, num_drafts),
                _laws_along(target, block, num_drafts + 1),
                block,
            )
            for block in map(tuple, np.argwhere(drafted > 0).tolist())
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
        draft=draft[()],
        tested=coverage_of_models(draft, target, num_drafts),
        tokens_per_call=math.fsum(mass * len(output) for (output, _), mass in answers.totals),
        accepted=math.fsum(mass * count for (_, count), mass in answers.totals)
        if counted
        else None,
        tolerance=allowed,
    )
    return decided(audit, answers, tolerance)


def _laws_along(tables: Tables, block: Row, depth: int) -> NDArray[np.float64]:
    """Return the laws of the first `depth` tokens along a block `(depth, V)`."""
    return np.stack([tables[block[:i]] for i in range(depth)])


def _answer(
    candidate: UniformsCandidate,
    draft: NDArray[np.float64],
    target: NDArray[np.float64],
    block: Row,
    uniforms: Any,
) -> Any:
    """Run the candidate on a drafted block and uniforms, with arrays that may be overwritten."""
    p, q = draft.copy(), target.copy()
    return outcome_of(
        lambda: read_block(
            candidate.verify(p, q, np.asarray(block, dtype=np.int64), uniforms),
            q.shape[1],
            len(q),
        )
    )
