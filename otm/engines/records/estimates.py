"""What a record supports: tokens by draft length with intervals clustered by request, and survival
where lengths differ.

**Censoring.** If steps draft different numbers of tokens, a draft that was never made reads as a
rejected one, and steps that accepted at least i drafts over *all* steps fall short of Pr(at least i
would be accepted). With N_i the steps that accepted i − 1 drafts and drafted an i-th, A_i those
that accepted it,

    S_i = Π_{j≤i} A_j/N_j            (Kaplan & Meier 1958),

is right if drafting was *independent*: given that i − 1 drafts were accepted, whether an i-th is
drafted tells nothing about whether it would be accepted. A cutoff on the drafter's confidence
breaks that, and so do requests of which the easy ones draft longer: S is then too large. Where only
the marginal counts C_i of steps that were to draft at least i are known, S_i = A_i/C_i needs offers
independent of acceptance altogether. Without any assumption

    A_i/n  ≤  S_i  ≤  1 − (steps seen to reject within i drafts)/n,

both attained: by what was never drafted being rejected throughout, and accepted throughout.

**Intervals.** Steps of one request resemble each other, requests do not know of each other.
Estimates are functions of sums over requests; deleting one request at a time gives the jackknife's
standard error, and t with (requests − 1) degrees of freedom the interval [Efron & Stein 1981;
Cameron & Miller 2015, section VI]. Where requests are not told apart, steps take their place, and
the interval says so: it is too narrow where requests differ.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm.engines.positions import PositionAcceptance
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_confidence, check_count, check_instance
from otm.statistics import Certified, Estimate, jackknife_error, ratio_of_means, t_quantile

Floats = NDArray[np.float64]
Clusters = Literal["request", "step", "none"]
"""What is taken as independent; none if there is nothing to take."""

MAX_TABLE = 2**25
"""Largest table of clusters by position, in numbers: several of them are held at once."""


@dataclasses.dataclass(frozen=True, eq=False)
class SurvivalBounds(Certified):
    """What survival can be without an assumption about drafts that were never made.

    Attributes:
        lower, upper: `(L,)`, survival if every draft that was not made had been rejected, and
            accepted.
    """

    @property
    def tokens(self) -> tuple[Floats, Floats]:
        """Tokens per step of chains of 0..L drafts, `(L + 1,)` each."""
        return _tokens(self.lower), _tokens(self.upper)


@dataclasses.dataclass(frozen=True, eq=False)
class TokensEstimate:
    """Tokens per step of chains of 0, 1, …, L drafts, and what their uncertainty is computed from.

    Attributes:
        tokens: `(L + 1,)`, 1 + Σ_{i≤γ} S_i.
        engine_tokens: tokens per step of what the engine ran.
        clusters: what is taken as independent.
        assumption: what the estimate rests on beyond the record.
        replicates: `(R, L + 1)` and `(R,)`, both estimates without one kind of cluster;
            multiplicity: `(R,)`, clusters of each kind.
    """

    tokens: Floats
    engine_tokens: float
    clusters: Clusters
    assumption: str
    replicates: Floats
    engine_replicates: Floats
    multiplicity: Floats

    @property
    def survival(self) -> Floats:
        """`(L,)`, the estimated survival."""
        return np.diff(self.tokens)

    def interval(
        self, values: Floats, replicates: Floats, *, confidence: float = 0.95, comparisons: int = 1
    ) -> Estimate:
        """Return functions of the estimate with jackknife t intervals.

        Args:
            values: `(m,)`, the functions at the estimate.
            replicates: `(R, m)`, the same at the replicates.
            confidence: coverage of each interval, or of all together if they are `comparisons`.
            comparisons: number of intervals that hold at once (Bonferroni).

        Returns:
            Estimate of arrays `(m,)`; NaN where a cluster cannot be left out.

        Raises:
            InvalidParameter: if confidence is not in (0, 1).

        Cost: O(R m).
        """
        level = check_confidence(confidence)
        number = float(self.multiplicity.sum())
        quantile = t_quantile(
            number, level, comparisons=check_count(comparisons, name="comparisons")
        )
        half = quantile * jackknife_error(replicates, self.multiplicity)
        return Estimate(values, values - half, values + half, int(number), level)

    def token_interval(self, *, confidence: float = 0.95) -> Estimate:
        """Return `tokens` with intervals, each with the confidence, within what is possible."""
        found = self.interval(self.tokens, self.replicates, confidence=confidence)
        return found.clipped(1.0, 1.0 + np.arange(self.tokens.size))


def request_mean(record: AcceptanceRecord, *, confidence: float = 0.95) -> Estimate:
    """Estimate the mean over requests of their tokens per step, with a t interval.

    Args:
        record: requests, at least two of them.
        confidence: coverage, in (0, 1).

    Returns:
        Estimate, whose samples are the requests.

    Raises:
        InvalidParameter: if the record does not tell two requests apart.

    Cost: O(requests).

    >>> from otm.engines.records import Tally
    >>> parts = tuple(Tally.of_histogram(counts, name="") for counts in ([2, 2, 6], [5, 5], [1, 3]))
    >>> record = AcceptanceRecord(form="", unit="request", parts=parts, convention="")
    >>> request_mean(record).words(digits=3)
    '1.883 (1.000 to 3.037)'
    """
    level = check_confidence(confidence)
    if (
        check_instance(record, AcceptanceRecord, name="record").unit != REQUEST
        or len(record.parts) < 2
    ):
        raise InvalidParameter(
            "An interval over requests needs two of them; the record tells none apart. Record per "
            "request."
        )
    means = np.array([[part.mean] for part in record.parts])
    found = ratio_of_means(means, np.ones_like(means), confidence=level).at(0)
    least = 1.0  # a step yields a token at least
    return dataclasses.replace(found.clipped(least, np.inf), samples=len(means))


def kaplan_meier(record: AcceptanceRecord) -> PositionAcceptance:
    """Return survival with unequal draft lengths allowed for, assuming that draft lengths are
    independent of acceptance.

    S_i = Π_{j≤i} A_j/N_j from steps listed one by one; A_i/C_i where only the numbers of drafts on
    offer are counted.

    Args:
        record: one whose `censoring` is "observed", or "none".

    Returns:
        PositionAcceptance of the positions that some step drafted.

    Raises:
        InvalidParameter: if the record does not say how many tokens steps drafted: a histogram
            alone cannot be corrected.
        TooLarge: beyond 2^25 numbers, one for each cluster and position.

    Cost: O(steps). Reference: Kaplan & Meier 1958, (2b); docs/theory.md, "Unequal draft lengths".

    >>> from otm.engines.records import Tally
    >>> steps = Tally.of_steps([0, 1, 1, 2], [2, 1, 2, 2], name="")
    >>> record = AcceptanceRecord(form="", unit="server", parts=(steps,), convention="")
    >>> record.survival.survival.tolist(), kaplan_meier(record).survival.tolist()
    ([0.75, 0.25], [0.75, 0.375])
    """
    check_instance(record, AcceptanceRecord, name="record")
    if record.censoring not in ("none", "observed"):
        raise InvalidParameter(
            "Survival can be corrected where the record says how many tokens each step drafted; "
            f"in this {record.form} that is "
            f"{record.censoring}. Record steps in detail, or use survival_bounds."
        )
    accepted, tried, multiplicity = _tables(record)
    return PositionAcceptance(
        _survival(multiplicity @ accepted, multiplicity @ tried, products=_products(record))
    )


def survival_bounds(record: AcceptanceRecord) -> SurvivalBounds:
    """Return what survival can be, whatever drafts that were never made would have met.

    A_i/n ≤ S_i ≤ 1 − (steps that must have rejected within i drafts)/n. Steps that must have: all
    that accepted fewer, but for those that may have drafted no more than they accepted. Listed
    steps tell; with counts of accepted and of offered drafts, at most min(H_j, C'_j) steps that
    accepted exactly j drafted exactly j; with a sum of drafted tokens, as many as the missing ones
    allow, at L − j each; with none of these, or more drafted tokens than L each, any of them.

    Args:
        record: one with per-position counts.

    Returns:
        SurvivalBounds; where steps are listed both ends are attained by a completion of the record.

    Raises:
        InvalidParameter: if the record holds means only, or rates of several parts without counts.

    Cost: O(steps + L log L). Reference: docs/theory.md, "Unequal draft lengths".

    >>> from otm.engines.records import Tally
    >>> steps = Tally.of_steps([0, 1, 1, 2], [2, 1, 2, 2], name="")
    >>> bounds = survival_bounds(
    ...     AcceptanceRecord(form="", unit="server", parts=(steps,), convention="")
    ... )
    >>> bounds.lower.tolist(), bounds.upper.tolist()
    ([0.75, 0.25], [0.75, 0.5])
    """
    survivors = check_instance(record, AcceptanceRecord, name="record").survivors
    steps = sum(part.steps for part in record.parts)
    lower = np.minimum(1.0, survivors / steps)
    missing = steps * survivors.size - sum(
        part.drafted or 0.0 for part in record.parts
    )  # < 0: drafts went beyond the list
    open_ = np.zeros(
        survivors.size
    )  # steps that accepted fewer than i drafts and may not have drafted more
    if record.censoring == "observed":
        for part in record.parts:
            open_ += _open_steps(
                part.survivors, part.offered, part.pairs, part.steps, survivors.size
            )
    elif record.censoring == "hidden" and not record.unlocated and missing >= 0:
        open_ = _affordable(-np.diff(np.concatenate([[steps], survivors])), missing)
    elif record.censoring != "none":
        open_ = steps - survivors
    return SurvivalBounds(lower, np.minimum(1.0, (survivors + open_) / steps))


@dataclasses.dataclass(frozen=True)
class LengthCheck:
    """Whether draft lengths look independent of acceptance, as far as first drafts show it.

    Attributes:
        longer, shorter: share of first drafts accepted in steps that drafted more than the mean
            length, and at most that.
        difference: longer − shorter; without interval where there is nothing to leave out.
    """

    longer: float
    shorter: float
    difference: Estimate

    @property
    def contradicted(self) -> bool:
        """Whether the interval excludes 0: the correction of `kaplan_meier` then rests on what is
        not so.
        """
        return bool(self.difference.low > 0 or self.difference.high < 0)


def check_lengths(record: AcceptanceRecord, *, confidence: float = 0.99) -> LengthCheck:
    """Test the assumption that draft lengths are independent of acceptance where it can be tested:
    on first drafts.

    Every step that drafts at all has a first draft, so its acceptance is never censored; were
    lengths independent, it would be the same in long steps and in short ones. That it is the same
    proves nothing about later drafts.

    Args:
        record: one whose steps are listed, with lengths that differ.
        confidence: of the interval of the difference.

    Returns:
        LengthCheck.

    Raises:
        InvalidParameter: if steps are not listed, or their lengths do not differ.

    Cost: O(steps).

    >>> from otm.engines.records import Tally
    >>> eager = Tally.of_steps([1, 2, 2, 0, 1, 0] * 20, [2, 2, 2, 1, 1, 1] * 20, name="")
    >>> check = check_lengths(
    ...     AcceptanceRecord(form="", unit="server", parts=(eager,), convention="")
    ... )
    >>> check.longer, round(check.shorter, 4), check.contradicted
    (1.0, 0.3333, True)
    """
    level = check_confidence(confidence)
    if check_instance(
        record, AcceptanceRecord, name="record"
    ).censoring != "observed" or not _listed(record):
        raise InvalidParameter(
            "Lengths are checked where steps are listed and draft different numbers; in this "
            f"{record.form} lengths are "
            f"{record.censoring}. Record steps in detail."
        )
    drafting = [part.pairs[part.pairs[:, 1] > 0] for part in record.parts if part.pairs is not None]
    requests = [steps for steps in drafting if len(steps)]
    accepted, drafted = np.concatenate(requests).T
    long_, first = drafted > drafted.mean(), accepted > 0
    table = np.stack([first & long_, long_, first & ~long_, ~long_], axis=1).astype(np.int64)
    if len(requests) > 1 and record.unit == REQUEST:
        table = np.add.reduceat(
            table, np.cumsum([0, *(len(steps) for steps in requests[:-1])]), axis=0
        )
    if (table.sum(axis=0)[[1, 3]] == 0).any():
        raise InvalidParameter(
            "Lengths are checked between long and short steps; all that draft have one length. "
            "Nothing to check."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        left = table.sum(axis=0) - table
        replicates = left[:, 0] / left[:, 1] - left[:, 2] / left[:, 3]
    accepted_long, long, accepted_short, short = table.sum(axis=0).tolist()
    longer, shorter, number = accepted_long / long, accepted_short / short, len(table)
    half, found = float(t_quantile(number, level) * jackknife_error(replicates)), longer - shorter
    difference = Estimate(found, found - half, found + half, number, level)
    return LengthCheck(longer, shorter, difference)


def estimate_tokens(record: AcceptanceRecord) -> TokensEstimate:
    """Return tokens per step by draft length, with what intervals need.

    E_γ = 1 + Σ_{i≤γ} S_i, S from `kaplan_meier` where draft lengths differ and are recorded, as the
    engine saw it otherwise.

    Args:
        record: one with per-position counts.

    Returns:
        TokensEstimate of chains of 0..L drafts.

    Raises:
        InvalidParameter: if the record holds means only, or rates of several parts without counts.
        TooLarge: beyond 2^25 numbers, one for each cluster and position.

    Cost: O(steps + R L) for R requests. Reference: docs/theory.md, "Unequal draft lengths".

    >>> from otm.engines.records import Tally
    >>> parts = tuple(
    ...     Tally.of_histogram(counts, name="")
    ...     for counts in ([2, 2, 6], [5, 3, 2], [1, 3, 6], [4, 4, 2])
    ... )
    >>> estimate = estimate_tokens(
    ...     AcceptanceRecord(form="", unit="request", parts=parts, convention="")
    ... )
    >>> estimate.tokens.tolist(), estimate.token_interval().at(2).words()
    ([1.0, 1.7, 2.1], '2.10 (1.45 to 2.75)')
    """
    check_instance(record, AcceptanceRecord, name="record")
    total = record.survivors  # refuses what has none
    assumption = {
        "none": "",
        "observed": "draft lengths are independent of acceptance",
        "hidden": "drafts that were not made count as rejected",
        "unknown": "every step drafted the full length",
    }[record.censoring]
    if not all(part.counted for part in record.parts):
        tokens = _tokens(np.minimum(1.0, total / record.parts[0].steps))
        empty = np.empty((0, tokens.size))
        return TokensEstimate(
            tokens, record.pooled_mean, "none", assumption, empty, np.empty(0), np.empty(0)
        )
    accepted, tried, multiplicity = _tables(record)
    engine = _engine(record, accepted, multiplicity)
    products = _products(record)
    sums = [multiplicity @ table for table in (accepted, tried)]
    engine_sums = multiplicity @ engine
    left_out = [whole - table for whole, table in zip(sums, (accepted, tried), strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        replicates = _tokens(_survival(*left_out, products=products))
        engine_replicates = 1.0 + (engine_sums[0] - engine[:, 0]) / (engine_sums[1] - engine[:, 1])
    return TokensEstimate(
        tokens=_tokens(_survival(*sums, products=products)),
        engine_tokens=float(1.0 + engine_sums[0] / engine_sums[1]),
        clusters=_clusters(record),
        assumption=assumption,
        replicates=replicates,
        engine_replicates=engine_replicates,
        multiplicity=multiplicity,
    )


def _clusters(record: AcceptanceRecord) -> Clusters:
    """Return what may be taken as independent: requests, else steps where what each one did is
    known.
    """
    if record.unit == REQUEST and len(record.parts) > 1:
        return "request"
    return "none" if record.censoring == "observed" and not _listed(record) else "step"


def _listed(record: AcceptanceRecord) -> bool:
    return all(part.pairs is not None for part in record.parts)


def _products(record: AcceptanceRecord) -> bool:
    return record.censoring == "observed" and _listed(record)


def _tables(record: AcceptanceRecord) -> tuple[Floats, Floats, Floats]:
    """Return what is added up: accepted and tried by cluster and position `(R, L)`, and clusters of
    each kind `(R,)`.
    """
    length, products = record.measured, _products(record)
    if _clusters(record) != "step":
        require_table(len(record.parts), length)
        rows = [
            _row(part.survivors, part.offered, part.pairs, part.steps, length, products)
            for part in record.parts
        ]
        return (
            np.stack([row[0] for row in rows]),
            np.stack([row[1] for row in rows]),
            np.ones(len(rows)),
        )
    positions = np.arange(1, length + 1)
    if products:
        kinds, counts = np.unique(
            np.concatenate([part.pairs for part in record.parts if part.pairs is not None]),
            axis=0,
            return_counts=True,
        )
        require_table(len(kinds), length)
        accepted, drafted = kinds[:, :1], kinds[:, 1:]
        tried = (accepted >= positions - 1) & (drafted >= positions)
        return (accepted >= positions).astype(float), tried.astype(float), counts.astype(float)
    steps = sum(part.steps for part in record.parts)
    exactly = -np.diff(np.concatenate([[steps], record.survivors, [0.0]]))
    kept = np.flatnonzero(exactly > 0)
    require_table(kept.size, length)
    accepted_by_kind = (kept[:, None] >= positions).astype(float)
    return accepted_by_kind, np.ones_like(accepted_by_kind), exactly[kept]


def require_table(clusters: int, length: int) -> None:
    """Raise TooLarge if a table of clusters by position is more than is held."""
    if clusters * length > MAX_TABLE:
        raise TooLarge(
            f"Clusters are told apart at every position, in tables of up to {MAX_TABLE:,} numbers; "
            f"{clusters:,} clusters at "
            f"{length:,} positions are {clusters * length:,}. Shorten the record's positions."
        )


def _row(
    survivors: Floats | None,
    offered: Floats | None,
    pairs: NDArray[np.int64] | None,
    steps: float,
    length: int,
    products: bool,
) -> tuple[Floats, Floats]:
    """Return accepted and tried by position of one part."""
    accepted = np.zeros(length)
    if survivors is not None:
        accepted[: survivors.size] = survivors
    if products and pairs is not None:
        positions = np.arange(1, length + 1)
        # Steps that accepted i − 1 and drafted an i-th: those that accepted i − 1, but for those
        # that drafted just that.
        stopped = np.bincount(pairs[pairs[:, 0] == pairs[:, 1], 0], minlength=length + 1)[:length]
        before = np.concatenate([[steps], accepted[:-1]])
        return accepted, before - stopped[positions - 1]
    if offered is not None:
        tried = np.zeros(length)
        tried[: offered.size] = offered
        return accepted, tried
    return accepted, np.full(length, steps)


def _engine(record: AcceptanceRecord, accepted: Floats, multiplicity: Floats) -> Floats:
    """Return accepted drafts and steps `(R, 2)` by cluster: what the engine's own tokens per step
    are made of.
    """
    if _clusters(record) != "step":
        return np.array([[part.accepted, part.steps] for part in record.parts])
    # Drafts that no list reaches are spread over all steps: they shift the mean, not its spread.
    return np.stack([accepted.sum(axis=1) + record.unlocated, np.ones(multiplicity.size)], axis=1)


def _survival(accepted: Floats, tried: Floats, *, products: bool) -> Floats:
    """Return survival along the last axis; NaN from the first position on that nothing tried."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = accepted / tried
    if products:
        # A position that nothing reached because nothing was accepted before it has survival 0, not
        # none.
        before = np.concatenate([np.ones((*accepted.shape[:-1], 1)), accepted[..., :-1]], axis=-1)
        return np.asarray(np.cumprod(np.where(before == 0, 0.0, ratio), axis=-1), dtype=np.float64)
    return np.minimum(np.minimum.accumulate(ratio, axis=-1), 1.0)


def _tokens(survival: Floats) -> Floats:
    ones = np.ones((*survival.shape[:-1], 1))
    return np.concatenate([ones, 1.0 + np.cumsum(survival, axis=-1)], axis=-1)


def _open_steps(
    survivors: Floats | None,
    offered: Floats | None,
    pairs: NDArray[np.int64] | None,
    steps: float,
    length: int,
) -> Floats:
    """Return, for i = 1..L, how many steps accepted fewer than i drafts and may have drafted no
    more than they accepted.
    """
    if pairs is not None:
        stopped = np.bincount(pairs[pairs[:, 0] == pairs[:, 1], 0], minlength=length + 1)[:length]
        return np.cumsum(stopped).astype(np.float64)
    both = []
    for values in (survivors, offered):
        padded = np.zeros(length + 1)
        padded[: 0 if values is None else values.size] = 0.0 if values is None else values
        both.append(np.concatenate([[steps], padded[:length]]) - padded)  # exactly 0, 1, …, L
    fewest: Floats = np.minimum(both[0], both[1])[:length]
    return np.asarray(np.cumsum(fewest), dtype=np.float64)


def _affordable(exactly: Floats, missing: float) -> Floats:
    """Return, for i = 1..L, how many steps that accepted fewer than i may have stopped there, given
    how many drafts are missing.

    A step that accepted j and drafted no more is missing L − j drafts; the cheapest are those that
    accepted most.
    """
    price = exactly.size - np.arange(exactly.size)
    steps, paid = (np.concatenate([[0.0], np.cumsum(each)]) for each in (exactly, exactly * price))
    # Of the steps that accepted fewer than i, those that accepted `first` or more are all
    # affordable, of the next some.
    first = np.searchsorted(paid, paid[1:] - missing)
    below = np.maximum(first - 1, 0)
    some = np.floor((missing - (paid[1:] - paid[first])) / price[below] + 1e-9)
    return np.asarray(
        steps[1:] - steps[first] + np.where(first > 0, np.minimum(exactly[below], some), 0.0),
        dtype=np.float64,
    )
