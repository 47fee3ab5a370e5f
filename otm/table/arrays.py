"""The table's columns as array operations of any namespace, in groups that share work: one sort,
one recursion, one walk over the likely tokens.

Every group takes both distributions of a chunk of rows, `(..., V)` in float64, and returns values
`(...)` by stem and k. The formulas are those of the verifiers, bounds and divergences themselves,
which the tests compare them with; what is shared here is the sort, the running sums and the powers
(1 − x)^k.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from otm._machine.arrays import Array, clip, is_on_host, namespace, quiet, total
from otm.drafts.curve_cut import optimum_on_curve
from otm.overlap import OverlapCurve
from otm.overlap.curve import Containment, powers_of_rest
from otm.races import matching_probabilities
from otm.verifiers.fuzzy import Fuzzy
from otm.verifiers.kseq import kseq_on_curve
from otm.verifiers.lenience import Lenience
from otm.verifiers.recursive_rejection import rejection_levels
from otm.verifiers.typical_acceptance import TypicalAcceptance

Values = dict[tuple[str, int], Array]
"""Values `(...)` of a chunk by (stem of the column, k)."""

RACES = {
    *("list_race_rule_iid", "race_iid", "race_threshold_race"),
    "poisson_representation_lower_without_replacement",
}
CURVE = {
    *("optimum_iid", "kseq_iid", "recursive_rejection_iid", "lenience_iid"),
    "optimum_threshold_race",
    *RACES,
}
LIKELY = {"greedy_optimal_greedy", "naive_greedy", "spechub_greedy", "naive_top_k"}
LOGARITHMIC = {
    *("draft_entropy", "target_entropy", "kl_target_draft", "kl_draft_target"),
    *("typical_acceptance_iid", "fuzzy_iid"),
}
"""The columns from the ranks of q/p, from the curve, from the likeliest tokens and from
logarithms.
"""

_SMALLEST, _SMALLEST_SINGLE = 5e-324, 1.4e-45
_LEAST = -1.7976931348623157e308  # what −∞ is taken for, so that 0 times it is 0


def along_the_curve(p: Array, q: Array, ks: Sequence[int], wanted: Collection[str]) -> Values:
    """Return the functionals of the overlap curve from one sort: the optimum, K-SEQ, recursive
    rejection, lenience, races.
    """
    curve = OverlapCurve.of(p, q)
    whole = curve.total_target
    scale = namespace(p, q).zeros_like(whole) + Lenience().lenience
    values: Values = {("lenience_iid", 1): curve.at(scale) / scale}  # Σ min(p, q/l)
    if "race_threshold_race" in wanted:
        values |= {
            ("race_threshold_race", k): _dot(
                curve.in_order(q), matching_probabilities(curve, float(k))
            )
            for k in ks
        }
    if (RACES - {"race_threshold_race"}) & set(wanted):
        masses, hit = curve.in_order(q), matching_probabilities(curve)
        values["race_iid", 1] = _dot(masses, hit)
        _list_races(values, masses, hit, ks)
        for k, missed in powers_of_rest(hit, ks):
            values["poisson_representation_lower_without_replacement", k] = whole - _dot(
                masses, missed
            )
    functionals: dict[str, Callable[[], Array]] = {
        "optimum_iid": lambda: optimum_on_curve(curve, [Containment(k=k) for k in ks]),
        "optimum_threshold_race": lambda: optimum_on_curve(
            curve, [Containment(c=float(k)) for k in ks]
        ),
        "kseq_iid": lambda: kseq_on_curve(curve, ks),
        "recursive_rejection_iid": lambda: rejection_levels(curve.at, whole, ks),
    }
    for stem, functional in functionals.items():
        if stem in wanted:
            curves = functional()
            values |= {(stem, k): curves[i, ...] for i, k in enumerate(ks)}
    return values


def _list_races(values: Values, masses: Array, hit: Array, ks: Sequence[int]) -> None:
    """Add Σ q k h/(1 + (k − 1) h), written with c = 1/(k − 1) as c k Σ q h/(h + c)."""
    weight = masses * hit
    for k in ks:
        c = 1.0 / (k - 1) if k > 1 else 1.0
        values["list_race_rule_iid", k] = (
            k * c * total(weight / (hit + c)) if k > 1 else total(weight)
        )


def by_powers(p: Array, q: Array, ks: Sequence[int]) -> Values:
    """Return the columns that depend on Pr(token x is not among k draws)."""
    xp = namespace(p, q)
    overlap = xp.minimum(p, q)
    excess, whole, overlap = q - overlap, total(q), total(overlap)
    surplus = total(excess)
    values: Values = {("naive_tree_iid", 1): overlap, ("maximal_iid", 1): overlap}
    for k, missed in powers_of_rest(p, sorted({*ks, *(k - 1 for k in ks if k > 1)})):
        if k in ks:
            values["naive_iid", k] = whole - _dot(q, missed)
        if k + 1 in ks:
            values["naive_tree_iid", k + 1] = overlap + surplus - _dot(excess, missed)
    return values


def by_likely_tokens(p: Array, q: Array, ks: Sequence[int]) -> Values:
    """Return the schemes that draft the most likely tokens, walking down from the most likely one;
    ties go to the lowest index.
    """
    xp = namespace(p, q)
    shape, width = tuple(p.shape), int(p.shape[-1])
    rest, q = xp.reshape(p + 0.0, (-1, width)), xp.reshape(q, (-1, width))
    rows = xp.arange(int(rest.shape[0]), device=getattr(p, "device", None))
    taken = xp.zeros_like(rest[:, 0])  # Q(top), tokens that can be drafted
    flat: Values = {}
    # One argmax a draft instead of a sort: k is small, and a device sorts 128,256 tokens slowly.
    for k in range(1, max(ks) + 1):
        likeliest = xp.argmax(rest, axis=-1)
        if k in ks:
            left = total(rest)[:, None]
            last = rest / xp.where(left > 0, left, xp.ones_like(left))
            flat["greedy_optimal_greedy", k] = taken + total(xp.minimum(q, last))
            flat["naive_greedy", k] = taken + _dot(q, last)
        # rest is 0 on tokens already taken, so a row that has run out of draftable tokens adds
        # nothing.
        drafted = rest[rows, likeliest] > 0
        taken = taken + xp.where(drafted, q[rows, likeliest], xp.zeros_like(taken))
        rest[rows, likeliest] = 0.0
        if k in ks:
            flat["naive_top_k", k] = taken
    values = {key: xp.reshape(value, shape[:-1]) for key, value in flat.items()}
    if 2 in ks:
        values["spechub_greedy", 2] = values["greedy_optimal_greedy", 2]
    return values


def describe_pair(p: Array, q: Array, log_p: Array | None, log_q: Array | None) -> dict[str, Array]:
    """Return total variation and, with finite logarithms, entropies and both relative entropies, in
    nats.
    """
    xp = namespace(p, q)
    if log_p is None or log_q is None:
        return {"tv": 0.5 * total(xp.abs(q - p))}
    difference, excess = log_q - log_p, q - p
    # term by term non-negative, as in otm.divergences.kl_divergence
    forward = total(q * difference - excess)
    difference *= p
    backward = total(excess - difference)
    if not is_on_host(p) or bool(xp.min(p) == 0) or bool(xp.min(q) == 0):
        infinite = xp.zeros_like(forward) + xp.inf
        forward = xp.where(xp.any((p == 0) & (q > 0), axis=-1), infinite, forward)
        backward = xp.where(xp.any((q == 0) & (p > 0), axis=-1), infinite, backward)
    return {
        "draft_entropy": -_dot(p, log_p),
        "target_entropy": -_dot(q, log_q),
        "tv": 0.5 * total(xp.abs(excess)),
        "kl_target_draft": xp.maximum(forward, xp.zeros_like(forward)),
        "kl_draft_target": xp.maximum(backward, xp.zeros_like(backward)),
    }


def single_draft(p: Array, q: Array, described: dict[str, Array], overlap: Array) -> Values:
    """Return MinHash and, with entropies, the lossy schemes of one draft at default parameters."""
    xp = namespace(p, q)
    distance, same = described["tv"], _dot(p, q)
    # Σ |p − q| min(p, q) = Σ p q − Σ min(p, q)²
    both = xp.minimum(p, q)
    values: Values = {
        ("minhash_rule_iid", 1): overlap / (1.0 + distance),
        ("minhash_iid", 1): (overlap + same - _dot(both, both)) / (1.0 + distance),
    }
    if "target_entropy" not in described:
        return values
    typical = TypicalAcceptance()
    threshold = xp.clip(typical.delta * xp.exp(-described["target_entropy"]), None, typical.eps)
    keep = xp.where(q > threshold[..., None], p, xp.zeros_like(p))
    values["typical_acceptance_iid", 1] = total(keep) + same - _dot(keep, q)
    middle, entropies = 0.5 * (p + q), described["draft_entropy"] + described["target_entropy"]
    divergence = -_dot(middle, logarithm(middle)) - 0.5 * entropies  # Jensen–Shannon
    values["fuzzy_iid", 1] = xp.where(divergence <= Fuzzy().threshold, xp.ones_like(same), same)
    return values


def logarithm(mass: Array) -> Array:
    """Return log max(p, tiny), tiny the smallest positive number, so that x log x is 0 at 0."""
    xp = namespace(mass)
    smallest = _SMALLEST if mass.dtype == xp.float64 else _SMALLEST_SINGLE
    floor = xp.maximum(mass, xp.zeros_like(mass[..., :1]) + smallest)
    return np.log(floor, out=floor) if isinstance(floor, np.ndarray) else xp.log(floor)


def chunk_values(
    p: Array,
    q: Array,
    log_p: Array | None,
    log_q: Array | None,
    ks: Sequence[int],
    wanted: Collection[str],
) -> tuple[Values, dict[str, Array]]:
    """Return the values of a chunk and the requested descriptions, in float64; `ks` ascending.

    Logarithms may be anything but NaN where the mass is 0; a NaN makes the descriptions of that row
    NaN. Missing logarithms are computed here.
    """
    asked, values = set(wanted), Values()
    with quiet():
        if LOGARITHMIC & asked:
            logs = [
                clip(logarithm(a) if log is None else log, _LEAST, 0.0)
                for a, log in ((p, log_p), (q, log_q))
            ]
        else:
            logs = [None, None]
        described = describe_pair(p, q, *logs)
        if CURVE & asked:
            values |= along_the_curve(p, q, ks, asked)
        if LIKELY & asked:
            values |= by_likely_tokens(p, q, ks)
        if asked - CURVE - LIKELY - set(described):
            values |= by_powers(p, q, ks)
            values |= single_draft(p, q, described, values["maximal_iid", 1])
        return values, described


def _dot(left: Array, right: Array) -> Array:
    """Sum products along the last axis, on the host without BLAS, because BLAS rounds differently
    with another number of threads.
    """
    if isinstance(left, np.ndarray):
        return np.einsum("...i,...i->...", left, right)
    return namespace(left, right).vecdot(left, right)
