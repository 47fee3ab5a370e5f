"""Bad input: each kind of it at the gate that refuses it, each argument of every public function at
its gate; a typed error whose message gives the requirement, the offending value and the remedy.
"""

import dataclasses
import inspect
import itertools
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection, TransportPlan
from otm.drafts.base import enumerate_drafts
from otm.errors import InvalidDistribution, InvalidParameter, ShapeMismatch, TooLarge, Unsupported
from tests import instances
from tests.contracts import calls

GOOD = [0.5, 0.25, 0.25]
PAIR = [0.5, 0.5], [0.25, 0.75]
PROBLEM = Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=IID(2))
LARGE = Problem(draft=otm.examples.uniform(3000), target=otm.examples.uniform(3000), law=IID(2))
WIDE = Problem(draft=otm.examples.zipf(20_000), target=otm.examples.uniform(20_000), law=IID(1))
NAN, INF = float("nan"), float("inf")


def array(library, values, dtype="float64"):
    if library == "numpy":
        return np.asarray(values, dtype=dtype)
    return torch.tensor(values, dtype=getattr(torch, dtype))


def tracked(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def check(call, kind, *parts):
    """Run the call and look for the parts of the message: requirement, value, remedy."""
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


# --- the gate of distributions


@dataclasses.dataclass(frozen=True)
class Bad:
    """An array that is no distribution, and the parts of the message for it."""

    values: Any
    requirement: str
    value: str
    remedy: str
    dtype: str = "float64"
    kind: type[otm.OtmError] = InvalidDistribution


FINITE = "{side} must be finite", "Check the logits"
REAL = "{side} must hold real numbers"
BAD = {
    "negative": Bad([1.25, -0.25, 0.0], "{side} must be non-negative", "-0.25", "otm.from_logits"),
    "just negative": Bad([1.0, -1e-12, 1e-12], "non-negative", "-1e-12", "call otm.from_logits"),
    "not a number": Bad([0.5, NAN, 0.5], FINITE[0], "1 of 3 entries", FINITE[1]),
    "infinite": Bad([0.5, INF, 0.5], FINITE[0], "1 of 3 entries", FINITE[1]),
    "minus infinite": Bad([0.5, -INF, 0.5], FINITE[0], "1 of 3 entries", FINITE[1]),
    "both infinities": Bad([INF, -INF, 1.0], FINITE[0], "2 of 3", FINITE[1]),
    "sum": Bad(
        [0.5, 0.25, 0.125], "{side} must sum to 1 within 1e-09", "0.875. Call", "otm.normalise"
    ),
    "the worst row": Bad([GOOD, [0.5, 0.5, 0.5], GOOD], "sum to 1", "1.5", "otm.normalise"),
    "sum in float32": Bad(
        [0.5, 0.25, 0.25 + 2**-13], "to 1 within 3e-05", "1.000122", "otm.normalise", "float32"
    ),
    "widened": Bad(
        np.float64(np.float32([0.1, 0.2, 0.7]) * np.float32(1 + 1e-6)),
        "sum to 1 within 1e-09",
        "1.0000009",
        "float32 softmax does that was widened",
    ),
    **{
        dtype: Bad(GOOD, "{side} must be float32 or float64", dtype, "softmax in float32", dtype)
        for dtype in ("float16", "bfloat16")
    },
    **{
        dtype: Bad([1.0, 0.0, 0.0], REAL, dtype, "Convert", dtype)
        for dtype in ("bool", "complex64", "complex128")
    },
    "scalar": Bad(1.0, "needs a vocabulary axis", "scalar (", "Pass an array (..., V)"),
    "no tokens": Bad([], "at least one token", "(0,)", "Give V ≥ 1"),
    "no rows": Bad(np.zeros((0, 3)), "at least one row", "(0, 3)", "Skip empty batches"),
    "another vocabulary": Bad(
        [0.5, 0.5], "share one vocabulary", "2", "Pad the shorter one", kind=ShapeMismatch
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_distribution(name):
    bad = BAD[name]
    libraries = ["torch"] if bad.dtype == "bfloat16" else ["numpy", "torch"]
    for library, side in itertools.product(libraries, ("draft", "target")):
        sides = dict.fromkeys(("draft", "target"), array(library, GOOD))
        sides[side] = array(library, bad.values, bad.dtype)
        requirement = bad.requirement.format(side=side)
        check(lambda: Problem(**sides, law=IID(2)), bad.kind, requirement, bad.value, bad.remedy)  # noqa: B023


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_two_arrays_that_do_not_go_together(library):
    two, three = array(library, [GOOD] * 2), array(library, [GOOD] * 3)
    other = array({"numpy": "torch", "torch": "numpy"}[library], GOOD)
    for draft, target, parts in (
        (two, three, ("must broadcast", "(2, 3)", "Reshape")),
        (three, two, ("must broadcast", "(2, 3)", "Reshape")),
        (other, two, ("same kind of array", "Tensor", "Convert one of them")),
        (two, other, ("same kind of array", "Tensor", "Convert one of them")),
    ):
        check(lambda: Problem(draft=draft, target=target, law=IID(2)), ShapeMismatch, *parts)  # noqa: B023


@pytest.mark.parametrize("side", ["draft", "target"])
def test_what_is_no_array_of_numbers(side):
    for bad, said in (
        ([[0.5, 0.5], [1.0]], side),
        (["a", "b", "c"], side),
        ("abc", side),
        (None, side),
        (object(), side),
        ({"a": 1.0}, side),
        (np.ma.array([*GOOD, 0.0], mask=[0, 0, 0, 1]), r"masked; 1 entries.*filled"),
        (torch.tensor([1.0, 0.0]).to_sparse(), "dense"),
        (torch.zeros(2, device="meta"), "dense"),
    ):
        with pytest.raises(InvalidDistribution, match=said):
            Problem(**{**{"draft": GOOD, "target": GOOD}, side: bad}, law=IID(2))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_normalise(library):
    for values, parts in (
        ([1.0, -2.0], ("non-negative", "-2", "Remove or clip")),
        ([[1.0, 2.0], [0.0, 0.0]], ("positive sum", "all zero", "Drop that row")),
        ([1.0, NAN], ("finite", "1 of 2", "Check")),
        ([1.0, INF], ("finite", "1 of 2", "Check")),
    ):
        check(lambda: otm.normalise(array(library, values)), InvalidDistribution, *parts)  # noqa: B023
    for fine, wanted in (([1.5e308] * 2, [0.5, 0.5]), ([5e-324, 1.5e-323], [0.25, 0.75])):
        np.testing.assert_allclose(np.asarray(otm.normalise(array(library, fine))), wanted)
    off = otm.normalise(array(library, [0.5, 0.25, 0.125]))
    assert otm.optimal_acceptance(Problem(draft=off, target=off, law=IID(1))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: Problem(*PAIR, IID(1)), r"positional.*Call otm\.Problem\(draft=p, target=q, "),
        (lambda: Problem(p=PAIR[0], q=PAIR[1], law=IID(1)), "missing .*'draft'"),
        (lambda: Problem(draft=PAIR[0], target=PAIR[1]), "missing .*'law'"),
        (lambda: otm.compare(*PAIR), r"positional.*Call otm\.compare\(draft=p, target=q\)"),
        (lambda: otm.acceptance_table(*PAIR, k=[1]), r"Call otm\.acceptance_table\(draft=p"),
        (lambda: otm.acceptance(KSeq(), *PAIR), r"Call otm\.acceptance\(otm\.KSeq\(\), otm\.Prob"),
        (lambda: otm.optimal_acceptance(draft=PAIR[0], target=PAIR[1]), "missing .*'problem'"),
        (lambda: otm.divergences.total_variation(*PAIR), r"Call otm\.divergences\.total_var"),
        (lambda: otm.losses.best_ranked_acceptance(*PAIR), "Call otm.losses.best_ranked"),
        (lambda: otm.losses.draft_rounding(*PAIR), "Call otm.losses.draft_rounding"),
    ],
)
def test_distributions_by_position_and_under_other_names(call, instead):
    why = "keyword-only, because the literature swaps p and q; this call has a fault: .*"
    with pytest.raises(InvalidParameter, match=why + instead):
        call()


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: otm.estimate(KSeq(), PROBLEM), r"'samples'. Call otm\.estimate\(verifier, "),
        (lambda: otm.sample(KSeq(), PROBLEM, size=3), r"'rng'. Call otm\.sample\(verifier, "),
        (lambda: otm.bounds.kseq_lower(draft=[1], k=2), r"'\w+'. Call otm\.bounds\.kseq_lower"),
        (
            lambda: otm.verifiers.gamma_star(*PAIR, 2),
            r"positional .* Call otm\.verifiers\.gamma_star\(otm\.Problem",
        ),
        (lambda: otm.examples.uniform_optimum(2, 3), "Call otm.examples.uniform_optimum"),
        (lambda: otm.from_logits([0.0], topk=2), "'topk'. Call otm.from_logits"),
    ],
)
def test_a_wrong_call_is_answered_by_the_right_one(call, instead):
    with pytest.raises(InvalidParameter, match=f"this call has a fault: .*{instead}"):
        call()


def test_a_type_error_from_inside_a_call_is_no_fault_of_the_call(
    monkeypatch,
):
    def broken(*_):
        raise TypeError("from inside")

    monkeypatch.setattr(IID, "optimal_value", broken)
    with pytest.raises(TypeError, match="from inside"):
        otm.optimal_acceptance(PROBLEM)


def test_the_number_of_drafts_is_not_gamma():
    with pytest.raises(InvalidParameter, match=r"number of drafts is the law's.*KSeq\(gamma=2"):
        KSeq(2)


def test_rows_that_name_their_tokens_must_name_the_same():
    pandas = pytest.importorskip("pandas")
    draft, target = (pandas.Series(values, index=list("abc")) for values in (GOOD, GOOD[::-1]))
    expected = otm.divergences.total_variation(draft=GOOD, target=GOOD[::-1])
    for rows in ({"draft": draft, "target": target}, {"draft": GOOD, "target": target}):
        assert otm.divergences.total_variation(**rows) == expected
    with pytest.raises(ShapeMismatch, match=r"same tokens in one order.*reindex"):
        Problem(draft=draft, target=target[::-1], law=IID(1))


def test_one_number_of_drafts_is_a_list_of_one_and_a_seed_is_a_generator():
    np.testing.assert_array_equal(
        otm.optimal_acceptance_curve(PROBLEM, k=2), otm.optimal_acceptance_curve(PROBLEM, k=[2])
    )
    drawn = [
        otm.sample(KSeq(), PROBLEM, size=50, rng=rng).output
        for rng in (7, np.int64(7), np.random.default_rng(7))
    ]
    assert all(np.array_equal(drawn[0], other) for other in drawn[1:])


# --- what the gate lets pass


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_the_gate_repairs_and_what_it_leaves(library):
    values = array(library, [0.5, 0.25, 0.25 + 9e-10])
    assert float(Problem(draft=values, target=values, law=IID(1)).draft.sum()) == pytest.approx(
        1.0, abs=1e-15
    )
    assert float(values.sum()) > 1 + 8e-10  # the caller's array is left alone
    exact = array(library, GOOD)
    assert Problem(draft=exact, target=exact, law=IID(1)).draft is exact
    mixed = Problem(draft=array(library, GOOD, "float32"), target=exact, law=IID(1))
    assert "float64" in str(mixed.draft.dtype)


def test_lists_fractions_byte_orders_and_masks_without_effect():
    thirds = [Fraction(1, 3)] * 3
    for rows, dtype in (
        ([1, 0, 0], np.float64),
        (thirds, np.float64),
        (np.array(thirds, dtype=object), np.float64),
        (np.array(GOOD, dtype=">f4"), np.float32),
        (np.ma.array(GOOD), np.float64),
    ):
        problem = Problem(draft=rows, target=rows, law=IID(2))
        assert type(problem.draft) is np.ndarray
        assert problem.draft.dtype == dtype
        assert otm.optimal_acceptance(problem) == 1.0


def test_single():
    assert PROBLEM.single(purpose="a test") is PROBLEM
    sides = {"draft": np.float32([0.3, 0.7]), "target": np.float32([0.6, 0.4])}
    narrow = Problem(**sides, law=IID(1)).single(purpose="a test")
    assert narrow.draft.dtype == np.float64
    assert narrow.draft.sum() == pytest.approx(1.0, abs=1e-16)


# --- each argument's gate, by its name


@dataclasses.dataclass(frozen=True)
class Gate:
    """Values that an argument of some name refuses, and the message wherever it has that name."""

    bad: list[Any]
    message: str


COUNT = Gate([-1, 2.5, True, np.True_, "3", NAN], r"must be (an? )?(integer|sequence of integers)")
NUMBER = Gate([-1.0, NAN, True, "three", 1j], "must (lie in|be a number in)")
GATES = {
    "problem": Gate(
        [KSeq(), "x", None, PAIR],
        r"A problem must be an otm\.Problem; got .*Build one from draft=, target=, law=",
    ),
    "rng": Gate(
        [-1, 0.0, True, None, np.random.RandomState(0), np.random],
        r"numpy\.random\.Generator, or a seed.*Pass rng=0",
    ),
    "verifier": Gate([KSeq, "KSeq", IID(2)], "instance|must be of the class|Certified|judged one"),
    "verifiers": Gate([KSeq(), [KSeq], "a"], "list of verifiers"),
    "by": Gate(["both", "", None, 1, True], "by must be 'membership' .*Choose one"),
    "method": Gate(["simplex", "", None], "'sets' or 'sequences'; got .*Choose one"),
    "gamma": Gate([0.5, 0, -INF, [2.0], object, *NUMBER.bad], r"gamma must .*in \[1, inf\]"),
    "confidence": Gate([0, 1.5, *NUMBER.bad], NUMBER.message),
    "tolerance": NUMBER,
    **dict.fromkeys(("k", "length", "samples", "size", "num_nodes"), COUNT),
}


@pytest.mark.parametrize("name", GATES)
def test_every_argument_reaches_its_gate(name):
    gate = GATES[name]
    for function, arguments in calls.CALLS:
        for bad in gate.bad if name in arguments else ():
            with pytest.raises((InvalidParameter, Unsupported), match=gate.message) as caught:
                function(**(arguments | {name: bad}))
            shown = str(caught.value)
            assert repr(bad)[:20] in shown, f"{function.__qualname__}: {bad!r} not in {shown!r}"


@pytest.mark.parametrize(
    ("call", "kind", "parts"),
    [
        (lambda: IID(0), InvalidParameter, ("k must be an integer of at least 1", "got 0", "k=1")),
        (lambda: IID.of_size(0), InvalidParameter, ("k must be an integer", "got 0", "Pass k=")),
        (
            lambda: Problem(draft=GOOD, target=GOOD, law=IID),
            InvalidParameter,
            ("law must be a draft law", "got <class", "Choose one of otm.drafts.LAWS"),
        ),
        (
            lambda: otm.optimal_acceptance_curve(PROBLEM, k=[]),
            InvalidParameter,
            ("at least one number", "empty", "Pass k="),
        ),
        (
            lambda: otm.optimal_acceptance_curve(PROBLEM, k=[1, 0]),
            InvalidParameter,
            ("k must be an integer of at least 1", "got 0", "Pass k="),
        ),
        (
            lambda: otm.acceptance_curve(Maximal(), PROBLEM, k=[1, 2]),
            Unsupported,
            ("Maximal()", "IID(k=2)", "Choose a verifier"),
        ),
        (
            lambda: otm.acceptance(KSeq(gamma=1.2), PROBLEM),
            InvalidParameter,
            ("at least gamma* = 1.39038", "got 1.2", "Use KSeq()"),
        ),
        (
            lambda: otm.estimate(KSeq(), PROBLEM, samples=0, rng=calls.rng()),
            InvalidParameter,
            ("samples must be an integer of at least 1", "got 0", "Pass samples=1"),
        ),
        (
            lambda: otm.estimate(KSeq(), PROBLEM, samples=1, rng=calls.rng(), confidence=1),
            InvalidParameter,
            ("confidence must be below 1", "[0, 1]", "Pass 0.95"),
        ),
        (
            lambda: otm.examples.two_token_optimum(draft=1.1, target=0.5, k=1),
            InvalidParameter,
            ("draft must lie in [0, 1]", "got 1.1", "Choose"),
        ),
        (
            lambda: otm.examples.two_token_optimum(draft=0.5, target=-0.1, k=1),
            InvalidParameter,
            ("target must lie in [0, 1]", "got -0.1", "Choose"),
        ),
        (
            lambda: otm.examples.bernoulli(1.1),
            InvalidParameter,
            ("q must lie in [0, 1]", "got 1.1", "Choose"),
        ),
        (
            lambda: otm.examples.uniform_optimum(ratio=0.5, k=1),
            InvalidParameter,
            ("ratio must lie in [1, inf]", "got 0.5", "Choose"),
        ),
        (lambda: otm.acceptance(IID(2), PROBLEM), InvalidParameter, ("instance",)),
        *(
            (
                lambda laws=laws: otm.compare(draft=[1.0], target=[1.0], laws=laws),
                InvalidParameter,
                ("classes",),
            )
            for laws in (IID, [IID(2)], "IID")
        ),
        (lambda: otm.Mentored(10**400), InvalidParameter, ("kl",)),
        (lambda: otm.Optimal(bins=10**12), InvalidParameter, ("bins",)),
        (lambda: otm.bounds.optimal_bracket(PROBLEM, bins=10**12), InvalidParameter, ("bins",)),
    ],
)
def test_parameters(call, kind, parts):
    check(call, kind, *parts)


def test_what_is_stored_is_plain():
    assert type(otm.Fuzzy(Fraction(1, 10)).threshold) is float
    assert hash(KSeq(gamma=np.float64(3))) == hash(KSeq(gamma=3.0))
    for make in otm.drafts.LAWS:
        law = make(np.int64(3))
        assert (law, hash(law), repr(law)) == (make(3), hash(make(3)), repr(make(3)))
        # A NumPy integer wraps around where V^k needs more than 63 bits.
        huge = make(np.int64(30))
        assert huge.num_sequences(40) == make(30).num_sequences(40)


def test_gamma_may_be_infinite_and_then_nothing_is_accepted():
    assert otm.acceptance(KSeq(gamma=INF), PROBLEM, by="rule") == 0.0
    # Y ~ q whatever the drafts: Σ q(1 − (1 − p)²) = ½·15/16 + ½·7/16
    assert otm.acceptance(KSeq(gamma=INF), PROBLEM) == pytest.approx(11 / 16, abs=1e-15)


@pytest.mark.parametrize("verifier", [KSeq(), RecursiveRejection(), TransportPlan()], ids=repr)
def test_drafts(verifier):
    shape = "integer tokens of shape (k,) or (n, k) with k = 2", "Pass one token per draft"
    inside = "must lie in [0, 2)", "share the vocabulary"
    # −1 marks the missing drafts of laws that run out of tokens; i.i.d. drafts never do.
    for bad, (requirement, remedy), value in (
        ([0], shape, "shape (1,)"),
        ([0, 1, 0], shape, "shape (3,)"),
        ([[0, 1, 0]], shape, "shape (1, 3)"),
        ([[[0, 1]]], shape, "shape (1, 1, 2)"),
        (0, shape, "shape ()"),
        ([0.0, 1.0], shape, "float64"),
        ([True, False], shape, "bool"),
        (["a", "b"], shape, "<U1"),
        ([0, 2], inside, "0 to 2"),
        ([-2, 0], inside, "-2 to 0"),
        ([[0, 1], [1, 99]], inside, "0 to 99"),
        ([-1, 0], inside, "-1"),
        ([[0], [0, 1]], ("", ""), ""),
    ):
        check(
            lambda: otm.kernel(verifier, PROBLEM, bad),  # noqa: B023
            InvalidParameter,
            requirement,
            value,
            remedy,
        )


@pytest.mark.parametrize("bad", [[2], [-1], [0.5], [True, False, True], "ab", [[0], [0, 1]]])
def test_subset_of_theorem_1(bad):
    check(
        lambda: otm.bounds.spectr_upper(PROBLEM, subset=bad),
        InvalidParameter,
        "Boolean mask (2,) or tokens in [0, 2)",
        f"got {bad!r}",
        "Pass one of these",
    )


# --- what is too large, and what is not of the right kind


@pytest.mark.parametrize(
    ("call", "size", "remedy"),
    [
        (lambda: otm.optimum(LARGE), "9,000,000", "otm.optimal_acceptance"),
        (
            lambda: otm.optimum(LARGE, method="sequences"),
            "27,000,000,000",
            "otm.optimal_acceptance",
        ),
        (lambda: otm.transport.optimum_program(LARGE), "27,000,000,000", "otm.optimum"),
        (lambda: otm.coupling(KSeq(), LARGE), "27,000,000,000", "otm.lossy.output_law"),
        (lambda: otm.coupling(Maximal(), WIDE), "400,000,000", "otm.lossy.output_law"),
        (lambda: otm.coupling(otm.Race(), WIDE), "400,000,000", "otm.sample"),
        (lambda: otm.lossy.output_law(otm.Race(), WIDE), "400,000,000", "otm.sample"),
        (lambda: otm.lossy.output_law(KSeq(), LARGE), "9,000,000", "otm.estimate"),
        (lambda: otm.acceptance(TransportPlan(), LARGE), "9,000,000", "otm.optimal_acceptance"),
        (lambda: otm.prepare(TransportPlan(), LARGE), "9,000,000", "otm.optimal_acceptance"),
        (
            lambda: otm.transport.certify_exactly(LARGE, otm.optimum(PROBLEM)),
            "9,000,000",
            "otm.optimal_acceptance",
        ),
        (lambda: enumerate_drafts(LARGE.law, LARGE.draft), "9,000,000", "otm.estimate"),
    ],
)
def test_too_large(call, size, remedy):
    """Each names the size and what to call instead, before any memory is taken."""
    check(call, TooLarge, "limited to", size, remedy, "Call otm.")


def test_sizes_with_thousands_of_digits():
    """2^20000 has 6,021 digits, more than Python prints (4,300)."""
    problem = PROBLEM.with_law(IID(20_000))
    for call in (
        lambda: otm.optimum(problem),
        lambda: otm.coupling(KSeq(), problem),
        lambda: otm.transport.optimum_program(problem),
        lambda: otm.acceptance(TransportPlan(), problem),
    ):
        check(call, TooLarge, "limited to")
    rows = {"draft": problem.draft, "target": problem.target}
    table = otm.compare(**rows, verifiers=[TransportPlan()], laws=[IID], k=[20_000], samples=0)
    assert table.rows[0].exact is None
    assert "limited to" in table.rows[0].note


def test_a_vocabulary_of_one_is_never_too_large():
    # One sequence, but 100 columns: more than NumPy has axes.
    problem = Problem(draft=[1.0], target=[1.0], law=IID(100))
    assert otm.coupling(KSeq(), problem).acceptance == 1.0
    assert otm.optimum(problem).value == pytest.approx(1.0, abs=1e-12)


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
def test_one_row_where_one_row_is_meant(call):
    batch = Problem(draft=[[0.75, 0.25]] * 2, target=[0.5, 0.5], law=IID(2))
    parts = "needs one pair of distributions (V,)", "(2,)", "Index the row"
    check(lambda: call(batch), ShapeMismatch, *parts)


def test_bounds_that_are_proven_for_independent_drafts():
    for make in set(otm.drafts.LAWS) - {IID}:
        problem = instances.named_problem("plain", make(2))
        assert problem is not None
        for bound in (otm.bounds.kseq_lower, lambda p: otm.bounds.spectr_upper(p, subset=[0])):
            check(lambda: bound(problem), Unsupported, repr(make(2)), "Use ")  # noqa: B023


def test_every_error_is_an_otm_error_and_a_standard_one():
    for kind, standard in (
        (InvalidDistribution, ValueError),
        (ShapeMismatch, InvalidDistribution),
        (InvalidParameter, ValueError),
        (Unsupported, TypeError),
        (TooLarge, ValueError),
        (otm.errors.SolverFailure, RuntimeError),
    ):
        assert issubclass(kind, otm.OtmError)
        assert issubclass(kind, standard)


# --- anything for any argument

HOSTILE = {
    "masked": lambda: np.ma.array([0.5, 0.3, 0.2], mask=[0, 1, 0]),
    "half precision": lambda: np.array([0.5, 0.25, 0.25], dtype=np.float16),
    "complex": lambda: np.array([0.5, 0.5j, 0.0]),
    "ragged": lambda: [[0.5, 0.5], [1.0]],
    "lists": lambda: [[1], [2], [3], [4]],
    "text": lambda: "abc",
    "texts": lambda: ["a", "b"],
    "bytes": lambda: b"abc",
    "object": object,
    "NaN": lambda: NAN,
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
    "a gradient": lambda: tracked(GOOD),
    "a gradient without axes": lambda: tracked(0.5),
    "sparse": lambda: torch.tensor([0.5, 0.5, 0.0]).to_sparse(),
    "without data": lambda: torch.tensor([0.5, 0.5, 0.0]).to("meta"),
}

NEVER_RIGHT = ("masked", "half precision", "complex", "ragged", "object", "NaN")
"""Nothing that the library computes takes these."""

UNCHECKED = {"overlap_at"}
"""Works on masses that have passed the gate, inside loops: its documentation says that it checks
nothing.
"""

OF_ANY_KIND = {"verify", "run", "memory"}
"""Arguments that are functions of the user's."""


def test_every_public_function_is_called():
    functions = filter(inspect.isfunction, calls.public_names().values())
    assert {one.__name__ for one in functions} <= {one.__name__ for one, _ in calls.CALLS}


@pytest.mark.parametrize("module", sorted({function.__module__ for function, _ in calls.CALLS}))
@pytest.mark.filterwarnings("ignore")
def test_whatever_stands_for_an_argument_is_answered_or_refused(module):
    """A typed error or an answer; for what nothing takes, the error."""
    for function, arguments in calls.CALLS:
        if function.__module__ != module or function.__qualname__ in UNCHECKED:
            continue
        function(**arguments)
        for name, (kind, make) in itertools.product(arguments, HOSTILE.items()):
            told = f"{function.__qualname__}: {kind} for {name}"
            try:
                function(**(arguments | {name: make()}))
            except otm.OtmError:
                continue
            except otm.audit.tracing.TraceAborted:  # documented by `trace`
                assert function is otm.audit.tracing.trace, told
            except Exception as error:
                raise AssertionError(f"{told}: {error!r}") from error
            assert kind not in NEVER_RIGHT or name in OF_ANY_KIND, f"{told} was taken"


@pytest.mark.parametrize(
    "call",
    [
        otm.trees.check_acceptance,
        lambda mass: otm.trees.tunstall_upper(mass, num_nodes=3),
        lambda mass: otm.trees.optimal_tree(mass, num_nodes=3).acceptance,
        lambda mass: otm.partial.TopTokens(tokens=[0, 1, 2], probabilities=mass).probabilities,
        lambda mass: otm.partial.TopTokens.of(mass, m=2).probabilities,
        otm.trees.entropy_bits,
        lambda mass: otm.examples.describe(mass)["entropy_bits"],
    ],
)
def test_gradients_are_refused_and_masks_without_effect_are_plain(
    call,
):
    """A gradient that is left behind would be a term of a loss that trains nothing."""
    plain = np.array(GOOD)
    with pytest.raises(InvalidDistribution, match=r"\.detach\(\)"):
        call(tracked(plain))
    for values in (tracked(plain).detach(), np.ma.array(plain, mask=[0, 0, 0]), list(plain)):
        answer = call(values)
        np.testing.assert_array_equal(np.asarray(answer), np.asarray(call(plain)))
        assert not isinstance(answer, np.ma.MaskedArray)


# --- to another process and back


def test_an_interrupted_decoding_can_be_sent_to_another_process():
    error = otm.errors.DecodingInterrupted(
        "Decoding stopped.", otm.sequence.Generation(tokens=(1,), steps=(), ended=False)
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.generation) == (str(error), error.generation)


@pytest.mark.parametrize("law", [None, [0.75, 0.25]], ids=["plan", "law"])
def test_a_prepared_selection_can_be_sent_to_another_process(law):
    selection = law and otm.verifiers.selection_with_law(PROBLEM, law=law)
    rule = otm.prepare(otm.SelectThenReject(selection), PROBLEM)
    drafts = np.array([[0, 1], [1, 1]])
    mine = rule.split(drafts)
    again = pickle.loads(pickle.dumps(rule))
    np.testing.assert_array_equal(mine, again.split(drafts))
