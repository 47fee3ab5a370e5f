"""The audit of an engine's counters: acceptance by position, which no lossless scheme can raise
above the overlap of the models.

Counts of accepted drafts know neither the laws nor the outputs, so they can accuse and cannot
acquit. A lossless scheme writes Y with the target's law, whatever it does with the draft X, and
accepts at least i drafts only where Y begins with the first i of X; so

    Pr(at least i accepted) ≤ Σ min(P_i, Q_i) ≤ Σ min(p, q)  for i = 1,

P_i and Q_i the laws of i tokens, and for several drafts of a position the optimum α*. A scheme
whose output is off by a total variation ε exceeds that by at most ε: what is above the bound is a
lower bound on the total variation, of any scheme.

Let b_i be the mean over the steps of what is possible at position i. Given what came before, step t
accepts i drafts with probability at most b_{i,t}, so that the excess is a supermartingale whose
differences have range 1, and Pr(A_i/n − b_i ≥ √(log(1/δ)/2n)) ≤ δ for any contexts in any order
(Azuma, Hoeffding). Drafts that were not made count as rejected, which takes from the excess only.
Counts that were printed as rounded rates are taken at the lower end of what they round.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm.audit.budget import USUAL, Errors, check_errors
from otm.audit.evidence import deviation
from otm.audit.report import Audit, Coverage, Verdict, facts, format_probability
from otm.engines import AcceptanceRecord, read_acceptance
from otm.errors import InvalidParameter
from otm.pmf import check_instance, plain_reals

_ROUNDED = 5e-3
"""Relative error of counts made of printed rates."""

_UNCERTAIN = 0.05
"""Probability with which the bound on the total variation is wrong."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AcceptanceAudit(Audit):
    """The verdict of recorded acceptance counts on an engine; `str` gives the report in Markdown.

    Attributes:
        record: as it was read.
        rates: share of steps that accepted at least 1, 2, … drafts, `(L,)`; empty if the record
            holds none.
        possible: the most that a lossless scheme accepts, `(m,)`, m ≤ L; empty if it is not known.
        false_alarm: probability at most of an alarm for a lossless engine.
        missed: probability at most of no alarm at an excess of `found`.
    """

    record: AcceptanceRecord
    rates: NDArray[np.float64]
    possible: NDArray[np.float64]
    false_alarm: float
    missed: float

    @property
    def excess(self) -> float:
        """The largest excess of a rate over the possible acceptance; negative where no rate exceeds
        the bound, −1 if no bound is known.
        """
        if not self.possible.size:
            return -1.0
        counts = (self.record.steps or 0.5, *self.record.survivors.tolist())
        least = 1.0 if all(count == round(count) for count in counts) else 1.0 - _ROUNDED
        return float((self.rates[: self.possible.size] * least - self.possible).max())

    @property
    def found(self) -> float:
        """The excess that raises an alarm but for probability `missed`; 1 if no alarm is
        possible.
        """
        if not self.possible.size or not self.record.steps:
            return 1.0
        luck = deviation(self.missed) / math.sqrt(self.record.steps)
        return min(1.0, self._threshold(self.false_alarm) + luck)

    @property
    def verdict(self) -> Verdict:
        """The verdict: "not lossless" if the excess passes the threshold, else "no verdict"; an
        alarm is false with probability at most `false_alarm`.
        """
        return "not lossless" if self.excess > self._threshold(self.false_alarm) else "no verdict"

    @property
    def severity(self) -> float:
        """A lower bound on the total variation, wrong with probability 5 %."""
        return max(0.0, self.excess - self._threshold(_UNCERTAIN))

    @property
    def coverage(self) -> Coverage:
        """The record, and the faults that no count can show."""
        steps = "" if self.record.steps is None else f" of {self.record.steps:,.0f} steps"
        return Coverage(
            instances=(self.name,),
            drafts=tuple(range(1, max(1, self.rates.size) + 1)),
            by=((f"a record{steps}, {self.record.form}", 1),),
            false_alarm=self.false_alarm,
            untested=(
                "any fault that does not raise acceptance above what is possible",
                "the law of the outputs",
            ),
        )

    def picture(self, ax: Any) -> None:
        """Draw the recorded rates beside the possible acceptance."""
        ks = list(range(1, self.rates.size + 1))
        lines = [drawing.Line("recorded", ks, self.rates.tolist())]
        if self.possible.size:
            most = self.possible.tolist()
            lines.append(drawing.Line("possible", ks[: len(most)], most, best=True))
        drawing.draw_lines(
            ax,
            lines,
            xlabel="at least so many accepted",
            ylabel="share of the steps",
            ticks=ks,
        )

    def row(self) -> tuple[str, str, str]:
        """Return the lower bound on the total variation, and the number of steps."""
        return f"≥ {self.severity:.4g}", "", f"{self.record.steps or 0:,.0f} steps"

    def sections(self) -> list[str]:
        """Return the rates beside the possible acceptance, the errors, and the data still
        needed.
        """
        record, shown = self.record, format_probability
        rows = [("record", f"{record.form}, {record.unit}s: {len(record.parts):,}")]
        for i, rate in enumerate(self.rates.tolist()):
            most = ""
            if i < self.possible.size:
                most = f"; at most {shown(float(self.possible[i]))} is possible"
            rows.append((f"at least {i + 1} accepted", f"{shown(rate)} of the steps{most}"))
        if self.possible.size and record.steps:
            alarm = self._threshold(self.false_alarm)
            missed = f"an excess ≥ {self.found:.4g} is missed with ≤ {self.missed:g}"
            rows += [
                ("excess", f"{self.excess:.4g}; the alarm is at {alarm:.4g}"),
                ("errors", f"false alarm ≤ {self.false_alarm:g}; {missed}"),
                ("total variation", f"at least {self.severity:.4g} (95 %)"),
            ]
        accused = self.verdict == "not lossless"
        return [facts(rows)] if accused else [facts(rows), self._missing()]

    def _missing(self) -> str:
        """Name the data that a verdict needs."""
        laws = (
            "Log each output token with the law that it should have (`otm.audit.token_log`) for a "
            "verdict on the outputs."
        )
        if not self.rates.size:
            return (
                "The record holds means only, and no acceptance by position to compare with what "
                f"is possible. {laws}"
            )
        if not self.record.steps:
            return f"The record holds rates without the number of steps behind them. {laws}"
        if not self.possible.size:
            return (
                "Acceptance alone accuses nobody: say how much is possible, the mean over the same "
                "steps of Σ min(p, q) at each "
                f"position (`expected`, --expected .8,.62), and more than that is an alarm. {laws}"
            )
        if self.excess > 0.0:
            return (
                f"Acceptance is {self.excess:.4g} higher than expected; these are too few steps to "
                "call that more than chance, "
                f"with false alarms ≤ {self.false_alarm:g}. Record more steps. {laws}"
            )
        return (
            "Acceptance is no higher than a lossless scheme can have it, which a lossy one may "
            f"have, too. {laws}"
        )

    def _threshold(self, false_alarm: float) -> float:
        """Return the excess that chance explains, at most 1."""
        if not self.record.steps:
            return 1.0
        rare = false_alarm / max(1, self.possible.size)
        return deviation(rare) / math.sqrt(self.record.steps)


def acceptance_counts(
    record: AcceptanceRecord | str | os.PathLike[str],
    *,
    expected: Sequence[float] = (),
    name: str = "",
    errors: Errors = USUAL,
) -> AcceptanceAudit:
    r"""Test whether an engine accepts more drafts than a lossless scheme can.

    Args:
        record: what the engine wrote, as `otm.engines.read_acceptance` reads it, or the path of it.
        expected: the most that is possible, by position: the mean over the record's steps of Σ
            min(p, q) for the first draft, of Σ min(P_i, Q_i) for the first i of them; empty if it
            is not known. Measured on other contexts it is an assumption.
        name: what to call the record in the report; the file's name, or "record", if empty.
        errors: how often there may be an alarm for a lossless engine, and none at an excess of the
            result's `found`; what they are to find is not asked.

    Returns:
        AcceptanceAudit: "not lossless" or "no verdict", with what is missing; counts cannot acquit.

    Raises:
        InvalidParameter: if the record cannot be read, or a number is out of range.

    Cost: O(parts). Reference: docs/theory.md, "Audits"; Azuma 1967, Hoeffding 1963.

    >>> import tempfile
    >>> counters = (
    ...     "vllm:spec_decode_num_drafts_total 10000\n"
    ...     "vllm:spec_decode_num_draft_tokens_total 10000\n"
    ...     "vllm:spec_decode_num_accepted_tokens_total 9000\n"
    ...     'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9000\n'
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "counters.txt")
    ...     _ = file.write_text(counters)
    ...     [acceptance_counts(file, expected=most).verdict for most in ([0.8], [0.9], [])]
    ['not lossless', 'no verdict', 'no verdict']
    """
    check_instance(name, str, name="name")
    errors = check_errors(errors)
    if not isinstance(record, AcceptanceRecord):
        name = name or Path(record).name
        record = read_acceptance(record)
    unknown = isinstance(expected, Sequence) and not len(expected)
    most = np.zeros(0) if unknown else plain_reals(expected, "expected")
    if most.ndim != 1 or not ((most >= 0.0) & (most <= 1.0)).all() or (np.diff(most) > 0.0).any():
        raise InvalidParameter(
            f"expected must be falling probabilities by position; got {expected!r:.80}. Pass [0.8, "
            "0.62], say."
        )
    rates = np.zeros(0)
    if record.measured and record.counted:
        total = sum(part.steps for part in record.parts)
        rates = np.asarray(record.survivors / total, dtype=np.float64)
    return AcceptanceAudit(
        name=name or "record",
        record=record,
        rates=rates,
        possible=np.asarray(most[: rates.size], dtype=np.float64),
        false_alarm=errors.false_alarm,
        missed=errors.missed,
    )
