"""One token by law, verifier and mean number of drafts, against single problems and limits."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.steps.lists import BELIEF, BEST, BEST_THRESHOLD, THRESHOLD, compare_lists
from otm.sequence import SharedNoise, markov_pair
from otm.sequence.shared_noise import perturbed


def test_rows_are_those_of_single_problems() -> None:
    draft, target = markov_pair(5, similarity=0.6, rng=np.random.default_rng(3))
    contexts = [(i % 5,) for i in range(10)]
    found = compare_lists(
        draft=draft,
        target=target,
        contexts=contexts,
        numbers=(2,),
        noises=2,
        rng=np.random.default_rng(0),
    )
    rows = {row.name: row for row in found.rows}
    pairs = [(draft.next(one), target.next(one)) for one in contexts]
    (c,) = found.thresholds
    asked = {
        BEST: (otm.Optimal(), otm.IID(2)),
        "K-SEQ, i.i.d.": (otm.KSeq(), otm.IID(2)),
        "naive, top k": (otm.Naive(), otm.TopK(2)),
        THRESHOLD: (otm.Race(), otm.ThresholdRace(c)),
        BEST_THRESHOLD: (otm.Optimal(), otm.ThresholdRace(c)),
    }
    for name, (verifier, law) in asked.items():
        each = [otm.acceptance(verifier, otm.Problem(draft=p, target=q, law=law)) for p, q in pairs]
        assert rows[name].mean == pytest.approx(np.mean(each), abs=1e-12), name
    arrive = [np.sum(c * p / (1 + (c - 1) * p)) for p, _ in pairs]
    assert np.mean(arrive) == pytest.approx(2.0)
    assert "10 contexts" in str(found)
    # Of 20 rows the 20 most believed entries of each half: here by its own sort of all of them.
    seeds = [SharedNoise(int(one)) for one in np.random.default_rng(0).integers(1 << 53, size=2)]
    held = []
    for half in (0, 1):
        rates = [
            (perturbed(p, seed.row(1, 5)) / found.scales[1 - half], seed.choose(q, 1))
            for p, q in pairs[half::2]
            for seed in seeds
        ]
        beliefs = [np.exp(row) / np.exp(row).sum() for row, _ in rates]
        least = np.sort(np.concatenate(beliefs))[-20]
        held += [belief[y] >= least for belief, (_, y) in zip(beliefs, rates, strict=True)]
    assert rows[BELIEF].mean == pytest.approx(np.mean(held))


def test_a_draft_that_is_the_target_is_believed() -> None:
    """One draft, the argmax of the same perturbed row, is the target's token on every noise."""
    model, _ = markov_pair(4, similarity=0.5, rng=np.random.default_rng(1))
    found = compare_lists(
        draft=model,
        target=model,
        contexts=[(i % 4,) for i in range(8)],
        numbers=(1,),
        noises=3,
        rng=np.random.default_rng(2),
    )
    means = {row.name: row.mean for row in found.rows}
    assert means[BELIEF] == 1.0
    assert means[THRESHOLD] == pytest.approx(1.0, abs=1e-12)
    assert found.thresholds == (1.0,)
