"""Reports in Markdown, to be pasted into a pull request: verdict, figures, minimal counterexample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from otm.audit.battery import BatteryAudit, SampledBatteryAudit
    from otm.audit.exact import ExactAudit
    from otm.audit.log import LogAudit
    from otm.audit.sampled import SampledAudit
    from otm.audit.sequence import SequenceAudit
    from otm.audit.sequence_battery import SequenceBatteryAudit

_MOST_ENTRIES = 12
_HOW = {
    "kernel": "the verifier's own kernel, summed over every draft sequence",
    "traced": "run on tracing numbers over every draft sequence: exact integration over the uniforms, {cells} boxes",
    "probed": "probed as a black box over every draft sequence: exact if no cell of the uniforms is narrower than 1/64 along an"
    " axis, {cells} cells",
}


def number(value: float) -> str:
    """Print a probability: as a fraction where a small one is meant, else to six digits.

    >>> number(0.625), number(1 / 3), number(0.1234567)
    ('5/8', '1/3', '0.123457')
    """
    if not np.isfinite(value):
        return "∞"
    fraction = Fraction(value).limit_denominator(128)
    if abs(float(fraction) - value) < 1e-14:
        return str(fraction)
    return f"{value:.6g}"


def numbers(values: Any) -> str:
    """Print a distribution, shortened beyond twelve entries."""
    array = np.asarray(values)
    if array.ndim > 1:
        return "; ".join(numbers(row) for row in array)
    shown = ", ".join(number(float(x)) for x in array[:_MOST_ENTRIES])
    return f"({shown}{', …' if len(array) > _MOST_ENTRIES else ''})"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Lay out pairs as a Markdown table of two columns."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def exact_report(audit: ExactAudit) -> str:
    """Return the report of one exact audit."""
    return f"## `{audit.name}`: {audit.verdict}\n\n{exact_table(audit)}"


def exact_table(audit: ExactAudit) -> str:
    """Return the figures of one exact audit."""
    problem, worst = audit.problem, audit.worst_token
    rule = "" if audit.rule is None else f"; by the rule {number(audit.rule)}"
    rows = [
        ("draft p", f"{numbers(problem.draft)}, drafts by `{problem.law!r}`"),
        ("target q", numbers(problem.target)),
        ("output π", numbers(audit.output_law)),
        ("total variation", f"**{number(audit.total_variation)}**{_allowance(audit)}"),
        ("KL(q‖π)", f"{number(audit.kl)} nats"),
        (
            "worst token",
            f"{worst}: comes out with {number(audit.output_law[worst])}, should with {number(problem.target[worst])}",
        ),
        ("acceptance", f"by membership {number(audit.membership)}{rule}"),
        ("optimum", f"{number(audit.optimum)}; gap {number(audit.gap)}"),
        ("how", _HOW[audit.method].format(cells=audit.cells)),
    ]
    return table(rows)


def _allowance(audit: ExactAudit | SequenceAudit) -> str:
    error = f", known to ± {audit.error:.2g}" if audit.error else ""
    return f" (rounding explains {audit.tolerance:.1g}{error})"


def battery_report(battery: BatteryAudit) -> str:
    """Return the report over all instances, the failing ones listed, and the counterexample."""
    audits = battery.audits.values()
    lines = [f"## `{battery.name}`: {battery.verdict}", ""]
    lines.append(
        f"{len(audits)} standard instances; {len(battery.failed)} with an output law that is not the target's; largest total "
        f"variation {number(battery.worst.total_variation)}."
    )
    if battery.failed:
        lines += ["", "| instance | TV | KL(q‖π), nats | acceptance | optimum |", "|---|---|---|---|---|"]
        for label, audit in battery.failed.items():
            figures = [audit.total_variation, audit.kl, audit.membership, audit.optimum]
            lines.append(f"| {label} | {' | '.join(number(x) for x in figures)} |")
    open_cases = [label for label, audit in battery.audits.items() if audit.verdict == "undecided"]
    if open_cases:
        lines += ["", f"Undecided: {'; '.join(open_cases)}."]
    if battery.counterexample is not None:
        lines += ["", "### Minimal counterexample", "", exact_table(battery.counterexample)]
    else:
        lines += ["", exact_table(battery.worst)]
    return "\n".join(lines)


def sampled_report(audit: SampledAudit) -> str:
    """Return the report of a sampled audit."""
    level = math.log(2 / audit.false_alarm)
    found = {
        "evidence": f"evidence e^{audit.log_e_value:.4g} against the target's law, alarm at e^{level:.4g}",
        "distance": f"distance {audit.distance:.6g} of the samples from the target's law, alarm at {audit.threshold:.6g}",
        "": f"evidence e^{audit.log_e_value:.4g} and distance {audit.distance:.6g} are within what chance explains",
    }[audit.found_by]
    rows = [
        ("samples", f"{audit.samples:,} of {audit.planned:,} planned, in {audit.cells} cells"),
        ("found", found),
        (
            "errors",
            f"false alarm ≤ {audit.false_alarm:g}; a total variation ≥ {audit.detect:.3g} is missed with ≤ {audit.missed:g}",
        ),
        ("total variation", f"{audit.total_variation} (95 %)"),
    ]
    if audit.membership is not None and audit.optimum is not None:
        rule = "" if audit.rule is None else f"; by the rule {audit.rule}"
        rows.append(("acceptance", f"by membership {audit.membership}{rule} (95 %); the optimum is {number(audit.optimum)}"))
    return f"## `{audit.name}`: {audit.verdict}\n\n{table(rows)}"


def log_report(audit: LogAudit) -> str:
    """Return the report of an audited log."""
    alarm = "never reached" if audit.alarm_at is None else f"first reached at record {audit.alarm_at:,}"
    level = math.log(1 / audit.false_alarm)
    rows = [
        ("records", f"{audit.records:,}"),
        ("evidence", f"at most e^{audit.log_e_value:.4g}; the alarm at e^{level:.4g} was {alarm}"),
        ("errors", f"false alarm ≤ {audit.false_alarm:g}, at any length of log"),
        ("total variation", f"at least {audit.variation_above:.4g} in the mean over contexts (95 %)"),
    ]
    if audit.membership is not None:
        optimum = "" if audit.optimum is None else f"; the mean optimum is {audit.optimum:.6g}"
        rows.append(("acceptance", f"by membership {audit.membership} (95 %){optimum}"))
    return f"## `{audit.name}`: {audit.verdict}\n\n{table(rows)}"


def sequence_report(audit: SequenceAudit) -> str:
    """Return the report of one audit of a block verifier."""
    return f"## `{audit.name}`: {audit.verdict}\n\n{sequence_table(audit)}"


def sequence_table(audit: SequenceAudit) -> str:
    """Return the figures of one audit of a block verifier."""
    worst = audit.worst_block
    accepted = "" if audit.accepted is None else f"; {number(audit.accepted)} of them counted as accepted"
    by_length = ", ".join(number(x) for x in audit.prefix_variations)
    where = "" if audit.first_position is None else f"; fails from position {audit.first_position}"
    rows = [
        ("block", f"γ = {audit.num_drafts} drafts, after context {audit.context}"),
        ("draft p", _laws(audit.draft_tables)),
        ("target q", _laws(audit.target_tables)),
        ("total variation", f"**{number(audit.total_variation)}**{_allowance(audit)}"),
        ("by length", f"first 1, 2, … tokens: {by_length}{where}"),
        ("KL(q‖π)", f"{number(audit.kl)} nats"),
        ("worst block", f"{worst}: comes out with {number(audit.law[worst])}, should with {number(audit.target_law[worst])}"),
        ("tokens per call", f"{number(audit.tokens_per_call)}{accepted}"),
        ("how", _HOW[audit.method].format(cells=audit.cells).replace("draft sequence", "drafted block")),
    ]
    return table(rows)


def _laws(tables: Mapping[tuple[int, ...], Any]) -> str:
    """Print a model: one law where it is the same everywhere, else by context, shortened."""
    laws = {context: numbers(law) for context, law in tables.items()}
    if len(set(laws.values())) == 1:
        return f"{next(iter(laws.values()))} after every context"
    shown = [f"{law} after {context}" for context, law in laws.items()]
    return "; ".join(shown[:_MOST_ENTRIES]) + ("; …" if len(shown) > _MOST_ENTRIES else "")


def sequence_battery_report(battery: SequenceBatteryAudit) -> str:
    """Return the report over all toy models, the failing ones listed, and the counterexample."""
    lines = [f"## `{battery.name}`: {battery.verdict}", ""]
    lines.append(
        f"{len(battery.audits)} pairs of toy models; {len(battery.failed)} with a joint law that is not the target's; largest "
        f"total variation {number(battery.worst.total_variation)}."
    )
    if battery.failed:
        lines += ["", "| models | TV | KL(q‖π), nats | first position | tokens per call |", "|---|---|---|---|---|"]
        for label, audit in battery.failed.items():
            figures = [
                number(audit.total_variation),
                number(audit.kl),
                str(audit.first_position),
                number(audit.tokens_per_call),
            ]
            lines.append(f"| {label} | {' | '.join(figures)} |")
    if battery.counterexample is not None:
        lines += ["", "### Minimal counterexample", "", sequence_table(battery.counterexample)]
    else:
        lines += ["", sequence_table(battery.worst)]
    return "\n".join(lines)


def sampled_battery_report(battery: SampledBatteryAudit) -> str:
    """Return the report over all instances."""
    lines = [f"## `{battery.name}`: {battery.verdict}", ""]
    lines.append(
        f"{len(battery.audits)} standard instances, {len(battery.failed)} alarms; a lossless verifier raises any with probability "
        f"≤ {battery.false_alarm:g}."
    )
    lines += [
        "",
        "| instance | verdict | samples | TV (95 %) | found if TV ≥ | acceptance (95 %) | optimum |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, audit in battery.audits.items():
        optimum = "" if audit.optimum is None else number(audit.optimum)
        cells = [
            audit.verdict,
            f"{audit.samples:,}",
            str(audit.total_variation),
            f"{audit.detect:.3g}",
            str(audit.membership),
            optimum,
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)
