"""The table against the verbs that it shares work between, on every array kind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import otm
from otm._numba import code_path
from otm.overlap import OverlapCurve
from otm.table import TableColumn, acceptance_table, arrays, table as module, table_columns
from otm.table.table import DESCRIPTIONS
from tests import strategies
from tests.conftest import Backend
from tests.overlap.instances import problems
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
LAWS = {
    "IID": otm.IID,
    "Greedy": otm.Greedy,
    "TopK": otm.TopK,
    "WithoutReplacement": otm.WithoutReplacement,
}
SUFFIX = {
    "IID": "iid",
    "Greedy": "greedy",
    "TopK": "top_k",
    "WithoutReplacement": "without_replacement",
}

WAYS = ("compiled", "groups")


@contextlib.contextmanager
def by(way: str) -> Iterator[None]:
    """Compute tables on the host by compiled rows or, as where numba is not installed, by NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "groups":
            patch.setattr(module, "compiled", lambda _: None)
        else:
            assert module.compiled("otm.table.compiled.driver") is not None
        yield


def wanted(column: TableColumn, draft: object, target: object) -> np.ndarray:
    """One column by the verb that users would call."""
    problem = otm.Problem(draft=draft, target=target, law=LAWS[column.law](column.k))
    stem = column.name.removesuffix(f"_{SUFFIX[column.law]}_k{column.k}")
    if stem == "optimum":
        return otm.optimal_acceptance(problem)
    if stem == "poisson_representation_lower":
        return otm.bounds.poisson_representation_lower(problem)
    return otm.acceptance(
        VERIFIERS[stem], problem, by="rule" if column.definition == "rule" else "membership"
    )


@pytest.mark.parametrize("way", WAYS)
@given(strategies.pairs(min_tokens=1, max_tokens=6), st.integers(1, 4))
def test_every_column_is_what_the_verbs_say(
    way: str, pair: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    draft, target = pair
    ks = sorted({1, min(k, len(draft))})
    with by(way):
        table = acceptance_table(
            draft=np.stack([draft, target]), target=np.stack([target, draft]), k=ks
        )
    gate = otm.acceptance(otm.Fuzzy(), otm.Problem(draft=draft, target=target, law=otm.IID(1)))
    assert table.values.shape == (len(table.columns), 2)
    for column in table.columns:
        values = [float(wanted(column, *sides)) for sides in ((draft, target), (target, draft))]
        np.testing.assert_allclose(
            table[column.name],
            values,
            atol=4 * rounding(len(draft), k),
            rtol=0,
            err_msg=column.name,
        )
    assert (
        gate in (1.0, float(table["fuzzy_iid_k1"][0]))
        or abs(gate - float(table["fuzzy_iid_k1"][0])) < 1e-14
    )


@pytest.mark.parametrize("way", WAYS)
@given(strategies.pairs(max_tokens=6))
def test_descriptions(way: str, pair: tuple[np.ndarray, np.ndarray]) -> None:
    draft, target = pair
    with by(way):
        table = acceptance_table(draft=draft, target=target, k=[1])
    # Σ of at most 6 terms, each x log x with |log x| ≤ 745: 6·745·2^-52.
    near = {"rtol": 1e-12, "atol": 6 * 745 * 2.0**-52}
    np.testing.assert_allclose(
        table.description["tv"], otm.divergences.total_variation(draft=draft, target=target), **near
    )
    np.testing.assert_allclose(
        table.description["kl_target_draft"],
        otm.divergences.kl_divergence(draft=draft, target=target),
        **near,
    )
    np.testing.assert_allclose(
        table.description["kl_draft_target"],
        otm.divergences.kl_divergence(draft=target, target=draft),
        **near,
    )
    for name, mass in (("draft_entropy", draft), ("target_entropy", target)):
        live = mass[mass > 0]
        np.testing.assert_allclose(table.description[name], -(live * np.log(live)).sum(), **near)
    assert tuple(table.description) == DESCRIPTIONS


def test_every_kind_of_array(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    draft, target = (
        otm.examples.dirichlet(300, rng=rng, rows=4, concentration=0.3) for _ in range(2)
    )
    draft[0], target[1] = (
        otm.examples.uniform(5, vocabulary=300),
        otm.examples.uniform(5, vocabulary=300),
    )
    plain = acceptance_table(draft=draft, target=target, k=(1, 2, 7))
    table = acceptance_table(draft=backend.array(draft), target=backend.array(target), k=(1, 2, 7))
    assert backend.is_own(table.values)
    # Typical acceptance and Fuzzy compare with a threshold, which float32 may cross: no row here is
    # that close to one.
    np.testing.assert_allclose(
        backend.numpy(table.values), plain.values, atol=10 * backend.tolerance
    )
    for name in DESCRIPTIONS:
        np.testing.assert_allclose(
            backend.numpy(table.description[name]), plain.description[name], rtol=1e-4
        )


@pytest.mark.parametrize("way", WAYS)
def test_rows_do_not_depend_on_their_neighbours(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    draft, target = (
        otm.examples.dirichlet(400, rng=rng, rows=23, concentration=0.2) for _ in range(2)
    )
    # as top-p leaves them
    draft[::2], target[::2] = (
        np.where(a > np.quantile(a, 0.7), a, 0) for a in (draft[::2], target[::2])
    )
    draft, target = draft / draft.sum(-1, keepdims=True), target / target.sum(-1, keepdims=True)
    with by(way):
        whole = acceptance_table(draft=draft, target=target, k=range(1, 9))
        monkeypatch.setattr(module, "_ON_HOST", 3 * 400)
        for step in (1, 7):
            parts = [
                acceptance_table(
                    draft=draft[i : i + step], target=target[i : i + step], k=range(1, 9)
                )
                for i in range(0, 23, step)
            ]
            assert np.array_equal(
                np.concatenate([part.values for part in parts], axis=1), whole.values
            )
            for name in DESCRIPTIONS:
                assert np.array_equal(
                    np.concatenate([part.description[name] for part in parts]),
                    whole.description[name],
                )


def hard_rows(
    kind: str, num_tokens: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Three pairs that are hard on one thing."""
    concentrations = rng.choice([0.003, 0.05, 1.0, 20.0], size=2)
    draft, target = (
        otm.examples.dirichlet(num_tokens, rng=rng, rows=3, concentration=c) for c in concentrations
    )
    if kind == "few tokens with mass":
        draft, target = (np.where(rng.random(a.shape) < 0.5, 0.0, a) for a in (draft, target))
        draft[:, 0] += 1e-9
        target[:, -1] += 1e-9
    elif kind == "equal":
        target = draft.copy()
    elif kind == "equal but for the last bits":
        target = draft * (1 + 1e-13 * rng.standard_normal(draft.shape))
    elif kind == "many equal ratios":
        draft, target = (
            np.round(16 * a) / 16 + 1e-3 * np.eye(num_tokens)[0] for a in (draft, target)
        )
    elif kind == "subnormal draft":
        draft = draft**40 + 1e-300 * np.eye(num_tokens)[0]
    elif kind == "subnormal target":
        target = target**60 + 1e-320 * np.eye(num_tokens)[-1]
    elif kind == "least subnormal on both sides":
        # Halves on both sides: half of the least subnormal is 0.
        draft = np.tile((np.eye(num_tokens)[0] + np.eye(num_tokens)[-1]) / 2, (3, 1))
        draft[:, num_tokens // 2] += 5e-324
        target = draft.copy()
    elif kind == "one draft token":
        draft = np.eye(num_tokens)[rng.integers(0, num_tokens, 3)]
    return draft / draft.sum(-1, keepdims=True), target / target.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "kind",
    [
        "plain",
        "few tokens with mass",
        "equal",
        "equal but for the last bits",
        "many equal ratios",
        "subnormal draft",
        "subnormal target",
        "least subnormal on both sides",
        "one draft token",
    ],
)
def test_compiled_rows_are_what_numpy_says(kind: str) -> None:
    rng = np.random.default_rng(5)
    for num_tokens in (1, 2, 3, 5, 8, 17, 64, 300, 1000):
        for ks in (
            [1, 2, 3, 4, 5, 6, 7, 8],
            sorted({*rng.integers(1, num_tokens + 1, 3).tolist(), num_tokens}),
        ):
            draft, target = hard_rows(kind, num_tokens, rng)
            ks = [k for k in ks if k <= num_tokens]
            tables = []
            for way in WAYS:
                with by(way):
                    tables.append(acceptance_table(draft=draft, target=target, k=ks))
            for column, *values in zip(
                tables[0].columns, *(table.values for table in tables), strict=True
            ):
                np.testing.assert_allclose(
                    *values, rtol=0, atol=rounding(num_tokens, column.k), err_msg=f"{column.name}"
                )
            for name in DESCRIPTIONS:
                np.testing.assert_allclose(
                    *(table.description[name] for table in tables), rtol=1e-12, atol=1e-12
                )


def test_long_compiled_rows_are_what_numpy_says() -> None:
    """Rows of many blocks: stretches of nearly equal match probabilities, moments of small masses,
    blocks that hide no optimum.
    """
    for seed, width in enumerate((1024, 5000)):
        for name, p, q in problems(width, seed):
            for ks in (list(range(1, 9)), [1, 3, 64, 65]):
                tables = []
                for way in WAYS:
                    with by(way):
                        tables.append(acceptance_table(draft=p, target=q, k=ks))
                for column, *values in zip(
                    tables[0].columns, *(table.values for table in tables), strict=True
                ):
                    np.testing.assert_allclose(
                        *values,
                        rtol=0,
                        atol=rounding(width, column.k),
                        err_msg=f"{name} {column.name}",
                    )
                for entry in DESCRIPTIONS:
                    np.testing.assert_allclose(
                        *(table.description[entry] for table in tables), rtol=1e-10, atol=1e-12
                    )


SELECTIONS = (
    ("kseq_iid",),
    ("optimum_iid", "recursive_rejection_iid", "tv"),
    tuple(name for name in module.NAMES if name not in arrays.RACES),
    tuple(name for name in module.NAMES if name not in arrays.RACES | arrays.LOGARITHMIC),
    ("naive_iid", "maximal_iid", "target_entropy"),
    ("race_iid", "spechub_greedy"),
    ("typical_acceptance_iid", "minhash_iid"),
)


@pytest.mark.parametrize("way", WAYS)
def test_a_choice_of_columns_has_the_values_of_all(way: str) -> None:
    """Rows without a sort are held against sorted ones, on short rows, on long ones and on those
    with few tokens alive.
    """
    for width, ks in ((40, [1, 2, 7]), (1024, [1, 2, 64, 65]), (5000, list(range(1, 9)))):
        p, q = (
            np.stack(rows) for rows in zip(*((p, q) for _, p, q in problems(width, 3)), strict=True)
        )
        sparse = np.where(np.random.default_rng(4).random(p.shape) < 0.1, 1.0, 0.0)
        sparse[:, :2] = 1.0
        p, q = (
            np.concatenate([a, otm.normalise(a * sparse + 1e-9 * (sparse > 0))]) for a in (p, q)
        )
        with by(way):
            plain = acceptance_table(draft=p, target=q, k=ks)
            for columns in SELECTIONS:
                table = acceptance_table(draft=p, target=q, k=ks, columns=columns)
                assert table.columns == table_columns(ks, columns=columns)
                assert {column.stem for column in table.columns} == set(columns) - set(DESCRIPTIONS)
                assert tuple(table.description) == tuple(
                    name for name in DESCRIPTIONS if name in columns
                )
                for column in table.columns:
                    np.testing.assert_allclose(
                        table[column.name],
                        plain[column.name],
                        rtol=0,
                        atol=rounding(width, column.k),
                        err_msg=column.name,
                    )
                for name, values in table.description.items():
                    np.testing.assert_allclose(
                        values, plain.description[name], rtol=1e-12, atol=1e-12
                    )


def test_the_gate_of_fuzzy_is_decided_as_by_logarithms() -> None:
    """Pairs on both sides of the threshold, near enough that the series leaves them open, and pairs
    far from it.
    """
    rng = np.random.default_rng(7)
    draft = otm.examples.dirichlet(50, rng=rng, rows=400, concentration=0.5)
    away = otm.examples.dirichlet(50, rng=rng, rows=400, concentration=0.5)
    target = draft + np.linspace(0, 1, 400)[:, None] * (away - draft)
    gates = []
    for way in WAYS:
        with by(way):
            gates.append(acceptance_table(draft=draft, target=target, k=[1])["fuzzy_iid_k1"])
    np.testing.assert_allclose(*gates, rtol=0, atol=rounding(50, 1))
    assert 50 < (gates[0] == 1).sum() < 350


@pytest.mark.long  # compiles everything
def test_a_process_that_compiles_computes_what_later_ones_do(tmp_path: Path) -> None:
    """To the last bit: a run whose first shard came from the first kind and whose second came from
    the other is one run.
    """
    code = (
        "import hashlib, numpy as np, otm\n"
        "rng = np.random.default_rng(0)\n"
        "p, q = (otm.examples.dirichlet(2000, rng=rng, rows=20, concentration=0.3) for _ in "
        "range(2))\n"
        "table = otm.acceptance_table(draft=p, target=q, k=(1, 2, 3, 4, 8, 70))\n"
        "parts = [table.values, *table.description.values()]\n"
        "print(hashlib.sha256(b''.join(np.ascontiguousarray(part).tobytes() for part in "
        "parts)).hexdigest())\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert any(tmp_path.rglob("*.nbc"))
    assert digests[0] == digests[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_threads_change_no_bit(way: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of the batch are cut without regard to their number; each row is worked on alone."""
    monkeypatch.setattr(module, "_ON_HOST", 1 << 13)  # pieces of four rows
    rng = np.random.default_rng(11)
    draft, target = (
        otm.examples.dirichlet(2000, rng=rng, rows=22, concentration=0.3) for _ in range(2)
    )
    with by(way):
        tables = [
            acceptance_table(draft=kind(draft), target=kind(target), k=[1, 2, 9], threads=threads)
            for threads in (1, 2, 3, None)
        ]
    for table in tables[1:]:
        np.testing.assert_array_equal(table.values, tables[0].values)
        for name in DESCRIPTIONS:
            np.testing.assert_array_equal(table.description[name], tables[0].description[name])


def test_numba_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_numba = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    monkeypatch.setitem(sys.modules, "numba", None)  # as where it is not installed
    for name in [name for name in sys.modules if name.startswith("otm.table.compiled")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(otm.table, "compiled")
    module.compiled.cache_clear()
    try:
        assert module.compiled("otm.table.compiled.driver") is None
        without = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    finally:
        module.compiled.cache_clear()
    np.testing.assert_allclose(without.values, with_numba.values, atol=rounding(2, 2))


def test_every_verifier_names_its_columns() -> None:
    """A verifier without a column is left out of the table; one that names a column has it."""
    named = {stem for make in otm.verifiers.VERIFIERS for stem in make.table_columns}
    held = {
        f"{stem}_{suffix}": type(verifier)
        for stem, verifier in VERIFIERS.items()
        for suffix in SUFFIX.values()
        if f"{stem}_{suffix}" in stems()
    }
    assert named == set(held)
    for stem, make in held.items():
        assert stem in make.table_columns, (stem, make)


def stems() -> set[str]:
    return {column.stem for column in table_columns((1, 2))}


def test_both_ways_compute_what_is_declared_with_the_same_constants() -> None:
    """A column that only one of them has, or that none declares, would go unnoticed where the other
    runs.
    """
    from otm.table import arrays
    from otm.table.compiled import common, driver

    assert common.DESCRIBED == DESCRIPTIONS
    mass = otm.examples.dirichlet(9, rng=np.random.default_rng(8), rows=2)
    declared = {(column.stem, column.k) for column in table_columns((1, 2, 3))}
    turned = mass[::-1].copy()
    by_arrays = arrays.chunk_values(
        mass, turned, np.log(mass), np.log(turned), [1, 2, 3], module.NAMES
    )
    for values, described in (
        by_arrays,
        driver.chunk_values(mass, turned, [1, 2, 3], module.NAMES)[:2],
    ):
        assert set(values) == declared
        assert tuple(described) == DESCRIPTIONS


def test_optima_are_named_and_not_exceeded() -> None:
    rng = np.random.default_rng(3)
    draft, target = (
        otm.examples.dirichlet(50, rng=rng, rows=20, concentration=0.3) for _ in range(2)
    )
    table = acceptance_table(draft=draft, target=target, k=(1, 2, 4))
    names = {column.name for column in table.columns}
    for column in table.columns:
        if column.optimum is not None:
            assert column.optimum in names
            assert (table[column.name] <= table[column.optimum] + 1e-14).all(), column.name
        assert column.lossless or column.optimum is None


def test_a_wrong_order_of_the_tokens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant sorts by q instead of q/p: the comparison with the verbs must fail for everything
    that reads the order.
    """

    def by_target(cls: type[OverlapCurve], draft: Any, target: Any) -> OverlapCurve:
        return cls(draft, target, target / draft, np.argsort(-target, axis=-1))

    rng = np.random.default_rng(4)
    draft, target = (otm.examples.dirichlet(20, rng=rng, rows=3) for _ in range(2))
    monkeypatch.setattr(module, "compiled", lambda _: None)
    right = acceptance_table(draft=draft, target=target, k=(1, 3))
    monkeypatch.setattr(OverlapCurve, "of", classmethod(by_target))
    wrong = acceptance_table(draft=draft, target=target, k=(1, 3))
    for name in (
        "optimum_iid_k3",
        "kseq_iid_k3",
        "recursive_rejection_iid_k3",
        "list_race_rule_iid_k3",
        "race_iid_k1",
    ):
        assert np.abs(right[name] - wrong[name]).max() > 1e-3, name


@pytest.mark.parametrize("way", WAYS)
def test_logarithms_are_of_their_distributions_shape(way: str) -> None:
    """One draft law against a batch of targets, each with its own logarithms; compiled loops must
    never read past an array.
    """
    rng = np.random.default_rng(9)
    draft, target = otm.examples.dirichlet(50, rng=rng), otm.examples.dirichlet(50, rng=rng, rows=6)
    with by(way):
        plain = acceptance_table(draft=draft, target=target, k=[1])
        given = acceptance_table(
            draft=draft, target=target, k=[1], log_draft=np.log(draft), log_target=np.log(target)
        )
    for name in DESCRIPTIONS:
        np.testing.assert_allclose(given.description[name], plain.description[name], rtol=1e-12)
    for wrong in (np.log(target), np.log(draft)[:-1], np.zeros((3, 50)), np.zeros((0, 50))):
        with pytest.raises(
            otm.errors.ShapeMismatch, match="log_draft must have the shape of draft"
        ):
            acceptance_table(draft=draft, target=target, k=[1], log_draft=wrong)
    with pytest.raises(otm.errors.InvalidDistribution, match="NaN"):
        acceptance_table(draft=draft, target=target, k=[1], log_draft=np.full(50, np.nan))


@pytest.mark.parametrize("way", WAYS)
def test_logarithms_of_nothing(way: str) -> None:
    """Where the mass is 0 a logarithm may be anything: minus infinity, as NumPy gives it, or a
    leftover of either sign.
    """
    draft, target = np.array([[0.5, 0.5, 0.0, 0.0]]), np.array([[0.25, 0.75, 0.0, 0.0]])
    with by(way):
        plain = acceptance_table(draft=draft, target=target, k=[1])
        for low, high in ((-np.inf, -np.inf), (-1e308, 1e308)):
            logs = [
                np.where(mass > 0, np.log(np.maximum(mass, 0.1)), end)
                for mass, end in ((draft, low), (target, high))
            ]
            given = acceptance_table(
                draft=draft, target=target, k=[1], log_draft=logs[0], log_target=logs[1]
            )
            np.testing.assert_allclose(given.values, plain.values, atol=rounding(4, 1))
            for name in DESCRIPTIONS:
                np.testing.assert_allclose(
                    given.description[name], plain.description[name], rtol=1e-12
                )


def test_numbas_files_on_disk_may_be_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    from otm.table.compiled import driver

    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(driver, "chunk_values", full)
    module.compiled.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to another folder"):
            table = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[2])
        assert code_path() == "array calls"  # what a run's provenance says
    finally:
        module.compiled.cache_clear()
        monkeypatch.undo()
        assert module.compiled("otm.table.compiled.driver") is driver
    assert code_path() == "compiled"
    assert table["optimum_iid_k2"] == 0.9375


@pytest.mark.parametrize("way", WAYS)
def test_the_solver_of_kseq_stops_where_it_has_arrived(way: str) -> None:
    """p = 0 where q is tiny and α is nearly 1: the bracket is wide, and beyond the root the
    equation is flat.
    """
    for seed in (10, 18, 26, 30):
        rng = np.random.default_rng(seed)
        draft = otm.examples.dirichlet(100, rng=rng)
        target = draft * (1 + 0.01 * rng.random(100))
        draft[0], target[0] = 0.0, 1e-30
        draft, target = otm.normalise(draft), otm.normalise(target)
        for k in (61, 100):
            problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
            with by(way):
                value = float(acceptance_table(draft=draft, target=target, k=[k])[f"kseq_iid_k{k}"])
            # It lies between SpecTr's bound for γ = 1, 1 − (1 − Σ min)^k, and 1: within 1e-14 of 1.
            assert abs(value - 1.0) < 1e-13
            assert abs(otm.acceptance(otm.KSeq(), problem) - 1.0) < 1e-13


def test_impossible_requests() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="k"):
        acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[3])
    with pytest.raises(otm.errors.InvalidParameter, match="empty"):
        acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[])
    with pytest.raises(otm.errors.InvalidDistribution):
        acceptance_table(draft=[0.5, 0.6], target=[0.5, 0.5], k=[1])
    with pytest.raises(otm.errors.InvalidParameter, match="column"):
        acceptance_table(draft=[1.0], target=[1.0], k=[1])["no such"]
    for threads in (0, 1.5, True):
        with pytest.raises(otm.errors.InvalidParameter, match="threads"):
            acceptance_table(draft=[1.0], target=[1.0], k=[1], threads=threads)
    for columns, said in (
        (["kseq_iid_k1"], "got 'kseq_iid_k1'"),
        ([], "at least one"),
        ("tv", "got 't'"),
    ):
        with pytest.raises(otm.errors.InvalidParameter, match=said):
            acceptance_table(draft=[1.0], target=[1.0], k=[1], columns=columns)


def test_a_column_that_no_k_has_is_refused() -> None:
    pair = {"draft": [0.5, 0.3, 0.2], "target": [0.2, 0.3, 0.5]}
    with pytest.raises(otm.errors.InvalidParameter, match="maximal_iid has none for k = 3"):
        otm.acceptance_table(**pair, k=[3], columns=["optimum_iid", "maximal_iid"])
    with pytest.raises(otm.errors.InvalidParameter, match="got 5"):
        otm.acceptance_table(**pair, k=[3], columns=5)  # type: ignore[arg-type]
