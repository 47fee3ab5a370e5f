"""The linear program's plan used as a verifier: SpecTr's Algorithm 3, line 1, exactly optimal for small vocabularies."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._arrays import Array, inverse_cdf
from otm.drafts.base import PAD, Law
from otm.problem import Problem
from otm.results import Definition, Optimum
from otm.transport.lp import optimum
from otm.verifiers.base import Conditional, Verifier


@dataclasses.dataclass(frozen=True)
class TransportPlan(Verifier):
    """Draw the output from the optimal transport plan's row for the drafted set.

    α = α*, the optimum of the law. "Accepted by the rule" means that the output is one of the drafts, so both definitions agree.
    Lossless. Law: any whose drafted sets can be enumerated.

    Cost: one linear program with Σ_{j≤k} C(V, j) rows (see `otm.optimum`), then O(V) per verification.
    Accuracy: acceptance within the certified gap, 1e-9; the output law is the target's to rounding.
    Reference: SpecTr, (4) and Algorithm 3, line 1.

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(otm.acceptance(TransportPlan(), problem), 12)
    0.9375
    """

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def supports(self, law: Law) -> bool:
        """Every law; size is checked per problem."""
        return True

    def prepare(self, problem: Problem) -> OtmRule:
        """Solve the collapsed program and keep the flow."""
        solved = optimum(problem)
        sets = {tuple(int(x) for x in row if x != PAD): i for i, row in enumerate(solved.sets.tokens)}
        share = np.divide(1.0, solved.sets.mass, out=np.zeros(len(solved.sets.mass)), where=solved.sets.mass > 0)
        chosen = scipy.sparse.csr_array(scipy.sparse.diags_array(share) @ solved.flow)
        excess = np.maximum(problem.target - np.asarray(solved.flow.sum(axis=0)).reshape(-1), 0.0)
        total = excess.sum()
        residual = excess / total if total > 0 else problem.target
        return OtmRule(problem=problem, solved=solved, index=sets, chosen=chosen, residual=residual)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the value of the plan."""
        single = problem.single(purpose="The linear program behind TransportPlan()")
        return np.asarray(math.fsum(optimum(single).flow.data))


@dataclasses.dataclass(frozen=True, eq=False)
class OtmRule(Conditional):
    """The plan's conditional law of an accepted output for each drafted set `(m, V)`, and the residual `(V,)`."""

    solved: Optimum
    index: dict[tuple[int, ...], int]
    chosen: scipy.sparse.csr_array
    residual: NDArray[np.float64]

    @property
    def num_uniforms(self) -> int:
        """One for the choice within the plan's row, one for the residual draw."""
        return 2

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Look up the plan's row for each drafted set."""
        accepted = self.chosen[self._rows(drafts)].toarray()
        left = np.maximum(1.0 - accepted.sum(axis=1), 0.0)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draw from f_π(S): walk along the plan's row, and fall through to the residual where it ends."""
        rows, which = np.unique(self._rows(drafts), return_inverse=True)
        output = inverse_cdf(self.residual, uniforms[:, 1])
        accepted = np.zeros(len(drafts), dtype=bool)
        for number, row in enumerate(rows):
            here = np.flatnonzero(which.reshape(-1) == number)
            entries = slice(self.chosen.indptr[row], self.chosen.indptr[row + 1])
            position = np.searchsorted(np.cumsum(self.chosen.data[entries]), uniforms[here, 0], side="right")
            hit = position < entries.stop - entries.start
            output[here[hit]] = self.chosen.indices[entries][position[hit]]
            accepted[here[hit]] = True
        return output, accepted

    def _rows(self, drafts: NDArray[np.int64]) -> NDArray[np.int64]:
        distinct, which = np.unique(drafts, axis=0, return_inverse=True)
        rows = [self.index[tuple(sorted({int(x) for x in row if x != PAD}))] for row in distinct]
        return np.asarray(rows, dtype=np.int64)[which.reshape(-1)]
