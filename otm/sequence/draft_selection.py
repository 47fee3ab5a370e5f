"""SpecTr's draft selection: K draft sequences, verified token by token, survivors agreeing with the output.

At each level the next tokens of the surviving drafts are i.i.d. from the draft model given the context, so any verifier for i.i.d.
drafts picks a valid output token; the drafts that agree with it survive, *by token equality*, whatever the rule accepted. Selection
stops when none survives. At the last level a surviving draft earns one more token from the target, whose distribution is already
computed: L drafted tokens, up to L + 1 decoded ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm._arrays import inverse_cdf
from otm.drafts.iid import IID
from otm.errors import InvalidParameter, Unsupported
from otm.pmf import check_count
from otm.problem import Problem
from otm.sequence.models import LanguageModel, next_distribution
from otm.verifiers.base import Conditional, Verifier, check_drafts, require_support


@dataclasses.dataclass(frozen=True)
class Round:
    """One level: the context it started from, which drafts survived into it, what they proposed, what came out."""

    context: tuple[int, ...]
    survivors: tuple[int, ...]
    proposals: tuple[int, ...]
    output: int
    accepted_by_rule: bool


@dataclasses.dataclass(frozen=True)
class Selection:
    """The outcome of draft selection.

    Attributes:
        tokens: the decoded tokens, `accepted + 1` of them.
        accepted: how many of them agree with a surviving draft.
        rounds: one entry per level that was run.
    """

    tokens: tuple[int, ...]
    accepted: int
    rounds: tuple[Round, ...]


def draft_sequences(model: LanguageModel, context: Sequence[int], *, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw K i.i.d. draft sequences of L tokens from a model.

    Args:
        model: the draft model.
        context: tokens so far.
        uniforms: `(K, L)` in [0, 1), one per drafted token.

    Returns:
        Tokens `(K, L)`.

    Raises:
        InvalidParameter: if `uniforms` is not `(K, L)` with K, L ≥ 1.
        InvalidDistribution: if the model returns something else than a distribution.

    Cost: at most K·L model calls; equal prefixes are asked once.
    Reference: SpecTr, (7).

    >>> model = TableModel({(): [0.5, 0.5], (0,): [1.0, 0.0], (1,): [0.0, 1.0]})
    >>> draft_sequences(model, [], uniforms=np.array([[0.1, 0.9], [0.7, 0.2]])).tolist()
    [[0, 0], [1, 1]]
    """
    table = np.asarray(uniforms, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidParameter(f"uniforms must be (K, L) with K, L ≥ 1; got shape {table.shape}. Draw rng.random((K, L)).")
    prefix = tuple(int(token) for token in context)
    tokens = np.empty(table.shape, dtype=np.int64)
    seen: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            here = (*prefix, *(int(token) for token in tokens[row, :column]))
            if here not in seen:
                seen[here] = next_distribution(model, here, name="draft")
            tokens[row, column] = inverse_cdf(seen[here], table[row, column])
    return tokens


def num_selection_uniforms(num_drafts: int, length: int) -> tuple[int, int]:
    """Return the shape of the uniforms that `select_draft` consumes at most: `(L, K + 2)`.

    Row i serves level i: a verifier of m drafts uses at most m + 1 of them, the last column draws the bonus token.

    >>> num_selection_uniforms(6, 4)
    (4, 8)
    """
    return check_count(length, name="length"), check_count(num_drafts, name="num_drafts") + 2


def select_draft(
    draft_model: LanguageModel,
    target_model: LanguageModel,
    context: Sequence[int],
    drafts: object,
    *,
    verifier: Verifier,
    uniforms: NDArray[np.float64],
) -> Selection:
    """Decode up to L + 1 tokens from K i.i.d. draft sequences of length L, keeping the target's law.

    Level by level: Y ~ verifier(next tokens of the survivors); keep the survivors whose next token is Y; stop when there are
    none; after level L with survivors, add one token from the target.

    Args:
        draft_model, target_model: the two models.
        context: tokens so far.
        drafts: `(K, L)` tokens drawn i.i.d. from the draft model given `context` (see `draft_sequences`).
        verifier: any verifier that supports `IID(m)` for every m ≤ K.
        uniforms: `(L, K + 2)` in [0, 1) (see `num_selection_uniforms`).

    Returns:
        Selection(tokens, accepted, rounds), 1 ≤ len(tokens) = accepted + 1 ≤ L + 1. Followed by target samples up to length L,
        the tokens have exactly the target's law.

    Raises:
        InvalidParameter: on wrong shapes.
        Unsupported: if the verifier does not verify i.i.d. drafts.
        InvalidDistribution: if a model returns something else than a distribution.

    Cost: at most L + 1 calls of each model and L preparations of the verifier.
    Reference: SpecTr, Algorithm 3 and Theorem 3.

    >>> model = TableModel({(): [0.5, 0.5], (0,): [1.0, 0.0], (0, 0): [0.0, 1.0]})
    >>> select_draft(model, model, [], [[0, 0], [1, 1]], verifier=otm.KSeq(), uniforms=np.zeros((2, 4))).tokens
    (0, 0, 1)
    """
    tokens = np.asarray(drafts)
    if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
        raise InvalidParameter(f"drafts must be integer tokens (K, L) with K, L ≥ 1; got shape {tokens.shape}. Stack them.")
    num_drafts, length = tokens.shape
    if np.ndim(uniforms) != 2 or uniforms.shape[0] < length or uniforms.shape[1] < num_drafts + 2:
        raise InvalidParameter(
            f"uniforms must have at least shape {num_selection_uniforms(num_drafts, length)}; got {np.shape(uniforms)}. "
            "Draw rng.random(num_selection_uniforms(K, L))."
        )
    prefix = tuple(int(token) for token in context)
    survivors = np.arange(num_drafts)
    decoded: list[int] = []
    rounds: list[Round] = []
    for level in range(length):
        here = (*prefix, *decoded)
        law = IID(len(survivors))
        require_support(verifier, law)
        problem = Problem(
            draft=next_distribution(draft_model, here, name="draft"),
            target=next_distribution(target_model, here, name="target"),
            law=law,
        )
        rule = verifier.prepare(problem)
        if not isinstance(rule, Conditional):
            raise Unsupported(
                f"Draft selection verifies drafts that carry no shared randomness; {verifier!r} needs it. Choose another verifier."
            )
        proposals = check_drafts(tokens[survivors, level], problem)[0]
        output, accepted = rule.verify(proposals[None, :], uniforms[level : level + 1, : rule.num_uniforms], None)
        token = int(output[0])
        rounds.append(
            Round(
                context=here,
                survivors=tuple(int(i) for i in survivors),
                proposals=tuple(int(x) for x in proposals),
                output=token,
                accepted_by_rule=bool(accepted[0]),
            )
        )
        decoded.append(token)
        survivors = survivors[proposals == token]
        if len(survivors) == 0:
            return Selection(tokens=tuple(decoded), accepted=level, rounds=tuple(rounds))
    bonus = next_distribution(target_model, (*prefix, *decoded), name="target")
    decoded.append(int(inverse_cdf(bonus, uniforms[length - 1, -1])))
    return Selection(tokens=tuple(decoded), accepted=length, rounds=tuple(rounds))
