"""Lossy schemes and frontiers: output laws by definition, budgets in 60 digits, and rivals that
must not get past the frontier.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import SCAN, SUM, accepted, iid, of_law, one_draft, ours
from evidence.torture.checks import Checks
from evidence.torture.families.divergences import off_thresholds
from evidence.torture.problems import Case, Row, exact_row
from evidence.torture.promises import UNIT_ROUNDOFF, Promise, Rows, promised
from otm import lossy

Numbers = list[Decimal]
single = functools.partial(one_draft, rows=(1,))
off = off_thresholds(single)


def equal_but_for_rounding(random: np.random.Generator) -> Case:
    """Return a case of any kind, or one softmax over 50 tokens computed in two ways."""
    if random.random() < 0.5:
        return single(random)
    masses = np.exp(random.uniform(1.0, 5.0) * random.normal(size=50))
    ways = [masses / masses.sum(), masses * (1 / masses.sum())]
    draft, target = (ways[way][None] for way in random.permutation(2))
    return Case(draft, target)


def _rule_law(row: Row, keep: Numbers, residual: Numbers) -> Numbers:
    """Return p·keep + Σ p (1 − keep)·residual, the residual divided by its sum."""
    rejected = oracles.total(p * (1 - k) for p, k in zip(row.p, keep, strict=True))
    whole = oracles.total(residual)
    rest = [r / whole for r in residual] if whole else list(row.q)
    return [p * k + rejected * r for p, k, r in zip(row.p, keep, rest, strict=True)]


def _lenience(residual_of: int) -> Callable[[Row], Numbers]:
    def law(row: Row) -> Numbers:
        def exactly() -> Numbers:
            keep = [
                min(Decimal(1), 2 * q / p) if p else Decimal(0)
                for p, q in zip(row.p, row.q, strict=True)
            ]
            excess = [
                max(q - p / residual_of, Decimal(0)) for p, q in zip(row.p, row.q, strict=True)
            ]
            return _rule_law(row, keep, excess)

        return row.exactly(exactly)

    return law


def _typical(row: Row) -> Numbers:
    def exactly() -> Numbers:
        threshold = min(oracles.EPS, oracles.DELTA * oracles.exp(-oracles.entropy(row)))
        return _rule_law(row, [Decimal(int(q > threshold)) for q in row.q], list(row.q))

    return row.exactly(exactly)


def _fuzzy(row: Row) -> Numbers:
    is_open = oracles.jensen_shannon(row) <= oracles.THRESHOLD
    return list(row.p if is_open else row.q)


TIE = Decimal("1e-12")
FIVE_HUNDREDTHS = Decimal(5) / 100


def _aimed(aim: Callable[[Row], Numbers]) -> Callable[[Row], Numbers]:
    """Return the law of a scheme that verifies towards another one: that one."""
    return lambda row: row.exactly(lambda: aim(row))


def _ensemble(row: Row) -> Numbers:
    return [(p + q) / 2 for p, q in zip(row.p, row.q, strict=True)]


def _token_v3(row: Row) -> Numbers:
    good = [2 * (q + TIE) >= max(row.q) for q in row.q]
    deferred = oracles.total(p for p, keeps in zip(row.p, good, strict=True) if not keeps)
    return [p * keeps + deferred * q for p, q, keeps in zip(row.p, row.q, good, strict=True)]


def _opt(row: Row) -> Numbers:
    distance = oracles.total(max(p - q, Decimal(0)) for p, q in zip(row.p, row.q, strict=True))
    return list(row.q if max(row.q) - distance / 2 - max(row.p) > TIE else row.p)


def _matching(passes: Callable[[Row], list[bool]], greedy: bool) -> Callable[[Row], Numbers]:
    """Return the law of accepting the tokens that pass, with the likeliest token or the target
    behind it.
    """

    def law(row: Row) -> Numbers:
        def exactly() -> Numbers:
            likeliest = max(range(len(row.q)), key=lambda y: (row.q[y], -y))
            rest = (
                [Decimal(int(y == likeliest)) for y in range(len(row.q))] if greedy else list(row.q)
            )
            return _rule_law(row, [Decimal(int(passing)) for passing in passes(row)], rest)

        return row.exactly(exactly)

    return law


def _regret(row: Row) -> list[bool]:
    bound = Decimal(math.exp(-otm.BoundedRegret().regret)) * max(row.q) - TIE
    return [q >= bound for q in row.q]


def _runner_up(row: Row) -> list[bool]:
    first, second = (*sorted(range(len(row.q)), key=lambda y: (-row.q[y], y)), -1)[:2]
    bound = Decimal(math.exp(-(1.0 - 0.9) * 20.0)) * max(row.q) + TIE
    return [y == first or (y == second and q > bound) for y, q in enumerate(row.q)]


def _thresholds(row: Row) -> Numbers:
    def exactly() -> Numbers:
        half, most = Decimal("0.5") - TIE, Decimal("0.8")
        keep = [Decimal(1) if q >= half else min(Decimal(1), q / most) for q in row.q]
        law = [p * k for p, k in zip(row.p, keep, strict=True)]
        for x, (p, q, k) in enumerate(zip(row.p, row.q, keep, strict=True)):
            others = oracles.total(row.q) - q
            if p and k < 1:
                law = [
                    m + (p * (1 - k) * row.q[y] / others if y != x else 0)
                    for y, m in enumerate(law)
                ]
        return law

    return row.exactly(exactly)


def _raised(row: Row) -> Numbers:
    """Return min(1, q + √(q (1 − q)/10)), the aim of Cactus(0.05) on each token."""
    delta = Decimal(otm.Cactus().delta)
    return row.exactly(
        lambda: [
            min(Decimal(1), q + (2 * delta * q * max(1 - q, Decimal(0))).sqrt()) for q in row.q
        ]
    )


def _cactus(row: Row) -> Numbers:
    """Return min(p, h) and, for each draft above its h, what its own aim leaves."""

    def exactly() -> Numbers:
        law = [min(p, h) for p, h in zip(row.p, raised, strict=True)]
        for x, (p, q, h) in enumerate(zip(row.p, row.q, raised, strict=True)):
            if p > h:
                excess = [
                    max(b * (1 - h) / (1 - q) - a, Decimal(0)) if y != x else Decimal(0)
                    for y, (a, b) in enumerate(pairs)
                ]
                law = [
                    m + (p - h) * e / oracles.total(excess)
                    for m, e in zip(law, excess, strict=True)
                ]
        return law

    raised, pairs = _raised(row), list(zip(row.p, row.q, strict=True))
    return row.exactly(exactly)


def _on_a_line(order: list[int], count: int) -> dict[int, list[int]]:
    """Return each token's neighbours in an order: one below, one above, the next below, ..."""
    steps = [(i // 2 + 1) * (1 if i % 2 else -1) for i in range(count)]
    return {
        x: [order[i + step] for step in steps if 0 <= i + step < len(order)]
        for i, x in enumerate(order)
    }


def _nearest(row: Row) -> tuple[Numbers, list[list[int]]]:
    """Return what LANTERN raises each token to, and the tokens that its residual spares."""
    near, most = _on_a_line(list(range(len(row.q))), 2), Decimal(otm.Lantern().delta) + TIE
    raised, spared = [], []
    for x, q in enumerate(row.q):
        sums = list(itertools.accumulate(row.q[y] for y in near[x]))
        counted = [mass for mass in sums if mass <= most]
        raised.append(q + (counted[-1] if counted else 0))
        spared.append(near[x] if counted else [])
    return raised, spared


def _lantern(row: Row) -> Numbers:
    def exactly() -> Numbers:
        raised, spared = _nearest(row)
        law = [min(p, h) for p, h in zip(row.p, raised, strict=True)]
        for x, (p, h) in enumerate(zip(row.p, raised, strict=True)):
            if p > h:
                excess = [
                    q if y in spared[x] else max(q - p, Decimal(0))
                    for y, (p, q) in enumerate(zip(row.p, row.q, strict=True))
                ]
                whole = oracles.total(excess)
                law = [m + (p - h) * e / whole for m, e in zip(law, excess, strict=True)]
        return law

    return row.exactly(exactly)


def _kept_by_groups(row: Row) -> tuple[Numbers, Numbers]:
    """Return Grouped's acceptance probabilities and its residual before division."""
    order = sorted(range(len(row.q)), key=lambda y: (row.q[y], y))
    near, margin, keep = _on_a_line(order, 13), Decimal(otm.Grouped().margin) - TIE, []
    for x, q in enumerate(row.q):
        group = [x, *(y for y in near[x] if abs(row.q[y] - q) < margin)]
        have, want = (oracles.total(mass[y] for y in group) for mass in (row.p, row.q))
        keep.append(min(Decimal(1), want / have) if row.p[x] else Decimal(0))
    return keep, [max(q - p, Decimal(0)) for p, q in zip(row.p, row.q, strict=True)]


def _grouped(row: Row) -> Numbers:
    return row.exactly(lambda: _rule_law(row, *_kept_by_groups(row)))


def _close(row: Row) -> list[bool]:
    likeliest = max(range(len(row.q)), key=lambda y: (row.q[y], -y))
    return [abs(y - likeliest) <= 9 for y in range(len(row.q))]


SCHEMES: list[
    tuple[otm.Verifier, Callable[[Row], Numbers], Callable[[np.random.Generator], Case]]
] = [
    (otm.Lenience(), _lenience(1), single),
    (otm.Lenience(residual="scaled"), _lenience(2), single),
    (otm.TypicalAcceptance(), _typical, off),
    (otm.Ensemble(), _aimed(_ensemble), single),
    (otm.Cascade(), _aimed(_token_v3), off),
    (otm.Cascade(rule="opt"), _aimed(_opt), off),
    (otm.BoundedRegret(), _matching(_regret, greedy=True), off),
    (otm.Mars(), _matching(_runner_up, greedy=True), off),
    (otm.ThresholdMatching(), _thresholds, off),
    (otm.Cactus(), _cactus, equal_but_for_rounding),
    (otm.Lantern(), _lantern, equal_but_for_rounding),
    (otm.Grouped(), _grouped, single),
    (otm.ActionDistance(), _matching(_close, greedy=True), single),
    (otm.Fuzzy(), _fuzzy, off),
    (otm.Fuzzy(fallback="speculative"), _fuzzy, off),
]


def _law(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    return lambda case: Rows([lossy.output_law(verifier, case.problem)])


def _distortion(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    return lambda case: Rows([lossy.distortion(verifier, case.problem).total_variation])


def _variation(law: Callable[[Row], Numbers]) -> Callable[[Row, Case], Decimal]:
    def truth(row: Row, case: Case) -> Decimal:
        return row.exactly(
            lambda: oracles.total(abs(a - q) for a, q in zip(law(row), row.q, strict=True)) / 2
        )

    return truth


RULE = "the rule's law by its definition, exactly"
LAWS = [
    *(
        Promise(
            "otm.lossy.output_law",
            "exact",
            draw,
            _law(v),
            ours(law),
            SUM.plus(60),
            RULE,
        )
        for v, law, draw in SCHEMES
    ),
    *(
        Promise(
            "otm.lossy.distortion",
            "exact",
            draw,
            _distortion(v),
            _variation(law),
            SUM.plus(60),
            RULE,
        )
        for v, law, draw in SCHEMES
    ),
]


def _towards(law: Callable[[Row], Numbers]) -> Callable[[Row, Case], Decimal]:
    """Return Σ min(p, π)."""
    return lambda row, case: row.exactly(
        lambda: oracles.total(min(p, a) for p, a in zip(row.p, law(row), strict=True))
    )


def _relaxed(row: Row, case: Case) -> Decimal:
    """Return P(A) + Σ p q outside of A, the ten likeliest tokens within .6 of the largest mass."""

    def exactly() -> Decimal:
        likeliest = sorted(range(len(row.q)), key=lambda y: (-row.q[y], y))[:10]
        good = [
            y in likeliest and q >= max(row.q) - Decimal("0.6") - TIE for y, q in enumerate(row.q)
        ]
        return oracles.total(
            p if passes else p * q for p, q, passes in zip(row.p, row.q, good, strict=True)
        )

    return row.exactly(exactly)


def _by_test(passes: Callable[[Row], list[bool]]) -> Callable[[Row, Case], Decimal]:
    """Return P(A), and the likeliest token, which is in A, caught no more."""
    return lambda row, case: row.exactly(
        lambda: oracles.total(p for p, good in zip(row.p, passes(row), strict=True) if good)
    )


def _by_thresholds(row: Row, case: Case) -> Decimal:
    half, most = Decimal("0.5") - TIE, Decimal("0.8")
    return row.exactly(
        lambda: oracles.total(
            p if q >= half else p * min(Decimal(1), q / most)
            for p, q in zip(row.p, row.q, strict=True)
        )
    )


def _by_bonus(row: Row, case: Case) -> Decimal:
    return row.exactly(
        lambda: oracles.total(min(p, h) for p, h in zip(row.p, _raised(row), strict=True))
    )


def _by_neighbours(row: Row, case: Case) -> Decimal:
    return row.exactly(
        lambda: oracles.total(min(p, h) for p, h in zip(row.p, _nearest(row)[0], strict=True))
    )


def _by_groups(row: Row, case: Case) -> Decimal:
    def exactly() -> Decimal:
        keep, excess = _kept_by_groups(row)
        whole = oracles.total(excess)
        rest = [e / whole for e in excess] if whole else list(row.q)
        return oracles.total(
            p * (k + (1 - k) * r) for p, k, r in zip(row.p, keep, rest, strict=True)
        )

    return row.exactly(exactly)


def _within(row: Row, case: Case) -> Decimal:
    return min(Decimal(1), oracles.optimum(row) + FIVE_HUNDREDTHS)


ACCEPTED = [
    Promise(
        "otm.Ensemble", "exact", single, accepted(otm.Ensemble()), _towards(_ensemble), SUM, RULE
    ),
    Promise("otm.Cascade", "exact", off, accepted(otm.Cascade()), _towards(_token_v3), SUM, RULE),
    Promise(
        "otm.Cascade", "exact", off, accepted(otm.Cascade(rule="opt")), _towards(_opt), SUM, RULE
    ),
    Promise(
        "otm.RelaxedAcceptance",
        "exact",
        off,
        accepted(otm.RelaxedAcceptance()),
        _relaxed,
        SUM,
        RULE,
    ),
    Promise(
        "otm.BoundedRegret",
        "exact",
        off,
        accepted(otm.BoundedRegret()),
        _by_test(_regret),
        SUM,
        RULE,
    ),
    Promise("otm.Mars", "exact", off, accepted(otm.Mars()), _by_test(_runner_up), SUM, RULE),
    Promise(
        "otm.ThresholdMatching",
        "exact",
        off,
        accepted(otm.ThresholdMatching()),
        _by_thresholds,
        SUM,
        RULE,
    ),
    Promise("otm.Cactus", "exact", single, accepted(otm.Cactus()), _by_bonus, SUM, RULE),
    Promise("otm.Lantern", "exact", single, accepted(otm.Lantern()), _by_neighbours, SUM, RULE),
    Promise("otm.Grouped", "exact", single, accepted(otm.Grouped()), _by_groups, SUM, RULE),
    Promise(
        "otm.ActionDistance",
        "exact",
        single,
        accepted(otm.ActionDistance()),
        _by_test(_close),
        SUM,
        RULE,
    ),
    Promise(
        "otm.TvOptimal",
        "exact",
        iid,
        accepted(otm.TvOptimal()),
        _within,
        SCAN.plus(8),
        "every token set in 60 digits",
    ),
]

promised("lossy laws", LAWS + ACCEPTED)
checks = Checks("frontiers", times=2)

SLACK = 1e-12


def _spent(row: Row, law: np.ndarray) -> Decimal:
    return row.exactly(lambda: oracles.relative_entropy(row.q, exact_row(law, law).q))


def _reached(row: Row, law: np.ndarray) -> Decimal:
    """Return the optimal acceptance for another target."""
    return oracles.optimum(Row(row.drafts, exact_row(law, law).q, row.law, row.k, row.digits))


def _rivals(random: np.random.Generator, case: Case, budget: float) -> list[np.ndarray]:
    """Return laws within the budget: as far from the target as it allows towards the draft, what is
    drafted, and at random.
    """
    q, width = case.target[0], case.num_tokens
    drafted = np.array([float(x) for x in oracles.inclusion(case.rows[0])])
    rivals = []
    for goal in (
        case.draft[0],
        drafted / drafted.sum(),
        np.full(width, 1.0 / width),
        random.dirichlet(np.ones(width)),
        (case.draft[0] > 0) * q + 1e-3,
    ):
        goal = goal / goal.sum()
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            mixed = (1 - middle) * q + middle * goal
            with np.errstate(all="ignore"):
                spent = float(np.where(q > 0, q * np.log(q / mixed), 0.0).sum())
            low, high = (middle, high) if spent <= budget * (1 - 1e-9) else (low, middle)
        rivals.append((1 - low) * q + low * goal)
    return [rival for rival in rivals if _spent(case.rows[0], rival) <= budget]


def _budget(random: np.random.Generator) -> float:
    return float(
        random.choice([0.0, 1e-12, 1e-6, 0.01, 0.1, 0.5, 2.0, 50.0, 10.0 ** random.uniform(-9, 1)])
    )


@checks.add(
    "otm.lossy.kl_frontier",
    "1e-12 between the certificates, in the law's acceptance, and past its rivals; 1e-12 (1 + D) "
    "in the budget",
    'docs/theory.md, "Lossy frontiers"',
    "the law's own budget and acceptance, exactly; rival laws",
    direction="interval",
)
def _frontier(random: np.random.Generator) -> tuple[float, str]:
    law = "IID" if random.random() < 0.5 else "WithoutReplacement"
    case = of_law(
        law, rows=(1,), tokens=(1, 2, 3, 4) if law == "IID" else (2, 3, 4), kinds=("float64",)
    )(random)
    budget, row = _budget(random), case.rows[0]
    found = lossy.kl_frontier(case.problem, kl=budget)
    told = f"{case!r}, kl={budget!r}: {found!r}"
    attained = _reached(row, found.law)
    errors = [
        (found.lower - found.upper) / SLACK,
        (found.upper - found.lower) / SLACK,
        float(Decimal(float(found.lower)) - attained) / SLACK,
        float(_spent(row, found.law) - Decimal(budget)) / (SLACK * (1 + budget)),
        *(
            float(_reached(row, rival) - Decimal(float(found.upper))) / SLACK
            for rival in _rivals(random, case, budget)
        ),
    ]
    worst = int(np.argmax(errors))
    named = ["ends inverted", "ends apart", "not attained", "over budget", *["a rival"] * 9][worst]
    return max(*errors, 0.0), f"{named}: {told}"


@checks.add(
    "otm.Mentored",
    "1e-13 in the acceptance, 1e-12 (1 + D) in the budget",
    'docs/theory.md, "Lossy frontiers"',
    "the output law's own budget, exactly; rival laws",
)
def _mentored(random: np.random.Generator) -> tuple[float, str]:
    case, budget = single(random, kinds=("float64",)), _budget(random)
    row, verifier = case.rows[0], otm.Mentored(budget)
    law, reached = (
        lossy.output_law(verifier, case.problem),
        Decimal(float(otm.acceptance(verifier, case.problem))),
    )
    errors = [
        abs(float(reached - _reached(row, law))) / (1e-13 + 40 * UNIT_ROUNDOFF),
        float(_spent(row, law) - Decimal(budget)) / (SLACK * (1 + budget)),
        *(float(_reached(row, rival) - reached) / SLACK for rival in _rivals(random, case, budget)),
    ]
    return (
        max(*errors, 0.0),
        f"{['its law', 'over budget', *['a rival'] * 9][int(np.argmax(errors))]}: {case!r}, "
        f"kl={budget!r}, {reached}",
    )


@checks.add(
    "otm.lossy.kl_frontier_program",
    "1e-6: the solver's own",
    "docstring",
    "otm.lossy.kl_frontier, held against exact rivals above",
)
def _program(random: np.random.Generator) -> tuple[float, str]:
    case = iid(random, rows=(1,), tokens=(2, 3), counts=(1, 2), kinds=("float64",))
    # an interior-point method wants an interior
    while case.target.min() < 1e-6 or case.draft.min() < 1e-6:
        case = iid(random, rows=(1,), tokens=(2, 3), counts=(1, 2), kinds=("float64",))
    budget = float(random.choice([0.01, 0.1, 0.5]))
    program = lossy.kl_frontier_program(case.problem, kl=budget).problem()
    value = program.solve(solver="CLARABEL")
    return abs(
        value - lossy.kl_frontier(case.problem, kl=budget).value
    ) / 1e-6, f"{case!r}, kl={budget}: {value}"


@checks.add(
    "otm.lossy.composed",
    "certified, for inputs that sum to 1 up to rounding; within 0.05 at levels from 1e-3 on",
    'docs/theory.md, "Composition"',
    "every text, in fractions",
    direction="interval",
)
def _composed(random: np.random.Generator) -> tuple[float, str]:
    case = single(random, tokens=(2, 3), kinds=("float64",))
    tokens, level = int(random.integers(1, 9)), float(random.choice([0.0, 1e-3, 0.05, 0.5, 1.0]))
    q, law = ([Fraction(x) for x in rows[0].tolist()] for rows in (case.target, case.draft))
    q, law = ([x / sum(masses) for x in masses] for masses in (q, law))
    texts = [
        (math.prod(a), math.prod(b))
        for a, b in zip(
            itertools.product(law, repeat=tokens), itertools.product(q, repeat=tokens), strict=True
        )
    ]
    variation, power, left = Fraction(0), Fraction(0), Fraction(level)
    for pi, of_target in sorted(texts, key=lambda both: both[1] / both[0] if both[0] else 10**400):
        part = min(Fraction(1), left / of_target) if of_target else Fraction(1)
        variation += max(pi - of_target, Fraction(0))
        power, left = power + part * pi, left - part * of_target
    found = lossy.composed(target=case.target, output=case.draft, tokens=tokens)
    least, most = found.power(level)
    errors = [
        float(max(lower - truth, truth - upper)) / 1e-300
        for lower, upper, truth in (
            (Fraction(float(found.lower)), Fraction(float(found.upper)), variation),
            (Fraction(float(least)), Fraction(float(most)), power),
        )
    ]
    apart = max(found.gap, float(most - least) if level else 0.0) / 0.05
    return max(*errors, apart, 0.0), f"{case!r}, tokens={tokens}, level={level}: {found!r}"
