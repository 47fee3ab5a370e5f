"""Approximate speculative decoding (ASD): greedy decoding with a budget of regret."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import quiet
from otm.pmf import check_count, check_real
from otm.scheme import parameter
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.greedy_chain import GreedyChain, read_chain
from otm.sequence.randomness import Randomness


@dataclasses.dataclass(frozen=True)
class RegretBudget(GreedyChain):
    """Decode greedily, but keep other drafts x while the regret log(max q/q(x)) is affordable.

    At position i of L, counted from 0, a mismatch of regret r is kept if r/v ≤ g with v = (L −
    i)/L, the regrets of the block and `spent` add up to at most B, less was spent before, and it is
    at most the m-th of the block. The first that is not is replaced by the likeliest token. Nothing
    is random. B = `spent` or m = 0 is exact greedy decoding.

    A request's budget outlasts its blocks: the caller carries `spent` from step to step, `generate`
    begins every step with it.

    Args:
        length: L ≥ 1.
        budget: B ≥ 0 in nats.
        gate: g ≥ 0 in nats.
        mismatches: m ≥ 0 in a block.
        spent: what earlier blocks have spent, at most B.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: L draft calls, one target call.
    Reference: ASD (2608.03447; transformers#48636), as its reference code Kissmetothemoon/ASD at
        4228d0f has it; the request's text and the code at c9d6b68 divide by L − i in the place of
        (L − i)/L, a gate L times as wide. One token: `otm.BoundedRegret`.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> models = {"draft": ZerothOrder([0.6, 0.4]), "target": ZerothOrder([0.4, 0.6])}
    >>> narrow = RegretBudget(3, budget=2, gate=1, mismatches=3)
    >>> wide = RegretBudget(3, budget=2, gate=2, mismatches=3)
    >>> expected_step(narrow, **models, context=[]).block_efficiency  # regrets of .405 are kept
    3.0
    >>> expected_step(wide, **models, context=[]).block_efficiency  # while .405/v ≤ g
    4.0
    """

    title = "regret budget"
    display_fields = ("budget", "gate", "mismatches")

    budget: float = parameter(check_real, default=2.0625, low=0.0)
    gate: float = parameter(check_real, default=2.0625, low=0.0)
    mismatches: int = parameter(check_count, default=1, minimum=0)
    spent: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "spent", check_real(self.spent, name="spent", low=0.0, high=self.budget)
        )

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Keep the affordable drafts, then go on with the likeliest token."""
        _, tokens, rows = read_chain(tree, target)
        kept = self._kept(tokens, rows[:-1])
        return tree.step_along(range(1, kept + 1), int(np.argmax(rows[kept])))

    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1 for the number of kept drafts, 0 for all others."""
        return np.asarray(np.arange(self.length + 1) == self._kept(tokens, rows), dtype=np.float64)

    def next_token_law(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return the likeliest token."""
        return np.asarray(np.arange(len(row)) == np.argmax(row), dtype=np.float64)

    def _kept(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> int:
        risk, relaxed = self.spent, 0
        for place, (token, row) in enumerate(zip(tokens.tolist(), rows, strict=True)):
            if token == np.argmax(row):
                continue
            with quiet():
                regret = float(np.log(row.max()) - np.log(row[token]))
            value = (self.length - place) / self.length
            affordable = risk < self.budget and risk + regret <= self.budget
            if not (regret / value <= self.gate and affordable and relaxed < self.mismatches):
                return place
            risk, relaxed = risk + regret, relaxed + 1
        return self.length
