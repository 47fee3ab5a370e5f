"""From logits to probabilities."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.special import softmax

import otm

INF = float("inf")

STEPS = {
    "transformers": ("temperature", "top_k", "top_p", "min_p"),
    "vllm": ("temperature", "min_p", "top_k", "top_p"),
    "llama.cpp": ("top_k", "top_p", "min_p", "temperature"),
}


@pytest.fixture(params=["numpy-float64", "numpy-float32", "torch-float64", "torch-float32"])
def array(request):
    library, dtype = request.param.split("-")
    if library == "numpy":
        return lambda values: np.asarray(values, dtype=dtype)
    torch = pytest.importorskip("torch")
    return lambda values: torch.tensor(values, dtype=getattr(torch, dtype))


def close(values, wanted):
    got = np.asarray(values)
    # softmax: exp is good to an ulp, its argument to |z|·u: 1e-5 for float32 with |z| ≤ 50, 1e-13
    # for float64
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 if got.dtype == np.float32 else 1e-13)


def step_by_step(logits, steps, options):
    """Weights of the tokens left, in Python, after each step on what the steps before have left."""
    left = {token: math.exp(z) for token, z in enumerate(logits) if z > -INF}
    for step in (step for step in steps if step in options):
        value, ranked = options[step], sorted(left, key=lambda token: (-left[token], token))
        total = sum(left.values())
        if step == "temperature":
            left = {token: weight ** (1.0 / value) for token, weight in left.items()}
        elif step == "top_k":
            left = {token: left[token] for token in ranked[: int(value)]}
        elif step == "min_p":
            left = {token: w for token, w in left.items() if w >= value * left[ranked[0]]}
        else:
            above = [sum(left[other] for other in ranked[:i]) for i in range(len(ranked))]
            kept = [
                token for token, mass in zip(ranked, above, strict=True) if mass < value * total
            ]
            left = {token: left[token] for token in kept}
    return [left.get(token, 0.0) / sum(left.values()) for token in range(len(logits))]


def test_steps_are_taken_in_their_order_each_on_what_is_left(array):
    rng = np.random.default_rng(0)
    for _ in range(150):
        logits = np.log(rng.integers(1, 6, size=(2, 6)))  # with ties
        logits[:, 1:][rng.random((2, 5)) < 0.2] = -INF
        drawn = {
            "temperature": rng.uniform(0.3, 3.0),
            "top_k": int(rng.integers(1, 8)),
            "top_p": rng.uniform(0.05, 1.0),
            "min_p": rng.uniform(),
        }
        options = {name: value for name, value in drawn.items() if rng.random() < 0.6}
        own = tuple(str(name) for name in rng.permutation(list(drawn)))
        for order, steps in {**STEPS, own: own}.items():
            found = otm.from_logits(array(logits), order=order, **options)
            close(found, [step_by_step(row, steps, options) for row in logits.tolist()])


def test_orders_have_names():
    for name, steps in STEPS.items():
        assert otm.Processing(order=list(steps)) == otm.Processing(order=name)
        assert otm.Processing(order=name).steps == steps


@pytest.mark.parametrize(
    ("logits", "options", "mass"),
    [
        ([1.0, 3.0, 3.0, 2.0], {"temperature": 0}, [0, 1, 0, 0]),
        ([[1.0, 3.0], [7.0, 7.0]], {"temperature": 0.0}, [[0, 1], [1, 0]]),
        ([-INF, 3.0, 1.0], {"temperature": 0, "top_k": 3, "top_p": 0.5}, [0, 1, 0]),
        ([1.0, 3.0, 2.0], {"temperature": 1e-5}, [0, 1, 0]),
        ([1.0, 3.0, 2.0], {"temperature": 1e-50}, [0, 1, 0]),
        ([1.0, 3.0, 2.0], {"temperature": 1e-320}, [0, 1, 0]),
        ([1.0, 3.0, -INF, 2.0], {"temperature": INF}, [1 / 3, 1 / 3, 0, 1 / 3]),
        ([0.0, 0.0, 0.0, 0.0], {"top_p": 0.5}, [0.5, 0.5, 0, 0]),  # reached exactly
        ([0.0, 1.0], {"top_p": 1e-9}, [0, 1]),
        ([1.0, 1.0, 0.0], {"min_p": 1.0}, [0.5, 0.5, 0]),  # breaks no tie
        ([0.0, 1.0], {"top_k": 99, "top_p": 1.0, "min_p": 0.0}, softmax([0.0, 1.0])),
        ([1e30, 1e30, -1e30], {}, [0.5, 0.5, 0]),
        ([3e38, -3e38], {}, [1, 0]),
        ([-1e30, -1e30], {}, [0.5, 0.5]),
        ([-7.0], {"temperature": 0.3, "top_k": 1, "top_p": 0.1}, [1]),
    ],
)
def test_ends_of_the_ranges(array, logits, options, mass):
    close(otm.from_logits(array(logits), **options), mass)


def test_kind_and_dtype_are_kept_and_the_gate_accepts_them(array):
    logits = array(np.random.default_rng(1).standard_normal((2, 3, 1000)) * 5)
    mass = otm.from_logits(logits, top_p=0.9)
    assert (type(mass), mass.dtype, mass.shape) == (type(logits), logits.dtype, logits.shape)
    otm.Problem(draft=mass, target=mass, law=otm.IID(1))


@given(
    # apart by more than rounding: of two that a softmax cannot tell apart either may be kept
    st.lists(st.integers(-8000, 8000).map(lambda n: n / 1000), min_size=1, max_size=8, unique=True),
    st.floats(0.1, 4.0),
    st.integers(1, 9),
    st.floats(0.05, 0.99),
    st.floats(0.0, 0.9),
)
def test_the_default_order_is_that_of_transformers(logits, temperature, top_k, top_p, min_p):
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("transformers.generation.logits_process")
    scores = torch.tensor([logits], dtype=torch.float64)
    for process in (
        peer.TemperatureLogitsWarper(temperature),
        peer.TopKLogitsWarper(top_k),
        peer.TopPLogitsWarper(top_p),
        peer.MinPLogitsWarper(min_p),
    ):
        scores = process(None, scores)
    found = otm.from_logits(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    inside = np.sort(softmax(np.array(logits) / temperature))[::-1][:top_k]
    # a sum in another order may end a token sooner
    assume(np.abs(np.cumsum(inside / inside.sum()) - top_p).min() > 1e-9)
    close(found, torch.softmax(scores, -1)[0].numpy())


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([0.0, float("nan")], "must not be NaN or .* Check the model"),
        ([0.0, INF], "must not be NaN or .* Check the model"),
        ([[0.0, 1.0], [-INF, -INF]], "one finite entry.* Loosen the mask"),
        ([], "non-empty vocabulary.* Pass"),
        (1.0, "non-empty vocabulary.* Pass"),
        ("abc", "logits must hold real numbers"),
        ([[0.0], [0.0, 1.0]], "logits must be"),
    ],
)
def test_values_that_are_no_logits(bad, said):
    with pytest.raises(otm.errors.InvalidDistribution, match=said):
        otm.from_logits(bad)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool", "complex64"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_other_dtypes(library, dtype):
    torch = pytest.importorskip("torch")
    logits = torch.tensor([0, 1], dtype=getattr(torch, dtype))
    if library == "numpy" and dtype != "bfloat16":
        logits = logits.numpy()
    with pytest.raises(
        otm.errors.InvalidDistribution, match=f"float32 or float64; they are {dtype}.*Convert"
    ):
        otm.from_logits(logits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1.0}, r"temperature must lie in \[0, inf\]; got -1.0"),
        ({"top_k": 0}, "top_k must be an integer of at least 1; got 0"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]; got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]; got 1.5"),
        ({"min_p": -0.5}, r"min_p must lie in \[0, 1\]; got -0.5"),
        ({"order": ("top_k", "top_p")}, "order must be one of"),
        ({"order": "vLLM"}, "order must be one of"),
    ],
)
def test_options(options, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        otm.from_logits([0.0, 1.0], **options)
