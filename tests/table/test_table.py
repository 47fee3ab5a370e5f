"""The table against the verbs that it shares work between, on every array kind."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import entr

import otm
from otm._numba import _SealedFiles, code_path
from otm.table import TableColumn, acceptance_table, arrays, table as module, table_columns
from otm.table.table import DESCRIPTIONS
from tests import strategies
from tests.conftest import Backend
from tests.overlap.instances import problems
from tests.tolerance import rounding

STEMS = {stem.name: stem for stem in module._STEMS}
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
    stem = STEMS[column.stem]
    problem = otm.Problem(draft=draft, target=target, law=stem.law(column.k))
    if stem.scheme == "optimum":
        return otm.optimal_acceptance(problem)
    if isinstance(stem.scheme, str):
        return otm.bounds.poisson_representation_lower(problem)
    by = "rule" if column.definition == "rule" else "membership"
    return otm.acceptance(stem.scheme, problem, by=by)


def assert_alike(
    table: module.AcceptanceTable, other: module.AcceptanceTable, width: int, name: str = ""
) -> None:
    """Every column and description of one table has its value in another."""
    for column in table.columns:
        np.testing.assert_allclose(
            table[column.name],
            other[column.name],
            rtol=0,
            atol=rounding(width, column.k),
            err_msg=f"{name} {column.name}",
        )
    for entry, values in table.description.items():
        np.testing.assert_allclose(values, other.description[entry], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@given(strategies.pairs(min_tokens=1, max_tokens=6), st.integers(1, 4))
def test_every_column_is_what_the_verbs_say(
    way: str, pair: tuple[np.ndarray, np.ndarray], k: int
) -> None:
    draft, target = pair
    ks = sorted({1, min(k, len(draft))})
    both = {"draft": np.stack([draft, target]), "target": np.stack([target, draft])}
    with by(way):
        table = acceptance_table(**both, k=ks)
    assert table.values.shape == (len(table.columns), 2)
    for column in table.columns:
        np.testing.assert_allclose(
            table[column.name],
            [float(wanted(column, *sides)) for sides in ((draft, target), (target, draft))],
            atol=4 * rounding(len(draft), k),
            rtol=0,
            err_msg=column.name,
        )
    divergence = otm.divergences.kl_divergence(**both)
    described = {
        "draft_entropy": entr(both["draft"]).sum(-1),
        "target_entropy": entr(both["target"]).sum(-1),
        "tv": otm.divergences.total_variation(**both),
        "kl_target_draft": divergence,
        "kl_draft_target": divergence[::-1],
    }
    assert tuple(table.description) == tuple(described) == DESCRIPTIONS
    for name, values in described.items():
        # Σ of at most 6 terms, each x log x with |log x| ≤ 745: 6·745·2^-52.
        np.testing.assert_allclose(
            table.description[name], values, rtol=1e-12, atol=6 * 745 * 2.0**-52, err_msg=name
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_neither_neighbours_nor_threads_change_a_bit(
    way: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    draft, target = (
        otm.examples.dirichlet(400, rng=rng, rows=23, concentration=0.2) for _ in range(2)
    )
    # as top-p leaves them
    draft[::2], target[::2] = (
        np.where(a > np.quantile(a, 0.7), a, 0) for a in (draft[::2], target[::2])
    )
    p, q = (kind(otm.normalise(a)) for a in (draft, target))

    def table(rows: slice, threads: int | None) -> np.ndarray:
        found = acceptance_table(draft=p[rows], target=q[rows], k=range(1, 9), threads=threads)
        return np.stack([*found.values, *found.description.values()])

    with by(way):
        whole = table(slice(None), 1)
        monkeypatch.setattr(module, "_ON_HOST", 3 * 400)
        for threads in (1, 3, None):
            np.testing.assert_array_equal(table(slice(None), threads), whole)
        for start in (0, 7, 22):
            part = slice(start, start + 7)
            np.testing.assert_array_equal(table(part, 1), whole[:, part])


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


def by_every_way(**arguments: Any) -> list[module.AcceptanceTable]:
    tables = []
    for way in WAYS:
        with by(way):
            tables.append(acceptance_table(**arguments))
    return tables


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 17, 64, 260, 1000, 1024, 5000])
def test_compiled_rows_are_what_numpy_says(width: int) -> None:
    """Rows of few and of many blocks: stretches of nearly equal match probabilities, moments of
    small masses, blocks that hide no optimum.
    """
    # Halves on both sides: half of the least subnormal is 0.
    least = np.bincount([0, width - 1], minlength=width) / 2
    least[width // 2] += 5e-324
    for name, p, q in (*problems(width, width), ("least masses", least, least)):
        for ks in (range(1, 9), (1, 3, 64, 65, min(width, 300)), (1, 65)):
            asked = [k for k in ks if k <= width]
            assert_alike(*by_every_way(draft=p, target=q, k=asked), width, name)


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
@pytest.mark.parametrize(
    ("width", "ks"), [(40, [1, 2, 7]), (1024, [1, 2, 64, 65]), (5000, list(range(1, 9)))]
)
def test_a_choice_of_columns_has_the_values_of_all(way: str, width: int, ks: list[int]) -> None:
    """Rows without a sort are held against sorted ones, on short rows, on long ones and on those
    with few tokens alive.
    """
    _, *sides = (np.stack(rows) for rows in zip(*problems(width, 3), strict=True))
    alive = np.random.default_rng(4).random(sides[0].shape) < 0.1
    alive[:, :2] = True
    p, q = (np.concatenate([a, otm.normalise(np.where(alive, a + 1e-9, 0))]) for a in sides)
    with by(way):
        plain = acceptance_table(draft=p, target=q, k=ks)
        for columns in SELECTIONS:
            table = acceptance_table(draft=p, target=q, k=ks, columns=columns)
            assert table.columns == table_columns(ks, columns=columns)
            assert {column.stem for column in table.columns} == set(columns) - set(DESCRIPTIONS)
            assert list(table.description) == [name for name in DESCRIPTIONS if name in columns]
            assert_alike(table, plain, width)


def test_the_gate_of_fuzzy_is_decided_as_by_logarithms() -> None:
    """Pairs on both sides of the threshold, near enough that the series leaves them open, and pairs
    far from it.
    """
    rng = np.random.default_rng(7)
    draft = otm.examples.dirichlet(50, rng=rng, rows=120, concentration=0.5)
    away = otm.examples.dirichlet(50, rng=rng, rows=120, concentration=0.5)
    target = draft + np.linspace(0, 1, 120)[:, None] * (away - draft)
    tables = by_every_way(draft=draft, target=target, k=[1], columns=["fuzzy_iid"])
    gates = [table["fuzzy_iid_k1"] for table in tables]
    np.testing.assert_allclose(*gates, rtol=0, atol=rounding(50, 1))
    assert 20 < (gates[0] == 1).sum() < 100


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
    for make in otm.verifiers.VERIFIERS:
        held = {stem.name for stem in module._STEMS if type(stem.scheme) is make}
        # of one scheme, two definitions are two columns
        assert set(make.table_columns) == held, make


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


def test_a_file_of_compiled_code_is_read_only_as_it_was_written(tmp_path: Path) -> None:
    """Whatever happens to it, and once its sources changed, it is compiled again."""

    class Files:
        """What is asked of numba's own."""

        _version, _index_path, _dump = "1", str(tmp_path / "f.nbi"), staticmethod(pickle.dumps)
        _open_for_write = staticmethod(lambda path: path.open("wb"))

    def files(sources: bytes) -> _SealedFiles:
        return _SealedFiles(Files, sources)

    assert files(b"a").load("key") is None
    files(b"a").save("key", [1, 2])
    assert files(b"a").load("key") == [1, 2]
    assert files(b"a").load("other key") is None
    assert files(b"b").load("key") is None
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    flipped = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
    hostile = b"cnot_there\nx\n."  # a pickle that names a module
    for damaged in (*flipped, b"", bytes(len(whole)), whole[:-1], whole + b" ", hostile):
        path.write_bytes(damaged)
        assert files(b"a").load("key") is None
    files(b"a").save("key", [3])
    assert files(b"a").load("key") == [3]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ModuleNotFoundError("No module named 'not_there'", name="not_there"),
        AttributeError("of what was unpickled"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_compiled_code_may_be_of_no_use(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    from otm.table.compiled import driver

    def broken(*_: object) -> object:
        raise error

    monkeypatch.setattr(driver, "chunk_values", broken)
    module.compiled.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to a folder of your own"):
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


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["optimum_iid", "maximal_iid"], "maximal_iid has none for k = 3"),
        (["kseq_iid_k1"], "got 'kseq_iid_k1'"),
        ("tv", "got 't'"),
        ([], "at least one"),
        (5, "got 5"),
    ],
)
def test_columns_that_there_are_not_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=message):
        acceptance_table(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], k=[3], columns=columns)


def test_a_column_is_asked_for_by_its_name() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="column"):
        acceptance_table(draft=[1.0], target=[1.0], k=[1])["no such"]
