"""Two partly known distributions side by side, and the two completions that bound every question
about them.
"""

from __future__ import annotations

import dataclasses
import functools

from otm.errors import InvalidParameter
from otm.partial.completion import Completion, complete_closely, complete_furthest
from otm.partial.known import Known, lay_out
from otm.partial.top import TopTokens, check_pair_sizes


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class PartialPair:
    """A draft and a target of which only the likely tokens are known, at the same positions.

    Args:
        draft, target: what is known of p and of q, of the same batch shape; the listed tokens may
            differ.
        num_tokens: V if known. It limits how disjoint the tails can be, which raises lower ends on
            flat distributions; with None there may be any number of further tokens.

    Raises:
        ShapeMismatch: if the batch shapes differ.
        InvalidParameter: if V is not above every listed token, or below the number of listed
            tokens.
        InvalidDistribution: if V tokens cannot hold a tail under its cap.

    Cost: O(m log m) per row. NumPy only.

    >>> pair = PartialPair(
    ...     draft=TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25]),
    ...     target=TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25]),
    ... )
    >>> pair.batch_shape
    ()
    """

    draft: TopTokens
    target: TopTokens
    num_tokens: int | None
    layout: Known

    def __init__(
        self, *, draft: TopTokens, target: TopTokens, num_tokens: int | None = None
    ) -> None:
        for name, side in (("draft", draft), ("target", target)):
            if not isinstance(side, TopTokens):
                raise InvalidParameter(
                    f"{name} must be an otm.partial.TopTokens; got {type(side).__name__}. Call "
                    "otm.partial.TopTokens.of."
                )
        object.__setattr__(self, "draft", draft)
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "num_tokens", check_pair_sizes(draft, target, num_tokens))
        object.__setattr__(self, "layout", lay_out(draft, target, self.num_tokens))

    def __repr__(self) -> str:
        return f"PartialPair(shape={self.batch_shape}, num_tokens={self.num_tokens})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; `()` for one position."""
        return self.draft.batch_shape

    @functools.cached_property
    def closest(self) -> Completion:
        """The completion with the highest overlap curve: largest Σ min, α*_k and K-SEQ, smallest
        divergences.

        Cost: O(m) per row and step, 66 steps, once. Accuracy: its level ρ to the last place.
        """
        return complete_closely(self.layout, self.batch_shape)

    @functools.cached_property
    def furthest(self) -> Completion:
        """The completion with the lowest overlap curve: smallest Σ min, α*_k and K-SEQ, largest
        divergences.

        Where tokens run out in a row that lists tokens below the cap (the sampled token, say),
        those are forgotten first: the curve is then a lower bound that need not be attained. Cost:
        O(m log m) per row, once.
        """
        return complete_furthest(self.layout, self.batch_shape)
