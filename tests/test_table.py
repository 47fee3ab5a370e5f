"""The table against the verbs that it shares work between, on every array kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm import table as module
from otm.table import DESCRIPTIONS, TableColumn, acceptance_table, table_columns
from tests import strategies
from tests.conftest import Backend
from tests.tolerance import rounding

VERIFIERS = {
    "kseq": otm.KSeq(),
    "recursive_rejection": otm.RecursiveRejection(),
    "naive_tree": otm.NaiveTree(),
    "naive": otm.Naive(),
    "list_race_rule": otm.ListRace(),
    "maximal": otm.Maximal(),
    "race": otm.Race(),
    "minhash": otm.MinHash(),
    "minhash_rule": otm.MinHash(),
    "greedy_optimal": otm.GreedyOptimal(),
    "spechub": otm.SpecHub(),
    "lenience": otm.Lenience(),
    "typical_acceptance": otm.TypicalAcceptance(),
    "fuzzy": otm.Fuzzy(),
}
LAWS = {"IID": otm.IID, "Greedy": otm.Greedy, "Deterministic": otm.Deterministic, "WithoutReplacement": otm.WithoutReplacement}
SUFFIX = {"IID": "iid", "Greedy": "greedy", "Deterministic": "deterministic", "WithoutReplacement": "without_replacement"}

# Values that the table leaves out, because they take more than a few passes per k.
TOO_EXPENSIVE = {
    ("Optimal", "IID"),  # at its default the optimum itself: the column "optimum"
    ("Naive", "WithoutReplacement"),
    ("Race", "WithoutReplacement"),
    ("Mentored", "IID"),
}


def wanted(column: TableColumn, draft: object, target: object) -> np.ndarray:
    """One column by the verb that users would call."""
    problem = otm.Problem(draft=draft, target=target, law=LAWS[column.law](column.k))
    stem = column.name.removesuffix(f"_{SUFFIX[column.law]}_k{column.k}")
    if stem == "optimum":
        return otm.optimal_acceptance(problem)
    if stem == "poisson_representation_lower":
        return otm.poisson_representation_lower(problem)
    return otm.acceptance(VERIFIERS[stem], problem, by="rule" if column.definition == "rule" else "membership")


@given(strategies.pairs(min_tokens=1, max_tokens=6), st.integers(1, 4))
def test_every_column_is_what_the_verbs_say(pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
    draft, target = pair
    ks = sorted({1, min(k, len(draft))})
    table = acceptance_table(draft=np.stack([draft, target]), target=np.stack([target, draft]), k=ks)
    gate = otm.acceptance(otm.Fuzzy(), otm.Problem(draft=draft, target=target, law=otm.IID(1)))
    assert table.values.shape == (len(table.columns), 2)
    for column in table.columns:
        values = [float(wanted(column, *sides)) for sides in ((draft, target), (target, draft))]
        np.testing.assert_allclose(table[column.name], values, atol=4 * rounding(len(draft), k), rtol=0, err_msg=column.name)
    assert gate in (1.0, float(table["fuzzy_iid_k1"][0])) or abs(gate - float(table["fuzzy_iid_k1"][0])) < 1e-14


@given(strategies.pairs(max_tokens=6))
def test_descriptions(pair: tuple[np.ndarray, np.ndarray]) -> None:
    draft, target = pair
    table = acceptance_table(draft=draft, target=target, k=[1])
    # Σ of at most 6 terms, each x log x with |log x| ≤ 745: 6·745·2^-52.
    near = {"rtol": 1e-12, "atol": 6 * 745 * 2.0**-52}
    np.testing.assert_allclose(table.description["tv"], otm.total_variation(draft=draft, target=target), **near)
    np.testing.assert_allclose(table.description["kl_target_draft"], otm.kl_divergence(draft=draft, target=target), **near)
    np.testing.assert_allclose(table.description["kl_draft_target"], otm.kl_divergence(draft=target, target=draft), **near)
    for name, mass in (("draft_entropy", draft), ("target_entropy", target)):
        live = mass[mass > 0]
        np.testing.assert_allclose(table.description[name], -(live * np.log(live)).sum(), **near)
    assert tuple(table.description) == DESCRIPTIONS


def test_every_kind_of_array(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    draft, target = (otm.dirichlet(300, rng=rng, rows=4, concentration=0.3) for _ in range(2))
    draft[0], target[1] = otm.uniform(5, vocabulary=300), otm.uniform(5, vocabulary=300)
    plain = acceptance_table(draft=draft, target=target, k=(1, 2, 7))
    table = acceptance_table(draft=backend.array(draft), target=backend.array(target), k=(1, 2, 7))
    assert backend.is_own(table.values)
    # Typical acceptance and Fuzzy compare with a threshold, which float32 may cross: no row here is that close to one.
    np.testing.assert_allclose(backend.numpy(table.values), plain.values, atol=10 * backend.tolerance)
    for name in DESCRIPTIONS:
        np.testing.assert_allclose(backend.numpy(table.description[name]), plain.description[name], rtol=1e-4)


def test_rows_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    draft, target = (otm.dirichlet(400, rng=rng, rows=23, concentration=0.2) for _ in range(2))
    whole = acceptance_table(draft=draft, target=target, k=range(1, 9))
    monkeypatch.setattr(module, "_ON_HOST", 3 * 400)
    for step in (1, 7):
        parts = [
            acceptance_table(draft=draft[i : i + step], target=target[i : i + step], k=range(1, 9)) for i in range(0, 23, step)
        ]
        assert np.array_equal(np.concatenate([part.values for part in parts], axis=1), whole.values)


def test_every_verifier_that_takes_a_batch_has_a_column() -> None:
    """A new verifier with a batched closed form must appear in the table, or be named above with a reason."""
    rng = np.random.default_rng(2)
    draft, target = (otm.dirichlet(5, rng=rng, rows=2) for _ in range(2))
    known = {(type(v).__name__, law) for stem, v in VERIFIERS.items() for law in LAWS if f"{stem}_{SUFFIX[law]}" in stems()}
    for make in otm.VERIFIERS:
        for law in LAWS:
            for k in (1, 2):
                if not make().supports(LAWS[law](k)) or (type(make()).__name__, law) in TOO_EXPENSIVE:
                    continue
                problem = otm.Problem(draft=draft, target=target, law=LAWS[law](k))
                try:
                    otm.acceptance(make(), problem)
                except (otm.ShapeMismatch, otm.TooLarge):
                    continue
                # Race under IID(1) and the first stages of other laws at k = 1 are the same numbers under another name.
                assert (type(make()).__name__, law) in known or k == 1, (make, law)


def stems() -> set[str]:
    return {column.name.rsplit("_k", 1)[0] for column in table_columns((1, 2))}


def test_optima_are_named_and_not_exceeded() -> None:
    rng = np.random.default_rng(3)
    draft, target = (otm.dirichlet(50, rng=rng, rows=20, concentration=0.3) for _ in range(2))
    table = acceptance_table(draft=draft, target=target, k=(1, 2, 4))
    names = {column.name for column in table.columns}
    for column in table.columns:
        if column.optimum is not None:
            assert column.optimum in names
            assert (table[column.name] <= table[column.optimum] + 1e-14).all(), column.name
        assert column.lossless or column.optimum is None


def test_a_wrong_order_of_the_tokens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant sorts by q instead of q/p: the comparison with the verbs must fail for everything that reads the order."""
    rng = np.random.default_rng(4)
    draft, target = (otm.dirichlet(20, rng=rng, rows=3) for _ in range(2))
    right = acceptance_table(draft=draft, target=target, k=(1, 3))
    monkeypatch.setattr(module.groups.cut, "descending_ratio_order", lambda p, q: np.argsort(-q, axis=-1))
    wrong = acceptance_table(draft=draft, target=target, k=(1, 3))
    for name in ("optimum_iid_k3", "kseq_iid_k3", "recursive_rejection_iid_k3", "list_race_rule_iid_k3", "race_iid_k1"):
        assert np.abs(right[name] - wrong[name]).max() > 1e-3, name


def test_impossible_requests() -> None:
    with pytest.raises(otm.InvalidParameter, match="k"):
        acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[3])
    with pytest.raises(otm.InvalidParameter, match="empty"):
        acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[])
    with pytest.raises(otm.InvalidDistribution):
        acceptance_table(draft=[0.5, 0.6], target=[0.5, 0.5], k=[1])
    with pytest.raises(otm.InvalidParameter, match="column"):
        acceptance_table(draft=[1.0], target=[1.0], k=[1])["no such"]
