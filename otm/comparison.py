"""One table of schemes: exact acceptance, proven bound, Monte Carlo interval and distance to the optimum, side by side."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from otm import drawing
from otm._arrays import Array
from otm.bounds.kseq import kseq_lower
from otm.bounds.list_matching import list_matching_lower
from otm.bounds.poisson_matching import poisson_representation_lower
from otm.drafts import IID, SINGLE_DRAFTER_LAWS, Law
from otm.errors import InvalidParameter, TooLarge
from otm.lossy.induced import Distortion, distortion
from otm.montecarlo import estimate
from otm.pmf import check_count, check_instance, check_rng
from otm.problem import Problem, keyword_only
from otm.results import Estimate
from otm.tabular import Approximate, Table, Tabular, shortened, wrapped
from otm.verbs import acceptance, check_ks, optimal_acceptance
from otm.verifiers import PLANS, VERIFIERS, KSeq, ListRace, Race, Verifier
from otm.verifiers.base import require_support

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "ComparisonRow", "compare"]

DEFAULT_SAMPLES = 20_000
CONFIDENCE = 0.999
"""Of each interval: of a hundred rows, one in ten tables has one that misses."""

_MOST_SEQUENCES_BY_DEFAULT = 4_096

PROVEN_LOWER: Mapping[Verifier, Callable[[Problem], Array]] = {
    KSeq(): kseq_lower,
    Race(): poisson_representation_lower,
    ListRace(): list_matching_lower,
}
"""Lower bounds that are proven for one verifier, with these parameters, under every law that it supports."""

_LONGEST_NAME = 50
_LONGEST_BESIDE_ALL = 45
_LONGEST_LABEL = 28
_SEED = 1
"""Of the generator unless one is given: the same call gives the same table."""

_SAME = 1e-9
"""Total variation below which an output law is the target, and difference below which acceptances are equal: races' quadrature."""

_ROUNDING = 1e-12

_LOSSY_NOTE = "frontier: min(1, optimum + TV), which no scheme of this TV exceeds."
_SAMPLED_NOTE = "≈: by Monte Carlo, where no exact value was computed; full=True shows the intervals."


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


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """The rows, and what was left out and why; prints as a matrix of verifiers by k for each law, lossy schemes apart.

    Attributes:
        rows: one for each scheme and number of drafts.
        left_out: what was not compared, and why.
        full: whether it prints every figure of every row.
        folded: whether it prints a verifier that agrees with one above it wherever it has a value by name only.
    """

    rows: tuple[ComparisonRow, ...]
    left_out: tuple[str, ...] = ()
    full: bool = False
    folded: bool = False

    def __repr__(self) -> str:
        laws, verifiers = self._laws(), _distinct([row.verifier for row in self.rows])
        ks = ", ".join(map(str, _distinct([row.law.k for row in self.rows])))
        return f"Comparison({len(self.rows)} rows: {len(verifiers)} verifiers, {len(laws)} laws, k = {ks})"

    def __str__(self) -> str:
        blocks = [table.text() for table in self._tables()]
        notes = [line for note in self._notes() for line in wrapped(note)]
        return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])

    def tables(self) -> tuple[Table, ...]:
        """Return the matrix of each law, the best marked, below its optimum and the gap of the best; then the lossy schemes.

        If `full`, every figure of every row instead, by law. What is to be said of all of them stands below the last.
        """
        *others, last = self._tables()
        return (*others, dataclasses.replace(last, notes=(*last.notes, *self._notes())))

    def _tables(self) -> tuple[Table, ...]:
        found = []
        for law in self._laws():
            exact, lossy = self._sorted_out(law)
            if self.full:
                found += [_everything(law, rows, lossy=apart) for rows, apart in ((exact, False), (lossy, True)) if rows]
            else:
                found += [_matrix(law, exact, folded=self.folded)] if exact else []
                found += [_lossy_rows(law, lossy)] if lossy else []
        return tuple(found)

    def data(self) -> Table:
        """Return the records as a table."""
        records = self.records()
        columns = tuple(records[0]) if records else ("law", "verifier", "k", "exact")
        return Table(columns=columns, rows=tuple(tuple(record.values()) for record in records))

    def _draw(self, ax: Axes) -> None:
        """Draw acceptance against k under the first law: the optimum and the best five, equal curves as one."""
        law, *others = self._laws()
        exact, lossy = self._sorted_out(law)
        ks = _distinct([row.law.k for row in self.rows if type(row.law) is law])
        optimum = {row.law.k: row.optimum for row in self.rows if type(row.law) is law}
        best = [_nan(optimum[k]) for k in ks]
        lines = [drawing.Line("optimum", ks, best, best=True)]
        curves = _merged_curves(exact, ks) + ([] if self.folded else _merged_curves(lossy, ks, ", lossy"))
        curves.sort(key=lambda line: -float(np.nanmean(line.y)))
        if self.folded:  # nobody asked for a scheme of one k, or for one that runs along the optimum
            attaining = [line for line in curves if np.allclose(line.y, best, rtol=0, atol=_SAME)]
            lines[0] = dataclasses.replace(lines[0], label="optimum, attained" if attaining else "optimum")
            curves = [line for line in curves if line not in attaining and np.isfinite(line.y).sum() > (len(ks) > 1)]
        lines += curves[: drawing.MOST_LINES - 1]
        drawing.draw_lines(ax, lines, xlabel="number of drafts k", ticks=ks)
        beside = f" (the first of {1 + len(others)} laws)" if others else ""
        ax.set_title(f"{law.title} drafts{beside}", fontsize=10)

    def _laws(self) -> list[type[Law]]:
        return _distinct([type(row.law) for row in self.rows])

    def _sorted_out(self, law: type[Law]) -> tuple[list[ComparisonRow], list[ComparisonRow]]:
        """Return a law's rows of schemes that keep the target's law, as promised or as found, and of those that do not."""
        rows = [row for row in self.rows if type(row.law) is law]
        lossy = [row.verifier for row in rows if not row.verifier.lossless and not _harmless(row.verifier, rows)]
        return [row for row in rows if row.verifier not in lossy], [row for row in rows if row.verifier in lossy]

    def _notes(self) -> list[str]:
        sorted_out = [self._sorted_out(law) for law in self._laws()]
        sampled = any(row.exact is None and row.monte_carlo is not None for row in self.rows)
        notes = [_LOSSY_NOTE] * any(lossy for _, lossy in sorted_out) + [_SAMPLED_NOTE] * (sampled and not self.full)
        return [*notes, *_merged_notes(self.rows), *_falling_notes(self.rows), *self.left_out]

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


@keyword_only("otm.compare(draft=p, target=q)")
def compare(
    *,
    draft: object,
    target: object,
    verifiers: Sequence[Verifier] | None = None,
    laws: Sequence[type[Law]] | None = None,
    k: Iterable[int] = (1, 2, 4, 8),
    samples: int | None = None,
    rng: np.random.Generator | None = None,
    full: bool = False,
) -> Comparison:
    """Compare coupling schemes on one pair of distributions.

    Args:
        draft, target: probabilities `(V,)`.
        verifiers: which ones; None takes every verifier with default parameters, leaves out unsupported pairs, and beyond 4,096
            draft sequences also those that solve a linear program, whose value is the optimum.
        laws: draft law classes; None takes every law that draws from one distribution, `otm.drafts.SINGLE_DRAFTER_LAWS`.
        k: numbers of drafts.
        samples: Monte Carlo draws per row; 0 for none. None takes 20,000 where no exact value was computed, or in every row if
            `full`.
        rng: the source of randomness; None takes one fixed seed, so that the same call gives the same table.
        full: whether it prints every figure of every row: bounds, distances and Monte Carlo intervals too.

    Returns:
        Comparison: one row per supported (law, verifier, k), and none twice: one draft drawn without replacement is an i.i.d. one.
        `print` it, `plot` it, or take `rows`, `records()`, `to_pandas()`, `to_latex()`. Lossy verifiers stand apart, with TV and
        KL to the target and the frontier at their own TV, min(1, optimum + TV); a verifier that promises nothing stands where the
        output law that is found puts it.

    Raises:
        Unsupported: if both `verifiers` and `laws` are named and a pair does not fit for any k.
        InvalidParameter, InvalidDistribution, ShapeMismatch: on bad input.

    Cost: per row, one exact acceptance (see each verifier) and `samples` draws; races draw V exponentials each.

    >>> table = compare(draft=[0.75, 0.25], target=[0.5, 0.5], verifiers=[otm.KSeq()], k=[2], samples=0)
    >>> table.rows[0].gap.__round__(6)
    0.089903
    """
    counts = _distinct(check_ks(k))
    if samples is not None and (not isinstance(samples, int) or samples != 0):
        check_count(samples, name="samples")
    check_instance(full, bool, name="full")
    draws = _Draws(everywhere=DEFAULT_SAMPLES if full else 0, otherwise=DEFAULT_SAMPLES)
    if samples is not None:
        draws = _Draws(everywhere=int(samples), otherwise=int(samples))
    generator = np.random.default_rng(_SEED) if rng is None else check_rng(rng)
    chosen_verifiers = [make() for make in VERIFIERS] if verifiers is None else check_verifiers(verifiers)
    chosen_verifiers = _distinct(chosen_verifiers)
    chosen_laws = _distinct(list(SINGLE_DRAFTER_LAWS) if laws is None else _classes(laws))
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
            seen = IID in chosen_laws and make is not IID and _is_one_draw(here)
            enumerable = here.law.num_sequences(problem.num_tokens) <= _MOST_SEQUENCES_BY_DEFAULT
            for verifier in chosen_verifiers:
                if verifiers is None and isinstance(verifier, PLANS) and not enumerable:
                    skipped.add(
                        f"left out beyond {_MOST_SEQUENCES_BY_DEFAULT:,} draft sequences: {verifier}; its value is the "
                        f"optimum column, and {verifier!r} in verifiers= runs its program"
                    )
                elif verifier.supports(here.law):
                    if not (seen and (verifiers is None or verifier.supports(IID(1)))):
                        rows.append(_row(verifier, here, best, draws, generator))
                elif verifiers is None:
                    skipped.add("left out: pairs of verifier and draft law that do not fit each other (docs/schemes.md)")
                elif laws is not None:
                    skipped.add(f"left out: {verifier} for drafts {here.law}, which it does not verify")
    return Comparison(rows=tuple(rows), left_out=tuple(sorted(skipped)), full=full, folded=verifiers is None)


@dataclasses.dataclass(frozen=True)
class _Draws:
    """How many draws a row gets that has an exact value, and one that has none."""

    everywhere: int
    otherwise: int


_Thing = TypeVar("_Thing")


def _distinct(things: Iterable[_Thing]) -> list[_Thing]:
    """Return the first of equals, in order; a verifier from outside need not be hashable."""
    found: list[_Thing] = []
    for thing in things:
        if thing not in found:
            found.append(thing)
    return found


def _is_one_draw(problem: Problem) -> bool:
    """Whether the law is that of one draw from the draft."""
    return problem.law.k == 1 and np.allclose(problem.law.inclusion(problem.draft), problem.draft, rtol=0.0, atol=1e-15)


def check_verifiers(verifiers: object) -> list[Verifier]:
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


def _row(verifier: Verifier, problem: Problem, best: float | None, draws: _Draws, rng: np.random.Generator) -> ComparisonRow:
    note, exact, interval = "", None, None
    try:
        exact = float(acceptance(verifier, problem))
        if draws.everywhere:
            interval = estimate(verifier, problem, samples=draws.everywhere, confidence=CONFIDENCE, rng=rng)
    except TooLarge as error:
        note = str(error).split(";")[0]
        # The plan of a program that cannot be solved cannot be sampled either; other samplers can.
        if draws.otherwise and not isinstance(verifier, PLANS):
            interval = estimate(verifier, problem, samples=draws.otherwise, confidence=CONFIDENCE, rng=rng)
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


def _falling_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a line for each scheme that accepts less of more drafts, with the parameters that may be why."""
    found = []
    for verifier, law in _distinct((row.verifier, type(row.law)) for row in rows):
        values = {
            row.law.k: row.exact for row in rows if row.verifier == verifier and type(row.law) is law and row.exact is not None
        }
        fewer, more = next(
            ((a, b) for a, b in itertools.pairwise(sorted(values)) if values[b] < values[a] - _SAME), (None, None)
        )
        limits = " and ".join(f"{name} = {getattr(verifier, name)}" for name in verifier.telling)
        why = f": {limits} may be why, the optimum never falls" if limits else ""
        if fewer is not None:
            found.append(f"— {verifier}, {law.title}: accepts less of {more} drafts than of {fewer}{why}.")
    return found


def _harmless(verifier: Verifier, rows: Sequence[ComparisonRow]) -> bool:
    """Whether a verifier that promises nothing was found to keep the target's law, wherever that was found out."""
    if isinstance(verifier, VERIFIERS):  # lossy by what it is, if not on this pair
        return False
    known = [row.distortion.total_variation for row in rows if row.verifier == verifier and row.distortion is not None]
    return bool(known) and max(known) <= _SAME


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _value(row: ComparisonRow) -> float | Approximate | None:
    if row.exact is None and row.monte_carlo is not None:
        return Approximate(row.monte_carlo.mean)
    return row.exact


def _matrix(law: type[Law], rows: Sequence[ComparisonRow], *, folded: bool) -> Table:
    """Return verifiers by k in descending order, the best of each k marked, below the optimum and the gap of the best."""
    ks = sorted({row.law.k for row in rows})
    optimum = {row.law.k: row.optimum for row in rows}
    verifiers = _distinct(row.verifier for row in rows)
    cells = [{row.law.k: row for row in rows if row.verifier == verifier} for verifier in verifiers]
    top = {k: _top([row[k] for row in cells if k in row]) for k in ks}

    def rank(i: int) -> tuple[list[int], bool]:
        """Of schemes that accept alike, one that is called optimal stands for the others."""
        values = [-round(_nan_last(cells[i].get(k)) / _SAME) for k in reversed(ks)]
        return values, not verifiers[i].title.startswith("optimal")

    order = sorted(range(len(verifiers)), key=rank)
    body: list[tuple[object, ...]] = [
        ("optimum", *(optimum[k] for k in ks)),
        ("gap of the best", *(_gap(optimum[k], top[k]) for k in ks)),
    ]
    best: set[tuple[int, int]] = set()
    above: list[int] = []
    same: dict[int, list[str]] = {}
    for i in order:
        like = next((j for j in above if folded and _agrees(cells[i], cells[j])), None)
        if like is not None:
            only = "" if cells[i].keys() == cells[like].keys() else f" (k = {', '.join(map(str, sorted(cells[i])))})"
            same.setdefault(like, []).append(str(verifiers[i]) + only)
            continue
        above.append(i)
        best |= {(len(body), at) for at, k in enumerate(ks, start=1) if _attains(cells[i].get(k), top[k])}
        name = str(verifiers[i]) + ("" if verifiers[i].lossless else ", lossless here")
        body.append((name, *(_value(cells[i][k]) if k in cells[i] else "" for k in ks)))
    notes = tuple(f"{verifiers[j]} = {' = '.join(names)}" for j, names in same.items())
    head = (f"drafts: {law.title}", *(f"k = {k}" for k in ks))
    return Table(columns=head, rows=tuple(body), best=frozenset(best), ruled=frozenset({1}), notes=notes, longest=_LONGEST_NAME)


def _top(rows: Sequence[ComparisonRow]) -> float | Approximate | None:
    """Return the largest acceptance, approximate where a sampled one may be larger than all that are exact."""
    exact = max((row.exact for row in rows if row.exact is not None), default=-1.0)
    sampled = [row.monte_carlo for row in rows if row.exact is None and row.monte_carlo is not None]
    if any(interval.high > exact for interval in sampled):
        return Approximate(max(exact, *(interval.mean for interval in sampled)))
    return None if exact < 0 else exact


def _gap(optimum: float | None, accepted: float | Approximate | None) -> float | Approximate | None:
    if optimum is None or accepted is None:
        return None
    if isinstance(accepted, Approximate):
        return Approximate(max(0.0, optimum - accepted.value))
    return 0.0 if optimum - accepted < _ROUNDING else optimum - accepted


def _attains(row: ComparisonRow | None, top: float | Approximate | None) -> bool:
    """Whether a row has the largest acceptance of all, for certain."""
    if row is None or row.exact is None or top is None or isinstance(top, Approximate):
        return False
    return row.exact >= top - _SAME


def _agrees(some: Mapping[int, ComparisonRow], others: Mapping[int, ComparisonRow]) -> bool:
    """Whether a verifier accepts as much as another, wherever it has a value at all."""
    if not some.keys() <= others.keys():
        return False
    pairs = [(row.exact, others[k].exact) for k, row in some.items()]
    return all(a is not None and b is not None and abs(a - b) <= _SAME for a, b in pairs)


def _nan_last(row: ComparisonRow | None) -> float:
    value = None if row is None else _value(row)
    return -1.0 if value is None else float(value)


def _lossy_rows(law: type[Law], rows: Sequence[ComparisonRow]) -> Table:
    body = [(str(row.verifier), row.law.k, _value(row), row.distortion and row.frontier, *_distances(row)) for row in rows]
    head = (f"lossy, drafts: {law.title}", "k", "acceptance", "frontier", "TV", "KL (nats)")
    return Table(columns=head, rows=tuple(body), longest=_LONGEST_NAME)


def _distances(row: ComparisonRow) -> tuple[float | None, float | None]:
    return (None, None) if row.distortion is None else (row.distortion.total_variation, row.distortion.kl)


def _everything(law: type[Law], rows: Sequence[ComparisonRow], *, lossy: bool) -> Table:
    """Return every figure of every row, ruled where the number of drafts changes."""
    body = []
    for row in rows:
        interval = "" if row.monte_carlo is None else f"{row.monte_carlo.low:.4f}–{row.monte_carlo.high:.4f}"
        figures: tuple[object, ...] = (row.optimum, _gap(row.optimum, row.exact), "" if row.lower is None else row.lower)
        if lossy:
            figures = (row.distortion and row.frontier, *map(_short, _distances(row)))
        body.append((row.law.k, str(row.verifier), _value(row), *figures, interval))
    columns = ("frontier", "TV", "KL") if lossy else ("optimum", "gap", "proven ≥")
    ends = frozenset(i for i, (one, other) in enumerate(itertools.pairwise(body)) if one[0] != other[0])
    head = ("k", f"{'lossy, ' * lossy}drafts: {law.title}", "accepted", *columns, f"{CONFIDENCE:.1%} MC".replace("%", " %"))
    return Table(columns=head, rows=tuple(body), ruled=ends, longest=_LONGEST_BESIDE_ALL)


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}" if np.isfinite(value) else "∞"


def _merged_curves(rows: Sequence[ComparisonRow], ks: Sequence[int], remark: str = "") -> list[drawing.Line]:
    """Return a line for each verifier; verifiers that agree everywhere share one."""
    lines: list[drawing.Line] = []
    for verifier in _distinct(row.verifier for row in rows):
        mine = {row.law.k: row for row in rows if row.verifier == verifier}
        found = [mine.get(k) for k in ks]
        sampled = [row.monte_carlo if row is not None and row.exact is None else None for row in found]
        y = [float("nan") if row is None or _value(row) is None else float(_value(row)) for row in found]  # type: ignore[arg-type]
        low = [float("nan") if e is None else e.low for e in sampled]
        high = [float("nan") if e is None else e.high for e in sampled]
        if np.isfinite(y).any():
            lines.append(drawing.Line(shortened(str(verifier), _LONGEST_NAME) + remark, list(ks), y, low, high))
    lines.sort(key=lambda line: -int(np.isfinite(line.y).sum()))  # those known everywhere first
    kept: list[drawing.Line] = []
    for line in lines:
        same = next((i for i, other in enumerate(kept) if _covers(other, line)), None)
        if same is None:
            kept.append(line)
        elif len(kept[same].label) + len(line.label) < _LONGEST_LABEL:
            kept[same] = dataclasses.replace(kept[same], label=f"{kept[same].label}, {line.label}")
    return kept


def _covers(line: drawing.Line, other: drawing.Line) -> bool:
    """Whether a line runs through all the points of another."""
    known = np.isfinite(other.y)
    return bool(np.allclose(np.asarray(line.y)[known], np.asarray(other.y)[known], rtol=0, atol=_SAME))
