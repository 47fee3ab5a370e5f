"""Logits to distributions, many settings from one partial sort: the tokens and values of
`otm.from_logits`.
"""

import numpy as np
import pytest

import otm
from analysis.models import processing
from otm import Processing

# The relative error of a mass, which is its logarithm's too, and the smallest mass with full
# relative precision. The error of an exponential is its argument's, up to 90 (740) in size, times
# the unit roundoff.
PRECISION = {"float32": (2e-5, 1e-37), "float64": (1e-12, 1e-300)}


def logits(kind, num_tokens, rng):
    """Three rows that are hard on one thing."""
    z = rng.choice([0.01, 1.0, 5.0, 30.0]) * rng.standard_normal((3, num_tokens))
    if kind.startswith("ties"):  # at the boundary of the nucleus they are the rule
        return np.round(z, int(kind[-1]))
    if kind == "flat":
        return np.zeros_like(z)
    if kind == "forbidden tokens":
        z[:, rng.random(num_tokens) < 0.3] = -np.inf
        z[:, 0] = 0.0
    elif kind == "of every width":  # every token is likely, an eighth or a single one
        z = np.full((3, num_tokens), -30.0)
        z[0] = 1e-3 * np.arange(num_tokens)
        z[1, : num_tokens // 8] = z[2, num_tokens // 2] = 0.0
    return z


def assert_as_from_logits(z, settings, of_log):
    """Values of every setting are those of `otm.from_logits`, and logarithms their own."""
    of_mass, smallest = PRECISION[z.dtype.name]
    found = list(processing.distributions(z, settings))
    for one, (mass, logs) in zip(settings, found, strict=True):
        wanted = one(z)
        assert mass.dtype == np.float64
        assert ((mass > 0) == (wanted > 0)).all(), one
        np.testing.assert_allclose(otm.normalise(mass), wanted, rtol=of_mass, atol=smallest)
        if logs is not None:
            assert logs.dtype == np.float64 and np.isfinite(logs).all()
            live = mass > smallest
            np.testing.assert_allclose(logs[live], np.log(mass[live]), rtol=of_log, atol=of_log)
    return found


DTYPES = pytest.mark.parametrize("dtype", PRECISION)
PAIRS = [
    (1.0, 0.9),
    (0.7, 0.5),
    (1.0, 0.999),
    (0.01, 0.99),
    (2.0, 1 - 1e-12),
    (1.0, 1.0),
    (1.3, 1.0),
    (0.0, 0.5),
    (0.6, 1e-9),
    (1.0, 0.05),
    (1.0, 0.97),
]
SETTINGS = [
    *(Processing(temperature=temperature, top_p=top_p) for temperature, top_p in PAIRS),
    Processing(temperature=0.7, top_p=0.9, order="llama.cpp"),
    Processing(top_k=3, min_p=0.01, order="vllm"),
]


@DTYPES
@pytest.mark.parametrize(
    "kind", ["plain", "ties 0", "ties 1", "flat", "forbidden tokens", "of every width"]
)
def test_values_of_from_logits(kind, dtype):
    rng = np.random.default_rng(0)
    for num_tokens in (1, 2, 7, 16, 100, 400):
        z = logits(kind, num_tokens, rng).astype(dtype)
        assert_as_from_logits(z, SETTINGS, PRECISION[dtype][0])


@DTYPES
def test_what_compiled_rows_are_given(dtype):
    """Distributions sum to 1 in float64 and have their logarithms; of top-p the weights begin at 1,
    before they are divided.
    """
    settings = [
        Processing(),
        Processing(temperature=0.7, top_p=0.9),
        Processing(temperature=0.0, top_p=1.0),
        Processing(top_k=3),
        Processing(min_p=0.1),
    ]
    z = logits("plain", 400, np.random.default_rng(1)).astype(dtype)
    z[:, 7] = -np.inf
    (mass, _), (weights, _), *_ = found = assert_as_from_logits(
        z, settings, 2 * np.finfo(dtype).eps
    )
    np.testing.assert_array_equal(weights.max(axis=-1), 1.0)
    np.testing.assert_allclose(mass.sum(axis=-1), 1.0, rtol=0, atol=2.0**-51)
    assert [logs is None for _, logs in found] == [False, True, True, True, True]


@DTYPES
@pytest.mark.parametrize("temperature", [1e-38, 1e-300, 1e-30, 0.5, 1e30, float("inf")])
def test_extreme_temperatures_and_logits(temperature, dtype):
    largest = {"float32": 3e38, "float64": 1e308}[dtype]
    rows = [
        [20.0, 0.0, -1.0],
        [largest, largest / 3, 0.0],
        [1.0, 1.0, 0.0],
        [1.0, 0.0, -np.inf],
        [1000.1, 1000.0, 999.0],
    ]
    settings = [Processing(temperature=temperature, top_p=top_p) for top_p in (1.0, 0.9)]
    assert_as_from_logits(np.array(rows, dtype=dtype), settings, 4 * np.finfo(dtype).eps)


def test_views_and_read_only_logits():
    z = np.random.default_rng(1).standard_normal((4, 50))
    frozen, whole = z.copy(), [(1.0, 1.0), (0.7, 1.0), (0.7, 0.9)]
    frozen.flags.writeable = False
    settings = [Processing(temperature=temperature, top_p=top_p) for temperature, top_p in whole]
    for view in (z[::-1], np.asfortranarray(z), z[:, ::2], frozen):
        found, plain = (processing.distributions(a, settings) for a in (view, view.copy()))
        for (mass, _), (wanted, _) in zip(found, plain, strict=True):
            np.testing.assert_array_equal(mass, wanted)
    np.testing.assert_array_equal(frozen, z)


def test_the_boundary_is_not_left_to_rounding():
    """Equal masses whose running sums meet top_p exactly: the same token count as
    `otm.from_logits`, however either rounds.
    """
    z = np.zeros((1, 1024))
    for kept in range(1, 1024, 7):
        ((mass, _),) = processing.distributions(z, [Processing(top_p=kept / 1024)])
        assert (mass > 0).sum() == (otm.from_logits(z, top_p=kept / 1024) > 0).sum()
