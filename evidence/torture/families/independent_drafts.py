"""Optimum, schemes and bounds of i.i.d. drafts, from one token to 300 and from one draft to 10⁹."""

from __future__ import annotations

import functools
from decimal import Decimal

import otm
from evidence.torture import oracles
from evidence.torture.calls import (
    ALL_SETS,
    OUTWARD,
    POWERS,
    SCAN,
    SIXTY,
    STAGES,
    SUM,
    accepted,
    at_counts,
    by_k,
    ends,
    gate,
    iid,
    iid_short,
    iid_single,
    middling,
    of_law,
    of_problem,
    one_draft,
    ours,
    per_row,
    some_set,
)
from evidence.torture.problems import Case, Row
from evidence.torture.promises import UNIT_ROUNDOFF, Bound, Promise, Rows, promised

CURVE = (1, 2, 5, 64, 70, 10**6)


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


REPRESENTATION = Bound(
    lambda row, truth: (
        2
        * (3 * gate(len(row.q)) + 4 * (min(len(row.q), 256) + len(row.q) / 256) + 32)
        * UNIT_ROUNDOFF
    ),
    "rounded down, by at most twice (4 (256 + V/256) + 3ν + 32) u",
    "docstring",
)

IID = [
    Promise(
        "otm.optimal_acceptance",
        "exact",
        iid,
        of_problem(otm.optimal_acceptance),
        ours(oracles.optimum),
        SCAN,
        ALL_SETS,
    ),
    Promise(
        "otm.optimal_acceptance",
        "exact",
        middling,
        of_problem(otm.optimal_acceptance),
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
        SCAN.plus(2 * 64),
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
    Promise(
        "otm.KSeq",
        "exact",
        iid,
        accepted(otm.KSeq()),
        ours(oracles.kseq),
        SCAN,
        "bisection in 60 digits",
    ),
    Promise(
        "otm.KSeq",
        "exact",
        middling,
        accepted(otm.KSeq()),
        ours(oracles.kseq),
        SCAN,
        "bisection in 60 digits",
        times=2,
    ),
    Promise(
        "otm.acceptance_curve",
        "exact",
        iid,
        lambda c: by_k(c, otm.acceptance_curve(otm.KSeq(), c.problem, k=CURVE)),
        at_counts(oracles.kseq, CURVE),
        SCAN.plus(2 * 64),
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
    Promise(
        "otm.Optimal", "exact", iid, accepted(otm.Optimal()), ours(oracles.optimum), SCAN, ALL_SETS
    ),
    Promise(
        "otm.Maximal",
        "exact",
        one_draft,
        accepted(otm.Maximal()),
        ours(oracles.overlap),
        SUM,
        SIXTY,
    ),
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
    Promise(
        "otm.NaiveTree",
        "exact",
        iid,
        accepted(otm.NaiveTree()),
        ours(oracles.naive_tree),
        POWERS,
        SIXTY,
    ),
    Promise(
        "otm.MinHash",
        "exact",
        one_draft,
        accepted(otm.MinHash(), by="rule"),
        ours(oracles.minhash, by="rule"),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.MinHash",
        "exact",
        one_draft,
        accepted(otm.MinHash()),
        ours(oracles.minhash, by="membership"),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.Lenience",
        "exact",
        one_draft,
        accepted(otm.Lenience()),
        ours(oracles.lenience, factor=2),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.ListRace",
        "exact",
        iid,
        accepted(otm.ListRace(), by="rule"),
        ours(oracles.list_race_rule),
        SCAN,
        SIXTY,
    ),
    Promise(
        "otm.Race",
        "exact",
        iid,
        accepted(otm.Race()),
        ours(oracles.poisson_representation),
        SCAN,
        SIXTY,
    ),
    Promise(
        "otm.bounds.kseq_lower",
        "exact",
        iid,
        of_problem(otm.bounds.kseq_lower),
        ours(oracles.kseq_guarantee),
        SUM.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.kseq_lower",
        "lower",
        iid,
        of_problem(otm.bounds.kseq_lower),
        ours(oracles.kseq_guarantee),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.kseq_lower",
        "lower",
        iid,
        of_problem(otm.bounds.kseq_lower),
        ours(oracles.kseq),
        OUTWARD,
        "K-SEQ's acceptance by bisection in 60 digits",
    ),
    Promise(
        "otm.bounds.list_matching_lower",
        "exact",
        iid,
        of_problem(otm.bounds.list_matching_lower),
        ours(oracles.list_matching),
        SUM.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.list_matching_lower",
        "lower",
        iid,
        of_problem(otm.bounds.list_matching_lower),
        ours(oracles.list_matching),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.threshold_race_lower",
        "exact",
        of_law("ThresholdRace", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.threshold_race_lower),
        ours(oracles.threshold_bound),
        SUM.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.threshold_race_lower",
        "lower",
        of_law("ThresholdRace", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.threshold_race_lower),
        ours(oracles.threshold_bound),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_matching_lower",
        "exact",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.poisson_matching_lower),
        ours(oracles.poisson_matching),
        POWERS.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_matching_lower",
        "lower",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.poisson_matching_lower),
        ours(oracles.poisson_matching),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_representation_lower",
        "exact",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.poisson_representation_lower),
        ours(oracles.poisson_representation),
        REPRESENTATION,
        SIXTY,
    ),
    Promise(
        "otm.bounds.poisson_representation_lower",
        "lower",
        of_law("WithoutReplacement", tokens=(1, 2, 3, 4, 5, 6)),
        of_problem(otm.bounds.poisson_representation_lower),
        ours(oracles.poisson_representation),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.optimal_bracket",
        "interval",
        iid,
        lambda c: Rows(ends(c, otm.bounds.optimal_bracket(c.problem, bins=16))),
        ours(oracles.optimum),
        OUTWARD,
        ALL_SETS,
    ),
    Promise(
        "otm.bounds.support_limit_upper",
        "exact",
        iid,
        of_problem(otm.bounds.support_limit_upper),
        ours(oracles.support_limit),
        SUM.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.support_limit_upper",
        "upper",
        iid,
        of_problem(otm.bounds.support_limit_upper),
        ours(oracles.support_limit),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.spectr_upper",
        "exact",
        iid_short,
        lambda c: per_row(c, otm.bounds.spectr_upper(c.problem, subset=some_set(c))),
        lambda r, c: oracles.spectr_bound(r, some_set(c)),
        POWERS.plus(60).twice(),
        "Theorem 1 sequence by sequence, exactly",
    ),
    Promise(
        "otm.bounds.spectr_upper",
        "upper",
        iid_short,
        lambda c: per_row(c, otm.bounds.spectr_upper(c.problem, subset=some_set(c))),
        lambda r, c: oracles.spectr_bound(r, some_set(c)),
        OUTWARD,
        "Theorem 1 sequence by sequence, exactly",
    ),
    Promise(
        "otm.bounds.spectr_minimum_upper",
        "exact",
        iid_short,
        of_problem(otm.bounds.spectr_minimum_upper),
        ours(oracles.optimum),
        POWERS.plus(60).twice(),
        ALL_SETS,
    ),
    Promise(
        "otm.bounds.spectr_minimum_upper",
        "upper",
        iid_short,
        of_problem(otm.bounds.spectr_minimum_upper),
        ours(oracles.optimum),
        OUTWARD,
        ALL_SETS,
    ),
]


promised("independent drafts", IID)
