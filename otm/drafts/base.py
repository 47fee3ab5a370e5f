"""What a draft law is: how k drafts are drawn from the draft distribution, seen as a law on sets of
tokens.

Verification sees the drafts x = (x₁..x_k); the best possible acceptance sees only the *containment
function* b(T) = Pr(every draft lies in T). A law that can say b(T), enumerate its sequences, draw
them from uniforms and find its worst set T gets every oracle, bound, certificate and figure of the
library.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array
from otm.errors import TooLarge
from otm.pmf import check_count
from otm.scheme import Scheme

PAD = -1
"""Marks "no draft" in a row of drafts, when fewer than k tokens can be drafted."""

MAX_SEQUENCES = 4_000_000
"""Largest number of draft sequences that is enumerated; beyond, `TooLarge` says what to call
instead.
"""


@dataclasses.dataclass(frozen=True)
class Law(Scheme):
    """How k drafts are drawn; hashable and free of arrays, which stay in `Problem.draft`.

    Attributes:
        one_drafter: whether all drafts come from one distribution `(V,)`, not each from a
            distribution of its own.
        distinct: whether no token is drafted twice, so that there may be fewer than k tokens to
            draft.
        differentiable: whether `optimal_values` passes gradients on to tensors that require them.

    Raises:
        InvalidParameter: unless k is an integer ≥ 1.
    """

    one_drafter: ClassVar[bool]
    distinct: ClassVar[bool]
    differentiable: ClassVar[bool] = False

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "k", check_count(self.k, name="k")
        )  # a plain int: NumPy's would print as np.int64(3)

    def with_k(self, k: int) -> Self:
        """Return the same law with another number of drafts."""
        return dataclasses.replace(self, k=check_count(k, name="k"))

    def draft_shape(self, num_tokens: int) -> tuple[int, ...]:
        """Return the shape of `Problem.draft` without leading axes: `(V,)`, or `(k, V)` where every
        draft has its own drafter.
        """
        return (num_tokens,) if self.one_drafter else (self.k, num_tokens)

    @property
    def least_token(self) -> int:
        """The smallest entry of a row of drafts: 0, or −1 (`PAD`) where tokens may run out; the
        first draft is always there.
        """
        return PAD if self.distinct and self.k > 1 else 0

    @abc.abstractmethod
    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Check that the shapes fit each other and this law; return both broadcast to common
        leading axes.
        """

    @abc.abstractmethod
    def optimal_values(self, draft: Array, target: Array, ks: Sequence[int]) -> Array:
        """Return α*_k = 1 + min_T [Q(T) − b_k(T)] for each k of `ks`, shape `(len(ks), ...)`, on
        any array kind.
        """

    @abc.abstractmethod
    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a set T that attains the minimum of Q(T) − b(T), as a mask `(V,)`; one row."""

    @abc.abstractmethod
    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return b(T) = Pr(all drafts lie in T) for the mask `members` `(V,)`; one row, computed
        without enumeration.
        """

    @abc.abstractmethod
    def inclusion(self, draft: Array) -> Array:
        """Return Pr(x is among the drafts) for each token, `(..., V)` in float64: 1 − b(Ω ∖ {x})
        without enumeration.
        """

    @abc.abstractmethod
    def num_sequences(self, num_tokens: int) -> int:
        """Return how many draft sequences `enumerate` would list."""

    @abc.abstractmethod
    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List every draft sequence with its mass; works on float64 and on `fractions.Fraction`
        objects alike.
        """

    @abc.abstractmethod
    def num_uniforms(self, num_tokens: int) -> int:
        """Return how many uniforms one draw consumes."""

    @abc.abstractmethod
    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Draw drafts `(n, k)` from uniforms `(n, num_uniforms)`; it sees the draft distribution
        only, as a drafter does.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class DraftTable:
    """Every draft sequence of a law: tokens `(n, k)` (−1 where there is no draft) and masses
    `(n,)`.
    """

    tokens: NDArray[np.int64]
    mass: NDArray[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class SetTable:
    """Every set of drafted tokens: ascending tokens `(m, k)` padded with −1, in the order of their
    keys; masses `(m,)`; and each sequence's set `(n,)`.
    """

    tokens: NDArray[np.int64]
    mass: NDArray[Any]
    of_sequence: NDArray[np.int64]

    def look_up(self, values: NDArray[Any], *, absent: Any) -> NDArray[Any]:
        """Return each set's values of `(V,)`, `(m, k)`; `absent` where there is no token, as −1
        reads the entry beyond the last.
        """
        return np.append(values, absent)[self.tokens]

    def find(self, drafts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the set of each row of drafts `(n, k)`, −1 where it is none of these."""
        base = int(max(self.tokens.max(), drafts.max(initial=0))) + 2
        known, asked = _row_keys(self.tokens, base), _row_keys(_distinct(drafts), base)
        place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        return np.where(known[place] == asked, place, -1)


def all_sequences(num_tokens: int, k: int) -> NDArray[np.int64]:
    """Return Ω^k in lexicographic order, `(V^k, k)`."""
    tokens = np.empty((num_tokens**k, k), dtype=np.int64)
    index = np.arange(num_tokens**k)
    for column in reversed(range(k)):
        index, tokens[:, column] = np.divmod(index, num_tokens)
    return tokens


def readable(size: int) -> str:
    """Return a size for a message: digits with separators, or a power of ten where nobody would
    read them all.
    """
    return f"{size:,}" if size < 10**18 else f"about 10^{int(size.bit_length() * 0.30103)}"


def enumerate_drafts(law: Law, draft: NDArray[Any]) -> DraftTable:
    """List the draft sequences of a law, or raise before taking memory for too many.

    Raises:
        TooLarge: beyond four million sequences.
    """
    num_tokens = draft.shape[-1]
    size = law.num_sequences(num_tokens)
    if size > MAX_SEQUENCES:
        raise TooLarge(
            f"Enumeration of the drafts is limited to {MAX_SEQUENCES:,} sequences; {law!r} over V "
            f"= {num_tokens} tokens has "
            f"{readable(size)}. Call otm.optimal_acceptance for the value alone, or otm.estimate "
            "for a Monte Carlo interval."
        )
    return law.enumerate(draft)


def collapse(table: DraftTable) -> SetTable:
    """Merge the sequences that draft the same set of tokens.

    The membership cost sees a sequence only through its set, so a coupling of (sets, output) has
    the same value and at most Σ_{j≤k} C(V, j) rows (docs/theory.md, "Collapse").
    """
    tokens = _distinct(table.tokens)
    keys = _row_keys(tokens, int(tokens.max()) + 2)
    _, first, of_sequence = np.unique(keys, return_index=True, return_inverse=True)
    if table.mass.dtype == object:
        mass = np.full(len(first), 0, dtype=object)
        np.add.at(mass, of_sequence, table.mass)
    else:
        mass = np.bincount(of_sequence, weights=table.mass, minlength=len(first))
    return SetTable(tokens=tokens[first], mass=mass, of_sequence=of_sequence)


def _distinct(drafts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each row's distinct tokens in ascending order, −1 in front for every repetition."""
    tokens = np.sort(drafts, axis=1)
    repeated = np.zeros_like(tokens, dtype=bool)
    repeated[:, 1:] = tokens[:, 1:] == tokens[:, :-1]
    tokens[repeated] = PAD
    tokens.sort(axis=1)
    return tokens


def _row_keys(tokens: NDArray[np.int64], base: int) -> NDArray[Any]:
    """Encode rows of tokens below base − 1 as single integers, in an order that does not depend on
    the base.

    Machine integers where they fit: sorting those is far cheaper than sorting rows.
    """
    width = tokens.shape[1]
    dtype = np.int64 if base**width < 2**63 else object
    return np.asarray(
        (tokens + 1).astype(dtype) @ np.asarray([base**j for j in range(width)], dtype=dtype)
    )
