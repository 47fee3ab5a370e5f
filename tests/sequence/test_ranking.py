"""Decoders ranked against the best step."""

from __future__ import annotations

import pytest

import otm
from otm.sequence import (
    BlockVerification,
    DraftSelection,
    Ersd,
    Gsd,
    SpeculativeSampling,
    TraversalVerification,
    ZerothOrder,
    rank_decoders,
)
from otm.trees import TreeShape
from tests.sequence.toys import smooth_models


class TestRanking:
    draft, target = smooth_models(3, 2, 1)

    def test_four_drafted_tokens(self) -> None:
        pairs = TreeShape.sequences(2, 2)
        rows = rank_decoders(
            [
                SpeculativeSampling(4),
                BlockVerification(4),
                DraftSelection(2, 2),
                DraftSelection(2, 2, otm.Optimal()),
                Gsd(pairs),
                Ersd(pairs),
                TraversalVerification(pairs),
            ],
            draft=ZerothOrder([0.5, 0.3, 0.2]),
            target=ZerothOrder([0.2, 0.35, 0.45]),
            context=[],
        )
        efficiencies = [row.block_efficiency for row in rows]
        assert efficiencies == sorted(efficiencies, reverse=True)
        assert {row.num_drafts for row in rows} == {4}
        by_class = {type(row.decoder): row for row in rows}
        assert by_class[BlockVerification].loss == pytest.approx(0, abs=1e-9)
        assert by_class[SpeculativeSampling].loss > 0.01
        assert all(row.loss >= -1e-11 for row in rows)
        # the same drafts
        assert by_class[Gsd].best == pytest.approx(by_class[TraversalVerification].best, abs=1e-9)

    def test_lossy_decoders_are_refused(self) -> None:
        with pytest.raises(otm.errors.Unsupported, match=r"lossy.*divergence_by_position"):
            rank_decoders(
                [SpeculativeSampling(1, otm.Lenience())],
                draft=self.draft,
                target=self.target,
                context=[],
            )
