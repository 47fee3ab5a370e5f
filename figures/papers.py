"""Claims of the papers beside results on these pairs: `docs/papers.md` from the data.

`python -m figures.papers` writes the page anew; a test fails where it is older than the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from figures import ersd
from figures.captures import captures
from figures.paths import ROOT
from otm._display.tabular import markdown

PAGE = ROOT.parent / "docs" / "papers.md"

Record = dict[str, Any]
Lead = tuple[float, float]
"""The margin by which something holds, and the half-width of its interval."""
Finding = tuple[bool | None, str]
"""Whether the claim holds, None where intervals do not tell, and the numbers."""

_HEAD = """# The papers' claims on these pairs

What the papers report of their own models, and what the same experiments give here: on the \
shipped pair and, where its results
are committed, on SmolLM2-135M-Instruct with its distilled draft. Numbers are tokens per \
target call unless something else is said,
with 95 % intervals over prompts; those of lossless decoders are exact expectations along texts \
of the target. A claim holds if
every mean that it speaks of says so by more than its interval, it does not if one says otherwise \
by more; else it is open. On held-out
text instead of the target's own the same decoders give other numbers, K-SEQ at K = L = 8 on the \
shipped pair 3.33 tokens ([steps](steps.md)). Written
from `figures/data` by `python -m figures.papers`. Other models may behave as the papers'; what \
is false in general stands in
[claims](claims.md) and in [theory](theory.md#errors-in-the-sources).

"""
_VERDICTS = {True: "yes", False: "**no**", None: "open"}
_COLUMNS = ("claim", "where", "on", "holds", "numbers")


def _run(record: Record, method: str, strategy: str, drafted: int) -> Record:
    runs = record["methods"][method]["runs"]
    return next(run for run in runs if run["strategy"] == strategy and run["drafted"] == drafted)


def _largest(record: Record, method: str, strategy: str) -> Record:
    return max(
        (run for run in record["methods"][method]["runs"] if run["strategy"] == strategy),
        key=lambda run: run["drafted"],
    )


def _value(row: Record) -> str:
    return f"{row['mean']:.3f} ± {(row['high'] - row['low']) / 2:.3f}"


def _both(record: Record, strategy: str, drafted: int) -> str:
    return " and ".join(
        f"{_value(_run(record, method, strategy, drafted))} ({method})" for method in ersd.METHODS
    )


def _half(row: Record) -> float:
    return float(row["high"] - row["low"]) / 2.0


def _lead(first: Record, second: Record) -> Lead:
    """Return the lead of one mean over another, with an interval as if both were independent."""
    return float(first["mean"] - second["mean"]), math.hypot(_half(first), _half(second))


def _over(row: Record, bound: float) -> Lead:
    return float(row["mean"]) - bound, _half(row)


def _decided(leads: Iterable[Lead]) -> bool | None:
    """Return True if all leads are sure, None if some may be chance and none is surely a lag."""
    signs = [(abs(lead) >= half, lead) for lead, half in leads]
    return (
        False
        if any(sure and lead < 0.0 for sure, lead in signs)
        else all(sure for sure, _ in signs) or None
    )


def _races_lead(record: Record, strategy: str, drafted: int) -> Lead:
    races, rejection = (_run(record, method, strategy, drafted) for method in ("ERSD", "GSD"))
    return _lead(races, rejection)


def batch_of_one(record: Record) -> Finding:
    """One draft: recursive rejection is the best there is."""
    lead, half = _races_lead(record, "batch", 1)
    return _decided([(-lead, half)]), _both(record, "batch", 1)


def batch_of_two(record: Record) -> Finding:
    """Comparable: within .02 tokens."""
    lead, half = _races_lead(record, "batch", 2)
    return _decided([(0.02 - abs(lead), half)]), _both(record, "batch", 2)


def wide_batches(record: Record) -> Finding:
    """From three drafts on races win."""
    holds = _decided(_races_lead(record, "batch", n) for n in range(3, 17))
    return holds, f"3 drafts: {_both(record, 'batch', 3)}; 16: {_both(record, 'batch', 16)}"


def plateau(record: Record) -> Finding:
    """At 16 drafts a batch has at most .1 to gain."""
    holds = _decided(_over(_run(record, method, "batch", 16), 1.9) for method in ersd.METHODS)
    return holds, f"16 drafts: {_both(record, 'batch', 16)}"


def sequences(record: Record) -> Finding:
    """Recursive rejection wins on sequences, which consist of first arrivals."""
    leads = [_races_lead(record, "sequence", n) for n in range(1, 17)]
    return _decided(
        (-lead, half) for lead, half in leads
    ), f"16 drafts: {_both(record, 'sequence', 16)}"


def stretches(record: Record) -> Finding:
    """The 0-th order theory underestimates long sequences."""
    parts, leads = [], []
    for method in ersd.METHODS:
        run = _largest(record, method, "sequence")
        said = ersd.theory(np.asarray(record["methods"][method]["acceptance"]))["sequence"][1][
            run["drafted"] - 1
        ]
        leads.append(_over(run, said))
        parts.append(f"{_value(run)}, theory {said:.3f} ({method})")
    return _decided(leads), f"{run['drafted']} drafts: " + "; ".join(parts)


def specinfer(record: Record) -> Finding:
    """Slightly better than a sequence with the same number of drafts, from eight drafts on."""
    holds = _decided(
        _lead(_run(record, method, "SpecInfer", n), _run(record, method, "sequence", n))
        for method in ersd.METHODS
        for n in (8, 14)
    )
    parts = [
        f"{n} drafts: {_both(record, 'SpecInfer', n)}, sequence {_both(record, 'sequence', n)}"
        for n in (8, 14)
    ]
    return holds, "; ".join(parts)


def optimal_tree(record: Record) -> Finding:
    """No strategy of as many drafts is better than the optimal tree."""
    leads = [
        _lead(_run(record, method, "optimal", run["drafted"]), run)
        for method in ersd.METHODS
        for run in record["methods"][method]["runs"]
        if run["strategy"] != "optimal"
    ]
    most = max(0.0, *(-lead for lead, _ in leads))
    # Small trees are the same or nearly so, and all strategies saw the same texts: a tie or better
    # on them is one.
    return _decided(
        (lead, half if lead < 0.0 else 0.0) for lead, half in leads
    ), f"32 drafts: {_both(record, 'optimal', 32)}; the most that another wins more is {most:.4f}"


def logarithmic(record: Record) -> Finding:
    """Each doubling adds about as much: the last three gains differ by at most a third."""
    parts, holds = [], True
    for method in ersd.METHODS:
        values = [_run(record, method, "optimal", n)["mean"] for n in (4, 8, 16, 32)]
        steps = np.diff(values)
        holds &= bool(np.ptp(steps) < steps.mean() / 3)
        parts.append(", ".join(f"{step:.3f}" for step in steps) + f" ({method})")
    return holds, "4 → 8 → 16 → 32 add " + "; ".join(parts)


def convergence(record: Record) -> Finding:
    """The gap between the methods shrinks as trees grow."""
    few, many = (_races_lead(record, "optimal", n)[0] for n in (4, 32))
    return few < 0 and abs(many) < abs(
        few
    ), f"ERSD − GSD is {few:+.3f} at 4 drafts, {many:+.3f} at 32"


def kseq_is_optimal(record: Record) -> Finding:
    """K-SEQ is optimal on the paper's examples: within .005 tokens of the optimal verifier here."""
    rows = {(row["draft"], row["verifier"], row["K"], row["L"]): row for row in record["rows"]}
    parts, holds = [], True
    for draft in sorted({row["draft"] for row in record["rows"]}):
        kseq, best = rows[draft, "K-SEQ", 8, 8], rows[draft, "Optimal", 8, 8]
        holds &= best["mean"] - kseq["mean"] < 0.005
        parts.append(f"{_value(kseq)}, optimal verifier {_value(best)} ({draft})")
    return holds, "K = L = 8: " + "; ".join(parts)


def table2_gains(record: Record) -> Finding:
    """K = 8 against one draft of as many tokens: 3.3/2.3 in the paper."""
    rows = {(row["draft"], row["verifier"], row["K"], row["L"]): row for row in record["rows"]}
    parts, holds = [], True
    for draft in sorted({row["draft"] for row in record["rows"]}):
        one, eight = rows[draft, "K-SEQ", 1, 8], rows[draft, "K-SEQ", 8, 8]
        holds &= eight["mean"] / one["mean"] >= 3.3 / 2.3 - 0.02
        parts.append(
            f"{_value(one)} → {_value(eight)}, × {eight['mean'] / one['mean']:.2f} ({draft})"
        )
    return holds, "; ".join(parts)


def flat_latency(record: Record) -> Finding:
    """Eight sequences of eight tokens take little longer than one of four: 1.1 and less in the
    paper.
    """
    cell = record["relative"]["target"][record["lengths"].index(8)][record["batches"].index(8)]
    load = record["manifest"]["load average before"][0]
    return cell[
        "median"
    ] < 1.2, f"8 × 8 tokens take {cell['median']:.2f} times as long as 4 (CPU, load {load:g})"


def little_loss(record: Record) -> Finding:
    """A budget of .1 nats is faster than lossless, and the target finds the text no stranger, by a
    tenth in perplexity at most.
    """
    rows = {row["label"]: row for row in record["rows"]}
    lossless, lossy = rows["speculative"], rows["Mentored(0.1)"]
    faster, half = _ratio(lossy["speedup"], lossless["speedup"])
    stranger, wide = _ratio(lossy["perplexity"], lossless["perplexity"])
    before, after = (
        f"{row['mean']:.1f} [{row['low']:.1f}, {row['high']:.1f}]"
        for row in (each["perplexity"] for each in (lossless, lossy))
    )
    numbers = (
        f"{_value(lossless)} → {_value(lossy)}, × {_times(faster, half)} in tokens per second "
        "(CPU, load "
        f"{record['manifest']['load average before'][0]:g}), perplexity {before} → {after}, × "
        f"{_times(stranger, wide)}, "
        f"KL {lossy['kl']:.3f} nats per token"
    )
    return _decided([(faster, half), (math.log(1.1) - stranger, wide)]), numbers


def _ratio(first: Record, second: Record) -> Lead:
    """Return the logarithm of a ratio of means, with an interval as if both were independent."""
    halves = (math.log(row["high"] / row["low"]) / 2.0 for row in (first, second))
    return math.log(first["mean"] / second["mean"]), math.hypot(*halves)


def _times(ratio: float, half: float) -> str:
    return f"{math.exp(ratio):.2f} [{math.exp(ratio - half):.2f}, {math.exp(ratio + half):.2f}]"


CLAIMS: tuple[tuple[str, str, str, Callable[[Record], Finding]], ...] = (
    (
        "with one draft, recursive rejection accepts more than races",
        "ERSD, section 5",
        "ersd",
        batch_of_one,
    ),
    ("with two they are comparable (within .02)", "ERSD, section 5", "ersd", batch_of_two),
    ("with more than two, races accept more", "ERSD, section 5", "ersd", wide_batches),
    ("batches plateau just below 2 (above 1.9 at 16)", "ERSD, section 5", "ersd", plateau),
    ("in sequences recursive rejection is better", "ERSD, section 5", "ersd", sequences),
    ("long sequences pass what the 0-th order says", "ERSD, section 5", "ersd", stretches),
    ("the SpecInfer tree improves on a sequence", "ERSD, section 5", "ersd", specinfer),
    (
        "the optimal tree is the best strategy at every size",
        "ERSD, section 5",
        "ersd",
        optimal_tree,
    ),
    (
        "its tokens grow with the logarithm of what is drafted",
        "ERSD, section 5",
        "ersd",
        logarithmic,
    ),
    (
        "as trees grow, the methods converge, GSD ahead at first",
        "ERSD, section 5",
        "ersd",
        convergence,
    ),
    ("K-SEQ is in fact optimal", "SpecTr, section 6, of its examples", "table2", kseq_is_optimal),
    (
        "eight drafts of eight tokens yield 1.43 times what one does",
        "SpecTr, Table 2",
        "table2",
        table2_gains,
    ),
    (
        "more tokens and more sequences cost next to no time",
        "SpecTr, Tables 1 and 3",
        "latency",
        flat_latency,
    ),
    (
        "mentored decoding is faster at hardly any loss of quality (perplexity up by a tenth at "
        "most)",
        "Mentored decoding",
        "mentored",
        little_loss,
    ),
)
"""Claim, its place in the paper, experiment, and the function that decides."""


def page() -> str:
    """Return the page."""
    return f"{_HEAD}{markdown(_COLUMNS, _rows())}\n"


def _rows() -> Iterator[tuple[str, ...]]:
    for claim, where, name, finding in CLAIMS:
        for title, record in captures(name).items():
            holds, numbers = finding(record)
            yield claim, where, title, _VERDICTS[holds], numbers


def main() -> int:
    """Write the page."""
    Path(PAGE).write_text(page(), encoding="utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
