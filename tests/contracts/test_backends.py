"""One implementation for every array kind: the same body over NumPy, torch on the CPU, and torch on
CUDA where there is one.
"""

import subprocess
import sys

import numpy as np

import otm
from otm import IID, Problem
from tests.contracts.values import CURVES, VALUES


def rows(num_tokens, count, seed, *, dtype):
    """Pairs with zeros and a shared bulk, rounded to `dtype` and renormalised in it, as a model's
    softmax would be.
    """
    rng = np.random.default_rng(seed)
    p = otm.examples.dirichlet(num_tokens, rng=rng, rows=count, concentration=0.3)
    q = 0.6 * p + 0.4 * otm.examples.dirichlet(num_tokens, rng=rng, rows=count, concentration=0.3)
    p[:, 0] = 0.0
    q[:, -1] = 0.0
    return tuple((x / x.sum(axis=-1, keepdims=True)).astype(dtype) for x in (p, q))


def reference(p, q, k):
    wide = [x.astype(np.float64) for x in (p, q)]
    return Problem(
        draft=wide[0] / wide[0].sum(-1, keepdims=True),
        target=wide[1] / wide[1].sum(-1, keepdims=True),
        law=IID(k),
    )


def test_a_full_vocabulary(backend):
    """One row of it gives a float."""
    p, q = rows(128_256, 1, 4, dtype=backend.dtype)
    problem = Problem(draft=backend.array(p[0]), target=backend.array(q[0]), law=IID(4))
    # float64: running sums of 128,256 masses in another order differ by √V·u = 4e-14 in practice,
    # V·u = 1.4e-11 at worst.
    tolerance = 1e-12 if backend.dtype == "float64" else backend.tolerance
    for name, ask in VALUES.items():
        wanted, value = ask(reference(p[0], q[0], 4)), ask(problem)
        assert isinstance(value, float), name
        assert value == wanted or abs(value - wanted) <= tolerance, name  # both may be infinite


def test_batches_keep_kind_device_and_shape_in_float64(backend):
    """Curves put k first."""
    p, q = rows(20, 6, 1, dtype=backend.dtype)
    given = [backend.array(x.reshape(2, 3, 20)) for x in (p, q)]
    problem = Problem(draft=given[0], target=given[1], law=IID(4))
    for name, ask in (VALUES | CURVES).items():
        values = ask(problem)
        assert backend.is_own(values), name
        assert str(values.dtype).removeprefix("torch.") == "float64", name
        wanted = np.stack([ask(reference(a, b, 4)) for a, b in zip(p, q, strict=True)], axis=-1)
        np.testing.assert_allclose(
            backend.numpy(values),
            wanted.reshape(*wanted.shape[:-1], 2, 3),
            rtol=0,
            atol=backend.tolerance,
            err_msg=name,
        )


def test_the_library_never_imports_torch():
    code = (
        "import sys, otm\n"
        "p = otm.Problem(draft=[.75, .25], target=[.5, .5], law=otm.IID(2))\n"
        "otm.optimum(p); otm.acceptance(otm.KSeq(), p); otm.compare(draft=p.draft, "
        "target=p.target, samples=10)\n"
        "assert not {'torch', 'matplotlib', 'analysis', 'figures', 'transformers'} & "
        "set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
