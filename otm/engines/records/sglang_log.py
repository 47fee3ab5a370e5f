"""SGLang's log: a line for every interval of decoding steps, with the mean over the interval.

"Decode batch. #running-req: 18, … accept len: 2.40, accept rate: 0.47, … gen throughput (token/s):
2520.18, …"; "Decode batch," and "Decode batch [120]," in other versions, the rate not in the
oldest. The length counts the root. The rate is drafts accepted over drafts proposed, (length −
1)/d; until the two were told apart it was length/(d + 1), the root in both: d is the whole number
that the lines agree on. Of a tree d counts its nodes; the arguments that the server prints when it
starts tell a tree (`speculative_eagle_topk` above 1) and its depth. A line is about as many steps
as another (`--decode-log-interval`), each of its running requests, which is how lines are weighted.

Source of the form: github.com/sgl-project/sglang,
python/sglang/srt/managers/scheduler_components/metrics_reporter.py at 00df707e
(`SchedulerMetricsReporter`); older spellings are of `log_decode_stats` in
python/sglang/srt/managers/scheduler.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from otm.engines.records.document import Document, Form
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally

# Numbers have two decimals: a number that the end of the file cut short has fewer. An expression
# that begins with letters is found several times as fast as one that begins with \b.
_MEAN = re.compile(
    r"accept len: (?<=\baccept len: )(\d+\.\d\d)(?!\d)(?:,\s+accept rate: (\d+\.\d\d)(?!\d))?"
)
_RUNNING = re.compile(r"#running-req: (\d+),")
_ARGUMENT = r"speculative_{}[=:] *(\d+)"
_MOST_DRAFTS = 256
_HALF = 0.005  # two decimals


def drafts_of(means: Sequence[tuple[float, ...]]) -> int | None:
    """Return the drafts a step on which lengths and rates agree, None if there is no single number.

    >>> drafts_of([(2.4, 0.47), (3.04, 0.68)]), drafts_of([(2.4, 0.6), (3.04, 0.76)])
    (3, 3)
    """
    told = [(length, rate) for length, rate in means if length > 1 and rate > 0]
    for root in (0, 1):  # whether the rate counts the root too
        low, high = 1.0, float(_MOST_DRAFTS)
        for length, rate in told:
            accepted = length - 1 + root
            low = max(low, (accepted - _HALF) / (rate + _HALF) - root)
            high = min(high, (accepted + _HALF) / max(rate - _HALF, 1e-3) - root)
        if told and math.ceil(low) == math.floor(high):
            return math.ceil(low)
    return None


def _read(document: Document) -> AcceptanceRecord:
    lines = requests = tokens = 0.0
    pairs: dict[tuple[float, float], None] = {}  # few of many lines, in two decimals
    end = 0
    for match in _MEAN.finditer(document.text):
        # What stands before the mean in its line, back to another mean, is the mean's.
        start, end = max(end, document.text.rfind("\n", end, match.start())), match.end()
        running = _RUNNING.search(document.text, start, match.start())
        weight = max(1.0, float(running[1])) if running else 1.0
        told_mean = max(1.0, float(match[1]))
        lines, requests, tokens = lines + 1, requests + weight, tokens + weight * told_mean
        pairs[told_mean, float(match[2] or 0)] = None
    mean = tokens / requests
    length = drafts_of(list(pairs))
    width, depth = (
        re.search(_ARGUMENT.format(name), document.text) for name in ("eagle_topk", "num_steps")
    )
    told = "The rate divides by drafted tokens: of a tree (topk above 1) these are no chain."
    if width and int(width[1]) > 1 and depth:
        told = f"It drafts trees of {length or 'some'} tokens and depth {depth[1]}: no chains."
        length = int(depth[1])
    elif width:
        told = "It drafts chains (speculative_eagle_topk = 1)."
    return AcceptanceRecord(
        form="SGLang log",
        unit="server",
        parts=(Tally.of_mean(mean, name="server"),),
        convention="accept len counts the root",
        length=length,
        notes=(
            told,
            f"The mean of decode lines ({lines:,.0f}), weighted by running requests: record "
            "meta_info's histogram for positions.",
        ),
    )


FORM = Form(
    name="SGLang log",
    marks='lines with "accept len:", as of "Decode batch"',
    recognises=lambda document: _MEAN.search(document.text) is not None,
    read=_read,
)
