"""The verification that attains the best step of K sequences on small trees."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import scipy

from otm._machine.arrays import Floats
from otm.drafts.iid import IID
from otm.errors import SolverFailure
from otm.pmf import settle_counts
from otm.sequence.best_step_lp import GAP_TOLERANCE
from otm.sequence.drafted_tree import Step, longest_paths
from otm.sequence.models import Context, LanguageModel, check_model, next_distribution
from otm.sequence.randomness import Randomness
from otm.sequence.tree_cuts import PathTree, best_of_paths, solve_program
from otm.sequence.vertex_decoder import grow_by_law
from otm.trees.shape import TreeShape
from otm.verifiers.optimal.verifier import Optimal

_SCALE = 2.0**12  # solver tolerances are absolute: 1e-10 of these units are 2e-14 of probability
_ROUNDS = 200
_ROUNDING = 2e-14


@dataclasses.dataclass(frozen=True)
class BestVerification:
    """Draft K sequences; accept as many tokens as any lossless verification of these drafts can.

    Each sequence draws one of its prefixes as its end, so that ends have a law m, and `Optimal`
    selects one of the K ends by scores with the law g(u) = f(u) − Σ_y f(uy) of the best step, m(U)
    ≥ 1 − (1 − g(U))^{1/K} for every set U. The step goes to the selected end and adds a token ∝ q(y
    | u) f(u) − f(uy). It needs the models as a whole, not only their answers at drafted paths, so
    it is no scheme for language models but the proof that `best_step` is attained.

    Reference: docs/theory.md, "Scores are enough"; Frank 1982.
    """

    num_drafts: int
    length: int
    drafter: LanguageModel
    judge: LanguageModel

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)
        check_model(self.drafter, name="drafter")
        check_model(self.judge, name="judge")

    def step(self, context: Context, randomness: Randomness) -> Step:
        """Draft K sequences, draw an end in each, select one, and add a token."""
        shape = TreeShape.sequences(self.num_drafts, self.length)
        tree = grow_by_law(shape, self.drafter, context, IID, randomness)
        ends = _ends(self, context)
        sequences = [
            (vertices, tuple(tree.tokens[list(vertices)].tolist()))
            for vertices in longest_paths(shape)
        ]
        drawn = np.array([ends.draw(tokens, randomness) for _, tokens in sequences], dtype=np.int64)
        chosen = randomness.verify(Optimal(), IID(self.num_drafts), ends.law, ends.wanted, drawn)
        if chosen not in drawn:  # g was rounded beyond what the ends can give
            chosen = ends.number[()]
        path = list(ends.number)[chosen]
        target = next_distribution(self.judge, (*context, *path), name="judge")
        token = randomness.choose(ends.next_token_law(path, target))
        vertices = next(found for found, tokens in sequences if tokens[: len(path)] == path)
        return tree.step_along(vertices[: len(path)], token)


@dataclasses.dataclass(frozen=True, eq=False)
class _Ends:
    """Laws of a sequence's end and of the step's end, over the paths and, last, the empty path.

    Attributes:
        number: the place of each path in the arrays, the empty one's last.
        stop: `(n + 1,)` probability that a sequence which has a path and has not ended below it
            ends there.
        law, wanted: m and g `(n + 1,)`.
        accepted: f `(n + 1,)`.
    """

    number: dict[Context, int]
    stop: Floats
    law: Floats
    wanted: Floats
    accepted: Floats

    def draw(self, tokens: Context, randomness: Randomness) -> int:
        """Return the number of a sequence's end, found from the last token up to the empty path."""
        for count in range(len(tokens), 0, -1):
            place = self.number.get(tokens[:count])
            if place is not None and randomness.accept(float(self.stop[place])):
                return place
        return self.number[()]

    def next_token_law(self, path: Context, target: Floats) -> Floats:
        """Return the law of the token after a path: q f(u) minus the mass of accepted children."""
        left = target * self.accepted[self.number[path]]
        for token in range(len(left)):
            if (child := self.number.get((*path, token))) is not None:
                left[token] = max(left[token] - self.accepted[child], 0.0)
        return np.asarray(left if left.sum() > 0 else target)


@functools.lru_cache(maxsize=256)
def _ends(decoder: BestVerification, context: Context) -> _Ends:
    k = decoder.num_drafts
    tree = PathTree.of(decoder.drafter, decoder.judge, context, decoder.length)
    n = len(tree.paths)
    accepted = best_of_paths(tree, k, tolerance=GAP_TOLERANCE)[0] if n else np.empty(0)
    wanted = np.maximum(tree.ending(accepted), 0.0)
    reached = _passing_probabilities(tree, k, wanted)
    law = np.maximum(tree.ending(reached), 0.0)
    # P(u) − Σ_y M(uy): what has not ended below u.
    free = np.append(tree.draft - (reached - law[:n]), 1.0)
    stop = np.minimum(np.divide(law, free, out=np.ones_like(law), where=free > 0), 1.0)
    return _Ends(
        {path: place for place, path in enumerate([*tree.paths, ()])},
        stop,
        law / law.sum(),
        wanted / wanted.sum(),
        np.append(accepted, 1.0),
    )


def _passing_probabilities(tree: PathTree, k: int, wanted: Floats) -> Floats:
    """Return the probability M(u) `(n,)` that a sequence ends at u or beyond, m(U) ≥ ψ(g(U)).

    Cutting planes: for given m the sets that lack most are {u: g(u) > λ m(u)}, so a sort finds
    them.
    """
    n = len(tree.paths)
    if n == 0:
        return np.empty(0)
    ends = scipy.sparse.eye_array(n + 1, n) - tree.children
    rows = [-ends[:n]]
    right = [np.zeros(n)]
    chosen = [np.arange(n + 1) == i for i in range(n + 1)]
    found = tree.draft
    for _ in range(_ROUNDS):
        inside = np.stack(chosen)
        least = 1.0 - np.maximum(1.0 - inside @ wanted, 0.0) ** (1.0 / k)
        rows.append(scipy.sparse.csr_array(-(inside.astype(float) @ ends)))
        right.append(_SCALE * (inside[:, n] - least))
        solution = solve_program(
            np.zeros(n),
            methods=("highs-ds",),
            tolerance=1e-10,
            A_ub=scipy.sparse.vstack(rows, format="csr"),
            b_ub=np.concatenate(right),
            bounds=np.stack([np.zeros(n), _SCALE * tree.draft], axis=1),
        )
        found = np.asarray(np.clip(solution.x / _SCALE, 0.0, tree.draft), dtype=np.float64)
        for level in reversed(range(len(tree.levels) - 1)):  # M(u) ≥ Σ_y M(uy), to the last digit
            here = tree.levels[level]
            onward = tree.sums[level + 1] @ found[tree.levels[level + 1]]
            found[here] = np.minimum(np.maximum(found[here], onward), tree.draft[here])
        law = np.maximum(tree.ending(found), 0.0)
        order = np.argsort(
            -np.divide(wanted, law, out=np.full(n + 1, np.inf), where=law > 0), kind="stable"
        )
        held, needed = np.cumsum(law[order]), np.cumsum(wanted[order])
        lack = needed + np.expm1(k * np.log1p(-np.minimum(held, 1.0 - 1e-16)))
        worst = np.argsort(-lack)[:8]
        chosen = [
            np.isin(np.arange(n + 1), order[: i + 1]) for i in worst.tolist() if lack[i] > _ROUNDING
        ]
        if not chosen:
            return found
    raise SolverFailure(
        f"A law of ends must be found in {_ROUNDS} rounds of cuts; after them some ends still lack "
        f"{float(lack.max()):.2g}. Take a smaller tree."
    )
