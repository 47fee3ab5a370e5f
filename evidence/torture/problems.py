"""What is tried: pairs of distributions, plain and structured, in every kind of array that the gate
takes; and simpler ones.

A `Case` is some rows that share a draft law, as they are handed to the library. Its truth is
computed from `Row`s: the masses that the library was given, exactly, divided by their exact sum.
(For float32 the masses are those that the gate stores: dividing by a sum rounds them to float32,
and what is promised is about the result.)
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm

Masses = NDArray[np.float64]

DIGITS, DIGITS_FOR_TINY = 60, 420
"""Of all exact arithmetic; the second where masses near 5e-324 stand beside ordinary ones and 1 − x
must still have 60 digits.
"""


@functools.cache
def context(digits: int) -> decimal.Context:
    """Return a context without limits on exponents."""
    return decimal.Context(
        prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_EVEN
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One pair in exact arithmetic: `drafts` has one distribution for each drafter, `p` is the
    first of them.
    """

    drafts: tuple[tuple[Decimal, ...], ...]
    q: tuple[Decimal, ...]
    law: str
    k: int
    digits: int

    @property
    def p(self) -> tuple[Decimal, ...]:
        """The draft distribution of laws with one drafter."""
        return self.drafts[0]

    def exactly(self, function: Callable[[], Any]) -> Any:
        """Evaluate in this row's precision."""
        with decimal.localcontext(context(self.digits)):
            return function()


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Rows as the library takes them.

    Args:
        draft: `(rows, V)`, or `(rows, k, V)` for different drafters.
        target: `(rows, V)`.
        law: the name of the law's class.
        k: number of drafts.
        kind: "float64", "float32", "torch64", "torch32", "list" or "integers" (one-hot rows).
        extra: one more number in [0, 1] for functions that take a parameter.
    """

    draft: Masses
    target: Masses
    law: str = "IID"
    k: int = 1
    kind: str = "float64"
    extra: float = 0.5

    def __repr__(self) -> str:
        return (
            f"Case(draft=np.array({self.draft.tolist()!r}), "
            f"target=np.array({self.target.tolist()!r}), "
            f"law={self.law!r}, k={self.k}, kind={self.kind!r}, extra={self.extra!r})"
        )

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.target.shape[-1]

    @property
    def single(self) -> bool:
        """Whether it is one row, which is then passed without a leading axis."""
        return len(self.target) == 1

    def given(self, masses: Masses) -> Any:
        """Return masses as they are passed to the library."""
        masses = masses[0] if self.single else masses
        if self.kind == "list":
            return masses.tolist()
        if self.kind == "integers":
            return masses.astype(np.int64)
        if self.kind.startswith("torch"):
            import torch

            return torch.tensor(
                masses, dtype=torch.float32 if self.kind == "torch32" else torch.float64
            )
        return masses.astype(np.float32 if self.kind == "float32" else np.float64)

    @property
    def arrays(self) -> dict[str, Any]:
        """What functions of two distributions take."""
        return {"draft": self.given(self.draft), "target": self.given(self.target)}

    @functools.cached_property
    def otm_law(self) -> otm.Law:
        """The law."""
        law: otm.Law = getattr(otm, self.law)(self.k)
        return law

    @functools.cached_property
    def problem(self) -> otm.Problem:
        """What most functions take."""
        return otm.Problem(**self.arrays, law=self.otm_law)

    @functools.cached_property
    def rows(self) -> list[Row]:
        """The rows in exact arithmetic."""
        draft, target = self.draft, self.target
        if self.kind in ("float32", "torch32"):
            from otm._machine.arrays import to_numpy

            draft = to_numpy(self.problem.draft).astype(np.float64).reshape(draft.shape)
            target = to_numpy(self.problem.target).astype(np.float64).reshape(target.shape)
        return [exact_row(p, q, law=self.law, k=self.k) for p, q in zip(draft, target, strict=True)]


def exact_row(draft: Masses, target: Masses, *, law: str = "IID", k: int = 1) -> Row:
    """Return floats as the numbers they are, divided by their exact sums."""
    drafts = np.atleast_2d(draft)
    masses = np.concatenate([drafts.reshape(-1), target])
    tiny = bool(((masses > 0) & (masses < 1e-20)).any())
    digits = DIGITS_FOR_TINY if tiny else DIGITS
    with decimal.localcontext(context(digits)):
        return Row(tuple(unit(p) for p in drafts), unit(target), law, k, digits)


def unit(masses: Sequence[float] | Masses) -> tuple[Decimal, ...]:
    """Return masses divided by their exact sum, to the precision in force."""
    exact = [Decimal(float(x)) for x in masses]
    whole = sum(exact, Decimal(0))
    return tuple(x / whole for x in exact)


# --------------------------------------------------------------------------------------------------
# distributions


def _smooth(random: np.random.Generator, width: int) -> Masses:
    return random.dirichlet(np.full(width, random.choice([0.2, 1.0, 10.0]))) + 1e-12


def _lattice(random: np.random.Generator, width: int) -> Masses:
    return random.integers(1, 4, width).astype(float)


def _small_integers(random: np.random.Generator, width: int) -> Masses:
    weights = random.integers(0, 4, width).astype(float)
    weights[random.integers(width)] += 1.0
    return weights


def _one_hot(random: np.random.Generator, width: int) -> Masses:
    return (np.arange(width) == random.integers(width)).astype(float)


def _flat(random: np.random.Generator, width: int) -> Masses:
    return np.ones(width)


def _zipf(random: np.random.Generator, width: int) -> Masses:
    return random.permutation(1.0 / np.arange(1, width + 1) ** random.uniform(0.5, 3.0))


def _long_tail(random: np.random.Generator, width: int) -> Masses:
    weights = np.full(width, 10.0 ** random.uniform(-12, -1))
    weights[random.integers(width)] = 1.0
    return weights


def _tiny(random: np.random.Generator, width: int) -> Masses:
    """Masses from 1 down to the smallest positive float, which the gate leaves as they are beside
    1.
    """
    weights = random.choice(
        [5e-324, 1e-323, 3e-310, 1e-300, 1e-155, 1e-104, 1e-40, 1e-17, 0.25, 0.5, 1.0, 0.0], width
    )
    weights[random.integers(width)] = 1.0
    return weights


def _powers_of_two(random: np.random.Generator, width: int) -> Masses:
    return 2.0 ** -random.integers(0, 60, width).astype(float)


SHAPES = (
    _smooth,
    _lattice,
    _small_integers,
    _one_hot,
    _flat,
    _zipf,
    _long_tail,
    _tiny,
    _powers_of_two,
)


def distribution(random: np.random.Generator, width: int) -> Masses:
    """Return one distribution of some shape."""
    return _scaled(SHAPES[random.integers(len(SHAPES))](random, width))


def _scaled(weights: Masses) -> Masses:
    return weights / weights.sum()


def _near(random: np.random.Generator, p: Masses) -> Masses:
    """Return the same distribution but for rounding: some masses one to three units in the last
    place away.
    """
    q = p.copy()
    for _ in range(random.integers(0, 4)):
        at = random.integers(len(q))
        q[at] = np.nextafter(q[at], random.choice([0.0, 1.0]))
    return q if q.sum() > 0 else p


def _mixed(random: np.random.Generator, p: Masses) -> Masses:
    size = 10.0 ** random.uniform(-16, -1)
    return (1 - size) * p + size * distribution(random, len(p))


def _shuffled(random: np.random.Generator, p: Masses) -> Masses:
    return random.permutation(p)


def _disjoint(random: np.random.Generator, p: Masses) -> Masses:
    q = np.where(p > 0, 0.0, distribution(random, len(p)) + 0.1)
    return _scaled(q) if q.sum() > 0 else p


def _other(random: np.random.Generator, p: Masses) -> Masses:
    return distribution(random, len(p))


def _curve(random: np.random.Generator, p: Masses) -> Masses:
    """Return the target for which every prefix of some order is a best cut of k
    drafts: q = Δ P^k.
    """
    reached = np.cumsum(p) ** random.integers(1, 9)
    q = np.diff(reached / reached[-1], prepend=0.0)
    return _scaled(np.maximum(q, 0.0))


def _scaled_part(random: np.random.Generator, p: Masses) -> Masses:
    """Return a target with few ratios: p times one of three factors."""
    q = p * random.choice([0.5, 1.0, 2.0], len(p))
    return _scaled(q) if q.sum() > 0 else p


RELATIONS = (_other, _other, _near, _mixed, _shuffled, _disjoint, _curve, _scaled_part)


def pair(random: np.random.Generator, width: int) -> tuple[Masses, Masses]:
    """Return draft and target: unrelated, or related in one of the ways in which computations go
    wrong.
    """
    p = distribution(random, width)
    q = RELATIONS[random.integers(len(RELATIONS))](random, p)
    return (p, q) if random.random() < 0.7 else (q, p)


KINDS = ("float64",) * 6 + ("float32", "torch64", "torch32", "list")
COUNTS = (1, 1, 2, 2, 3, 4, 5, 8, 16, 64, 65, 1000, 10**5, 10**9)


def cases(
    random: np.random.Generator,
    *,
    law: str = "IID",
    tokens: Sequence[int] = (1, 2, 3, 4, 5, 6),
    counts: Sequence[int] = COUNTS,
    rows: Sequence[int] = (1, 1, 3),
    kinds: Sequence[str] = KINDS,
) -> Case:
    """Return one random case; a float32 case has no masses below what float32 holds."""
    width, k, many = (
        int(random.choice(tokens)),
        int(random.choice(counts)),
        int(random.choice(rows)),
    )
    if law in ("Greedy", "TopK", "WithoutReplacement"):
        k = min(k, width)
    kind = str(random.choice(kinds))
    drafters = k if law == "Product" else 1
    pairs = [pair(random, width) for _ in range(many)]
    draft, target = np.array([p for p, _ in pairs]), np.array([q for _, q in pairs])
    if law == "Product":
        draft = np.stack(
            [
                draft,
                *(
                    np.array([pair(random, width)[0] for _ in range(many)])
                    for _ in range(drafters - 1)
                ),
            ],
            axis=1,
        )
    if kind in ("float32", "torch32"):
        draft, target = (masses.astype(np.float32).astype(np.float64) for masses in (draft, target))
    elif kind == "list" and random.random() < 0.2:
        kind, draft, target = (
            "integers",
            *(np.eye(width)[masses.argmax(axis=-1)] for masses in (draft, target)),
        )
    return Case(draft, target, law, k, kind, round(float(random.random()), 3))


# --------------------------------------------------------------------------------------------------
# shrinking


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases that are simpler in one respect each: fewer rows, fewer tokens, plain arrays,
    fewer drafts, rounder masses.
    """
    if len(case.target) > 1:
        for row in range(len(case.target)):
            yield dataclasses.replace(
                case, draft=case.draft[row : row + 1], target=case.target[row : row + 1]
            )
    if case.kind != "float64":
        draft, target = (
            masses / masses.sum(-1, keepdims=True) for masses in (case.draft, case.target)
        )
        yield dataclasses.replace(case, kind="float64", draft=draft, target=target)
    least = case.k if case.law in ("Greedy", "TopK", "WithoutReplacement") else 1
    for size in {case.num_tokens // 2, 1}:
        for start in range(0, case.num_tokens, max(size, 1)):
            keep = np.ones(case.num_tokens, dtype=bool)
            keep[start : start + size] = False
            draft, target = case.draft[..., keep], case.target[..., keep]
            if (
                max(least, 1) <= keep.sum() < case.num_tokens
                and (draft.sum(-1) > 0).all()
                and (target.sum(-1) > 0).all()
            ):
                yield dataclasses.replace(
                    case,
                    draft=draft / draft.sum(-1, keepdims=True),
                    target=target / target.sum(-1, keepdims=True),
                )
    if case.law != "Product":
        for k in {1, 2, case.k // 2, case.k - 1}:
            if 1 <= k < case.k:
                yield dataclasses.replace(case, k=k)
    for digits in (1, 2, 4, 8):
        for name in ("draft", "target"):
            old = getattr(case, name)
            new = np.round(old, digits)
            if (new != old).any() and (abs(new.sum(-1) - 1) < 1e-9).all():
                yield dataclasses.replace(case, **{name: new})
