"""SpecTr's draft selection: Algorithm 3 by a recursion of its own, and the executed steps
integrated over their uniforms.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection, TransportPlan
from otm.sequence import (
    DraftSelection,
    DraftTree,
    Sampled,
    Step,
    TableModel,
    completed_law,
    outcomes,
    sequence_law,
    step,
    step_law,
)
from otm.trees import TreeShape
from tests.sequence.toys import outcomes_of, smooth_models

Law = dict[tuple[int, ...], float]


def tree_of(drafts: np.ndarray, draft_model: TableModel) -> DraftTree:
    """The tree that holds these draft sequences `(K, L)`, numbered level by level as
    `TreeShape.sequences` has them.
    """
    count, length = drafts.shape
    tokens = np.concatenate([[-1], drafts.T.reshape(-1)])
    contexts = {tuple(row[:level]) for row in drafts.tolist() for level in range(length)}
    return DraftTree(
        TreeShape.sequences(count, length),
        (),
        tokens,
        draft={c: draft_model.next(c) for c in contexts},
    )


def kernel_law(
    draft_model: TableModel, target_model: TableModel, drafts: np.ndarray, verifier: otm.Verifier
) -> Law:
    """Algorithm 3 as a recursion over the rule's conditional law: the law of the decoded tokens
    given the drafts.
    """
    law: Law = defaultdict(float)
    length = drafts.shape[1]

    def walk(decoded: tuple[int, ...], survivors: np.ndarray, mass: float) -> None:
        level = len(decoded)
        if level == length:
            for token, share in enumerate(target_model.next(decoded)):
                law[(*decoded, token)] += mass * share
            return
        problem = Problem(
            draft=draft_model.next(decoded),
            target=target_model.next(decoded),
            law=IID(len(survivors)),
        )
        proposals = drafts[survivors, level]
        accepted, residual = otm.prepare(verifier, problem).split(proposals[None])  # type: ignore[attr-defined]
        for token, share in enumerate((accepted + residual)[0]):
            agreeing = survivors[proposals == token]
            if share > 0 and len(agreeing):
                walk((*decoded, token), agreeing, mass * share)
            elif share > 0:
                law[(*decoded, token)] += mass * share

    walk((), np.arange(len(drafts)), 1.0)
    return law


def all_drafts(model: TableModel, length: int, count: int) -> Iterator[tuple[np.ndarray, float]]:
    """Every `(K, L)` table of drafts with its probability under K i.i.d. sequences."""
    joint = sequence_law(model, [], length)
    sequences = list(itertools.product(range(model.num_tokens), repeat=length))
    for chosen in itertools.product(sequences, repeat=count):
        mass = float(np.prod([joint[x] for x in chosen]))
        if mass > 0:
            yield np.array(chosen), mass


@pytest.mark.parametrize(
    "verifier", [KSeq(), KSeq(gamma=3.0), RecursiveRejection(), TransportPlan()], ids=repr
)
@pytest.mark.parametrize(("num_tokens", "length", "count"), [(2, 2, 2), (3, 1, 3), (2, 1, 3)])
def test_the_step_law_is_that_of_the_recursion(
    verifier: otm.Verifier, num_tokens: int, length: int, count: int
) -> None:
    draft, target = smooth_models(num_tokens, length, 9)  # nothing agrees by accident
    total: Law = defaultdict(float)
    for drafts, mass in all_drafts(draft, length, count):
        for tokens, share in kernel_law(draft, target, drafts, verifier).items():
            total[tokens] += mass * share
    law = step_law(DraftSelection(count, length, verifier), draft=draft, target=target, context=[])
    found: Law = defaultdict(float)
    for (tokens, accepted), mass in outcomes_of(law).items():
        assert accepted == len(tokens) - 1
        found[tokens] += mass
    for tokens in total.keys() | found.keys():
        assert found[tokens] == pytest.approx(total[tokens], abs=1e-14)
    # SpecTr, Theorem 3.
    completed = completed_law(law, target=target, context=[], length=length + 1)
    np.testing.assert_allclose(completed, sequence_law(target, [], length + 1), atol=1e-13)


# --- the executed steps, integrated over their uniforms
# -----------------------------------------------------------------------


# --- what happens level by level
# ----------------------------------------------------------------------------------------------

EVEN = TableModel({c: [0.5, 0.5] for n in range(3) for c in itertools.product(range(2), repeat=n)})


def verdicts(
    drafts: list[list[int]], decoder: DraftSelection, draft: TableModel, target: TableModel
) -> list[Step]:
    tree = tree_of(np.array(drafts), draft)
    return [
        one for one, _ in outcomes(lambda randomness: decoder.verify(tree, target.next, randomness))
    ]


class TestSurvivors:
    def test_agree_by_token_equality_whatever_the_rule_accepted(self) -> None:
        # Equal models: the rule accepts draft 0; draft 2 proposes the same token and survives with
        # it; draft 1 does not.
        found = verdicts([[0, 0], [1, 0], [0, 1]], DraftSelection(3, 2), EVEN, EVEN)
        assert {one.survivors[0] for one in found} == {(1, 3)}
        # Level 2 holds vertices 4, 5, 6: of sequences 0 and 2 the first is accepted.
        assert {one.survivors[1] for one in found} == {(4,)}
        assert {one.tokens for one in found} == {(0, 0, 0), (0, 0, 1)}

    def test_include_those_that_a_residual_draw_hits_by_luck(self) -> None:
        # γ = ∞: the rule accepts nothing and Y ~ q; when Y is a draft all the same, that draft
        # survives.
        found = verdicts(
            [[0, 1], [1, 1]], DraftSelection(2, 2, KSeq(gamma=float("inf"))), EVEN, EVEN
        )
        assert {one.survivors[:1] for one in found} == {((1,),), ((2,),)}

    def test_no_bonus_after_a_rejection_at_the_last_level(self) -> None:
        draft = TableModel({(): [1.0, 0.0], (0,): [1.0, 0.0]})
        target = TableModel({(): [1.0, 0.0], (0,): [0.0, 1.0], (0, 0): [1.0, 0.0]})
        found = verdicts([[0, 0], [0, 0]], DraftSelection(2, 2), draft, target)
        assert found == [Step((0, 1), 1, "rejected", ((1, 2),))]

    def test_a_context_is_carried_along(self) -> None:
        model = TableModel({(7, 7): [0.0, 1.0], (7, 7, 1): [1.0, 0.0]})
        one = step(
            DraftSelection(1, 1, Maximal()),
            draft=model,
            target=model,
            context=[7, 7],
            randomness=Sampled(np.random.default_rng(0)),
        )
        assert one == Step((1, 0), 1, "end_of_draft", ((1,),))
