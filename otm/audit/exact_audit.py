"""The exact audit: a verifier integrated over its uniforms and over every draft, and its output law
held against the target.

The law of the output given the drafts comes from the best of three sources: a verifier of this
library has it (*kernel*), other code is traced or, failing that, probed as a black box
(`otm.tracing.output_law`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from otm import drawing
from otm.audit.coverage import Coverage, coverage_of_problem
from otm.audit.integration import IntegratedAudit
from otm.audit.report import facts, format_probabilities, format_probability
from otm.divergences import divergence_term
from otm.problem import Problem
from otm.results import Coupling
from otm.tracing.answers import NO_TOKEN
from otm.tracing.output_law import OutputLaw
from otm.verbs import coupling, optimal_acceptance, prepare
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUADRATURE = 1e-10
"""Races integrate their joint law numerically, with errors below 2e-12 per entry."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExactAudit(IntegratedAudit):
    """What a verifier does on one problem, exactly; `str` gives the report in Markdown.

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

    @functools.cached_property
    def output_law(self) -> NDArray[np.float64]:
        """π, the law of the output token `(V,)`."""
        return self.coupling.output_marginal

    @functools.cached_property
    def total_variation(self) -> float:
        """½ Σ |π − q|, what comes out beyond the vocabulary included."""
        missing = max(0.0, 1.0 - float(self.output_law.sum()))  # outputs outside the vocabulary
        return float(0.5 * (np.abs(self.output_law - self.problem.target).sum() + missing))

    @functools.cached_property
    def kl(self) -> float:
        """KL(q‖π) in nats; ∞ where a token of the target never comes out."""
        return float(divergence_term(self.problem.target, self.output_law).sum())

    @property
    def worst_token(self) -> int:
        """The token whose probability is furthest from the target's."""
        return int(np.abs(self.output_law - self.problem.target).argmax())

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

    @property
    def tested(self) -> Coverage:
        """One problem, one token."""
        return coverage_of_problem(self.problem)

    @property
    def again(self) -> str:
        """The problem, and the audit on it."""
        problem = self.problem
        laws = f"draft={problem.draft.tolist()}, target={problem.target.tolist()}"
        return (
            f"problem = otm.Problem({laws}, law=otm.{problem.law!r})\n"
            "result = otm.audit.exact({}, problem)"
        )

    def picture(self) -> Callable[[Axes], None]:
        """Return the output's law and the target's, side by side."""
        return functools.partial(
            drawing.draw_pair,
            first=self.output_law,
            second=self.problem.target,
            names=[str(token) for token in range(len(self.output_law))],
            labels=("output π", "target q"),
        )

    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π), acceptance and optimum."""
        accepted, best = format_probability(self.membership), format_probability(self.optimum)
        return (
            format_probability(self.total_variation),
            format_probability(self.kl),
            f"acceptance {accepted}, optimum {best}",
        )

    def sections(self) -> list[str]:
        """Return the laws, how far they are apart and where, and how much is accepted."""
        problem, worst, shown = self.problem, self.worst_token, format_probability
        comes, should = shown(self.output_law[worst]), shown(problem.target[worst])
        rule = "" if self.rule is None else f"; by the rule {shown(self.rule)}"
        rows = [
            ("draft p", f"{format_probabilities(problem.draft)}, drafts by `{problem.law!r}`"),
            ("target q", format_probabilities(problem.target)),
            ("output π", format_probabilities(self.output_law)),
            ("total variation", self.variation(shown(self.total_variation))),
            ("KL(q‖π)", f"{shown(self.kl)} nats"),
            ("worst token", f"{worst}: comes out with {comes}, should with {should}"),
            ("acceptance", f"by membership {shown(self.membership)}{rule}"),
            ("optimum", f"{shown(self.optimum)}; gap {shown(self.gap)}"),
            ("how", self.how("draft sequence")),
        ]
        return [facts(rows)]


def audit_of_answers(
    answers: OutputLaw, drafts: NDArray[np.int64], problem: Problem, *, name: str, tolerance: float
) -> ExactAudit:
    """Return the audit of the joint law of (drafts, output) that answers add up to."""
    joint = np.zeros((len(drafts), problem.num_tokens))
    for rows, (token, _), mass in answers.found:
        if token != NO_TOKEN:
            joint[rows, token] += mass
    rule = math.fsum(mass for (_, accepted), mass in answers.totals if accepted)
    said = all(accepted is not None for (_, accepted), _ in answers.totals)
    return ExactAudit(
        name=name,
        problem=problem,
        coupling=Coupling(drafts=drafts, joint=scipy.sparse.csr_array(joint)),
        rule=rule if said else None,
        optimum=optimal_acceptance(problem),
        tolerance=tolerance,
        error=answers.error,
        unproved=answers.unproved,
        method=answers.method,
        cells=answers.cells,
        reason=answers.reason,
    )


def audit_of_kernel(verifier: Verifier, problem: Problem, tolerance: float) -> ExactAudit:
    """Return the audit of the joint law that a verifier's own kernel gives."""
    joint = coupling(verifier, problem)
    rule = prepare(verifier, problem)
    if isinstance(rule, Conditional):
        accepted = enumerated_acceptance(rule, "rule")
    else:
        accepted = float(verifier.acceptance(problem, "rule"))
    return ExactAudit(
        name=repr(verifier),
        problem=problem,
        coupling=joint,
        rule=accepted,
        optimum=optimal_acceptance(problem),
        tolerance=tolerance if isinstance(rule, Conditional) else max(tolerance, _QUADRATURE),
        error=0.0,
        method="kernel",
        cells=len(joint.drafts),
    )
