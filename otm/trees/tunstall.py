"""Upper bounds on the expected tokens of a drafting tree from the entropy of acceptance.

Verification of a tree is a variable-to-fixed-length code: it reads one symbol, the rank of the
accepted child or "none", at every vertex that it visits, and ends in a leaf of the completed tree,
one token per symbol read. By the chain rule

    E[tokens] · H(A) = H(leaf law) ≤ log₂(number of leaves),

and a tree with N drafted vertices over M symbols has 1 + (N + 1)(M − 1) leaves. That is Tunstall's
bound for source codes. It holds for every tree and for acceptance by any nested verifier; the
symbols are the child ranks of positive acceptance and "none", if that has positive probability.

Few drafts explore few ranks, and nothing else about A matters: mass on ranks beyond the explored
ones, and "none", may be spread over any number m of symbols, as evenly as possible to make the
entropy large. The bound then decreases in m up to a point and increases beyond (docs/theory.md,
"Bounds"), so its minimum over all m ≥ 1 is found by bisection; if it decreases for ever, the limit
1/rest is itself a bound, the plateau that no tree over the explored ranks passes.

*Markov acceptance.* The identity survives order m with H(A) replaced by the mean entropy of the
symbol given the last m ranks, under the law of visited vertices. What a tree can make of that law
is a linear program over the states (`markov`), whose value grows as log₂ N over the entropy rate.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import UNIT_ROUNDOFF
from otm.errors import InvalidParameter
from otm.pmf import check_count
from otm.trees.markov import MarkovAcceptance
from otm.trees.optimal import tree_acceptance
from otm.trees.shape import TreeShape
from otm.trees.vector import (
    PathAcceptance,
    check_acceptance,
    entropy_bits,
    refuse_order,
    rejected_mass,
)

_LARGEST_EXTRA = 2**53
_ROUNDED_UP = 1.0 + 2.0**-50


@dataclasses.dataclass(frozen=True)
class ExploredBound:
    """A bound and the number of symbols over which the unexplored mass is spread.

    Attributes:
        value: tokens per target call.
        num_extra: m; 0 if no mass is left, ∞ if the value is the limit of ever larger m.
    """

    value: float
    num_extra: float


def tunstall_upper(
    acceptance: ArrayLike | PathAcceptance,
    *,
    num_nodes: int,
    max_width: int | None = None,
    order: int | None = None,
) -> float:
    """Bound the expected tokens of every tree of a budget by the entropy of acceptance (Tunstall).

    E[tokens] ≤ log₂ L/H(A), L = 1 + (N + 1)(M − 1), M the number of symbols: ranks of positive
    acceptance, and "none accepted" if A sums to less than 1. For acceptance A_s that depends on the
    last m ranks s,

        E[tokens] ≤ 1 + y (log₂ L − H(A_∅)) + Σ_i A_∅(i) w_i
        for y, w ≥ 0 with y H(A_s) + w_s ≥ 1 + Σ_i A_s(i) w_{s·i} for every s,

    the least of these, which grows as log₂ N over the entropy rate. It is at most log₂ L over the
    least H(A_s), and at most what the infinite tree yields, which for m = 0 is 1/(1 − Σ A); for a
    vector `tunstall_minimum_upper` knows that limit. The average of the A_s gives less where N is
    large, but no bound.

    Args:
        acceptance: A, probabilities `(k,)` of accepting the child of each rank, in any order; the
            rest to 1 is a symbol. Or a function of a rank path, as for `optimal_tree`.
        num_nodes: N ≥ 0.
        max_width: the largest number of children of a vertex; ranks beyond it then count as none
            accepted. No limit if None.
        order: for a function, the Markov order m of acceptance.

    Returns:
        Tokens per target call; ∞ if A is one symbol of mass 1, or a function is so for ever, as
        entropy then says nothing.

    Raises:
        InvalidDistribution: if A is no sub-distribution; for a function, if its values are no
            probabilities, increase from one sibling to the next, or sum to more than 1.
        InvalidParameter: if N or the order is not an integer ≥ 0, `max_width` is not one ≥ 1, an
            order is given for a vector, or none for a function.
        TooLarge: for a function, beyond 50,000 ranks over all states.

    Cost: O(k); for a function a call for each rank of each state, and a linear program with a
        variable for each state. Accuracy: rounded up, by 8 (1 + H)/H + 8 units of roundoff; for a
        function never below the program's value, and above it by 1e-6 of it where no state's
        entropy is less than 1e-8 bits.
    Reference: ERSD [Kobus & Gündüz 2025], Theorem 4.1; Tunstall 1968; for a function
        docs/theory.md, "Bounds".

    >>> [round(tunstall_upper([0.6, 0.25, 0.1, 0.05], num_nodes=n), 6) for n in (10, 500)]
    [3.413331, 7.08139]

    After rank 0 either of two children is accepted, after rank 1 the first for certain; the entropy
    rate is ⅔ bit.

    >>> def step(path):
    ...     return float(path[-1] == 0) if path[-2:-1] == (1,) else 0.5 * (path[-1] < 2)
    >>> round(tunstall_upper(step, num_nodes=30, order=1), 6)  # log₂(30 + 2)/⅔
    7.5
    """
    nodes = check_count(num_nodes, name="num_nodes", minimum=0)
    width = None if max_width is None else check_count(max_width, name="max_width")
    if callable(acceptance):
        if order is None:
            raise InvalidParameter(
                "A bound for a function needs its order, the number of ranks that acceptance "
                "depends on; none was given. Pass order, or take optimal_tree, which is exact "
                "without one."
            )
        states = MarkovAcceptance.of(acceptance, check_count(order, name="order", minimum=0), width)
        return states.bound(math.log2(1 + (nodes + 1) * (states.num_symbols - 1)) * _ROUNDED_UP)
    refuse_order(order)
    symbols = _symbols(check_acceptance(acceptance)[:width])
    return _bound(nodes, int((symbols > 0).sum()), entropy_bits(symbols))


def tunstall_explored_upper(
    acceptance: ArrayLike, *, num_nodes: int, num_explored: int, num_extra: int
) -> float:
    """Bound the tokens of trees over the first ranks, the rest of the mass spread over m symbols.

    E[tokens] ≤ log₂(1 + (N + 1)(i_max + m − 1))/H(Ã_m), Ã_m = A(1), …, A(i_max), and m times
    rest/m.

    Args:
        acceptance: A, `(k,)`; entries beyond `num_explored` count as rest.
        num_nodes: N ≥ 0.
        num_explored: i_max ≥ 1, at least the width of the tree that is bounded.
        num_extra: m ≥ 1; 0 exactly if nothing is left.

    Returns:
        Tokens per target call; ∞ where the entropy is 0.

    Raises:
        InvalidDistribution: if A is no sub-distribution.
        InvalidParameter: if a number is out of its range, or m is 0 although mass is left.

    Cost: O(i_max). Reference: ERSD [Kobus & Gündüz 2025], Lemma 4.2; docs/theory.md, "Bounds".

    >>> a = [0.6, 0.25, 0.1, 0.05]  # with one symbol more than three ranks Ã is A itself
    >>> round(tunstall_explored_upper(a, num_nodes=10, num_explored=3, num_extra=1), 6)
    3.413331
    """
    parts = _Explored.of(acceptance, num_nodes, num_explored)
    extra = check_count(num_extra, name="num_extra", minimum=0)
    if (extra == 0) != (parts.rest == 0):
        raise InvalidParameter(
            f"num_extra must be 0 if no mass is left and at least 1 otherwise; {parts.rest:.6g} is "
            f"left and {extra} was given. tunstall_minimum_upper finds the best."
        )
    return parts.bound(extra)


def tunstall_minimum_upper(
    acceptance: ArrayLike, *, num_nodes: int, num_explored: int, least_extra: int = 1
) -> ExploredBound:
    """Minimise the bound of `tunstall_explored_upper` over m ≥ `least_extra` and m → ∞.

    Where nothing is left, m = 0 is the only choice. The paper's construction needs no rank beyond
    i_max to be likelier than rank i_max, that is m ≥ `even_spread(acceptance, num_explored)`; the
    bound holds for smaller m as well, and may be lower there.

    Args:
        acceptance, num_nodes, num_explored: as for `tunstall_explored_upper`.
        least_extra: smallest m ≥ 1 allowed.

    Returns:
        ExploredBound(value, num_extra).

    Raises:
        InvalidDistribution: if A is no sub-distribution.
        InvalidParameter: if a number is out of its range.

    Cost: O(i_max + log m).
    Reference: ERSD [Kobus & Gündüz 2025], Lemma 4.2; that the bound is unimodal in m:
        docs/theory.md, "Bounds".

    >>> bound = tunstall_minimum_upper([0.6, 0.25, 0.1, 0.05], num_nodes=10, num_explored=2)
    >>> round(bound.value, 6), bound.num_extra
    (3.344039, 1)
    """
    parts = _Explored.of(acceptance, num_nodes, num_explored)
    least = check_count(least_extra, name="least_extra")
    if parts.rest == 0:
        return ExploredBound(parts.bound(0), 0)
    low, high = least, max(least, _LARGEST_EXTRA)
    # Without ranks nothing is accepted, and the limit is 1.
    if parts.num_ranks == 0 or parts.decreases(high):
        return ExploredBound(_ROUNDED_UP / parts.rest, math.inf)
    # Bisect for the first m at which the bound no longer decreases in real m.
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if parts.decreases(middle) else (low, middle)
    # The minimum over the reals lies in (low − 1, low].
    best = min((m for m in (low - 1, low) if m >= least), key=parts.bound)
    return ExploredBound(parts.bound(best), best)


def even_spread(acceptance: ArrayLike, *, num_explored: int) -> int:
    """Return the paper's smallest m, at which no rank beyond i_max is likelier than i_max.

    m = ⌈rest/A(i_max)⌉, 0 if nothing is left.

    Args:
        acceptance: A, `(k,)`, probabilities of the child ranks.
        num_explored: i_max ≥ 1, the number of ranks that the tree uses.

    Returns:
        m ≥ 0, for `num_extra` of `tunstall_explored_upper`.

    Raises:
        InvalidParameter: if A(i_max) is 0, or m would exceed 2^53, although mass is left.

    Cost: O(k). Reference: ERSD [Kobus & Gündüz 2025], section 4, before Lemma 4.2.

    >>> even_spread([0.5, 0.25], num_explored=1)
    1
    """
    vector = check_acceptance(acceptance)
    explored = vector[: check_count(num_explored, name="num_explored")]
    rest = _Explored.of(vector, 0, len(explored)).rest
    if rest / _LARGEST_EXTRA > explored[-1]:  # more ranks than floats can count
        raise InvalidParameter(
            f"Rank {len(explored)} must have positive acceptance, at least 2^-53 of what is left; "
            f"it has {explored[-1]:.6g} and {rest:.6g} is left. Explore fewer."
        )
    # Forgive the rounding of a quotient that should be whole.
    return math.ceil(rest / explored[-1] * (1 - 1e-12)) if rest else 0


def leaf_entropy(acceptance: ArrayLike, *, shape: TreeShape) -> float:
    """Return the entropy of the leaf that verification ends in, E[tokens] · H(A) bits.

    At a visited vertex with c children the undrafted symbols are the ranks from c on, and "none":
    each is a leaf.

    Args:
        acceptance: A, `(k,)`, in any order.
        shape: any tree.

    Returns:
        Bits. Divided by H(A) it is the expected number of tokens, exactly; log₂ of the number of
        leaves bounds it.

    Raises:
        InvalidDistribution: if A is no sub-distribution.

    Cost: O(n log depth + k). Reference: the proof of ERSD [Kobus & Gündüz 2025], Theorem 4.1;
        docs/theory.md, "Bounds".

    >>> import otm
    >>> shape = otm.trees.TreeShape.chain(1)
    >>> leaf_entropy([0.5, 0.25, 0.25], shape=shape)  # tokens 1 + ½, H(A) = 1.5 bits
    2.25
    """
    symbols, weights = _symbols(acceptance), tree_acceptance(acceptance, shape=shape).acceptance
    logs = np.log2(symbols, out=np.zeros_like(symbols), where=symbols > 0)
    # Ranks are drafted in order; "none" comes last, so the undrafted symbols are a tail. A child
    # beyond A is never visited.
    drafted = np.minimum(shape.num_children, len(symbols) - 1)
    mass, surprise = _tails(symbols)[drafted], _tails(-symbols * logs)[drafted]
    log_weights = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    return math.fsum(weights * (surprise - mass * log_weights)) + 0.0


def _tails(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ of the values from each index on, `(k,)`."""
    return np.cumsum(values[::-1])[::-1]


def _symbols(acceptance: ArrayLike) -> NDArray[np.float64]:
    vector = check_acceptance(acceptance)
    return np.append(vector, rejected_mass(vector))


def _bound(num_nodes: int, num_symbols: int, entropy: float) -> float:
    # Rounded up: terms −A log₂ A err by a few units of A (1 + |log₂ A|), their sum by one.
    least = entropy - 8.0 * UNIT_ROUNDOFF * (1.0 + entropy)
    if num_symbols < 2 or least <= 0:
        return math.inf
    return _ROUNDED_UP * math.log2(1 + (num_nodes + 1) * (num_symbols - 1)) / least


@dataclasses.dataclass(frozen=True)
class _Explored:
    """Lemma 4.2 as a function of m.

    Attributes:
        num_nodes: N.
        num_ranks: explored ranks that can be accepted.
        entropy: −Σ A log₂ A over the explored ranks.
        rest: the mass that is left.
    """

    num_nodes: int
    num_ranks: int
    entropy: float
    rest: float

    @classmethod
    def of(cls, acceptance: ArrayLike, num_nodes: int, num_explored: int) -> _Explored:
        """Validate, and split A into the explored ranks and the rest."""
        vector = check_acceptance(acceptance)
        explored = vector[: check_count(num_explored, name="num_explored")]
        nodes = check_count(num_nodes, name="num_nodes", minimum=0)
        # Summed from what is left where that is known, not as 1 − explored: small rests keep their
        # digits.
        rest = math.fsum([*vector[len(explored) :], rejected_mass(vector)])
        return cls(nodes, int((explored > 0).sum()), entropy_bits(explored), rest)

    def bound(self, extra: int) -> float:
        """Return the bound at m = `extra`."""
        entropy = self.entropy + (self.rest * math.log2(extra / self.rest) if extra else 0.0)
        return _bound(self.num_nodes, self.num_ranks + extra, entropy)

    def decreases(self, extra: int) -> bool:
        """True if the bound decreases at real m = `extra`; the derivative changes sign once."""
        leaves = 1.0 + (self.num_nodes + 1.0) * (self.num_ranks + extra - 1.0)
        entropy = self.entropy * math.log(2) + self.rest * math.log(extra / self.rest)
        return (self.num_nodes + 1.0) * extra * entropy < self.rest * leaves * math.log(leaves)
