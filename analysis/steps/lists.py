"""One token: acceptance against the mean number of drafts, for every law and verifier.

A law of k drafts stands at k, though i.i.d. drafts coincide; a law whose number of drafts is random
stands where its mean over the contexts is k, with one threshold for all contexts, so that those in
which the draft is sure leave theirs to the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import scipy

import otm
from otm._display.tabular import columns
from otm._machine.arrays import Floats
from otm.sequence import LanguageModel, SharedNoise
from otm.sequence.models import Context, next_distributions
from otm.sequence.shared_noise import perturbed
from otm.table import table_columns

from .belief import DrafterRow, fitted_scale
from .contexts import check_contexts, with_cleared_caches
from .rows import SchemeRow, against, conclusion

BEST = "best for i.i.d. drafts"
THRESHOLD, BEST_THRESHOLD = "threshold race, matched", "best for a threshold race's drafts"
BELIEF = "list by belief, matched"
_ROOM = 32
"""Most tokens of a list by belief, as a multiple of the mean number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListRow(SchemeRow):
    """Acceptance of a law and verifier, against the threshold race, at a mean number of drafts."""

    drafts: int


@dataclasses.dataclass(frozen=True)
class ListTable:
    """The result of `compare_lists`.

    Attributes:
        contexts: their number.
        noises: noises of each context, which the list by belief is judged on.
        overlap, entropy: mean Σ min(p, q) and mean entropy of the target, in nats.
        scales: of the belief, each fitted on one half of the contexts and used on the other.
        thresholds: c of the threshold race by mean number of drafts.
        different: mean number of different tokens among as many i.i.d. drafts.
        rows: by mean number of drafts, then by falling acceptance.
    """

    contexts: int
    noises: int
    overlap: float
    entropy: float
    scales: tuple[float, ...]
    thresholds: tuple[float, ...]
    different: tuple[float, ...]
    rows: tuple[ListRow, ...]

    def __str__(self) -> str:
        title = f"{self.contexts} contexts, overlap {self.overlap:.3f}, entropy {self.entropy:.2f}"
        head = ("acceptance, mean drafts:", "", "mean", f"more than {THRESHOLD}")
        rows = [
            (
                row.name,
                str(row.drafts),
                f"{row.mean:.3f} ± {row.high - row.mean:.3f}",
                ""
                if row.name == THRESHOLD
                else f"{-row.less:+.3f} ± {row.less_high - row.less:.3f}",
            )
            for row in self.rows
        ]
        most = [row for row in self.rows if row.drafts == self.rows[-1].drafts]
        found = conclusion([(row.name, row.mean, row.high - row.mean) for row in most], "accepted")
        return "\n".join([title, *columns([head, *rows], right=(1, 2, 3)), "", found])


def compare_lists(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    numbers: Sequence[int],
    noises: int,
    rng: np.random.Generator,
) -> ListTable:
    """Return the acceptance of one token by law, verifier and mean number of drafts.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six, independent or nearly so.
        numbers: mean numbers of drafts.
        noises: noises of each context that lists by belief are drawn on.
        rng: the generator.

    Raises:
        AnalysisError: for fewer than six contexts.
        InvalidParameter: on a mean that there are not tokens for.
    """
    check_contexts(contexts)
    pairs = [
        [next_distributions(model, [one], name="given")[one] for model in (draft, target)]
        for one in with_cleared_caches(contexts, "contexts", draft, target)
    ]
    p, q = np.array(pairs).swapaxes(0, 1)
    laws = [otm.ThresholdRace.with_mean_drafts(p, number) for number in numbers]
    seeds = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=noises)]
    lengths = [len(one) for one in contexts]
    scales, lists = _by_belief(p, q, lengths, seeds, numbers)
    rows = list[ListRow]()
    for number, law, matched in zip(numbers, laws, lists, strict=True):
        problem = otm.Problem(draft=p, target=q, law=law)
        found = dict(_by_table(p, q, number)) | {
            THRESHOLD: np.asarray(otm.acceptance(otm.Race(), problem)),
            BEST_THRESHOLD: np.asarray(otm.optimal_acceptance(problem)),
            BELIEF: matched,
        }
        some = [
            ListRow(name=name, drafts=number, **against(values, found[THRESHOLD]))
            for name, values in found.items()
        ]
        rows += sorted(some, key=lambda row: -row.mean)
    different = [float((1.0 - (1.0 - p) ** number).sum(axis=1).mean()) for number in numbers]
    return ListTable(
        len(contexts),
        noises,
        float(np.minimum(p, q).sum(axis=1).mean()),
        float(scipy.special.entr(q).sum(axis=1).mean()),
        scales,
        tuple(law.c for law in laws),
        tuple(different),
        tuple(rows),
    )


def _by_table(p: Floats, q: Floats, number: int) -> Iterator[tuple[str, Floats]]:
    """Yield name and acceptance of the table's lossless schemes for any k, races aside."""
    laws = {law.__name__: law.title for law in (otm.IID, otm.Greedy, otm.TopK)}
    stems = [
        one.stem
        for one in table_columns([number])
        if one.lossless and one.law in laws and one.definition == "membership"
    ]
    table = otm.acceptance_table(draft=p, target=q, k=[number], columns=stems)
    for column, values in zip(table.columns, table.values, strict=True):
        label = "best" if column.scheme == "optimum" else column.label
        name = BEST if (label, column.law) == ("best", "IID") else f"{label}, {laws[column.law]}"
        yield name, np.asarray(values)


def _by_belief(
    p: Floats,
    q: Floats,
    lengths: Sequence[int],
    seeds: Sequence[SharedNoise],
    numbers: Sequence[int],
) -> tuple[tuple[float, ...], list[Floats]]:
    """Return both scales, and by mean number the acceptance of lists by belief, `(n,)` each.

    Each half of the contexts is judged with the scale of the other half. One least belief is
    shared by all contexts of a half, such that their mean number of drafts is the given one.
    """
    drawn = [
        [
            DrafterRow(0, perturbed(p[i], one.row(at, p.shape[1])), one.choose(q[i], at))
            for one in seeds
        ]
        for i, at in enumerate(lengths)
    ]
    halves = [[each for one in drawn[half::2] for each in one] for half in (0, 1)]
    scales = tuple(map(fitted_scale, halves))
    held = [np.empty((len(p), len(seeds))) for _ in numbers]
    for half in (0, 1):
        believed, tokens = [], []
        for one in halves[half]:
            belief = scipy.special.softmax(one.row / scales[1 - half])
            tokens.append(belief[one.token])
            believed.append(-np.sort(-belief)[: _ROOM * max(numbers)])
        falling = -np.sort(-np.concatenate(believed))
        for found, number in zip(held, numbers, strict=True):
            least = falling[number * len(tokens) - 1]
            found[half::2] = np.reshape(np.array(tokens) >= least, (-1, len(seeds)))
    return scales, [found.mean(axis=1) for found in held]
