"""A widely copied listing of block verification: its logic in our words, with its faults.

Leviathan's rule is meant, position by position: accept while u < q/p, else draw from (q − p)₊ and
stop. Four things go wrong:

1. "All γ drafts were accepted" is tested by "the output has γ tokens", which a rejection at the
   last position satisfies as well, since its replacement is the γ-th token. A bonus token follows,
   from the law after the *rejected* draft. At γ = 1 it always does.
2. The number returned as accepted is the length of the output, replacement and bonus token
   included.
3. Its example drafts the most likely token and verifies it against the softmax.
4. With more than one row, probabilities are gathered for every pair of rows (row b at the token of
   row c), a position passes only if all B² comparisons do, and the first failure anywhere replaces
   the token of every row and ends all of them.

Nothing below touches torch: code that only compares its uniforms is audited exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.corpus.one_token import draw
from otm.audit import BlockCandidate


def textbook(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Verify one row as the listing does.

    `uniforms` are γ for acceptance, one for the replacement, one for the bonus token.
    """
    rows, count = textbook_batch(draft[None], target[None], drafts[None], uniforms)
    return rows[0], count


def textbook_batch(
    draft: Any, target: Any, drafts: Any, uniforms: Any
) -> tuple[list[list[int]], int]:
    """Verify B rows as the listing does.

    Args:
        draft, target: `(B, γ, V)` and `(B, γ+1, V)`.
        drafts: `(B, γ)`.
        uniforms: γ·B² for acceptance, then B for replacements, then B for bonus tokens.

    Returns:
        The rows' tokens, all of one length, and that length, which the listing calls the number
        accepted.
    """
    batch, gamma = drafts.shape
    supply = iter(uniforms)
    rows: list[list[int]] = [[] for _ in range(batch)]
    for i in range(gamma):
        # Row b at the token of row c, for all pairs: what indexing [:, i, drafts[:, i]] gives.
        pairs = [(b, int(x)) for b in range(batch) for x in drafts[:, i]]
        passed = [next(supply) * draft[b, i, x] < target[b, i, x] for b, x in pairs]
        for b in range(batch):
            token = int(drafts[b, i]) if all(passed) else None
            rows[b].append(
                token
                if token is not None
                else _replace(draft[b, i], target[b, i], uniforms[b - 2 * batch])
            )
        if not all(passed):
            break
    if len(rows[0]) == gamma:
        for b in range(batch):
            rows[b].append(draw(target[b, gamma], uniforms[b - batch]))
    return rows, len(rows[0])


def _replace(draft: Any, target: Any, uniform: Any) -> int:
    weights = np.maximum(target - draft, 0.0)
    return draw(weights if weights.sum() > 0 else target, uniform)


LISTING = BlockCandidate(
    textbook, name="textbook listing", num_uniforms=lambda gamma, num_tokens: gamma + 2
)
"""Faults 1 and 2, on one row."""


def argmax_drafted(softmax: Any, *, verify: Callable[..., Any] = textbook) -> BlockCandidate:
    """Return the listing on drafts that were not sampled: fault 3 beside the first two.

    Audit it with a draft model that is certain of its most likely token, which is how the drafts
    really come about.

    Args:
        softmax: `(V,)`, what the listing takes for the law of every draft.
        verify: the block verifier to call.
    """
    law = np.asarray(softmax, dtype=np.float64)

    def believing(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        return verify(np.tile(law, (len(drafts), 1)), target, drafts, uniforms)

    return BlockCandidate(
        believing, name="textbook listing on argmax drafts", num_uniforms=LISTING.num_uniforms
    )


def beside_another_row() -> BlockCandidate:
    """Return the listing's first row of two, the second a text with the same laws at every position
    and drafts of its own: fault 4.

    Audit it with models that do not look at the context.
    """

    def first_of_two(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
        gamma = len(drafts)
        others = np.asarray([draw(draft[i], uniforms[i]) for i in range(gamma)])
        both: NDArray[Any] = np.stack([np.asarray(drafts), others])
        rows, count = textbook_batch(
            np.stack([draft] * 2), np.stack([target] * 2), both, uniforms[gamma:]
        )
        return rows[0], count

    return BlockCandidate(
        first_of_two,
        name="textbook listing, two rows",
        num_uniforms=lambda gamma, num_tokens: 5 * gamma + 4,
    )
