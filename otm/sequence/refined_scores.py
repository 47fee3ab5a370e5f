"""Refined scores of drafted sequences, and block verification of the winner.

Verification vertex by vertex picks the first token without a look at what follows it. Here every
sequence carries a score that all its tokens have a say in, the largest wins, and the winner is
verified as a block against the law that winners have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm.drafts.iid import IID
from otm.pmf import check_count
from otm.scheme import parameter
from otm.sequence.block_verification import verify_block
from otm.sequence.decoder import SequencesDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, longest_paths
from otm.sequence.exact_laws import DeferredDecoder, StepModels, StepTally, walk_sequences
from otm.sequence.models import Context, DerivedModel, LanguageModel
from otm.sequence.randomness import Randomness
from otm.sequence.score_law import (
    Refinement,
    ScoreLaw,
    Unrefined,
    refine,
    refine_first,
    win_probabilities,
)
from otm.sequence.vertex_decoder import grow_by_law

_NEGLIGIBLE = 2.0**-44
"""Tokens of less draft mass are not drafted: in a sum of 1 at most nine bits of such a mass
remain.
"""

RARELY = 0.01
"""Scores are refined no further where a smaller part F(u)/a(u) of the winners is accepted."""


@dataclasses.dataclass(frozen=True)
class RefinedScores(SequencesDecoder, DeferredDecoder):
    """Draft K sequences, score each by all tokens, and verify the sequence with the largest score.

    After path u a sequence's score has law κ_u, uniform at the root, and the next token y splits
    it, Σ_y p(y | u) κ_{uy} = κ_u. So the winner passes uy with probability s(uy) = P(uy) a(uy), a =
    ∫ K u^{K−1} dκ, known from the conditionals on the way. Levels a maximise Σ_y min(f(u) q(y | u),
    s(uy)), f(uy) being that minimum: the flat clip of `Optimal`, on the resource κ_u. The winner is
    kept as in block verification with s(y | u) = s(uy)/s(u) in the place of p: path u is accepted
    with probability f(u). Where few winners are accepted, f(u) < s(u)/100, scores stay as they are:
    κ_{uy} = κ_u costs nothing to compute and little to lose.

    Args:
        num_drafts: K ≥ 1 sequences, drawn without tokens of a mass below 2⁻⁴⁴, which sums up to 1
            hardly register.
        length: L ≥ 1 tokens each.
        cells: in how many cells, at least 2, the score is resolved; more win a little
            (docs/theory.md, "Refined scores").

    Raises:
        InvalidParameter: if a count is no integer of at least 1, or there is one cell.

    Cost: L draft calls and one target call per step, at most K·L splits of one argsort and some
        vector operations each.
    Reference: docs/theory.md, "Refined scores"; one sequence: Sun et al. 2024; one level:
        `otm.Optimal`.

    >>> from otm.sequence import ZerothOrder, expected_step
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> one = expected_step(RefinedScores(1, 2), draft=draft, target=target, context=[])
    >>> two = expected_step(RefinedScores(2, 2), draft=draft, target=target, context=[])
    >>> round(one.block_efficiency, 9)  # block verification's 1 + 11/9
    2.222222222
    >>> round(two.block_efficiency, 4)
    2.617
    """

    title = "refined scores"
    lossless = True  # docs/theory.md, "Refined scores"

    drafts = IID(1)

    cells: int = parameter(check_count, default=64, minimum=2)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw K sequences level by level, from the draft model without negligible tokens."""
        return grow_by_law(self.shape, WithoutNegligible(model), context, IID, randomness)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Draw the winner by the probability of the largest score, and verify the winner."""
        passed = ScoredPaths(
            self.num_drafts, self.cells, tree.context, tree.draft.__getitem__, target
        )
        paths = longest_paths(tree.shape)
        laws = [passed.law(tree.contexts_along(path)[-1]) for path in paths]
        chosen = paths[randomness.choose(win_probabilities(laws)) if len(laws) > 1 else 0]
        kept, after = verify_block(
            tree.contexts_along(chosen), passed.chain_law, target, randomness
        )
        return tree.step_along(chosen[:kept], randomness.choose(after))

    def tally(self, models: StepModels) -> StepTally:
        """Follow the paths by the probabilities of acceptance."""
        draft = functools.cache(lambda context: drop_negligible(models.draft(context)))
        paths = ScoredPaths(self.num_drafts, self.cells, models.start, draft, models.target)
        return walk_sequences(
            self.shape,
            dataclasses.replace(models, draft=draft),
            weight=paths.weight,
            accepted=paths.accepted,
            shares=np.full(self.num_drafts, 1.0 / self.num_drafts),  # any may have the best score
        )


@dataclasses.dataclass(frozen=True)
class WithoutNegligible(DerivedModel):
    """A model without tokens whose mass hardly changes a sum of 1.

    Whatever is drafted, verification towards the target is lossless for the law that it was drafted
    by, so that nothing is lost but what those tokens might have won.
    """

    model: LanguageModel

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> Floats:
        """Return the model's answers without negligible tokens."""
        return drop_negligible(self.model.next_batch(contexts))


def drop_negligible(masses: Floats) -> Floats:
    """Return rows `(..., V)` without masses below 2⁻⁴⁴, renormalised.

    >>> import numpy as np
    >>> drop_negligible(np.array([1e-20, 0.25, 0.75]))
    array([0.  , 0.25, 0.75])
    """
    rows = np.asarray(masses, dtype=np.float64)
    kept = np.where(rows < _NEGLIGIBLE, 0.0, rows)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


class ScoredPaths:
    """Score laws and acceptances along paths, each computed on first use.

    Args:
        k: number of sequences.
        cells: how many cells resolve the score.
        start: the context before the paths.
        draft, target: the models' distributions after a context.
    """

    def __init__(
        self, k: int, cells: int, start: Context, draft: Conditionals, target: Conditionals
    ) -> None:
        self._k, self._cells, self._start = k, cells, start
        self._draft, self._target = draft, target
        self._laws: dict[Context, ScoreLaw] = {}
        self._weights: dict[Context, float] = {start: 1.0}
        self._refined: dict[Context, Refinement | Unrefined] = {}

    def law(self, context: Context) -> ScoreLaw:
        """Return κ_u."""
        if context not in self._laws:
            self._laws[context] = self.refinement(context[:-1]).child(context[-1])
        return self._laws[context]

    def weight(self, context: Context) -> float:
        """Return F(u) = f(u)/P(u), the acceptance of the path per unit of draft mass."""
        if context not in self._weights:
            before, token = context[:-1], context[-1]
            drawn = float(self._draft(before)[token])
            wanted = self.weight(before) * float(self._target(before)[token])
            level = self.law(context).level
            self._weights[context] = level if wanted >= level * drawn else wanted / drawn
        return self._weights[context]

    def refinement(self, context: Context) -> Refinement | Unrefined:
        """Return the split of κ_u among the next tokens."""
        if context not in self._refined:
            rows = self._draft(context), self._target(context)
            if context == self._start:
                first = refine_first(self._k, self._cells, *rows)
                self._laws[context], self._refined[context] = first.law, first
            else:
                law, weight = self.law(context), self.weight(context)
                split = Unrefined if weight <= RARELY * law.level else refine
                self._refined[context] = split(law, weight, *rows)
        return self._refined[context]

    def accepted(self, context: Context) -> Floats:
        """Return min(F(u) q(y), p(y) a(uy)) for every next token `(V,)`: f(uy)/P(u)."""
        found = self.refinement(context)
        return np.asarray(np.minimum(found.weight * found.target, found.selected))

    def chain_law(self, context: Context) -> Floats:
        """Return s(y | u), the law of the winner's next token `(V,)`."""
        held = self.refinement(context).selected
        return np.asarray(held / held.sum())
