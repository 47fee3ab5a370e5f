"""Minimal counterexamples: the smallest problem on which a verifier is lossy, searched from below.

Problems are tried in order of size: drafts, tokens and common denominator of the probabilities
together, then fewest drafts and tokens. The first on which the exact audit says "not lossless" is
minimal in that order, which no reduction of a large failing instance could promise. Drafts are in
descending order of probability, since renaming tokens makes no other problem. Where the budget ends
before one is found, a failing standard instance is reduced instead: tokens are dropped and
probabilities rounded to small denominators while it keeps failing. Problems on which the callable
raises are passed over: it may have been written for other shapes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.exact_audit import ExactAudit, exact
from otm.audit.instances import one_per_drafter, standard_problems, table_model
from otm.audit.integration import Integrated
from otm.audit.limits import OutOfTime
from otm.audit.sequence_audit import SequenceAudit, sequence
from otm.drafts import IID, Law
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import check_count, check_counts, check_instance, normalise
from otm.problem import Problem
from otm.sequence.models import TableModel
from otm.tracing.answers import CandidateFailure

BUDGET = 300
"""Problems tried."""

_LARGEST_DENOMINATOR = {2: 8, 3: 6, 4: 4, 5: 3}
"""By number of tokens: beyond, a level holds more problems than the budget."""

_LARGEST_ROUNDING = 32


def shrink(
    candidate: object,
    *,
    law: Law | None = None,
    tolerance: float | None = None,
    budget: int = BUDGET,
) -> ExactAudit | None:
    """Return the audit of the smallest problem on which a verifier is not lossless, or None if none
    is found.

    Args:
        candidate: as for `exact`.
        law: the kind of drafts; up to `law.k` of them are tried. `otm.IID(1)` unless given.
        tolerance: as for `exact`.
        budget: how many problems are tried at most.

    Returns:
        ExactAudit on the first failing problem in order of k + V + denominator, then k + V; or on a
        reduced standard instance; or None.

    Raises:
        InvalidParameter: if the candidate is no callable, or budget < 1.

    Cost: at most `budget` exact audits with V ≤ 5, and some dozens for a reduction.

    >>> found = shrink(lambda p, q, drafts, uniforms: int(drafts[0]))  # trusts the draft
    >>> found.problem.draft, found.problem.target, found.total_variation
    (array([1., 0.]), array([0., 1.]), 1.0)
    """
    kind = IID(1) if law is None else check_instance(law, Law, name="law")
    left = check_count(budget, name="budget")
    smallest = _first_failing(
        _exact_audits(candidate, itertools.islice(small_problems(kind), left), tolerance)
    )
    if smallest is not None:
        return smallest
    for k in range(1, kind.k + 1):
        problems = sorted(
            (problem for _, problem in standard_problems(kind.with_k(k))),
            key=lambda problem: problem.num_tokens,
        )
        failing = _first_failing(_exact_audits(candidate, problems, tolerance))
        if failing is not None:
            return _reduce(candidate, failing, tolerance)
    return None


def _exact_audits(
    candidate: object, problems: Iterable[Problem], tolerance: float | None
) -> Iterator[Callable[[], ExactAudit]]:
    return (
        functools.partial(exact, candidate, problem, tolerance=tolerance) for problem in problems
    )


def _first_failing(audits: Iterable[Callable[[], Integrated]]) -> Integrated | None:
    """Carry out audits one by one, and return the first that says "not lossless"; those on which
    the callable fails say nothing.
    """
    for carry_out in audits:
        try:
            audit = carry_out()
        except CandidateFailure:
            continue
        except OutOfTime:
            return None
        if audit.verdict == "not lossless":
            return audit
    return None


def _reduce(candidate: object, audit: ExactAudit, tolerance: float | None) -> ExactAudit:
    """Drop tokens, then round to the smallest denominator, while the audit keeps failing."""
    dropped: ExactAudit | None = audit
    while dropped is not None:
        audit = dropped
        dropped = _first_failing(
            _exact_audits(candidate, _without_a_token(audit.problem), tolerance)
        )
    problem = audit.problem
    rounded = (
        dataclasses.replace(
            problem, draft=_rounded(problem.draft, d), target=_rounded(problem.target, d)
        )
        for d in range(1, _LARGEST_ROUNDING + 1)
    )
    return _first_failing(_exact_audits(candidate, rounded, tolerance)) or audit


def _without_a_token(problem: Problem) -> Iterator[Problem]:
    for token in range(problem.num_tokens):
        draft, target = (
            np.delete(mass, token, axis=-1) for mass in (problem.draft, problem.target)
        )
        try:
            yield Problem(draft=normalise(draft), target=normalise(target), law=problem.law)
        except InvalidParameter:  # more drafts than tokens
            return
        except InvalidDistribution:  # no mass left
            continue


def _rounded(mass: NDArray[Any], denominator: int) -> NDArray[Any]:
    """Round to multiples of 1/denominator, by largest remainders."""
    if mass.ndim > 1:
        return np.stack([_rounded(row, denominator) for row in mass])
    parts = np.floor(mass * denominator + 1e-9)
    missing = round(denominator - parts.sum())
    parts[np.argsort(parts - mass * denominator, kind="stable")[:missing]] += 1
    return parts / denominator


def small_problems(law: Law) -> Iterator[Problem]:
    """Yield problems with at most `law.k` drafts, smallest first."""
    sizes = [
        (k, num_tokens, denominator)
        for k in range(1, law.k + 1)
        for num_tokens, largest in _LARGEST_DENOMINATOR.items()
        for denominator in range(1, largest + 1)
    ]
    for k, num_tokens, denominator in sorted(
        sizes, key=lambda size: (sum(size), size[0] + size[1], size)
    ):
        for draft, target in pairs_with_denominator(num_tokens, denominator):
            try:
                yield Problem(
                    draft=one_per_drafter(draft, law.with_k(k)), target=target, law=law.with_k(k)
                )
            except InvalidParameter:  # more drafts than tokens
                break


def pairs_with_denominator(
    num_tokens: int, denominator: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield pairs of rational distributions, the first descending, whose larger common denominator
    is `denominator`.
    """
    laws = [law for d in range(1, denominator + 1) for law in rational_laws(num_tokens, d)]
    descending = [(law, of_law) for law, of_law in laws if (np.diff(law) <= 0).all()]
    for (p, of_p), (q, of_q) in itertools.product(descending, laws):
        if max(of_p, of_q) == denominator:
            yield p, q


def rational_laws(num_tokens: int, denominator: int) -> list[tuple[NDArray[Any], int]]:
    """Return the distributions with this least common denominator, with it."""
    found = []
    for bars in itertools.combinations(range(denominator + num_tokens - 1), num_tokens - 1):
        ends = [-1, *bars, denominator + num_tokens - 1]
        parts = [Fraction(b - a - 1, denominator) for a, b in itertools.pairwise(ends)]
        if math.lcm(*(part.denominator for part in parts)) == denominator:
            found.append((np.array([float(part) for part in parts]), denominator))
    return found


def shrink_sequence(
    candidate: object,
    *,
    num_drafts: Sequence[int] = (1, 2),
    tolerance: float | None = None,
    budget: int = BUDGET,
) -> SequenceAudit | None:
    """Return the audit of the smallest toy models on which a block verifier is not lossless, or
    None if none is found.

    Tried in order: fewest drafts, then fewest tokens; the same laws at every position, then laws
    that depend on the position or on the token before; then the denominators of the probabilities.

    Args:
        candidate, tolerance: as for `sequence`.
        num_drafts: the block lengths γ to try.
        budget: how many pairs of models are tried at most.

    Returns:
        SequenceAudit or None.

    Raises:
        InvalidParameter: if the candidate is no callable, a length is below 1, or budget < 1.

    Cost: at most `budget` audits on two or three tokens.

    >>> found = shrink_sequence(lambda p, q, drafts, uniforms: [drafts[0]], num_drafts=[1])
    >>> found.num_drafts, found.total_variation
    (1, 1.0)
    """
    lengths = sorted(check_counts(num_drafts, name="num_drafts"))
    models = itertools.islice(_small_models(lengths), check_count(budget, name="budget"))
    return _first_failing(
        functools.partial(
            sequence, candidate, draft=p, target=q, num_drafts=gamma, tolerance=tolerance
        )
        for gamma, p, q in models
    )


def _small_models(lengths: Sequence[int]) -> Iterator[tuple[int, TableModel, TableModel]]:
    """Yield (γ, draft, target), smallest first."""
    for gamma, num_tokens in itertools.product(lengths, (2, 3)):
        laws = [
            law
            for d in range(1, 5 if num_tokens == 2 else 4)
            for law, _ in rational_laws(num_tokens, d)
        ]
        for p, q in sorted(itertools.product(laws, laws), key=_denominators):
            yield gamma, _by_position(p, p, gamma), _by_position(q, q, gamma)
        few = [law for d in range(1, 3) for law, _ in rational_laws(num_tokens, d)]
        if num_tokens == 2:
            for p0, p1, q0, q1 in itertools.product(few, repeat=4):
                yield gamma, _by_position(p0, p1, gamma), _by_position(q0, q1, gamma)
                yield gamma, _by_token(p0, p1, gamma), _by_token(q0, q1, gamma)


def _denominators(pair: tuple[NDArray[Any], NDArray[Any]]) -> tuple[float, ...]:
    """Order pairs by their smallest positive probability: the reciprocal of the denominator, near
    enough.
    """
    return tuple(sorted(-float(law[law > 0].min()) for law in pair))[::-1]


def _by_position(first: NDArray[Any], later: NDArray[Any], gamma: int) -> TableModel:
    return table_model(lambda context: later if context else first, len(first), gamma)


def _by_token(after_zero: NDArray[Any], after_one: NDArray[Any], gamma: int) -> TableModel:
    return table_model(
        lambda context: after_one if context and context[-1] else after_zero, 2, gamma
    )
