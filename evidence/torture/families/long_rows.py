"""Rows of language models' length, up to V = 128,256, in 60 digits; that the best cut is a prefix
is a theorem.
"""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import (
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
    of_arrays,
    of_problem,
    ours,
)
from evidence.torture.families.divergences import DIVERGENCE
from evidence.torture.problems import Case, Row, cases
from evidence.torture.promises import Promise, Rows, promised
from otm._machine.arrays import to_numpy

LENGTHS = (
    1023,
    1024,
    1025,
    1500,
    2047,
    2048,
    3001,
    1023,
    1024,
    1025,
    1500,
    2047,
    2048,
    3001,
    32_000,
    50_257,
    128_256,
)
long = functools.partial(
    cases, law="IID", tokens=LENGTHS, rows=(1,), kinds=("float64", "float64", "float32", "torch64")
)
PREFIXES = "every prefix in 60 digits"
FEW = (1, 3, 64)


def _columns(case: Case) -> Rows:
    found = otm.acceptance_table(**case.arrays, k=[1, 4])
    return by_k(case, np.stack([to_numpy(found[name]) for name in COLUMNS]))


COLUMNS: dict[str, Any] = {
    "optimum_iid_k4": (oracles.optimum, 4),
    "kseq_iid_k4": (oracles.kseq, 4),
    "recursive_rejection_iid_k4": (oracles.recursive_rejection, 4),
    "naive_iid_k4": (oracles.naive, 4),
    "race_iid_k1": (oracles.race, 1),
    "list_race_rule_iid_k4": (oracles.list_race_rule, 4),
    "minhash_rule_iid_k1": (functools.partial(oracles.minhash, by="rule"), 1),
}


def _true_columns(row: Row, case: Case) -> list[Decimal]:
    return [of(Row(row.drafts, row.q, row.law, k, row.digits)) for of, k in COLUMNS.values()]


LONG = [
    Promise(
        "otm.optimal_acceptance",
        "exact",
        long,
        of_problem(otm.optimal_acceptance),
        ours(oracles.optimum),
        SCAN,
        PREFIXES,
        1,
    ),
    Promise(
        "otm.optimal_acceptance_curve",
        "exact",
        functools.partial(long, tokens=LENGTHS[:14]),
        lambda c: by_k(c, otm.optimal_acceptance_curve(c.problem, k=FEW)),
        at_counts(oracles.optimum, FEW),
        SCAN.plus(128),
        PREFIXES,
        1,
    ),
    Promise(
        "otm.KSeq",
        "exact",
        long,
        accepted(otm.KSeq()),
        ours(oracles.kseq),
        SCAN,
        "bisection in 60 digits",
        1,
    ),
    Promise(
        "otm.ThresholdRace",
        "exact",
        functools.partial(long, law="ThresholdRace"),
        of_problem(otm.optimal_acceptance),
        ours(oracles.optimum),
        SCAN,
        PREFIXES,
        1,
    ),
    Promise(
        "otm.Race",
        "exact",
        functools.partial(long, law="ThresholdRace"),
        accepted(otm.Race()),
        ours(oracles.threshold_race),
        SCAN,
        SIXTY,
        1,
    ),
    Promise(
        "otm.Race",
        "exact",
        functools.partial(long, counts=(1,)),
        accepted(otm.Race()),
        ours(oracles.race),
        SCAN,
        SIXTY,
        1,
    ),
    Promise(
        "otm.ListRace",
        "exact",
        long,
        accepted(otm.ListRace(), by="rule"),
        ours(oracles.list_race_rule),
        SCAN,
        SIXTY,
        1,
    ),
    Promise(
        "otm.Naive", "exact", long, accepted(otm.Naive()), ours(oracles.naive), POWERS, SIXTY, 1
    ),
    Promise(
        "otm.RecursiveRejection",
        "exact",
        functools.partial(long, counts=(1, 2, 4)),
        accepted(otm.RecursiveRejection()),
        ours(oracles.recursive_rejection),
        STAGES,
        "stage by stage in 60 digits",
        1,
    ),
    Promise(
        "otm.divergences.total_variation",
        "exact",
        long,
        of_arrays(otm.divergences.total_variation),
        ours(oracles.hockey_stick, level=Decimal(1)),
        SUM,
        SIXTY,
        1,
    ),
    Promise(
        "otm.divergences.kl_divergence",
        "exact",
        functools.partial(long, tokens=LENGTHS[:14]),
        of_arrays(otm.divergences.kl_divergence),
        ours(oracles.kl),
        DIVERGENCE,
        SIXTY,
        1,
    ),
    Promise(
        "otm.bounds.optimal_bracket",
        "interval",
        long,
        lambda c: Rows(ends(c, otm.bounds.optimal_bracket(c.problem, bins=256))),
        ours(oracles.optimum),
        OUTWARD,
        PREFIXES,
        1,
    ),
    Promise(
        "otm.bounds.kseq_lower",
        "lower",
        long,
        of_problem(otm.bounds.kseq_lower),
        ours(oracles.kseq),
        OUTWARD,
        "bisection",
        1,
    ),
    Promise(
        "otm.acceptance_table",
        "exact",
        functools.partial(long, tokens=LENGTHS[:14], counts=(1,)),
        _columns,
        _true_columns,
        SCAN,
        "every column's own oracle",
        1,
    ),
]

promised("long rows", LONG)
