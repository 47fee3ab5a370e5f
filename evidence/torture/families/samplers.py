"""What draws: tokens that cannot come must not come, intervals hold at a confidence of 1 − 10⁻⁹,
and audits judge as they state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import iid, of_law
from evidence.torture.checks import Checks
from evidence.torture.families.laws import LOSSLESS, VALUES
from evidence.torture.families.lossy import SCHEMES
from evidence.torture.problems import Case, Row
from evidence.torture.promises import UNIT_ROUNDOFF
from otm import audit

checks = Checks("samplers", times=3)
SURE = 1 - 1e-9

VERIFIERS: list[tuple[otm.Verifier, str]] = [(verifier, law) for verifier, law, _ in LOSSLESS]


def _case(random: np.random.Generator, law: str) -> Case:
    return of_law(
        law,
        rows=(1,),
        tokens=(1, 2, 3, 4) if law == "IID" else (2, 3, 4),
        kinds=("float64", "torch64", "list"),
    )(random)


@checks.add(
    "otm.sample",
    "0: nothing without mass is drafted or comes out",
    "docstring",
    "supports of draft and target",
    direction="estimate",
)
def _sample(random: np.random.Generator) -> tuple[float, str]:
    verifier, law = VERIFIERS[random.integers(len(VERIFIERS))]
    case = _case(random, law)
    drawn = otm.sample(verifier, case.problem, size=200, rng=random)
    row = case.rows[0]
    # Samples are as wide as the longest of them where their number is random.
    possible = {tuple(y for y in x if y >= 0) for x, _ in oracles.sequences(row)}
    drafted = {tuple(y for y in x if y >= 0) for x in drawn.drafts.tolist()}
    fine = drafted <= possible and all(row.q[y] > 0 for y in drawn.output.tolist())
    return 0.0 if fine else math.inf, f"{verifier!r}, {case!r}: {drawn!r}"


@checks.add(
    "otm.estimate",
    "misses with probability at most 1e-9",
    "docstring",
    "acceptances in exact arithmetic",
    direction="estimate",
)
def _estimate(random: np.random.Generator) -> tuple[float, str]:
    verifier, law, _, truth, _ = VALUES[random.integers(len(VALUES))]
    case = _case(random, law)
    found = otm.estimate(verifier, case.problem, samples=500, rng=random, confidence=SURE)
    true = float(truth(case.rows[0]))
    fine = found.low - 1e-12 <= true <= found.high + 1e-12
    return 0.0 if fine else math.inf, f"{verifier!r}, {case!r}: {found} for {true!r}"


@checks.add(
    "otm.verifiers.rao_blackwell_acceptance",
    "misses with probability at most 1e-9",
    "docstring",
    "every path, exactly",
    direction="estimate",
)
def _rao_blackwell(random: np.random.Generator) -> tuple[float, str]:
    case = of_law("WithoutReplacement", rows=(1,), counts=(1, 2, 3, 4), tokens=(2, 3, 4, 5))(random)
    found = otm.verifiers.rao_blackwell_acceptance(
        case.problem, samples=200, rng=random, confidence=SURE
    )
    true = float(oracles.recursive_rejection(case.rows[0]))
    fine = found.low - 1e-12 <= true <= found.high + 1e-12
    return 0.0 if fine else math.inf, f"{case!r}: {found} for {true!r}"


@checks.add(
    "otm.verifiers.prepare_batch",
    "1e-12 in the selected draft's law (Σ = 1, s(y) ≤ Pr(y is drafted)), and between its ends and "
    "the optimum",
    "docstring",
    "every token set, exactly",
    direction="interval",
)
def _batch(random: np.random.Generator) -> tuple[float, str]:
    case = iid(random, rows=(3,), counts=(1, 2, 3, 8), kinds=("float64", "torch64"))
    rule = otm.verifiers.prepare_batch(otm.Optimal(bins=64), case.problem)
    worst = 0.0
    for row, law, low, high in zip(
        case.rows, rule.selection_law, rule.lower, rule.upper, strict=True
    ):
        best = float(oracles.optimum(row))
        drafted = [float(x) for x in oracles.inclusion(row)]
        over = max(float(s) - x for s, x in zip(law, drafted, strict=True))
        worst = max(worst, abs(float(law.sum()) - 1.0), over, float(low) - best, best - float(high))
    return worst / 1e-12, f"{case!r}: {rule.lower}, {rule.upper}"


@checks.add(
    "otm.verifiers.selection_with_law",
    "1e-9 in the selected draft's law",
    "docstring",
    "the law asked for",
)
def _selection(random: np.random.Generator) -> tuple[float, str]:
    case = of_law("IID", rows=(1,), tokens=(2, 3), kinds=("float64",))(random)
    goal = 0.5 * (
        case.draft[0] + np.array([float(x) / case.k for x in oracles.inclusion(case.rows[0])])
    )
    goal = goal / goal.sum()
    row = case.rows[0]
    wanted = Row(
        row.drafts,
        tuple(row.exactly(lambda: [Decimal(float(x)) for x in goal])),
        row.law,
        row.k,
        row.digits,
    )
    if oracles.optimum(wanted) < 1 - Decimal("1e-12"):
        return 0.0, "outside the core"
    made = otm.SelectThenReject(otm.verifiers.selection_with_law(case.problem, law=goal))
    rule: Any = otm.prepare(made, case.problem)
    found = rule.law
    return float(np.abs(found - goal).max()) / 2e-9, f"{case!r}, {goal.tolist()}: {found.tolist()}"


def _total_variation(law: Callable[[Row], Any], row: Row) -> float:
    return float(
        row.exactly(
            lambda: oracles.total(abs(a - q) for a, q in zip(law(row), row.q, strict=True)) / 2
        )
    )


@checks.add(
    "otm.audit.exact",
    "its own tolerance and error",
    'docs/theory.md, "Audits"',
    "the law of single-draft rejection, exactly",
)
def _audited(random: np.random.Generator) -> tuple[float, str]:
    """A callable that accepts with min(1, q/(l p)): lossless at l = 1, of known
    distance elsewhere.
    """
    case = of_law("IID", rows=(1,), tokens=(2, 3), counts=(1,), kinds=("float64",))(random)
    lossless = bool(random.random() < 0.5)
    factor = 1 if lossless else 2

    def verify(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        x = int(drafts[0])
        if uniforms[0] * p[x] < factor * q[x]:
            return x
        excess = np.maximum(q - p, 0.0)
        if excess.sum() == 0:
            return x
        reached = 0.0
        for y in range(len(q)):
            reached = reached + excess[y] / excess.sum()
            if excess[y] > 0 and uniforms[1] < reached:
                return y
        return int(np.flatnonzero(excess)[-1])

    found = audit.exact(verify, case.problem)
    truth = 0.0 if lossless else _total_variation(SCHEMES[0][1], case.rows[0])
    allowed = found.tolerance + found.error + 1e-14
    said = abs(found.total_variation - truth) / allowed
    wrong = (
        found.verdict == "not lossless"
        if lossless
        else found.verdict == "lossless" and truth > 2 * allowed
    )
    return (
        math.inf if wrong else said,
        f"{case!r}, {factor}: {found.verdict}, {found.total_variation!r} for {truth!r}",
    )


@checks.add(
    "otm.audit.library_sampler",
    "its own tolerance",
    'docs/theory.md, "Audits"',
    "lossless verifiers of the library",
)
def _sampler(random: np.random.Generator) -> tuple[float, str]:
    verifier, law = [
        (otm.KSeq(), "IID"),
        (otm.RecursiveRejection(), "IID"),
        (otm.NaiveTree(), "IID"),
        (otm.Naive(), "TopK"),
    ][random.integers(4)]
    case = of_law(law, rows=(1,), tokens=(2, 3), counts=(1, 2), kinds=("float64",))(random)
    found = audit.library_sampler(verifier, case.problem)
    told = f"{verifier!r}, {case!r}: {found.verdict}, {found.total_variation!r}"
    return (
        math.inf
        if found.verdict == "not lossless"
        else found.total_variation / (found.tolerance + found.error)
    ), told


@checks.add(
    "otm.audit.outputs",
    "a false alarm with probability at most 1e-9",
    'docs/theory.md, "Audits"',
    "draws from the target",
    direction="estimate",
)
def _outputs(random: np.random.Generator) -> tuple[float, str]:
    case = iid(random, rows=(1,), kinds=("float64",), tokens=(1, 2, 5, 20, 300))
    target = case.problem.target
    drawn = random.choice(case.num_tokens, size=500, p=target / target.sum())
    found = audit.outputs(drawn, target=target)
    return 0.0 if found.verdict in (
        "no difference found",
        "no verdict",
    ) else math.inf, f"{case!r}: {found!r}"


@checks.add(
    "otm.audit.samples_needed",
    "1, and 1e-12 relative",
    'docs/theory.md, "Audits"',
    "the formula in 60 digits",
    direction="upper",
)
def _needed(random: np.random.Generator) -> tuple[float, str]:
    case = iid(random, rows=(1,), kinds=("float64",))
    detect, row = float(10 ** random.uniform(-4, -0.5)), case.rows[0]
    found = audit.samples_needed(case.problem.target, detect=detect, false_alarm=1e-9, missed=1e-3)

    def exactly() -> Decimal:
        roots = [-oracles.log(Decimal(x)) / 2 for x in (1e-9, 1e-3)]
        wide = oracles.total((q * (1 - q)).sqrt() for q in row.q) / 2
        return ((wide + sum((r.sqrt() for r in roots), Decimal(0))) / Decimal(detect)) ** 2

    needed = row.exactly(exactly)
    error = max(needed - found, Decimal(found) - needed - 1)
    return max(
        float(error / (needed * Decimal("1e-12"))), 0.0
    ), f"{case!r}, {detect!r}: {found} for {needed:.20g}"


@checks.add(
    "otm.audit.tokens_to_mismatch",
    "1, and what 1e-12 in the probability of a mismatch is worth",
    'docs/theory.md, "Audits"',
    "the race's formula in 60 digits",
)
def _mismatch(random: np.random.Generator) -> tuple[float, str]:
    case = iid(random, rows=(1,), kinds=("float64",))
    pair, missed = {"target": case.problem.draft, "served": case.problem.target}, 1e-3
    found = audit.tokens_to_mismatch(**pair, missed=missed, tolerance=math.log(case.k))
    off = 1 - oracles.threshold_race(case.rows[0])
    told = f"{case!r}: {found!r} where tokens mismatch with {off:.20g}"
    if math.isinf(found) or off <= 0:
        return float(abs(off) * 10**12) / 2 if math.isinf(found) else math.inf, told
    agree = -oracles.log(1 - off) if off < 1 else Decimal("Infinity")
    needed = -oracles.log(Decimal(missed)) / agree
    slack = 1 + needed * Decimal("2e-12") / off
    return float(abs(Decimal(found) - needed) / slack), told


@checks.add(
    "otm.audit.rounding_tolerance",
    "above every observed error of a lossless kernel",
    'docs/theory.md, "Audits"',
    "kernels' own output laws",
    direction="upper",
)
def _tolerance(random: np.random.Generator) -> tuple[float, str]:
    case = of_law("IID", rows=(1,), tokens=(2, 3), kinds=("float64",))(random)
    law = otm.coupling(otm.KSeq(), case.problem).output_marginal
    off = 0.5 * sum(
        abs(float(Decimal(float(a)) - b)) for a, b in zip(law, case.rows[0].q, strict=True)
    )
    allowed = audit.rounding_tolerance(case.num_tokens, case.k)
    return off / (
        allowed + 2 * case.num_tokens * UNIT_ROUNDOFF
    ), f"{case!r}: {off!r} beside {allowed!r}"
