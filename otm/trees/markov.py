"""The most tokens for a budget of bits, for acceptance that depends on the last m ranks.

A visit to a vertex in state s, the last m ranks of its path, yields one token and takes H_s bits of
the leaf that verification ends in; the whole leaf has log₂(number of leaves) at most. What a tree
adds is where to stop, so nothing it does beats the price y of a bit at which stopping is best,

    E[tokens] ≤ y log₂ L + 1 − y H_root + Σ_i A_root(i) w_i,
    w_s = max(0, 1 − y H_s + Σ_i A_s(i) w_{s·i}),

for every y ≥ 0 (docs/theory.md, "Bounds"). The best price and the values w of the states are one
linear program with a variable for each state. No answer of a solver is trusted: any y, w ≥ 0 give a
bound, once divided by what they leave of each inequality.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import UNIT_ROUNDOFF
from otm.errors import TooLarge
from otm.trees.optimal import checked_step
from otm.trees.vector import PathAcceptance, check_acceptance, entropy_bits, rejected_mass

MAX_STEPS = 50_000
"""Largest number of ranks, over all states, that a function is asked for."""


@dataclasses.dataclass(frozen=True, eq=False)
class MarkovAcceptance:
    """Acceptance by state, where the last m ranks of a path name the state; the root is state 0.

    Attributes:
        entropy: `(states,)`, H_s in bits over the ranks that can be accepted and "none of them".
        num_symbols: M, the most of these symbols that a state has.
        state, child, step: `(transitions,)` each: from where, to where, A_s(i).
    """

    entropy: NDArray[np.float64]
    num_symbols: int
    state: NDArray[np.int64]
    child: NDArray[np.int64]
    step: NDArray[np.float64]

    @classmethod
    def of(cls, acceptance: PathAcceptance, order: int, max_width: int | None) -> MarkovAcceptance:
        """Evaluate the acceptance of every reachable state, each once."""
        numbers: dict[tuple[int, ...], int] = {(): 0}
        queue: list[tuple[int, ...]] = [()]
        entropies, most, edges = list[float](), 0, list[tuple[int, int, float]]()
        for state in queue:
            steps = _steps(acceptance, state, max_width, MAX_STEPS - len(edges))
            symbols = np.array([*steps, rejected_mass(steps) if steps else 1.0])
            num_symbols = int((symbols > 0).sum())
            # A lone symbol is certain; what it lacks to 1 was taken for rounding and must not count
            # as bits.
            entropies.append(entropy_bits(symbols) if num_symbols > 1 else 0.0)
            most = max(most, num_symbols)
            for rank, step in enumerate(steps):
                path = (*state, rank)
                child = path[max(0, len(path) - order) :]
                if child not in numbers:
                    numbers[child] = len(numbers)
                    queue.append(child)
                edges.append((numbers[state], numbers[child], step))
        parents, children = (
            np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1)
        )
        return cls(
            np.array(entropies), most, parents, children, np.array([edge[2] for edge in edges])
        )

    def bound(self, bits: float) -> float:
        """Return an upper bound on the tokens of every tree whose leaf has at most `bits` bits.

        ∞ if entropy says nothing.
        """
        least = float(self.entropy.min())
        flat = (1.0 / least, np.zeros(len(self.entropy))) if least > 0 else None
        told = [price for price in (flat, self._best_price(bits)) if price is not None]
        return min((self._certified(bits, *price) for price in told), default=math.inf)

    def _best_price(self, bits: float) -> tuple[float, NDArray[np.float64]] | None:
        """Return the price y and the values w of the linear program's optimum."""
        # y H_s + w_s − Σ_i A_s(i) w_{s·i} ≥ 1 in every state s.
        count = len(self.entropy)
        flow = scipy.sparse.coo_array((self.step, (self.state, self.child)), shape=(count, count))
        limits = scipy.sparse.hstack(
            [self.entropy[:, None], scipy.sparse.eye_array(count) - flow], format="csr"
        )
        cost = np.zeros(count + 1)
        cost[0] = bits - self.entropy[0]
        np.add.at(cost, self.child[self.state == 0] + 1, self.step[self.state == 0])
        found = scipy.optimize.linprog(cost, A_ub=-limits, b_ub=-np.ones(count), method="highs")
        return (float(found.x[0]), found.x[1:]) if found.status == 0 else None

    def _certified(self, bits: float, price: float, worth: NDArray[np.float64]) -> float:
        """Return the bound that a price and values prove, rounded up."""
        y, w = max(price, 0.0), np.maximum(worth, 0.0)
        onward = np.bincount(self.state, self.step * w[self.child], len(w))
        # Every term errs by a few units of its size, an entropy by 8 units of 1 + H, a sum by one
        # unit a symbol.
        units = (self.num_symbols + 16) * UNIT_ROUNDOFF
        short = float(
            (
                1.0
                + onward
                - w
                - y * self.entropy
                + units * (1.0 + onward + w + y * (1.0 + self.entropy))
            ).max()
        )
        if short >= 1.0:
            return math.inf
        rest = (
            y * (bits - float(self.entropy[0]))
            + float(onward[0])
            + units * (y * (1.0 + bits) + float(onward[0]))
        )
        return (1.0 + rest / (1.0 - max(0.0, short))) * (1.0 + 4 * UNIT_ROUNDOFF)


def _steps(
    acceptance: PathAcceptance, state: tuple[int, ...], max_width: int | None, most: int
) -> list[float]:
    """Return A_s(0), A_s(1), … up to the last positive one."""
    steps = list[float]()
    elder, total = 1.0, 0.0
    while max_width is None or len(steps) < max_width:
        step = checked_step(acceptance, (*state, len(steps)), elder, total)
        if not step:
            break
        steps.append(step)
        elder, total = step, total + step
        if len(steps) > most:
            raise TooLarge(
                f"A bound asks for at most {MAX_STEPS:,} ranks over all states; this function "
                "accepts more. Limit max_width, or give a lower order."
            )
    return check_acceptance(steps).tolist() if steps else steps
