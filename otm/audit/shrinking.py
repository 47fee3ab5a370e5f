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
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from otm.audit.budget import OutOfTime
from otm.audit.integration import ExactAudit, IntegratedAudit, SequenceAudit
from otm.audit.standard_problems import (
    last_token,
    one_per_drafter,
    placed_model,
    problems_under,
)
from otm.audit.tracing.answers import CandidateFailure
from otm.drafts import Law
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import normalise
from otm.problem import Problem
from otm.sequence.models import TableModel

BUDGET = 300
"""Problems tried."""

_LARGEST_DENOMINATOR = {2: 8, 3: 6, 4: 4, 5: 3}
"""By number of tokens: beyond, a level holds more problems than the budget."""

_LARGEST_ROUNDING = 32


Integrated = TypeVar("Integrated", bound=IntegratedAudit)


def smallest_problem(
    integrated: Callable[[Problem], ExactAudit], law: Law, budget: int
) -> ExactAudit | None:
    """Return the audit of the smallest failing problem of up to `law.size` drafts: see `shrink`."""
    small = itertools.islice(small_problems(law), budget)
    smallest = _first_failing(integrated, small)
    if smallest is not None:
        return smallest
    for k in range(1, int(law.size) + 1):
        problems = [problem for _, problem in problems_under(law.of_size(k))]
        problems.sort(key=lambda problem: problem.num_tokens)
        failing = _first_failing(integrated, problems)
        if failing is not None:
            return _reduce(integrated, failing)
    return None


def smallest_models(
    integrated: Callable[[int, TableModel, TableModel], SequenceAudit],
    lengths: Sequence[int],
    budget: int,
) -> SequenceAudit | None:
    """Return the audit of the smallest (γ, draft, target) that fails: see `shrink_sequence`."""
    small = itertools.islice(_small_models(sorted(lengths)), budget)
    return _first_failing(lambda models: integrated(*models), small)


Instance = TypeVar("Instance")


def _first_failing(
    audit: Callable[[Instance], Integrated], instances: Iterable[Instance]
) -> Integrated | None:
    """Return the first "not lossless" audit, else the first "not exact" one; None on a failure."""
    nearly = None
    for instance in instances:
        try:
            found = audit(instance)
        except CandidateFailure:
            continue
        except OutOfTime:
            break
        if found.verdict == "not lossless":
            return found
        if found.verdict == "not exact" and nearly is None:
            nearly = found
    return nearly


def _reduce(integrated: Callable[[Problem], ExactAudit], audit: ExactAudit) -> ExactAudit:
    """Drop tokens, then round to the smallest denominator, while the audit keeps failing."""
    dropped: ExactAudit | None = audit
    while dropped is not None:
        audit = dropped
        dropped = _first_failing(integrated, _without_a_token(audit.problem))
    problem = audit.problem
    rounded = (
        dataclasses.replace(
            problem, draft=_rounded(problem.draft, d), target=_rounded(problem.target, d)
        )
        for d in range(1, _LARGEST_ROUNDING + 1)
    )
    return _first_failing(integrated, rounded) or audit


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
    """Yield problems with at most `law.size` drafts, smallest first."""
    sizes = [
        (k, num_tokens, denominator)
        for k in range(1, int(law.size) + 1)
        for num_tokens, largest in _LARGEST_DENOMINATOR.items()
        for denominator in range(1, largest + 1)
    ]
    for k, num_tokens, denominator in sorted(
        sizes, key=lambda size: (sum(size), size[0] + size[1], size)
    ):
        for draft, target in pairs_with_denominator(num_tokens, denominator):
            try:
                yield Problem(
                    draft=one_per_drafter(draft, law.of_size(k)), target=target, law=law.of_size(k)
                )
            except InvalidParameter:  # more drafts than tokens
                break


def pairs_with_denominator(
    num_tokens: int, denominator: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield pairs of rational distributions, the first descending, whose larger common denominator
    is `denominator`.
    """
    laws = _laws_up_to(num_tokens, denominator)
    for (of_p, p), (of_q, q) in itertools.product(laws, laws):
        if max(of_p, of_q) == denominator and (np.diff(p) <= 0).all():
            yield p, q


def _laws_up_to(num_tokens: int, largest: int) -> list[tuple[int, NDArray[Any]]]:
    """Return pairs of a rational distribution and a common denominator, up to a largest one."""
    denominators = range(1, largest + 1)
    return [(d, law) for d in denominators for law in rational_laws(num_tokens, d)]


def rational_laws(num_tokens: int, denominator: int) -> Iterator[NDArray[Any]]:
    """Yield the distributions with this least common denominator."""
    for bars in itertools.combinations(range(denominator + num_tokens - 1), num_tokens - 1):
        ends = [-1, *bars, denominator + num_tokens - 1]
        parts = [b - a - 1 for a, b in itertools.pairwise(ends)]
        if math.gcd(denominator, *parts) == 1:
            yield np.array(parts) / denominator


def _small_models(lengths: Sequence[int]) -> Iterator[tuple[int, TableModel, TableModel]]:
    """Yield (γ, draft, target), smallest first."""
    # Laws that ignore the text come first: most faults show on them, and they read best.
    for gamma, num_tokens in itertools.product(lengths, (2, 3)):
        laws = _laws_up_to(num_tokens, 4 if num_tokens == 2 else 3)
        pairs = sorted(
            itertools.product(laws, laws), key=lambda pair: sorted((pair[0][0], pair[1][0]))[::-1]
        )
        for (_, p), (_, q) in pairs:
            yield gamma, placed_model([p], len, gamma), placed_model([q], len, gamma)
        if num_tokens == 2:
            few = [law for _, law in _laws_up_to(2, 2)]
            for p0, p1, q0, q1 in itertools.product(few, repeat=4):
                # one law at the first position and one at all others, or by the token before
                for place in (lambda context: min(len(context), 1), last_token):
                    draft = placed_model([p0, p1], place, gamma)
                    yield gamma, draft, placed_model([q0, q1], place, gamma)
