"""Tokens per call on the same drafts: every row's mean against the exact law of its decoder, the
bound against the best step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.steps.gains import BOUND, REFINED
from analysis.steps.shapes import compare_steps
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    DraftSelection,
    GreedyMultipath,
    Gsd,
    RefinedScores,
    TraversalVerification,
    best_step,
    expected_step,
    markov_pair,
)
from otm.trees import TreeShape

K, L = 2, 2
CHAINS = TreeShape.sequences(K, L)
DECODERS = {
    REFINED: RefinedScores(K, L),
    "block verification, one sequence": BlockVerification(L),
    "block K-SEQ": BlockKSeq(K, L),
    "greedy multi-path block verification": GreedyMultipath(K, L),
    "optimal, vertex by vertex": DraftSelection(K, L, otm.Optimal()),
    "K-SEQ, vertex by vertex": DraftSelection(K, L, otm.KSeq()),
    "recursive rejection, vertex by vertex": DraftSelection(K, L, otm.RecursiveRejection()),
    "traversal verification": TraversalVerification(CHAINS, otm.IID(1)),
    "recursive rejection, tree of different first tokens": Gsd(CHAINS),
}


def test_means_are_those_of_the_exact_laws() -> None:
    """One context, 150 steps: 4.5 standard errors, passed by each of eleven means with probability
    1 − 7e-6.
    """
    draft, target = markov_pair(4, similarity=0.4, rng=np.random.default_rng(2))
    given: Any = {"draft": draft, "target": target, "num_drafts": K, "length": L}
    given["rng"] = np.random.default_rng(0)
    found = compare_steps(**given, contexts=[(0,)] * 150)
    rows = {row.name: row for row in found.rows}
    assert set(rows) == {BOUND, *DECODERS}
    for name, decoder in DECODERS.items():
        exact = expected_step(decoder, draft=draft, target=target, context=[0]).block_efficiency
        assert abs(rows[name].mean - exact) <= 4.5 * rows[name].half / 1.96 + 1e-12, name
        assert rows[name].less == pytest.approx(rows[REFINED].mean - rows[name].mean, abs=1e-12)
    best = best_step(RefinedScores(K, L), draft=draft, target=target, context=[0])
    assert rows[BOUND].mean >= best.lower - 4.5 * rows[BOUND].half / 1.96
    assert found.rows[0].name == BOUND
    assert "150 contexts" in str(found)
    # conditional expectations vary less over drafts than tokens, which do by about one
    assert rows[REFINED].half < 0.5 * rows["traversal verification"].half
    with pytest.raises(AnalysisError, match="at least 6 contexts"):
        compare_steps(**given, contexts=[(0,)] * 5)
