"""Lists of the most likely tokens, in the form of engines' responses, and unions of two lists."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch
from otm.pmf import (
    SUM_TOLERANCE_FLOAT32,
    SUM_TOLERANCE_FLOAT64,
    check_count,
    check_real,
    host_pmf,
    plain_reals,
)

Mask = NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)

_LARGEST_ROUNDING = 0.1


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class TopTokens:
    """Probabilities of some tokens, the mass of all others, and a cap on each of the others.

    Batched over leading axes.

    Which distributions it admits, its *completions*: the listed tokens have the listed
    probabilities, every other token has one in [0, cap], and the others sum to `tail`.

    Args:
        tokens: distinct token numbers `(..., m)`, integers; −1 marks padding in rows that list
            fewer than m.
        probabilities: `(..., m)`, float; 0 at padding.
        tail: mass of the tokens not listed `(...)`; None takes 1 − Σ probabilities, known to
            rounding only: where that is all there is of it, `tail_unknown` says so.
        cap: upper bound on the probability of any token not listed `(...)`; None takes the smallest
            probability of the row, which is right for a list of the m most likely tokens. Give it
            where the list holds others too, as engines do that add the sampled token.
        rounding: bound δ ≥ 0 on |log p̂ − log p|, in nats, of every listed value. With δ > 0 listed
            + tail may miss 1 by as much.

    Attributes:
        tokens, probabilities, tail, cap: as given, int64 and float64, rescaled so that listed +
            tail is 1.
        shift: `(...)`, how far in total variation the true distribution may be from the nearest
            completion: e^δ(e^δ − 1) + 2|s − 1|, s being the sum before rescaling (docs/theory.md,
            "Partial knowledge").
        tail_error: `(...)`, how far the tail may be from the sum of what is not listed: the
            rounding of 1 − Σ if derived, else 0.
        tail_unknown: `(...)`, whether the tail was derived and is no more than twice that error: it
            may be 0 or 1e-17.

    Raises:
        InvalidDistribution: on a wrong dtype, NaN, negative mass, a token listed twice, mass at
            padding, tokens below −1, a sum that misses 1 by more than 1e-9 (float64) or 3e-5
            (float32) plus e^δ − 1, or tail mass without room for it (cap 0).
        ShapeMismatch: if the shapes do not belong together.
        InvalidParameter: if `rounding` is not in [0, 0.1].

    Cost: O(m log m) per row.

    >>> top = TopTokens(tokens=[7, 2], probabilities=[0.5, 0.25])
    >>> float(top.tail), float(top.cap)
    (0.25, 0.25)
    """

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    tail: NDArray[np.float64]
    cap: NDArray[np.float64]
    rounding: float
    shift: NDArray[np.float64]
    tail_error: NDArray[np.float64]
    tail_unknown: NDArray[np.bool_]

    def __init__(
        self,
        *,
        tokens: object,
        probabilities: object,
        tail: object = None,
        cap: object = None,
        rounding: float = 0.0,
    ) -> None:
        delta = check_real(rounding, name="rounding", low=0.0, high=_LARGEST_ROUNDING)
        mass, tolerance = _read_mass(probabilities, "probabilities")
        numbers = _read_tokens(tokens, mass)
        rest = (
            np.maximum(1.0 - mass.sum(axis=-1), 0.0)
            if tail is None
            else _read_per_row(tail, mass, "tail")
        )
        smallest = np.where(numbers >= 0, mass, 1.0).min(axis=-1)  # 1 where nothing is listed
        most = smallest if cap is None else _read_per_row(cap, mass, "cap")
        tolerance += float(np.expm1(delta))
        total = mass.sum(axis=-1) + rest
        worst = float(np.max(np.abs(total - 1.0)))
        if worst > tolerance:
            raise InvalidDistribution(
                f"The listed probabilities and the tail must sum to 1 within {tolerance:g}; they "
                f"miss it by {worst:.6g}. "
                "State how far the values are rounded with rounding=, or check that they are of "
                "one distribution."
            )
        # Mass that has nowhere to go is rounding of the list if it is small, a contradiction if
        # not.
        stuck = np.where(most == 0.0, rest, 0.0)
        if float(stuck.max()) > tolerance:
            raise InvalidDistribution(
                f"A row leaves {float(stuck.max()):.6g} to tokens not listed, but caps each of "
                "them at 0. Drop listed tokens of "
                "probability 0, or pass cap=."
            )
        rest = rest - stuck
        total = total - stuck
        if float(total.min()) <= 0.0:
            raise InvalidDistribution(
                "A row has no mass: nothing is listed and no token may hold the tail. Drop that "
                "row."
            )
        # m additions, one subtraction and the listed values' own roundings.
        dust = (mass.shape[-1] + 2) * 2.0**-53
        tail_error = np.full(rest.shape, dust if tail is None else 0.0)
        missed = np.exp(delta) * np.expm1(delta) + 2.0 * np.abs(total - 1.0)
        vars(self).update(
            tokens=numbers,
            probabilities=mass / total[..., None],
            tail=rest / total,
            cap=np.minimum(most / total, 1.0),
            rounding=delta,
            shift=missed + stuck + tail_error,
            tail_error=tail_error,
            tail_unknown=(rest <= 2.0 * dust) & (tail is None),
        )

    def __repr__(self) -> str:
        return (
            f"TopTokens(shape={self.tokens.shape}, tail≤{float(self.tail.max()):.4g}, "
            f"rounding={self.rounding:g})"
        )

    @classmethod
    def of(cls, pmf: object, *, m: int = 20) -> TopTokens:
        """Keep only the m most likely tokens of a known distribution.

        Args:
            pmf: probabilities `(..., V)`.
            m: how many to keep; m ≥ V keeps all.

        Returns:
            The list, most likely first (ties: lowest token first), with the exact tail mass, summed
            from the small side.

        Raises:
            InvalidDistribution: see `otm.Problem`. InvalidParameter: unless m is an integer ≥ 1.

        Cost: O(V log V).

        >>> top = TopTokens.of([0.125, 0.5, 0.25, 0.125], m=2)
        >>> top.tokens.tolist(), float(top.tail)
        ([1, 2], 0.25)
        """
        count = check_count(m, name="m")
        mass = host_pmf(pmf, name="pmf")
        order = np.argsort(-mass, axis=-1, kind="stable")
        ranked = np.take_along_axis(mass, order, axis=-1)
        tail = ranked[..., count:][..., ::-1].sum(axis=-1)
        return cls(tokens=order[..., :count], probabilities=ranked[..., :count], tail=tail)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; `()` for one distribution."""
        return self.tokens.shape[:-1]


def _read_mass(values: object, name: str) -> tuple[NDArray[np.float64], float]:
    """Return masses in float64, −0 as 0, and the tolerance on a unit sum."""
    array = plain_reals(values, name)
    wide = array.astype(np.float64)
    if array.size and not (np.isfinite(wide).all() and wide.min() >= 0.0):
        raise InvalidDistribution(
            f"{name} must be finite and non-negative; got values from {wide.min()} to "
            f"{wide.max()}. Exponentiate log-probabilities."
        )
    return wide + 0.0, SUM_TOLERANCE_FLOAT32 if array.dtype == np.float32 else SUM_TOLERANCE_FLOAT64


def _read_tokens(tokens: object, mass: NDArray[np.float64]) -> NDArray[np.int64]:
    numbers = plain_reals(tokens, "tokens")
    if numbers.shape != mass.shape or mass.ndim == 0 or 0 in mass.shape:
        raise ShapeMismatch(
            "tokens and probabilities must share one shape (..., m) with m ≥ 1 and no empty axis; "
            f"they have {numbers.shape} and "
            f"{mass.shape}. Pad rows that list fewer tokens with −1 and 0."
        )
    if numbers.dtype.kind not in "iu":
        raise InvalidDistribution(f"tokens must be integers; got {numbers.dtype}. Convert them.")
    numbers = numbers.astype(np.int64)
    if numbers.min() < -1:
        raise InvalidDistribution(
            f"tokens must be at least 0, or −1 for padding; got {numbers.min()}. Check their dtype."
        )
    if (mass[numbers < 0] != 0.0).any():
        raise InvalidDistribution(
            "Padding (token −1) must have probability 0; some has more. Give that token its number."
        )
    ranked = np.sort(numbers, axis=-1)
    twice = (ranked[..., 1:] == ranked[..., :-1]) & (ranked[..., 1:] >= 0)
    if twice.any():
        raise InvalidDistribution(
            f"A row lists token {int(ranked[..., 1:][twice][0])} twice. List each token once."
        )
    return numbers


def _read_per_row(values: object, mass: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    array = _read_mass(values, name)[0]
    if array.shape != mass.shape[:-1]:
        raise ShapeMismatch(
            f"{name} must have one value per row, shape {mass.shape[:-1]}; it has {array.shape}. "
            "Reshape it."
        )
    if array.max() > 1.0 + SUM_TOLERANCE_FLOAT32:
        raise InvalidDistribution(
            f"{name} must be at most 1; got {float(array.max()):.6g}. Pass a probability."
        )
    return array


@dataclasses.dataclass(frozen=True, eq=False)
class ListedSide:
    """The known part of one model, on the W tokens listed by either of two models.

    Attributes:
        mass: known probabilities `(rows, W)`, 0 where unknown.
        alone: tokens `(rows, W)` that only this model lists.
        tail: mass to be placed on tokens unknown in this model `(rows,)`.
        cap: most that one such token may hold `(rows,)`.
        shift: total variation between the truth and the nearest completion `(rows,)`.
    """

    mass: Floats
    alone: Mask
    tail: Floats
    cap: Floats
    shift: Floats


@dataclasses.dataclass(frozen=True, eq=False)
class ListedTokens:
    """The union of two lists, W = m of the draft + m of the target tokens in each row.

    Attributes:
        draft, target: what is known of each model.
        spare: number of tokens listed by neither `(rows,)`; infinite if V is unknown.
    """

    draft: ListedSide
    target: ListedSide
    spare: Floats

    @property
    def sides(self) -> tuple[tuple[ListedSide, ListedSide], tuple[ListedSide, ListedSide]]:
        """Pairs (model, other model), the draft first."""
        return (self.draft, self.target), (self.target, self.draft)


def match_lists(draft: TopTokens, target: TopTokens, num_tokens: int | None) -> ListedTokens:
    """Match the two lists row by row, or raise if `num_tokens` tokens are too few for both."""
    tokens, masses = (
        np.concatenate([_rows(one), _rows(other)], axis=1)
        for one, other in (
            (draft.tokens, target.tokens),
            (draft.probabilities, target.probabilities),
        )
    )
    listed, of_draft = tokens >= 0, np.arange(tokens.shape[1]) < draft.tokens.shape[-1]
    p, q = np.where(of_draft, masses, 0.0), np.where(of_draft, 0.0, masses)
    only_draft, only_target = listed & of_draft, listed & ~of_draft
    # No list names a token twice, so equal neighbours are one token in both lists, the draft's
    # entry first (stable sort).
    order = np.argsort(tokens, axis=1, kind="stable")
    ranked = np.take_along_axis(tokens, order, axis=1)
    row, place = np.nonzero((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0))
    first, second = order[row, place], order[row, place + 1]
    q[row, first] = q[row, second]
    q[row, second] = 0.0
    only_draft[row, first] = False
    only_target[row, second] = False
    distinct = listed.sum(axis=1) - np.bincount(row, minlength=len(tokens))
    spare = (np.inf if num_tokens is None else num_tokens) - distinct.astype(np.float64)
    if spare.min() < 0:
        raise InvalidParameter(
            f"num_tokens must be at least the number of listed tokens, {int(distinct.max())}; got "
            f"{num_tokens}. Pass the true V."
        )
    return ListedTokens(
        draft=_side(draft, p, only_draft, spare + only_target.sum(axis=1), "draft"),
        target=_side(target, q, only_target, spare + only_draft.sum(axis=1), "target"),
        spare=spare,
    )


def _rows(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    return array.reshape(-1, array.shape[-1])


def _side(given: TopTokens, mass: Floats, alone: Mask, room: Floats, name: str) -> ListedSide:
    """Return a side whose tail fits into `room` tokens, or raise if more than rounding is left."""
    tail, cap, shift = given.tail.reshape(-1), given.cap.reshape(-1), given.shift.reshape(-1)
    holds = np.where(cap > 0, np.where(cap > 0, room, 0.0) * cap, 0.0)
    stuck = np.maximum(tail - holds, 0.0)
    if (stuck > SUM_TOLERANCE_FLOAT64 + shift).any():
        raise InvalidDistribution(
            f"The tokens that {name} does not list cannot hold its tail: {stuck.max():.6g} is left "
            "over at their cap. Check num_tokens, and that the list holds the most likely tokens "
            "(else pass cap=)."
        )
    return ListedSide(mass=mass, alone=alone, tail=tail - stuck, cap=cap, shift=shift + stuck)


def check_pair_sizes(draft: TopTokens, target: TopTokens, num_tokens: object) -> int | None:
    """Return the vocabulary size, or raise if the size or the batch shapes do not fit."""
    if draft.batch_shape != target.batch_shape:
        raise ShapeMismatch(
            f"draft and target must have the same leading axes; they have {draft.batch_shape} and "
            f"{target.batch_shape}. "
            "Describe both models at the same positions."
        )
    if num_tokens is None:
        return None
    size = check_count(num_tokens, name="num_tokens")
    largest = max(int(draft.tokens.max()), int(target.tokens.max()))
    if largest >= size:
        raise InvalidParameter(
            f"num_tokens must exceed every listed token; got {size} with token {largest}. Pass the "
            "true V."
        )
    return size
