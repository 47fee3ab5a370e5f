"""Estimates from a record: tokens by draft length with intervals, and censored survival.

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

from otm._machine.arrays import Floats
from otm.engines.positions import PositionAcceptance, continued
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import Tally, padded
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_confidence, check_count, check_instance
from otm.results.statistics import Certified, Estimate, jackknife_error, ratio_of_means, t_quantile

Clusters = Literal["request", "step", "none"]
"""The unit taken as independent; "none" if there is no such unit."""

MAX_TABLE = 2**25
"""Largest table of clusters by position, in numbers: several tables are held at once."""

_PRINTED = 0.01
"""Relative error of drafts a step that follow from printed means, and of lengths."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SurvivalBounds(Certified):
    """Bounds on survival without an assumption about drafts that were never made.

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
    """Tokens per step of chains of 0, 1, …, L drafts, with replicates for the uncertainty.

    Attributes:
        tokens: `(L + 1,)`, 1 + f·Σ_{i≤γ} S_i, f the share of calls that draft.
        engine_tokens: tokens per call of what the engine ran.
        clusters: what is taken as independent.
        replicates: `(R, L + 1)` and `(R,)`, both estimates without one kind of cluster;
            multiplicity: `(R,)`, clusters of each kind.
        share: f; share_replicates: `(R,)`.
    """

    tokens: Floats
    engine_tokens: float
    clusters: Clusters
    replicates: Floats
    engine_replicates: Floats
    multiplicity: Floats
    share: float
    share_replicates: Floats

    @property
    def survival(self) -> Floats:
        """`(L,)`, the estimated survival in steps that draft."""
        return np.asarray(np.diff(self.tokens) / self.share)

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

    @property
    def measured(self) -> int:
        """Number of positions whose survival some step measured."""
        unknown = np.flatnonzero(np.isnan(self.tokens))
        return int(unknown[0] if unknown.size else self.tokens.size) - 1

    def at_length(self, longest: int) -> TokensEstimate:
        """Return the estimate for 0..`longest` drafts, at least the measured number.

        Beyond them each draft is accepted at the rate of the last measured position.
        """
        require_table(len(self.replicates), longest)
        measured = self.measured
        longer = [
            share * continued(np.diff(table)[..., :measured] / share, measured, longest - measured)
            for table, share in (
                (self.tokens, np.float64(self.share)),
                (self.replicates, self.share_replicates[:, None]),
            )
        ]
        tokens, replicates = map(_tokens, longer)
        return dataclasses.replace(self, tokens=tokens, replicates=replicates)

    def token_interval(self, *, confidence: float = 0.95) -> Estimate:
        """Return `tokens` with an interval each, clipped to the possible range."""
        found = self.interval(self.tokens, self.replicates, confidence=confidence)
        return found.clipped(1.0, 1.0 + np.arange(self.tokens.size))


def request_mean(record: AcceptanceRecord, *, confidence: float = 0.95) -> Estimate:
    """Estimate the mean over requests of the tokens per step of each request, with a t interval.

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
    '1.883 (1.000 to 3.000)'
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
    listed = [
        np.inf if part.survivors is None or part.unlocated else part.survivors.size
        for part in record.parts
    ]  # a step yields one token at least, and one more than its drafts at most
    return dataclasses.replace(found.clipped(1.0, 1.0 + max(listed)), samples=len(means))


def kaplan_meier(record: AcceptanceRecord) -> PositionAcceptance:
    """Correct survival for unequal draft lengths, taken as independent of acceptance.

    S_i = Π_{j≤i} A_j/N_j from steps listed one by one; A_i/C_i where only the numbers of drafts on
    offer are counted.

    Args:
        record: one whose `censoring` is "observed", or "none".

    Returns:
        PositionAcceptance of the positions that some step tried.

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
    table = _Clusters.of(record)
    survival = table.survival(table.sum(table.accepted), table.sum(table.tried))
    return PositionAcceptance(survival[~np.isnan(survival)])


def survival_bounds(record: AcceptanceRecord) -> SurvivalBounds:
    """Bound survival without an assumption about drafts that were never made.

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
    >>> record = AcceptanceRecord(form="", unit="server", parts=(steps,), convention="")
    >>> bounds = survival_bounds(record)
    >>> bounds.lower.tolist(), bounds.upper.tolist()
    ([0.75, 0.25], [0.75, 0.5])
    """
    survivors = check_instance(record, AcceptanceRecord, name="record").survivors
    steps = record.weight
    lower = np.minimum(1.0, survivors / steps)
    # Drafts that L a step would have made beyond those made; < 0 where these went beyond the list.
    missing = steps * survivors.size - (record.drafted or 0.0)
    # How many steps accepted fewer than i drafts and may not have drafted more.
    stopped = np.zeros(survivors.size)
    if record.censoring == "observed":
        for part in record.parts:
            stopped += _most_stopped(part, survivors.size)
    elif record.censoring == "hidden" and not record.unlocated and missing >= 0:
        stopped = _affordable(-np.diff(np.concatenate([[steps], survivors])), missing)
    elif record.censoring != "none":
        stopped = steps - survivors
    return SurvivalBounds(lower, np.minimum(1.0, (survivors + stopped) / steps))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TokensBounds(Certified):
    """Bounds on tokens per step where only the mean was recorded.

    Attributes:
        lower, upper: `(L + 1,)`, of chains of 0..L drafts.
        drafts: drafts per call of what ran, on average; NaN if unknown.
    """

    lower: Floats
    upper: Floats
    drafts: float


def mean_bounds(record: AcceptanceRecord, *, drafts: int | None = None) -> TokensBounds:
    """Bound tokens per step of every draft length by the recorded mean.

    With a accepted and m drafted tokens a step, at most L of them, and γ ≤ L,

        1 + γ·a/L  ≤  E_γ  ≤  1 + min(γ, a + γ·(1 − m/L)),

    both attained; m = L where every step drafts L.

    Args:
        record: any; of means too.
        drafts: L, the most that a step drafted; what the record says if None.

    Returns:
        TokensBounds; of no draft alone where L is unknown.

    Raises:
        InvalidParameter: if more is accepted than drafted.

    Cost: O(steps + L). Reference: docs/records.md, "A mean".

    >>> from otm.engines.records import Tally
    >>> parts = (Tally.of_mean(2.5, name=""),)
    >>> record = AcceptanceRecord(form="", unit="server", parts=parts, convention="")
    >>> bounds = mean_bounds(record, drafts=3)
    >>> bounds.lower.tolist(), bounds.upper.tolist()
    ([1.0, 1.5, 2.0, 2.5], [1.0, 2.0, 2.5, 2.5])
    """
    each = check_instance(record, AcceptanceRecord, name="record").drafts_per_step
    whole = each is not None and abs(each - round(each)) <= _PRINTED * each
    told = round(each or 0.0) if whole else record.length
    longest = told if drafts is None else check_count(drafts, name="drafts")
    ran = None if each is None else each * record.drafting_share
    if not longest:
        return TokensBounds(np.ones(1), np.ones(1), np.nan if ran is None else ran)
    accepted, drafted = record.mean - 1.0, min(longest if ran is None else ran, longest)
    if max(accepted, each or 0.0) > longest * (1 + _PRINTED):
        raise InvalidParameter(
            f"A step drafts at most {longest}; this {record.form} accepts {accepted:.4g} of "
            f"{each or longest:.4g}. Pass the drafts that the engine was set to."
        )
    lengths = np.arange(longest + 1.0)
    low = 1.0 + lengths * min(1.0, accepted / longest)
    high = 1.0 + np.minimum(lengths, accepted + lengths * (1.0 - drafted / longest))
    return TokensBounds(low, np.maximum(low, high), float(drafted))


@dataclasses.dataclass(frozen=True)
class LengthCheck:
    """A test of draft lengths for independence of acceptance, on first drafts.

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
        """True if the interval excludes 0, and so contradicts the assumption of `kaplan_meier`."""
        return bool(self.difference.low > 0 or self.difference.high < 0)


def check_lengths(record: AcceptanceRecord, *, confidence: float = 0.99) -> LengthCheck:
    """Test on first drafts whether draft lengths are independent of acceptance.

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
    >>> record = AcceptanceRecord(form="", unit="server", parts=(eager,), convention="")
    >>> check = check_lengths(record)
    >>> check.longer, round(check.shorter, 4), check.contradicted
    (1.0, 0.3333, True)
    """
    level = check_confidence(confidence)
    check_instance(record, AcceptanceRecord, name="record")
    if record.censoring != "observed" or not record.listed:
        raise InvalidParameter(
            "Lengths are checked where steps are listed and draft different numbers; in this "
            f"{record.form} lengths are {record.censoring}. Record steps in detail."
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
    """Estimate tokens per step by draft length.

    E_γ = 1 + f·Σ_{i≤γ} S_i, S from `kaplan_meier` where draft lengths differ and are recorded, as
    the engine saw it otherwise; f is the share of calls that drafted, as far as the record tells.

    Args:
        record: one with per-position counts.

    Returns:
        TokensEstimate of chains of 0..L drafts.

    Raises:
        InvalidParameter: if the record holds means only, or rates of several parts without counts.
        TooLarge: beyond 2^25 numbers, one for each cluster and position.

    Cost: O(steps + R L) for R requests. Reference: docs/theory.md, "Unequal draft lengths".

    >>> from otm.engines.records import Tally
    >>> counts = [2, 2, 6], [5, 3, 2], [1, 3, 6], [4, 4, 2]
    >>> parts = tuple(Tally.of_histogram(each, name="") for each in counts)
    >>> record = AcceptanceRecord(form="", unit="request", parts=parts, convention="")
    >>> estimate = estimate_tokens(record)
    >>> estimate.tokens.tolist(), estimate.token_interval().at(2).words()
    ([1.0, 1.7, 2.1], '2.10 (1.45 to 2.75)')
    """
    check_instance(record, AcceptanceRecord, name="record")
    total = record.survivors  # refuses what has none
    if not all(part.counted for part in record.parts):
        tokens = _tokens(np.minimum(1.0, total / record.parts[0].steps))
        none = np.empty(0)
        rows = np.empty((0, tokens.size))
        return TokensEstimate(tokens, record.pooled_mean, "none", rows, none, none, 1.0, none)
    table = _Clusters.of(record)
    accepted, tried, engine = (
        table.sum(one) for one in (table.accepted, table.tried, table.engine)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        survival = table.survival(accepted - table.accepted, tried - table.tried)
        left_out = engine - table.engine
        engine_replicates = 1.0 + left_out[:, 0] / left_out[:, 1]
        shares = left_out[:, 2] / left_out[:, 1]
    share = float(engine[2] / engine[1])
    return TokensEstimate(
        tokens=_tokens(share * table.survival(accepted, tried)),
        engine_tokens=float(1.0 + engine[0] / engine[1]),
        clusters=table.kind,
        replicates=_tokens(shares[:, None] * survival),
        engine_replicates=engine_replicates,
        multiplicity=table.multiplicity,
        share=share,
        share_replicates=shares,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Clusters:
    """The counts of a record, by cluster.

    Attributes:
        kind: what a cluster is.
        products: whether survival is the product of conditional acceptances.
        accepted, tried: `(R, L)`, steps that accepted and that tried each position.
        engine: `(R, 3)`, accepted drafts, calls, and steps, which are the calls that drafted.
        multiplicity: `(R,)`, how many equal clusters a row stands for.
    """

    kind: Clusters
    products: bool
    accepted: Floats
    tried: Floats
    engine: Floats
    multiplicity: Floats

    @classmethod
    def of(cls, record: AcceptanceRecord) -> _Clusters:
        """Count a record by request, or else by step where every step is known."""
        products = record.censoring == "observed" and record.listed
        kind: Clusters = "step"
        if record.unit == REQUEST and len(record.parts) > 1:
            kind = "request"
        elif record.censoring == "observed" and not record.listed:
            kind = "none"
        tallies, multiplicity = list(record.parts), np.ones(len(record.parts))
        beyond = 0.0
        if kind == "step":
            tallies, multiplicity = _kinds_of_steps(record, products)
            beyond = record.unlocated  # drafts beyond every list shift the mean, not its spread
        require_table(len(tallies), record.measured)
        length = record.measured
        return cls(
            kind=kind,
            products=products,
            accepted=np.stack([padded(one.survivors, length) for one in tallies]),
            tried=np.stack([_tried(one, length, products) for one in tallies]),
            engine=np.array(
                [[one.accepted + beyond * one.steps, one.calls, one.steps] for one in tallies]
            ),
            multiplicity=multiplicity,
        )

    def sum(self, table: Floats) -> Floats:
        """Return the sum of a table over all clusters."""
        return np.asarray(self.multiplicity @ table)

    def survival(self, accepted: Floats, tried: Floats) -> Floats:
        """Return survival along the last axis; NaN from where on nothing tried a position."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = accepted / tried
        if not self.products:
            return np.minimum(np.minimum.accumulate(ratio, axis=-1), 1.0)
        # A position that nothing reached because nothing was accepted before it has survival 0, not
        # none.
        before = np.concatenate([np.ones((*accepted.shape[:-1], 1)), accepted[..., :-1]], axis=-1)
        return np.asarray(np.cumprod(np.where(before == 0, 0.0, ratio), axis=-1), dtype=np.float64)


def _kinds_of_steps(record: AcceptanceRecord, products: bool) -> tuple[list[Tally], Floats]:
    """Return the different steps of a record as tallies of one step, and how often each occurs."""
    idle = [Tally(name="", steps=0.0, accepted=0.0, undrafted=1.0)] if record.undrafted else []
    often = np.full(len(idle), record.undrafted)
    if products:
        pairs = np.concatenate([part.pairs for part in record.parts if part.pairs is not None])
        kinds, counts = np.unique(pairs, axis=0, return_counts=True)
        require_table(len(kinds), record.measured)
        steps = [Tally.of_steps([a], [d], name="") for a, d in kinds.tolist()]
        return steps + idle, np.append(counts, often)
    survivors = np.concatenate([[record.weight], record.survivors, [0]])
    exactly = -np.diff(survivors)
    kept = np.flatnonzero(exactly > 0)
    require_table(kept.size, record.measured)
    steps = [Tally(name="", steps=1.0, accepted=a, survivors=np.ones(a)) for a in kept.tolist()]
    return steps + idle, np.append(exactly[kept], often)


def require_table(clusters: int, length: int) -> None:
    """Raise `TooLarge` if a table of clusters by position would be too large to hold."""
    if clusters * length > MAX_TABLE:
        raise TooLarge(
            f"Clusters are told apart at every position, in tables of up to {MAX_TABLE:,} numbers; "
            f"{clusters:,} clusters at {length:,} positions are {clusters * length:,}. Shorten the "
            "record's positions."
        )


def _tried(part: Tally, length: int, products: bool) -> Floats:
    """Return the steps that tried each position, `(length,)`."""
    if not products:
        return np.full(length, part.steps) if part.offered is None else padded(part.offered, length)
    # Steps that accepted i − 1 and drafted an i-th: those that accepted i − 1, but for those that
    # drafted just that.
    before = np.concatenate([[part.steps], padded(part.survivors, length)[:-1]])
    return np.asarray(before - _stopped(part, length))


def _stopped(part: Tally, length: int) -> Floats:
    """Return, for a < length, the number of listed steps that drafted and accepted a tokens."""
    pairs = np.empty((0, 2), dtype=np.int64) if part.pairs is None else part.pairs
    all_accepted = pairs[pairs[:, 0] == pairs[:, 1], 0]
    return np.bincount(all_accepted, minlength=length)[:length].astype(np.float64)


def _tokens(survival: Floats) -> Floats:
    ones = np.ones((*survival.shape[:-1], 1))
    return np.concatenate([ones, 1.0 + np.cumsum(survival, axis=-1)], axis=-1)


def _most_stopped(part: Tally, length: int) -> Floats:
    """Return, for i = 1..L, the largest possible number of steps that accepted j < i drafts and
    drafted no more than j.
    """
    if part.pairs is not None:
        return np.cumsum(_stopped(part, length))
    # At most as many as accepted exactly j, and as drafted exactly j.
    exactly = [
        -np.diff(np.concatenate([[part.steps], padded(values, length)]))
        for values in (part.survivors, part.offered)
    ]
    return np.cumsum(np.minimum(*exactly))


def _affordable(exactly: Floats, missing: float) -> Floats:
    """Return, for i = 1..L, a bound on the steps that accepted j < i drafts and drafted no more
    than j, from the number of missing drafts.
    """
    # A step that accepted j and drafted no more is missing L − j drafts; the cheapest are those
    # that accepted most.
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
