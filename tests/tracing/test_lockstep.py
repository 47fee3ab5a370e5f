"""Code on all draft sequences at once: the same law as sequence by sequence, in a few ways, or a
refusal.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otm
from otm.audit.candidate import outcome_of, read_token
from otm.drafts.base import enumerate_drafts
from otm.tracing.boxes import Escape
from otm.tracing.lockstep import Ways, follow

DRAFT, TARGET = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
K = 3

_CALLS = [0]


def _left(p: Any, q: Any) -> Any:
    return np.maximum(q - p, 0.0) / np.maximum(q - p, 0.0).sum()


def _of(q: Any, u: Any) -> int:
    return int(np.searchsorted(np.cumsum(q), u))


def recursive(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    for x, v in zip(drafts, u, strict=False):
        if v * p[x] < q[x]:
            return x, True
        q = _left(p, q)
    return _of(q, u[-1]), False


def by_numbers(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    return recursive(p, q, [int(x) for x in drafts], u)


def by_ratio(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    for i in range(len(drafts)):
        if min(1, q[drafts[i]] / (2.0 * p[drafts[i]])) >= u[i]:
            return drafts[i]
    return int((np.cumsum(q) > u[-1]).argmax())


def at_once(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    kept = np.flatnonzero(1.0 - u[:-1] > 1.0 - q[drafts] / (3.0 * p[drafts]))
    return (drafts[kept[0]], True) if len(kept) else (_of(q, u[-1]), False)


def naive(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    y = _of(q, u[-1])
    return y, y in drafts


def naive_array(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    y = _of(q, u[0])
    return y, (drafts[::-1] == y).any()


def counted(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    likeliest = int(np.argmax(np.bincount(drafts, minlength=4) * q))
    return (likeliest, True) if u[0] < 0.5 else (_of(q, u[1]), False)


def by_set(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    some = sorted(set(drafts.tolist()))
    return some[_of(q[some] / q[some].sum(), u[0])]


def distinct(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    some = np.unique(drafts)
    return some[_of(q[some] / q[some].sum(), u[0])]


def differences(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    x, y = drafts[0], drafts[1]
    return x if abs(q[x] - q[y]) * 2 < 0.3 + 0.5 * u[0] and x != y else y


def last(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    return int(drafts[-1])


def plain_scale(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    return int(drafts[0]) if float(q[drafts[0]]) > 0.25 or u[0] < 0.5 else 0


CODE = [
    recursive, by_numbers, by_ratio, at_once, naive, naive_array, counted, by_set, distinct, differences, last, plain_scale,
]  # fmt: skip


def followed(
    code: Callable[..., Any], problem: otm.Problem, most_work: int = 10**8
) -> tuple[Ways, Any]:
    table = enumerate_drafts(problem.law, problem.draft)
    live = table.mass > 0
    ways = follow(
        lambda *arguments: outcome_of(lambda: read_token(code(*arguments), 4)),
        draft=problem.draft,
        target=problem.target,
        drafts=table.tokens[live],
        mass=table.mass[live],
        num_uniforms=problem.law.k + 1,
        most_work=most_work,
    )
    joint = np.zeros((int(live.sum()), 4))
    for rows, (token, _), mass in ways.found:  # type: ignore[misc]
        joint[rows, token] += mass
    return ways, joint


@functools.cache
def problem(k: int = K) -> otm.Problem:
    return otm.Problem(draft=DRAFT, target=TARGET, law=otm.IID(k))


@pytest.mark.parametrize("code", CODE, ids=lambda code: code.__name__)
def test_the_law_is_that_of_every_sequence_by_itself(code: Callable[..., Any]) -> None:
    ways, joint = followed(code, problem())
    assert joint == pytest.approx(
        otm.audit.exact(code, problem()).coupling.joint.toarray(), abs=1e-14
    )
    assert ways.error < 1e-14


@pytest.mark.parametrize(
    "law", [otm.WithoutReplacement(3), otm.Greedy(3), otm.TopK(3), otm.Product(3)], ids=repr
)
def test_other_laws(law: otm.Law) -> None:
    several = np.stack([DRAFT, TARGET, DRAFT[::-1]])
    other = otm.Problem(
        draft=several if isinstance(law, otm.Product) else DRAFT, target=TARGET, law=law
    )

    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        for i, x in enumerate(drafts):
            if u[i] * (p[i, x] if p.ndim == 2 else p[x]) < 0.7 * q[x]:
                return x
        return _of(q, u[-1])

    _, joint = followed(code, other)
    assert joint == pytest.approx(otm.audit.exact(code, other).coupling.joint.toarray(), abs=1e-14)


def test_a_rejection_is_one_way_whatever_was_drafted() -> None:
    assert (
        followed(recursive, problem(2))[0].ways <= 4 + 4 + 4
    )  # a token accepted first, second, or after both
    assert followed(recursive, problem(6))[0].ways <= 7 * 4
    assert followed(last, problem(6))[0].ways == 4
    assert followed(counted, problem(6))[0].ways <= 84 * 5  # multisets of 6 of 4 tokens


def test_work_is_bounded_and_what_was_not_followed_is_known() -> None:
    whole = followed(by_numbers, problem(4))[0]
    part, joint = followed(by_numbers, problem(4), most_work=100_000)
    assert whole.error < 1e-14
    assert part.ways < whole.ways / 4
    assert joint.sum() + part.error == pytest.approx(1.0, abs=1e-14)


SPARSE, OTHER = np.array([0.0, 0.2, 0.3, 0.5]), np.array([0.97, 0.01, 0.01, 0.01])


def acceptance(code: Callable[..., Any], k: int) -> float:
    """On four tokens of which the likeliest draft has no target."""
    several = otm.Problem(draft=OTHER, target=SPARSE, law=otm.IID(k))
    ways = followed(code, several)[0]
    assert ways.error < 1e-14
    found: Any = ways.found
    return sum(float(mass.sum()) for _, (_, said), mass in found if said)


@pytest.mark.parametrize(
    ("condition", "on_zeros"),
    [
        (lambda s, u: u * s <= 0.5 * s, True),
        (lambda s, u: 0.5 * s >= u * s, True),
        (lambda s, u: u * s < 0.5 * s, False),
        (lambda s, u: 0.5 * s > u * s, False),
    ],
)
def test_without_a_slope_it_matters_whether_a_comparison_is_strict(
    condition: Callable[..., Any], on_zeros: bool
) -> None:
    zeros = 0.97**5  # all of the likeliest token, whose target is 0

    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        return drafts[0], condition(q[drafts].sum(), u[0])

    assert acceptance(code, 5) == pytest.approx(on_zeros * zeros + 0.5 * (1.0 - zeros), abs=1e-14)


@pytest.mark.parametrize(
    "same",
    [
        lambda a, u: u[0] * a == 0,
        lambda a, u: (u[0] * a != 0) ^ True,
        lambda a, u: a * u[0] == a * u[1],
    ],
)
def test_without_a_slope_numbers_may_be_equal(same: Callable[..., Any]) -> None:
    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        return drafts[0], same(q[drafts].sum(), u)

    assert acceptance(code, 5) == pytest.approx(0.97**5, abs=1e-14)


def test_a_uniform_over_zero_is_infinite() -> None:
    assert acceptance(
        lambda p, q, drafts, u: (drafts[0], u[0] / q[drafts[0]] > 2.0), 2
    ) == pytest.approx(0.97 + 0.01 * (0.6 + 0.4), abs=1e-14)
    with pytest.raises(Escape, match="divides a random number by 0"):
        acceptance(lambda p, q, drafts, u: (drafts[0], (u[0] - 0.5) / q[drafts[0]] > 2.0), 2)


def test_what_is_no_number_is_one_of_the_values() -> None:
    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        return drafts[0], not float(
            q[drafts[0]] / q[drafts[1]]
        ) > 0.0  # 0/0 where both are the likeliest

    assert acceptance(code, 2) == pytest.approx(0.97, abs=1e-14)


def test_the_code_may_write_into_the_distributions() -> None:
    draft, target = OTHER.copy(), SPARSE.copy()

    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        q *= 2
        p /= 2
        return int(drafts[0])

    for _ in range(2):
        follow(
            code,
            draft=draft,
            target=target,
            drafts=np.arange(4)[:, None],
            mass=OTHER,
            num_uniforms=1,
            most_work=10**6,
        )
    assert (draft == OTHER).all()
    assert (target == SPARSE).all()


def test_the_likeliest_sequence_of_a_way_is_executed_on_plain_numbers() -> None:
    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        return 0, type(drafts[0]) is np.int64 and (
            drafts == 0
        ).all()  # 1 of 1024 sequences, and 86 % of the mass

    with pytest.raises(Escape, match="unknown operation"):
        acceptance(code, 5)


@pytest.mark.parametrize("function", [np.sort, np.unique, np.bincount, np.max])
def test_drafts_times_a_uniform_are_no_plain_numbers(function: Callable[..., Any]) -> None:
    with pytest.raises(Escape, match="plain float"):
        acceptance(lambda p, q, drafts, u: (drafts[0], np.max(function(drafts * u[0])) < 1), 3)


@pytest.mark.parametrize(
    ("repeated", "probability"),
    [
        (lambda x: np.any(x[1:] == x[0]), 1.0 - (0.97 * 0.03**2 + 0.03 * 0.99**2)),
        (lambda x: np.sum(x == x[0]) > 1, 1.0 - (0.97 * 0.03**2 + 0.03 * 0.99**2)),
        (lambda x: np.count_nonzero(x == x[0]) > 1, 1.0 - (0.97 * 0.03**2 + 0.03 * 0.99**2)),
        (lambda x: np.max(np.concatenate([x[:1], x[1:]]) * 0.5) < 1, 0.98**3),
        (lambda x: np.max(x * 0.5) < 1, 0.98**3),
        (lambda x: np.sort(x * 0.5)[-1] < 1, 0.98**3),
        (lambda x: np.sort(copy.deepcopy(x))[-1] < 2, 0.98**3),
        (lambda x: copy.deepcopy(x[0]) < 2, 0.98),
    ],
)
def test_functions_of_numpy_get_drafts_and_what_was_computed_of_them(
    repeated: Callable[..., Any], probability: float
) -> None:
    assert acceptance(lambda p, q, drafts, u: (drafts[0], repeated(drafts)), 3) == pytest.approx(
        probability, abs=1e-14
    )


@pytest.mark.parametrize(
    "rarely", [lambda: np.random.random() < 1e-12, lambda: random.random() < 1e-12]
)
def test_randomness_of_its_own_shows_in_the_generator(rarely: Callable[[], Any]) -> None:
    with pytest.raises(Escape, match="it draws from random"):
        followed(lambda p, q, drafts, u: 1 if rarely() else 0, problem())
    with pytest.raises(Escape, match="it draws from random"):  # in another way than the first
        followed(lambda p, q, drafts, u: 1 if u[0] > 0.9 and rarely() else 0, problem())


SLOPES = [
    "q[x[0]]",
    "q[x[1]]",
    "q[x].sum()",
    "0.0",
    "(len(np.unique(x)) - 1)",
    "np.sum(x == x[1]) / 2",
]
NUMBERS = [
    *SLOPES, "p[x[0]]", "p[x[1]]", "max(q[x])", "np.sort(x)[0]", "x[1]", "abs(q[x[0]] - p[x[1]])", "np.max(x * 0.5)", "0.5", "-1",
    "0.125",
]  # fmt: skip
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


def composed(rng: np.random.Generator) -> str:
    """Return code of which all thresholds are eighths."""

    def one(things: list[str]) -> str:
        return things[int(rng.integers(len(things)))]

    def condition() -> str:
        u, bound = one(["u[0]", "u[1]"]), f"{one(NUMBERS)} {one(['+', '-'])} {one(NUMBERS)}"
        return one(
            [
                *[f"{u} * {one(SLOPES)} {one(COMPARISONS)} {bound}"] * 3,
                f"{bound} {one(COMPARISONS)} {one(SLOPES)} * {u}",
                f"{u} * {one(SLOPES[:4])} + {one(NUMBERS)} {one(COMPARISONS)} {u} * "
                f"{one(SLOPES[:4])}",
                f"{bound} {one(COMPARISONS)} {one(NUMBERS)}",
                f"np.any(q[x] * {u} {one(COMPARISONS)} {one(NUMBERS)})",
                "np.any(x[1:] == x[0])",
            ]
        )

    token = [one(["x[0]", "int(x[1])", "max(x)", "np.sort(x)[0]", "2"]) for _ in range(3)]
    return (
        f"{token[0]} if {condition()} else {token[1]} if {condition()} and {condition()} else "
        f"{token[2]}"
    )


def test_small_functions_have_the_law_of_points_in_the_middle_of_eighths() -> None:
    rng = np.random.default_rng(7)
    few = otm.Problem(draft=[0.5, 0.25, 0.25, 0.0], target=[0.0, 0.5, 0.5, 0.0], law=otm.IID(2))
    sequences = enumerate_drafts(few.law, few.draft)
    live = sequences.mass > 0
    points = (np.array(list(itertools.product(range(8), repeat=2))) + 0.5) / 8.0
    for _ in range(30):
        source = composed(rng)
        code = eval(f"lambda p, q, x, u: {source}", {"np": np})
        expected = np.zeros((int(live.sum()), 4))
        for row, (x, mass) in enumerate(
            zip(sequences.tokens[live], sequences.mass[live], strict=True)
        ):
            for u in points:
                expected[row, code(few.draft, few.target, x, u)] += mass / len(points)
        assert followed(code, few)[1] == pytest.approx(expected, abs=1e-12), source


def hidden(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    _CALLS[0] += 1
    return int(drafts[_CALLS[0] % 2])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (lambda p, q, drafts, u: drafts[int(u[0] < u[1])], "compares its uniforms"),
        (lambda p, q, drafts, u: drafts[int(u[0] + u[1] < 1)], "adds up its uniforms"),
        (lambda p, q, drafts, u: drafts[int(u[0] * u[1] < 0.3)], "multiplies its uniforms"),
        (lambda p, q, drafts, u: drafts[int(1 / u[0] < 3)], "divides by a uniform"),
        (lambda p, q, drafts, u: drafts[int(float(u[0]) < 0.5)], "plain float"),
        (lambda p, q, drafts, u: drafts[int(u[0] < np.float32(0.3))], "double precision"),
        (lambda p, q, drafts, u: int(np.argmin(-np.log(u) / q)), "unknown operation"),
        (lambda p, q, drafts, u: drafts[int(np.random.random() < 0.5)], "its own randomness"),  # noqa: NPY002
        (hidden, "hidden state"),
    ],
    ids=lambda thing: thing if isinstance(thing, str) else "",
)
def test_what_cannot_be_followed_is_refused(code: Callable[..., Any], reason: str) -> None:
    with pytest.raises(Escape, match=reason):
        followed(code, problem())
