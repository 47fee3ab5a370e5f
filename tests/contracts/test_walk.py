"""One walk: every public function of a problem, and every verifier under every law, through every
family of inputs; with what each family promises.

A family hands over the same masses in another way, or in other surroundings, and says how far the
answer may move. What the answers are is the business of `test_contracts.py` and of the torture.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

import otm
from otm._machine import arrays
from tests import instances
from tests.contracts import calls
from tests.devices import without_compiled_code
from tests.tolerance import rounding

# --- masses

SHORT = ("plain", "ties", "zeros", "disjoint", "one draft token", "equal", "one ulp apart")
DUSTY = ("dust 0", "dust 1", "dust 2")
ORDINARY, SMALLEST = 2.0**-100, 2.0**-1074

Rows = tuple[Any, Any]


def _dust(seed):
    """Dyadic masses that sum to 1, and a few units of 2⁻¹⁰⁰ where there is none."""
    random = np.random.default_rng(seed)
    heavy = random.integers(0, 4, 4) / 16
    heavy[random.integers(4)] += 1 - heavy.sum()
    return np.where(heavy > 0, heavy, ORDINARY * random.integers(0, 6, 4))


ULP_APART = np.array([0.5, np.nextafter(0.3, 1), np.nextafter(0.2, 0)])
MASSES = {
    **{name: instances.ROWS[name] for name in SHORT[:-1]},
    "one ulp apart": ([[0.5, 0.3, 0.2]] * 3, ULP_APART),
    **{name: ([_dust(seed)] * 3, _dust(100 + seed)) for seed, name in enumerate(DUSTY)},
}
"""By name, the drafts of three drafters and a target."""


def aligned(law, masses):
    """Return draft and target in the shape that the law takes."""
    problem = instances.make_problem(law, *masses)
    return problem.draft, problem.target


# --- the families


@contextlib.contextmanager
def as_it_is():
    yield


@dataclasses.dataclass(frozen=True)
class Family:
    """A way to hand masses over, the names of the masses, and how far answers may move.

    Attributes:
        given: makes of an array of float64 what is handed over.
        masses: the names of the rows that it is tried on.
        moves: how far an answer may be from that on float64 in NumPy.
        around: what is true meanwhile.
    """

    given: Callable[[np.ndarray], Any]
    masses: tuple[str, ...]
    moves: float
    around: Callable[[], Any] = as_it_is


def _strided(x):
    return np.repeat(x, 2, axis=-1)[..., ::2]


def _smallest(x):
    """Scale tiny masses to units of 2⁻¹⁰⁷⁴, where q/p overflows and products underflow.

    An acceptance depends on the ratios of tiny masses, and on their size only as far as they weigh.
    """
    return np.where(x < 0.01, x / ORDINARY * SMALLEST, x)


def _float32(x):
    return x.astype(np.float32)


FAMILIES = {
    "lists": Family(np.ndarray.tolist, ("plain", "zeros"), 0.0),
    "strides": Family(_strided, ("plain", "zeros"), 0.0),
    "byte order": Family(lambda x: x.astype(">f8"), ("plain",), 0.0),
    # `numpy.round` and `0 * -1` give −0, and q/(−0) would put a token last that cannot be drafted.
    "negative zero": Family(
        lambda x: np.where(x == 0, -0.0, x), ("zeros", "disjoint", "one draft token"), 0.0
    ),
    "torch": Family(torch.tensor, ("plain", "zeros"), 1e-13),
    # Values are Lipschitz in the inputs, whose rounding is 6e-8 relative: 1e-3 would not tell.
    "float32": Family(_float32, SHORT[:4], 2e-5),
    "float32 of torch": Family(lambda x: torch.tensor(_float32(x)), ("plain",), 2e-5),
    "without compiled code": Family(np.copy, SHORT, 1e-13, without_compiled_code),
    "subnormal": Family(_smallest, DUSTY, 1e-9),
    "subnormal without compiled code": Family(_smallest, DUSTY[:1], 1e-9, without_compiled_code),
}

# --- what is asked

TOGETHER = {"evidence_laws", "tokens_to_flag", "tokens_to_mismatch"}
"""What takes rows as the places of one text, and answers once for all of them."""

ROOTS = {"gamma_star"}
"""Where p and q are equal γ* is a k-fold root, and moves by the root of what the masses move by."""


def acceptances(verifier, problem):
    """Return both acceptances, which no rounding takes past 1."""
    found = [otm.acceptance(verifier, problem, by=by) for by in ("membership", "rule")]
    assert all(bool((value >= 0).all() and (value <= 1).all()) for value in map(np.asarray, found))
    return found


def everything(verifier, problem):
    """Return what a verifier answers; of a sample only that it can come."""
    drawn = otm.sample(verifier, problem, size=20, rng=calls.rng())
    possible = np.asarray(problem.target)[drawn.output] > 0
    assert possible.all() or not verifier.lossless
    return [*acceptances(verifier, problem), otm.coupling(verifier, problem)]


def _without_logarithms(arguments):
    return {name: value for name, value in arguments.items() if not name.startswith("log_")}


OF_PAIRS = [
    *(
        pytest.param(function, arguments, arguments["problem"].law, id=f"{function.__name__}-{i}")
        for i, (function, arguments) in enumerate(calls.CALLS)
        if isinstance(arguments.get("problem"), otm.Problem)
    ),
    *(
        pytest.param(
            function, _without_logarithms(arguments), otm.IID(2), id=f"{function.__name__}-{i}"
        )
        for i, (function, arguments) in enumerate(calls.CALLS)
        if isinstance(arguments.get("draft"), list) and "outputs" not in arguments
    ),
]


def of_verifiers(ask, *, once):
    """Return parameters of each verifier under its laws of one and two drafts, or each law once."""
    return [
        pytest.param(
            ask,
            {"verifier": verifier, "problem": None},
            law,
            id=f"{instances.label(verifier)}-{instances.label(law)}",
        )
        for verifier, laws in instances.supported((1, 2))
        for law in (once and [law for law in laws if law.size == 2]) or laws
    ]


def numbers(answer):
    """Return the numbers of an answer: of a coupling its marginals, since plans are not unique."""
    match answer:
        case otm.results.Optimum() | otm.verifiers.BatchedOptimalRule():
            return numbers([answer.lower, answer.upper])
        case otm.results.Coupling():
            return numbers([answer.acceptance, answer.output_marginal])
        case otm.verifiers.Rule() | otm.transport.TransportProgram():
            return []
        case list() | tuple():
            return [part for item in answer for part in numbers(item)]
        case float() | np.ndarray() | np.generic() | torch.Tensor():
            return [np.asarray(answer, dtype=np.float64)]
    fields = dataclasses.fields(answer) if dataclasses.is_dataclass(answer) else ()
    # what is measured by the clock is no part of an answer's equality
    kept = [field.name for field in fields if field.compare]
    return [part for name in kept for part in numbers(getattr(answer, name))]


def asked(function, arguments, law, masses):
    """Return the numbers of the answer, or the kind of the error."""
    draft, target = masses
    given = {"draft": draft, "target": target}
    if "problem" in arguments:
        given = {"problem": otm.Problem(**given, law=law)}
    fresh = {"rng": calls.rng()} if "rng" in arguments else {}
    try:
        return numbers(function(**(arguments | fresh | given)))
    except otm.OtmError as error:
        return type(error)


def apart(found, wanted):
    """Return the largest difference of two answers; they are far apart if they are not alike."""
    if isinstance(found, type) or isinstance(wanted, type):
        return 0.0 if found is wanted else np.inf
    if [part.shape for part in found] != [part.shape for part in wanted]:
        return np.inf
    pairs = [(a[a != b], b[a != b]) for a, b in zip(found, wanted, strict=True)]
    return max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0)


@pytest.mark.parametrize(
    ("function", "arguments", "law"), OF_PAIRS + of_verifiers(everything, once=True)
)
def test_families(function, arguments, law):
    for name, masses in MASSES.items():
        if not instances.fits(law, len(masses[1])) or (
            function.__name__ in TOGETHER and name not in ("plain", "zeros")  # dear on others
        ):
            continue
        draft, target = aligned(law, masses)
        wanted = asked(function, arguments, law, (draft, target))
        for family_name, family in FAMILIES.items():
            if name in family.masses and (function is not otm.optimal_cut or family.moves == 0):
                with family.around():
                    given = family.given(draft), family.given(target)
                    found = asked(function, arguments, law, given)
                moves = np.sqrt(family.moves) if function.__name__ in ROOTS else family.moves
                assert apart(found, wanted) <= moves, (family_name, name, found, wanted)


ROW_BY_ROW = [one for one in OF_PAIRS if one.values[0].__name__ not in TOGETHER]


@pytest.mark.parametrize(
    ("function", "arguments", "law"), ROW_BY_ROW + of_verifiers(acceptances, once=False)
)
def test_batches(function, arguments, law):
    """Row by row, or refused: rows beside each other, one draft for all, chunks of rows, torch."""
    draft, target = aligned(law, MASSES["plain"])
    other, targets = np.roll(draft, 1, axis=-1), np.stack([target, target[::-1]])
    rows = [
        asked(function, arguments, law, (p, q))
        for p, q in zip((draft, other), targets, strict=True)
    ]
    shared = [asked(function, arguments, law, (draft, q)) for q in targets]
    for chunk, given, (batch, wanted) in itertools.product(
        (arrays.CHUNK_ELEMENTS, len(target)),
        (np.copy, torch.tensor),
        ((np.stack([draft, other]), rows), (draft, shared)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays, "CHUNK_ELEMENTS", chunk)
            found = asked(function, arguments, law, (given(batch), given(targets)))
        if found is otm.errors.ShapeMismatch or isinstance(wanted[0], type):
            continue
        stacked = [
            [np.stack(parts, axis=axis) for parts in zip(*wanted, strict=True)] for axis in (0, -1)
        ]
        assert min(apart(found, way) for way in stacked) <= 1e-13, (found, wanted)


# --- what single precision alone can break


@pytest.mark.parametrize("library", [np, torch])
def test_no_bound_changes_places_on_three_thousand_pairs(library):
    """Float32 softmaxes of logits that are the same, hardly differ, or do: where both sides are one
    number, rounding decides.
    """
    rng = np.random.default_rng(0)
    for width in (2, 5, 40, 1500):
        logits = rng.standard_normal((750, width)) * rng.choice([0.5, 2.0, 5.0], (750, 1))
        steps = rng.choice([0.0, 1e-7, 1e-3, 1.0], (750, 1))
        moved = logits + rng.standard_normal((750, width)) * steps
        masses = [scipy.special.softmax(x, axis=-1).astype(np.float32) for x in (logits, moved)]
        p, q = map(library.asarray, masses)
        for k in (1, 2, 64):
            problem, slack = otm.Problem(draft=p, target=q, law=otm.IID(k)), rounding(width, k)
            best = otm.optimal_acceptance(problem)
            bracket = otm.bounds.optimal_bracket(problem, bins=32)
            lower = [
                otm.acceptance(otm.KSeq(), problem),
                otm.acceptance(otm.RecursiveRejection(), problem),
                otm.bounds.kseq_lower(problem),
                otm.bounds.list_matching_lower(problem),
                bracket.lower,
            ]
            for low in lower:
                assert ((low >= 0) & (low <= 1) & (low <= best + slack)).all()
            for high in (bracket.upper, otm.bounds.support_limit_upper(problem)):
                assert ((best >= 0) & (best <= high + slack) & (high <= 1)).all()
            assert (bracket.lower <= bracket.upper).all()
        table = otm.acceptance_table(draft=p, target=q, k=[1])
        single = otm.optimal_acceptance(problem.with_law(otm.IID(1)))
        for column in otm.table.table_columns([1]):
            if column.optimum == "optimum_iid_k1":
                assert (table[column.name] <= single + rounding(width, 1)).all()


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("width", [2, 5, 300, 50_000])
def test_the_gate_leaves_what_has_passed_it(library, width):
    """Or a function that is given a problem's masses would answer for others, 1e-9 away."""
    rng = np.random.default_rng(width)
    rows = rng.dirichlet(np.full(width, 0.3), size=40).astype(np.float32)
    rows *= (1 + rng.uniform(-2e-5, 2e-5, size=(40, 1))).astype(np.float32)

    def gate(masses):
        return np.asarray(otm.pmf.as_pmf(library.asarray(masses), name="draft"))

    once = gate(rows)
    assert (once.astype(float).sum(axis=1) != 1).any()
    np.testing.assert_array_equal(once, gate(once))
    np.testing.assert_array_equal(once, [gate(alone) for alone in rows])


@pytest.mark.parametrize("narrow", ["draft", "target", "both"])
def test_mixed_precision_is_as_good_as_double(narrow):
    """A float32 row beside a float64 one is divided by its sum in float64, or pieces that tile the
    one would miss the other.
    """
    rng = np.random.default_rng(0)
    for _ in range(30):
        rows = {side: rng.dirichlet(np.full(40, 0.5)) for side in ("draft", "target")}
        for side in rows:
            if narrow in (side, "both"):
                rows[side] = rows[side].astype(np.float32)
        problem = otm.Problem(**rows, law=otm.IID(3))
        best = otm.optimal_acceptance(problem)
        assert otm.acceptance(otm.Optimal(), problem) == pytest.approx(best, abs=rounding(40, 3))
        otm.prepare(otm.Optimal(bins=64), problem)


def test_no_zero_of_a_list_leaves_the_gate_with_a_sign():
    ends = [
        otm.partial.optimal_acceptance(
            otm.partial.PartialPair(
                draft=otm.partial.TopTokens(tokens=[0, 1], probabilities=[zero, 1.0], tail=0.0),
                target=otm.partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5], tail=0.0),
            ),
            k=[1, 2],
        )
        for zero in (-0.0, 0.0)
    ]
    np.testing.assert_array_equal(ends[0].lower, ends[1].lower)
    np.testing.assert_array_equal(ends[0].upper, ends[1].upper)
