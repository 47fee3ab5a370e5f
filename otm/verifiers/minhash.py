"""Weighted MinHash: drafter and verifier each take the first shared dart under p or q.

Darts (token, height) fall uniformly on Ω × [0, 1]; the drafter stops at the first with height ≤
p(token), the verifier at the first with height ≤ q(token). Both stop at the same dart when the
first one under max(p, q) is under min(p, q):

    Pr(same dart) = Σ min(p, q) / Σ max(p, q) = (1 − TV)/(1 + TV).

Otherwise one of them goes on, afresh, and may stop at the same token with another dart.

With darts falling as a Poisson process in time, those of token i below height p_i are a process of
rate p_i: the drafter needs one exponential time and one uniform height per token. The verifier
continues the same process where q differs: below q_i < p_i the first dart is the drafter's if it is
low enough, else a fresh one later; between p_i and q_i > p_i darts are new.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, namespace, quiet, total
from otm.drafts.iid import IID
from otm.problem import Problem
from otm.results import Coupling, Definition
from otm.verifiers.base import Shared, Verifier, require_state


@dataclasses.dataclass(frozen=True)
class MinHash(Verifier):
    """Output the token of the first shared dart under q.

    The rule accepts if it is the dart that the drafter took.

    By rule:       α = (1 − TV)/(1 + TV);
    by membership: α = [Σ min(p, q) + Σ |p − q|·min(p, q)] / (1 + TV).

    Lossless: the verifier's dart does not depend on p. At most the race's acceptance on every pair.
    Law: IID(1).

    Cost: O(V), batched.
    Accuracy: a few units in the last place.
    Reference: Daliri, Musco & Suresh 2024 (2408.07978), weighted MinHash; membership:
        docs/theory.md, "Races".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> # (3/4)/(5/4), (3/4 + 3/16)/(5/4)
    >>> otm.acceptance(MinHash(), problem, by="rule"), otm.acceptance(MinHash(), problem)
    (0.6, 0.75)
    """

    title = "MinHash"
    summary = "shared darts thrown until each model accepts one (Daliri et al. 2024)"
    lossless = True
    laws = (IID(1),)
    table_columns = ("minhash_iid", "minhash_rule_iid")

    def prepare(self, problem: Problem) -> MinHashRule:
        """Return the rule, which needs no preparation: darts are compared with heights."""
        return MinHashRule(problem=problem)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Evaluate the closed form, batched."""
        return by_rows(lambda p, q: _match(p, q, by)[None], problem.draft, problem.target)[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MinHashRule(Shared):
    """The dart process.

    The state is each token's first dart under p `(n, 2, V)`: its time, and its height in parts of
    p.
    """

    @property
    def num_draft_uniforms(self) -> int:
        """A time and a height per token."""
        return 2 * self.problem.num_tokens

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Throw each token's first dart under p; the earliest is the draft."""
        state = uniforms.reshape(len(uniforms), 2, self.problem.num_tokens).copy()
        state[:, 0] = _waiting_times(state[:, 0], self.problem.draft)
        return np.argmin(state[:, 0], axis=1)[:, None], state

    @property
    def num_uniforms(self) -> int:
        """One further dart per token."""
        return self.problem.num_tokens

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Find each token's first dart under q; the earliest is the output."""
        p, q = self.problem.draft, self.problem.target
        first, height = np.moveaxis(require_state(state), 1, 0)
        low_enough = height * p < q
        with quiet():
            later = first + _waiting_times(uniforms, q)
            above = _waiting_times(uniforms, np.maximum(q - p, 0.0))
        reached = np.where(q <= p, np.where(low_enough, first, later), np.minimum(first, above))
        output = np.argmin(reached, axis=1)
        rows = np.arange(len(output))
        same = reached[rows, output] == first[rows, output]
        return output, same & (output == drafts[:, 0])

    def joint(self) -> Coupling:
        """Return [diag(min) + (p − q)₊ qᵀ + p ((q − p)₊)ᵀ] / (1 + TV)."""
        p, q = self.problem.draft, self.problem.target
        surplus, deficit = np.maximum(p - q, 0.0), np.maximum(q - p, 0.0)
        joint = np.diag(np.minimum(p, q)) + np.outer(surplus, q) + np.outer(p, deficit)
        tokens = np.flatnonzero(p > 0)
        return Coupling(
            drafts=tokens[:, None],
            joint=scipy.sparse.csr_array(joint[tokens] / (1.0 + surplus.sum())),
        )


def _waiting_times(
    uniforms: NDArray[np.float64], rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return exponential times of the given rates, +∞ at rate 0."""
    with quiet():
        return np.where(rates > 0, -np.log1p(-uniforms) / rates, np.inf)


def _match(draft: Array, target: Array, by: Definition) -> Array:
    xp = namespace(draft, target)
    both, apart = xp.minimum(draft, target), xp.abs(draft - target)
    distance = 0.5 * total(apart)
    if by == "rule":
        return total(both) / (1.0 + distance)
    return (total(both) + total(apart * both)) / (1.0 + distance)
