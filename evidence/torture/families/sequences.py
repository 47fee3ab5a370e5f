"""Toy models through every decoder: the law of what comes out against the target's, exactly;
expected tokens by formulas.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.checks import Checks, exact
from evidence.torture.frame import Trial, family
from evidence.torture.problems import DIGITS, context, exact_row, unit
from evidence.torture.promises import UNIT_ROUNDOFF, Statement, stated
from otm import sequence
from tests.sequence.toys import (
    INDEPENDENT,
    SIZES,
    completed,
    decoders,
    num_trees,
    random_models,
)

checks = Checks("sequences", times=3)

MOST_TREES = 64
ROUNDING, QUADRATURE, CERTIFIED = 3e-14, 5e-11, 1e-8
"""A completed law sums products of at most 26 probabilities, each right to a few units; races and
programs as they promise.
"""


def tolerance(decoder: sequence.Decoder) -> tuple[float, str]:
    """Return how far a decoder's output law may be off in one entry, and in words."""
    if isinstance(decoder, sequence.Ersd):
        return QUADRATURE, "5e-11: three races on a path"
    verifier = getattr(decoder, "verifier", None)
    if isinstance(verifier, otm.Optimal) or decoder.carries_noise:
        return 1e-12, "1e-12"
    return ROUNDING, "3e-14: products of at most 26 probabilities"


def exact_law(model: sequence.LanguageModel, length: int) -> list[Decimal]:
    """Return the law of the first `length` tokens, in lexicographic order, from the
    model's rows.
    """
    rows = functools.cache(lambda prefix: unit(model.next(prefix)))
    return [
        math.prod((rows(text[:i])[text[i]] for i in range(length)), start=Decimal(1))
        for text in itertools.product(range(model.num_tokens), repeat=length)
    ]


def apart(found: np.ndarray, truth: list[Decimal]) -> float:
    """Return the largest difference of two laws."""
    return max(
        abs(float(Decimal(float(a)) - b)) for a, b in zip(found.reshape(-1), truth, strict=True)
    )


for _cls in sequence.DECODERS:
    stated(
        Statement(
            f"otm.sequence.{_cls.__name__}",
            "exact",
            "5e-11 in an entry of the output law with races, 1e-12 with optimal scores or noise, "
            "else 3e-14",
            'docs/theory.md, "Sequences and trees"',
            "the target's law, exactly, on random toys (SpecTr, Theorem 3)",
        )
    )


@family("decoders")
def losslessness(random: np.random.Generator) -> Iterator[Trial]:
    """Output completed by target samples has the target's law: every decoder on random toys."""
    while True:
        index = int(random.integers(1000))
        size = SIZES[random.integers(len(SIZES))]
        draft, target = random_models(size.num_tokens, size.length, random)
        chosen = decoders(size, index, random)
        decoder = chosen[random.integers(len(chosen))]
        deferred = num_trees(decoder, size.num_tokens) > MOST_TREES and isinstance(
            decoder, sequence.DeferredDecoder
        )
        step: Any = sequence.expected_step if deferred else sequence.step_law
        length = decoder.depth + 1
        if decoder.carries_noise:
            law = completed(decoder, draft, target, length)
        else:
            found = step(decoder, draft=draft, target=target, context=[])
            law = sequence.completed_law(
                getattr(found, "law", found), target=target, context=[], length=length
            )
        with decimal.localcontext(context(DIGITS)):
            error = apart(law, exact_law(target, length))
        yield Trial(
            f"otm.sequence.{type(decoder).__name__}",
            1,
            error / tolerance(decoder)[0],
            "",
            f"{decoder!r}, {draft}, {target}",
        )


def _toy(random: np.random.Generator) -> tuple[Any, Any, Any]:
    size = SIZES[random.integers(len(SIZES))]
    return size, *random_models(size.num_tokens, size.length, random)


def _tokens(law: sequence.StepLaw) -> float:
    return 1.0 + float(law.mass @ law.accepted)


@checks.add(
    "otm.sequence.expected_step",
    "1e-12; with races 1e-10",
    "docstring",
    "the enumerated law of the step",
)
def _expected(random: np.random.Generator) -> tuple[float, str]:
    size, draft, target = _toy(random)
    known = [
        d
        for d in decoders(size, int(random.integers(1000)), random)
        if isinstance(d, sequence.DeferredDecoder)
    ]
    chosen = [d for d in known if num_trees(d, size.num_tokens) <= MOST_TREES]
    decoder = chosen[random.integers(len(chosen))]
    whole = sequence.step_law(decoder, draft=draft, target=target, context=[])
    found = sequence.expected_step(decoder, draft=draft, target=target, context=[])
    bound = 1e-10 if isinstance(decoder, sequence.Ersd) else 1e-12
    return abs(_tokens(whole) - found.block_efficiency) / bound, f"{decoder!r}, {draft}, {target}"


def _rows(draft: Any, target: Any) -> Any:
    return functools.cache(lambda prefix: exact_row(draft.next(prefix), target.next(prefix)))


@checks.add(
    "otm.sequence.step_law",
    "3e-14 (γ + 1)",
    "docstring",
    "chains: Σ of products of exact acceptances; blocks: Σ E[w]",
)
def _chains(random: np.random.Generator) -> tuple[float, str]:
    size, draft, target = _toy(random)
    rows = _rows(draft, target)
    block = bool(random.random() < 0.5)
    decoder: Any = (
        sequence.BlockVerification(size.length)
        if block
        else sequence.SpeculativeSampling(size.length)
    )

    def chain(prefix: tuple[int, ...]) -> Decimal:
        """Expected tokens from here on: a draft is kept with min(p, q)."""
        if len(prefix) == size.length:
            return Decimal(1)
        row = rows(prefix)
        return 1 + sum(
            (
                min(p, q) * chain((*prefix, x))
                for x, (p, q) in enumerate(zip(row.p, row.q, strict=True))
                if min(p, q)
            ),
            Decimal(0),
        )

    def blocks(prefix: tuple[int, ...], weight: Decimal) -> Decimal:
        """Σ_i E[w_i], w_i = min(1, w_{i−1} q/p) along the drafted path."""
        if len(prefix) == size.length:
            return Decimal(0)
        row, found = rows(prefix), Decimal(0)
        for x, (p, q) in enumerate(zip(row.p, row.q, strict=True)):
            if p:
                after = min(Decimal(1), weight * q / p)
                found += p * (after + blocks((*prefix, x), after))
        return found

    with decimal.localcontext(context(DIGITS)):
        truth = 1 + blocks((), Decimal(1)) if block else chain(())
        law = sequence.step_law(decoder, draft=draft, target=target, context=[])
        error = abs(Decimal(_tokens(law)) - truth)
    return float(error) / (ROUNDING * (size.length + 1)), f"{decoder!r}, {draft}, {target}"


@checks.add(
    "otm.sequence.best_step",
    "0: rounded outward",
    "docstring",
    "one level: every token set, exactly; else every decoder of the drafts",
    direction="interval",
)
def _best(random: np.random.Generator) -> tuple[float, str]:
    size, draft, target = _toy(random)
    if random.random() < 0.5:
        k = int(random.integers(1, 4))
        decoder: Any = sequence.DraftSelection(k, 1, INDEPENDENT[random.integers(len(INDEPENDENT))])
        row = exact_row(draft.next(()), target.next(()), k=k)
        truth = row.exactly(lambda: 1 + oracles.optimum(row))
        found = sequence.best_step(decoder, draft=draft, target=target, context=[])
        inside = Decimal(float(found.lower)) <= truth <= Decimal(float(found.upper))
        return (
            0.0 if inside else math.inf,
            f"{decoder!r}, {draft}, {target}: {found!r} for {truth:.20g}",
        )
    chosen = [
        d
        for d in decoders(size, int(random.integers(1000)), random)
        if num_trees(d, size.num_tokens) <= MOST_TREES and not d.carries_noise
    ]
    decoder = chosen[random.integers(len(chosen))]
    found = sequence.best_step(decoder, draft=draft, target=target, context=[])
    reached = _tokens(sequence.step_law(decoder, draft=draft, target=target, context=[]))
    fine = found.lower <= found.upper and reached <= found.upper + (
        1e-10 if isinstance(decoder, sequence.Ersd) else 1e-12
    )
    return 0.0 if fine else math.inf, f"{decoder!r}, {draft}, {target}: {found!r}, {reached!r}"


@checks.add(
    "otm.sequence.sequence_law", "4 (L + 1) (V + 2) u", "docstring", "products of the rows, exactly"
)
def _law(random: np.random.Generator) -> tuple[float, str]:
    size, _, target = _toy(random)
    length = int(random.integers(1, size.length + 2))
    with decimal.localcontext(context(DIGITS)):
        error = apart(sequence.sequence_law(target, [], length), exact_law(target, length))
    return error / (4 * (length + 1) * (size.num_tokens + 2) * UNIT_ROUNDOFF), f"{target}"


@checks.add(
    "otm.sequence.generated_law",
    "1e-13; with races 1e-10",
    "docstring",
    "the target's law, exactly",
)
def _generated(random: np.random.Generator) -> tuple[float, str]:
    size = SIZES[random.integers(len(SIZES))]
    draft, target = random_models(size.num_tokens, size.length + 2, random)
    chosen = [
        d
        for d in decoders(size, int(random.integers(1000)), random)
        if num_trees(d, size.num_tokens) <= 8 and not d.carries_noise
    ]
    if not chosen:
        return 0.0, "too many trees"
    decoder = chosen[random.integers(len(chosen))]
    found = sequence.generated_law(decoder, draft=draft, target=target, context=[], length=2)
    with decimal.localcontext(context(DIGITS)):
        error = apart(found, exact_law(target, 2))
    return error / (
        1e-10 if isinstance(decoder, sequence.Ersd) else 1e-12
    ), f"{decoder!r}, {draft}, {target}"


@checks.add(
    "otm.sequence.jacobi_law",
    "1e-13",
    "docstring",
    "the target's law, exactly",
)
def _jacobi(random: np.random.Generator) -> tuple[float, str]:
    coupling = str(random.choice(["independent", "maximal", "inversion"]))
    scheme = sequence.Jacobi(int(random.integers(1, 3)), coupling)  # type: ignore[arg-type]
    _, model = random_models(2, 5, random)
    found = sequence.jacobi_law(scheme, model=model, context=[], length=2)
    with decimal.localcontext(context(DIGITS)):
        error = apart(found.distribution, exact_law(model, 2))
    return error / 1e-13, f"{scheme!r}, {model}"


@checks.add(
    "otm.sequence.completed_law",
    "3e-14",
    "docstring",
    "a step that decodes one token: the target's law, exactly",
)
def _completed(random: np.random.Generator) -> tuple[float, str]:
    size, _, target = _toy(random)
    length = int(random.integers(1, size.length + 2))
    law = sequence.StepLaw(
        tokens=np.arange(size.num_tokens)[:, None],
        accepted=np.zeros(size.num_tokens, dtype=np.int64),
        mass=target.next(()),
    )
    with decimal.localcontext(context(DIGITS)):
        error = apart(
            sequence.completed_law(law, target=target, context=[], length=length),
            exact_law(target, length),
        )
    return error / ROUNDING, f"{target}"


@checks.add(
    "otm.sequence.divergence_by_position",
    "1e-13 (1 + value)",
    'docs/theory.md, "Divergences"',
    "the chain rule in 60 digits",
)
def _positions(random: np.random.Generator) -> tuple[float, str]:
    shape = (int(random.integers(1, 4)),) * int(random.integers(1, 4))
    law, target = random.dirichlet(np.ones(math.prod(shape)), 2)
    if random.random() < 0.5:
        law = target * (1 + 1e-9 * random.standard_normal(len(target)))
        law /= law.sum()
    found = sequence.divergence_by_position(law.reshape(shape), target=target.reshape(shape))
    with decimal.localcontext(context(DIGITS)):
        q, pi = (np.array(exact(a), dtype=object).reshape(shape) for a in (target, law))
        whole_q, whole_pi = q.sum(), pi.sum()
        sums = [Decimal(0)]
        for count in range(1, len(shape) + 1):
            axes = tuple(range(count, len(shape)))
            parts = [
                np.asarray(a.sum(axis=axes) if axes else a).reshape(-1)
                for a in (q / whole_q, pi / whole_pi)
            ]
            sums.append(
                sum((a * oracles.log(a / b) for a, b in zip(*parts, strict=True) if a), Decimal(0))
            )
        truth = [b - a for a, b in itertools.pairwise(sums)]
    worst = max(
        abs(float(Decimal(float(f)) - t)) / (1 + abs(float(t)))
        for f, t in zip(found, truth, strict=True)
    )
    return worst / 1e-13, f"{law.tolist()}, {target.tolist()}: {found.tolist()}"


@checks.add(
    "otm.sequence.rank_decoders",
    "1e-12; with races 1e-10",
    "docstring",
    "the enumerated law of each step",
)
def _ranked(random: np.random.Generator) -> tuple[float, str]:
    size, draft, target = _toy(random)
    chosen = [
        d
        for d in decoders(size, int(random.integers(1000)), random)
        if num_trees(d, size.num_tokens) <= MOST_TREES and not d.carries_noise
    ]
    found = sequence.rank_decoders(chosen, draft=draft, target=target, context=[])
    worst = 0.0
    for one in found:
        law = sequence.step_law(one.decoder, draft=draft, target=target, context=[])
        bound = 1e-10 if isinstance(one.decoder, sequence.Ersd) else 1e-12
        worst = max(
            worst,
            abs(_tokens(law) - one.block_efficiency) / bound,
            (one.block_efficiency - one.best) / 1e-8,
        )
    return worst, f"{chosen}, {draft}, {target}"


@checks.add(
    "otm.sequence.markov_pair",
    "2 (V + 2) u in a row's sum",
    "docstring",
    "sums of the rows, exactly",
)
def _markov(random: np.random.Generator) -> tuple[float, str]:
    size, order = int(random.integers(1, 6)), int(random.integers(0, 3))
    pair = sequence.markov_pair(
        size,
        order=order,
        similarity=float(random.random()),
        concentration=float(10 ** random.uniform(-3, 2)),
        rng=random,
    )
    sums = [
        abs(float(sum(exact(row), Decimal(0)) - 1))
        for model in pair
        for row in model.table.reshape(-1, size)
    ]
    return max(sums) / (2 * (size + 2) * UNIT_ROUNDOFF), f"{size}, {order}"


@checks.add(
    "otm.sequence.generate",
    "0: no token that the target cannot produce",
    "docstring",
    "support of the target",
    direction="estimate",
)
def _generate(random: np.random.Generator) -> tuple[float, str]:
    size, draft, target = _toy(random)
    chosen = decoders(size, int(random.integers(1000)), random)
    decoder = chosen[random.integers(len(chosen))]
    count = 1  # the toys know no contexts beyond one step
    made = sequence.generate(
        decoder, draft=draft, target=target, context=[], num_tokens=count, rng=random
    )
    text = made.tokens[: size.length + 1]
    fine = len(made.tokens) >= count and all(
        target.next(text[:i])[text[i]] > 0 for i in range(len(text))
    )
    return 0.0 if fine else math.inf, f"{decoder!r}, {draft}, {target}: {made!r}"
