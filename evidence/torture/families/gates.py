"""What comes in: weights, logits and distributions to play with; and kinds of arrays that must be
refused by a typed error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import gate, iid, per_row, relative
from evidence.torture.frame import Trial, family
from evidence.torture.problems import Case, Row
from evidence.torture.promises import UNIT_ROUNDOFF, Bound, Promise, Rows, promised

WIDE = functools.partial(iid, tokens=(1, 2, 3, 5, 20, 200), kinds=("float64", "torch64"))
SHARE = Bound(
    lambda row, truth: (2 * gate(len(row.q)) + 6) * UNIT_ROUNDOFF * float(truth) + 5e-324,
    "(2ν + 6) u, relative, of every mass; half of the smallest float below 2^-1022",
    'docs/theory.md, "Plain sums"',
)


def _weights(case: Case) -> Any:
    return case.given(case.target * 10.0 ** math.floor(40 * case.extra - 20))


def _normalised(case: Case) -> Rows:
    return per_row(case, otm.normalise(_weights(case)))


def _shares(row: Row, case: Case) -> list[Decimal]:
    index = case.rows.index(row)
    weights = np.atleast_2d(np.asarray(_weights(case), dtype=np.float64))[index]
    exact = [Decimal(float(x)) for x in weights]
    return row.exactly(lambda: [x / oracles.total(exact) for x in exact])


def _logits(case: Case) -> np.ndarray:
    return np.round(np.log(np.maximum(case.target, 1e-200)) * 3.0, 6)


def _temperature(case: Case) -> float:
    return (1.0, 0.7, 2.5, 1e-3)[int(case.extra * 1000) % 4]


def _softmax(case: Case) -> Rows:
    return per_row(case, otm.from_logits(case.given(_logits(case)), temperature=_temperature(case)))


def _true_softmax(row: Row, case: Case) -> list[Decimal]:
    logits = _logits(case)[case.rows.index(row)]

    def exactly() -> list[Decimal]:
        scaled = [
            (Decimal(float(z)) - Decimal(float(logits.max()))) / Decimal(_temperature(case))
            for z in logits
        ]
        weights = [oracles.exp(z) if z > -2000 else Decimal(0) for z in scaled]
        return [w / oracles.total(weights) for w in weights]

    return row.exactly(exactly)


def _softmax_bound(row: Row, truth: Decimal) -> float:
    # exp turns the rounding of its argument, 2u of |z|, into a relative error of as much.
    exponent = abs(float(oracles.log(truth))) if truth > Decimal("1e-400") else 1000.0
    return (2 * (exponent + 8) + gate(len(row.q)) + 8) * UNIT_ROUNDOFF * float(truth) + 5e-324


SOFTMAX = Bound(
    _softmax_bound,
    "(2 |log p| + ν + 24) u, relative, of every mass",
    'docs/theory.md, "Plain sums"',
)


def _scalar(
    name: str, call: Callable[[Case], Any], truth: Callable[[Row, Case], Any], bound: Bound
) -> Promise:
    return Promise(
        f"otm.examples.{name}",
        "exact",
        functools.partial(iid, rows=(1,)),
        lambda c: Rows([call(c)]),
        truth,
        bound,
        "the formula in 60 digits",
    )


def _two_tokens(row: Row, case: Case) -> Decimal:
    p, q = Decimal(case.extra), Decimal(float(case.target[0, 0]))

    def exactly() -> Decimal:
        return min(q, oracles.one_minus_power(p, case.k)) + min(1 - q, 1 - oracles.power(p, case.k))

    return row.exactly(exactly)


def _ratio(case: Case) -> float:
    return 1.0 + 30.0 * case.extra


def _entropy_of(case: Case) -> float:
    return float(
        otm.examples.describe(case.problem.single(purpose="torture").target)["entropy_bits"]
    )


def _zipf(row: Row, case: Case) -> list[Decimal]:
    def exactly() -> list[Decimal]:
        weights = [
            oracles.exp(-Decimal(case.extra) * oracles.log(Decimal(i)))
            for i in range(1, case.num_tokens + 1)
        ]
        return [w / oracles.total(weights) for w in weights]

    return row.exactly(exactly)


SMALL = Bound(
    lambda row, truth: (2 * gate(len(row.q)) + 2 * min(row.k, 64) + 24) * UNIT_ROUNDOFF,
    "(2ν + 2 min(k, 64) + 24) u",
    "docstring",
)
GATES = [
    Promise("otm.normalise", "exact", WIDE, _normalised, _shares, SHARE, "exact division"),
    Promise(
        "otm.Problem",
        "exact",
        functools.partial(WIDE, kinds=("float64", "list", "torch64")),
        lambda c: per_row(c, c.problem.target),
        lambda r, c: r.q,
        SHARE,
        "exact division",
    ),
    Promise(
        "otm.from_logits",
        "exact",
        WIDE,
        _softmax,
        _true_softmax,
        SOFTMAX,
        "the softmax in 60 digits",
    ),
    _scalar(
        "two_token_optimum",
        lambda c: otm.examples.two_token_optimum(
            draft=c.extra, target=float(c.target[0, 0]), k=c.k
        ),
        _two_tokens,
        SMALL,
    ),
    _scalar(
        "uniform_optimum",
        lambda c: otm.examples.uniform_optimum(ratio=_ratio(c), k=c.k),
        lambda r, c: r.exactly(lambda: oracles.one_minus_power(1 / Decimal(_ratio(c)), c.k)),
        SMALL,
    ),
    _scalar(
        "describe",
        _entropy_of,
        lambda r, c: r.exactly(lambda: oracles.entropy(r) / oracles.LOG_2),
        Bound(
            lambda r, t: 16 * gate(len(r.q)) * UNIT_ROUNDOFF * (1 + float(t)),
            "16ν u (1 + H)",
            "docstring",
        ),
    ),
    _scalar("zipf", lambda c: otm.examples.zipf(c.num_tokens, exponent=c.extra), _zipf, SHARE),
    _scalar(
        "uniform",
        lambda c: otm.examples.uniform(c.num_tokens, vocabulary=c.num_tokens + 2),
        lambda r, c: [Decimal(1) / c.num_tokens] * c.num_tokens + [Decimal(0)] * 2,
        relative(1),
    ),
    _scalar(
        "bernoulli",
        lambda c: otm.examples.bernoulli(c.extra),
        lambda r, c: [1 - Decimal(c.extra), Decimal(c.extra)],
        relative(1),
    ),
    Promise(
        "otm.bounds.kseq_factor",
        "exact",
        iid,
        lambda c: Rows([otm.bounds.kseq_factor(c.k)] * len(c.target)),
        lambda r, c: oracles.kseq_factor(c.k),
        relative(4),
        "the formula in 80 digits",
    ),
]

promised("gates and examples", GATES)

REFUSED: dict[str, Callable[[np.ndarray], Any]] = {
    "float16": lambda masses: masses.astype(np.float16),
    "longdouble": lambda masses: masses.astype(np.longdouble),
    "complex": lambda masses: masses.astype(complex),
    "text": lambda masses: masses.astype(str),
    "bool": lambda masses: masses > 0,
    "masked": lambda masses: np.ma.masked_equal(masses, masses.flat[0]),
    "negative": lambda masses: masses - 2.0 * masses.max(),
    "not a number": lambda masses: masses * math.nan,
    "infinite": lambda masses: masses / 0.0,
    "twice": lambda masses: 2.0 * masses,
    "scalar": lambda masses: float(masses.flat[0]),
    "none": lambda masses: None,
    "ragged": lambda masses: [masses.tolist(), [1.0]],
    "empty": lambda masses: [],
}
TAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "otm.Problem": lambda p, q: otm.Problem(draft=p, target=q, law=otm.IID(2)),
    "otm.acceptance_table": lambda p, q: otm.acceptance_table(draft=p, target=q, k=[1]),
    "otm.compare": lambda p, q: otm.compare(draft=p, target=q, k=[1], samples=2),
    "otm.divergences.total_variation": lambda p, q: otm.divergences.total_variation(
        draft=p, target=q
    ),
    "otm.divergences.kl_divergence": lambda p, q: otm.divergences.kl_divergence(draft=p, target=q),
    "otm.divergences.harmonic_mean_distance": lambda p, q: otm.divergences.harmonic_mean_distance(
        draft=p, target=q
    ),
    "otm.divergences.hockey_stick": lambda p, q: otm.divergences.hockey_stick(
        draft=p, target=q, level=1.0
    ),
    "otm.partial.TopTokens": lambda p, q: (
        otm.partial.TopTokens.of(p, m=2),
        otm.partial.TopTokens.of(q, m=2),
    ),
}


@family("refusals")
def refusals(random: np.random.Generator) -> Iterator[Trial]:
    """Arrays that are no distributions raise an `OtmError`, whichever argument they are and
    whichever function takes them.
    """
    names, kinds = list(TAKERS), list(REFUSED)
    while True:
        name, kind = names[random.integers(len(names))], kinds[random.integers(len(kinds))]
        case = iid(random, rows=(1,), tokens=(2, 3, 4))
        with np.errstate(all="ignore"):
            bad = REFUSED[kind](case.draft[0])
        p, q = (bad, case.target[0]) if random.random() < 0.5 else (case.target[0], bad)
        try:
            found = TAKERS[name](p, q)
        except otm.OtmError:
            yield Trial(name, 1, 0.0)
        except Exception as error:
            yield Trial(name, 1, math.inf, "", f"{kind}: {type(error).__name__}: {error}")
        else:
            yield Trial(
                name,
                1,
                math.inf,
                "",
                f"{kind} is taken for a distribution: {bad!r} gives {found!r}",
            )
