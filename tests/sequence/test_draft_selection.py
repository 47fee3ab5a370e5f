"""SpecTr's draft selection: Theorem 3 by exact enumeration, and the real code integrated exactly over its uniforms."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Maximal, Otm, Problem, RecursiveRejection
from otm.sequence import TableModel, draft_sequences, select_draft
from otm.sequence.draft_selection import num_selection_uniforms

Law = dict[tuple[int, ...], float]
Context = tuple[int, ...]


def random_model(num_tokens: int, depth: int, seed: int) -> TableModel:
    """A next-token table for every context of up to `depth` tokens, some of it with zeros."""
    rng = np.random.default_rng(seed)
    table = {}
    for length in range(depth + 1):
        for context in itertools.product(range(num_tokens), repeat=length):
            mass = otm.dirichlet(num_tokens, rng=rng)
            if rng.random() < 0.2:
                mass = np.where(np.arange(num_tokens) == rng.integers(num_tokens), 0.0, mass)
            table[context] = mass / mass.sum()
    return TableModel(table)


def sequence_probability(model: TableModel, tokens: tuple[int, ...], context: Context = ()) -> float:
    """Π_i model(token_i | context, tokens before)."""
    value = 1.0
    for i, token in enumerate(tokens):
        value *= model.next((*context, *tokens[:i]))[token]
    return value


def all_drafts(model: TableModel, num_tokens: int, length: int, count: int) -> Iterator[tuple[np.ndarray, float]]:
    """Every `(K, L)` table of drafts with its probability under K i.i.d. sequences."""
    sequences = list(itertools.product(range(num_tokens), repeat=length))
    for chosen in itertools.product(sequences, repeat=count):
        mass = float(np.prod([sequence_probability(model, x) for x in chosen]))
        if mass > 0:
            yield np.array(chosen), mass


def kernel_law(draft_model: TableModel, target_model: TableModel, drafts: np.ndarray, verifier: otm.Verifier) -> Law:
    """Algorithm 3 as a recursion over the rule's conditional law: the law of the decoded tokens given the drafts."""
    law: Law = defaultdict(float)
    length = drafts.shape[1]

    def walk(decoded: tuple[int, ...], survivors: np.ndarray, mass: float) -> None:
        level = len(decoded)
        if level == length:
            for token, share in enumerate(target_model.next(decoded)):
                law[(*decoded, token)] += mass * share
            return
        problem = Problem(draft=draft_model.next(decoded), target=target_model.next(decoded), law=IID(len(survivors)))
        proposals = drafts[survivors, level]
        accepted, residual = otm.prepare(verifier, problem).split(proposals[None])
        for token, share in enumerate((accepted + residual)[0]):
            if share <= 0:
                continue
            agreeing = survivors[proposals == token]
            if len(agreeing):
                walk((*decoded, token), agreeing, mass * share)
            else:
                law[(*decoded, token)] += mass * share

    walk((), np.arange(len(drafts)), 1.0)
    return law


def completed(law: Law, target_model: TableModel, num_tokens: int, length: int) -> np.ndarray:
    """The law of the first `length` tokens when the decoded ones are followed by samples from the target."""
    table = np.zeros((num_tokens,) * length)
    for tokens, mass in law.items():
        for rest in itertools.product(range(num_tokens), repeat=max(0, length - len(tokens))):
            table[(*tokens, *rest)[:length]] += mass * sequence_probability(target_model, rest, tokens)
    return table


def target_table(target_model: TableModel, num_tokens: int, length: int) -> np.ndarray:
    sequences = itertools.product(range(num_tokens), repeat=length)
    return np.array([sequence_probability(target_model, x) for x in sequences]).reshape((num_tokens,) * length)


@pytest.mark.parametrize("verifier", [KSeq(), KSeq(gamma=3.0), RecursiveRejection(), Otm()], ids=repr)
@pytest.mark.parametrize(("num_tokens", "length", "count"), [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3)])
def test_theorem_3_by_enumeration(verifier: otm.Verifier, num_tokens: int, length: int, count: int) -> None:
    """The output, followed by target samples up to L + 1 tokens, has exactly the target's law."""
    draft_model, target_model = random_model(num_tokens, length, 1), random_model(num_tokens, length, 2)
    total: Law = defaultdict(float)
    for drafts, mass in all_drafts(draft_model, num_tokens, length, count):
        for tokens, share in kernel_law(draft_model, target_model, drafts, verifier).items():
            total[tokens] += mass * share
    table = completed(total, target_model, num_tokens, length + 1)
    # Sums of non-negative products of at most K·L + L + 1 probabilities, of total 1: relative error far below 1e-12.
    np.testing.assert_allclose(table, target_table(target_model, num_tokens, length + 1), atol=1e-12)


def test_theorem_3_fails_for_a_lossy_rule() -> None:
    """Power: the same enumeration notices recursive rejection without renormalisation."""
    from tests.mutants import NoRenormalisation

    draft_model, target_model = random_model(3, 2, 1), random_model(3, 2, 2)
    total: Law = defaultdict(float)
    for drafts, mass in all_drafts(draft_model, 3, 2, 2):
        for tokens, share in kernel_law(draft_model, target_model, drafts, NoRenormalisation()).items():
            total[tokens] += mass * share
    assert np.abs(completed(total, target_model, 3, 3) - target_table(target_model, 3, 3)).max() > 1e-3


# --- the real code, integrated over its uniforms ------------------------------------------------------------------------------


def intervals(edges: np.ndarray) -> list[tuple[float, float]]:
    """(midpoint, length) of the pieces of [0, 1) between the edges."""
    ends = np.unique(np.concatenate([[0.0], np.clip(edges, 0, 1), [1.0]]))
    return [(0.5 * (a + b), b - a) for a, b in itertools.pairwise(ends)]


def verification_cells(rule: otm.Rule, proposals: np.ndarray) -> Iterator[tuple[list[float], float]]:
    """Uniforms that stand for every outcome of one verification, with their volumes: the outcome is a step function of them."""
    keep = [rule.keep[x] if rule.keep.ndim == 1 else rule.keep[stage, x] for stage, x in enumerate(proposals)]  # type: ignore[attr-defined]
    columns = [intervals(np.array([value])) for value in keep]
    columns.append(intervals(np.cumsum(rule.residual)))  # type: ignore[attr-defined]
    for cell in itertools.product(*columns):
        yield [middle for middle, _ in cell], float(np.prod([size for _, size in cell]))


def integrated_law(draft_model: TableModel, target_model: TableModel, drafts: np.ndarray, verifier: otm.Verifier) -> Law:
    """The law of `select_draft`'s output over its uniforms: run it once per cell of constancy, level after level."""
    law: Law = defaultdict(float)
    count, length = drafts.shape
    shape = num_selection_uniforms(count, length)

    def descend(uniforms: np.ndarray, level: int, context: Context, survivors: np.ndarray, mass: float) -> None:
        problem = Problem(draft=draft_model.next(context), target=target_model.next(context), law=IID(len(survivors)))
        rule = otm.prepare(verifier, problem)
        for cell, volume in verification_cells(rule, drafts[survivors, level]):
            here = uniforms.copy()
            here[level, : len(cell)] = cell
            found = select_draft(draft_model, target_model, [], drafts, verifier=verifier, uniforms=here)
            if found.accepted == level:  # it stopped here
                law[found.tokens] += mass * volume
            elif level + 1 < length:
                agreeing = survivors[drafts[survivors, level] == found.tokens[level]]
                descend(here, level + 1, found.tokens[: level + 1], agreeing, mass * volume)
            else:
                for middle, size in intervals(np.cumsum(target_model.next(found.tokens[:length]))):
                    here[length - 1, -1] = middle
                    last = select_draft(draft_model, target_model, [], drafts, verifier=verifier, uniforms=here)
                    assert last.accepted == length
                    law[last.tokens] += mass * volume * size

    descend(np.full(shape, 0.5), 0, (), np.arange(count), 1.0)
    return law


@pytest.mark.parametrize("verifier", [KSeq(gamma=3.0), RecursiveRejection()], ids=repr)
def test_select_draft_has_the_law_of_the_recursion(verifier: otm.Verifier) -> None:
    draft_model, target_model = random_model(2, 2, 3), random_model(2, 2, 4)
    for drafts, _ in all_drafts(draft_model, 2, 2, 2):
        if drafts[0].tolist() > drafts[1].tolist():
            continue  # ten of the sixteen tables; every set of survivors at every level is among them
        wanted = kernel_law(draft_model, target_model, drafts, verifier)
        found = integrated_law(draft_model, target_model, drafts, verifier)
        assert sum(found.values()) == pytest.approx(1, abs=1e-13)
        for tokens in wanted.keys() | found.keys():
            assert found.get(tokens, 0.0) == pytest.approx(wanted.get(tokens, 0.0), abs=1e-13), (drafts.tolist(), tokens)


def test_draft_sequences_have_the_law_of_the_model() -> None:
    """Exact: inverse-CDF sampling is a step function, so one midpoint per cell and level integrates it."""
    model = random_model(3, 2, 5)
    law: Law = defaultdict(float)
    for first, size in intervals(np.cumsum(model.next(()))):
        for second, share in intervals(np.cumsum(model.next(draft_sequences(model, [], uniforms=np.array([[first]]))[0]))):
            tokens = draft_sequences(model, [], uniforms=np.array([[first, second]]))[0]
            law[tuple(tokens.tolist())] += size * share
    for tokens in itertools.product(range(3), repeat=2):
        assert law.get(tokens, 0.0) == pytest.approx(sequence_probability(model, tokens), abs=1e-14)


# --- what happens level by level ----------------------------------------------------------------------------------------------

EVEN = {(): [0.5, 0.5], (0,): [0.5, 0.5], (1,): [0.5, 0.5], (0, 0): [0.1, 0.9], (0, 1): [0.1, 0.9], (1, 0): [0.1, 0.9]}


class TestSurvivors:
    def test_agree_by_token_equality_whatever_the_rule_accepted(self) -> None:
        # The rule accepts draft 0; draft 2 proposes the same token and survives with it; draft 1 does not.
        model = TableModel(EVEN)
        drafts = [[0, 0], [1, 0], [0, 1]]
        found = select_draft(model, model, [], drafts, verifier=KSeq(), uniforms=np.full((2, 5), 0.25))
        first, second = found.rounds
        assert (first.context, first.survivors, first.proposals, first.output) == ((), (0, 1, 2), (0, 1, 0), 0)
        assert (second.context, second.survivors, second.proposals) == ((0,), (0, 2), (0, 1))
        assert first.accepted_by_rule

    def test_include_those_that_a_residual_draw_hits_by_luck(self) -> None:
        # γ = ∞: the rule accepts nothing and Y ~ q; when Y is a draft all the same, that draft survives.
        model = TableModel(EVEN)
        found = select_draft(
            model, model, [], [[0, 1], [1, 1]], verifier=KSeq(gamma=float("inf")), uniforms=np.array([[0.9, 0.9, 0.1, 0.5]] * 2)
        )
        assert not found.rounds[0].accepted_by_rule
        assert found.rounds[0].output == 0
        assert found.rounds[1].survivors == (0,)

    def test_selection_stops_when_none_is_left_without_a_bonus(self) -> None:
        draft_model = TableModel({(): [1.0, 0.0], (0,): [1.0, 0.0]})
        target_model = TableModel({(): [0.0, 1.0]})  # no other context is ever asked for
        found = select_draft(draft_model, target_model, [], [[0, 0]], verifier=KSeq(), uniforms=np.full((2, 3), 0.5))
        assert found.tokens == (1,)
        assert found.accepted == 0
        assert len(found.rounds) == 1

    def test_no_bonus_after_a_rejection_at_the_last_level(self) -> None:
        draft_model = TableModel({(): [1.0, 0.0], (0,): [1.0, 0.0]})
        target_model = TableModel({(): [1.0, 0.0], (0,): [0.0, 1.0]})
        found = select_draft(draft_model, target_model, [], [[0, 0], [0, 0]], verifier=KSeq(), uniforms=np.full((2, 4), 0.5))
        assert found.tokens == (0, 1)
        assert found.accepted == 1

    def test_the_bonus_comes_from_the_target_and_the_last_column(self) -> None:
        model = TableModel(EVEN)
        uniforms = np.full((2, 3), 0.01)
        for last, token in ((0.05, 0), (0.5, 1)):
            uniforms[1, -1] = last
            found = select_draft(model, model, [], [[0, 0]], verifier=RecursiveRejection(), uniforms=uniforms)
            assert found.tokens == (0, 0, token)
            assert found.accepted == 2

    def test_a_context_is_carried_along(self) -> None:
        model = TableModel({(7, 7): [0.0, 1.0], (7, 7, 1): [1.0, 0.0]})
        found = select_draft(model, model, [7, 7], [[1]], verifier=Maximal(), uniforms=np.zeros((1, 3)))
        assert found.tokens == (1, 0)
        assert found.rounds[0].context == (7, 7)

    def test_equal_models_accept_everything(self) -> None:
        model = random_model(3, 4, 6)
        rng = np.random.default_rng(0)
        for _ in range(20):
            drafts = draft_sequences(model, [], uniforms=rng.random((4, 4)))
            found = select_draft(model, model, [], drafts, verifier=KSeq(), uniforms=rng.random(num_selection_uniforms(4, 4)))
            assert found.accepted == 4
            assert len(found.tokens) == 5
            assert found.tokens[:4] in {tuple(row) for row in drafts.tolist()}


class TestErrors:
    model = TableModel(EVEN)

    @pytest.mark.parametrize(
        ("drafts", "value"),
        [
            ([0, 1], "(2,)"),
            ([[]], "(1, 0)"),
            (np.zeros((0, 2), dtype=int), "(0, 2)"),
            ([[0.0, 1.0]], "(1, 2)"),
            ([[[0]]], "(1, 1, 1)"),
        ],
    )
    def test_drafts(self, drafts: object, value: str) -> None:
        with pytest.raises(otm.InvalidParameter) as caught:
            select_draft(self.model, self.model, [], drafts, verifier=KSeq(), uniforms=np.zeros((2, 4)))
        assert "integer tokens (K, L) with K, L ≥ 1" in str(caught.value)
        assert value in str(caught.value)
        assert "Stack them" in str(caught.value)

    @pytest.mark.parametrize("drafts", [[[0, 0], [0, 2]], [[2, 0], [0, 0]], [[-1, 0], [0, 0]]])
    def test_tokens_outside_the_vocabulary(self, drafts: object) -> None:
        with pytest.raises(otm.InvalidParameter, match=r"vocabulary|lie in"):
            select_draft(self.model, self.model, [], drafts, verifier=KSeq(), uniforms=np.full((2, 4), 0.25))

    @pytest.mark.parametrize("shape", [(1, 4), (2, 3), (8,), (2, 4, 1)])
    def test_uniforms(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(otm.InvalidParameter) as caught:
            select_draft(self.model, self.model, [], [[0, 0], [1, 1]], verifier=KSeq(), uniforms=np.zeros(shape))
        assert "at least shape (2, 4)" in str(caught.value)
        assert str(shape) in str(caught.value)
        assert "num_selection_uniforms" in str(caught.value)

    @pytest.mark.parametrize("shape", [(3,), (0, 2), (2, 0), (1, 1, 1)])
    def test_uniforms_of_the_drafter(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(otm.InvalidParameter) as caught:
            draft_sequences(self.model, [], uniforms=np.zeros(shape))
        assert "(K, L) with K, L ≥ 1" in str(caught.value)
        assert str(shape) in str(caught.value)
        assert "rng.random((K, L))" in str(caught.value)

    def test_a_verifier_for_fewer_drafts(self) -> None:
        with pytest.raises(otm.Unsupported, match=r"Maximal\(\).*IID\(k=2\)"):
            select_draft(self.model, self.model, [], [[0], [1]], verifier=Maximal(), uniforms=np.zeros((1, 4)))

    def test_verifiers_that_share_randomness_with_the_drafter(self) -> None:
        for cls in otm.VERIFIERS:
            verifier = cls()
            if not verifier.supports(IID(2)):
                continue
            rule = otm.prepare(verifier, Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=IID(2)))
            if isinstance(rule, otm.Conditional):
                continue
            with pytest.raises(otm.Unsupported, match="shared randomness"):
                select_draft(self.model, self.model, [], [[0], [1]], verifier=verifier, uniforms=np.zeros((1, 4)))

    def test_a_model_that_returns_no_distribution(self) -> None:
        class Broken:
            def next(self, context: object) -> np.ndarray:
                return np.array([0.7, 0.7])

        with pytest.raises(
            otm.InvalidDistribution, match=r"After context \(\): the draft model's next-token distribution must sum"
        ):
            select_draft(Broken(), self.model, [], [[0]], verifier=KSeq(), uniforms=np.zeros((1, 3)))
        with pytest.raises(otm.InvalidDistribution, match=r"After context \(5,\).*draft"):
            draft_sequences(Broken(), [5], uniforms=np.zeros((1, 1)))

    def test_a_model_that_returns_a_batch(self) -> None:
        batch = TableModel({(): [[0.5, 0.5]]})
        with pytest.raises(otm.InvalidDistribution, match=r"one distribution \(V,\) per context; it returned shape \(1, 2\)"):
            draft_sequences(batch, [], uniforms=np.zeros((1, 1)))

    def test_models_with_different_vocabularies(self) -> None:
        other = TableModel({(): [0.5, 0.25, 0.25]})
        with pytest.raises(otm.ShapeMismatch, match="share one vocabulary"):
            select_draft(self.model, other, [], [[0]], verifier=KSeq(), uniforms=np.zeros((1, 3)))

    def test_tables(self) -> None:
        with pytest.raises(otm.InvalidDistribution, match=r"entry \(0,\) must sum to 1"):
            TableModel({(): [0.5, 0.5], (0,): [0.5, 0.6]})
        with pytest.raises(otm.InvalidParameter, match=r"one of the 6 in the table; \(1, 1\) is not. Capture it"):
            self.model.next([1, 1])

    @pytest.mark.parametrize(("count", "length"), [(0, 1), (1, 0), (2.5, 1), (True, 1)])
    def test_counts(self, count: object, length: object) -> None:
        with pytest.raises(otm.InvalidParameter, match="must be an integer of at least 1"):
            num_selection_uniforms(count, length)  # type: ignore[arg-type]
