"""Code on all draft sequences at once: the same law as sequence by sequence, in a few ways, or a refusal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otm
from otm.audit.boxes import Escape
from otm.audit.candidate import outcome_of, read_token
from otm.audit.lockstep import Ways, follow
from otm.drafts.base import enumerate_drafts

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


def followed(code: Callable[..., Any], problem: otm.Problem, most_work: int = 10**8) -> tuple[Ways, Any]:
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
    assert joint == pytest.approx(otm.audit.exact(code, problem()).coupling.joint.toarray(), abs=1e-14)
    assert ways.error < 1e-14


@pytest.mark.parametrize("law", [otm.WithoutReplacement(3), otm.Greedy(3), otm.TopK(3), otm.Product(3)], ids=repr)
def test_other_laws(law: otm.Law) -> None:
    several = np.stack([DRAFT, TARGET, DRAFT[::-1]])
    other = otm.Problem(draft=several if isinstance(law, otm.Product) else DRAFT, target=TARGET, law=law)

    def code(p: Any, q: Any, drafts: Any, u: Any) -> Any:
        for i, x in enumerate(drafts):
            if u[i] * (p[i, x] if p.ndim == 2 else p[x]) < 0.7 * q[x]:
                return x
        return _of(q, u[-1])

    _, joint = followed(code, other)
    assert joint == pytest.approx(otm.audit.exact(code, other).coupling.joint.toarray(), abs=1e-14)


def test_a_rejection_is_one_way_whatever_was_drafted() -> None:
    assert followed(recursive, problem(2))[0].ways <= 4 + 4 + 4  # a token accepted first, second, or after both
    assert followed(recursive, problem(6))[0].ways <= 7 * 4
    assert followed(last, problem(6))[0].ways == 4
    assert followed(counted, problem(6))[0].ways <= 84 * 5  # multisets of 6 of 4 tokens


def test_work_is_bounded_and_what_was_not_followed_is_known() -> None:
    whole = followed(by_numbers, problem(4))[0]
    part, joint = followed(by_numbers, problem(4), most_work=100_000)
    assert whole.error < 1e-14
    assert part.ways < whole.ways / 4
    assert joint.sum() + part.error == pytest.approx(1.0, abs=1e-14)


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
