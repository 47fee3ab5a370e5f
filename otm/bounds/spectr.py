"""SpecTr's Theorem 1: an upper bound on the optimum for every token set Ω₀."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import UNIT_ROUNDOFF, Floats
from otm.bounds.rounding import round_up, sum_units
from otm.drafts.iid import IID
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import any_array
from otm.problem import Problem, require_law

_MOST_MULTISETS = 1_000_000


def spectr_upper(problem: Problem, *, subset: object) -> float:
    """Evaluate Theorem 1's upper bound for one set Ω₀.

    α*_k ≤ Σ_{y∈Ω₀} min(q(y), 1 − (1 − p(y))^k) + Σ_{x∈Ω^k} min(Π p(x_i), Q(S(x) ∩ Ω₀ᶜ)).

    A sequence within Ω₀ and tokens without target mass adds nothing, and of nearly all others the
    product is the smaller, so that the second sum is 1 − P(Ω₀ ∪ {q = 0})^k, less Π p(x_i) −
    Q(S(x) ∩ Ω₀ᶜ) where that is positive. Every token outside Ω₀ of such a sequence has q(y) <
    p(y)·(max p)^(k−1), which few have: these sequences are gone through.

    Args:
        problem: one pair of distributions `(V,)` with an `IID` law.
        subset: Ω₀ as a Boolean mask `(V,)` or a sequence of tokens.

    Returns:
        The bound; it can exceed 1.

    Raises:
        Unsupported: for a law other than IID.
        TooLarge: if more than a million multisets have a product above the target's mass.
        InvalidParameter: if `subset` is neither a mask `(V,)` nor tokens of the vocabulary.

    Cost: O(V log V), and O(1) for each of these multisets. Accuracy: rounded up, by 3k (ν + 1) +
        3ν + V + 16 units of roundoff.
    Reference: SpecTr, Theorem 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(spectr_upper(problem, subset=[0, 1]), 12)  # the paper's choice for Bernoullis
    0.9375
    """
    single = _iid(problem)
    return _bound(single, as_mask(subset, single.num_tokens))


def _bound(single: Problem, members: NDArray[np.bool_]) -> float:
    """Return the bound for the set of a mask, rounded up."""
    p, q, k = single.draft, single.target, single.num_drafts
    first = math.fsum(np.minimum(q, single.law.inclusion(p))[members])
    rest = min(1.0, math.fsum(p[~members & (q > 0)]))
    second = 1.0 if rest == 1.0 else -math.expm1(k * math.log1p(-rest))
    # A product has k factors, the mass outside Ω₀ up to V terms.
    width = single.num_tokens
    units = 3.0 * k * (sum_units(width) + 1.0) + width + 16.0
    above, weight = _above_target(p, q, k, members)
    slack = (3.0 * sum_units(width) + units) * UNIT_ROUNDOFF * weight
    upper = round_up(np.asarray(first + second), width, units=units, weight=2.0)
    return float(upper - max(0.0, above - slack))


def _above_target(p: Floats, q: Floats, k: int, members: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the sum over sequences of what Π p(x_i) exceeds Q(S(x) ∩ Ω₀ᶜ) > 0 by, and their mass.

    Multisets stand for their orders. First come the tokens outside Ω₀ that have target mass, of
    which there is at least one, then all others, each by falling p: a product that falls to the
    target's mass with the most probable tokens left is not followed.
    """
    small = np.flatnonzero(~members & (q > 0) & (q < p * p.max() ** (k - 1)))
    free = np.flatnonzero((members | (q == 0)) & (p > 0))
    order = [one[np.argsort(-p[one], kind="stable")] for one in (small, free)]
    tokens = np.concatenate(order)
    masses, charges = p[tokens].tolist(), np.where(members, 0.0, q)[tokens].tolist()
    largest, steps = float(p.max()), 0
    found: list[float] = []
    weights: list[float] = []
    # (next token, draws left, orders, product, target mass)
    open_ = [(0, k, float(math.factorial(k)), 1.0, 0.0)]
    while open_:
        first, left, orders, product, charge = open_.pop()
        sections = [range(first, small.size), range(max(first, small.size), len(masses))]
        for section in sections if charge else sections[:1]:
            for i in section:
                most = largest if i < small.size else masses[i]
                steps += 1
                if product * masses[i] * most ** (left - 1) <= charge:
                    break
                owed = charge + charges[i]
                for times in range(1, left + 1):
                    reached = product * masses[i] ** times
                    here = orders / math.factorial(times)
                    if times < left:
                        open_.append((i + 1, left - times, here, reached, owed))
                    elif reached > owed:
                        found.append(here * (reached - owed))
                        weights.append(here * reached)
        if steps > _MOST_MULTISETS:
            raise TooLarge(
                f"Theorem 1's sum goes through up to {_MOST_MULTISETS:,} multisets of drafts that "
                "are likelier than the target's mass outside the set; here are more. Put tokens of "
                "little target mass into the set, or call otm.optimal_acceptance."
            )
    return math.fsum(found), math.fsum(weights)


def spectr_minimum_upper(problem: Problem) -> float:
    """Evaluate Theorem 1's bound for the best Ω₀, which is the optimal acceptance.

    At Ω₀ = T, the minimising set of the cut formula, the first sum is at most Q(T) and the second
    at most 1 − P(T)^k, so α* ≤ bound ≤ 1 + Q(T) − P(T)^k = α* (docs/theory.md, "Theorem 1 is
    tight").

    Args:
        problem: one pair of distributions `(V,)` with an `IID` law.

    Returns:
        min over Ω₀ of the bound, attained at `optimal_cut(problem)`.

    Raises:
        Unsupported: for a law other than IID.

    Cost: O(V log V). Accuracy: rounded up, as `spectr_upper`.
    Reference: SpecTr, Theorem 1; tightness: docs/theory.md, "Theorem 1 is tight".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(spectr_minimum_upper(problem), 12)
    0.9375
    """
    single = _iid(problem)
    return spectr_upper(single, subset=single.law.worst_set(single.draft, single.target))


def as_mask(subset: object, num_tokens: int) -> NDArray[np.bool_]:
    """Return a token set, given as a mask `(V,)` or as a list of tokens, as a mask."""
    array = any_array(subset)
    if array.dtype == bool and array.shape == (num_tokens,):
        return array
    tokens = (
        array.reshape(-1).astype(np.int64) if array.size == 0 or array.dtype.kind in "iu" else None
    )
    if tokens is None or (tokens.size and (tokens.min() < 0 or tokens.max() >= num_tokens)):
        raise InvalidParameter(
            f"subset must be a Boolean mask ({num_tokens},) or tokens in [0, {num_tokens}); got "
            f"{subset!r}. Pass one of these."
        )
    mask = np.zeros(num_tokens, dtype=bool)
    mask[tokens] = True
    return mask


def _iid(problem: Problem) -> Problem:
    require_law(
        problem,
        IID,
        message="Theorem 1 of SpecTr is stated for i.i.d. drafts; the problem has {law!r}. Use "
        "otm.optimal_acceptance, which is exact for every law.",
    )
    return problem.single(purpose="Theorem 1's bound")
