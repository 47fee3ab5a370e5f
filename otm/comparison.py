"""One table of schemes: exact acceptance, proven bound, Monte Carlo interval and distance to the optimum, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from otm._arrays import Array
from otm.bounds.kseq import kseq_lower
from otm.bounds.list_matching import list_matching_lower
from otm.bounds.poisson_matching import poisson_representation_lower
from otm.drafts import SINGLE_DRAFTER_LAWS, Law
from otm.errors import InvalidParameter, TooLarge
from otm.lossy.induced import Distortion, distortion
from otm.montecarlo import estimate
from otm.pmf import check_count, check_rng
from otm.problem import Problem
from otm.results import Estimate
from otm.verbs import acceptance, check_ks, optimal_acceptance
from otm.verifiers import PLANS, VERIFIERS, KSeq, ListRace, Race, Verifier
from otm.verifiers.base import require_support

__all__ = ["Comparison", "ComparisonRow", "compare"]

DEFAULT_SAMPLES = 20_000
_MOST_SEQUENCES_BY_DEFAULT = 4_096

PROVEN_LOWER: Mapping[Verifier, Callable[[Problem], Array]] = {
    KSeq(): kseq_lower,
    Race(): poisson_representation_lower,
    ListRace(): list_matching_lower,
}
"""Lower bounds that are proven for one verifier, with these parameters, under every law that it supports."""

_HEADER = ("k", "drafts", "verifier", "acceptance", "optimum", "gap", "proven ≥", "TV", "KL (nats)", "Monte Carlo (95 %)")
_TEXT_COLUMNS = ("drafts", "verifier", "Monte Carlo (95 %)")
_LOSSY_NOTE = "TV, KL: distance of a lossy scheme's output to the target; its gap is to min(1, optimum + TV)."


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One scheme at one number of drafts.

    Attributes:
        law, verifier: the scheme.
        exact: acceptance by membership, None where it cannot be computed (see `note`).
        lower: proven lower bound on this scheme's acceptance, None where there is none.
        optimum: the law's optimal acceptance, None where it cannot be computed.
        monte_carlo: estimate from the sampler, None if no samples were asked for.
        note: why a cell is empty.
        distortion: distances of the output law to the target for a lossy verifier, None for a lossless one.
    """

    law: Law
    verifier: Verifier
    exact: float | None
    lower: float | None
    optimum: float | None
    monte_carlo: Estimate | None
    note: str = ""
    distortion: Distortion | None = None

    @property
    def frontier(self) -> float | None:
        """The most that any scheme with this one's total variation to the target accepts: min(1, optimum + TV)."""
        if self.optimum is None or self.distortion is None:
            return self.optimum
        return min(1.0, self.optimum + self.distortion.total_variation)

    @property
    def gap(self) -> float | None:
        """Frontier − exact: the acceptance that this scheme leaves on the table; for a lossless one the frontier is the optimum."""
        if self.frontier is None or self.exact is None:
            return None
        return max(0.0, self.frontier - self.exact)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rows, and what was left out and why; prints as a table, schemes by their display names."""

    rows: tuple[ComparisonRow, ...]
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        lossy = any(row.distortion is not None for row in self.rows)
        cells = [_HEADER, *(_cells(row) for row in self.rows)]
        if not lossy:  # nothing to say in the two columns of the distances
            cells = [row[:7] + row[9:] for row in cells]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join(_pad(cell, width, name) for cell, width, name in zip(row, widths, cells[0], strict=True)).rstrip()
            for row in cells
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        previous = None
        spaced = lines[:2]
        for row, line in zip(self.rows, lines[2:], strict=True):
            if previous is not None and row.law.k != previous:
                spaced.append("")
            spaced.append(line)
            previous = row.law.k
        notes = [_LOSSY_NOTE] if lossy else []
        notes += _merged_notes(self.rows)
        return "\n".join([*spaced, *([""] if notes or self.left_out else []), *notes, *self.left_out])

    def records(self) -> list[dict[str, object]]:
        """Return the rows as plain dictionaries, for a data frame or JSON; law and verifier are their identities (`repr`)."""
        return [
            {
                "law": repr(row.law),
                "verifier": repr(row.verifier),
                "k": row.law.k,
                "exact": row.exact,
                "lower": row.lower,
                "optimum": row.optimum,
                "frontier": row.frontier,
                "gap": row.gap,
                "total_variation": None if row.distortion is None else row.distortion.total_variation,
                "kl": None if row.distortion is None else row.distortion.kl,
                "monte_carlo": None if row.monte_carlo is None else row.monte_carlo.mean,
                "monte_carlo_low": None if row.monte_carlo is None else row.monte_carlo.low,
                "monte_carlo_high": None if row.monte_carlo is None else row.monte_carlo.high,
                "note": row.note,
            }
            for row in self.rows
        ]


def compare(
    *,
    draft: object,
    target: object,
    verifiers: Sequence[Verifier] | None = None,
    laws: Sequence[type[Law]] | None = None,
    k: Iterable[int] = (1, 2, 4, 8),
    samples: int = DEFAULT_SAMPLES,
    rng: np.random.Generator | None = None,
) -> Comparison:
    """Compare coupling schemes on one pair of distributions.

    Args:
        draft, target: probabilities `(V,)`.
        verifiers: which ones; None takes every verifier with default parameters, leaves out unsupported pairs, and beyond 4,096
            draft sequences also those that solve a linear program, whose value is the optimum.
        laws: draft law classes; None takes every law that draws from one distribution, `otm.drafts.SINGLE_DRAFTER_LAWS`.
        k: numbers of drafts.
        samples: Monte Carlo draws per row; 0 leaves that column out.
        rng: the source of randomness; None takes a fresh, unseeded generator.

    Returns:
        Comparison: one row per supported (law, verifier, k); `print` it, or take `rows` or `records()`. Rows of lossy verifiers
        show TV and KL to the target, and their gap is to the frontier at their own TV, min(1, optimum + TV).

    Raises:
        Unsupported: if both `verifiers` and `laws` are named and a pair does not fit for any k.
        InvalidParameter, InvalidDistribution, ShapeMismatch: on bad input.

    Cost: per row, one exact acceptance (see each verifier) and `samples` draws; races draw V exponentials each.

    >>> table = compare(draft=[0.75, 0.25], target=[0.5, 0.5], verifiers=[otm.KSeq()], k=[2], samples=0)
    >>> table.rows[0].gap.__round__(6)
    0.089903
    """
    counts = check_ks(k)
    if not isinstance(samples, int) or samples != 0:
        check_count(samples, name="samples")
    generator = np.random.default_rng() if rng is None else check_rng(rng)
    chosen_verifiers = [make() for make in VERIFIERS] if verifiers is None else _instances(verifiers)
    chosen_laws = list(SINGLE_DRAFTER_LAWS) if laws is None else _classes(laws)
    if not chosen_verifiers or not chosen_laws:
        raise InvalidParameter("compare needs at least one verifier and one law; one list is empty. Leave it out for all.")
    if verifiers is not None:
        _require_some_pair(chosen_verifiers, chosen_laws, counts, strict=laws is not None)
    problem = Problem(draft=draft, target=target, law=chosen_laws[0](counts[0])).single(purpose="otm.compare")
    rows, skipped = [], set()
    for count in counts:
        for make in chosen_laws:
            try:
                here = problem.with_law(make(count))
            except InvalidParameter as error:  # more distinct drafts than tokens
                if laws is not None:
                    raise
                skipped.add(f"left out: {make(count)}: {error}")
                continue
            best = _optimum_or_none(here)
            enumerable = here.law.num_sequences(problem.num_tokens) <= _MOST_SEQUENCES_BY_DEFAULT
            for verifier in chosen_verifiers:
                if verifiers is None and isinstance(verifier, PLANS) and not enumerable:
                    skipped.add(
                        f"left out beyond {_MOST_SEQUENCES_BY_DEFAULT:,} draft sequences: {verifier}; its value is the "
                        f"optimum column, and {verifier!r} in verifiers= runs its program"
                    )
                elif verifier.supports(here.law):
                    rows.append(_row(verifier, here, best, samples, generator))
                elif verifiers is None:
                    skipped.add(
                        "left out: pairs of verifier and draft law that do not fit each other (README, table of schemes)"
                    )
                elif laws is not None:
                    skipped.add(f"left out: {verifier} for drafts {here.law}, which it does not verify")
    return Comparison(rows=tuple(rows), left_out=tuple(sorted(skipped)))


def _instances(verifiers: object) -> list[Verifier]:
    """Return the verifiers that the caller names, or raise `InvalidParameter` for a class or a bare verifier."""
    if isinstance(verifiers, Sequence) and all(isinstance(verifier, Verifier) for verifier in verifiers):
        return list(verifiers)
    raise InvalidParameter(f"verifiers must be a list of verifiers such as [otm.KSeq()]; got {verifiers!r}. Pass instances.")


def _classes(laws: object) -> list[type[Law]]:
    """Return the draft laws that the caller names, or raise `InvalidParameter` for an instance or a bare class."""
    if isinstance(laws, Sequence) and all(isinstance(law, type) and issubclass(law, Law) for law in laws):
        return list(laws)
    raise InvalidParameter(
        f"laws must be a list of draft law classes such as [otm.IID], with the number of drafts in k=; got {laws!r}. Pass these."
    )


def _row(verifier: Verifier, problem: Problem, best: float | None, samples: int, rng: np.random.Generator) -> ComparisonRow:
    note, exact, interval = "", None, None
    try:
        exact = float(acceptance(verifier, problem))
        if samples:
            interval = estimate(verifier, problem, samples=samples, rng=rng)
    except TooLarge as error:
        note = str(error).split(";")[0]
        # The plan of a program that cannot be solved cannot be sampled either; other samplers can.
        if samples and not isinstance(verifier, PLANS):
            interval = estimate(verifier, problem, samples=samples, rng=rng)
    return ComparisonRow(
        law=problem.law,
        verifier=verifier,
        exact=exact,
        lower=_proven_lower(verifier, problem),
        optimum=best,
        monte_carlo=interval,
        note=note,
        distortion=None if verifier.lossless else _distortion_or_none(verifier, problem),
    )


def _distortion_or_none(verifier: Verifier, problem: Problem) -> Distortion | None:
    try:
        return distortion(verifier, problem)
    except TooLarge:
        return None


def _proven_lower(verifier: Verifier, problem: Problem) -> float | None:
    """Return the bound of the literature that is proven for this scheme, None where there is none."""
    # Not a lookup: a verifier from outside need not be hashable.
    return next((float(bound(problem)) for proven, bound in PROVEN_LOWER.items() if proven == verifier), None)


def _optimum_or_none(problem: Problem) -> float | None:
    try:
        return float(optimal_acceptance(problem))
    except TooLarge:
        return None


def _require_some_pair(
    verifiers: Sequence[Verifier], laws: Sequence[type[Law]], counts: Sequence[int], *, strict: bool
) -> None:
    """A verifier that the caller names must fit some law and k, and every named law if laws are named too."""
    for verifier in verifiers:
        fits = [any(verifier.supports(make(count)) for count in counts) for make in laws]
        if not (all(fits) if strict else any(fits)):
            require_support(verifier, laws[fits.index(False)](counts[0]))


def _merged_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return one line per scheme and reason, with the numbers of drafts that it concerns."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.note:
            found.setdefault((str(row.verifier), row.law.title, row.note), []).append(str(row.law.k))
    return [f"— {verifier}, {law}, k = {', '.join(ks)}: {note}" for (verifier, law, note), ks in found.items()]


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "—" if value is None else f"{value:.6f}"

    return (
        str(row.law.k),
        row.law.title,
        str(row.verifier) + ("" if row.verifier.lossless else ", lossy"),
        number(row.exact),
        number(row.optimum),
        number(row.gap),
        "" if row.lower is None else f"{row.lower:.6f}",
        *(("", "") if row.distortion is None else (number(row.distortion.total_variation), number(row.distortion.kl))),
        "" if row.monte_carlo is None else str(row.monte_carlo),
    )


def _pad(cell: str, width: int, name: str) -> str:
    return cell.ljust(width) if name in _TEXT_COLUMNS else cell.rjust(width)
