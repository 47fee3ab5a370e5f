"""From logits to probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.special import softmax

import otm

INF = float("inf")


@pytest.fixture(params=["numpy-float64", "numpy-float32", "torch-float64", "torch-float32"])
def array(request: pytest.FixtureRequest) -> Any:
    library, dtype = request.param.split("-")
    if library == "numpy":
        return lambda values: np.asarray(values, dtype=dtype)
    import torch

    return lambda values: torch.tensor(values, dtype=getattr(torch, dtype))


def close(values: Any, wanted: Any) -> None:
    got = np.asarray(values)
    # softmax: exp is good to an ulp, its argument to |z|·u: 1e-5 for float32 with |z| ≤ 50, 1e-13
    # for float64
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 if got.dtype == np.float32 else 1e-13)


class TestFromLogits:
    def test_plain_softmax(self, array: Any) -> None:
        logits = [[0.3, -2.0, 5.0, 1.0], [0.0, 0.0, -INF, 0.0]]
        close(otm.from_logits(array(logits)), softmax(logits, axis=-1))

    @pytest.mark.parametrize("temperature", [0.1, 0.7, 2.0, 50.0])
    def test_temperature_divides_the_logits(self, array: Any, temperature: float) -> None:
        logits = np.array([0.3, -2.0, 5.0, 1.0])
        close(
            otm.from_logits(array(logits), temperature=temperature), softmax(logits / temperature)
        )

    def test_temperature_zero_takes_the_largest_and_the_lowest_index_of_ties(
        self, array: Any
    ) -> None:
        close(otm.from_logits(array([1.0, 3.0, 3.0, 2.0]), temperature=0), [0, 1, 0, 0])
        close(otm.from_logits(array([[1.0, 3.0], [7.0, 7.0]]), temperature=0.0), [[0, 1], [1, 0]])
        close(
            otm.from_logits(array([-INF, 3.0, 1.0]), temperature=0, top_k=3, top_p=0.5), [0, 1, 0]
        )

    @pytest.mark.parametrize("temperature", [1e-5, 1e-30, 1e-50, 1e-300])
    def test_tiny_temperatures_approach_zero(self, array: Any, temperature: float) -> None:
        close(otm.from_logits(array([1.0, 3.0, 2.0]), temperature=temperature), [0, 1, 0])

    def test_infinite_temperature_is_uniform_on_what_is_allowed(self, array: Any) -> None:
        close(
            otm.from_logits(array([1.0, 3.0, -INF, 2.0]), temperature=INF), [1 / 3, 1 / 3, 0, 1 / 3]
        )

    def test_top_k(self, array: Any) -> None:
        logits = np.array([0.0, 3.0, 1.0, 2.0])
        close(otm.from_logits(array(logits), top_k=2), softmax([-INF, 3.0, -INF, 2.0]))
        close(otm.from_logits(array(logits), top_k=1), [0, 1, 0, 0])
        close(otm.from_logits(array(logits), top_k=4), softmax(logits))
        close(otm.from_logits(array(logits), top_k=99), softmax(logits))

    def test_top_k_ties_go_to_the_lowest_index(self, array: Any) -> None:
        close(otm.from_logits(array([1.0, 1.0, 1.0, 1.0]), top_k=2), [0.5, 0.5, 0, 0])
        close(
            otm.from_logits(array([0.0, 2.0, 0.0, 0.0]), top_k=2), softmax([0.0, 2.0, -INF, -INF])
        )

    def test_top_k_beyond_the_allowed_tokens_keeps_them_forbidden(self, array: Any) -> None:
        close(otm.from_logits(array([1.0, -INF, 1.0, -INF]), top_k=3), [0.5, 0, 0.5, 0])

    def test_top_p_keeps_the_token_that_crosses(self, array: Any) -> None:
        # masses 8/15, 4/15, 2/15, 1/15
        logits = np.log([2.0, 8.0, 1.0, 4.0])
        close(otm.from_logits(array(logits), top_p=0.5), [0, 1, 0, 0])
        close(otm.from_logits(array(logits), top_p=0.54), [0, 8 / 12, 0, 4 / 12])
        close(otm.from_logits(array(logits), top_p=0.79), [0, 8 / 12, 0, 4 / 12])
        close(otm.from_logits(array(logits), top_p=0.81), [2 / 14, 8 / 14, 0, 4 / 14])
        close(otm.from_logits(array(logits), top_p=1.0), [2 / 15, 8 / 15, 1 / 15, 4 / 15])
        close(otm.from_logits(array(logits), top_p=1e-9), [0, 1, 0, 0])

    def test_top_p_reached_exactly_stops_there(self, array: Any) -> None:
        close(otm.from_logits(array([0.0, 0.0, 0.0, 0.0]), top_p=0.5), [0.5, 0.5, 0, 0])

    def test_top_p_counts_mass_after_top_k(self, array: Any) -> None:
        # The largest mass is 8/15 = .533 before top-3 and 8/14 = .571 after it: 0.55 tells the two
        # orders apart.
        logits = np.log([2.0, 8.0, 1.0, 4.0])
        close(otm.from_logits(array(logits), top_k=3, top_p=0.55), [0, 1, 0, 0])
        close(otm.from_logits(array(logits), top_p=0.55), [0, 8 / 12, 0, 4 / 12])

    def test_temperature_comes_before_top_p(self, array: Any) -> None:
        logits = 2 * np.log([2.0, 8.0, 1.0, 4.0])
        close(otm.from_logits(array(logits), temperature=2.0, top_p=0.54), [0, 8 / 12, 0, 4 / 12])

    def test_huge_logits(self, array: Any) -> None:
        close(otm.from_logits(array([1e30, 1e30, -1e30])), [0.5, 0.5, 0])
        close(otm.from_logits(array([3e38, -3e38])), [1, 0])
        close(otm.from_logits(array([-1e30, -1e30])), [0.5, 0.5])

    def test_batches_are_row_by_row(self, array: Any) -> None:
        logits = np.random.default_rng(0).standard_normal((2, 3, 7))
        for options in (
            {},
            {"temperature": 0.5},
            {"top_k": 3},
            {"top_p": 0.6},
            {"top_k": 4, "top_p": 0.7, "temperature": 2.0},
        ):
            batch = np.asarray(otm.from_logits(array(logits), **options))
            assert batch.shape == (2, 3, 7)
            for i in np.ndindex(2, 3):
                np.testing.assert_array_equal(
                    batch[i], np.asarray(otm.from_logits(array(logits[i]), **options))
                )

    def test_kind_and_dtype_are_kept_and_the_gate_accepts_them(self, array: Any) -> None:
        logits = array(np.random.default_rng(1).standard_normal(1000) * 5)
        mass = otm.from_logits(logits, top_p=0.9)
        assert type(mass) is type(logits)
        assert mass.dtype == logits.dtype
        otm.Problem(draft=mass, target=mass, law=otm.IID(1))

    def test_one_token(self, array: Any) -> None:
        close(otm.from_logits(array([-7.0]), temperature=0.3, top_k=1, top_p=0.1), [1])

    def test_min_p_keeps_what_is_not_far_below_the_largest(self, array: Any) -> None:
        logits = np.log([2.0, 8.0, 1.0, 4.0])
        close(otm.from_logits(array(logits), min_p=0.3), [0, 8 / 12, 0, 4 / 12])
        close(otm.from_logits(array(logits), min_p=0.2), [2 / 14, 8 / 14, 0, 4 / 14])
        close(otm.from_logits(array(logits), min_p=0.0), np.array([2, 8, 1, 4]) / 15)
        close(otm.from_logits(array(logits), min_p=1.0), [0, 1, 0, 0])
        # no tie is broken: both are as likely
        close(otm.from_logits(array([1.0, 1.0, 0.0]), min_p=1.0), [0.5, 0.5, 0])

    def test_orders_differ_where_they_should(self, array: Any) -> None:
        # Masses .5, .25, .15, .1. At T = 2 they are flatter: .5 is .36 of the whole, and .25 / .5
        # becomes .71.
        masses = np.array([0.5, 0.25, 0.15, 0.1])
        logits, warm = np.log(masses), np.sqrt(masses) / np.sqrt(masses).sum()
        close(
            otm.from_logits(array(logits), temperature=2.0, top_p=0.45),
            [*(warm[:2] / warm[:2].sum()), 0, 0],
        )
        close(
            otm.from_logits(array(logits), temperature=2.0, top_p=0.45, order="llama.cpp"),
            [1, 0, 0, 0],
        )
        # Of .5, .25 (min-p has dropped the rest) .5 is .667: top-p .6 is reached; of all four it is
        # not.
        close(otm.from_logits(array(logits), top_p=0.6, min_p=0.4, order="vllm"), [1, 0, 0, 0])
        close(otm.from_logits(array(logits), top_p=0.6, min_p=0.4), [2 / 3, 1 / 3, 0, 0])

    def test_an_order_of_ones_own(self) -> None:
        steps = ("top_k", "temperature", "min_p", "top_p")
        mass = otm.from_logits(
            np.log([0.5, 0.25, 0.15, 0.1]), top_k=2, temperature=2.0, top_p=0.5, order=steps
        )
        np.testing.assert_array_equal(mass, [1, 0, 0, 0])
        assert otm.Processing(order=["temperature", "min_p", "top_k", "top_p"]) == otm.Processing(
            order="vllm"
        )
        assert otm.Processing(order=steps).steps == steps

    @given(
        st.lists(st.floats(-8, 8), min_size=1, max_size=8, unique=True),
        st.floats(0.1, 4.0),
        st.integers(1, 9),
        st.floats(0.05, 0.99),
        st.floats(0.0, 0.9),
    )
    def test_the_default_order_is_that_of_transformers(
        self, logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
    ) -> None:
        import torch
        from transformers.generation import logits_process as peer

        scores = torch.tensor([logits], dtype=torch.float64)
        chain = [
            peer.TemperatureLogitsWarper(temperature),
            peer.TopKLogitsWarper(top_k),
            peer.TopPLogitsWarper(top_p),
        ]
        for process in [*chain, peer.MinPLogitsWarper(min_p)]:
            scores = process(None, scores)
        due = torch.softmax(scores, -1)[0].numpy()
        found = otm.from_logits(
            logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
        )
        inside = np.sort(softmax(np.array(logits) / temperature))[::-1][:top_k]
        # a sum in another order may end a token sooner
        assume(np.abs(np.cumsum(inside / inside.sum()) - top_p).min() > 1e-9)
        close(found, due)

    @given(
        st.lists(st.floats(-20, 20), min_size=1, max_size=8),
        st.integers(1, 9),
        st.floats(0.01, 1.0),
    )
    def test_top_p_is_the_shortest_prefix(
        self, logits: list[float], top_k: int, top_p: float
    ) -> None:
        mass = otm.from_logits(logits, top_k=top_k, top_p=top_p)
        order = np.argsort(-np.array(logits), kind="stable")
        inside = softmax(np.array(logits)[order[:top_k]])
        kept = int(np.count_nonzero(mass))
        assert set(np.flatnonzero(mass)) == set(order[:kept])
        assert inside[: kept - 1].sum() < top_p + 1e-12
        assert inside[:kept].sum() >= top_p - 1e-12
        close(mass[order[:kept]], inside[:kept] / inside[:kept].sum())


class TestLogitsErrors:
    @pytest.mark.parametrize(
        ("bad", "requirement", "remedy"),
        [
            pytest.param([0.0, float("nan")], "must not be NaN or", "Check the model", id="NaN"),
            pytest.param([0.0, INF], "must not be NaN or", "Check the model", id="+inf"),
            pytest.param([-INF, -INF], "one finite entry", "Loosen the mask", id="all -inf"),
            pytest.param(
                [[0.0, 1.0], [-INF, -INF]],
                "one finite entry",
                "Loosen the mask",
                id="one row all -inf",
            ),
            pytest.param([], "non-empty vocabulary", "Pass (..., V)", id="empty"),
            pytest.param(1.0, "non-empty vocabulary", "Pass (..., V)", id="scalar"),
        ],
    )
    def test_values(self, array: Any, bad: Any, requirement: str, remedy: str) -> None:
        with pytest.raises(otm.errors.InvalidDistribution) as caught:
            otm.from_logits(array(bad))
        assert requirement in str(caught.value)
        assert remedy in str(caught.value)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool", "complex64"])
    def test_dtypes(self, dtype: str) -> None:
        import torch

        wrong: list[Any] = [torch.tensor([0, 1], dtype=getattr(torch, dtype))]
        if dtype != "bfloat16":
            wrong.append(np.array([0, 1], dtype=dtype))
        for logits in wrong:
            with pytest.raises(
                otm.errors.InvalidDistribution,
                match=f"float32 or float64; they are {dtype}.*Convert",
            ):
                otm.from_logits(logits)

    @pytest.mark.parametrize(
        "bad",
        ["abc", [1j, 0.0], [[0.0], [0.0, 1.0]], None, object()],
        ids=["text", "complex", "ragged", "None", "object"],
    )
    def test_what_is_no_array_at_all(self, bad: Any) -> None:
        with pytest.raises(otm.errors.InvalidDistribution):
            otm.from_logits(bad)

    @pytest.mark.parametrize(
        ("options", "requirement", "value"),
        [
            ({"temperature": -1.0}, "temperature must lie in [0, inf]", "got -1.0"),
            ({"temperature": float("nan")}, "temperature must lie in", "got nan"),
            ({"temperature": True}, "temperature must lie in", "got True"),
            ({"temperature": "hot"}, "temperature must be a number", "got 'hot'"),
            ({"top_k": 0}, "top_k must be an integer of at least 1", "got 0"),
            ({"top_k": 2.5}, "top_k must be an integer of at least 1", "got 2.5"),
            ({"top_k": True}, "top_k must be an integer of at least 1", "got True"),
            ({"top_p": 0.0}, "top_p must lie in (0, 1]", "got 0.0"),
            ({"top_p": 1.5}, "top_p must lie in (0, 1]", "got 1.5"),
            ({"top_p": float("nan")}, "top_p must lie in (0, 1]", "got nan"),
        ],
    )
    def test_options(self, options: dict[str, Any], requirement: str, value: str) -> None:
        with pytest.raises(otm.errors.InvalidParameter) as caught:
            otm.from_logits([0.0, 1.0], **options)
        assert requirement in str(caught.value)
        assert value in str(caught.value)
