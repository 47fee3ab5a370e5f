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
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm import drawing
from otm.audit.candidate import as_candidate, unwrapped
from otm.audit.coverage import Coverage, covering
from otm.audit.integration import IntegratedAudit, allowed_by, check_tolerance
from otm.audit.probabilities import number, numbers
from otm.divergences import divergence_term
from otm.drafts.base import enumerate_drafts
from otm.problem import Problem, check_problem
from otm.results import Coupling
from otm.tabular import markdown
from otm.tracing.answers import NO_TOKEN
from otm.tracing.output_law import OutputLaw, output_law_of, refine_until_decided
from otm.verbs import coupling, optimal_acceptance, prepare
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance
from otm.verifiers.callables import output_law_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUADRATURE = 1e-10
"""Races integrate their joint law numerically, with errors below 2e-12 per entry."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExactAudit(IntegratedAudit):
    """What a verifier does on one problem, exactly; `str` gives the report in Markdown.

    Attributes:
        name, tolerance, error, unproved, method, cells: as of `IntegratedAudit`.
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
    def coverage(self) -> Coverage:
        """One problem, one token."""
        return covering(
            self.problem, by=self.means, untested=(*self.hidden, "later tokens of a block")
        )

    def _draw(self, ax: Axes) -> None:
        names = [str(token) for token in range(len(self.output_law))]
        drawing.draw_pair(
            ax, self.output_law, self.problem.target, names=names, labels=("output π", "target q")
        )
        ax.set_title(
            f"{self.name}: {self.verdict}, total variation {self.total_variation:.4f}", fontsize=10
        )

    def row(self) -> tuple[str, str, str]:
        """Return the figures that a battery shows."""
        remark = f"acceptance {number(self.membership)}, optimum {number(self.optimum)}"
        return number(self.total_variation), number(self.kl), remark

    def figures(self) -> str:
        """Return the report without its heading."""
        problem, worst = self.problem, self.worst_token
        rule = "" if self.rule is None else f"; by the rule {number(self.rule)}"
        rows = [
            ("draft p", f"{numbers(problem.draft)}, drafts by `{problem.law!r}`"),
            ("target q", numbers(problem.target)),
            ("output π", numbers(self.output_law)),
            ("total variation", f"**{number(self.total_variation)}** {self.allowance()}"),
            ("KL(q‖π)", f"{number(self.kl)} nats"),
            (
                "worst token",
                f"{worst}: comes out with {number(self.output_law[worst])}, should with "
                f"{number(problem.target[worst])}",
            ),
            ("acceptance", f"by membership {number(self.membership)}{rule}"),
            ("optimum", f"{number(self.optimum)}; gap {number(self.gap)}"),
            ("how", self.how("draft sequence")),
        ]
        return markdown(("", ""), rows)


def exact(candidate: object, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate a verifier over its uniforms and over every draft, and compare the law of its
    output with the target.

    Args:
        candidate: a function `verify(draft, target, drafts, uniforms)` (`otm.audit.candidate`), a
            `Candidate`, or one of the library's verifiers. It must be a function of its arguments.
        problem: one pair of distributions `(V,)`, small enough to enumerate the drafts.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless
            given (float32 kernels need more: `rounding_tolerance(num_tokens, k,
            unit_roundoff=2**-24)`).

    Returns:
        ExactAudit: verdict, output law, TV, KL, worst token, both acceptances, the optimum and the
        gap to it.

    Raises:
        CandidateFailure: if the callable raises or returns no token; the message names the input.
        InvalidParameter: if it is no callable, or no function of its arguments.
        TooLarge: beyond four million draft sequences; of code that cannot be traced beyond 512.

    Cost: traced, two calls for each draft sequence and each box (k + V boxes for recursive
        rejection); probed, some ten thousand.
    At most some 20 seconds: the draft sequences that there is no time for, the least likely, count
    as `error`.
    Accuracy: 2^-53 per box beside the candidate's own rounding; `error` otherwise.
    Reference: docs/theory.md, "Audits".

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> def lenient(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     return x if uniforms[0] < q[x] / (0.8 * p[x]) else 1
    >>> audit = exact(lenient, problem)
    >>> audit.verdict, audit.output_law, round(audit.total_variation, 12)
    ('not lossless', array([0.625, 0.375]), 0.125)
    """
    single = check_problem(problem).single(purpose="An exact audit")
    allowed = check_tolerance(tolerance, single.num_tokens, single.law.k)
    thing = unwrapped(candidate)
    if isinstance(thing, Verifier):
        return _from_kernel(thing, single, allowed)
    function = as_candidate(thing)
    sequences = enumerate_drafts(single.law, single.draft)
    live = sequences.mass > 0
    drafts = sequences.tokens[live]
    answers = output_law_on(function, single, drafts, sequences.mass[live], tolerance=allowed)
    allowed = allowed_by(answers, tolerance, allowed)
    return refine_until_decided(
        answers,
        lambda known: _from_answers(known, drafts, single, name=function.name, tolerance=allowed),
    )


def sampler(verifier: Verifier, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate what one of the library's samplers executes, drawing of the drafts included, over
    all its uniforms.

    Nothing is taken from the law's enumeration or the rule's kernel: an independent account of the
    same scheme.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`, or your own subclass of `otm.Verifier`.
        problem, tolerance: as for `exact`.

    Returns:
        ExactAudit. Races are exact. Schemes that compare uniforms with each other otherwise (the
        scores of `otm.Optimal`) come with an `error`, a few percent with two or three uniforms and
        too much to say anything with more.

    Raises:
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: as a traced `exact`, over the uniforms of drafting and verification together.

    >>> sampler(
    ...     otm.KSeq(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    ... ).verdict
    'lossless'
    """
    single = check_problem(problem).single(purpose="An exact audit")
    rule = prepare(verifier, single)
    before = rule.num_draft_uniforms

    def value(uniforms: NDArray[Any]) -> tuple[tuple[int, ...], tuple[int, bool]]:
        drafts, state = rule.draw(uniforms[None, :before])
        output, accepted = rule.verify(drafts, uniforms[None, before:], state)
        return tuple(drafts[0].tolist()), (int(output[0]), bool(accepted[0]))

    allowed = check_tolerance(tolerance, single.num_tokens, single.law.k)
    answers = output_law_of(
        [value], [1.0], before + rule.num_uniforms, tolerance=allowed, described="this problem"
    )
    rows = {
        drafts: row
        for row, drafts in enumerate(dict.fromkeys(drafts for _, (drafts, _), _ in answers.found))
    }
    by_drafts = dataclasses.replace(
        answers,
        found=[
            (np.asarray([rows[drafts]]), answer, mass)
            for _, (drafts, answer), mass in answers.found
        ],
    )
    drawn = np.asarray(list(rows), dtype=np.int64)
    return refine_until_decided(
        by_drafts,
        lambda known: _from_answers(
            known, drawn, single, name=f"the steps of {verifier!r}", tolerance=allowed
        ),
    )


def _from_answers(
    answers: OutputLaw, drafts: NDArray[np.int64], problem: Problem, *, name: str, tolerance: float
) -> ExactAudit:
    """Add up answers (token, accepted) to the joint law of (drafts, output) and the acceptance by
    the rule.
    """
    joint = np.zeros((len(drafts), problem.num_tokens))
    for rows, (token, _), mass in answers.found:
        if token != NO_TOKEN:
            joint[rows, token] += mass
    said = all(accepted is not None for (_, accepted), _ in answers.totals)
    return ExactAudit(
        name=name,
        problem=problem,
        coupling=Coupling(drafts=drafts, joint=scipy.sparse.csr_array(joint)),
        rule=math.fsum(mass for (_, accepted), mass in answers.totals if accepted)
        if said
        else None,
        optimum=optimal_acceptance(problem),
        tolerance=tolerance,
        error=answers.error,
        unproved=answers.unproved,
        method=answers.method,
        cells=answers.cells,
        reason=answers.reason,
    )


def _from_kernel(verifier: Verifier, problem: Problem, tolerance: float) -> ExactAudit:
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
