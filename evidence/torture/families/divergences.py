"""Distances, their bounds in bits, the lossy schemes, and the table of everything at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import (
    ALL_SETS,
    OUTWARD,
    SCAN,
    SIXTY,
    SUM,
    accepted,
    by_k,
    gate,
    iid,
    of_arrays,
    of_problem,
    ours,
    per_row,
    with_count,
)
from evidence.torture.problems import Case, Row
from evidence.torture.promises import UNIT_ROUNDOFF, Bound, Promise, Rows, promised
from otm._machine.arrays import to_numpy


def _divergence_bound(row: Row, truth: Decimal) -> float:
    if truth.is_infinite():
        return 0.0
    nu = gate(len(row.q)) * UNIT_ROUNDOFF
    spread = sum(
        float(abs(oracles.log(q / p)) * q) for p, q in zip(row.p, row.q, strict=True) if p and q
    )
    apart = float(oracles.total(abs(p - q) for p, q in zip(row.p, row.q, strict=True)))
    return 1e-14 * float(truth) + 2 * nu * (spread + apart) + 16 * nu * nu


DIVERGENCE = Bound(
    _divergence_bound,
    "1e-14 of the value, and what rounding at the gate moves: 2νu (Σ q|log(q/p)| + 2 TV) + 16 ν²u²",
    'docs/theory.md, "Divergences"',
)
BITS = Bound(
    lambda row, truth: (
        0.0
        if truth.is_infinite()
        else 5 * _divergence_bound(row, truth) + 16 * UNIT_ROUNDOFF * (1 + float(truth))
    ),
    "five times the divergence's own, and 16 u",
    'docs/theory.md, "Divergences"',
)

COLUMNS: dict[str, Callable[[Row], Decimal]] = {
    "optimum_iid": oracles.optimum,
    "kseq_iid": oracles.kseq,
    "recursive_rejection_iid": oracles.recursive_rejection,
    "naive_tree_iid": oracles.naive_tree,
    "naive_iid": oracles.naive,
    "list_race_rule_iid": oracles.list_race_rule,
    "maximal_iid": oracles.overlap,
    "race_iid": oracles.race,
    "minhash_iid": functools.partial(oracles.minhash, by="membership"),
    "minhash_rule_iid": functools.partial(oracles.minhash, by="rule"),
    "greedy_optimal_greedy": lambda row: oracles.optimum(_under(row, "Greedy")),
    "naive_greedy": lambda row: oracles.naive(_under(row, "Greedy")),
    "spechub_greedy": lambda row: oracles.optimum(_under(row, "Greedy")),
    "naive_top_k": lambda row: oracles.naive(_under(row, "TopK")),
    "optimum_threshold_race": lambda row: oracles.optimum(_under(row, "ThresholdRace")),
    "race_threshold_race": oracles.threshold_race,
    "poisson_representation_lower_without_replacement": oracles.poisson_representation,
    "lenience_iid": functools.partial(oracles.lenience, factor=2),
    "typical_acceptance_iid": oracles.typical_acceptance,
    "fuzzy_iid": oracles.fuzzy,
}
DESCRIBED: dict[str, Callable[[Row], Decimal]] = {
    "draft_entropy": functools.partial(oracles.entropy, of="p"),
    "kl_draft_target": oracles.backward_kl,
    "kl_target_draft": oracles.kl,
    "target_entropy": oracles.entropy,
    "tv": functools.partial(oracles.hockey_stick, level=Decimal(1)),
}
TABLE = Bound(
    lambda row, truth: 1e-13 * max(1.0, float(truth)) if truth.is_finite() else 0.0,
    "1e-13; entropies and divergences above 1 relative",
    "docstring",
)


def _under(row: Row, law: str) -> Row:
    return Row(row.drafts, row.q, law, row.k, row.digits)


def _counts(case: Case) -> list[int]:
    return sorted({1, min(2, case.num_tokens), min(case.k, case.num_tokens)})


def _table(case: Case) -> Rows:
    found = otm.acceptance_table(**case.arrays, k=_counts(case))
    described = np.stack([to_numpy(found.description[name]) for name in DESCRIBED])
    return by_k(case, np.concatenate([to_numpy(found.values), described]))


def _true_table(row: Row, case: Case) -> list[Decimal]:
    columns = otm.table.table_columns(_counts(case))
    return [COLUMNS[column.stem](with_count(row, column.k)) for column in columns] + [
        of(row) for of in DESCRIBED.values()
    ]


def off_thresholds(
    draw: Callable[[np.random.Generator], Case],
) -> Callable[[np.random.Generator], Case]:
    """Draw until no row is within 1e-6 of where a scheme decides otherwise: there either answer is
    right to rounding.
    """

    def away(random: np.random.Generator) -> Case:
        while True:
            case = draw(random)
            if all(oracles.margin(row) > Decimal("1e-6") for row in case.rows):
                return case

    return away


def _compared(case: Case) -> Rows:
    schemes = [otm.KSeq(), otm.NaiveTree(), otm.RecursiveRejection()]
    found = otm.compare(**case.arrays, laws=[otm.IID], k=[case.k], samples=10, verifiers=schemes)
    by_name = {type(row.verifier).__name__: row for row in found.rows}
    rows: list[Any] = [by_name[type(scheme).__name__] for scheme in schemes]
    return Rows([[Decimal(float(number)) for row in rows for number in (row.exact, row.optimum)]])


def _true_comparison(row: Row, case: Case) -> list[Decimal]:
    best = oracles.optimum(row)
    return [
        x
        for of in (oracles.kseq, oracles.naive_tree, oracles.recursive_rejection)
        for x in (of(row), best)
    ]


def _level(case: Case) -> float:
    return 4 * case.extra


def _overlaps(case: Case) -> Rows:
    draft, target = case.problem.draft, case.problem.target
    return per_row(case, otm.overlap.overlap_at(draft, target, draft[..., 0] * 0 + _level(case)))


def _curve(case: Case) -> Rows:
    draft, target = case.problem.draft, case.problem.target
    return per_row(
        case, otm.overlap.OverlapCurve.of(draft, target).at(draft[..., 0] * 0 + _level(case))
    )


one_draft_off = off_thresholds(functools.partial(iid, counts=(1,)))
WIDE = functools.partial(iid, kinds=("float64", "torch64", "list"))

DISTANCES = [
    Promise(
        "otm.divergences.total_variation",
        "exact",
        iid,
        of_arrays(otm.divergences.total_variation),
        ours(oracles.hockey_stick, level=Decimal(1)),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.divergences.kl_divergence",
        "exact",
        iid,
        of_arrays(otm.divergences.kl_divergence),
        ours(oracles.kl),
        DIVERGENCE,
        SIXTY,
    ),
    Promise(
        "otm.divergences.harmonic_mean_distance",
        "exact",
        iid,
        of_arrays(otm.divergences.harmonic_mean_distance),
        ours(oracles.harmonic),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.divergences.hockey_stick",
        "exact",
        iid,
        lambda c: per_row(c, otm.divergences.hockey_stick(**c.arrays, level=_level(c))),
        lambda r, c: oracles.hockey_stick(r, Decimal(_level(c))),
        SUM.plus(80),
        SIXTY,
    ),
    Promise(
        "otm.overlap.overlap_at",
        "exact",
        WIDE,
        _overlaps,
        lambda r, c: oracles.overlap(r, Decimal(_level(c))),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.overlap.OverlapCurve",
        "exact",
        WIDE,
        _curve,
        lambda r, c: oracles.overlap(r, Decimal(_level(c))),
        SCAN,
        SIXTY,
    ),
    Promise(
        "otm.bounds.index_entropy_lower",
        "exact",
        iid,
        of_problem(otm.bounds.index_entropy_lower),
        lambda r, c: r.exactly(lambda: oracles.kl(r) / oracles.LOG_2),
        BITS.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.index_entropy_lower",
        "lower",
        iid,
        of_problem(otm.bounds.index_entropy_lower),
        lambda r, c: r.exactly(lambda: oracles.kl(r) / oracles.LOG_2),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.index_entropy_upper",
        "exact",
        iid,
        of_problem(otm.bounds.index_entropy_upper),
        ours(oracles.index_entropy, greedy=False),
        BITS.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.index_entropy_upper",
        "upper",
        iid,
        of_problem(otm.bounds.index_entropy_upper),
        ours(oracles.index_entropy, greedy=False),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.bounds.greedy_index_entropy_upper",
        "exact",
        iid,
        of_problem(otm.bounds.greedy_index_entropy_upper),
        ours(oracles.index_entropy, greedy=True),
        BITS.twice(),
        SIXTY,
    ),
    Promise(
        "otm.bounds.greedy_index_entropy_upper",
        "upper",
        iid,
        of_problem(otm.bounds.greedy_index_entropy_upper),
        ours(oracles.index_entropy, greedy=True),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.lossy.tv_frontier",
        "exact",
        iid,
        lambda c: per_row(c, otm.lossy.tv_frontier(c.problem, tv=c.extra)),
        lambda r, c: r.exactly(lambda: min(Decimal(1), oracles.optimum(r) + Decimal(c.extra))),
        SCAN,
        ALL_SETS,
    ),
]

TABLES = [
    Promise(
        "otm.TypicalAcceptance",
        "exact",
        one_draft_off,
        accepted(otm.TypicalAcceptance()),
        ours(oracles.typical_acceptance),
        SUM,
        SIXTY,
    ),
    Promise(
        "otm.Fuzzy", "exact", one_draft_off, accepted(otm.Fuzzy()), ours(oracles.fuzzy), SUM, SIXTY
    ),
    Promise(
        "otm.acceptance_table",
        "exact",
        off_thresholds(functools.partial(iid, counts=(1, 2, 3, 5))),
        _table,
        _true_table,
        TABLE,
        "every column's own oracle",
        3,
    ),
    Promise(
        "otm.compare",
        "exact",
        functools.partial(iid, rows=(1,), counts=(1, 2, 3)),
        _compared,
        _true_comparison,
        SCAN,
        "every column's own oracle",
        2,
    ),
]

promised("distances", DISTANCES)
promised("tables", TABLES)
