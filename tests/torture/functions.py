"""The public functions and what they promise: one entry each, by family; a new function goes here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from otm._arrays import to_numpy
from tests.torture import oracles
from tests.torture.problems import Case, Row, cases
from tests.torture.promises import UNIT_ROUNDOFF, Bound, Promise, Rows

# ------------------------------------------------------------------------------------------------------------------------- bounds

BLOCK = 256


def gate(width: int) -> float:
    """Return ν: how many units a pairwise sum of so many masses is off, at most."""
    return min(width + 1.0, 30.0)


def _scan(row: Row, truth: Decimal) -> float:
    width = len(row.q)
    power = 2 * row.k if row.k <= 64 else 0
    return (2 * (min(BLOCK, width) + width / BLOCK + gate(width)) + power + 12) * UNIT_ROUNDOFF


def _sum(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 16) * UNIT_ROUNDOFF


def _powers(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 2 * min(row.k, 64) + 16) * UNIT_ROUNDOFF


def _stages(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 8) * (row.k + 2) * UNIT_ROUNDOFF


def _none(row: Row, truth: Decimal) -> float:
    return 0.0


SCAN = Bound(_scan, "(2 (256 + V/256 + ν) + 2k·[k ≤ 64] + 12) u, at most 2e-13 at V = 128,256", 'theory, "The cut scan"')
SUM = Bound(_sum, "(3ν + 16) u: one sum over the vocabulary of terms of a few roundings", 'theory, "Plain sums"')
POWERS = Bound(_powers, "(3ν + 2 min(k, 64) + 16) u: a sum with k-th powers", 'theory, "Plain sums"')
STAGES = Bound(_stages, "(3ν + 8)(k + 2) u: k sums, each on the one before", 'theory, "Plain sums"')
OUTWARD = Bound(_none, "0: rounded to its own side", "docstring")


def relative(units: float, source: str = "docstring") -> Bound:
    """Return some units in the last place of the answer."""
    return Bound(lambda row, truth: units * UNIT_ROUNDOFF * abs(float(truth)), f"{units:g} u, relative", source)


def absolute(size: float, said: str, source: str = "docstring") -> Bound:
    """Return one number for all."""
    return Bound(lambda row, truth: size, said, source)


# ------------------------------------------------------------------------------------------------------------------------- inputs

FEW = (1, 2, 3, 4, 5, 6)
iid = functools.partial(cases, law="IID")
one_draft = functools.partial(cases, law="IID", counts=(1,))
iid_single = functools.partial(cases, law="IID", rows=(1,))
iid_short = functools.partial(cases, law="IID", rows=(1,), tokens=(1, 2, 3, 4), counts=(1, 2, 3))
middling = functools.partial(cases, law="IID", tokens=(7, 20, 64, 255, 300))


def of_law(law: str, **limits: Any) -> Callable[[np.random.Generator], Case]:
    """Return a drawer of small cases under a law that is enumerated."""
    limits = {"tokens": (2, 3, 4, 5), "counts": (1, 2, 3)} | limits
    return functools.partial(cases, law=law, **limits)


def any_law(random: np.random.Generator) -> Case:
    """Return a small case, one row, under any law."""
    law = ("IID", "WithoutReplacement", "Greedy", "Product", "TopK")[random.integers(5)]
    return cases(random, law=law, tokens=(2, 3, 4), counts=(1, 2, 3), rows=(1,))


def accepted(verifier: Any, **by: Any) -> Callable[[Case], Any]:
    """Return the call of `otm.acceptance`."""
    return lambda case: per_row(case, otm.acceptance(verifier, case.problem, **by))


def per_row(case: Case, values: Any) -> Rows:
    """Return an answer `(rows, ...)` or `(...)` as one answer a row."""
    array = to_numpy(values) if hasattr(values, "shape") else np.asarray(values)
    return Rows([array] if case.single else list(array))


def by_k(case: Case, values: Any) -> Rows:
    """Return an answer `(k, rows)` as one list a row."""
    array = to_numpy(values)
    return Rows([array] if case.single else list(array.T))


def ours(oracle: Callable[..., Any], **named: Any) -> Callable[[Row, Case], Any]:
    """Return an oracle that looks at the row only."""
    return lambda row, case: oracle(row, **named)


def at_counts(oracle: Callable[[Row], Decimal], counts: Sequence[int]) -> Callable[[Row, Case], list[Decimal]]:
    """Return an oracle's values for several numbers of drafts."""
    return lambda row, case: [oracle(_with(row, k)) for k in counts]


def _with(row: Row, k: int) -> Row:
    return Row(row.drafts, row.q, row.law, k, row.digits)


# ---------------------------------------------------------------------------------------------------------- i.i.d. drafts, bounds

CURVE = (1, 2, 5, 64, 70, 10**6)
ALL_SETS, SIXTY = "every token set, exactly", "the published formula in 60 digits"


def _root_residual(case: Case) -> Rows:
    """Return f(γ) = p_acc(γ) − γβ(γ), exactly, at the γ* that the library returns."""
    roots = per_row(case, otm.verifiers.gamma_star(case.problem))
    return Rows(
        [
            row.exactly(functools.partial(_kseq_equation, row, Decimal(float(g))))
            for row, g in zip(case.rows, roots, strict=True)
        ]
    )


def _kseq_equation(row: Row, gamma: Decimal) -> Decimal:
    if not Decimal(1) <= gamma <= row.k:
        return Decimal("NaN")
    height = oracles.overlap(row, gamma)
    return oracles.one_minus_power(min(height / gamma, Decimal(1)), row.k) - height


IID = [
    Promise(
        "otm.optimal_acceptance",
        "exact",
        iid,
        lambda c: per_row(c, otm.optimal_acceptance(c.problem)),
        ours(oracles.optimum),
        SCAN,
        ALL_SETS,
    ),
    Promise(
        "otm.optimal_acceptance",
        "exact",
        middling,
        lambda c: per_row(c, otm.optimal_acceptance(c.problem)),
        ours(oracles.optimum),
        SCAN,
        "every prefix, exactly",
        times=2,
    ),
    Promise(
        "otm.optimal_acceptance_curve",
        "exact",
        iid,
        lambda c: by_k(c, otm.optimal_acceptance_curve(c.problem, k=CURVE)),
        at_counts(oracles.optimum, CURVE),
        SCAN,
        ALL_SETS,
        times=5,
    ),
    Promise(
        "otm.optimal_cut",
        "upper",
        iid_single,
        lambda c: Rows([oracles.optimum(c.rows[0])]),
        lambda r, c: oracles.cut_value(r, otm.optimal_cut(c.problem)),
        SCAN,
        "the cut, evaluated exactly",
    ),
    Promise("otm.KSeq", "exact", iid, accepted(otm.KSeq()), ours(oracles.kseq), SCAN, "bisection in 60 digits"),
    Promise("otm.KSeq", "exact", middling, accepted(otm.KSeq()), ours(oracles.kseq), SCAN, "bisection in 60 digits", times=2),
    Promise(
        "otm.acceptance_curve",
        "exact",
        iid,
        lambda c: by_k(c, otm.acceptance_curve(otm.KSeq(), c.problem, k=CURVE)),
        at_counts(oracles.kseq, CURVE),
        SCAN,
        "bisection in 60 digits",
        times=2,
    ),
    Promise(
        "otm.verifiers.gamma_star",
        "exact",
        iid,
        _root_residual,
        lambda r, c: Decimal(0),
        SCAN,
        "its equation, evaluated exactly at the answer",
    ),
    Promise("otm.Optimal", "exact", iid, accepted(otm.Optimal()), ours(oracles.optimum), SCAN, ALL_SETS),
    Promise("otm.Maximal", "exact", one_draft, accepted(otm.Maximal()), ours(oracles.overlap), SUM, SIXTY),
    Promise(
        "otm.RecursiveRejection",
        "exact",
        functools.partial(iid, counts=(1, 2, 3, 5, 8, 32)),
        accepted(otm.RecursiveRejection()),
        ours(oracles.recursive_rejection),
        STAGES,
        "stage by stage in exact arithmetic",
    ),
    Promise("otm.Naive", "exact", iid, accepted(otm.Naive()), ours(oracles.naive), POWERS, SIXTY),
    Promise("otm.NaiveTree", "exact", iid, accepted(otm.NaiveTree()), ours(oracles.naive_tree), POWERS, SIXTY),
    Promise(
        "otm.MinHash", "exact", one_draft, accepted(otm.MinHash(), by="rule"), ours(oracles.minhash, by="rule"), SUM, SIXTY
    ),
    Promise("otm.MinHash", "exact", one_draft, accepted(otm.MinHash()), ours(oracles.minhash, by="membership"), SUM, SIXTY),
    Promise(
        "otm.Lenience",
        "exact",
        one_draft,
        accepted(otm.Lenience()),
        lambda r, c: (
            oracles.overlap(r, Decimal(1) * 2 / 2)
            if False
            else r.exactly(lambda: oracles.total(min(p, 2 * q) for p, q in zip(r.p, r.q, strict=True)))
        ),
        SUM,
        SIXTY,
    ),
    Promise("otm.ListRace", "exact", iid, accepted(otm.ListRace(), by="rule"), ours(oracles.list_race_rule), SCAN, SIXTY),
    Promise("otm.Race", "exact", one_draft, accepted(otm.Race()), ours(oracles.race), SCAN, SIXTY),
    Promise(
        "otm.bounds.kseq_lower",
        "exact",
        iid,
        lambda c: per_row(c, otm.bounds.kseq_lower(c.problem)),
        ours(oracles.kseq_guarantee),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.bounds.kseq_lower",
        "lower",
        iid,
        lambda c: per_row(c, otm.bounds.kseq_lower(c.problem)),
        ours(oracles.kseq),
        OUTWARD,
        "K-SEQ's acceptance by bisection in 60 digits",
    ),
    Promise(
        "otm.bounds.list_matching_lower",
        "exact",
        iid,
        lambda c: per_row(c, otm.bounds.list_matching_lower(c.problem)),
        ours(oracles.list_matching),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_matching_lower",
        "exact",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        lambda c: per_row(c, otm.bounds.poisson_matching_lower(c.problem)),
        ours(oracles.poisson_matching),
        POWERS,
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_representation_lower",
        "exact",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        lambda c: per_row(c, otm.bounds.poisson_representation_lower(c.problem)),
        ours(oracles.poisson_representation),
        SCAN,
        SIXTY,
    ),
    Promise(
        "otm.bounds.optimal_bracket",
        "interval",
        iid,
        lambda c: Rows(_ends(c, otm.bounds.optimal_bracket(c.problem, bins=16))),
        ours(oracles.optimum),
        OUTWARD,
        ALL_SETS,
    ),
    Promise(
        "otm.bounds.support_limit_upper",
        "exact",
        iid,
        lambda c: per_row(c, otm.bounds.support_limit_upper(c.problem)),
        ours(oracles.support_limit),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.bounds.spectr_upper",
        "exact",
        iid_short,
        lambda c: per_row(c, otm.bounds.spectr_upper(c.problem, subset=_some_set(c))),
        lambda r, c: oracles.spectr_bound(r, _some_set(c)),
        POWERS.plus(60),
        "Theorem 1 sequence by sequence, exactly",
    ),
    Promise(
        "otm.bounds.spectr_minimum_upper",
        "exact",
        iid_short,
        lambda c: per_row(c, otm.bounds.spectr_minimum_upper(c.problem)),
        ours(oracles.optimum),
        POWERS.plus(60),
        ALL_SETS,
    ),
]


def _ends(case: Case, bracket: Any) -> list[tuple[Any, Any]]:
    return list(zip(per_row(case, bracket.lower), per_row(case, bracket.upper), strict=True))


def _some_set(case: Case) -> list[bool]:
    """Return a token set that the case's extra number chooses."""
    return [bool(int(case.extra * 1000) >> y & 1) for y in range(case.num_tokens)]


FAMILIES: dict[str, list[Promise]] = {"independent drafts": IID}


def promises_of(name: str) -> list[Promise]:
    """Return every promise of one public name."""
    return [promise for group in FAMILIES.values() for promise in group if promise.name == name]
