"""Every kind of bad input, one by one: a typed error whose message gives the requirement, the
offending value and the remedy.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection, TransportPlan
from otm.drafts.base import enumerate_drafts
from otm.trees import acceptance_vector
from tests.contracts import calls


@dataclasses.dataclass(frozen=True)
class Library:
    """How to make an array of a given dtype."""

    name: str

    def array(self, values: Any, dtype: str = "float64") -> Any:
        if self.name == "numpy":
            return np.asarray(values, dtype=dtype)
        import torch

        return torch.tensor(values, dtype=getattr(torch, dtype))


@pytest.fixture(params=["numpy", "torch"])
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.param)


def check(
    call: Callable[[], object],
    kind: type[otm.OtmError],
    *,
    requirement: str,
    value: str,
    remedy: str,
) -> None:
    """Run the call and look for the three parts of the message; the type is also a ValueError,
    TypeError or RuntimeError.
    """
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, otm.OtmError)
    assert requirement in message, f"requirement {requirement!r} not in {message!r}"
    assert value in message, f"value {value!r} not in {message!r}"
    assert remedy in message, f"remedy {remedy!r} not in {message!r}"


GOOD = [0.5, 0.25, 0.25]
PROBLEM = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(2))
LARGE = Problem(draft=otm.examples.uniform(3000), target=otm.examples.uniform(3000), law=IID(2))
WIDE = Problem(draft=otm.examples.zipf(20_000), target=otm.examples.uniform(20_000), law=IID(1))
LOGITS_REMEDY = "otm.from_logits"


@pytest.mark.parametrize("side", ["draft", "target"])
class TestDistributions:
    def problem(self, library: Library, side: str, bad: Any) -> Callable[[], Problem]:
        good = library.array(GOOD)
        return lambda: Problem(**{**{"draft": good, "target": good}, side: bad}, law=IID(2))

    def test_negative_mass(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([1.25, -0.25, 0.0]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must be non-negative",
            value="-0.25",
            remedy=f"call {LOGITS_REMEDY}",
        )

    def test_slightly_negative_mass(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([1.0, -1e-12, 1e-12]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="non-negative",
            value="-1e-12",
            remedy="otm.from_logits",
        )

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
    def test_not_finite(self, library: Library, side: str, bad: float) -> None:
        call = self.problem(library, side, library.array([0.5, bad, 0.5]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must be finite",
            value="1 of 3 entries",
            remedy="Check the logits",
        )

    def test_infinities_of_both_signs(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([float("inf"), float("-inf"), 1.0]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="must be finite",
            value="2 of 3",
            remedy="Check the logits",
        )

    def test_wrong_sum(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([0.5, 0.25, 0.125]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must sum to 1 within 1e-09",
            value="0.875",
            remedy="Call otm.normalise",
        )

    def test_the_worst_row_of_a_batch_is_named(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([GOOD, [0.5, 0.5, 0.5], GOOD]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="sum to 1",
            value="1.5",
            remedy="otm.normalise",
        )

    def test_wrong_sum_in_float32(self, library: Library, side: str) -> None:
        call = self.problem(
            library, side, library.array([0.5, 0.25, 0.25 + 2**-13], dtype="float32")
        )
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="sum to 1 within 3e-05",
            value="1.000122",
            remedy="otm.normalise",
        )

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_half_precision(self, library: Library, side: str, dtype: str) -> None:
        if library.name == "numpy" and dtype == "bfloat16":
            pytest.skip("NumPy has no bfloat16")
        call = self.problem(library, side, library.array(GOOD, dtype=dtype))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must be float32 or float64",
            value=dtype,
            remedy="softmax in float32",
        )

    def test_booleans(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([True, False, False], dtype="bool"))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must hold real numbers",
            value="bool",
            remedy="Convert",
        )

    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    def test_complex_numbers(self, library: Library, side: str, dtype: str) -> None:
        call = self.problem(library, side, library.array([0.5, 0.5, 0.0], dtype=dtype))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement=f"{side} must hold real numbers",
            value=dtype,
            remedy="Convert",
        )

    def test_a_scalar(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array(1.0))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="needs a vocabulary axis",
            value="scalar (",
            remedy="Pass an array (..., V)",
        )

    def test_an_empty_vocabulary(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([]))
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="at least one token",
            value="(0,)",
            remedy="Give V ≥ 1",
        )

    def test_an_empty_batch(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([GOOD])[:0])
        check(
            call,
            otm.errors.InvalidDistribution,
            requirement="at least one row",
            value="(0, 3)",
            remedy="Skip empty batches",
        )

    def test_different_vocabularies(self, library: Library, side: str) -> None:
        call = self.problem(library, side, library.array([0.5, 0.5]))
        check(
            call,
            otm.errors.ShapeMismatch,
            requirement="share one vocabulary",
            value="2",
            remedy="Pad the shorter one",
        )

    def test_leading_axes_that_do_not_broadcast(self, library: Library, side: str) -> None:
        other = "target" if side == "draft" else "draft"
        bad, good = library.array([GOOD] * 2), library.array([GOOD] * 3)
        check(
            lambda: Problem(**{side: bad, other: good}, law=IID(2)),  # type: ignore[arg-type]
            otm.errors.ShapeMismatch,
            requirement="must broadcast",
            value="(2, 3)",
            remedy="Reshape",
        )

    def test_two_kinds_of_arrays(self, library: Library, side: str) -> None:
        other = Library("torch" if library.name == "numpy" else "numpy")
        call = self.problem(library, side, other.array(GOOD))
        check(
            call,
            otm.errors.ShapeMismatch,
            requirement="same kind of array",
            value="Tensor",
            remedy="Convert one of them",
        )

    @pytest.mark.parametrize(
        "bad", [[[0.5, 0.5], [1.0]], ["a", "b", "c"], "abc", None, object(), {"a": 1.0}]
    )
    def test_what_is_no_array_at_all(self, library: Library, side: str, bad: object) -> None:
        with pytest.raises(otm.errors.InvalidDistribution, match=side):
            Problem(**{**{"draft": GOOD, "target": GOOD}, side: bad}, law=IID(2))  # type: ignore[arg-type]


class TestNormalise:
    def test_it_is_the_remedy_it_claims_to_be(self, library: Library) -> None:
        off = library.array([0.5, 0.25, 0.125])
        problem = Problem(draft=otm.normalise(off), target=otm.normalise(off), law=IID(1))
        assert otm.optimal_acceptance(problem) == pytest.approx(1.0, abs=1e-15)

    def test_negative_weights(self, library: Library) -> None:
        check(
            lambda: otm.normalise(library.array([1.0, -2.0])),
            otm.errors.InvalidDistribution,
            requirement="non-negative",
            value="-2",
            remedy="Remove or clip",
        )

    def test_no_mass(self, library: Library) -> None:
        check(
            lambda: otm.normalise(library.array([[1.0, 2.0], [0.0, 0.0]])),
            otm.errors.InvalidDistribution,
            requirement="positive sum",
            value="all zero",
            remedy="Drop that row",
        )

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_not_finite(self, library: Library, bad: float) -> None:
        check(
            lambda: otm.normalise(library.array([1.0, bad])),
            otm.errors.InvalidDistribution,
            requirement="finite",
            value="1 of 2",
            remedy="Check",
        )

    def test_weights_whose_sum_overflows_or_underflows_are_fine(self, library: Library) -> None:
        np.testing.assert_allclose(
            np.asarray(otm.normalise(library.array([1.5e308, 1.5e308]))), [0.5, 0.5]
        )
        np.testing.assert_allclose(
            np.asarray(otm.normalise(library.array([5e-324, 1.5e-323]))), [0.25, 0.75]
        )


@pytest.mark.parametrize("make", [pytest.param(cls, id=cls.__name__) for cls in otm.drafts.LAWS])
class TestNumberOfDrafts:
    @pytest.mark.parametrize(
        "bad", [0, -3, 2.5, 2.0, True, np.True_, "3", None, float("nan"), [2]], ids=repr
    )
    def test_k_must_be_an_integer_of_at_least_one(self, make: type[otm.Law], bad: Any) -> None:
        for call in (lambda: make(bad), lambda: make(1).with_k(bad)):
            check(
                call,
                otm.errors.InvalidParameter,
                requirement="k must be an integer of at least 1",
                value=f"got {bad!r}",
                remedy="Pass k=",
            )

    def test_numpy_integers_are_integers(self, make: type[otm.Law]) -> None:
        law = make(np.int64(3))  # type: ignore[arg-type]
        assert law == make(3)
        assert hash(law) == hash(make(3))
        assert repr(law) == repr(make(3))
        # A NumPy integer wraps around where V^k needs more than 63 bits.
        huge = make(np.int64(30))  # type: ignore[arg-type]
        assert huge.num_sequences(40) == make(30).num_sequences(40)


@pytest.mark.parametrize("bad", [2, "IID", IID, None, 2.5], ids=repr)
def test_law_must_be_a_law(bad: Any) -> None:
    check(
        lambda: Problem(draft=GOOD, target=GOOD, law=bad),
        otm.errors.InvalidParameter,
        requirement="law must be a draft law",
        value=f"got {bad!r}",
        remedy="Choose one of otm.drafts.LAWS",
    )


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(otm.bounds.kseq_lower, id="kseq_lower"),
        pytest.param(otm.bounds.optimal_bracket, id="optimal_bracket"),
        pytest.param(otm.bounds.support_limit_upper, id="support_limit_upper"),
        pytest.param(otm.bounds.list_matching_lower, id="list_matching_lower"),
        pytest.param(otm.bounds.poisson_matching_lower, id="poisson_matching_lower"),
        pytest.param(otm.bounds.poisson_representation_lower, id="poisson_representation_lower"),
        pytest.param(otm.bounds.index_entropy_lower, id="index_entropy_lower"),
        pytest.param(otm.bounds.index_entropy_upper, id="index_entropy_upper"),
        pytest.param(otm.bounds.greedy_index_entropy_upper, id="greedy_index_entropy_upper"),
        pytest.param(otm.bounds.spectr_minimum_upper, id="spectr_minimum_upper"),
        pytest.param(
            lambda problem: otm.bounds.spectr_upper(problem, subset=[0]), id="spectr_upper"
        ),
        pytest.param(otm.optimal_acceptance, id="optimal_acceptance"),
        pytest.param(otm.optimum, id="optimum"),
        pytest.param(otm.transport.optimum_program, id="optimum_program"),
        pytest.param(
            lambda problem: otm.transport.certify_exactly(problem, otm.optimum(PROBLEM)),
            id="certify_exactly",
        ),
        pytest.param(
            lambda problem: otm.verifiers.prepare_batch(otm.Optimal(bins=4), problem),
            id="prepare_batch",
        ),
        pytest.param(lambda problem: otm.prepare(KSeq(), problem), id="prepare"),
        pytest.param(lambda problem: otm.lossy.distortion(KSeq(), problem), id="distortion"),
        pytest.param(lambda problem: otm.lossy.tv_frontier(problem, tv=0.1), id="tv_frontier"),
        pytest.param(lambda problem: otm.lossy.kl_frontier(problem, kl=0.1), id="kl_frontier"),
        pytest.param(
            lambda problem: otm.lossy.kl_frontier_program(problem, kl=0.1), id="kl_frontier_program"
        ),
        pytest.param(
            lambda problem: otm.verifiers.rao_blackwell_acceptance(problem, samples=9, rng=RNG),
            id="rao_blackwell_acceptance",
        ),
        pytest.param(
            lambda problem: otm.estimate(KSeq(), problem, samples=9, rng=RNG), id="estimate"
        ),
        pytest.param(
            lambda problem: otm.verifiers.selection_with_law(problem, law=[0.5, 0.5]),
            id="selection_with_law",
        ),
        pytest.param(
            lambda problem: acceptance_vector(RecursiveRejection(), problem), id="acceptance_vector"
        ),
        pytest.param(lambda problem: otm.audit.exact(KSeq(), problem), id="audit.exact"),
        pytest.param(
            lambda problem: otm.audit.library_sampler(KSeq(), problem), id=("audit.sampler")
        ),
        pytest.param(
            lambda problem: otm.audit.sampled(KSeq(), problem, rng=RNG), id="audit.sampled"
        ),
        pytest.param(otm.verifiers.gamma_star, id="gamma_star"),
        pytest.param(otm.optimal_cut, id="optimal_cut"),
        pytest.param(
            lambda problem: otm.optimal_acceptance_curve(problem, k=[1]),
            id="optimal_acceptance_curve",
        ),
    ],
)
class TestProblems:
    @pytest.mark.parametrize(
        "bad",
        [KSeq(), "x", None, ([0.5, 0.5], [0.5, 0.5])],
        ids=["a verifier", "str", "None", "a pair"],
    )
    def test_what_is_no_problem(self, call: Callable[[object], object], bad: object) -> None:
        check(
            lambda: call(bad),
            otm.errors.InvalidParameter,
            requirement="A problem must be an otm.Problem",
            value=f"got {bad!r}",
            remedy="Build one from draft=, target=, law=; it comes after the verifier",
        )


class TestCurves:
    @pytest.mark.parametrize("verb", ["optimal", "verifier"])
    @pytest.mark.parametrize(
        ("bad", "requirement", "value"),
        [
            ([], "at least one number", "empty"),
            (4, "a sequence of integers", "got 4"),
            ([1, 0], "k must be an integer of at least 1", "got 0"),
            ([1, 2.5], "k must be an integer of at least 1", "got 2.5"),
            ([True], "k must be an integer of at least 1", "got True"),
            ("3", "k must be an integer of at least 1", "got '3'"),
        ],
    )
    def test_list_of_k(self, verb: str, bad: Any, requirement: str, value: str) -> None:
        call = {
            "optimal": lambda: otm.optimal_acceptance_curve(PROBLEM, k=bad),
            "verifier": lambda: otm.acceptance_curve(KSeq(), PROBLEM, k=bad),
        }[verb]
        check(
            call,
            otm.errors.InvalidParameter,
            requirement=requirement,
            value=value,
            remedy="Pass k=",
        )

    def test_a_k_that_the_verifier_does_not_support(self) -> None:
        check(
            lambda: otm.acceptance_curve(Maximal(), PROBLEM, k=[1, 2]),
            otm.errors.Unsupported,
            requirement="Maximal()",
            value="IID(k=2)",
            remedy="Choose a verifier",
        )


class TestGamma:
    @pytest.mark.parametrize(
        "bad", [0.5, 0, -1.0, float("nan"), True, np.True_, float("-inf")], ids=repr
    )
    def test_must_be_at_least_one(self, bad: Any) -> None:
        check(
            lambda: KSeq(gamma=bad),
            otm.errors.InvalidParameter,
            requirement="gamma must lie in [1, inf]",
            value=f"got {bad!r}",
            remedy="Choose",
        )

    @pytest.mark.parametrize("bad", ["three", "3", [2.0], 1j, object], ids=repr)
    def test_must_be_a_number(self, bad: Any) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="gamma must"):
            KSeq(gamma=bad)

    def test_below_gamma_star(self) -> None:
        check(
            lambda: otm.acceptance(KSeq(gamma=1.2), PROBLEM),
            otm.errors.InvalidParameter,
            requirement="at least gamma* = 1.39038",
            value="got 1.2",
            remedy="Use KSeq()",
        )

    def test_infinity_never_accepts(self) -> None:
        assert otm.acceptance(KSeq(gamma=float("inf")), PROBLEM, by="rule") == 0.0
        # Y ~ q whatever the drafts: Σ q(1 − (1 − p)²) = ½·15/16 + ½·7/16
        assert otm.acceptance(KSeq(gamma=float("inf")), PROBLEM) == pytest.approx(
            11 / 16, abs=1e-15
        )


class TestMonteCarlo:
    rng = np.random.default_rng(0)

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True, "10", None], ids=repr)
    def test_number_of_samples(self, bad: Any) -> None:
        check(
            lambda: otm.estimate(KSeq(), PROBLEM, samples=bad, rng=self.rng),
            otm.errors.InvalidParameter,
            requirement="samples must be an integer of at least 1",
            value=f"got {bad!r}",
            remedy="Pass samples=1",
        )
        check(
            lambda: otm.sample(KSeq(), PROBLEM, size=bad, rng=self.rng),
            otm.errors.InvalidParameter,
            requirement="size must be an integer of at least 1",
            value=f"got {bad!r}",
            remedy="Pass size=1",
        )

    @pytest.mark.parametrize("bad", [0, -0.5, 1.5, float("nan"), True, "high"], ids=repr)
    def test_confidence(self, bad: Any) -> None:
        check(
            lambda: otm.estimate(KSeq(), PROBLEM, samples=1, rng=self.rng, confidence=bad),
            otm.errors.InvalidParameter,
            requirement="confidence must",
            value=f"got {bad!r}",
            remedy="Choose a value" if not isinstance(bad, str) else "Pass a float",
        )

    def test_certainty(self) -> None:
        check(
            lambda: otm.estimate(KSeq(), PROBLEM, samples=1, rng=self.rng, confidence=1),
            otm.errors.InvalidParameter,
            requirement="confidence must be below 1",
            value="[0, 1]",
            remedy="Pass 0.95",
        )

    @pytest.mark.parametrize("bad", ["both", "", None, 1, True], ids=repr)
    def test_definition(self, bad: Any) -> None:
        for call in (
            lambda: otm.acceptance(KSeq(), PROBLEM, by=bad),
            lambda: otm.acceptance_curve(KSeq(), PROBLEM, k=[1], by=bad),
            lambda: otm.estimate(KSeq(), PROBLEM, samples=1, rng=self.rng, by=bad),
        ):
            check(
                call,
                otm.errors.InvalidParameter,
                requirement="by must be 'membership'",
                value=f"got {bad!r}",
                remedy="Choose one",
            )


@pytest.mark.parametrize("verifier", [KSeq(), RecursiveRejection(), TransportPlan()], ids=repr)
class TestDrafts:
    @pytest.mark.parametrize(
        ("bad", "value"),
        [
            ([0], "shape (1,)"),
            ([0, 1, 0], "shape (3,)"),
            ([[0, 1, 0]], "shape (1, 3)"),
            ([[[0, 1]]], "shape (1, 1, 2)"),
            (0, "shape ()"),
            ([0.0, 1.0], "float64"),
            ([True, False], "bool"),
            (["a", "b"], "<U1"),
        ],
    )
    def test_shape_and_dtype(self, verifier: otm.Verifier, bad: Any, value: str) -> None:
        check(
            lambda: otm.kernel(verifier, PROBLEM, bad),
            otm.errors.InvalidParameter,
            requirement="integer tokens of shape (k,) or (n, k) with k = 2",
            value=value,
            remedy="Pass one token per draft",
        )

    @pytest.mark.parametrize(
        ("bad", "value"), [([0, 2], "0 to 2"), ([-2, 0], "-2 to 0"), ([[0, 1], [1, 99]], "0 to 99")]
    )
    def test_range(self, verifier: otm.Verifier, bad: Any, value: str) -> None:
        check(
            lambda: otm.kernel(verifier, PROBLEM, bad),
            otm.errors.InvalidParameter,
            requirement="must lie in [0, 2)",
            value=value,
            remedy="share the vocabulary",
        )

    def test_no_draft_is_no_token(self, verifier: otm.Verifier) -> None:
        """−1 marks the missing drafts of laws that run out of tokens; i.i.d. drafts never do, and
        −1 is not the last token.
        """
        with pytest.raises(otm.errors.InvalidParameter):
            otm.kernel(verifier, PROBLEM, [-1, 0])


class TestTooLarge:
    """Each names the size and what to call instead, and comes before any memory is taken."""

    @pytest.mark.parametrize(
        ("call", "size", "remedy"),
        [
            pytest.param(
                lambda: otm.optimum(LARGE), "9,000,000", "otm.optimal_acceptance", id="optimum"
            ),
            pytest.param(
                lambda: otm.optimum(LARGE, method="sequences"),
                "27,000,000,000",
                "otm.optimal_acceptance",
                id="optimum, literal",
            ),
            pytest.param(
                lambda: otm.transport.optimum_program(LARGE),
                "27,000,000,000",
                "otm.optimum",
                id="optimum_program",
            ),
            pytest.param(
                lambda: otm.coupling(KSeq(), LARGE),
                "27,000,000,000",
                "otm.lossy.output_law",
                id="coupling",
            ),
            pytest.param(
                lambda: otm.coupling(otm.Maximal(), WIDE),
                "400,000,000",
                "otm.lossy.output_law",
                id="one draft",
            ),
            pytest.param(
                lambda: otm.coupling(otm.Race(), WIDE),
                "400,000,000",
                "otm.sample",
                id="coupling of a race",
            ),
            pytest.param(
                lambda: otm.lossy.output_law(otm.Race(), WIDE),
                "400,000,000",
                "otm.sample",
                id="output law of a race",
            ),
            pytest.param(
                lambda: otm.lossy.output_law(KSeq(), LARGE),
                "9,000,000",
                "otm.estimate",
                id="output law",
            ),
            pytest.param(
                lambda: otm.bounds.spectr_upper(LARGE, subset=[0]),
                "9,000,000",
                "otm.optimal_acceptance",
                id="spectr_upper",
            ),
            pytest.param(
                lambda: otm.bounds.spectr_minimum_upper(LARGE),
                "9,000,000",
                "otm.optimal_acceptance",
                id="spectr_minimum_upper",
            ),
            pytest.param(
                lambda: otm.acceptance(TransportPlan(), LARGE),
                "9,000,000",
                "otm.optimal_acceptance",
                id="Otm acceptance",
            ),
            pytest.param(
                lambda: otm.prepare(TransportPlan(), LARGE),
                "9,000,000",
                "otm.optimal_acceptance",
                id="Otm prepare",
            ),
            pytest.param(
                lambda: otm.transport.certify_exactly(LARGE, otm.optimum(PROBLEM)),
                "9,000,000",
                "otm.optimal_acceptance",
                id="certify_exactly",
            ),
            pytest.param(
                lambda: enumerate_drafts(LARGE.law, LARGE.draft),
                "9,000,000",
                "otm.estimate",
                id="enumerate_drafts",
            ),
        ],
    )
    def test_everywhere(self, call: Callable[[], object], size: str, remedy: str) -> None:
        check(call, otm.errors.TooLarge, requirement="limited to", value=size, remedy=remedy)
        with pytest.raises(otm.errors.TooLarge, match=r"Call otm\."):
            call()

    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(otm.optimum, id="optimum"),
            pytest.param(lambda p: otm.coupling(KSeq(), p), id="coupling"),
            pytest.param(otm.transport.optimum_program, id="optimum_program"),
            pytest.param(lambda p: otm.acceptance(TransportPlan(), p), id="Otm"),
        ],
    )
    def test_sizes_with_thousands_of_digits(self, call: Callable[[Problem], object]) -> None:
        # 2^20000 has 6,021 digits, more than Python prints (4,300): the message must not fail for
        # that.
        problem = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(20_000))
        with pytest.raises(otm.errors.TooLarge, match="limited to"):
            call(problem)

    def test_compare_at_such_a_size_says_so_in_the_row(self) -> None:
        table = otm.compare(
            draft=[0.75, 0.25],
            target=[0.5, 0.5],
            verifiers=[TransportPlan()],
            laws=[IID],
            k=[20_000],
            samples=0,
        )
        assert table.rows[0].exact is None
        assert "limited to" in table.rows[0].note

    def test_a_vocabulary_of_one_is_never_too_large(self) -> None:
        # One sequence, but 100 columns: more than NumPy has axes.
        problem = Problem(draft=[1.0], target=[1.0], law=IID(100))
        assert otm.coupling(KSeq(), problem).acceptance == 1.0
        assert otm.optimum(problem).value == pytest.approx(1.0, abs=1e-12)


class TestOthers:
    @pytest.mark.parametrize("bad", ["simplex", "", None], ids=repr)
    def test_method(self, bad: Any) -> None:
        check(
            lambda: otm.optimum(PROBLEM, method=bad),
            otm.errors.InvalidParameter,
            requirement="'sets' or 'sequences'",
            value=f"got {bad!r}",
            remedy="Choose one",
        )

    @pytest.mark.parametrize("bad", [[2], [-1], [0.5], [True, False, True], "ab"], ids=repr)
    def test_subset_of_theorem_1(self, bad: Any) -> None:
        check(
            lambda: otm.bounds.spectr_upper(PROBLEM, subset=bad),
            otm.errors.InvalidParameter,
            requirement="Boolean mask (2,) or tokens in [0, 2)",
            value=f"got {bad!r}",
            remedy="Pass one of these",
        )

    @pytest.mark.parametrize(
        "call",
        [
            otm.optimum,
            otm.optimal_cut,
            otm.transport.optimum_program,
            lambda p: otm.bounds.spectr_upper(p, subset=[0]),
            otm.bounds.spectr_minimum_upper,
            lambda p: otm.acceptance(TransportPlan(), p),
            lambda p: otm.transport.certify_exactly(p, otm.optimum(PROBLEM)),
        ],
    )
    def test_one_row_where_one_row_is_meant(self, call: Callable[[Problem], object]) -> None:
        batch = Problem(draft=[[0.75, 0.25]] * 2, target=[0.5, 0.5], law=IID(2))
        check(
            lambda: call(batch),
            otm.errors.ShapeMismatch,
            requirement="needs one pair of distributions (V,)",
            value="(2,)",
            remedy="Index the row",
        )

    @pytest.mark.parametrize("bad", [0, -1, 2.5, True, "2"], ids=repr)
    def test_counts_of_the_closed_forms(self, bad: Any) -> None:
        for call in (
            lambda: otm.examples.uniform_optimum(ratio=2, k=bad),
            lambda: otm.examples.two_token_optimum(draft=0.5, target=0.5, k=bad),
            lambda: otm.bounds.kseq_factor(bad),
        ):
            check(
                call,
                otm.errors.InvalidParameter,
                requirement="k must be an integer",
                value=f"got {bad!r}",
                remedy="Pass k=",
            )

    @pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), True], ids=repr)
    def test_probabilities_of_the_closed_forms(self, bad: Any) -> None:
        for name, call in (
            ("draft", lambda: otm.examples.two_token_optimum(draft=bad, target=0.5, k=1)),
            ("target", lambda: otm.examples.two_token_optimum(draft=0.5, target=bad, k=1)),
            ("q", lambda: otm.examples.bernoulli(bad)),
        ):
            check(
                call,
                otm.errors.InvalidParameter,
                requirement=f"{name} must lie in [0, 1]",
                value=f"got {bad!r}",
                remedy="Choose",
            )
        check(
            lambda: otm.examples.uniform_optimum(ratio=0.5, k=1),
            otm.errors.InvalidParameter,
            requirement="ratio must lie in [1, inf]",
            value="got 0.5",
            remedy="Choose",
        )

    @pytest.mark.parametrize(
        "make", [pytest.param(cls, id=cls.__name__) for cls in otm.drafts.LAWS if cls is not IID]
    )
    def test_bounds_that_are_proven_for_independent_drafts(self, make: type[otm.Law]) -> None:
        from tests import instances

        problem = instances.named_problem("plain", make(2))
        assert problem is not None
        for call in (
            lambda: otm.bounds.kseq_lower(problem),
            lambda: otm.bounds.spectr_upper(problem, subset=[0]),
        ):
            with pytest.raises(otm.errors.Unsupported) as caught:
                call()
            assert repr(make(2)) in str(caught.value)
            assert "Use " in str(caught.value)

    def test_every_error_is_an_otm_error_and_a_standard_one(self) -> None:
        for kind, standard in [
            (otm.errors.InvalidDistribution, ValueError),
            (otm.errors.ShapeMismatch, otm.errors.InvalidDistribution),
            (otm.errors.InvalidParameter, ValueError),
            (otm.errors.Unsupported, TypeError),
            (otm.errors.TooLarge, ValueError),
            (otm.errors.SolverFailure, RuntimeError),
        ]:
            assert issubclass(kind, otm.OtmError)
            assert issubclass(kind, standard)


class TestWhatIsAccepted:
    """The gate's other side: rounding inside the tolerance is repaired, nothing else is touched."""

    def test_lists_integers_and_fractions(self) -> None:
        from fractions import Fraction

        assert (
            Problem(draft=[1, 0], target=[Fraction(1, 3), Fraction(2, 3)], law=IID(1)).draft.dtype
            == np.float64
        )

    def test_a_sum_inside_the_tolerance_is_divided_out(self, library: Library) -> None:
        values = library.array([0.5, 0.25, 0.25 + 9e-10])
        problem = Problem(draft=values, target=values, law=IID(1))
        assert float(problem.draft.sum()) == pytest.approx(1.0, abs=1e-15)
        assert float(values.sum()) > 1 + 8e-10  # the caller's array is left alone

    def test_a_float32_softmax_at_full_vocabulary_passes(self, library: Library) -> None:
        logits = np.random.default_rng(0).standard_normal(128_256).astype(np.float32) * 4
        mass = np.exp(logits - logits.max())
        mass /= mass.sum(dtype=np.float32)
        here = library.array(mass, dtype="float32")
        problem = Problem(draft=here, target=here, law=IID(2))
        assert str(problem.draft.dtype).removeprefix("torch.") == "float32"
        assert otm.optimal_acceptance(problem) == pytest.approx(1.0, abs=2e-5)

    def test_exact_rows_are_not_copied(self, library: Library) -> None:
        values = library.array(GOOD)
        assert Problem(draft=values, target=values, law=IID(1)).draft is values

    def test_broadcasting(self, library: Library) -> None:
        problem = Problem(
            draft=library.array(GOOD), target=library.array([[GOOD] * 2] * 4), law=IID(1)
        )
        assert problem.batch_shape == (4, 2)
        assert problem.num_tokens == 3
        assert tuple(problem.draft.shape) == (4, 2, 3)

    def test_float32_and_float64_meet_in_float64(self, library: Library) -> None:
        problem = Problem(
            draft=library.array(GOOD, dtype="float32"), target=library.array(GOOD), law=IID(1)
        )
        assert "float64" in str(problem.draft.dtype)

    def test_with_law_and_single(self) -> None:
        other = PROBLEM.with_law(IID(5))
        assert other.law == IID(5)
        assert other.draft is PROBLEM.draft
        assert PROBLEM.single(purpose="a test") is PROBLEM
        narrow = Problem(
            draft=np.float32([0.3, 0.7]), target=np.float32([0.6, 0.4]), law=IID(1)
        ).single(purpose="a test")
        assert narrow.draft.dtype == np.float64
        assert narrow.draft.sum() == pytest.approx(1.0, abs=1e-16)


class TestWhatLooksLikeInputButIsNot:
    """Found by trying: each used to be a bare traceback, or a wrong number."""

    @pytest.mark.parametrize("rng", [0, None, np.random.RandomState(0), np.random])
    def test_rng_must_be_a_generator(self, rng: object) -> None:
        for call in (
            lambda: otm.sample(KSeq(), PROBLEM, size=3, rng=rng),
            lambda: otm.estimate(KSeq(), PROBLEM, samples=3, rng=rng),
            lambda: otm.examples.dirichlet(3, rng=rng),
        ):
            with pytest.raises(
                otm.errors.InvalidParameter, match=r"numpy\.random\.Generator.*default_rng"
            ):
                call()

    @pytest.mark.parametrize("verifier", [KSeq, None, "KSeq", IID(2)])
    def test_verifier_must_be_an_instance(self, verifier: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="instance"):
            otm.acceptance(verifier, PROBLEM)

    @pytest.mark.parametrize("problem", [None, ([0.5, 0.5], [0.5, 0.5]), KSeq()])
    def test_problem_must_be_a_problem(self, problem: object) -> None:
        for call in (
            lambda: otm.acceptance(KSeq(), problem),
            lambda: otm.acceptance_curve(KSeq(), problem, k=[1]),
            lambda: otm.optimal_acceptance(problem),
            lambda: otm.optimum(problem),
            lambda: otm.prepare(KSeq(), problem),
        ):
            with pytest.raises(otm.errors.InvalidParameter, match=r"must be an otm\.Problem"):
                call()

    @pytest.mark.parametrize("named", [KSeq(), [KSeq], "a"])
    def test_compare_wants_a_list_of_verifiers(self, named: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="list of verifiers"):
            otm.compare(draft=[1.0], target=[1.0], verifiers=named)

    @pytest.mark.parametrize("named", [IID, [IID(2)], "IID"])
    def test_compare_wants_a_list_of_law_classes(self, named: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="classes"):
            otm.compare(draft=[1.0], target=[1.0], laws=named)

    def test_masked_entries(self) -> None:
        masked = np.ma.array([0.5, 0.3, 0.2, 0.7], mask=[0, 0, 0, 1])
        with pytest.raises(otm.errors.InvalidDistribution, match=r"masked; 1 entries.*filled"):
            Problem(draft=masked, target=[0.25] * 4, law=IID(2))
        whole = np.ma.array([0.5, 0.5])
        assert type(Problem(draft=whole, target=whole, law=IID(2)).draft) is np.ndarray

    def test_byte_order_is_not_a_precision(self) -> None:
        swapped = np.array([0.5, 0.3, 0.2], dtype=">f4")
        assert Problem(draft=swapped, target=swapped, law=IID(2)).draft.dtype == np.float32

    def test_arrays_of_fractions_are_read_like_lists(self) -> None:
        thirds = [Fraction(1, 3)] * 3
        assert (
            otm.optimal_acceptance(
                Problem(draft=np.array(thirds, dtype=object), target=thirds, law=IID(2))
            )
            == 1.0
        )

    def test_sparse_and_meta_tensors(self) -> None:
        import torch

        for tensor in (torch.tensor([1.0, 0.0]).to_sparse(), torch.zeros(2, device="meta")):
            with pytest.raises(otm.errors.InvalidDistribution, match="dense"):
                Problem(draft=tensor, target=tensor, law=IID(1))

    @pytest.mark.parametrize(
        "call",
        [
            pytest.param(lambda: otm.optimal_acceptance_curve(PROBLEM, k=[10**400]), id="k"),
            pytest.param(lambda: otm.Mentored(10**400), id="kl"),
            pytest.param(
                lambda: otm.from_logits([0.0, 1.0], temperature=10**400), id="temperature"
            ),
            pytest.param(lambda: otm.Optimal(bins=10**12), id="bins"),
            pytest.param(lambda: otm.bounds.optimal_bracket(PROBLEM, bins=10**12), id="bracket"),
            pytest.param(lambda: otm.kernel(KSeq(), PROBLEM, [[0], [0, 1]]), id="ragged drafts"),
            pytest.param(
                lambda: otm.bounds.spectr_upper(PROBLEM, subset=[[0], [0, 1]]), id="ragged subset"
            ),
            pytest.param(lambda: otm.acceptance(KSeq(), PROBLEM, by=np.array([1, 2])), id="by"),
            pytest.param(lambda: otm.optimum(PROBLEM, method=np.array([1, 2])), id="method"),
        ],
    )
    def test_huge_or_ragged_arguments(self, call: Callable[[], object]) -> None:
        with pytest.raises(otm.errors.InvalidParameter):
            call()

    def test_parameters_are_stored_as_plain_floats(self) -> None:
        assert type(otm.Fuzzy(Fraction(1, 10)).threshold) is float
        assert hash(KSeq(np.float64(3))) == hash(KSeq(3.0))


HOSTILE: dict[str, Callable[[], Any]] = {
    "masked": lambda: np.ma.array([0.5, 0.3, 0.2], mask=[0, 1, 0]),
    "half precision": lambda: np.array([0.5, 0.25, 0.25], dtype=np.float16),
    "complex": lambda: np.array([0.5, 0.5j, 0.0]),
    "ragged": lambda: [[0.5, 0.5], [1.0]],
    "lists": lambda: [[1], [2], [3], [4]],
    "text": lambda: "abc",
    "texts": lambda: ["a", "b"],
    "bytes": lambda: b"abc",
    "object": object,
    "NaN": lambda: float("nan"),
    "Booleans": lambda: np.array([True, False, False]),
    "a Boolean": lambda: True,
    "None": lambda: None,
    "no axes": lambda: np.array(0.5),
    "empty": list,
    "a mapping": dict,
    "negative": lambda: -1,
    "half": lambda: 1.5,
    "huge": lambda: 10**400,
    "a class": lambda: IID,
    "a function": lambda: lambda *arguments: "x",
    "a gradient": lambda: _tensor([0.5, 0.25, 0.25], requires_grad=True),
    "a gradient without axes": lambda: _tensor(0.5, requires_grad=True),
    "sparse": lambda: _tensor([0.5, 0.5, 0.0]).to_sparse(),
    "without data": lambda: _tensor([0.5, 0.5, 0.0]).to("meta"),
}

NEVER_RIGHT = ("masked", "half precision", "complex", "ragged", "object", "NaN")
"""Nothing that the library computes takes these."""

UNCHECKED = {"overlap_at"}
"""Works on masses that have passed the gate, inside loops: its documentation says that it checks
nothing.
"""

OF_ANY_KIND = {"verify", "run", "memory"}
"""Arguments that are functions of the user's."""


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (
            lambda: otm.Problem(*PAIR, otm.IID(1)),
            r"3 by position. Call otm\.Problem\(draft=p, target=q, law=otm\.IID\(k\)\)",
        ),
        (lambda: otm.Problem(PAIR[0], target=PAIR[1], law=otm.IID(1)), "1 by position"),
        (lambda: otm.compare(*PAIR), r"2 by position. Call otm\.compare\(draft=p, target=q\)"),
        (
            lambda: otm.acceptance_table(*PAIR, k=[1]),
            r"2 by position. Call otm\.acceptance_table\(draft=p",
        ),
    ],
)
def test_distributions_by_position_are_refused_with_the_reason(
    call: Callable[[], Any], instead: str
) -> None:
    with pytest.raises(
        otm.errors.InvalidParameter,
        match=f"keyword-only, because the literature swaps p and q; got {instead}",
    ):
        call()


PAIR = [0.5, 0.5], [0.25, 0.75]


def _tensor(values: Any, **how: Any) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64, **how)


def _places() -> list[Any]:
    return [
        pytest.param(function, arguments, name, id=f"{function.__qualname__}-{i}-{name}")
        for i, (function, arguments) in enumerate(calls.CALLS)
        for name in arguments
        if function.__qualname__ not in UNCHECKED
    ]


def test_every_public_function_is_called() -> None:
    assert calls.public() <= {function.__name__ for function, _ in calls.CALLS}
    for function, arguments in calls.CALLS:
        function(**arguments)


@pytest.mark.parametrize(("function", "arguments", "name"), _places())
@pytest.mark.filterwarnings("ignore")
def test_whatever_stands_for_an_argument_is_answered_or_refused(
    function: Callable[..., Any], arguments: dict[str, Any], name: str
) -> None:
    """A typed error or an answer; for what nothing takes, the error."""
    for kind, make in HOSTILE.items():
        try:
            function(**(arguments | {name: make()}))
        except otm.OtmError:
            continue
        except otm.tracing.TraceAborted:  # what `trace` documents of code that it cannot follow
            assert function is otm.tracing.trace, f"{kind} for {name} left a trace unfinished"
        except Exception as error:
            raise AssertionError(f"{kind} for {name}: {error!r}") from error
        assert kind not in NEVER_RIGHT or name in OF_ANY_KIND, f"{kind} for {name} was taken"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(otm.trees.check_acceptance, id="check_acceptance"),
        pytest.param(lambda mass: otm.trees.tunstall_upper(mass, num_nodes=3), id="tunstall_upper"),
        pytest.param(
            lambda mass: otm.trees.optimal_tree(mass, num_nodes=3).acceptance, id="optimal_tree"
        ),
        pytest.param(
            lambda mass: otm.partial.TopTokens(tokens=[0, 1, 2], probabilities=mass).probabilities,
            id="TopTokens",
        ),
        pytest.param(
            lambda mass: otm.partial.TopTokens.of(mass, m=2).probabilities, id="TopTokens.of"
        ),
        pytest.param(otm.trees.entropy_bits, id="entropy_bits"),
        pytest.param(lambda mass: otm.examples.describe(mass)["entropy_bits"], id="describe"),
    ],
)
def test_gradients_are_refused_and_masks_without_effect_are_plain(
    call: Callable[[Any], Any],
) -> None:
    """A gradient that is left behind would be a term of a loss that trains nothing."""
    plain = np.array([0.5, 0.25, 0.25])
    with pytest.raises(otm.errors.InvalidDistribution, match=r"\.detach\(\)"):
        call(_tensor(plain, requires_grad=True))
    for values in (
        _tensor(plain, requires_grad=True).detach(),
        np.ma.array(plain, mask=[0, 0, 0]),
        list(plain),
    ):
        answer = call(values)
        np.testing.assert_array_equal(np.asarray(answer), np.asarray(call(plain)))
        assert not isinstance(answer, np.ma.MaskedArray)


def test_an_interrupted_decoding_can_be_sent_to_another_process() -> None:
    error = otm.errors.DecodingInterrupted(
        "Decoding stopped.", otm.sequence.Generation(tokens=(1,), steps=(), ended=False)
    )
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.generation) == (
        type(error),
        str(error),
        error.generation,
    )


@pytest.mark.parametrize(
    "selection",
    [None, otm.verifiers.selection_with_law(PROBLEM, law=[0.75, 0.25])],
    ids=["plan", "law"],
)
def test_a_prepared_selection_can_be_sent_to_another_process(selection: Any) -> None:
    rule = otm.prepare(otm.SelectThenReject(selection), PROBLEM)
    drafts = np.array([[0, 1], [1, 1]])
    rule.split(drafts)
    again = pickle.loads(pickle.dumps(rule))
    for mine, theirs in zip(rule.split(drafts), again.split(drafts), strict=True):
        np.testing.assert_array_equal(mine, theirs)
