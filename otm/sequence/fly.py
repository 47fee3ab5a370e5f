"""Loose speculative decoding (FLy): a mismatch is forgiven if the following drafts match."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.pmf import check_count, check_real
from otm.scheme import parameter
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.greedy_chain import GreedyChain, read_chain
from otm.sequence.randomness import Randomness

TOP = 3
"""The number of likeliest tokens whose entropy decides."""


@dataclasses.dataclass(frozen=True)
class Fly(GreedyChain):
    """Keep greedy drafts that match, and a mismatch before W − 1 matches where the target wavers.

    At position j the target's token is its likeliest one (m = 0), or m independent samples, any of
    which may match. A mismatch is forgiven if −Σ q log q over the three likeliest tokens is at
    least h, positions j + 1, …, j + W − 1 match, and it is not among the last W positions. The
    first mismatch that is not forgiven is replaced by the first sample. With matches of probability
    1 − (1 − q(x))^m the law of a step is a product along the draft.

    One sample without forgiving, W > L, is lossless for a sampled target. Two samples, as shipped,
    are not even then: a draft with probability q comes out with 2q − q², at a total variation of up
    to ¼.

    Args:
        length: L ≥ 1.
        window: W ≥ 1.
        entropy: h ≥ 0 in nats.
        samples: m ≥ 0; 0 decodes greedily, at temperature 0.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: L draft calls, one target call.
    Reference: FLy [Li et al. 2025], 2511.22972v2, as its public code AMD-AGI/FLy at 39ed6f8 has it,
        without its n-gram drafter: L = 15, W = 6, h = .3, m = 0 in its configuration, m = 2 at any
        other temperature. There a threshold of at most .01 means none, and the entropy, of three
        tokens, is not the one of the paper.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> models = {"draft": ZerothOrder([0.6, 0.4]), "target": ZerothOrder([0.5, 0.5])}
    >>> exact = Fly(3, window=4, samples=1)  # three matches of ½ in a row
    >>> expected_step(exact, **models, context=[]).block_efficiency
    1.875
    >>> loose = Fly(3, window=1, samples=1)  # one is enough
    >>> expected_step(loose, **models, context=[]).block_efficiency
    3.5
    """

    title = "FLy"
    display_fields = ("window", "entropy", "samples")

    window: int = parameter(check_count, default=6)
    entropy: float = parameter(check_real, default=0.3, low=0.0)
    samples: int = parameter(check_count, default=0, minimum=0)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Compare all drafts with the target's tokens; keep the drafts before the first failure."""
        _, tokens, rows = read_chain(tree, target)
        drawn = [self._tokens(row, randomness) for row in rows]
        matches = [int(token) in at for token, at in zip(tokens, drawn, strict=False)]
        kept = 0
        while kept < self.length and (matches[kept] or self._forgiven(kept, matches, rows[kept])):
            kept += 1
        return tree.step_along(range(1, kept + 1), drawn[kept][0])

    def kept_law(self, tokens: NDArray[np.int64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Follow the drafts by the number of matches that a forgiven mismatch still needs."""
        kept = np.zeros(self.length + 1)
        owed = np.zeros(self.window)  # the chance that all stand so far, by matches still due
        owed[0] = 1.0
        for place, (token, row) in enumerate(zip(tokens.tolist(), rows, strict=True)):
            match = self._match(token, row)
            # A second mismatch while matches are due: the drafts before the first are kept.
            for due in (np.flatnonzero(owed[1:]) + 1).tolist():
                kept[place - (self.window - due)] += owed[due] * (1.0 - match)
            missed = owed[0] * (1.0 - match)
            # A match: one fewer is due.
            settled = owed[0] * match
            owed = np.append(owed[1:], 0.0) * match
            owed[0] += settled
            if self._forgiving(place, row):
                owed[self.window - 1] += missed
            else:
                kept[place] += missed
        kept[-1] = owed[0]  # nothing is owed in the last W positions
        return kept

    def next_token_law(self, row: NDArray[np.float64], rejected: int | None) -> NDArray[np.float64]:
        """Return q without a rejected draft; at temperature 0 the likeliest token."""
        if self.samples == 0:
            return np.asarray(np.arange(len(row)) == np.argmax(row), dtype=np.float64)
        left = row.copy()
        if rejected is not None:
            left[rejected] = 0.0
        return np.asarray(left / left.sum())

    def _tokens(self, row: NDArray[np.float64], randomness: Randomness) -> list[int]:
        return [randomness.choose(row) for _ in range(self.samples)] or [int(np.argmax(row))]

    def _match(self, token: int, row: NDArray[np.float64]) -> float:
        """Return the probability of a match."""
        if self.samples == 0:
            return float(token == np.argmax(row))
        return 1.0 - (1.0 - float(row[token])) ** self.samples

    def _forgiven(self, place: int, matches: list[bool], row: NDArray[np.float64]) -> bool:
        return self._forgiving(place, row) and all(matches[place + 1 : place + self.window])

    def _forgiving(self, place: int, row: NDArray[np.float64]) -> bool:
        """Return True if a mismatch at a position may be forgiven."""
        likeliest = np.sort(row)[-TOP:]
        likeliest = likeliest[likeliest > 0]
        return (
            place < self.length - self.window
            and float(-(likeliest * np.log(likeliest)).sum()) >= self.entropy
        )
