"""Decoders ranked against the best step, and delayed expansions by their speed."""

import pytest

import otm
from otm.sequence import (
    BlockVerification,
    DraftSelection,
    Ersd,
    GreedyMultipath,
    Gsd,
    MarkovModel,
    SpeculativeSampling,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    delayed_expansions,
    expected_step,
    rank_decoders,
    step_law,
)
from otm.trees import TreeShape
from tests.sequence.toys import asked


def test_four_drafted_tokens():
    pairs = TreeShape.sequences(2, 2)
    models = asked((ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.35, 0.45])))
    sampling, block, gsd, traversal, beam = listed = [
        SpeculativeSampling(4),
        BlockVerification(4),
        Gsd(pairs),
        TraversalVerification(pairs),
        StochasticBeam(2, 2),  # whose law is enumerated
    ]
    rows = rank_decoders([*listed, DraftSelection(2, 2), Ersd(pairs)], **models)
    efficiencies = [row.block_efficiency for row in rows]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert {row.num_drafts for row in rows} == {4}
    assert all(row.loss >= -1e-11 for row in rows)
    found = {row.decoder: row for row in rows}
    assert found[block].loss == pytest.approx(0, abs=1e-9)
    assert found[sampling].loss > 0.01
    # the same drafts
    assert found[gsd].best == pytest.approx(found[traversal].best, abs=1e-9)
    assert found[beam].block_efficiency == step_law(beam, **models).block_efficiency
    with pytest.raises(otm.errors.Unsupported, match=r"lossy.*divergence_by_position"):
        rank_decoders([SpeculativeSampling(1, otm.Lenience())], **models)


MODELS = asked(
    (MarkovModel([[0.0, 1.0], [0.75, 0.25]]), MarkovModel([[0.0, 1.0], [0.25, 0.75]])), [0]
)


def multipath(stem, branches, length):
    return GreedyMultipath(branches, length, stem)


def by_vertex(stem, branches, length):
    return TreeVerification(TreeShape.delayed(stem, branches, length), otm.IID(1), otm.Optimal())


def test_every_shape_within_the_budget_once():
    found = delayed_expansions(multipath, **MODELS, num_nodes=5)
    shapes = [(one.stem, one.num_branches, one.length) for one in found]
    wanted = [
        (s, k, n) for s in range(5) for k in range(2, 6) for n in range(1, 3) if s + k * n <= 5
    ]
    assert sorted(shapes) == sorted(wanted + [(0, 1, n) for n in range(1, 6)])
    # Free drafts: the fastest first, a chain.
    assert [one.speed for one in found] == sorted((one.tokens for one in found), reverse=True)
    assert shapes[0] == (0, 1, 5)
    chain = expected_step(BlockVerification(5), **MODELS)
    assert found[0].tokens == pytest.approx(chain.block_efficiency, abs=1e-14)


@pytest.mark.parametrize("make", [multipath, by_vertex])
def test_where_the_models_agree_first_it_pays_to_branch_late(make):
    """The first token is certain; of three drafts after it one is a 1 with 1 − (3/4)³ = 37/64, of
    3/4 wanted, and 0 has its 1/4.
    """
    best = delayed_expansions(make, **MODELS, num_nodes=4, draft_cost=0.1)[0]
    assert (best.stem, best.num_branches, best.length) == (1, 3, 1)
    assert best.tokens == pytest.approx(1 + 1 + 37 / 64 + 1 / 4, abs=1e-14)
    assert best.speed == pytest.approx(best.tokens / 1.2, abs=1e-14)
