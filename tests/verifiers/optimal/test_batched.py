"""The binned optimal verifier for batches: one body over NumPy, torch on the CPU, and torch on CUDA
where there is one.
"""

import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, Optimal, Problem
from otm._machine import arrays
from otm.verifiers.optimal import batched
from tests import strategies
from tests.verifiers.optimal.large import language_rows

# Zeros, ties, p = q, disjoint supports, tiny masses, one draft token, and two pairs without
# structure.
UGLY_DRAFTS = [
    [0.5, 0.5, 0.0, 0.0],
    [0.25, 0.25, 0.25, 0.25],
    [0.4, 0.3, 0.2, 0.1],
    [0.75, 0.25, 0.0, 0.0],
    [0.6, 0.4, 1e-30, 1e-17],
    [0.0, 1.0, 0.0, 0.0],
    [0.41, 0.33, 0.17, 0.09],
    [0.07, 0.13, 0.3, 0.5],
]
UGLY_TARGETS = [
    [0.0, 0.25, 0.25, 0.5],
    [0.125, 0.125, 0.375, 0.375],
    [0.4, 0.3, 0.2, 0.1],
    [0.0, 0.0, 0.5, 0.5],
    [0.3, 1e-30, 0.7, 1e-17],
    [0.3, 0.3, 0.4, 0.0],
    [0.12, 0.29, 0.38, 0.21],
    [0.55, 0.4, 0.05, 0.0],
]
NEARLY_ONE = 1.0 - 2.0**-53


def rescaled(values, dtype):
    """What the rule reads: rounded to `dtype`, then divided by the float64 sum."""
    wide = np.asarray(values).astype(dtype).astype(np.float64)
    return np.asarray(wide / wide.sum(axis=-1, keepdims=True))


def prepared(backend, p, q, k, bins):
    return otm.verifiers.prepare_batch(
        Optimal(bins=bins), Problem(draft=backend.array(p), target=backend.array(q), law=IID(k))
    )


def _as(backend, values):
    """Tokens and uniforms, which keep their dtype whatever the backend's."""
    if backend.library == "numpy":
        return values
    import torch

    return torch.asarray(values.copy(), device=backend.device)


def verified(rule, backend, drafts, uniforms):
    answers = rule.verify(_as(backend, drafts), _as(backend, uniforms))
    return [backend.numpy(x) for x in answers]


# --- against the single row
# -------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.lists(strategies.pairs(min_tokens=5, max_tokens=5), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 8, 64, 10**6]),
    st.sampled_from([1, 2, 7, 64]),
)
def test_on_numpy_every_row_is_the_single_rule(pairs, k, bins):
    p, q = (np.stack(side) for side in zip(*pairs, strict=True))
    problem = Problem(draft=p, target=q, law=IID(k))
    rule = otm.verifiers.prepare_batch(Optimal(bins=bins), problem)
    for row in range(len(p)):
        alone = Problem(draft=problem.draft[row], target=problem.target[row], law=problem.law)
        single = otm.prepare(Optimal(bins=bins), alone)
        np.testing.assert_allclose(rule.selection_law[row], single.selection_law, atol=1e-14)
        assert rule.upper[row] == pytest.approx(single.upper, abs=1e-14)
        assert rule.lower[row] == pytest.approx(single.lower, abs=1e-14)
        assert rule.num_uniforms == single.num_uniforms


@pytest.mark.parametrize(("k", "bins"), [(1, 64), (2, 2), (8, 64)])
def test_every_kind_verifies_as_the_single_rule_of_what_it_reads(backend, k, bins, monkeypatch):
    """Float32 rows are rescaled in float64: the same law, accept steps and residual draws."""
    for drafter, target in ((UGLY_DRAFTS, UGLY_TARGETS), language_rows(200, 7, (4,))):
        rule = prepared(backend, drafter, target, k, bins)
        p, q = rescaled(drafter, backend.dtype), rescaled(target, backend.dtype)
        rng, (rows, width) = np.random.default_rng(9), p.shape
        # The same token k times is selected for sure; half of the drafts are such.
        drafts = rng.integers(0, width, (rows, 2000, k))
        drafts[:, ::2] = drafts[:, ::2, :1]
        uniforms = rng.random((rows, 2000, k + 2))
        uniforms[:, :500, -1], uniforms[:, 500:1000, -1], uniforms[:, :9, -2] = NEARLY_ONE, 0.0, 0.0
        output, accepted = verified(rule, backend, drafts, uniforms)
        selected = backend.numpy(rule.select(_as(backend, drafts), _as(backend, uniforms[..., :k])))
        law = backend.numpy(rule.selection_law)
        for row in range(rows):
            alone = Problem(draft=p[row], target=q[row], law=IID(k))
            single = otm.prepare(Optimal(bins=bins), alone)
            np.testing.assert_allclose(law[row], single.selection_law, rtol=0, atol=1e-15)
            token, flag = single.verify(drafts[row], uniforms[row], None)
            np.testing.assert_array_equal(accepted[row], flag)
            np.testing.assert_array_equal(output[row], token)
            np.testing.assert_array_equal(
                selected[row], single.select(drafts[row], uniforms[row][:, :k])
            )
        assert (np.take_along_axis(q, output, axis=1) > 0).all()
        with monkeypatch.context() as patch:
            patch.setattr(batched, "compiled", lambda _, seconds: None)
            np.testing.assert_array_equal(verified(rule, backend, drafts, uniforms)[0], output)


def test_shapes_kinds_and_devices(backend, monkeypatch):
    """Leading axes, one row alone, one draft for all rows, and rows in chunks."""
    p, q = language_rows(40, 0, (6,))
    rule = prepared(backend, p.reshape(2, 3, 40), q.reshape(2, 3, 40), 4, 64)
    rng = np.random.default_rng(1)
    drafts, uniforms = rng.integers(0, 40, (2, 3, 7, 4)), rng.random((2, 3, 7, 6))
    output, accepted = rule.verify(_as(backend, drafts), _as(backend, uniforms))
    selected = rule.select(_as(backend, drafts), _as(backend, uniforms[..., :4]))
    for array in (output, accepted, selected, rule.lower, rule.upper, rule.selection_law):
        assert backend.is_own(array)
    assert tuple(output.shape) == tuple(accepted.shape) == tuple(selected.shape) == (2, 3, 7)
    assert tuple(rule.lower.shape) == tuple(rule.upper.shape) == (2, 3)
    assert tuple(rule.selection_law.shape) == (2, 3, 40)
    assert str(output.dtype).endswith("int64")
    assert str(selected.dtype).endswith("int64")
    alone = prepared(backend, p[4], q[4], 4, 64)
    one, flag = alone.verify(_as(backend, drafts[1, 1, 2]), _as(backend, uniforms[1, 1, 2]))
    assert isinstance(alone.lower, float) and isinstance(alone.upper, float)
    assert tuple(one.shape) == tuple(flag.shape) == ()
    assert int(one) == int(backend.numpy(output)[1, 1, 2])
    shared = prepared(backend, p[4], np.stack([q[3], q[4]]), 4, 64)
    np.testing.assert_array_equal(
        backend.numpy(shared.selection_law)[1], backend.numpy(alone.selection_law)
    )
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 1)  # row by row
    pieces = prepared(backend, p, q, 4, 64)
    assert len(list(pieces._rows.chunks())) == 6
    for got, want in zip(
        verified(pieces, backend, drafts.reshape(6, 7, 4), uniforms.reshape(6, 7, 6)),
        (output, accepted),
        strict=True,
    ):
        np.testing.assert_array_equal(got, backend.numpy(want).reshape(6, 7))


def test_a_uniform_that_rounds_up_to_the_total(backend):
    # two units of 2⁻¹⁰⁷⁴: (1 − 2⁻⁵³) of it is all of it
    mass = np.asarray([[0.0, 1e-323, 0.0], [0.0, 0.0, 1e-323]])
    tokens = batched._draws(_as(backend, mass), _as(backend, np.full((2, 1), NEARLY_ONE)))
    np.testing.assert_array_equal(backend.numpy(tokens), [[1], [2]])


# --- size
# -------------------------------------------------------------------------------------------------


def test_full_vocabulary(backend):
    p, q = language_rows(128_256, 13, (2,))
    rule = prepared(backend, p, q, 8, 4096)
    best = otm.optimal_acceptance(Problem(draft=p, target=q, law=IID(8)))
    law, lower, upper = (backend.numpy(x) for x in (rule.selection_law, rule.lower, rule.upper))
    # float64: running sums in another order differ by √V·u = 4e-14 in practice, V·u = 1.4e-11 at
    # worst. float32: roundings of 6e-8 move a handful of tokens across the edge of a bin, where s
    # changes by half a per cent of their p.
    loose = 2e-11 if backend.dtype == "float64" else backend.tolerance
    single = otm.prepare(Optimal(bins=4096), Problem(draft=p[1], target=q[1], law=IID(8)))
    assert abs(law[1] - single.selection_law).sum() <= loose
    assert lower[1] == pytest.approx(single.lower, abs=loose)
    assert law.sum(axis=1) == pytest.approx(1.0, abs=1.4e-11)
    assert (best - 1e-3 <= lower).all()
    assert (lower <= best + loose).all()
    assert (best <= upper + loose).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [5, 32])  # five rows are cut worst: chunks of two
def test_peak_memory_is_below_four_times_the_input(dtype, count):
    p, q = (x.astype(dtype) for x in language_rows(1 << 15, 14, (count,)))
    problem = Problem(draft=p, target=q, law=IID(8))
    limit = 4 * (problem.draft.nbytes + problem.target.nbytes)
    rng = np.random.default_rng(15)
    drafts, uniforms = rng.integers(0, 1 << 15, (count, 8)), rng.random((count, 10))
    uniforms[:, 8] = NEARLY_ONE  # rejections, so that the residual is drawn from
    tracemalloc.start()
    rule = otm.verifiers.prepare_batch(Optimal(bins=512), problem)
    accepted = rule.verify(drafts, uniforms)[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not accepted.all()
    assert peak < limit, f"{peak / limit * 4:.2f} times the input"


# --- errors
# -------------------------------------------------------------------------------------------------


def test_what_is_refused(backend):
    p, q = language_rows(12, 16, (3,))
    problem = Problem(draft=backend.array(p), target=backend.array(q), law=IID(2))
    for verifier, law, named in (
        (Optimal(), IID(2), "bins=4096"),
        (otm.KSeq(), IID(2), "bins=4096"),
        (Optimal(bins=8), otm.WithoutReplacement(2), "WithoutReplacement"),
    ):
        with pytest.raises(otm.errors.Unsupported, match=named):
            otm.verifiers.prepare_batch(verifier, problem.with_law(law))
    rule = otm.verifiers.prepare_batch(Optimal(bins=8), problem)
    drafts, uniforms = np.zeros((3, 2), dtype=np.int64), np.zeros((3, 4))
    for tokens, numbers, message in (
        (drafts[:2], uniforms, "drafts must have shape"),
        (drafts[:, :1], uniforms, "drafts must have shape"),
        (drafts[None], uniforms, "drafts must have shape"),
        (drafts[:, None, None], uniforms, "drafts must have shape"),
        (drafts.astype(np.float64), uniforms, "and be integers"),
        (drafts - 1, uniforms, r"\[0, 12\)"),
        (drafts + 12, uniforms, r"\[0, 12\)"),
        (drafts, uniforms.astype(np.float32), "uniforms must be float64 of shape"),
        (drafts, uniforms[:, :3], "uniforms must be float64 of shape"),
        (drafts, uniforms[:2], "uniforms must be float64 of shape"),
    ):
        with pytest.raises(otm.errors.InvalidParameter, match=message):
            rule.verify(_as(backend, tokens), _as(backend, numbers))
    with pytest.raises(otm.errors.InvalidParameter, match=r"the problem's kind, .*got list"):
        rule.select([[0, 1]] * 3, uniforms[:, :2])


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_drafts_of_narrow_integers(backend, kind):
    """A vocabulary that such an integer cannot count to is no reason to refuse its tokens."""
    p, q = language_rows(70_000, 3, (2,))
    rule = prepared(backend, p, q, 2, 64)
    drafts, uniforms = np.array([[3, 120], [0, 7]]), np.random.default_rng(3).random((2, 4))
    wide, narrow = (verified(rule, backend, d, uniforms) for d in (drafts, drafts.astype(kind)))
    np.testing.assert_array_equal(wide, narrow)


def test_a_rule_made_without_gradients_keeps_no_graph():
    torch = pytest.importorskip("torch")
    tracked = torch.zeros((2, 50), dtype=torch.float64, requires_grad=True).softmax(-1)
    for draft, target in ((tracked, tracked.detach()), (tracked.detach(), tracked)):
        problem = Problem(draft=draft, target=target, law=IID(2))
        with torch.no_grad():
            rule = otm.verifiers.prepare_batch(Optimal(bins=64), problem)
        for part in (rule.problem, rule._rows):
            assert not (part.draft.requires_grad or part.target.requires_grad)


def test_a_failed_self_check_names_its_row(monkeypatch):
    p, q = language_rows(12, 17, (3,))
    outcomes = [mock.DEFAULT, otm.errors.SolverFailure("It misses.")]
    failing = mock.Mock(wraps=batched.scores_of_tokens, side_effect=outcomes)
    monkeypatch.setattr(batched, "scores_of_tokens", failing)
    with pytest.raises(otm.errors.SolverFailure, match=r"Row 1 of the batch.*It misses"):
        otm.verifiers.prepare_batch(Optimal(bins=8), Problem(draft=p, target=q, law=IID(2)))
