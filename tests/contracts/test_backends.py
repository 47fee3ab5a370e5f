"""One implementation for every array kind: the same body over NumPy, torch on the CPU, and torch on
CUDA where there is one.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Problem, RecursiveRejection, _arrays
from tests.conftest import Backend
from tests.contracts.values import CURVES, VALUES


def rows(num_tokens: int, count: int, seed: int, *, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with zeros and a shared bulk, rounded to `dtype` and renormalised in it, as a model's
    softmax would be.
    """
    rng = np.random.default_rng(seed)
    p = otm.examples.dirichlet(num_tokens, rng=rng, rows=count, concentration=0.3)
    q = 0.6 * p + 0.4 * otm.examples.dirichlet(num_tokens, rng=rng, rows=count, concentration=0.3)
    p[:, 0] = 0.0
    q[:, -1] = 0.0
    return tuple((x / x.sum(axis=-1, keepdims=True)).astype(dtype) for x in (p, q))  # type: ignore[return-value]


def reference(p: np.ndarray, q: np.ndarray, k: int) -> Problem:
    wide = [x.astype(np.float64) for x in (p, q)]
    return Problem(
        draft=wide[0] / wide[0].sum(-1, keepdims=True),
        target=wide[1] / wide[1].sum(-1, keepdims=True),
        law=IID(k),
    )


@pytest.mark.parametrize("name", VALUES)
class TestParity:
    def test_one_row_gives_a_float(self, name: str, backend: Backend) -> None:
        p, q = rows(50, 1, 0, dtype=backend.dtype)
        wanted = VALUES[name](reference(p[0], q[0], 4))
        value = VALUES[name](
            Problem(draft=backend.array(p[0]), target=backend.array(q[0]), law=IID(4))
        )
        assert isinstance(value, float)
        assert abs(value - wanted) <= backend.tolerance or value == wanted  # both infinite

    def test_batches_keep_kind_device_and_shape_in_float64(
        self, name: str, backend: Backend
    ) -> None:
        p, q = rows(20, 6, 1, dtype=backend.dtype)
        shaped = p.reshape(2, 3, 20), q.reshape(2, 3, 20)
        values = VALUES[name](
            Problem(draft=backend.array(shaped[0]), target=backend.array(shaped[1]), law=IID(4))
        )
        assert backend.is_own(values)
        assert tuple(values.shape) == (2, 3)
        assert str(values.dtype).removeprefix("torch.") == "float64"
        wanted = [VALUES[name](reference(a, b, 4)) for a, b in zip(p, q, strict=True)]
        np.testing.assert_allclose(
            backend.numpy(values).reshape(-1), wanted, rtol=0, atol=backend.tolerance
        )

    def test_leading_axes_broadcast(self, name: str, backend: Backend) -> None:
        p, q = rows(12, 5, 2, dtype=backend.dtype)
        values = VALUES[name](
            Problem(draft=backend.array(p[0]), target=backend.array(q), law=IID(4))
        )
        wanted = [VALUES[name](reference(p[0], b, 4)) for b in q]
        np.testing.assert_allclose(backend.numpy(values), wanted, rtol=0, atol=backend.tolerance)

    def test_chunks_of_rows_make_no_difference(
        self, name: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        p, q = rows(12, 7, 3, dtype=backend.dtype)
        problem = Problem(draft=backend.array(p), target=backend.array(q), law=IID(4))
        whole = backend.numpy(VALUES[name](problem))
        # three rows at a time, the last one alone
        monkeypatch.setattr(_arrays, "CHUNK_ELEMENTS", 36)
        pieces = backend.numpy(VALUES[name](problem))
        assert pieces.shape == (7,)
        np.testing.assert_allclose(pieces, whole, rtol=0, atol=1e-15)

    def test_full_vocabulary(self, name: str, backend: Backend) -> None:
        p, q = rows(128_256, 1, 4, dtype=backend.dtype)
        wanted = VALUES[name](reference(p[0], q[0], 4))
        value = VALUES[name](
            Problem(draft=backend.array(p[0]), target=backend.array(q[0]), law=IID(4))
        )
        # float64: running sums of 128,256 masses in another order differ by √V·u = 4e-14 in
        # practice, V·u = 1.4e-11 at worst.
        tolerance = 1e-12 if backend.dtype == "float64" else backend.tolerance
        assert abs(value - wanted) <= tolerance or value == wanted


@pytest.mark.parametrize("name", CURVES)
def test_curves_put_k_first(name: str, backend: Backend) -> None:
    p, q = rows(20, 6, 5, dtype=backend.dtype)
    problem = Problem(
        draft=backend.array(p.reshape(2, 3, 20)),
        target=backend.array(q.reshape(2, 3, 20)),
        law=IID(1),
    )
    values = CURVES[name](problem)
    assert backend.is_own(values)
    assert tuple(values.shape) == (3, 2, 3)
    wanted = np.stack(
        [CURVES[name](reference(a, b, 1)) for a, b in zip(p, q, strict=True)], axis=-1
    )
    np.testing.assert_allclose(
        backend.numpy(values).reshape(3, -1), wanted, rtol=0, atol=backend.tolerance
    )


def test_gamma_star(backend: Backend) -> None:
    p, q = rows(50, 6, 6, dtype=backend.dtype)
    values = otm.verifiers.gamma_star(
        Problem(draft=backend.array(p), target=backend.array(q), law=IID(4))
    )
    assert backend.is_own(values)
    wanted = [
        float(otm.verifiers.gamma_star(reference(a, b, 4))) for a, b in zip(p, q, strict=True)
    ]
    # −f′(γ*) ≥ .05 on these rows, so γ* is worse conditioned than an acceptance by a factor of 20.
    np.testing.assert_allclose(backend.numpy(values), wanted, rtol=0, atol=20 * backend.tolerance)


def test_rules_run_on_numpy_whatever_comes_in(backend: Backend) -> None:
    p, q = rows(8, 1, 7, dtype=backend.dtype)
    problem = Problem(draft=backend.array(p[0]), target=backend.array(q[0]), law=IID(2))
    wide = reference(p[0], q[0], 2)
    for verifier in (KSeq(), RecursiveRejection(), otm.TransportPlan()):
        table = otm.coupling(verifier, problem)
        np.testing.assert_allclose(table.output_marginal, wide.target, atol=backend.tolerance)
        draws = otm.sample(verifier, problem, size=10, rng=np.random.default_rng(0))
        assert isinstance(draws.output, np.ndarray)
    assert otm.optimum(problem).value == pytest.approx(
        otm.optimal_acceptance(wide), abs=max(1e-9, backend.tolerance)
    )
    np.testing.assert_array_equal(otm.optimal_cut(problem), otm.optimal_cut(wide))


def test_tensors_that_require_gradients_are_read_where_those_are_passed_on(
    backend: Backend,
) -> None:
    if backend.library != "torch":
        pytest.skip("NumPy has no gradients")
    import torch

    tensor = backend.array([0.5, 0.25, 0.25]).requires_grad_()
    problem = Problem(draft=tensor, target=tensor, law=IID(2))
    assert otm.optimal_acceptance(problem).item() == pytest.approx(1.0, abs=backend.tolerance)
    with pytest.raises(otm.errors.Unsupported, match=r"\.detach\(\)"):
        problem.single(purpose="A test")
    with torch.no_grad():
        unrecorded = Problem(draft=tensor, target=tensor, law=IID(2))
    assert otm.optimal_acceptance(unrecorded.single(purpose="A test")) == pytest.approx(
        1.0, abs=backend.tolerance
    )


def test_the_library_never_imports_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, otm\n"
        "p = otm.Problem(draft=[.75, .25], target=[.5, .5], law=otm.IID(2))\n"
        "otm.optimum(p); otm.acceptance(otm.KSeq(), p); otm.compare(draft=p.draft, "
        "target=p.target, samples=10)\n"
        "assert not {'torch', 'matplotlib', 'analysis', 'figures', 'transformers'} & "
        "set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
