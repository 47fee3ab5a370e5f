"""The table against the verbs that it shares work between, on every array kind."""

import contextlib
import functools
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import entr

import otm
from otm._machine import compiled as compiling
from otm._machine.compiled import _SealedFiles, code_path
from otm.table import acceptance_table, arrays, table as module, table_columns
from otm.table.table import DESCRIPTIONS
from tests.overlap.instances import problems, slack
from tests.tolerance import rounding

STEMS = {stem.name: stem for stem in module._STEMS}
WAYS = ("in order", "in groups", "arrays")


@contextlib.contextmanager
def by(way):
    """Compute tables on the host by compiled rows, of which short ones are put into groups too
    where no race is asked for, or, as where numba is not installed, by NumPy.
    """
    with pytest.MonkeyPatch.context() as patch:
        if way == "arrays":
            patch.setattr(module, "compiled", lambda _, seconds: None)
        elif compiling._loaded("otm.table.compiled.driver") is None:
            pytest.skip("numba is not installed")
        if way == "in groups":
            patch.setattr("otm.table.compiled.driver._SHORTEST_BINNED", 2)
            patch.setattr("otm.table.compiled.driver._PER_BIN", 1)
        yield


def wanted(column, draft, target):
    """One column by the verb that users would call."""
    stem = STEMS[column.stem]
    problem = otm.Problem(draft=draft, target=target, law=stem.law(column.k))
    if stem.scheme == "optimum":
        return otm.optimal_acceptance(problem)
    if isinstance(stem.scheme, str):
        return otm.bounds.poisson_representation_lower(problem)
    by = "rule" if column.definition == "rule" else "membership"
    return otm.acceptance(stem.scheme, problem, by=by)


def rows():
    """Weights (draft, target) of few blocks and numbers of drafts that between them take every
    branch of the compiled loops.
    """
    rng = np.random.default_rng(5)
    near, steep = rng.uniform(0.5, 1.5, 300), 0.93 ** np.arange(300)
    # Two blocks of nearly one ratio, one of many, one of one again.
    ratio = np.concatenate([np.full(512, 2.0), rng.uniform(0.6, 1.6, 256), np.full(256, 0.4)])
    ratio *= 1 + 1e-3 * rng.random(1024)
    logits, some = 3 * rng.standard_normal(40), rng.permutation(1024)
    draft = rng.uniform(0.5, 1.5, 1024)
    tiny = 10.0 ** rng.uniform(-320, 0, (2, 24))
    tiny[0, :3] = tiny[1, 2:4] = 1.0
    p = rng.dirichlet(np.ones(100))
    sure = np.stack([p, p * (1 + 0.01 * rng.random(100))])
    sure[:, 0] = 0.0, 1e-30  # α is nearly 1: K-SEQ's bracket is wide, beyond its root it is flat
    few = np.array([1.0, 1e-300, 3e-310, 2e-310, 2e-310, 1e-320, 0])
    least, last = np.array([0.1, 0.2, 0.3, 0.1, 0.05, 0.15, 0.1]), near[:257]  # a block and a token
    yield "ties and zeros", *rng.integers(0, 4, (2, 30)).astype(float), [1, 2, 3, 7]
    yield "every token", np.array([2.0, 4, 1, 4, 0]), np.array([1.0, 3, 2, 0, 5]), [1, 2, 3, 4, 5]
    yield (
        "language model",
        np.exp(logits),
        np.exp(logits + rng.standard_normal(40)),
        [1, 2, 8, 40],
    )
    yield "light blocks", last, last * np.exp(0.3 * rng.standard_normal(257)), [1, 2, 7]
    yield "a heavy block", np.roll(steep, 270), np.roll(steep, 260) + 1e-3, [1, 3, 65]
    yield "stretches", draft[some], (draft * ratio)[some], [1, 2, 9, 64, 65, 300]
    yield "equal", near, near, [1, 4]
    yield "one bin", near, near * (1 + 1e-9 * rng.random(300)), [1, 4]
    yield "subnormal masses", *tiny, [1, 2, 20]
    yield "few drafts", few, least, [1, 2, 3, 4, 5, 7]
    yield "no draft left", np.array([2.0, 1, 0, 0]), np.array([1.0, 2, 3, 2]), [1, 2, 3, 4]
    yield "one target", np.ones(2), np.array([1.0, 0]), [1, 2]
    yield "at a threshold", np.array([0.5, 0.5]), np.array([0.09, 0.91]), [1, 2]
    yield "nearly sure", *sure, [61, 100]
    yield "disjoint", np.repeat([1.0, 0.0], 20), np.repeat([0.0, 1.0], 20), [1, 2]
    yield "one token", np.ones(1), np.ones(1), [1]


@functools.cache
def truths():
    """The rows, with their columns by the verbs and their descriptions by name."""
    found = {}
    for name, *weights, ks in rows():
        p, q = (otm.normalise(side) for side in weights)
        true = {c.name: wanted(c, p, q) for c in table_columns(ks)}
        true |= {"draft_entropy": entr(p).sum(), "target_entropy": entr(q).sum()}
        true |= {"tv": otm.divergences.total_variation(draft=p, target=q)}
        true |= {"kl_target_draft": otm.divergences.kl_divergence(draft=p, target=q)}
        true |= {"kl_draft_target": otm.divergences.kl_divergence(draft=q, target=p)}
        found[name] = p, q, ks, true
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name, *_ in rows()])
def test_every_column_is_what_the_verbs_say(way, name):
    p, q, ks, true = truths()[name]
    names = {column.stem for column in table_columns(ks)}.union(DESCRIPTIONS)
    if way == "in groups":
        names -= arrays.RACES
    with by(way if len(p) > 1 else "in order"):
        table = acceptance_table(draft=p, target=q, k=ks, columns=names)
    for column in table.columns:
        # A bound is rounded down where a verb gives it.
        close = slack(len(p), column.k) * (2 if column.definition == "bound" else 0.25)
        assert abs(table[column.name] - true[column.name]) <= close, column.name
        if column.optimum is not None:
            assert column.lossless
            assert table[column.name] <= table[column.optimum] + 1e-14, column.name
    for entry, value in table.description.items():
        assert value == pytest.approx(true[entry], rel=1e-13, abs=1e-13), entry


@pytest.mark.parametrize("way", WAYS[::2])
@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_neither_neighbours_nor_threads_change_a_bit(way, kind, monkeypatch):
    rng = np.random.default_rng(1)
    draft, target = (
        otm.examples.dirichlet(400, rng=rng, rows=23, concentration=0.2) for _ in range(2)
    )
    # as top-p leaves them
    draft[::2], target[::2] = (
        np.where(a > np.quantile(a, 0.7), a, 0) for a in (draft[::2], target[::2])
    )
    p, q = (kind(otm.normalise(a)) for a in (draft, target))

    def table(rows, threads):
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


def test_every_kind_of_array(backend):
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


SELECTIONS = (
    ("kseq_iid",),
    ("optimum_iid", "recursive_rejection_iid", "tv"),
    tuple(name for name in module.NAMES if name not in arrays.RACES),
    tuple(name for name in module.NAMES if name not in arrays.RACES | arrays.LOGARITHMIC),
    ("naive_iid", "maximal_iid", "target_entropy"),
    ("race_iid", "spechub_greedy"),
    ("typical_acceptance_iid", "minhash_iid"),
)


@pytest.mark.parametrize(("width", "ks"), [(40, [1, 2, 7]), (3000, [1, 2, 64, 65])])
def test_every_choice_of_columns_has_the_values_of_array_calls(width, ks):
    """Sorted rows and rows in groups, short, long, and with few tokens alive."""
    _, *sides = (np.stack(rows) for rows in zip(*problems(width, 3), strict=True))
    alive = np.random.default_rng(4).random(sides[0].shape) < 0.1
    alive[:, :2] = True
    p, q = (np.concatenate([a, otm.normalise(np.where(alive, a + 1e-9, 0))]) for a in sides)
    with by("arrays"):
        plain = acceptance_table(draft=p, target=q, k=ks)
    for columns in (*SELECTIONS, module.NAMES):
        for way in ("in order", "arrays") if width == 40 else ("in order",):
            with by(way):
                table = acceptance_table(draft=p, target=q, k=ks, columns=columns)
            assert table.columns == table_columns(ks, columns=columns)
            assert {column.stem for column in table.columns} == set(columns) - set(DESCRIPTIONS)
            assert list(table.description) == [name for name in DESCRIPTIONS if name in columns]
            for column in table.columns:
                np.testing.assert_allclose(
                    table[column.name],
                    plain[column.name],
                    rtol=0,
                    atol=rounding(width, column.k),
                    err_msg=column.name,
                )
            for entry, values in table.description.items():
                np.testing.assert_allclose(values, plain.description[entry], 1e-10, 1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("width", [50, 600])
def test_the_gate_of_fuzzy_is_open_up_to_its_threshold(way, width):
    """Pairs on both sides of it, some so near that groups leave them open."""
    rng, near = np.random.default_rng(7), np.outer([1, -1], [0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-11])
    draft, away = rng.dirichlet(np.full(width, 0.5), size=2)
    draft[:3] = away[2:6] = 0.0
    draft, away = otm.normalise(draft), otm.normalise(away)

    def target(share):
        return draft + share * (away - draft)

    shares = [
        scipy.optimize.brentq(
            lambda s, wanted=wanted: jensenshannon(draft, target(s)) ** 2 - wanted, 0, 1, xtol=1e-15
        )
        for wanted in otm.Fuzzy().threshold * (1 + near.ravel())
    ]
    q = np.stack([target(share) for share in shares])
    with by(way), pytest.MonkeyPatch.context() as patch:
        if width == 600:
            patch.setattr("otm.table.compiled.driver._PER_BIN", 32)  # groups of many ratios
        found = acceptance_table(draft=draft, target=q, k=[1], columns=["fuzzy_iid"])
    close = rounding(width, 1)
    np.testing.assert_allclose(found.values[0, :6], q[:6] @ draft, rtol=0, atol=close)
    np.testing.assert_allclose(found.values[0, 6:], 1.0, rtol=0, atol=close)


@pytest.mark.parametrize("way", WAYS)
def test_the_gate_of_fuzzy_where_chords_are_exact(way):
    """Tokens at both ends of one group, far below 1, and of the group of [1, 2): what is lost
    between chord and curve is more than what is missing to the threshold.
    """
    ratio = np.array([1 / 16 - 2.0**-30, 1 / 32, 1.0, 2 - 2.0**-30])

    def pair(low):
        high = low * (2 - ratio[:2].sum()) / 2 / (ratio[3] - 1)
        p = np.array([low / 2, low / 2, 1 - low - high, high])
        return p, p * ratio

    wanted = otm.Fuzzy().threshold * np.array([0.999, 1.001])
    lows = [
        scipy.optimize.brentq(lambda s, at=at: jensenshannon(*pair(s)) ** 2 - at, 0.01, 0.5)
        for at in wanted
    ]
    p, q = (np.stack(sides) for sides in zip(*map(pair, lows), strict=True))
    with by(way):
        found = acceptance_table(draft=p, target=q, k=[1], columns=["fuzzy_iid"]).values[0]
    np.testing.assert_allclose(found, [1.0, p[1] @ q[1]], rtol=0, atol=1e-15)


def test_the_gate_of_fuzzy_lets_equals_through(monkeypatch):
    monkeypatch.setattr(arrays, "Fuzzy", functools.partial(otm.Fuzzy, threshold=0.0))
    with by("arrays"):
        found = acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[1], columns=["fuzzy_iid"])
    assert found.values.tolist() == [1.0]


def test_rows_on_the_host_are_read_as_they_are_given(monkeypatch):
    """Unless one of them is no distribution."""
    with pytest.raises(otm.errors.InvalidDistribution, match="target"):
        acceptance_table(draft=[0.5, 0.5], target=[[0.5, 0.5], [0.5, 0.9]], k=[1])
    monkeypatch.setattr(module, "as_pmfs", lambda _: pytest.fail("read before"))
    found = acceptance_table(draft=[0.5, 0.5], target=[0.25, 0.75], k=[1], columns=["maximal_iid"])
    assert found.values.tolist() == [0.75]


@pytest.mark.parametrize("way", WAYS[::2])
def test_logarithms_that_a_softmax_has_left_are_not_taken_again(way):
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    names = ["draft_entropy", "kl_target_draft"]
    with by(way):
        table = module.unchecked_table(
            p, q, np.log2(p), np.log2(q) / 2, module.RequestedColumns.of(1, names)
        )
    assert table.description["draft_entropy"] == 1.5  # in bits: those of p alone
    assert table.description["kl_target_draft"] == -0.75 + 1.75


def test_array_calls_take_tensors():
    p, q, ks, _ = truths()["ties and zeros"]
    tensors = torch.asarray(p), torch.asarray(q)
    wanted = arrays.chunk_values(p, q, None, None, ks, module.NAMES)
    found = arrays.chunk_values(*tensors, None, None, ks, module.NAMES)
    for mine, others in zip(found, wanted, strict=True):
        assert mine.keys() == others.keys()
        for name, value in mine.items():
            assert float(value) == pytest.approx(others[name], abs=1e-14), name


@pytest.mark.long  # compiles everything
def test_a_process_that_compiles_computes_what_later_ones_do(tmp_path):
    """To the last bit: a run whose first shard came from the first kind and whose second came from
    the other is one run.
    """
    code = (
        "import hashlib, numpy as np, otm\n"
        "from otm._machine.compiled import load_at_once; load_at_once()\n"
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


def test_numba_is_not_needed(monkeypatch):
    with_numba = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    monkeypatch.setitem(sys.modules, "numba", None)  # as where it is not installed
    for name in [name for name in sys.modules if name.startswith("otm.table.compiled")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(otm.table, "compiled")
    compiling._loaded.cache_clear()
    try:
        assert compiling._loaded("otm.table.compiled.driver") is None
        without = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2])
    finally:
        compiling._loaded.cache_clear()
    np.testing.assert_allclose(without.values, with_numba.values, atol=rounding(2, 2))


def test_every_verifier_names_its_columns():
    """A verifier without a column is left out of the table; one that names a column has it."""
    for make in otm.verifiers.VERIFIERS:
        held = {stem.name for stem in module._STEMS if type(stem.scheme) is make}
        # of one scheme, two definitions are two columns
        assert set(make.table_columns) == held, make


@pytest.mark.parametrize("way", WAYS[::2])
def test_logarithms_are_of_their_distributions_shape(way):
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


@pytest.mark.parametrize("way", WAYS[::2])
def test_logarithms_of_nothing(way):
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


def test_a_file_of_compiled_code_is_read_only_as_it_was_written(tmp_path):
    """Whatever happens to it, and once its sources changed, it is compiled again."""

    class Files:
        """What is asked of numba's own."""

        _version, _index_path, _dump = "1", str(tmp_path / "f.nbi"), staticmethod(pickle.dumps)
        _open_for_write = staticmethod(lambda path: path.open("wb"))

    def files(sources):
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
def test_compiled_code_may_be_of_no_use(error, monkeypatch):
    from otm.table.compiled import driver

    def broken(*_):
        raise error

    monkeypatch.setattr(driver, "chunk_values", broken)
    compiling._loaded.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to a folder of your own"):
            table = acceptance_table(draft=[0.75, 0.25], target=[0.5, 0.5], k=[2])
        assert code_path() == "array calls"  # what a run's provenance says
    finally:
        compiling._loaded.cache_clear()
        monkeypatch.undo()
        assert compiling._loaded("otm.table.compiled.driver") is driver
    assert code_path() == "compiled"
    assert table["optimum_iid_k2"] == 0.9375


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
def test_columns_that_there_are_not_are_refused(columns, message):
    with pytest.raises(otm.errors.InvalidParameter, match=message):
        acceptance_table(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], k=[3], columns=columns)


def test_a_column_is_asked_for_by_its_name():
    with pytest.raises(otm.errors.InvalidParameter, match="column"):
        acceptance_table(draft=[1.0], target=[1.0], k=[1])["no such"]
