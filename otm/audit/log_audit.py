"""Auditing what a server logged: many contexts, each seen once, tested together.

What a log holds, and how it is read: `otm.audit.records`.

*The null.* Given what came before it, output t has law q_t. True of every output token of a lossless server in order of the text,
the tokens of one target call one after the other. Not true of tokens picked by what became of their drafts ("log the rejections").
q_t is the law without regard to which drafts were proposed, so the test never looks at the drafts to bet on the output. Where `law`
is given it also counts how often they were right; log the first token of each target call then, or a scheme that decides token by
token: block verification accepts later tokens more often than their own optimum.

*The test.* Tokens are sorted into a few cells by what is known before the output: by q/p, by rank under q, by whether p ranks them
first. For each sorting w_c is the number of outputs in cell c so far over the number expected, shrunk to 1. The bet
Σ_c w_c 1{Y ∈ c} / Σ_c w_c Q(c) has mean 1 under the null, products of bets are a martingale, and so is their average over sortings:
it ever reaches 1/δ with probability at most δ (Ville), for any contexts, in any order, at any length of log.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otm.audit.evidence import ConfidenceInterval, deviation, log_mean
from otm.audit.markdown import table
from otm.audit.records import LogRecord, read_log
from otm.audit.verdicts import Audit, Verdict
from otm.drafts import IID, Law, WithoutReplacement
from otm.errors import InvalidParameter
from otm.pmf import check_instance, check_real
from otm.problem import Problem
from otm.verbs import optimal_acceptance

_RATIO_EDGES = np.log([0.1, 0.5, 0.9, 1.0 - 1e-9, 1.0 + 1e-9, 1.1, 2.0, 10.0])
_RANK_EDGES = (1, 2, 4, 10, 100)
_SHRINKAGE = 10.0
_STAKES = tuple(2.0**-j for j in range(1, 9))


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogAudit(Audit):
    """What a log says about the server that wrote it; `str` gives the report in Markdown.

    Attributes:
        name: of the log.
        records: how many output tokens it holds.
        log_e_value: the largest logarithm of evidence along the log.
        alarm_at: number of the record at which it first reached log(1/`false_alarm`); None if it never did.
        variation_above: 95 % lower confidence bound on the mean over contexts of the total variation to the target.
        membership: 95 % interval of the mean over records of Pr(the output is among its drafts); None without drafts.
        optimum: mean of the contexts' optimal acceptances, where `law` was given.
        false_alarm: probability at most of an alarm for a lossless server.
    """

    records: int
    log_e_value: float
    alarm_at: int | None
    variation_above: float
    membership: ConfidenceInterval | None
    optimum: float | None
    false_alarm: float

    def __repr__(self) -> str:
        return f"LogAudit({self.name!r}, {self.verdict}, records={self.records}, log_e_value={self.log_e_value:.4g})"

    @property
    def verdict(self) -> Verdict:
        """An alarm is false with probability at most `false_alarm`."""
        return "no difference found" if self.alarm_at is None else "not lossless"

    def figures(self) -> str:
        """Return the report without its heading."""
        alarm = "never reached" if self.alarm_at is None else f"first reached at record {self.alarm_at:,}"
        level = math.log(1 / self.false_alarm)
        rows = [
            ("records", f"{self.records:,}"),
            ("evidence", f"at most e^{self.log_e_value:.4g}; the alarm at e^{level:.4g} was {alarm}"),
            ("errors", f"false alarm ≤ {self.false_alarm:g}, at any length of log"),
            ("total variation", f"at least {self.variation_above:.4g} in the mean over contexts (95 %)"),
        ]
        if self.membership is not None:
            optimum = "" if self.optimum is None else f"; the mean optimum is {self.optimum:.6g}"
            rows.append(("acceptance", f"by membership {self.membership} (95 %){optimum}"))
        return table(("", ""), rows)


def log(
    records: str | Path | Iterable[LogRecord], *, name: str = "", law: Law | None = None, false_alarm: float = 1e-9
) -> LogAudit:
    r"""Test whether the outputs in a log have the laws that their records give.

    Args:
        records: in the order of the text: the path of a JSONL file (the format is at the head of `otm.audit.records`), read line by
            line in constant memory, or the records themselves.
        name: what to call the log in the report; the file's name, or "log", if empty.
        law: how the drafts were drawn, if it is known: acceptance beyond the optimum is evidence too.
        false_alarm: probability at most of an alarm for a lossless server.

    Returns:
        LogAudit.

    Raises:
        InvalidRecord: on the first line that is no record (NaN, wrong sizes, probabilities that do not add up, a line too long).
        InvalidParameter: if the file is none, there is no record, or false_alarm is out of range.

    Cost: O(V log V) per record. Reference: docs/theory.md, "Audits"; Ville 1939; Azuma 1967.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "outputs.jsonl")
    ...     _ = path.write_text('{"output": 1, "target": [0.5, 0.5]}\n' * 80)
    ...     log(path).verdict  # eighty times the same of two equally likely tokens
    'not lossless'
    """
    check_instance(name, str, name="name")
    if isinstance(records, str | Path):
        return log(read_log(records), name=name or Path(records).name, law=law, false_alarm=false_alarm)
    level = check_real(false_alarm, name="false_alarm", low=0.0, high=1.0, open_low=True)
    if law is not None and not isinstance(law, Law):
        raise InvalidParameter(
            f"law must be a draft law such as otm.IID(4), or None; got {law!r}. Choose one of otm.drafts.LAWS."
        )
    if law is not None and not law.one_drafter:
        raise InvalidParameter(f"A record holds one draft distribution; {law!r} has one for each draft. Leave law out.")
    state = _State(law)
    best, alarm_at = 0.0, None
    try:
        along = iter(records)
    except (TypeError, RuntimeError) as error:  # the latter from a tensor without data
        raise InvalidParameter(
            f"A log must be a file's path or its records; got {records!r:.80}. Pass one of these."
        ) from error
    for record in along:
        state.add(check_instance(record, LogRecord, name="A record of a log"))
        best = max(best, state.log_e_value)
        if alarm_at is None and state.log_e_value >= math.log(1.0 / level):
            alarm_at = state.records
    if not state.records:
        raise InvalidParameter("A log must hold at least one record; this one is empty. Check the path.")
    slack = deviation(0.025) / math.sqrt(state.records)
    mean = state.members / state.records
    return LogAudit(
        name=name or "log",
        records=state.records,
        log_e_value=best,
        alarm_at=alarm_at,
        variation_above=max(0.0, state.surplus / state.records - deviation(0.05) / math.sqrt(state.records)),
        membership=ConfidenceInterval(max(0.0, mean - slack), min(1.0, mean + slack)) if state.drafted else None,
        optimum=state.optima / state.judged if state.judged else None,
        false_alarm=level,
    )


@dataclasses.dataclass(eq=False)
class _Sorting:
    """One way to sort tokens into cells, and the betting on it."""

    seen: NDArray[np.float64]
    expected: NDArray[np.float64]
    log_wealth: float = 0.0

    def bet(self, cells: NDArray[np.int64], mass: NDArray[np.float64], hit: int) -> float:
        """Bet with what was learnt before, then learn; return how far the favoured cells' outputs exceeded their expectation."""
        sizes = np.bincount(cells, weights=mass, minlength=len(self.seen))
        factors = (self.seen + _SHRINKAGE) / (self.expected + _SHRINKAGE)
        chosen = cells[hit]
        favoured = factors > 1.0
        surplus = float(favoured[chosen]) - float(sizes[favoured].sum())
        self.log_wealth += math.log(factors[chosen]) - math.log(float(factors @ sizes))
        self.seen[chosen] += 1.0
        self.expected += sizes
        return surplus


class _State:
    """The martingale along a log."""

    def __init__(self, law: Law | None) -> None:
        def sorting(count: int) -> _Sorting:
            return _Sorting(np.zeros(count), np.zeros(count))

        self.law = law
        self.sortings = [sorting(len(_RATIO_EDGES) + 3), sorting(len(_RANK_EDGES) + 2), sorting(2)]
        self.log_excess = np.zeros(len(_STAKES))
        self.impossible = False
        self.records = self.members = self.judged = 0
        self.drafted = True
        self.surplus = self.optima = 0.0

    @property
    def log_e_value(self) -> float:
        if self.impossible:
            return math.inf
        wealths = [sorting.log_wealth for sorting in self.sortings]
        if self.law is not None:
            wealths += [log_mean(*self.log_excess.tolist())]
        return log_mean(*wealths)

    def add(self, record: LogRecord) -> None:
        """Bet on one output."""
        hit, mass = record.cell, record.target
        self.records += 1
        if mass[hit] == 0.0:
            self.impossible = True
            return
        cells = [_by_ratio(record), _by_rank(mass), _by_favourite(record)]
        surpluses = [sorting.bet(cell, mass, hit) for sorting, cell in zip(self.sortings, cells, strict=True)]
        self.surplus += surpluses[0]
        member = bool((record.drafts == record.output).any())
        self.drafted = self.drafted and record.drafts.size > 0
        self.members += member
        if self.law is not None and record.draft is not None and record.drafts.size == self.law.k:
            self._judge(_most_accepted(self.law, record.draft, record.target), member)

    def _judge(self, optimum: float, member: bool) -> None:
        """Bet that the output is among the drafts more often than the optimum allows."""
        self.judged += 1
        self.optima += optimum
        level = optimum + 1e-9
        if level < 1.0:
            stakes = np.asarray(_STAKES)
            self.log_excess += np.log1p(stakes * (1.0 - level) / level) if member else np.log1p(-stakes)


def _most_accepted(law: Law, draft: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Return a bound on the optimum, the unlisted tokens, which come last, counting as one.

    Merging tokens can only raise the optimum where drafts are drawn: the first k distinct cells of a stream of tokens hold those of
    the first k distinct tokens. Where the likeliest tokens are drafted as such, an unlisted part must not pass for one of them.
    """
    listed = np.sort(draft[:-1])[::-1][: law.k]
    likeliest_are_listed = draft[-1] == 0.0 or (len(listed) == law.k and draft[-1] < listed[-1])
    if law.k > len(draft) or not (isinstance(law, IID | WithoutReplacement) or likeliest_are_listed):
        return 1.0
    return float(optimal_acceptance(Problem(draft=draft, target=target, law=law)))


def _by_ratio(record: LogRecord) -> NDArray[np.int64]:
    """Sort tokens by q/p; one cell for all if the draft's law is unknown, one more for what is not listed."""
    cells = np.full(len(record.target), len(_RATIO_EDGES) + 1, dtype=np.int64)
    if record.draft is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(record.target) - np.log(record.draft)
        cells = np.searchsorted(_RATIO_EDGES, np.nan_to_num(ratio, nan=0.0))
    cells[-1] = len(_RATIO_EDGES) + 2
    return np.asarray(cells, dtype=np.int64)


def _by_rank(mass: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort tokens by their rank under q."""
    rank = np.empty(len(mass), dtype=np.int64)
    rank[np.argsort(-mass[:-1], kind="stable")] = np.arange(len(mass) - 1)
    rank[-1] = len(mass)
    cells = np.searchsorted(_RANK_EDGES, rank, side="right")
    cells[-1] = len(_RANK_EDGES) + 1
    return np.asarray(cells, dtype=np.int64)


def _by_favourite(record: LogRecord) -> NDArray[np.int64]:
    """Tell the token that p ranks first from the others; that q ranks first if p is unknown."""
    mass = record.target if record.draft is None else record.draft
    return np.asarray(np.arange(len(mass)) == int(mass[:-1].argmax()), dtype=np.int64)
