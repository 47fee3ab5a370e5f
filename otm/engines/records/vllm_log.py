"""vLLM's log line, one for each window of some seconds.

"SpecDecoding metrics: Mean acceptance length: 2.40, … Accepted: 14 tokens, Drafted: 20 tokens,
Per-position acceptance rate: 0.800, 0.600, Avg Draft acceptance rate: 70.0%". The mean counts the
bonus token; rates are steps that accepted at least i drafts over steps, to three decimals. A
window's steps are not printed. Where every step drafted as many tokens as there are rates, they are
drafted tokens over positions; otherwise accepted tokens over the sum of the rates give them to the
rounding. Windows cut requests in pieces; they are no independent samples, and are added up by
engine and draft length.

A line that was cut, or put together from two, misses its own mean, and is left out. Calls that
drafted nothing are not in the line; the generation throughput of the line before tells roughly
whether there were any.

vLLM V0: "Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, Number of
speculative tokens: 3, Number of accepted tokens: 8547, Number of draft tokens: 13311, Number of
emitted tokens: 10616." Totals since the start, the target's tokens emitted too; a smaller total is
a new start. Its accepted tokens are counted wherever they stand, also behind a rejected one: 1 +
8547/4437 is more than the 10616/4437 tokens that a step emitted.

Source of the form: github.com/vllm-project/vllm, vllm/v1/spec_decode/metrics.py at 016a8587
(`SpecDecodingLogging.log`); of V0, as printed by versions 0.5.3 and 0.6.3.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np

from otm.engines.records.document import Document, Form, count
from otm.engines.records.record import UNCOUNTED, AcceptanceRecord
from otm.engines.records.tally import Tally, told_apart
from otm.errors import InvalidParameter

_RATES = re.compile(r"Per-position acceptance rate:\s+([01]\.\d{3}(?:,\s+[01]\.\d{3})*)")
_MEAN = re.compile(r"Mean acceptance length:\s+(\d+\.\d+),")
_SUMS = re.compile(r"Accepted:\s+(\d+)\s+tokens,\s+Drafted:\s+(\d+)\s+tokens")
_SPEED = re.compile(r"Accepted throughput:\s+(\d+\.\d+)")
_GENERATED = re.compile(r"Avg generation throughput:\s+(\d+\.\d+)")
_PROCESS, _ENGINE = re.compile(r"\((\w+ pid=\d+)\)"), re.compile(r"(Engine \d+)\b")
_TOTALS = re.compile(
    r"Number of speculative tokens: (\d+), Number of accepted tokens: \d+, Number of draft tokens"
    r"(?: tokens)?: (\d+), Number of emitted tokens(?: tokens)?: (\d+)\."
)
_LINE = 700  # characters before the rates that may belong to them, and to the line before
_HALF = 0.0005  # three decimals
_MANY = 0.9  # below this share of the calls explained by the counts, the log says so


@dataclasses.dataclass(frozen=True)
class _Window:
    """One line: its engine, rates, and counts, None where the line lacks them.

    Attributes:
        made: tokens that the throughput tells for the window, 0 if its length is unknown.
    """

    engine: str
    rates: tuple[float, ...]
    mean: float | None
    sums: tuple[int, int] | None
    made: float

    @property
    def whole(self) -> bool:
        """True if the rates give the line's own mean, and do not rise, to their rounding."""
        slack = _HALF * (1 + len(self.rates)) + 1e-9
        steady = all(
            later <= sooner + 2 * _HALF + 1e-9
            for sooner, later in zip(self.rates, self.rates[1:], strict=False)
        )
        told = 1.0 + math.fsum(self.rates) if self.mean is None else self.mean
        return steady and abs(1.0 + math.fsum(self.rates) - told) <= slack + 0.005

    @property
    def steps(self) -> tuple[float, bool]:
        """The steps of the window, and whether each drafted as many tokens as there are rates."""
        if self.sums is None:
            return 0.0, False
        accepted, drafted = self.sums
        length, total = len(self.rates), math.fsum(self.rates)
        slack, equal = _HALF * length, drafted / length
        constant = drafted % length == 0 and abs(accepted - total * equal) <= slack * equal
        return (equal if constant or not (accepted and total) else accepted / total), constant


def _windows(text: str) -> Iterator[_Window]:
    """Yield the windows; what stands before the rates, back to the last window, is theirs."""
    end = 0
    for match in _RATES.finditer(text):
        start = max(end, match.start() - _LINE)
        before, end = text[start : match.start()], match.end()
        line = before[before.rfind("\n") + 1 :]
        sums, speed = _SUMS.search(before), _SPEED.search(before)
        mean, engine = _MEAN.search(before), _PROCESS.search(line) or _ENGINE.search(line)
        generated = _GENERATED.findall(before)
        counts = None if sums is None else (count(sums[1], "Accepted"), count(sums[2], "Drafted"))
        each = float(speed[1]) if speed else 0.0
        seconds = counts[0] / each if counts and each else 0.0
        yield _Window(
            engine=engine[1] if engine else "server",
            rates=tuple(map(float, match[1].split(","))),
            mean=float(mean[1]) if mean else None,
            sums=counts,
            made=seconds * float(generated[-1]) if generated else 0.0,
        )


def _read(document: Document) -> AcceptanceRecord:
    totals = _TOTALS.findall(document.text)
    if totals:
        return _v0([tuple(count(value, "a total") for value in line) for line in totals])
    found = list(_windows(document.text))
    kept = [window for window in found if window.whole]
    if not kept:
        raise InvalidParameter(
            f"A line's rates must give its own mean; {len(found)} of {len(found)} lines here were "
            "cut, or mixed up with others. Pass whole lines."
        )
    counted, cut = [window for window in kept if window.sums], len(found) - len(kept)
    were = "line was" if cut == 1 else "lines were"
    lost = f"{cut:,} {were} cut or mixed up: the rates miss their own mean. Left out."
    bare = [Tally.of_rates(window.rates, name=window.engine) for window in kept if not counted]
    parts = bare or _by_engine(counted)
    return AcceptanceRecord(
        form="vLLM log",
        unit="engine" if counted else "window",
        parts=tuple(parts),
        convention="its mean counts the bonus token",
        notes=(
            f"{len(kept):,} window{'s' * (len(kept) > 1)}; rates have three decimals.",
            *[lost] * (cut > 0),
            *told_apart(parts),
            *_undrafted(kept, sum(part.calls for part in parts)),
        ),
    )


def _by_engine(windows: list[_Window]) -> list[Tally]:
    """Add up the windows of each engine with lists of one length."""
    groups: dict[tuple[str, int], list[_Window]] = {}
    for window in windows:
        groups.setdefault((window.engine, len(window.rates)), []).append(window)
    parts = []
    for (name, length), group in groups.items():
        steps, constant = map(np.array, zip(*(window.steps for window in group), strict=True))
        accepted, drafted = np.array([window.sums for window in group]).sum(axis=0).tolist()
        whole = float(steps.sum())
        if not whole:
            parts.append(Tally(name, steps=0.0, accepted=0.0))
            continue
        rates = np.minimum(1.0, [window.rates for window in group])
        tally = Tally.of_survivors(
            steps @ rates,
            steps=whole,
            name=name,
            accepted=accepted,
            drafted=drafted,
            offered=np.full(length, whole) if constant.all() else None,
        )
        parts.append(tally)
    return parts


def _undrafted(windows: list[_Window], steps: float) -> tuple[str, ...]:
    """Return a note on calls that drafted nothing, as far as throughputs tell of them."""
    timed = [window for window in windows if window.made and window.sums]
    accepted = sum(window.sums[0] for window in timed if window.sums)
    made = sum(window.made for window in timed)
    if len(timed) < len(windows) or made <= accepted:
        return (UNCOUNTED,)
    calls = made - accepted
    if steps > _MANY * calls:
        return ()
    return (
        f"By the log's throughput {100 * (1 - steps / calls):.0f} % of the calls drafted nothing: "
        f"{made / calls:.3f} tokens a call, and what is said of speed holds for the others only. "
        "The counters of /metrics tell it exactly.",
    )


def _v0(lines: list[tuple[int, ...]]) -> AcceptanceRecord:
    """Return the sum of the last totals of each start."""
    following = [*lines[1:], (0, 0, 0)]
    ends = [line for line, after in zip(lines, following, strict=True) if after[1] < line[1]]
    lengths = {length for length, _, _ in ends}
    parts = [
        Tally("server", float(steps), float(max(0, emitted - steps)), float(drafted))
        for length, drafted, emitted in ends
        if (steps := drafted // max(1, length))
    ]
    return AcceptanceRecord(
        form="vLLM V0 log",
        unit="server",
        parts=tuple(parts),
        convention="emitted tokens, the target's too; accepted ones are not of a prefix",
        length=lengths.pop() if len(lengths) == 1 else None,
        notes=("Totals since the server started.",),
    )


FORM = Form(
    name="vLLM log",
    marks='lines with "Per-position acceptance rate:" or "Number of emitted tokens"',
    recognises=lambda document: (
        (_RATES.search(document.text) or _TOTALS.search(document.text)) is not None
    ),
    read=_read,
)
