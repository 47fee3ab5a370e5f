"""The binned optimal verifier for batches: one body over NumPy, torch on the CPU, and torch on CUDA
where there is one.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, Optimal, Problem, _arrays
from otm.drafts.base import enumerate_drafts
from otm.verifiers.optimal import batched
from otm.verifiers.optimal.batched import BatchedOptimalRule
from tests import strategies
from tests.conftest import Backend
from tests.tolerance import rounding

# Zeros, ties, p = q, disjoint supports, tiny masses, one draft token, and two pairs without
# structure.
UGLY_DRAFTS = np.asarray(
    [
        [0.5, 0.5, 0.0, 0.0],
        [0.25, 0.25, 0.25, 0.25],
        [0.4, 0.3, 0.2, 0.1],
        [0.75, 0.25, 0.0, 0.0],
        [0.6, 0.4, 1e-30, 1e-17],
        [0.0, 1.0, 0.0, 0.0],
        [0.41, 0.33, 0.17, 0.09],
        [0.07, 0.13, 0.3, 0.5],
    ]
)
UGLY_TARGETS = np.asarray(
    [
        [0.0, 0.25, 0.25, 0.5],
        [0.125, 0.125, 0.375, 0.375],
        [0.4, 0.3, 0.2, 0.1],
        [0.0, 0.0, 0.5, 0.5],
        [0.3, 1e-30, 0.7, 1e-17],
        [0.3, 0.3, 0.4, 0.0],
        [0.12, 0.29, 0.38, 0.21],
        [0.55, 0.4, 0.05, 0.0],
    ]
)
NEARLY_ONE = 1.0 - 2.0**-53


def language_rows(num_tokens: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((count, num_tokens))
    return otm.from_logits(logits), otm.from_logits(
        logits + rng.standard_normal((count, num_tokens))
    )


def rescaled(values: np.ndarray, dtype: str) -> np.ndarray:
    """What the rule reads: rounded to `dtype`, then divided by the float64 sum."""
    wide = values.astype(dtype).astype(np.float64)
    return np.asarray(wide / wide.sum(axis=-1, keepdims=True))


def prepared(
    backend: Backend, p: np.ndarray, q: np.ndarray, k: int, bins: int
) -> BatchedOptimalRule:
    return otm.verifiers.prepare_batch(
        Optimal(bins=bins), Problem(draft=backend.array(p), target=backend.array(q), law=IID(k))
    )


def _as(backend: Backend, values: np.ndarray) -> Any:
    """Tokens and uniforms, which keep their dtype whatever the backend's."""
    if backend.library == "numpy":
        return values
    import torch

    return torch.asarray(values.copy(), device=backend.device)


# --- against the single row
# -------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    st.lists(strategies.pairs(min_tokens=5, max_tokens=5), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 8, 64, 1000, 10**6]),
    st.sampled_from([1, 2, 7, 64]),
    st.integers(0, 2**32),
)
def test_on_numpy_every_row_is_the_single_rule(
    pairs: list[tuple[np.ndarray, np.ndarray]], k: int, bins: int, seed: int
) -> None:
    p, q = (np.stack(side) for side in zip(*pairs, strict=True))
    problem = Problem(draft=p, target=q, law=IID(k))
    rule = otm.verifiers.prepare_batch(Optimal(bins=bins), problem)
    rng = np.random.default_rng(seed)
    draws = 1 if k > 100 else 20
    drafts, uniforms = (
        rng.integers(0, 5, (len(p), draws, min(k, 1000))),
        rng.random((len(p), draws, min(k, 1000) + 2)),
    )
    for row in range(len(p)):
        single = otm.prepare(Optimal(bins=bins), _row(problem, row))
        np.testing.assert_array_equal(rule.selection_law[row], single.selection_law)
        assert rule.upper[row] == single.upper
        assert rule.lower[row] == pytest.approx(single.lower, abs=1e-15)
        assert rule.scores[row].residuals == single.scores.residuals
        assert rule.num_uniforms == single.num_uniforms
    if k <= 1000:
        selected = rule.select(drafts, uniforms[..., :-2])
        output, accepted = rule.verify(drafts, uniforms)
        for row in range(len(p)):
            single = otm.prepare(Optimal(bins=bins), _row(problem, row))
            np.testing.assert_array_equal(
                selected[row], single.select(drafts[row], uniforms[row][:, :-2])
            )
            wanted, flags = single.verify(drafts[row], uniforms[row], None)
            np.testing.assert_array_equal(accepted[row], flags)
            np.testing.assert_array_equal(output[row], wanted)


def _row(problem: Problem, row: int) -> Problem:
    """One row as the batch holds it, not sent through the gate again."""
    one = object.__new__(Problem)
    for name, value in {
        "draft": problem.draft[row],
        "target": problem.target[row],
        "law": problem.law,
    }.items():
        object.__setattr__(one, name, value)
    return one


def test_shapes_kinds_and_devices(backend: Backend) -> None:
    p, q = language_rows(40, 6, seed=0)
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
    # One draw per row, and one row alone, give what the same draw gives among others.
    first, flags = rule.verify(_as(backend, drafts[:, :, 0]), _as(backend, uniforms[:, :, 0]))
    np.testing.assert_array_equal(backend.numpy(first), backend.numpy(output)[:, :, 0])
    np.testing.assert_array_equal(backend.numpy(flags), backend.numpy(accepted)[:, :, 0])
    alone = prepared(backend, p[4], q[4], 4, 64)
    one, flag = alone.verify(_as(backend, drafts[1, 1, 2]), _as(backend, uniforms[1, 1, 2]))
    assert isinstance(alone.lower, float)
    assert isinstance(alone.upper, float)
    assert tuple(one.shape) == tuple(flag.shape) == ()
    assert int(one) == int(backend.numpy(output)[1, 1, 2])


def test_broadcast_drafts_are_read(backend: Backend) -> None:
    p, q = language_rows(40, 5, seed=2)
    rule = prepared(backend, p[0], q, 4, 64)
    wanted = prepared(backend, np.repeat(p[:1], 5, axis=0), q, 4, 64)
    np.testing.assert_array_equal(
        backend.numpy(rule.selection_law), backend.numpy(wanted.selection_law)
    )


def test_chunks_of_rows_make_no_difference(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, q = language_rows(50, 7, seed=3)
    rng = np.random.default_rng(4)
    drafts, uniforms = (
        _as(backend, rng.integers(0, 50, (7, 30, 3))),
        _as(backend, rng.random((7, 30, 5))),
    )
    whole = prepared(backend, p, q, 3, 32)
    wanted = [backend.numpy(x) for x in (whole.selection_law, *whole.verify(drafts, uniforms))]
    monkeypatch.setattr(_arrays, "CHUNK_ELEMENTS", 1)  # row by row
    pieces = prepared(backend, p, q, 3, 32)
    for got, want in zip(
        (pieces.selection_law, *pieces.verify(drafts, uniforms)), wanted, strict=True
    ):
        np.testing.assert_allclose(backend.numpy(got), want, rtol=0, atol=1e-15)


# --- exact output law
# -------------------------------------------------------------------------------------------------


def output_law(
    rule: BatchedOptimalRule, backend: Backend, row: int, draft: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Laws of the selected token and of the output for drafts from `draft`: enumerate them,
    integrate the scores exactly.
    """
    level = backend.numpy(rule._level)[row][backend.numpy(rule._index)[row].astype(int)]
    level = np.where(backend.numpy(rule._rows.draft)[row] > 0, level, -1.0)
    table = enumerate_drafts(rule.problem.law, draft)
    live = table.mass > 0
    tokens, mass = table.tokens[live], table.mass[live]
    selected = np.bincount(
        tokens.reshape(-1),
        weights=(mass[:, None] * rule.scores[row].winning(level[tokens])).reshape(-1),
        minlength=len(draft),
    )
    planned = backend.numpy(rule.selection_law)[row]
    target = rescaled(backend.numpy(rule._rows.target)[row], "float64")
    accepted = (
        np.minimum(1.0, np.divide(target, planned, out=np.zeros_like(target), where=planned > 0))
        * selected
    )
    excess = np.maximum(target - planned, 0.0)
    residual = excess / excess.sum() if excess.any() else target
    return selected, accepted + (1.0 - accepted.sum()) * residual


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("bins", [2, 64])
def test_the_output_has_the_target_law(backend: Backend, k: int, bins: int) -> None:
    rule = prepared(backend, UGLY_DRAFTS, UGLY_TARGETS, k, bins)
    for row in range(len(UGLY_DRAFTS)):
        draft, target = (rescaled(x[row], backend.dtype) for x in (UGLY_DRAFTS, UGLY_TARGETS))
        selected, output = output_law(rule, backend, row, draft)
        # float32 rows are rescaled in float64, so both kinds keep the float64 bound.
        np.testing.assert_allclose(
            selected, backend.numpy(rule.selection_law)[row], rtol=0, atol=rounding(4 + bins, k)
        )
        np.testing.assert_allclose(output, target, rtol=0, atol=rounding(4 + bins, k))
        # Drafts from the float64 rows, a verifier that sees the rounded ones: at most k + 1
        # roundings, as the module derives.
        output = output_law(rule, backend, row, rescaled(UGLY_DRAFTS[row], "float64"))[1]
        unit = 2.0**-53 if backend.dtype == "float64" else 2.0**-24
        allowed = (k + 1) * unit + rounding(4 + bins, k)
        assert allowed <= 2e-5
        assert 0.5 * abs(output - rescaled(UGLY_TARGETS[row], "float64")).sum() <= allowed


def test_scores_are_those_of_the_host(backend: Backend) -> None:
    p, q = language_rows(500, 5, seed=5)
    rule = prepared(backend, p, q, 8, 512)
    rng = np.random.default_rng(6)
    level = backend.numpy(rule._level)
    bins = rng.integers(0, 512, (5, 4000))
    levels, uniforms = np.take_along_axis(level, bins, axis=1), rng.random((5, 4000))
    gaps = backend.numpy(rule._table.gaps(_as(backend, levels), _as(backend, uniforms)))
    for row, scores in enumerate(rule.scores):
        # Ten operations on numbers up to 1 that both sides do in float64; fused multiply-adds may
        # differ by a unit each.
        np.testing.assert_allclose(
            gaps[row], scores.table.gaps(levels[row], uniforms[row]), rtol=0, atol=10 * 2.0**-53
        )


def test_the_accept_step_turns_at_q_over_s(backend: Backend) -> None:
    p, q = language_rows(200, 4, seed=7)
    rule = prepared(backend, p, q, 3, 32)
    law, target = backend.numpy(rule.selection_law), rescaled(q, backend.dtype)
    keep = np.minimum(1.0, target / law)
    # the same token three times: it is selected
    drafts = np.repeat(np.arange(200)[None, :, None], 4, axis=0).repeat(3, axis=2)
    uniforms = np.full((4, 200, 5), 0.5)
    for factor, wanted in ((1 - 1e-9, np.full(keep.shape, True)), (1 + 1e-9, keep >= 1.0)):
        uniforms[..., 3] = np.minimum(keep * factor, NEARLY_ONE)
        output, accepted = (
            backend.numpy(x) for x in rule.verify(_as(backend, drafts), _as(backend, uniforms))
        )
        np.testing.assert_array_equal(accepted, wanted)
        np.testing.assert_array_equal(output[accepted], drafts[..., 0][accepted])
    assert (keep < 1).any()


def test_residual_draws_invert_the_residual(backend: Backend) -> None:
    p, q = language_rows(60, 4, seed=8)
    rule = prepared(backend, p, q, 3, 32)
    law, target = backend.numpy(rule.selection_law), rescaled(q, backend.dtype)
    excess = np.maximum(target - law, 0.0)
    residual = excess / excess.sum(axis=1, keepdims=True)
    rejected = (target / law).argmin(axis=1)
    size = 10_000
    drafts = np.broadcast_to(rejected[:, None, None], (4, size, 3)).copy()
    uniforms = np.full((4, size, 5), NEARLY_ONE)
    uniforms[..., 4] = (np.arange(size) + 0.5) / size
    output, accepted = (
        backend.numpy(x) for x in rule.verify(_as(backend, drafts), _as(backend, uniforms))
    )
    assert not accepted.any()
    for row in range(4):
        # An interval of length r holds between r·size − 1 and r·size + 1 of the equidistant
        # uniforms.
        counts = np.bincount(output[row], minlength=60)
        assert (abs(counts - size * residual[row]) <= 1 + 1e-6).all()
        assert not counts[excess[row] == 0].any()


def test_tokens_without_mass_are_never_drawn(backend: Backend) -> None:
    rule = prepared(backend, UGLY_DRAFTS, UGLY_TARGETS, 2, 64)
    rng = np.random.default_rng(9)
    drafts, uniforms = rng.integers(0, 4, (8, 3000, 2)), rng.random((8, 3000, 4))
    uniforms[:, :500, 3], uniforms[:, 500:1000, 3] = NEARLY_ONE, 0.0
    output, accepted = (
        backend.numpy(x) for x in rule.verify(_as(backend, drafts), _as(backend, uniforms))
    )
    target = UGLY_TARGETS.astype(backend.dtype)
    assert (np.take_along_axis(target, output, axis=1) > 0).all()
    # A token that is never drafted loses to any other and is never accepted.
    drafted = (
        np.take_along_axis(
            UGLY_DRAFTS.astype(backend.dtype), drafts.reshape(8, -1), axis=1
        ).reshape(drafts.shape)
        > 0
    )
    selected = backend.numpy(rule.select(_as(backend, drafts), _as(backend, uniforms[..., :2])))
    taken = np.take_along_axis(UGLY_DRAFTS.astype(backend.dtype), selected, axis=1) > 0
    np.testing.assert_array_equal(taken, drafted.any(axis=2))
    assert not accepted[~drafted.any(axis=2)].any()


def test_a_uniform_that_rounds_up_to_the_total(backend: Backend) -> None:
    # two units of 2⁻¹⁰⁷⁴: (1 − 2⁻⁵³) of it is all of it
    mass = np.asarray([[0.0, 1e-323, 0.0], [0.0, 0.0, 1e-323]])
    tokens = backend.numpy(
        batched._draws(_as(backend, mass), _as(backend, np.full((2, 1), NEARLY_ONE)))
    )
    np.testing.assert_array_equal(tokens, [[1], [2]])


# --- Monte Carlo
# -------------------------------------------------------------------------------------------------

ROWS, GROUPS, SAMPLES = 2, 16, 50_000
# Hoeffding over groups, acceptances and rows: every frequency is within RADIUS of its probability
# but with probability 1e-9.
RADIUS = float(np.sqrt(np.log(2 * ROWS * (GROUPS + 1) / 1e-9) / (2 * SAMPLES)))


def deviations(
    rule: BatchedOptimalRule, backend: Backend, p: np.ndarray, q: np.ndarray, seed: int
) -> tuple[float, float]:
    """Largest deviations of a group's frequency from the target and of the acceptance from `lower`,
    over rows.
    """
    rng = np.random.default_rng(seed)
    drafts = np.stack(
        [rule.problem.law.draw(row, rng.random((SAMPLES, rule.problem.law.k))) for row in p]
    )
    uniforms = rng.random((ROWS, SAMPLES, rule.num_uniforms))
    output, accepted = (
        backend.numpy(x) for x in rule.verify(_as(backend, drafts), _as(backend, uniforms))
    )
    law = [
        abs(
            _groups(p[i], q[i], np.bincount(output[i], minlength=p.shape[1]) / SAMPLES - q[i])
        ).max()
        for i in range(ROWS)
    ]
    return float(max(law)), float(abs(accepted.mean(axis=1) - backend.numpy(rule.lower)).max())


def _groups(p: np.ndarray, q: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Sum masses over sixteen groups of equal draft mass in the order of q/p, where every error of
    the scores would show.
    """
    order = np.argsort(q / p)
    group = np.minimum(np.cumsum(p[order]) * GROUPS, GROUPS - 1).astype(np.int64)
    return np.bincount(group, weights=masses[order], minlength=GROUPS)


def test_monte_carlo(backend: Backend) -> None:
    p, q = (rescaled(x, backend.dtype) for x in language_rows(2000, ROWS, seed=10))
    rule = prepared(backend, p, q, 8, 1024)
    law, acceptance = deviations(rule, backend, p, q, seed=11)
    assert law <= RADIUS
    assert acceptance <= RADIUS
    # Mutant: accepts with q/p instead of q/(p·a). Its true deviation is known; at 2·RADIUS it is
    # missed with probability 1e-9.
    bad = dataclasses.replace(rule, _achieved=0.0 * rule._achieved + 1.0)
    worst = 0.0
    for row in range(ROWS):
        accepted = backend.numpy(rule.selection_law)[row] * np.minimum(1.0, q[row] / p[row])
        excess = np.maximum(q[row] - p[row], 0.0)
        true = accepted + (1 - accepted.sum()) * excess / excess.sum()
        worst = max(worst, abs(_groups(p[row], q[row], true - q[row])).max())
    assert worst >= 2 * RADIUS
    assert deviations(bad, backend, p, q, seed=12)[0] > RADIUS


# --- size
# -------------------------------------------------------------------------------------------------


def test_full_vocabulary(backend: Backend) -> None:
    p, q = language_rows(128_256, 2, seed=13)
    rule = prepared(backend, p, q, 8, 4096)
    best = otm.optimal_acceptance(Problem(draft=p, target=q, law=IID(8)))
    law, lower, upper = (backend.numpy(x) for x in (rule.selection_law, rule.lower, rule.upper))
    for row in range(2):
        single = otm.prepare(Optimal(bins=4096), Problem(draft=p[row], target=q[row], law=IID(8)))
        # float64: running sums in another order differ by √V·u = 4e-14 in practice, V·u = 1.4e-11
        # at worst. float32: roundings of 6e-8 move a handful of tokens across the edge of a bin,
        # where s changes by half a per cent of their p.
        loose = 2e-11 if backend.dtype == "float64" else backend.tolerance
        assert abs(law[row] - single.selection_law).sum() <= loose
        assert lower[row] == pytest.approx(single.lower, abs=loose)
        assert law[row].sum() == pytest.approx(1.0, abs=1.4e-11)
    slack = backend.tolerance if backend.dtype == "float32" else 1e-11
    assert (best - 1e-3 <= lower).all()
    assert (lower <= best + slack).all()
    assert (best <= upper + slack).all()
    # The output's law is the rescaled target's; what float32 costs is the rounding of the target.
    assert 0.5 * abs(rescaled(q, backend.dtype) - q).sum(axis=1).max() <= 2.0**-24


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [4, 5, 32])  # five rows are cut worst: chunks of two
def test_peak_memory_is_below_four_times_the_input(dtype: str, count: int) -> None:
    p, q = (x.astype(dtype) for x in language_rows(1 << 15, count, seed=14))
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


def test_what_is_refused(backend: Backend) -> None:
    p, q = language_rows(12, 3, seed=16)
    problem = Problem(draft=backend.array(p), target=backend.array(q), law=IID(2))
    for verifier in (Optimal(), otm.KSeq()):
        with pytest.raises(otm.errors.Unsupported, match="bins=4096"):
            otm.verifiers.prepare_batch(verifier, problem)
    with pytest.raises(otm.errors.Unsupported, match="WithoutReplacement"):
        otm.verifiers.prepare_batch(Optimal(bins=8), problem.with_law(otm.WithoutReplacement(2)))
    rule = otm.verifiers.prepare_batch(Optimal(bins=8), problem)
    drafts, uniforms = np.zeros((3, 2), dtype=np.int64), np.zeros((3, 4))
    for bad in (drafts[:2], drafts[:, :1], drafts[None], drafts[:, None, None]):
        with pytest.raises(otm.errors.InvalidParameter, match="drafts must have shape"):
            rule.verify(_as(backend, bad), _as(backend, uniforms))
    for bad in (drafts - 1, drafts + 12):
        with pytest.raises(otm.errors.InvalidParameter, match=r"\[0, 12\)"):
            rule.select(_as(backend, bad), _as(backend, uniforms[:, :2]))
    with pytest.raises(otm.errors.InvalidParameter, match="and be integers"):
        rule.select(_as(backend, drafts.astype(np.float64)), _as(backend, uniforms[:, :2]))
    for bad in (uniforms.astype(np.float32), uniforms[:, :3], uniforms[:2]):
        with pytest.raises(otm.errors.InvalidParameter, match="uniforms must be float64 of shape"):
            rule.verify(_as(backend, drafts), _as(backend, bad))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32"])
def test_drafts_of_narrow_integers(backend: Backend, kind: str) -> None:
    """A vocabulary that such an integer cannot count to is no reason to refuse its tokens."""
    rng = np.random.default_rng(3)
    p, q = (backend.array(otm.examples.dirichlet(70_000, rng=rng, rows=2)) for _ in range(2))
    rule = otm.verifiers.prepare_batch(Optimal(bins=64), Problem(draft=p, target=q, law=IID(2)))
    drafts, uniforms = np.array([[3, 120], [0, 7]]), rng.random((2, 4))
    wide, narrow = (
        rule.verify(_as(backend, d), _as(backend, uniforms)) for d in (drafts, drafts.astype(kind))
    )
    for one, other in zip(wide, narrow, strict=True):
        assert np.array_equal(backend.numpy(one), backend.numpy(other))


def test_drafts_of_another_kind_are_refused() -> None:
    torch = pytest.importorskip("torch")
    p, q = language_rows(12, 3, seed=16)
    rule = otm.verifiers.prepare_batch(Optimal(bins=8), Problem(draft=p, target=q, law=IID(2)))
    with pytest.raises(otm.errors.InvalidParameter, match="the problem's kind, ndarray"):
        rule.select(torch.zeros((3, 2), dtype=torch.int64), np.zeros((3, 2)))
    with pytest.raises(otm.errors.InvalidParameter, match="got list"):
        rule.select([[0, 1]] * 3, np.zeros((3, 2)))


def test_a_rule_made_without_gradients_keeps_no_graph() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.zeros((2, 50), dtype=torch.float64, requires_grad=True)
    problem = Problem(draft=logits.softmax(-1), target=logits.softmax(-1), law=IID(2))
    with torch.no_grad():
        rule = otm.verifiers.prepare_batch(Optimal(bins=64), problem)
    kept = [
        getattr(part, name) for part in (rule.problem, rule._rows) for name in ("draft", "target")
    ]
    assert not any(array.requires_grad for array in kept)


def test_a_failed_self_check_names_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = language_rows(12, 3, seed=17)
    built = batched.scores_of_tokens
    rows = iter(range(3))

    def failing(*args: Any, **kwargs: Any) -> Any:
        scores = built(*args, **kwargs)
        if next(rows) == 1:
            dataclasses.replace(scores.scores, length=0.9 * scores.scores.length).check()
        return scores

    monkeypatch.setattr(batched, "scores_of_tokens", failing)
    with pytest.raises(otm.errors.SolverFailure, match="Row 1 of the batch"):
        otm.verifiers.prepare_batch(Optimal(bins=8), Problem(draft=p, target=q, law=IID(2)))


def test_search_rows(backend: Backend) -> None:
    rng = np.random.default_rng(18)
    table = np.sort(rng.integers(0, 9, (3, 20)).astype(np.float64), axis=1)
    table[:, 17:] = np.inf
    values = rng.integers(-1, 12, (3, 50)).astype(np.float64)
    wanted = (table[:, None, :] <= values[:, :, None]).sum(axis=2)
    np.testing.assert_array_equal(
        backend.numpy(_arrays.search_rows(_as(backend, table), _as(backend, values))), wanted
    )
