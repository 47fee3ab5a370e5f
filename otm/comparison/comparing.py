"""Comparisons of schemes: the choice of pairs, and a row of numbers for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from otm import bounds
from otm._machine.progress import report_detail
from otm.comparison.result import CONFIDENCE, Comparison, ComparisonRow, distinct
from otm.drafts import IID, SINGLE_DRAFTER_LAWS, Law, WithoutReplacement
from otm.errors import InvalidParameter, TooLarge
from otm.lossy.output import distortion
from otm.pmf import RNGLike, check_count, check_counts, check_instance, check_rng
from otm.problem import Problem, keyword_only
from otm.verbs import acceptance, optimal_acceptance
from otm.verbs.montecarlo import estimate
from otm.verifiers import VERIFIERS, Race, Tournament, Verifier, WithoutReplacementOptimal
from otm.verifiers.base import require_support

_Found = TypeVar("_Found")

DEFAULT_SAMPLES = 20_000
_MOST_SEQUENCES_BY_DEFAULT, _MOST_TOKENS_BY_DEFAULT = 4_096, 1 << 12
_MOST_ENUMERATED_BY_DEFAULT, _MOST_TOKENS_SEARCHED_BY_DEFAULT = 4_000_000, 300
"""Draft sequences times tokens that a tournament enumerates in about a second, and tokens with
which races and optima of drafts without replacement are searched in one.
"""

_SEED = 1
"""Seed of the default generator: the same call gives the same table."""


@keyword_only("otm.compare(draft=p, target=q)")
def compare(
    *,
    draft: object,
    target: object,
    verifiers: Sequence[Verifier] | None = None,
    laws: Sequence[type[Law]] | None = None,
    k: int | Iterable[int] = (1, 2, 4, 8),
    samples: int | None = None,
    rng: RNGLike | None = None,
    full: bool = False,
) -> Comparison:
    """Compare coupling schemes on one pair of distributions.

    Args:
        draft, target: probabilities `(V,)`.
        verifiers: which ones; None takes every verifier with default parameters, leaves out those
            to which token numbers are places on a line, unsupported pairs, and by size what would
            take more than about a second: a linear program, whose value is the optimum, an
            enumeration, a search of sets drawn without replacement, and beyond 4,096 tokens all
            that need more than a sort. What is left out is named, with the argument that takes it.
        laws: draft law classes; None takes every law that draws from one distribution,
            `otm.drafts.SINGLE_DRAFTER_LAWS`.
        k: numbers of drafts; c of a threshold race, its mean number of draws.
        samples: Monte Carlo draws per row; 0 for none. None takes 20,000 where no exact value was
            computed, or in every row if `full`.
        rng: a NumPy generator, or a seed; None takes a fixed one, so that the same call gives the
            same table.
        full: whether it prints every figure of every row: bounds, distances and Monte Carlo
            intervals too.

    Returns:
        Comparison: one row per supported (law, verifier, k), and none twice: one draft drawn
        without replacement is an i.i.d. one. `print` it, `plot` it, or take `rows`, `records()`,
        `to_pandas()`, `to_latex()`. Lossy verifiers stand apart, with TV and KL to the target and
        the frontier at their own TV, min(1, optimum + TV); a verifier that promises nothing stands
        where the output law that is found puts it.

    Raises:
        Unsupported: if both `verifiers` and `laws` are named and a pair does not fit for any k.
        InvalidParameter, InvalidDistribution, ShapeMismatch: on bad input.

    Cost: per row, one exact acceptance (see each verifier) and `samples` draws; races draw V
        exponentials each.

    >>> import otm
    >>> p, q = [0.75, 0.25], [0.5, 0.5]
    >>> table = compare(draft=p, target=q, verifiers=[otm.KSeq()], k=[2], samples=0)
    >>> table.rows[0].gap.__round__(6)
    0.089903
    """
    counts = distinct(check_counts(k, name="k"))
    if samples is not None and (not isinstance(samples, int) or samples != 0):
        check_count(samples, name="samples")
    check_instance(full, bool, name="full")
    draws = DEFAULT_SAMPLES if samples is None else int(samples)
    beside_exact = draws if full or samples is not None else 0
    generator = np.random.default_rng(_SEED) if rng is None else check_rng(rng)
    chosen_verifiers = (
        [make() for make in VERIFIERS] if verifiers is None else check_verifiers(verifiers)
    )
    chosen_verifiers = distinct(chosen_verifiers)
    chosen_laws = distinct(list(SINGLE_DRAFTER_LAWS) if laws is None else _classes(laws))
    if not chosen_verifiers or not chosen_laws:
        raise InvalidParameter(
            "compare needs at least one verifier and one law; one list is empty. Leave it out for "
            "all."
        )
    if verifiers is not None:
        _require_some_pair(chosen_verifiers, chosen_laws, counts, strict=laws is not None)
    problem = Problem(draft=draft, target=target, law=chosen_laws[0].of_size(counts[0])).single(
        purpose="otm.compare"
    )
    rows, skipped = [], set()
    if verifiers is None and (placed := [one for one in chosen_verifiers if not one.equivariant]):
        chosen_verifiers = [one for one in chosen_verifiers if one.equivariant]
        skipped.add(
            "left out, since token numbers need not be places: "
            f"{', '.join(map(str, placed))}; verifiers= takes them"
        )
    alike = dict[str, None]()
    slow: dict[type[Law], dict[str, None]] = {}  # names, in the order of the verifiers
    large = verifiers is None and problem.num_tokens > _MOST_TOKENS_BY_DEFAULT
    for count in counts:
        for make in chosen_laws:
            try:
                here = problem.with_law(make.of_size(count))
            except InvalidParameter as error:  # more distinct drafts than tokens
                if laws is not None:
                    raise
                skipped.add(f"left out: {make.of_size(count)}: {error}")
                continue
            taken = [one for one in chosen_verifiers if not large or _is_a_column(one, make)]
            slow.setdefault(make, {}).update(
                (str(one), None)
                for one in chosen_verifiers
                if one not in taken and one.supports(here.law)
            )
            if not taken:
                continue
            best = _unless_too_large(optimal_acceptance, here)
            seen = IID in chosen_laws and make is not IID and _is_one_draw(here)
            enumerable = here.law.num_sequences(problem.num_tokens) <= _MOST_SEQUENCES_BY_DEFAULT
            for verifier in taken:
                if verifiers is None and verifier.is_plan and not enumerable:
                    skipped.add(
                        f"left out beyond {_MOST_SEQUENCES_BY_DEFAULT:,} draft sequences: "
                        f"{verifier}; its value is the "
                        f"optimum column, and {verifier!r} in verifiers= runs its program"
                    )
                elif verifiers is None and _takes_seconds(verifier, here):
                    slow.setdefault(make, {})[str(verifier)] = None
                elif verifier.supports(here.law):
                    if seen and (verifiers is None or verifier.supports(IID(1))):
                        alike[make.title] = None
                        continue
                    report_detail(f"{verifier}, {here.law}")
                    row = _row(
                        verifier, here, best, generator, samples=beside_exact, without_exact=draws
                    )
                    rows.append(row)
                elif verifiers is None:
                    skipped.add(
                        "left out: pairs of verifier and draft law that do not fit each other "
                        "(`laws` of a verifier names those that do)"
                    )
                elif laws is not None:
                    skipped.add(
                        f"left out: {verifier} for drafts {here.law}, which it does not verify"
                    )
    if alike:
        skipped.add(f"left out at one draft, which is i.i.d. there: {', '.join(alike)}")
    skipped |= {
        f"left out at {problem.num_tokens:,} tokens, where they may take seconds or minutes; "
        f"verifiers= takes them: for drafts {make.__name__} {', '.join(names)}"
        for make, names in slow.items()
        if names
    }
    return Comparison(
        rows=tuple(rows), left_out=tuple(sorted(skipped)), full=full, folded=verifiers is None
    )


def _takes_seconds(verifier: Verifier, problem: Problem) -> bool:
    """True if the exact acceptance of a pair that fits takes more than about a second."""
    if not verifier.supports(problem.law):
        return False
    if isinstance(verifier, Tournament):
        size = problem.law.num_sequences(problem.num_tokens) * problem.num_tokens
        return size > _MOST_ENUMERATED_BY_DEFAULT
    searched = isinstance(verifier, Race | WithoutReplacementOptimal)
    return (
        searched
        and isinstance(problem.law, WithoutReplacement)
        and problem.law.k > 1
        and problem.num_tokens > _MOST_TOKENS_SEARCHED_BY_DEFAULT
    )


def _is_a_column(verifier: Verifier, law: type[Law]) -> bool:
    """True if `otm.acceptance_table` has the acceptance of a pair by membership, from one sort."""
    name = re.sub("(?<=[a-z])(?=[A-Z])", "_", law.__name__).lower()
    return any(
        column.endswith(f"_{name}") and "_rule_" not in column for column in verifier.table_columns
    )


def _row(
    verifier: Verifier,
    problem: Problem,
    best: float | None,
    rng: np.random.Generator,
    *,
    samples: int,
    without_exact: int,
) -> ComparisonRow:
    """Compute a row; a number that would take too large a problem is None, with a note."""
    note, exact = "", None
    try:
        exact = float(acceptance(verifier, problem))
    except TooLarge as error:
        note = str(error).split(";")[0]
        # The plan of a program that cannot be solved cannot be sampled either; others can.
        samples = 0 if verifier.is_plan else without_exact
    interval = None
    if samples:
        interval = estimate(verifier, problem, samples=samples, confidence=CONFIDENCE, rng=rng)
    return ComparisonRow(
        law=problem.law,
        verifier=verifier,
        exact=exact,
        lower=_proven_lower(verifier, problem),
        optimum=best,
        monte_carlo=interval,
        note=note,
        distortion=None if verifier.lossless else _unless_too_large(distortion, verifier, problem),
    )


def _proven_lower(verifier: Verifier, problem: Problem) -> float | None:
    """Return the proven bound of a scheme with default parameters, if there is one."""
    if not verifier.proven_lower or verifier != type(verifier)():
        return None
    return float(getattr(bounds, verifier.proven_lower)(problem))


def _unless_too_large(function: Callable[..., _Found], *given: object) -> _Found | None:
    try:
        return function(*given)
    except TooLarge:
        return None


def _is_one_draw(problem: Problem) -> bool:
    """True if the law is one draw from the draft."""
    return problem.law.size == 1 and np.allclose(
        problem.law.inclusion(problem.draft), problem.draft, rtol=0.0, atol=1e-15
    )


def check_verifiers(verifiers: object) -> list[Verifier]:
    """Return a list of verifiers, or raise `InvalidParameter` for a class or a bare verifier."""
    if isinstance(verifiers, Sequence) and all(
        isinstance(verifier, Verifier) for verifier in verifiers
    ):
        return list(verifiers)
    raise InvalidParameter(
        f"verifiers must be a list of verifiers such as [otm.KSeq()]; got {verifiers!r}. Pass "
        "instances."
    )


def _classes(laws: object) -> list[type[Law]]:
    """Return a list of draft law classes, or raise `InvalidParameter` for anything else."""
    if isinstance(laws, Sequence) and all(
        isinstance(law, type) and issubclass(law, Law) for law in laws
    ):
        return list(laws)
    raise InvalidParameter(
        "laws must be a list of draft law classes such as [otm.IID], with the number of drafts in "
        f"k=; got {laws!r}. Pass these."
    )


def _require_some_pair(
    verifiers: Sequence[Verifier], laws: Sequence[type[Law]], counts: Sequence[int], *, strict: bool
) -> None:
    """Raise unless each verifier fits some law and k; if `strict`, every law."""
    for verifier in verifiers:
        fits = [any(verifier.supports(make.of_size(count)) for count in counts) for make in laws]
        if not (all(fits) if strict else any(fits)):
            require_support(verifier, laws[fits.index(False)].of_size(counts[0]))
