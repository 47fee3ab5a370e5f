"""Every draft law enumerated: optimum, containment, inclusion; exact values and couplings of every
verifier on small problems.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import (
    ENUMERATED,
    OUTWARD,
    POWERS,
    SIXTY,
    STAGES,
    absolute,
    accepted,
    any_law,
    mask,
    of_law,
    of_problem,
    ours,
    some_set,
)
from evidence.torture.problems import Case, Row
from evidence.torture.promises import UNIT_ROUNDOFF, Bound, Promise, Rows, promised

LAWS = ("WithoutReplacement", "Greedy", "Product", "TopK", "ThresholdRace")
GATE = 3 * 40 * UNIT_ROUNDOFF
NODES = absolute(
    1e-14 + GATE, "1e-14 and the gate's rounding", 'docs/theory.md, "Without replacement"'
)
QUADRATURE = absolute(2e-12, "2e-12, quadrature", 'docs/theory.md, "Races"')
CERTIFIED = absolute(1e-9, "1e-9, the certified gap")
CHOICE = absolute(
    1e-13, "1e-13, quadrature", 'docs/theory.md, "The optimal verifier without replacement"'
)
SEARCH = absolute(1e-6 + 1e-13, "1e-6, the tolerance", "docstring")
SETS = absolute(
    3.2e-11,
    "3.2e-11: inclusion and exclusion, and sets of less than 1e-12 left out",
    'docs/theory.md, "Threshold races"',
)
SCORES = absolute(1e-12, "1e-12", 'docs/theory.md, "Score blocks"')
KERNEL = Bound(
    lambda row, truth: 32 * (len(row.q) + min(row.k, 64) + 8) * UNIT_ROUNDOFF,
    "32 (V + min(k, 64) + 8) u: sums of products over the draft sequences",
    'docs/theory.md, "Plain sums"',
)
BOUNDS = {
    "WithoutReplacement": NODES,
    "Product": absolute(1e-11, "1e-11, the certified gap"),
    "Greedy": POWERS,
    "TopK": POWERS,
    "ThresholdRace": POWERS,
}


def _containment(case: Case) -> Rows:
    single = case.problem.single(purpose="torture")
    return Rows([case.otm_law.containment(single.draft, np.array(some_set(case)))])


def _enumerated(case: Case) -> Rows:
    """Return the masses of the enumerated sequences in the oracle's order, and of those that it
    does not have.
    """
    table = case.otm_law.enumerate(case.problem.single(purpose="torture").draft)
    listed = {
        tuple(row): mass
        for row, mass in zip(table.tokens.tolist(), table.mass.tolist(), strict=True)
    }
    known = [x for x, _ in oracles.sequences(case.rows[0])]
    stray = sum(mass for x, mass in listed.items() if x not in known)
    return Rows([[*(Decimal(listed.get(x, 0.0)) for x in known), Decimal(stray)]])


def _true_sequences(row: Row, case: Case) -> list[Decimal]:
    return [*(mass for _, mass in oracles.sequences(row)), Decimal(0)]


def _of(law: str) -> list[Promise]:
    name, small, single = f"otm.{law}", of_law(law), of_law(law, rows=(1,), kinds=("float64",))
    loose = BOUNDS[law].plus(60)
    return [
        Promise(
            name,
            "exact",
            small,
            of_problem(otm.optimal_acceptance),
            ours(oracles.optimum),
            BOUNDS[law],
            ENUMERATED,
            5,
        ),
        Promise(
            name,
            "exact",
            single,
            _containment,
            lambda r, c: oracles.containment(r, mask(c)),
            loose,
            ENUMERATED,
        ),
        Promise(
            name, "exact", small, of_problem(_inclusion), ours(oracles.inclusion), loose, ENUMERATED
        ),
        Promise(name, "exact", single, _enumerated, _true_sequences, STAGES, ENUMERATED),
    ]


def _inclusion(problem: otm.Problem) -> Any:
    return problem.law.inclusion(problem.draft)


def _optimum(case: Case) -> Rows:
    found = otm.optimum(case.problem, method="sets" if case.extra < 0.7 else "sequences")
    return Rows([(found.lower, found.upper)])


def _certified_exactly(case: Case) -> Rows:
    return Rows([otm.transport.certify_exactly(case.problem, otm.optimum(case.problem))])


def _marginals(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    """Return output marginal and draft marginal by set, as the oracle lists them, and what is
    drafted besides.
    """

    def call(case: Case) -> Rows:
        found = otm.coupling(verifier, case.problem)
        drafts: dict[int, float] = {}
        for row, mass in zip(found.drafts.tolist(), found.draft_marginal.tolist(), strict=True):
            key = sum(1 << y for y in {y for y in row if y >= 0})
            drafts[key] = drafts.get(key, 0.0) + mass
        known = sorted(oracles.drafted_sets(case.rows[0]))
        stray = sum(mass for key, mass in drafts.items() if key not in known)
        listed = [*found.output_marginal.tolist(), *(drafts.get(key, 0.0) for key in known), stray]
        return Rows([[Decimal(mass) for mass in listed]])

    return call


def _true_marginals(row: Row, case: Case) -> list[Decimal]:
    sets = oracles.drafted_sets(row)
    return [*row.q, *(sets[key] for key in sorted(sets)), Decimal(0)]


def _coupled(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    return lambda case: Rows([otm.coupling(verifier, case.problem).acceptance])


def _kernels(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    """Return the output's law put together from the kernel of every draft sequence and that
    sequence's exact mass.
    """

    def call(case: Case) -> Rows:
        found, races = (
            oracles.sequences(case.rows[0]),
            isinstance(otm.prepare(verifier, case.problem), otm.verifiers.Shared),
        )
        # Joint laws that are quadratures leave too little to condition on where the drafts hardly
        # ever come.
        drawn = [(x, mass) for x, mass in found if mass > Decimal("1e-12" if races else "1e-290")]
        laws = otm.kernel(verifier, case.problem, np.array([x for x, _ in drawn]))
        weights = np.array([float(mass) for _, mass in drawn])
        left = case.target[0] * max(1.0 - weights.sum(), 0.0)
        return Rows([[Decimal(float(y)) for y in weights @ laws + left]])

    return call


def _small(law: str) -> Callable[[np.random.Generator], Case]:
    tokens = (1, 2, 3, 4) if law in ("IID", "Product") else (2, 3, 4)
    return of_law(law, tokens=tokens, rows=(1,), kinds=("float64", "torch64", "list"))


def _with_left_out(bound: Bound) -> Bound:
    """Return the bound of a kernel's law; with quadratures 27 sequences of up to 1e-12 are left
    out.
    """
    return bound.plus(3e5) if bound in (QUADRATURE, SETS) else bound.plus(100)


LOSSLESS: list[tuple[otm.Verifier, str, Bound]] = [
    (otm.KSeq(), "IID", KERNEL),
    (otm.RecursiveRejection(), "IID", KERNEL),
    (otm.Naive(), "IID", KERNEL),
    (otm.NaiveTree(), "IID", KERNEL),
    (otm.Optimal(), "IID", SCORES),
    (otm.Optimal(bins=4), "IID", SCORES),
    (otm.ListRace(), "IID", QUADRATURE),
    (otm.Race(), "IID", QUADRATURE),
    (otm.TransportPlan(), "IID", CERTIFIED),
    (otm.SelectThenReject(), "IID", CERTIFIED),
    (otm.Tournament(2), "IID", KERNEL),
    (otm.RecursiveRejection(), "WithoutReplacement", KERNEL),
    (otm.Race(), "WithoutReplacement", QUADRATURE),
    (otm.WithoutReplacementOptimal(), "WithoutReplacement", CHOICE),
    (otm.Naive(), "WithoutReplacement", KERNEL),
    (otm.TransportPlan(), "WithoutReplacement", CERTIFIED),
    (otm.GreedyOptimal(), "Greedy", KERNEL),
    (otm.Naive(), "Product", KERNEL),
    (otm.TransportPlan(), "Product", CERTIFIED),
    (otm.Naive(), "TopK", KERNEL),
    (otm.Naive(), "ThresholdRace", KERNEL),
    (otm.Race(), "ThresholdRace", SETS),
    (otm.Optimal(), "ThresholdRace", SETS),
    (otm.Optimal(bins=4), "ThresholdRace", SETS),
    (otm.TransportPlan(), "ThresholdRace", CERTIFIED),
]

BISECTION = "bisection in 60 digits"
VALUES: list[tuple[otm.Verifier, str, Bound, Any, str]] = [
    (otm.KSeq(), "IID", KERNEL, oracles.kseq, BISECTION),
    (otm.Optimal(), "IID", SCORES, oracles.optimum, ENUMERATED),
    (
        otm.RecursiveRejection(),
        "IID",
        KERNEL,
        oracles.recursive_rejection,
        "stage by stage, exactly",
    ),
    (otm.NaiveTree(), "IID", KERNEL, oracles.naive_tree, SIXTY),
    (
        otm.RecursiveRejection(),
        "WithoutReplacement",
        KERNEL,
        oracles.recursive_rejection,
        "every path, exactly",
    ),
    (otm.Race(), "IID", QUADRATURE, oracles.poisson_representation, SIXTY),
    (
        otm.Race(),
        "WithoutReplacement",
        QUADRATURE,
        oracles.race,
        "the integral expanded term by term, exactly",
    ),
    (otm.Race(), "ThresholdRace", SETS, oracles.threshold_race, SIXTY),
    (otm.Optimal(), "ThresholdRace", SETS, oracles.optimum, ENUMERATED),
]

SINGLE = of_law("IID", rows=(1,), kinds=("float64",))
ENUMERATIONS = [
    *(promise for law in LAWS for promise in _of(law)),
    Promise(
        "otm.IID",
        "exact",
        SINGLE,
        _containment,
        lambda r, c: oracles.containment(r, mask(c)),
        POWERS,
        ENUMERATED,
    ),
    Promise("otm.IID", "exact", SINGLE, _enumerated, _true_sequences, STAGES, ENUMERATED),
    Promise(
        "otm.IID",
        "exact",
        of_law("IID"),
        of_problem(_inclusion),
        ours(oracles.inclusion),
        POWERS,
        ENUMERATED,
    ),
    *(
        Promise(
            "otm.Naive",
            "exact",
            of_law(law),
            accepted(otm.Naive()),
            ours(oracles.naive),
            BOUNDS[law].plus(60),
            ENUMERATED,
            5,
        )
        for law in LAWS
    ),
    Promise(
        "otm.GreedyOptimal",
        "exact",
        of_law("Greedy"),
        accepted(otm.GreedyOptimal()),
        ours(oracles.optimum),
        POWERS,
        ENUMERATED,
    ),
    Promise(
        "otm.SpecHub",
        "exact",
        of_law("Greedy", counts=(2,)),
        accepted(otm.SpecHub()),
        ours(oracles.optimum),
        POWERS,
        ENUMERATED,
    ),
    Promise(
        "otm.RecursiveRejection",
        "exact",
        of_law("WithoutReplacement", rows=(1,)),
        accepted(otm.RecursiveRejection()),
        ours(oracles.recursive_rejection),
        KERNEL,
        "every path, exactly",
        5,
    ),
    Promise(
        "otm.Race",
        "exact",
        of_law("ThresholdRace", tokens=(1, 2, 3, 4, 5, 6), counts=(1, 2, 3, 50)),
        accepted(otm.Race()),
        ours(oracles.threshold_race),
        KERNEL,
        SIXTY,
        5,
    ),
    Promise(
        "otm.Race",
        "exact",
        of_law("WithoutReplacement", rows=(1,)),
        accepted(otm.Race()),
        ours(oracles.race),
        QUADRATURE,
        "the integral expanded term by term, exactly",
        5,
    ),
]

PROGRAMS = [
    *(
        Promise(
            f"otm.{type(verifier).__name__}",
            "exact",
            _small(law),
            accepted(verifier),
            ours(oracles.optimum),
            CERTIFIED,
            ENUMERATED,
            2,
        )
        for verifier in (otm.TransportPlan(), otm.SelectThenReject())
        for law in ("IID", *LAWS)
    ),
    Promise(
        "otm.Tournament",
        "exact",
        of_law("IID", counts=(2,), rows=(1,)),
        accepted(otm.Tournament(64)),
        ours(oracles.optimum),
        CERTIFIED,
        ENUMERATED,
        2,
    ),
    Promise(
        "otm.WithoutReplacementOptimal",
        "exact",
        of_law("WithoutReplacement", rows=(1,)),
        accepted(otm.WithoutReplacementOptimal()),
        ours(oracles.optimum),
        SEARCH,
        ENUMERATED,
        2,
    ),
    Promise(
        "otm.optimum", "interval", any_law, _optimum, ours(oracles.optimum), OUTWARD, ENUMERATED, 2
    ),
    Promise(
        "otm.transport.certify_exactly",
        "interval",
        functools.partial(any_law),
        _certified_exactly,
        ours(oracles.optimum),
        absolute(GATE, "exact in rational arithmetic, for the masses that the gate returns"),
        ENUMERATED,
        2,
    ),
]

COUPLINGS = [
    *(
        Promise(
            "otm.coupling",
            "exact",
            _small(law),
            _marginals(verifier),
            _true_marginals,
            bound,
            "target and drafts' law, exactly",
            2,
        )
        for verifier, law, bound in LOSSLESS
    ),
    *(
        Promise(
            "otm.kernel",
            "exact",
            _small(law),
            _kernels(verifier),
            lambda r, c: r.q,
            _with_left_out(bound),
            "the target",
            2,
        )
        for verifier, law, bound in LOSSLESS
    ),
    *(
        Promise(
            f"otm.{type(verifier).__name__}",
            "exact",
            _small(law),
            _coupled(verifier),
            ours(truth),
            bound,
            witness,
            2,
        )
        for verifier, law, bound, truth, witness in VALUES
    ),
]

promised("draft laws", ENUMERATIONS)
promised("linear programs", PROGRAMS)
promised("couplings", COUPLINGS)
