"""Draft laws: drawing of drafts, and the law of the set of drafted tokens.

Verification sees the drafts x = (x₁, x₂, …); the best possible acceptance sees only the
*containment function* b(T) = Pr(every draft lies in T). A law that can say b(T), enumerate its
rows, draw them from uniforms and find its worst set T gets every oracle, bound, certificate and
figure of the library. How many drafts there are is a number k (`CountedLaw`) or a matter of chance
(`otm.ThresholdRace`): rows have `row_length` places, those behind the last draft being −1.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, brief_repr, total
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import align_pair, check_count, check_sequence
from otm.scheme import Scheme

PAD = -1
"""Marks "no draft" in a row of drafts, when fewer than k tokens can be drafted."""

MAX_SEQUENCES = 4_000_000
"""Largest number of draft sequences that is enumerated."""


@dataclasses.dataclass(frozen=True)
class Law(Scheme):
    """A law of drafts; hashable and free of arrays, which stay in `Problem.draft`.

    The one field of a law is its *size*, the number of drafts: k, or the mean number where the
    number is random.

    Attributes:
        one_drafter: whether all drafts come from one distribution `(V,)`, not each from a
            distribution of its own.
        distinct: whether no token is drafted twice, so that rows may hold fewer drafts than places.
        differentiable: whether `optimal_values` passes gradients on to tensors that require them.
    """

    one_drafter: ClassVar[bool]
    distinct: ClassVar[bool]
    differentiable: ClassVar[bool] = False

    @property
    def size(self) -> Any:
        """The value of the law's one field."""
        return getattr(self, dataclasses.fields(self)[0].name)

    @classmethod
    def of_size(cls, size: float) -> Self:
        """Return the law of this kind with a number of drafts, or raise `InvalidParameter`."""
        return cls(size)  # type: ignore[call-arg]  # every law has the one field

    def family(self, sizes: float | Iterable[float]) -> list[Self]:
        """Return the laws of this kind with these numbers of drafts, at least one."""
        return [self.of_size(size) for size in check_sequence(sizes, name="k")]

    def optimal_value(self, draft: Array, target: Array) -> Array:
        """Return α* of this law, `(...)`."""
        return self.optimal_values(draft, target, [self.size])[0]

    def mean_drafts(self, draft: Array) -> Array:
        """Return the mean number of different drafted tokens, Σ inclusion, `(...)`."""
        return total(self.inclusion(draft))

    @abc.abstractmethod
    def draft_shape(self, num_tokens: int) -> tuple[int, ...]:
        """Return the shape of `Problem.draft` without leading axes, `(V,)` or `(k, V)`."""

    @abc.abstractmethod
    def row_length(self, num_tokens: int) -> int:
        """Return the number of places in a row of drafts, k unless drafts are random in number."""

    @property
    @abc.abstractmethod
    def least_token(self) -> int:
        """The smallest entry of a row of drafts: 0, or −1 (`PAD`) where tokens may run out."""

    @abc.abstractmethod
    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast draft and target to common leading axes, or raise if unfit for this law."""

    @abc.abstractmethod
    def optimal_values(self, draft: Array, target: Array, sizes: Sequence[Any]) -> Array:
        """Return α* = 1 + min_T [Q(T) − b(T)] for each size, `(len(sizes), ...)`."""

    @abc.abstractmethod
    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a set T that attains the minimum of Q(T) − b(T), as a mask `(V,)`; one row."""

    @abc.abstractmethod
    def containment(self, draft: NDArray[Any], members: NDArray[np.bool_]) -> float:
        """Return b(T) = Pr(all drafts lie in T) for the mask `members` `(V,)`; one row."""

    @abc.abstractmethod
    def inclusion(self, draft: Array) -> Array:
        """Return Pr(x is drafted) = 1 − b(Ω ∖ {x}) for each token, `(..., V)` in float64."""

    @abc.abstractmethod
    def num_sequences(self, num_tokens: int) -> int:
        """Return the number of draft sequences in `enumerate`."""

    @abc.abstractmethod
    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List every draft sequence with mass, for floats or `fractions.Fraction`s."""

    @abc.abstractmethod
    def num_uniforms(self, num_tokens: int) -> int:
        """Return the number of uniforms of one draw."""

    @abc.abstractmethod
    def draw(self, draft: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
        """Draw drafts `(n, row_length)` from uniforms `(n, num_uniforms)`, as a drafter does."""


@dataclasses.dataclass(frozen=True)
class CountedLaw(Law, abc.ABC):
    """A law of a fixed number of drafts.

    Raises:
        InvalidParameter: unless k is an integer ≥ 1.
    """

    k: int

    def __post_init__(self) -> None:
        # A plain int: NumPy's would print as np.int64(3).
        object.__setattr__(self, "k", check_count(self.k, name="k"))

    def draft_shape(self, num_tokens: int) -> tuple[int, ...]:
        """Return `(V,)`, or `(k, V)` where each draft has a separate distribution."""
        return (num_tokens,) if self.one_drafter else (self.k, num_tokens)

    def row_length(self, num_tokens: int) -> int:
        """Return k."""
        return self.k

    @property
    def least_token(self) -> int:
        """0, or −1 where fewer than k different tokens may have mass."""
        return PAD if self.distinct and self.k > 1 else 0


@dataclasses.dataclass(frozen=True)
class IndependentDrafts(CountedLaw, abc.ABC):
    """A law of drafts that are drawn without regard to each other."""

    distinct = False
    differentiable = True

    def num_sequences(self, num_tokens: int) -> int:
        """Return V^k."""
        return int(num_tokens**self.k)

    def enumerate(self, draft: NDArray[Any]) -> DraftTable:
        """List Ω^k in lexicographic order; `draft` is `(V,)` or `(k, V)`."""
        tokens = all_sequences(draft.shape[-1], self.k)
        drafters = np.broadcast_to(draft, (self.k, draft.shape[-1]))
        mass = drafters[0, tokens[:, 0]]
        for d in range(1, self.k):
            mass = mass * drafters[d, tokens[:, d]]
        return DraftTable(tokens=tokens, mass=mass)

    def num_uniforms(self, num_tokens: int) -> int:
        """Return k: one uniform per draft."""
        return self.k


@dataclasses.dataclass(frozen=True)
class DistinctDrafts(CountedLaw, abc.ABC):
    """A law of one drafter that drafts no token twice and none without mass.

    With fewer than k tokens of mass all of them are drafted, and rows are padded.
    """

    one_drafter = True
    distinct = True

    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast the leading axes of draft and target `(..., V)`; k ≤ V."""
        check_enough_tokens(self.k, int(draft.shape[-1]))
        return align_pair(draft, target)


def check_enough_tokens(k: int, num_tokens: int) -> None:
    """Raise `InvalidParameter` if k distinct tokens cannot be drafted from the vocabulary."""
    if k > num_tokens:
        raise InvalidParameter(
            f"Distinct drafts need k ≤ V; got k = {k} with V = {num_tokens} tokens. Pass k = "
            f"{num_tokens} or less, or otm.IID({k})."
        )


def padded(tokens: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Extend rows of drafts `(n, j)` to `(n, k)` with −1."""
    rows = np.full((len(tokens), k), PAD, dtype=np.int64)
    rows[:, : tokens.shape[1]] = tokens
    return rows


def all_subsets(size: int) -> NDArray[np.bool_]:
    """Return the subsets of `size` elements in the order of codes, `(2^size, size)`."""
    codes = np.arange(1 << size)
    return np.stack([(codes >> place & 1).astype(bool) for place in range(size)], axis=1)


def rows_of_members(drafted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the tokens of each set `(n, V)` in ascending order, padded with −1, `(n, V)`."""
    beyond = drafted.shape[1]
    rows = np.sort(np.where(drafted, np.arange(beyond), beyond), axis=1)
    return np.where(rows < beyond, rows, PAD)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DraftTable:
    """Every draft sequence of a law.

    Attributes:
        tokens: `(n, k)`, −1 where there is no draft.
        mass: `(n,)`.
    """

    tokens: NDArray[np.int64]
    mass: NDArray[Any]

    __repr__ = brief_repr


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SetTable:
    """Every set of drafted tokens.

    Attributes:
        tokens: `(m, k)`, ascending in each row and padded with −1, rows in the order of their keys.
        mass: `(m,)`.
        of_sequence: each draft sequence's set `(n,)`.
    """

    tokens: NDArray[np.int64]
    mass: NDArray[Any]
    of_sequence: NDArray[np.int64]

    __repr__ = brief_repr

    def look_up(self, values: NDArray[Any], *, absent: Any) -> NDArray[Any]:
        """Return each set's values of `(V,)`, `(m, k)`; `absent` where there is no token."""
        # −1 reads the entry beyond the last.
        return np.append(values, absent)[self.tokens]

    def find(self, drafts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the set of each row of drafts `(n, k)`, −1 for an unknown set."""
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
    """Format a size for a message: the digits, or a power of ten for a long number."""
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
            f"= {num_tokens} tokens has {readable(size)}. Call otm.optimal_acceptance for the "
            "value alone, or otm.estimate for a Monte Carlo interval."
        )
    return law.enumerate(draft)


def live_drafts(law: Law, draft: NDArray[Any]) -> DraftTable:
    """List the draft sequences that can be drawn, as `enumerate_drafts` lists all."""
    table = enumerate_drafts(law, draft)
    live = table.mass > 0
    return DraftTable(tokens=table.tokens[live], mass=table.mass[live])


def members(drafts: NDArray[np.int64], num_tokens: int) -> NDArray[np.bool_]:
    """Return a table `(n, V)` that is True where a token is among the drafts."""
    table = np.zeros((len(drafts), num_tokens + 1), dtype=bool)
    np.put_along_axis(table, drafts, True, axis=1)  # −1 writes into the extra last column
    return table[:, :num_tokens]


def collapse(table: DraftTable) -> SetTable:
    """Merge the sequences that draft the same set of tokens.

    The membership cost sees a sequence only through its set, so a coupling of (sets, output) has
    the same value and at most Σ_{j≤k} C(V, j) rows (docs/theory.md, "Collapse").
    """
    tokens = _distinct(table.tokens)
    keys = _row_keys(tokens, int(tokens.max()) + 2)
    _, first, of_sequence = np.unique(keys, return_index=True, return_inverse=True)
    mass = np.zeros(len(first), dtype=table.mass.dtype)
    np.add.at(mass, of_sequence, table.mass)
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
    """Encode rows of tokens below base − 1 as integers, in an order independent of the base."""
    width = tokens.shape[1]
    # Machine integers where they fit: sorting those is far cheaper than sorting rows.
    dtype = np.int64 if base**width < 2**63 else object
    return np.asarray(
        (tokens + 1).astype(dtype) @ np.asarray([base**j for j in range(width)], dtype=dtype)
    )
