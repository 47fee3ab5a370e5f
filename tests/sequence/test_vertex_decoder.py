"""SpecTr's draft selection, level by level: who survives a level, and how a step ends."""

import itertools

import numpy as np
import pytest

import otm
from otm.sequence import DraftSelection, DraftTree, Sampled, Step, TableModel, outcomes, step
from otm.trees import TreeShape

EVEN = TableModel({c: [0.5, 0.5] for n in range(3) for c in itertools.product(range(2), repeat=n)})
SURE = (
    TableModel({(): [1.0, 0.0], (0,): [1.0, 0.0]}),
    TableModel({(): [1.0, 0.0], (0,): [0.0, 1.0], (0, 0): [1.0, 0.0]}),
)


@pytest.mark.parametrize(
    ("sequences", "verifier", "models", "survivors"),
    [
        # Equal models: the rule accepts draft 0; draft 2 proposes the same token and survives with
        # it; draft 1 does not. Level 2 holds vertices 4, 5, 6: of 0 and 2 the first is accepted.
        ([[0, 0], [1, 0], [0, 1]], otm.KSeq(), (EVEN, EVEN), {((1, 3), (4,))}),
        # γ = ∞: the rule accepts nothing and Y ~ q; when Y is a draft all the same, that draft
        # survives.
        (
            [[0, 1], [1, 1]],
            otm.KSeq(gamma=float("inf")),
            (EVEN, EVEN),
            {((1,),), ((1,), (3,)), ((2,),), ((2,), (4,))},
        ),
        # Nothing follows a rejection at the last level.
        ([[0, 0], [0, 0]], otm.KSeq(), SURE, {((1, 2),)}),
    ],
)
def test_who_survives(
    sequences,
    verifier,
    models,
    survivors,
):
    """By token equality, whatever the rule accepted."""
    (count, length), (draft, target) = np.shape(sequences), models
    tree = DraftTree(
        TreeShape.sequences(count, length),
        (),
        np.append(-1, np.transpose(sequences)),
        {
            tuple(row[:level]): draft.next(row[:level])
            for row in sequences
            for level in range(length)
        },
    )
    decoder, found = DraftSelection(count, length, verifier), set()
    for one, _ in outcomes(lambda randomness: decoder.verify(tree, target.next, randomness)):
        found.add(one.survivors)
        assert one.stopped == ("end_of_draft" if one.accepted == length else "rejected")
        assert len(one.tokens) == one.accepted + 1 == len(one.survivors) + 1
    assert found == survivors


def test_a_context_is_carried_along():
    model = TableModel({(7, 7): [0.0, 1.0], (7, 7, 1): [1.0, 0.0]})
    decoder = DraftSelection(1, 1, otm.Maximal())
    one = step(decoder, draft=model, target=model, context=[7, 7], randomness=Sampled(0))
    assert one == Step((1, 0), 1, "end_of_draft", ((1,),))
