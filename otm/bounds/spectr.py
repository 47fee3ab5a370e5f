"""SpecTr's Theorem 1: an upper bound on the optimum for every token set Ω₀."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from otm.bounds.rounding import round_up, sum_units
from otm.drafts.base import collapse, enumerate_drafts
from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.pmf import any_array
from otm.problem import Problem, require_law


def spectr_upper(problem: Problem, *, subset: object) -> float:
    """Evaluate Theorem 1's upper bound for one set Ω₀.

    α*_k ≤ Σ_{y∈Ω₀} min(q(y), 1 − (1 − p(y))^k) + Σ_{x∈Ω^k} min(Π p(x_i), Q(S(x) ∩ Ω₀ᶜ)).

    Args:
        problem: one pair of distributions `(V,)` with an `IID` law.
        subset: Ω₀ as a Boolean mask `(V,)` or a sequence of tokens.

    Returns:
        The bound; it can exceed 1.

    Raises:
        Unsupported: for a law other than IID.
        TooLarge: beyond four million sequences.
        InvalidParameter: if `subset` is neither a mask `(V,)` nor tokens of the vocabulary.

    Cost: O(V^k). Accuracy: rounded up, by k (ν + 1) + 3ν + V + 16 units of roundoff.
    Reference: SpecTr, Theorem 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(spectr_upper(problem, subset=[0, 1]), 12)  # the paper's choice for Bernoullis
    0.9375
    """
    single = _iid(problem)
    members = as_mask(subset, single.num_tokens)
    p, q, k = single.draft, single.target, single.num_drafts
    first = math.fsum(np.minimum(q, single.law.inclusion(p))[members])
    # Sequences are not merged here: the theorem takes the minimum sequence by sequence.
    table = enumerate_drafts(single.law, p)
    sets = collapse(table)
    outside = sets.look_up(np.where(members, 0.0, q), absent=0.0).sum(axis=1)
    bound = first + math.fsum(np.minimum(table.mass, outside[sets.of_sequence]))
    # A sequence's mass has k factors, the mass outside Ω₀ up to V terms.
    width = single.num_tokens
    units = k * (sum_units(width) + 1.0) + width + 16.0
    return float(round_up(np.asarray(bound), width, units=units, weight=len(table.mass)))


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
        TooLarge: beyond four million sequences, where `otm.optimal_acceptance` gives the same
            number.

    Cost: O(V^k). Accuracy: rounded up, as `spectr_upper`.
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
