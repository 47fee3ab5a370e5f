"""What is promised by default: of every registered verifier, that its exact acceptance is that of
its rule enumerated; of every bound of a problem, that it bounds.

An entry of another family takes the place of the default.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import absolute, accepted, of_law, of_problem
from evidence.torture.frame import Trial, family
from evidence.torture.problems import Case, Row
from evidence.torture.promises import Promise, promised_by_default, trials, unnamed
from otm import bounds
from otm.verifiers import VERIFIERS, Verifier
from tests.contracts.calls import answers, bounds_of_problems

LAWS = ("IID", "WithoutReplacement", "Greedy", "TopK", "ThresholdRace")
COUNTS = (1, 2, 3)
CLOSE = absolute(1e-12, "1e-12")


def public_name(thing: Any, namespace: str) -> str:
    """Return the name of the accuracy page: at the top level where it is exported there."""
    return f"{'otm' if hasattr(otm, thing.__name__) else namespace}.{thing.__name__}"


def of_verifier(make: type[Verifier]) -> list[Promise]:
    """Return the promise of a verifier with default parameters, under each law that it supports."""
    counts = {
        law: tuple(k for k in COUNTS if make().supports(getattr(otm, law)(k))) for law in LAWS
    }
    return [
        Promise(
            public_name(make, "otm.verifiers"),
            "exact",
            of_law(law, rows=(1,), counts=ks),
            accepted(make()),
            functools.partial(_enumerated, make()),
            CLOSE,
            "its rule, enumerated",
            5,
        )
        for law, ks in counts.items()
        if ks
    ]


def _enumerated(verifier: Verifier, row: Row, case: Case) -> Decimal:
    return Decimal(otm.coupling(verifier, case.problem).acceptance)


def of_bound(bound: Any) -> list[Promise]:
    """Return the promise of a bound: on what it is proven for, else on the optimum."""
    name = bound.__name__
    proven = [make() for make in VERIFIERS if make.proven_lower == name]

    def truth(row: Row, case: Case) -> Any:
        for verifier in proven:
            if verifier.supports(case.otm_law):
                return Decimal(float(otm.acceptance(verifier, case.problem)))
        return oracles.optimum(row)

    return [
        Promise(
            public_name(bound, "otm.bounds"),
            "upper" if name.endswith("_upper") else "lower",
            of_law(law, rows=(1,)),
            of_problem(bound),
            truth,
            CLOSE,
            "the verifier that it is proven for" if proven else "every token set, exactly",
            5,
        )
        for law in LAWS
        if answers(
            bound, otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=getattr(otm, law)(2))
        )
    ]


for _make in VERIFIERS:
    promised_by_default(of_verifier(_make))
for _bound in bounds_of_problems():
    promised_by_default(of_bound(_bound))


@family("promised by default")
def _by_default(random: np.random.Generator) -> Iterator[Trial]:
    """Try what no other family names; if it names everything, a verifier and a bound that hold."""
    known = [*of_verifier(otm.NaiveTree), *of_bound(bounds.kseq_lower)]
    yield from trials(unnamed() or known, random)
