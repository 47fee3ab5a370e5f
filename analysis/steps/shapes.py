"""Tokens per call of K drafted sequences of L tokens, decoder by decoder, on the same drafts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from otm._display.tabular import columns
from otm.sequence import Gsd, LanguageModel, Sampled
from otm.sequence.decoding import step
from otm.sequence.models import Context
from otm.trees import TreeShape

from .contexts import check_contexts, with_cleared_caches
from .drafted_sequences import REFINED, SCHEMES, DraftedSequences, bound_terms
from .rows import BOUND, against, conclusion

_TREE = "recursive rejection, tree of different first tokens"


@dataclasses.dataclass(frozen=True)
class StepRow:
    """Tokens per call of a decoder or of the bound, and the shortfall against refined scores.

    Both with the half-widths of their intervals.
    """

    name: str
    mean: float
    half: float
    less: float
    less_half: float


@dataclasses.dataclass(frozen=True)
class StepTable:
    """Rows in descending order of the mean, the bound first.

    Half-widths are of 95 % t intervals over contexts.
    """

    num_drafts: int
    length: int
    contexts: int
    rows: tuple[StepRow, ...]

    def __str__(self) -> str:
        rows = [("tokens per call", "mean", "more than refined scores")]
        for row in self.rows:
            more = "" if row.name == REFINED else f"{-row.less:+.3f} ± {row.less_half:.3f}"
            rows.append((row.name, f"{row.mean:.3f} ± {row.half:.3f}", more))
        title = f"K = {self.num_drafts} sequences of L = {self.length}, {self.contexts} contexts"
        found = conclusion([(row.name, row.mean, row.half) for row in self.rows])
        return "\n".join([title, *columns(rows, right=(1, 2)), "", found])


def compare_steps(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    num_drafts: int,
    length: int,
    rng: np.random.Generator,
) -> StepTable:
    """Return tokens per call of K i.i.d. sequences of L tokens by decoder, and a bound for all.

    The bound is the mean over contexts of 1 + Σ_ℓ min_λ [φ*(λ) + Σ_{|u|=ℓ} min(Q(u), λP(u))], one λ
    for each level, chosen on two thirds of the contexts for the last
    (`otm.sequence.level_cut_upper`); it is no decoder's value.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        num_drafts, length: K and L.
        rng: the generator.

    Returns:
        StepTable.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    whose = check_contexts(contexts)
    randomness, different = Sampled(rng), Gsd(TreeShape.sequences(num_drafts, length))
    records, cuts = list[dict[str, float]](), []
    for context in with_cleared_caches(contexts, "contexts", draft, target):
        drafted = DraftedSequences(draft, target, context, num_drafts, length, randomness)
        gained = drafted.tokens(num_drafts, SCHEMES, (length,))
        records.append({name: float(tokens[-1]) for name, tokens in gained.items()})
        cuts.append(drafted.cuts(num_drafts))
        once = step(different, draft=draft, target=target, context=context, randomness=randomness)
        records[-1][_TREE] = 1.0 + once.accepted
    values = {name: np.array([record[name] for record in records]) for name in records[0]}
    values[BOUND] = 1.0 + bound_terms(np.array(cuts), num_drafts, whose).sum(axis=1)
    rows = []
    for name, tokens in values.items():
        found = against(tokens, values[REFINED])
        # No step yields more than L + 1, whatever the cuts of a sample say.
        mean, half = min(found["mean"], length + 1.0), found["high"] - found["mean"]
        rows.append(StepRow(name, mean, half, found["less"], found["less_high"] - found["less"]))
    rows.sort(key=lambda row: (row.name != BOUND, -row.mean))
    return StepTable(num_drafts, length, len(contexts), tuple(rows))
