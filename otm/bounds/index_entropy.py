"""Bounds on the entropy of the accepted draft's index, by the divergence of target from draft.

Speculative decoding with an unlimited list of drafts is channel simulation: Y = X_K ~ q is one
entry of a list drawn from p, and the index K is what a decoder who knows the list would have to be
told. H(K) is the entropy that governs how fast the yield of drafting trees grows (Tunstall's
bound), and it cannot be far from D = D(q‖p):

    D ≤ H(K)                                every list whose entries all have law p,
    H(K) ≤ D + log₂(D + 1) + 4              Poisson functional representation, a race's rank,
    H(K) ≤ D + log₂(D + log₂ 4e) + log₂ 4e  greedy rejection,

all in bits. The lower bound is about lists with replacement. *It is false for drafts without
replacement*, the case that tree decoders use: the rank of the accepted token is then one of V, so H
≤ log₂ V, while D is unbounded. With p = (.99, .01) and q = (½, ½), H ≤ 1 and D = 2.329.
"""

from __future__ import annotations

import math

from otm._machine.arrays import UNIT_ROUNDOFF, Array, namespace
from otm.bounds.rounding import sum_units
from otm.divergences import kl_divergence
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.problem import Problem, require_law

_LOG_4E = math.log2(4 * math.e)
_ROUNDED_UP = 1.0 + 2.0**-49


def index_entropy_lower(problem: Problem) -> Array:
    """Return a lower bound on the entropy of the output's index in a list of i.i.d. drafts.

    H(K) ≥ D(q‖p): for greedy rejection (recursive rejection of i.i.d. drafts, however many) and for
    the Poisson functional representation, at each context.

    Args:
        problem: any batch `(..., V)` with an `IID` law; its k plays no part, the list is as long as
            it needs to be.

    Returns:
        Bits: a float, or `(...)` in float64; ∞ where the target has mass that is never drafted.

    Raises:
        Unsupported: for any other law; without replacement the inequality is false.

    Cost: O(V). Accuracy: rounded down, by 1e-14 of D and 18νu (D + √D).
    Reference: ERSD [Kobus & Gündüz 2025], (6), from Li 2024; docs/theory.md, "Bounds", with the
        counterexample.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.99, 0.01], target=[0.5, 0.5], law=otm.IID(1))
    >>> round(index_entropy_lower(problem), 3)
    2.329
    """
    require_law(
        problem,
        IID,
        message="H ≥ D(q‖p) is about an index into a list whose every entry has the draft's law; "
        "the problem has {law!r}, and without replacement the inequality is false. Use "
        "law=otm.IID({k}).",
    )
    return _moved(_bits(problem), problem, -1.0)


def index_entropy_upper(problem: Problem) -> Array:
    """Return an upper bound on the entropy of the Poisson representation's index and a race's rank.

    H(K) ≤ D(q‖p) + log₂(D(q‖p) + 1) + 4. The race's rank counts distinct tokens in the same list,
    so it is never larger than K, and the bound, which rests on E[log₂ K], holds for it as well.

    Args:
        problem: any batch `(..., V)` with an `IID` law (the list) or `WithoutReplacement` (the
            race); k plays no part.

    Returns:
        Bits: a float, or `(...)` in float64; ∞ where the target has mass that is never drafted.

    Raises:
        Unsupported: for any other law.

    Cost: O(V). Accuracy: rounded up, by 1e-14 of D and 18νu (D + √D).
    Reference: Li & El Gamal 2018, Theorem 1 and its proof; ERSD [Kobus & Gündüz 2025], (8).

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    >>> round(index_entropy_upper(problem), 9)
    4.0
    """
    require_law(
        problem,
        IID,
        WithoutReplacement,
        message="The bound is about the Poisson functional representation, otm.IID(k), and races, "
        "otm.WithoutReplacement(k); the problem has {law!r}. Choose one of the two.",
    )
    divergence = _moved(_bits(problem), problem, 1.0)
    return (divergence + _log2(divergence + 1.0) + 4.0) * _ROUNDED_UP


def greedy_index_entropy_upper(problem: Problem) -> Array:
    """Return an upper bound on the entropy of the index that greedy rejection selects.

    H(K) ≤ D + log₂(D + log₂ 4e) + log₂ 4e, D = D(q‖p) and log₂ 4e = 3.4427: ERSD's D + (1 + ε)
    log₂(D + 1) + O(1) with its constant.

    Args:
        problem: any batch `(..., V)` with an `IID` law; k plays no part.

    Returns:
        Bits: a float, or `(...)` in float64; ∞ where the target has mass that is never drafted.

    Raises:
        Unsupported: for any other law.

    Cost: O(V). Accuracy: rounded up, by 1e-14 of D and 18νu (D + √D).
    Reference: Harsha et al. 2010; ERSD [Kobus & Gündüz 2025], (7); the constant: docs/theory.md,
        "Bounds".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    >>> round(greedy_index_entropy_upper(problem), 4)
    5.2262
    """
    require_law(
        problem,
        IID,
        message="Greedy rejection reads an i.i.d. list; the problem has {law!r}. Use "
        "law=otm.IID({k}).",
    )
    divergence = _moved(_bits(problem), problem, 1.0)
    return (divergence + _log2(divergence + _LOG_4E) + _LOG_4E) * _ROUNDED_UP


def _bits(problem: Problem) -> Array:
    return kl_divergence(draft=problem.draft, target=problem.target) / math.log(2)


def _moved(bits: Array, problem: Problem, sign: float) -> Array:
    """Return a divergence moved up or down by a bound on the rounding error."""
    # 1e-14 of itself, and by the gate 2νu (Σ q|log(q/p)| + 2 TV), where Σ q|log(q/p)| ≤ D + 2 TV,
    # since Σ q log(p/q) over q < p is at most Σ (p − q), and TV ≤ √(D/2).
    gate = 4.0 * sum_units(problem.num_tokens) * UNIT_ROUNDOFF
    # Beyond 1, √D ≤ D.
    few = min(bits, 1.0) if isinstance(bits, float) else namespace(bits).clip(bits, 0.0, 1.0)
    moved = bits * (1.0 + sign * (1e-14 + 4.4 * gate)) + sign * gate * (3.4 * few**0.5 + 6.0 * gate)
    return max(moved, 0.0) if isinstance(moved, float) else namespace(moved).clip(moved, 0.0, None)


def _log2(values: Array) -> Array:
    return math.log2(values) if isinstance(values, float) else namespace(values).log2(values)
