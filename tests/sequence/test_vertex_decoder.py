"""SpecTr's draft selection: Algorithm 3 by a recursion of its own, and the executed steps
integrated over their uniforms.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection, TransportPlan
from otm.sequence import (
    DraftSelection,
    DraftTree,
    PrefixTree,
    Randomness,
    Sampled,
    SpeculativeSampling,
    Step,
    TableModel,
    completed_law,
    outcomes,
    sequence_law,
    step,
    step_law,
)
from otm.trees import TreeShape
from tests.sequence.toys import distance, outcomes_of, random_models

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
    draft, target = random_models(
        num_tokens, length, np.random.default_rng([9, num_tokens, length])
    )
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


def test_one_sequence_is_speculative_sampling() -> None:
    draft, target = random_models(3, 3, np.random.default_rng(1))
    laws = [
        step_law(decoder, draft=draft, target=target, context=[])
        for decoder in (DraftSelection(1, 3), SpeculativeSampling(3))
    ]
    assert distance(*laws) <= 1e-14


def test_it_is_the_prefix_tree_that_branches_at_the_root() -> None:
    draft, target = random_models(2, 2, np.random.default_rng(2))
    laws = [
        step_law(decoder, draft=draft, target=target, context=[])
        for decoder in (DraftSelection(3, 2), PrefixTree((3, 1)))
    ]
    assert distance(*laws) <= 1e-15


# --- the executed steps, integrated over their uniforms
# -----------------------------------------------------------------------


class Scripted(Sampled):
    """Executes as `Sampled` does, on uniforms that are given one after the other; asking for more
    raises `Exhausted`.
    """

    def __init__(self, script: list[float]) -> None:
        super().__init__(np.random.default_rng(0))
        self._rng = _Script(script)  # type: ignore[assignment]


class Exhausted(Exception):
    """More uniforms were wanted, this many."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class _Script:
    def __init__(self, script: list[float]) -> None:
        self.left = list(script)

    def random(self, size: Any = None) -> Any:
        count = 1 if size is None else int(np.prod(size))
        if len(self.left) < count:
            raise Exhausted(count - len(self.left))
        taken, self.left = self.left[:count], self.left[count:]
        return taken[0] if size is None else np.reshape(taken, size)


def integrated_law(
    draft: TableModel,
    target: TableModel,
    drafts: np.ndarray,
    decoder: DraftSelection,
    edges: np.ndarray,
) -> Law:
    """The law of the executed steps: constant on cells between the edges, so one midpoint per cell
    integrates it exactly.
    """
    ends = np.unique(np.concatenate([[0.0], edges[(edges > 0) & (edges < 1)], [1.0]]))
    cells = [(0.5 * (a + b), b - a) for a, b in itertools.pairwise(ends)]
    law: Law = defaultdict(float)
    tree = tree_of(drafts, draft)

    def extend(script: list[float], volume: float) -> None:
        try:
            one = decoder.verify(tree, target.next, Scripted(script))
        except Exhausted as more:
            for chosen in itertools.product(cells, repeat=more.count):
                extend(
                    [*script, *(middle for middle, _ in chosen)],
                    volume * float(np.prod([size for _, size in chosen])),
                )
            return
        law[one.tokens] += volume

    extend([], 1.0)
    return law


def test_the_executed_steps_have_the_law_of_the_recursion() -> None:
    """Exactly: every number that a uniform is compared with is an edge, accept probabilities and
    cumulative sums alike.
    """
    draft = TableModel({(): [0.5, 0.5], (0,): [0.75, 0.25], (1,): [0.5, 0.5]})
    target = TableModel(
        {
            (): [0.25, 0.75],
            (0,): [0.5, 0.5],
            (1,): [0.5, 0.5],
            **{c: [0.25, 0.75] for c in itertools.product(range(2), repeat=2)},
        }
    )
    decoder = DraftSelection(2, 2, RecursiveRejection())
    # Ratios: ½ at the root, ⅔ after 0; all residuals are points; targets cut at ¼ and ½. Nothing
    # else occurs.
    edges = np.array([1 / 4, 1 / 2, 2 / 3])
    for drafts in ([[0, 0], [0, 1]], [[0, 0], [1, 1]]):
        table = np.array(drafts)
        wanted = kernel_law(draft, target, table, RecursiveRejection())
        found = integrated_law(draft, target, table, decoder, edges)
        assert sum(found.values()) == pytest.approx(1, abs=1e-13)
        for tokens in wanted.keys() | found.keys():
            assert found.get(tokens, 0.0) == pytest.approx(wanted.get(tokens, 0.0), abs=1e-13), (
                drafts,
                tokens,
            )


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

    def test_selection_stops_when_none_is_left_without_a_bonus(self) -> None:
        draft = TableModel({(): [1.0, 0.0], (0,): [1.0, 0.0]})
        target = TableModel({(): [0.0, 1.0], (0,): [0.5, 0.5], (0, 0): [0.5, 0.5]})
        assert verdicts([[0, 0]], DraftSelection(1, 2), draft, target) == [
            Step((1,), 0, "rejected")
        ]

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

    def test_equal_models_accept_everything(self) -> None:
        model, _ = random_models(3, 4, np.random.default_rng(6))
        randomness: Randomness = Sampled(np.random.default_rng(0))
        for _ in range(20):
            one = step(
                DraftSelection(4, 4), draft=model, target=model, context=[], randomness=randomness
            )
            assert one.accepted == 4
            assert one.stopped == "end_of_draft"
