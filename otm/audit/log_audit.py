"""The audit of a server's log: many contexts, each seen once, tested together.

The contents of a log, and the reader: `otm.audit.token_log`.

*The null.* Given what came before it, output t has law q_t. True of every output token of a
lossless server in order of the text, the tokens of one target call one after the other. Not true of
tokens picked by what became of their drafts ("log the rejections"). q_t is the law without regard
to which drafts were proposed, so the test never looks at the drafts to bet on the output. Where
`law` is given it also counts how often they were right; log the first token of each target call
then, or a scheme that decides token by token: block verification accepts later tokens more often
than their own optimum.

*The test.* Tokens are sorted into a few cells by what is known before the output: by q/p, by rank
under q, by whether p ranks them first. For each sorting w_c is the number of outputs in cell c so
far over the number expected, shrunk to 1. The bet Σ_c w_c 1{Y ∈ c} / Σ_c w_c Q(c) has mean 1 under
the null, products of bets are a martingale, and so is their average over sortings: it ever reaches
1/δ with probability at most δ (Ville), for any contexts, in any order, at any length of log.

*Its power.* Beside these bets, which learn and promise nothing, stand fixed ones: for every set A
of the cells of a sorting, and stakes λ, Π exp(λ (1{Y ∈ A} − Q(A)) − λ²/8), whose mean is at most 1
(Hoeffding). Averaged over all sets they have a closed form in the surpluses of the cells, and they
promise to find a *drift* ε, the mean over the records of Pr(Y ∈ A) − Q(A) for the best A, from
`records_needed` records on. Of each context there is one output, so that nothing else can be
promised: deviations that point another way in every context, without regard to q/p, rank or the
draft's favourite, look like chance. And contexts must be many: a fault in a share f of them is
absent from m distinct ones with probability (1 − f)^m.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm.audit.budget import DETECT, USUAL, Errors, check_errors
from otm.audit.evidence import deviation, log_mean
from otm.audit.report import Audit, Coverage, Verdict, facts
from otm.audit.token_log import LogRecord, read_log
from otm.drafts import IID, CountedLaw, Law, WithoutReplacement
from otm.errors import InvalidParameter
from otm.pmf import check_instance
from otm.problem import Problem
from otm.results.statistics import Estimate
from otm.verbs import optimal_acceptance

_RATIO_EDGES = np.log([0.1, 0.5, 0.9, 1.0 - 1e-9, 1.0 + 1e-9, 1.1, 2.0, 10.0])
_RANK_EDGES = (1, 2, 4, 10, 100)
_SHRINKAGE = 10.0
_STAKES = tuple(2.0**-j for j in range(1, 9))
_FIXED_STAKES = 4.0 * 2.0 ** -np.arange(13.0)
_LEAST_DRIFT = 1e-3
_RISK = 0.05
"""Probability at most that the lower bound on the total variation is wrong."""

_SIZES = (len(_RATIO_EDGES) + 3, len(_RANK_EDGES) + 2, 2)
"""Numbers of cells by q/p, by rank, by favourite."""

_MOST_PARTS = 2 * len(_SIZES) + 1
"""Most e-values that are averaged: learning and fixed bets on each sorting, and the excess over the
optimum.
"""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogAudit(Audit):
    """The evidence of a log about the server behind the log; `str` gives the report in Markdown.

    Attributes:
        records: how many output tokens it holds.
        log_e_value: the largest logarithm of evidence along the log.
        alarm_at: number of the record at which it first reached log(1/`false_alarm`); None if it
            never did.
        variation_above: 95 % lower confidence bound on the mean over contexts of the total
            variation to the target.
        membership: 95 % interval of the mean over records of Pr(the output is among its drafts);
            None without drafts.
        optimum: mean of the contexts' optimal acceptances, where `law` was given.
        contexts: how many distinct laws of the target it holds, counted up to `contexts_needed`.
        drift: the drift that this many records find with probability at least 1 − `missed`; above 1
            they find none for sure.
        errors: the drift that was asked for, and the probabilities at most of an alarm for a
            lossless server, and of no alarm at `drift` or more.
    """

    records: int
    log_e_value: float
    alarm_at: int | None
    variation_above: float
    membership: Estimate | None
    optimum: float | None
    contexts: int
    drift: float
    errors: Errors

    @property
    def shows_enough(self) -> bool:
        """True if there are enough records and contexts to see the drift `detect`."""
        enough = self.contexts >= self.contexts_needed
        return enough and self.drift <= self.errors.level(DETECT)

    @property
    def verdict(self) -> Verdict:
        """The verdict: an alarm is false with probability at most `false_alarm`; without one the
        log must be long enough to see `detect`.
        """
        if self.alarm_at is not None:
            return "not lossless"
        return "no difference found" if self.shows_enough else "no verdict"

    @property
    def records_needed(self) -> int:
        """The number of records that find the drift `detect`."""
        return records_needed(self.errors)

    @property
    def contexts_needed(self) -> int:
        """The number of distinct contexts that include, but for probability `missed`, a context
        with a fault that touches a share `detect` of all.
        """
        return _contexts_needed(self.errors)

    @property
    def coverage(self) -> Coverage:
        """The log, and the faults that no log can show."""
        least = (
            f"fewer than {self.contexts_needed:,}"
            if self.contexts < self.contexts_needed
            else f"at least {self.contexts:,}"
        )
        return Coverage(
            instances=(self.name,),
            by=((f"a log of {self.records:,} records, {least} distinct contexts", 1),),
            false_alarm=self.errors.false_alarm,
            untested=(
                "contexts that are not in it",
                "deviations without a common direction in q/p, rank or the draft's favourite",
            ),
        )

    @property
    def severity(self) -> float:
        """The lower bound on the mean total variation."""
        return self.variation_above

    def picture(self, ax: Any) -> None:
        """Draw the evidence beside the level of an alarm."""
        drawing.draw_bars(
            ax,
            names=["evidence, nats", "alarm at"],
            values=[self.log_e_value, -math.log(self.errors.false_alarm)],
            xlabel="log of the evidence",
            digits=1,
        )

    def row(self) -> tuple[str, str, str]:
        """Return the lower bound on the total variation, and the number of records."""
        return f"≥ {self.variation_above:.4g}", "", f"{self.records:,} records"

    def sections(self) -> list[str]:
        """Return the evidence, the errors, and the bounds on total variation and acceptance."""
        at = self.alarm_at
        alarm = "never reached" if at is None else f"first reached at record {at:,}"
        level = math.log(1 / self.errors.false_alarm)
        at_most = f"at most e^{self.log_e_value:.4g}; the alarm at e^{level:.4g} was {alarm}"
        rare = f"false alarm ≤ {self.errors.false_alarm:g}, at any length of log; {self._power()}"
        least = f"at least {self.variation_above:.4g} in the mean over contexts (95 %)"
        rows = [
            ("records", f"{self.records:,}"),
            ("evidence", at_most),
            ("errors", rare),
            ("total variation", least),
        ]
        if self.membership is not None:
            optimum = "" if self.optimum is None else f"; the mean optimum is {self.optimum:.6g}"
            shown = f"by membership {self.membership.interval_text} (95 %){optimum}"
            rows.append(("acceptance", shown))
        return [facts(rows)]

    def _power(self) -> str:
        """Describe the drift that is found, and the records that the requested drift needs."""
        found = (
            f"a drift ≥ {self.drift:.3g} is missed with ≤ {self.errors.missed:g}"
            if self.drift <= 1.0
            else "any drift may be missed"
        )
        if self.shows_enough:
            return found
        needed = f"{self.records_needed:,} records of {self.contexts_needed:,} contexts"
        return f"{found}; a total variation of {self.errors.level(DETECT):g} needs {needed}"


def records_needed(errors: Errors = USUAL) -> int:
    """Return the number of records of a log in which a drift is found, a total variation between
    the cells of one sorting.

    n = min over stakes λ of the least n with n (λε − λ²/8) − λ√(n log(1/β)/2) ≥ log(1/δ) + log(all
    fixed bets): the fixed bet on the best cells then reaches 1/δ, its outputs falling short of
    their mean with probability at most β (Azuma).

    Args:
        errors: what is to be found, ε in [.001, 1], the mean over the records of Pr(Y ∈ A) − Q(A)
            for the best set A of cells; δ in (0, 1/2], the probability of an alarm for a lossless
            server, and β in (0, 1/2], that of no alarm at ε.

    Returns:
        n.

    Raises:
        InvalidParameter: if a probability is out of its range.

    Cost: O(1). Reference: docs/theory.md, "Audits".

    >>> import otm
    >>> records_needed(), records_needed(otm.audit.Errors(detect=0.1))
    (88503, 3515)
    """
    drift, missing = check_errors(errors).level(DETECT, low=_LEAST_DRIFT), errors.missed
    stakes = _FIXED_STAKES[8.0 * drift > _FIXED_STAKES]  # larger ones lose in the mean
    gain, luck = stakes * drift - stakes**2 / 8, stakes * deviation(missing)
    hurdle = _hurdle(errors)
    return math.ceil(float(((luck + np.sqrt(luck**2 + 4 * gain * hurdle)) / (2 * gain)).min()) ** 2)


def _contexts_needed(errors: Errors) -> int:
    """Return m with (1 − ε)^m ≤ e^{−εm} ≤ β."""
    return math.ceil(math.log(1.0 / errors.missed) / errors.level(DETECT))


def _hurdle(errors: Errors) -> float:
    """Return the logarithm that one fixed bet must reach for an alarm."""
    bets = _MOST_PARTS * len(_FIXED_STAKES)
    return math.log(bets / errors.false_alarm) + max(_SIZES) * math.log(2.0)


def _drift_found(records: int, errors: Errors) -> float:
    """Return the smallest drift that a number of records finds: the inverse of `records_needed`."""
    over_stakes = _FIXED_STAKES / 8 + _hurdle(errors) / (_FIXED_STAKES * records)
    return deviation(errors.missed) / math.sqrt(records) + float(over_stakes.min())


def server_log(
    records: str | Path | Iterable[LogRecord],
    *,
    name: str = "",
    law: Law | None = None,
    errors: Errors = USUAL,
) -> LogAudit:
    r"""Test whether the outputs in a log have the laws of the records.

    Args:
        records: in the order of the text: the path of a JSONL file (the format is at the head of
            `otm.audit.token_log`), read line by line in constant memory, or the records themselves.
        name: what to call the log in the report; the file's name, or "log", if empty.
        law: how the drafts were drawn, if it is known: acceptance beyond the optimum is evidence
            too.
        errors: the drift ε in [.001, 1] that must not go unnoticed (a log too short to show it, or
            of too few contexts, gets no verdict), and how often the test may be wrong.

    Returns:
        LogAudit.

    Raises:
        InvalidRecord: on the first line that is no record (NaN, wrong sizes, probabilities that do
            not add up, a line too long).
        InvalidParameter: if the file is none, there is no record, or a probability is out of range.

    Cost: O(V log V) per record. Reference: docs/theory.md, "Audits"; Ville 1939; Azuma 1967.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "outputs.jsonl")
    ...     _ = path.write_text('{"output": 1, "target": [0.5, 0.5]}\n' * 80)
    ...     server_log(path).verdict  # eighty times the same of two equally likely tokens
    'not lossless'
    """
    check_instance(name, str, name="name")
    if isinstance(records, str | Path):
        name = name or Path(records).name
        return server_log(read_log(records), name=name, law=law, errors=errors)
    smallest = check_errors(errors).level(DETECT, low=_LEAST_DRIFT)
    errors = dataclasses.replace(errors, detect=smallest)
    if law is not None and not check_instance(law, Law, name="law").one_drafter:
        raise InvalidParameter(
            f"A record holds one draft distribution; {law!r} has one for each draft. Leave law out."
        )
    try:
        along = iter(records)
    except (TypeError, RuntimeError) as error:  # the latter from a tensor without data
        raise InvalidParameter(
            f"A log must be a file's path or its records; got {records!r:.80}. Pass one of these."
        ) from error
    state = _State(law, errors)
    for record in along:
        state.add(check_instance(record, LogRecord, name="A record of a log"))
    count = state.records
    if not count:
        raise InvalidParameter(
            "A log must hold at least one record; this one is empty. Check the path."
        )
    mean, slack = state.members / count, deviation(0.025) / math.sqrt(count)
    membership = Estimate(mean, max(0.0, mean - slack), min(1.0, mean + slack))
    return LogAudit(
        name=name or "log",
        records=count,
        log_e_value=state.best,
        alarm_at=state.alarm_at,
        variation_above=state.variation_above(_RISK),
        membership=membership if state.drafted else None,
        optimum=state.optima / state.judged if state.judged else None,
        contexts=len(state.contexts),
        drift=_drift_found(count, errors),
        errors=errors,
    )


@dataclasses.dataclass(eq=False)
class _Sorting:
    """One way to sort tokens into cells, and the betting on this sorting."""

    seen: NDArray[np.float64]
    expected: NDArray[np.float64]
    log_wealth: float = 0.0

    def bet(self, cells: NDArray[np.int64], mass: NDArray[np.float64], hit: int) -> float:
        """Bet on the earlier counts, then update the counts; return the surplus of the favoured
        cells' outputs over the expectation.
        """
        factors = (self.seen + _SHRINKAGE) / (self.expected + _SHRINKAGE)
        sizes = self.expect(cells, mass)
        chosen = cells[hit]
        favoured = factors > 1.0
        surplus = float(favoured[chosen]) - float(sizes[favoured].sum())
        self.log_wealth += math.log(factors[chosen]) - math.log(float(factors @ sizes))
        self.seen[chosen] += 1.0
        return surplus

    def expect(self, cells: NDArray[np.int64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count the mass of each cell as expected, and return the masses."""
        sizes: NDArray[Any] = np.bincount(cells, weights=mass, minlength=len(self.seen))
        self.expected += sizes
        return sizes

    def log_fixed(self, records: int) -> float:
        """Return the fixed bets' e-value, the mean over sets A and stakes λ of exp(λ Σ_{c ∈ A}
        surplus_c − nλ²/8).
        """
        surplus = self.seen - self.expected
        over_sets = np.logaddexp(0.0, np.multiply.outer(_FIXED_STAKES, surplus)).sum(axis=-1) - len(
            surplus
        ) * math.log(2.0)
        return log_mean(*(over_sets - records * _FIXED_STAKES**2 / 8).tolist())


class _State:
    """The test martingale along a log."""

    def __init__(self, law: Law | None, errors: Errors) -> None:
        self.law, self.errors = law, errors
        self.contexts: set[int] = set()
        self.sortings = [_Sorting(np.zeros(count), np.zeros(count)) for count in _SIZES]
        self.log_excess = np.zeros(len(_STAKES))
        self.drafted = True
        self.records = self.members = self.judged = self.impossible = 0
        self.surplus = self.optima = self.best = 0.0
        self.alarm_at: int | None = None

    @property
    def log_e_value(self) -> float:
        if self.impossible:
            return math.inf
        wealths = [sorting.log_wealth for sorting in self.sortings]
        wealths += [sorting.log_fixed(self.records) for sorting in self.sortings]
        if self.law is not None:
            wealths += [log_mean(*self.log_excess.tolist())]
        return log_mean(*wealths)

    def variation_above(self, risk: float) -> float:
        """Return a lower bound on the mean total variation, wrong with probability `risk` at most.

        The largest of the surplus that was bet on, and of each sorting's best set of cells in
        hindsight, which is one of 2^C; outputs without mass are a cell of their own. By Azuma's
        inequality, the risk divided among all of these.
        """
        each = risk / (1 + len(self.sortings))
        bounds = [self.surplus - deviation(each) * math.sqrt(self.records)]
        for sorting in self.sortings:
            surplus = np.append(sorting.seen - sorting.expected, self.impossible)
            one_of_all = deviation(each / 2.0 ** len(surplus)) * math.sqrt(self.records)
            bounds.append(float(np.maximum(surplus, 0.0).sum()) - one_of_all)
        return max(0.0, *bounds) / self.records

    def add(self, record: LogRecord) -> None:
        """Bet on one output, and note an alarm."""
        hit, mass = record.cell, record.target
        self.records += 1
        if len(self.contexts) < _contexts_needed(self.errors):
            # a digest of the laws: a name can be new where nothing else is
            self.contexts.add(hash((record.tokens.tobytes(), mass.tobytes())))
        cells = _by_ratio(record), _by_rank(mass), _by_favourite(record)
        sorted_in = [*zip(self.sortings, cells, strict=True)]
        if mass[hit] == 0.0:
            self.impossible += 1
            for sorting, cell in sorted_in:
                sorting.expect(cell, mass)
        else:
            surpluses = [sorting.bet(cell, mass, hit) for sorting, cell in sorted_in]
            self.surplus += surpluses[0]
            member = bool((record.drafts == record.output).any())
            self.drafted = self.drafted and record.drafts.size > 0
            self.members += member
            self._judge(record, member)
        reached = self.log_e_value
        self.best = max(self.best, reached)
        if self.alarm_at is None and reached >= math.log(1.0 / self.errors.false_alarm):
            self.alarm_at = self.records

    def _judge(self, record: LogRecord, member: bool) -> None:
        """Bet that the output is among the drafts more often than the optimum allows."""
        if self.law is None or record.draft is None:
            return
        if isinstance(self.law, CountedLaw) and record.drafts.size != self.law.k:
            return
        optimum = _most_accepted(self.law, record.draft, record.target)
        self.judged += 1
        self.optima += optimum
        level, stakes = optimum + 1e-9, np.asarray(_STAKES)
        if level < 1.0:
            odds = (1.0 - level) / level if member else -1.0
            self.log_excess += np.log1p(stakes * odds)


def _most_accepted(law: Law, draft: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Return an upper bound on the optimum, with the unlisted tokens counted as one token.

    Merging tokens can only raise the optimum where drafts are drawn: the first k distinct cells of
    a stream of tokens hold those of the first k distinct tokens. Where the likeliest tokens are
    drafted as such, an unlisted part must not pass for one of them.
    """
    if isinstance(law, CountedLaw):
        listed = np.sort(draft[:-1])[::-1][: law.k]
        likeliest_are_listed = draft[-1] == 0.0 or (len(listed) == law.k and draft[-1] < listed[-1])
        if law.k > len(draft) or not (
            isinstance(law, IID | WithoutReplacement) or likeliest_are_listed
        ):
            return 1.0
    return float(optimal_acceptance(Problem(draft=draft, target=target, law=law)))


def _by_ratio(record: LogRecord) -> NDArray[np.int64]:
    """Sort tokens by q/p: one cell if p is unknown, and a further cell for unlisted tokens."""
    cells = np.full(len(record.target), len(_RATIO_EDGES) + 1, dtype=np.int64)
    if record.draft is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(record.target) - np.log(record.draft)
        cells = np.searchsorted(_RATIO_EDGES, np.nan_to_num(ratio, nan=0.0))
    cells[-1] = len(_RATIO_EDGES) + 2
    return np.asarray(cells, dtype=np.int64)


def _by_rank(mass: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort tokens by the rank under q."""
    rank = np.empty(len(mass), dtype=np.int64)
    rank[np.argsort(-mass[:-1], kind="stable")] = np.arange(len(mass) - 1)
    rank[-1] = len(mass)
    cells = np.searchsorted(_RANK_EDGES, rank, side="right")
    cells[-1] = len(_RANK_EDGES) + 1
    return np.asarray(cells, dtype=np.int64)


def _by_favourite(record: LogRecord) -> NDArray[np.int64]:
    """Separate the token that p ranks first, or q if p is unknown, from the others."""
    mass = record.target if record.draft is None else record.draft
    return np.asarray(np.arange(len(mass)) == int(mass[:-1].argmax()), dtype=np.int64)
