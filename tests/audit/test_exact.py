"""Exact audits against independent accounts: fractions, the verifiers' closed forms, their kernels, and their own samplers."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm.audit import (
    Candidate,
    CandidateFailure,
    audit_battery,
    audit_exactly,
    audit_steps,
    rounding_tolerance,
    shrink,
    steps_of,
)
from otm.audit.instances import INSTANCES, standard_problems
from otm.audit.tracing import integrate
from tests import instances, mutants

PAIR = {"draft": [0.5, 0.3, 0.15, 0.05], "target": [0.2, 0.35, 0.2, 0.25]}


def draw(mass: Any, u: Any) -> int:
    return int(np.searchsorted(np.cumsum(mass) / np.sum(mass), u, side="right"))


def maximal(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Single-draft rejection, from the paper."""
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    return draw(np.maximum(q - p, 0.0), uniforms[1]), False


def recursive(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection of i.i.d. drafts, from the paper."""
    r = np.array(q)
    for i, x in enumerate(drafts):
        if uniforms[i] * p[x] < r[x]:
            return int(x), True
        r = np.maximum(r - p, 0.0)
        r = r / r.sum()
    return draw(r, uniforms[-1]), False


def one_uniform(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection that compares one uniform at every accept step."""
    return recursive(p, q, drafts, np.array([*[uniforms[0]] * len(drafts), uniforms[-1]], dtype=uniforms.dtype))


def as_floats(verify: Any) -> Any:
    """The same code behind a conversion to plain floats, as tensor code has it: a black box."""
    return lambda p, q, drafts, uniforms: verify(p, q, drafts, np.asarray(uniforms, dtype=np.float64))


class TestIntegration:
    @given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.floats(0.1, 2.0), st.floats(0.0, 1.0))
    def test_cells_of_two_uniforms_have_their_exact_volume(self, weights: list[float], scale: float, threshold: float) -> None:
        ends = np.cumsum(weights) / np.sum(weights)

        def function(u: Any) -> Any:
            return (bool(scale * u[0] <= threshold), int(np.minimum(np.searchsorted(ends, u[1], side="right"), len(ends) - 1)))

        law = integrate(function, 2)
        assert law is not None
        assert law.undecided == 0.0
        first = min(threshold / scale, 1.0)
        for j, length in enumerate(np.diff(ends, prepend=0.0)):
            # Cell ends are floats in [0, 1], each off by 2^-53; the last sum may miss 1 by V times that.
            assert math.isclose(law.mass.get((True, j), 0.0), first * length, abs_tol=1e-14)
            assert math.isclose(law.mass.get((False, j), 0.0), (1 - first) * length, abs_tol=1e-14)

    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (lambda u: int(u[0] * 5), dict.fromkeys(range(5), 0.2)),
            (lambda u: bisect.bisect([0.25, 0.5], u[0]), {0: 0.25, 1: 0.25, 2: 0.5}),
            (lambda u: bool(-np.log(u[0]) > 1.0), {True: math.exp(-1), False: 1 - math.exp(-1)}),
            (lambda u: bool(1.0 / (1.0 + u[0]) < 0.8), {True: 0.75, False: 0.25}),
            (lambda u: bool((np.array([0.3, 0.9]) > u[0]).all()), {True: 0.3, False: 0.7}),
            (lambda u: int(np.asarray([0.1, 0.6]).searchsorted(u[0])), {0: 0.1, 1: 0.5, 2: 0.4}),
            (lambda u: tuple(np.searchsorted([0.5], u).tolist()), {(i, j): 0.25 for i in (0, 1) for j in (0, 1)}),
            (lambda u: bool(abs(u[0] - 0.5) < 0.125), {True: 0.25, False: 0.75}),
            (lambda u: bool(u[0] == 0.5), {False: 1.0}),
        ],
    )
    def test_ways_to_compare(self, function: Any, expected: dict[Any, float]) -> None:
        law = integrate(function, 2)
        assert law is not None
        assert law.undecided == 0.0
        for value, mass in expected.items():
            assert math.isclose(law.mass[value], mass, abs_tol=1e-15)

    @pytest.mark.parametrize(
        ("function", "area"),
        [
            (lambda u: bool(u[0] < u[1]), 0.5),
            (lambda u: bool(u[0] + u[1] < 0.5), 0.125),
            (lambda u: bool(u[0] * u[1] < 0.25), None),
        ],
    )
    def test_a_slanted_boundary_comes_with_a_bound_that_holds(self, function: Any, area: float | None) -> None:
        exact = 0.25 * (1 + math.log(4)) if area is None else area
        for budget in (100, 1600):
            law = integrate(function, 2, most_slanted=budget)
            assert law is not None
            assert law.mass[True] <= exact + 1e-12
            assert law.mass[True] + law.undecided >= exact - 1e-12
            # A boundary of length at most 2 crosses at most 4/h squares of side h: halving gains what the budget allows.
            assert law.undecided < 8 / budget

    @pytest.mark.parametrize(
        "function",
        [
            lambda u: float(u[0]) < 0.5,
            lambda u: bool((np.asarray(u, dtype=np.float64) < 0.5)[0]),
            lambda u: isinstance(u[0], float),
            lambda u: [0, 1][u[0] < 0.5] if isinstance(u[0], np.floating) else 7,
        ],
    )
    def test_leaving_the_trace_is_noticed(self, function: Any) -> None:
        assert integrate(function, 2) is None

    def test_randomness_of_its_own_is_noticed(self) -> None:
        rng = np.random.default_rng(0)
        assert integrate(lambda u: int(rng.integers(2)), 1) is None
        with pytest.raises(otm.errors.InvalidParameter, match="audit_sampled"):
            audit_exactly(lambda p, q, d, u: int(rng.integers(4)), otm.Problem(**PAIR, law=otm.IID(1)))


class TestAgainstFractions:
    @pytest.mark.parametrize("verify", [maximal, as_floats(maximal)], ids=["traced", "probed"])
    def test_lenient_acceptance(self, verify: Any) -> None:
        """Accept with min(1, q/(l p)) and an unscaled residual: the law in fractions, by hand."""
        p, q, lenience = [Fraction(3, 8), Fraction(5, 8)], [Fraction(5, 8), Fraction(3, 8)], Fraction(3, 4)
        keep = [min(Fraction(1), b / (lenience * a)) for a, b in zip(p, q, strict=True)]
        expected = float(p[0] * keep[0] + sum(a * (1 - c) for a, c in zip(p, keep, strict=True)))  # residual all on token 0

        def lenient(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
            scaled = np.array([uniforms[0] * 0.75, uniforms[1]], dtype=uniforms.dtype)
            return verify(p, q, drafts, scaled)

        audit = audit_exactly(lenient, otm.Problem(draft=[0.375, 0.625], target=[0.625, 0.375], law=otm.IID(1)))
        assert audit.verdict == "not lossless"
        np.testing.assert_allclose(audit.output_law[0], expected, atol=1e-15)
        assert math.isclose(audit.total_variation, abs(expected - 0.625), abs_tol=1e-15)
        assert math.isclose(audit.rule or 0.0, float(sum(a * c for a, c in zip(p, keep, strict=True))), abs_tol=1e-15)

    def test_kl_and_the_worst_token(self) -> None:
        audit = audit_exactly(
            lambda p, q, d, u: int(d[0]), otm.Problem(draft=[0.7, 0.2, 0.1], target=[0.25, 0.5, 0.25], law=otm.IID(1))
        )
        expected = 0.25 * math.log(0.25 / 0.7) + 0.5 * math.log(0.5 / 0.2) + 0.25 * math.log(0.25 / 0.1)
        assert math.isclose(audit.kl, expected, abs_tol=1e-14)
        assert (audit.worst_token, audit.rule) == (0, None)
        assert math.isclose(audit.membership, 1.0, abs_tol=1e-15)
        assert math.isclose(audit.gap, 0.55 - 1.0, abs_tol=1e-14)


@pytest.mark.parametrize("law", [otm.IID(1), otm.IID(2), otm.IID(3)], ids=repr)
def test_a_correct_callable_passes_every_standard_instance(law: otm.Law) -> None:
    audit = audit_battery(recursive, laws=[law])
    assert audit.verdict == "lossless", audit
    for single in audit.audits.values():
        assert math.isclose(single.membership, otm.acceptance(otm.RecursiveRejection(), single.problem), abs_tol=1e-13)


@pytest.mark.parametrize("name", ["two tokens", "truncated target", "later drafts matter"])
def test_a_black_box_is_found_to_do_the_same(name: str) -> None:
    draft, target = INSTANCES[name]
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    seen, hidden = audit_exactly(maximal, problem), audit_exactly(as_floats(maximal), problem)
    assert (seen.method, hidden.method, hidden.verdict, hidden.error) == ("traced", "probed", "lossless", 0.0)
    np.testing.assert_allclose(hidden.coupling.joint.toarray(), seen.coupling.joint.toarray(), atol=1e-15)


def test_a_black_box_with_a_cell_too_narrow_is_not_called_lossless() -> None:
    """At resolution 1/64 a cell of 1/200 may hide; among 256 random points some are likely to fall into it."""
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))

    def striped(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        u = float(uniforms[0])
        return int(drafts[0]) if int(u * 200) % 2 else 1 - int(drafts[0])

    audit = audit_exactly(striped, problem)
    assert audit.verdict != "lossless" or audit.cells > 100


REGISTRY = instances.supported_pairs((1, 2))


@pytest.mark.parametrize(("verifier", "law"), REGISTRY)
def test_registered_verifiers_get_the_verdict_that_they_claim(verifier: otm.Verifier, law: otm.Law) -> None:
    """Kernels: every lossless verifier passes; every lossy one fails somewhere, by the TV of its closed form to 1e-10."""
    audits = {name: audit_exactly(verifier, problem) for name, problem in standard_problems(law)}
    if verifier.lossless:
        assert {audit.verdict for audit in audits.values()} == {"lossless"}
        return
    assert "not lossless" in {audit.verdict for audit in audits.values()}
    for audit in audits.values():
        predicted = otm.lossy.distortion(verifier, audit.problem)
        assert abs(audit.total_variation - predicted.total_variation) < 1e-10


def rectangular(verifier: otm.Verifier, law: otm.Law) -> bool:
    """Whether the sampler compares its uniforms with numbers only, so that boxes tell all."""
    return not (isinstance(verifier, otm.Optimal) and law.k > 1) and type(verifier).__name__ not in {
        "Race",
        "ListRace",
        "MinHash",
    }


STEPS = [p for p in instances.supported_pairs((1, 2)) if rectangular(*p.values)]


@pytest.mark.parametrize(("verifier", "law"), STEPS)
@pytest.mark.parametrize("name", ["reversed", "zeros"])
def test_the_steps_that_samplers_execute_have_the_law_that_closed_forms_predict(
    verifier: otm.Verifier, law: otm.Law, name: str
) -> None:
    """`verify` integrated over its uniforms, against output law, distortion and both acceptances, which share no code with it."""
    problem = instances.named_problem(name, law)
    assert problem is not None
    audit = audit_exactly(steps_of(verifier, problem), problem)
    assert (audit.method, audit.error) == ("traced", 0.0)
    assert (audit.verdict == "lossless") == (otm.lossy.distortion(verifier, problem).total_variation < 1e-13)
    assert abs(audit.total_variation - otm.lossy.distortion(verifier, problem).total_variation) < 1e-10
    assert math.isclose(audit.membership, otm.acceptance(verifier, problem), abs_tol=1e-12)
    assert audit.rule is not None
    assert math.isclose(audit.rule, otm.acceptance(verifier, problem, by="rule"), abs_tol=1e-12)


@pytest.mark.parametrize(
    ("verifier", "law"),
    [
        (otm.KSeq(), otm.IID(2)),
        (otm.RecursiveRejection(), otm.WithoutReplacement(2)),
        (otm.SpecHub(), otm.Greedy(2)),
        (otm.Naive(), otm.Product(2)),
        (otm.Lenience(0.7), otm.IID(1)),
    ],
    ids=repr,
)
def test_drawing_and_verifying_together(verifier: otm.Verifier, law: otm.Law) -> None:
    """The drafts come from the sampler's own uniforms too: its joint law against the enumerated one, entry by entry."""
    problem = instances.named_problem("reversed", law)
    assert problem is not None
    audit = audit_steps(verifier, problem)
    plan = otm.coupling(verifier, problem)
    rows = {tuple(row): i for i, row in enumerate(plan.drafts.tolist())}
    joint = plan.joint.toarray()
    assert audit.error == 0.0
    for drafts, row in zip(audit.coupling.drafts.tolist(), audit.coupling.joint.toarray(), strict=True):
        np.testing.assert_allclose(row, joint[rows[tuple(drafts)]], atol=1e-14)


@pytest.mark.parametrize("verifier", [otm.Race(), otm.ListRace()], ids=repr)
def test_a_race_is_bracketed(verifier: otm.Verifier) -> None:
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    audit = audit_steps(verifier, problem)
    assert 0 < audit.error < 0.1
    exact = otm.acceptance(verifier, problem)
    assert audit.membership <= exact + 1e-12
    assert exact <= audit.membership + audit.error + 1e-12
    assert audit.verdict == "undecided"


MUTANTS = [mutants.NoRenormalisation(), mutants.ReusedUniform(), mutants.ReusedUniformKSeq(), mutants.ClippedKSeq()]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: type(m).__name__)
def test_mutants_fail_with_the_variation_of_their_kernel(mutant: otm.Verifier) -> None:
    problem = otm.Problem(**PAIR, law=otm.IID(2))
    audit = audit_exactly(steps_of(mutant, problem), problem)
    assert audit.verdict == "not lossless"
    assert abs(audit.total_variation - audit_exactly(mutant, problem).total_variation) < 1e-12


class TestCounterexamples:
    def test_a_uniform_reused_needs_two_drafts(self) -> None:
        found = shrink(one_uniform, law=otm.IID(2))
        assert found is not None
        assert (found.problem.law, found.problem.num_tokens) == (otm.IID(2), 3)
        assert found.verdict == "not lossless"
        for mass in [*found.problem.draft, *found.problem.target]:
            assert math.isclose(mass, Fraction(mass).limit_denominator(32), abs_tol=1e-15)

    def test_a_clamp_shows_beyond_rounding(self) -> None:
        """Draft probabilities clamped at 1e-8 leave a residual that is wrong in the ninth digit."""
        found = shrink(lambda p, q, d, u: maximal(np.maximum(p, 1e-8), q, d, u))
        assert found is not None
        assert 1e-10 < found.total_variation < 1e-8

    def test_a_battery_brings_one(self) -> None:
        audit = audit_battery(one_uniform, laws=[otm.IID(2)])
        assert audit.verdict == "not lossless"
        assert audit.counterexample is not None
        text = str(audit)
        assert "### Minimal counterexample" in text
        assert "not lossless" in text.splitlines()[0]
        for label in audit.failed:
            assert label in text

    def test_a_verifier_without_fault_has_none(self) -> None:
        assert shrink(maximal, budget=100) is None


class TestAnswers:
    PROBLEM = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))

    @pytest.mark.parametrize("answer", [None, 0.5, "a", True, (0, True, 1), np.array([0, 1])], ids=repr)
    def test_what_is_no_token_is_refused(self, answer: Any) -> None:
        with pytest.raises(CandidateFailure, match=r"(?s)must return a token.*probability 1 on draft=\[0.5, 0.5\]"):
            audit_exactly(lambda p, q, d, u: answer, self.PROBLEM)

    @pytest.mark.parametrize(
        "answer", [0, np.int32(0), np.array([0]), np.array(0), (0, True), (np.array([0]), np.bool_(False))], ids=repr
    )
    def test_tokens_of_every_make_are_read(self, answer: Any) -> None:
        assert audit_exactly(lambda p, q, d, u: answer, self.PROBLEM).output_law.tolist() == [1.0, 0.0]

    def test_an_exception_says_how_often(self) -> None:
        def fragile(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
            if uniforms[0] < 0.25:
                raise ValueError("no residual")
            return int(drafts[0])

        with pytest.raises(CandidateFailure, match=r"ValueError: no residual.*0.25"):
            audit_exactly(fragile, self.PROBLEM)

    def test_a_token_outside_the_vocabulary_is_mass_that_is_missing(self) -> None:
        audit = audit_exactly(lambda p, q, d, u: int(d[0]) if u[0] < 0.875 else 2, self.PROBLEM)
        assert math.isclose(audit.total_variation, 0.125, abs_tol=1e-15)

    def test_the_number_of_uniforms_is_the_callers(self) -> None:
        seen = []
        audit_exactly(Candidate(lambda p, q, d, u: seen.append(len(u)) or 0, num_uniforms=lambda k, v: 3 * k + v), self.PROBLEM)
        assert set(seen) == {5}

    @pytest.mark.parametrize("thing", [7, None, otm.Maximal, otm.Maximal()], ids=repr)
    def test_a_candidate_is_a_function(self, thing: Any) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="function"):
            Candidate(thing) if not isinstance(thing, otm.Verifier) else shrink(object())

    def test_tolerance_is_what_rounding_explains(self) -> None:
        def in_float32(p: Any, q: Any, d: Any, u: Any) -> tuple[int, bool]:
            return maximal(p.astype(np.float32).astype(np.float64), q, d, u)

        problem = otm.Problem(draft=[0.7, 0.3], target=[0.4, 0.6], law=otm.IID(1))
        assert audit_exactly(in_float32, problem).verdict == "not lossless"
        allowed = rounding_tolerance(2, 1, unit_roundoff=2.0**-24)
        assert audit_exactly(in_float32, problem, tolerance=allowed).verdict == "lossless"


class TestWhatHidesFromTheTrace:
    """Callables whose fault once lay in a box that the trace called decided."""

    PROBLEM = otm.Problem(draft=[0.6, 0.4], target=[0.3, 0.7], law=otm.IID(1))

    @pytest.mark.parametrize(
        "hidden",
        [
            lambda u: np.log(u[0]) - np.log(u[1]) < -3,  # −∞ + ∞ at a corner
            lambda u: np.log(u[1] - 0.4) < -4,  # NaN below 0.4, not above
            lambda u: np.log1p(-u[1] * 1.02) < -5,
            lambda u: 1.0 / (0.0 - u[1]) < -40,  # a zero of the other sign at an end
            lambda u: "77" in str(u[1])[:6],
            lambda u: f"{u[1]}"[2:4] == "77",
        ],
    )
    def test_it_is_not_called_lossless(self, hidden: Any) -> None:
        def verify(p: Any, q: Any, drafts: Any, u: Any) -> int:
            return 0 if hidden(u) else int(maximal(p, q, drafts, u)[0])

        assert audit_exactly(verify, self.PROBLEM).verdict != "lossless"

    def test_nan_is_not_equal_to_itself(self) -> None:
        def function(u: Any) -> bool:
            root = np.sqrt(u[0] - 0.25)
            return bool(root == root)

        law = integrate(function, 1, most_slanted=50)  # 1/4 of NaN: undecided or given up, never "always equal"
        assert law is None or law.mass.get(True, 0.0) <= 0.75 + 1e-12

    def test_integers_without_end_are_undecided_within_the_budget(self) -> None:
        law = integrate(lambda u: int(u[0] * 2.0**32) % 2, 1, most_work=500)
        assert law is not None
        assert law.undecided > 0.9
        assert law.cells <= 500

    def test_an_exit_is_a_failure(self) -> None:
        def verify(p: Any, q: Any, drafts: Any, u: Any) -> int:
            raise SystemExit(0)

        with pytest.raises(CandidateFailure, match="SystemExit"):
            audit_exactly(verify, self.PROBLEM)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1, 2.0**-53), "num_tokens must be an integer of at least 1"),
        ((2, 0, 2.0**-53), "k must be an integer of at least 1"),
        ((2, 1, 0.0), r"unit_roundoff must lie in \(0, 1\]"),
        ((2, 1, 24), r"unit_roundoff must lie in \(0, 1\]; got 24"),
    ],
)
def test_rounding_of_nothing(arguments: tuple[int, int, float], said: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        rounding_tolerance(*arguments[:2], unit_roundoff=arguments[2])
