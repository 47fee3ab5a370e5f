"""The union of two lists of top tokens: what is known in both models, in one, in neither."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidDistribution, InvalidParameter
from otm.partial.top import TopTokens
from otm.pmf import SUM_TOLERANCE_FLOAT64

_Scalar = TypeVar("_Scalar", bound=np.generic)
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """The union of both lists, one row per position, `(rows, W)` with W = m of the draft + m of the
    target.

    Attributes:
        draft, target: known probabilities, 0 where unknown.
        only_draft: tokens whose target probability is unknown. only_target: tokens whose draft
            probability is unknown.
        draft_tail, target_tail: mass to be placed on tokens unknown in that model, `(rows,)`.
        draft_cap, target_cap: most that one such token may hold.
        spare: number of tokens listed by neither, `(rows,)`; infinite if V is unknown.
        shift_draft, shift_target: total variation between the truth and the nearest completion,
            `(rows,)`.
    """

    draft: Floats
    target: Floats
    only_draft: Mask
    only_target: Mask
    draft_tail: Floats
    target_tail: Floats
    draft_cap: Floats
    target_cap: Floats
    spare: Floats
    shift_draft: Floats
    shift_target: Floats


def lay_out(draft: TopTokens, target: TopTokens, num_tokens: int | None) -> Known:
    """Match the two lists row by row, or raise if `num_tokens` tokens cannot hold them or their
    tails. Cost: one sort.
    """
    p_tokens, q_tokens = _rows(draft.tokens), _rows(target.tokens)
    p_listed, q_listed = p_tokens >= 0, q_tokens >= 0
    tokens = np.concatenate([p_tokens, q_tokens], axis=1)
    p = np.concatenate([_rows(draft.probabilities), np.zeros(q_tokens.shape)], axis=1)
    q = np.concatenate([np.zeros(p_tokens.shape), _rows(target.probabilities)], axis=1)
    only_draft = np.concatenate([p_listed, np.zeros_like(q_listed)], axis=1)
    only_target = np.concatenate([np.zeros_like(p_listed), q_listed], axis=1)
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
    listed = p_listed.sum(axis=1) + q_listed.sum(axis=1) - np.bincount(row, minlength=len(tokens))
    spare = (
        np.full(len(tokens), np.inf)
        if num_tokens is None
        else num_tokens - listed.astype(np.float64)
    )
    if spare.min() < 0:
        raise InvalidParameter(
            f"num_tokens must be at least the number of listed tokens, {int(listed.max())}; got "
            f"{num_tokens}. Pass the true V."
        )
    p_tail, p_shift = _fit_tail(draft, spare + only_target.sum(axis=1), "draft")
    q_tail, q_shift = _fit_tail(target, spare + only_draft.sum(axis=1), "target")
    return Known(
        draft=p,
        target=q,
        only_draft=only_draft,
        only_target=only_target,
        draft_tail=p_tail,
        target_tail=q_tail,
        draft_cap=draft.cap.reshape(-1),
        target_cap=target.cap.reshape(-1),
        spare=spare,
        shift_draft=p_shift,
        shift_target=q_shift,
    )


def _rows(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    return array.reshape(-1, array.shape[-1])


def _fit_tail(side: TopTokens, room: Floats, name: str) -> tuple[Floats, Floats]:
    """Return the tail that `room` tokens can hold and the row's shift, or raise if what is left
    over is more than rounding.
    """
    tail, cap = side.tail.reshape(-1), side.cap.reshape(-1)
    holds = np.where(cap > 0, np.where(cap > 0, room, 0.0) * cap, 0.0)
    stuck = np.maximum(tail - holds, 0.0)
    if (stuck > SUM_TOLERANCE_FLOAT64 + side.shift.reshape(-1)).any():
        raise InvalidDistribution(
            f"The tokens that {name} does not list cannot hold its tail: {stuck.max():.6g} is left "
            "over at their cap. "
            "Check num_tokens, and that the list holds the most likely tokens (else pass cap=)."
        )
    return tail - stuck, side.shift.reshape(-1) + stuck
