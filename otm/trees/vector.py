"""Acceptance vectors: the probability that the i-th child of a vertex is the accepted one.

A(i) = Pr(the i-th draft is the accepted one), i = 1..k, a sub-distribution over child ranks; what
is missing to 1 is the probability that every draft is rejected. It is all that a drafting tree
needs to know about a verifier when positions are independent (0-th order): a vertex is accepted
with the product of A along its path.

A verifier has an acceptance vector if its accept events are *nested in k*: whether and where it
stops among the first i drafts must not depend on how many more were drafted. Then α_k = A(1) + … +
A(k) for every k, so A(i) = α_i − α_{i−1}. Recursive rejection tries the drafts one after the other,
and stage i knows the earlier drafts only. The race's winner is fixed before anybody asks how many
arrivals were drafted, and so is the naive verifier's output. K-SEQ divides by γ*, which depends on
k: its first draft is accepted with another probability when a second one is there, and differences
of its acceptance curve mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import (
    Array,
    namespace,
    to_numpy,
    total,
    tracks_gradient,
    unit_rows,
    untracked,
)
from otm.drafts import CountedLaw
from otm.errors import InvalidDistribution, InvalidParameter, TooLarge, Unsupported
from otm.pmf import (
    SUM_TOLERANCE_FLOAT32,
    SUM_TOLERANCE_FLOAT64,
    plain_array,
    plain_integers,
    plain_reals,
)
from otm.problem import Problem, check_problem
from otm.verbs import acceptance_curve
from otm.verifiers import VERIFIERS, Verifier
from otm.verifiers.base import require_support

PathAcceptance = Callable[[tuple[int, ...]], float]
"""Acceptance probability of a vertex, given by the rank path, if the parent is accepted; depends on
the last m + 1 ranks if acceptance is Markov of order m.
"""

MAX_RANKS = 10_000_000
"""Largest number of child ranks that are counted."""

_NO_REST = 64 * 2.0**-53  # a sum of masses misses 1 by this much through rounding alone


def check_acceptance(acceptance: ArrayLike) -> NDArray[np.float64]:
    """Return an acceptance vector as float64 `(k,)`, or raise unless this is a sub-distribution.

    Args:
        acceptance: A(1), …, A(k), `(k,)`; what is missing to 1 is the probability that every draft
            is rejected.

    Returns:
        `(k,)` in float64, Σ ≤ 1.

    Raises:
        InvalidDistribution: on anything but one axis of at least one finite, non-negative number,
            or a sum above 1 by more than 1e-9 (3e-5 in float32). A smaller excess is rounding and
            divided out.

    Cost: O(k).

    >>> check_acceptance([0.5, 0.25]).tolist()
    [0.5, 0.25]
    """
    array = plain_reals(acceptance, "acceptance")
    if array.ndim != 1:
        raise _no_vector(array, "(k,)")
    return np.asarray(check_acceptances(array))


def check_acceptances(values: object) -> Array:
    """Check acceptance vectors `(..., k)` of any array kind; gradients are kept."""
    array = plain_array(values, "acceptance", gradients=True)
    if array.ndim == 0 or 0 in tuple(array.shape):
        raise _no_vector(array, "(..., k)")
    xp = namespace(array)
    plain = xp.astype(untracked(array), xp.float64)
    sums = total(plain)
    largest = float(xp.max(sums)) if bool(xp.all(xp.isfinite(plain))) else math.nan
    least = float(xp.min(plain))
    if math.isnan(largest) or least < 0:
        raise InvalidDistribution(
            f"acceptance must hold finite numbers ≥ 0; the least is {least}. Check how it was "
            "measured."
        )
    single = array.dtype == xp.float32
    if largest > 1 + (SUM_TOLERANCE_FLOAT32 if single else SUM_TOLERANCE_FLOAT64):
        raise InvalidDistribution(
            "acceptance must sum to at most 1, one draft being accepted at most; it sums to "
            f"{largest:.9g}. If these are the probabilities of accepting within the first i "
            "drafts, take differences."
        )
    wide = xp.astype(array, xp.float64)
    return wide / xp.maximum(sums, xp.ones_like(sums))[..., None] if largest > 1 else wide


def _no_vector(array: Array, shape: str) -> InvalidDistribution:
    return InvalidDistribution(
        f"acceptance must hold one probability per child rank, {shape} with k ≥ 1; got "
        f"{array.dtype} of shape {tuple(array.shape)}. Pass [A(1), A(2), …]; the rejected mass is "
        "what is missing to 1."
    )


def refuse_order(order: int | None) -> None:
    """Raise `InvalidParameter` if a vector comes with a Markov order, which functions have."""
    if order is not None:
        raise InvalidParameter(
            f"order is that of a function; a vector's is 0, and order={order!r} was given. Leave "
            "it out."
        )


def rejected_mass(acceptance: ArrayLike) -> float:
    """Return the probability that no draft is accepted, 1 − Σ A.

    Args:
        acceptance: A, `(k,)`.

    Returns:
        A probability; exactly 0 where the sum misses 1 by rounding alone.

    Raises:
        InvalidDistribution: if A is no sub-distribution.

    Cost: O(k). Accuracy: 2⁻⁵², absolute; at most 2⁻⁴⁷ is taken for rounding.

    >>> rejected_mass([0.5, 0.25])
    0.25
    """
    rest = 1.0 - math.fsum(check_acceptance(acceptance))
    return rest if rest > _NO_REST else 0.0


def entropy_bits(mass: ArrayLike) -> float:
    """Return the entropy −Σ m log₂ m of masses, in bits.

    Args:
        mass: finite non-negative numbers `(n,)`; not normalised. Zeros count nothing.

    Returns:
        Bits.

    Raises:
        InvalidDistribution: on anything but one axis of finite, non-negative numbers.

    Cost: O(n).

    >>> entropy_bits([0.5, 0.25, 0.25])
    1.5
    """
    raw = plain_reals(mass, "mass")
    if raw.ndim != 1:
        raise InvalidDistribution(
            f"mass must hold one row of numbers, (n,); got {raw.dtype} of shape {raw.shape}. Pass "
            "the rows one by one."
        )
    array = raw.astype(np.float64)
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if wrong.size:
        raise InvalidDistribution(
            f"mass must hold finite numbers ≥ 0; it holds {wrong[0]}. Check how it was measured."
        )
    positive = array[array > 0]
    return math.fsum(-positive * np.log2(positive)) + 0.0


def acceptance_vector(verifier: Verifier, problem: Problem) -> Array:
    """Return the exact acceptance vector of a verifier, from differences of the acceptance in k.

    A(i) = Pr(the i-th draft is the accepted one) = α_i − α_{i−1}, i = 1..k.

    GSD is `RecursiveRejection()` and ERSD is `Race()`, both with `WithoutReplacement(k)`. The
    entries need not decrease: with p = (.9, .1), q = (.1, .9) recursive rejection has A = (.2, .8).
    Averages over the contexts of a text usually do.

    Args:
        verifier: one whose `nested_in_k` is true, or any verifier at k = 1.
        problem: any batch `(..., V)`; its law gives k.

    Returns:
        `(..., k)` in float64, non-negative, Σ = α_k ≤ 1; zeros where the support runs out of tokens
        to draft. A NumPy array; a tensor that passes gradients on where the problem requires them
        (see `otm.acceptance`).

    Raises:
        Unsupported: if the verifier's accept events are not nested in k, or it does not verify this
            law.
        TooLarge: where an exact acceptance is (see the verifier).

    Cost: k exact acceptances per row. Accuracy: that of the acceptances, about 1e-14, absolutely.
    Reference: the acceptance distribution A of ERSD [Kobus & Gündüz 2025], section 4;
        docs/theory.md, "Acceptance vectors".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.9, 0.1], target=[0.1, 0.9], law=otm.WithoutReplacement(2))
    >>> acceptance_vector(otm.RecursiveRejection(), problem).round(12).tolist()
    [0.2, 0.8]
    """
    require_support(verifier, check_problem(problem, gradients=True).law)
    k = problem.num_drafts
    if k > 1 and not (verifier.nested_in_k and isinstance(problem.law, CountedLaw)):
        raise Unsupported(
            f"An acceptance vector needs accept events that are nested in k; those of {verifier!r} "
            "are not: what happens to the "
            "first draft depends on how many follow. Choose "
            f"{', '.join(cls.__name__ for cls in VERIFIERS if cls.nested_in_k)}, or k = 1."
        )
    if tracks_gradient(problem.draft, problem.target):
        curve = acceptance_curve(verifier, problem, k=range(1, k + 1))
        xp = namespace(curve)
        gains = xp.clip(curve[1:, ...] - curve[:-1, ...], 0.0, None)
        return xp.moveaxis(xp.concat([curve[:1, ...], gains], axis=0), 0, -1)
    # In float64 at once: a float32 row that passes the gate twice is divided by its sum, and
    # rounded to float32, twice.
    shape = (*problem.batch_shape, problem.num_tokens)
    draft, target = (
        np.broadcast_to(to_numpy(unit_rows(mass)), shape).reshape(-1, shape[-1])
        for mass in (problem.draft, problem.target)
    )
    rows = [Problem(draft=p, target=q, law=problem.law) for p, q in zip(draft, target, strict=True)]
    curves = [acceptance_curve(verifier, row, k=range(1, k + 1)) for row in rows]
    gains = np.diff(np.asarray(curves), prepend=0.0)
    return np.maximum(gains, 0.0).reshape(*shape[:-1], k)


def rank_counts(
    ranks: Sequence[int], num_children: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count how often each child rank was tried and accepted, from a decoder's visits to vertices.

    A visit that accepts rank r has tried the ranks 0..r; one that accepts none has tried all its
    children.

    Args:
        ranks: `(n,)`, the accepted rank of each visit, −1 for none.
        num_children: `(n,)`, how many children the visited vertex had, ≥ 1.

    Returns:
        (accepted, tried), each `(k,)` with k = max(num_children).

    Raises:
        InvalidParameter: on different lengths, no visit at all, or a rank outside [−1,
            num_children).
        TooLarge: beyond ten million ranks.

    Cost: O(n + k).

    >>> [counts.tolist() for counts in rank_counts([0, 1, -1], [2, 2, 1])]
    [[1, 1], [3, 1]]
    """
    rank, offered = plain_integers(ranks, "ranks"), plain_integers(num_children, "num_children")
    if rank.ndim != 1 or rank.shape != offered.shape or rank.size == 0:
        raise InvalidParameter(
            f"ranks and num_children must be integers of one shape (n,), n ≥ 1; got {rank.dtype} "
            f"{rank.shape} and {offered.dtype} {offered.shape}. Pass one entry of each per visited "
            "vertex."
        )
    if offered.min() < 1 or rank.min() < -1 or (rank >= offered).any():
        raise InvalidParameter(
            "Each rank must lie in [−1, num_children) with num_children ≥ 1; got ranks "
            f"{rank.min()} to {rank.max()} and num_children from {offered.min()}. Leave out visits "
            "to vertices without children."
        )
    k = int(offered.max())
    if k > MAX_RANKS:
        raise TooLarge(
            f"Counts are kept for up to {MAX_RANKS:,} ranks; a vertex has {k:,} children. Check "
            "num_children."
        )
    accepted = np.bincount(rank[rank >= 0], minlength=k)
    last = np.where(rank >= 0, rank, offered - 1)
    tried = np.cumsum(np.bincount(last, minlength=k)[::-1])[::-1]
    return accepted, tried


def empirical_acceptance(accepted: ArrayLike, tried: ArrayLike) -> NDArray[np.float64]:
    """Estimate an acceptance vector from counts by the product-limit estimate.

    A(i) = h_i Π_{j<i} (1 − h_j) with h_i = accepted_i / tried_i. Vertices may have different
    numbers of children: one that ran out of them says nothing about the ranks it did not have. If
    every vertex had k children, A(i) = accepted_i / visits.

    Args:
        accepted: `(k,)`, how often rank i was the accepted one.
        tried: `(k,)`, how often it was tried (see `rank_counts`).

    Returns:
        `(k,)`, Σ ≤ 1.

    Raises:
        InvalidParameter: unless 0 ≤ accepted ≤ tried, with tried ≥ 1, all of one shape.

    Cost: O(k). Reference: Kaplan & Meier 1958, for the ranks in place of times.

    >>> empirical_acceptance([6, 1], [10, 2]).tolist()
    [0.6, 0.2]
    """
    try:
        hits, trials = plain_reals(accepted, "accepted"), plain_reals(tried, "tried")
    except InvalidDistribution as error:
        raise InvalidParameter(f"accepted and tried must be counts: {error}") from error
    if hits.ndim != 1 or hits.shape != trials.shape or hits.size == 0:
        raise InvalidParameter(
            f"accepted and tried must be counts of one shape (k,); got {hits.shape} and "
            f"{trials.shape}."
        )
    if not (
        np.isfinite(hits).all()
        and np.isfinite(trials).all()
        and (trials > 0).all()
        and ((hits >= 0) & (hits <= trials)).all()
    ):
        raise InvalidParameter(
            "Counts must satisfy 0 ≤ accepted ≤ tried and tried > 0 at every rank; got "
            f"{hits.tolist()} of {trials.tolist()}. Leave out ranks that were never tried."
        )
    rate = hits / trials
    return np.asarray(rate * np.cumprod(np.concatenate([[1.0], 1.0 - rate[:-1]])))
