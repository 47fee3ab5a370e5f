"""``otm plan``: from an engine's record of acceptance to a number of drafts, on one screen.

The answer comes first, then what it rests on: the record and its conventions, the costs and where
they come from, every length compared. Exit status: 0 answered, 2 the record or the costs cannot be
read.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from otm.commands.printing import paragraph, shown
from otm.engines import (
    AcceptanceRecord,
    CostSurface,
    LengthChoice,
    LengthPlan,
    Simulation,
    check_lengths,
    kaplan_meier,
    plan_budget,
    plan_lengths,
    read_acceptance,
    read_costs,
    request_mean,
    sglang_simulation,
    survival_bounds,
    tensorrt_llm_simulation,
    vllm_lengths,
    vllm_simulation,
)
from otm.errors import InvalidParameter, OtmError
from otm.tabular import columns

MAX_ROWS = 10
"""Rows of a table by batch and context that are shown."""

MAX_COLUMNS = 10
"""Draft lengths that are shown side by side."""

COST_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Draft steps in target calls that are gone through where no costs are given."""

SETTINGS = ("vllm", "vllm-simulation", "sglang-simulation", "tensorrt-llm-simulation")


def register(commands: Any) -> None:
    """Add the command to a parser's commands."""
    plan: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="how many drafts pay, from an engine's record of acceptance?",
        epilog="Records: counters, logs, JSON or CSV of vLLM, SGLang, TensorRT-LLM, llama.cpp, AIPerf, SpecForge, speculators "
        "(docs/records.md). Exit status: 0 answered, 2 not carried out.",
    )
    plan.add_argument("file", metavar="FILE", help="what the engine wrote; the form is recognised")
    plan.add_argument("--draft-ms", type=float, metavar="MS", help="one draft step")
    plan.add_argument(
        "--target-ms",
        metavar="MS",
        help="one target call, or by number of drafts checked, 0 among them: 0:20,4:21,8:24",
    )
    plan.add_argument(
        "--costs",
        nargs="+",
        metavar="COSTS",
        help="measured costs instead: records of `latency` or `advise`, or JSON",
    )
    plan.add_argument(
        "--batch", type=int, nargs="+", metavar="N", help="batch sizes (default: the measured ones)"
    )
    plan.add_argument(
        "--context",
        type=int,
        nargs="+",
        metavar="N",
        help="context lengths (default: the measured ones)",
    )
    plan.add_argument(
        "--extend",
        type=int,
        metavar="L",
        help="go on to L drafts at the last measured position's rate",
    )
    plan.add_argument(
        "--extrapolate-costs", action="store_true", help="continue costs beyond what was measured"
    )
    plan.add_argument(
        "--budget",
        type=int,
        metavar="B",
        help="split B drafts of one call over the record's requests",
    )
    plan.add_argument(
        "--confidence", type=float, default=0.95, help="of the intervals (default: %(default)s)"
    )
    plan.add_argument(
        "--settings",
        choices=SETTINGS,
        help="print settings for an engine, as JSON, instead of the answer",
    )


def run(options: argparse.Namespace) -> int:
    """Print the answer that the options ask for and return the exit status."""
    try:
        return 0 if shown(answer(options), command="plan") else 2
    except OtmError as error:
        print(f"otm plan: {error}", file=sys.stderr)
        return 2


def answer(options: argparse.Namespace) -> str:
    """Return the answer that the options ask for."""
    record = read_acceptance(options.file)
    costs = _costs(options)
    if options.settings is not None:
        return json.dumps(_tidied(_settings(options, record, costs)))
    if costs is None:
        return "\n".join(_without_costs(options, record))
    plan = plan_lengths(
        record,
        costs,
        batches=options.batch,
        contexts=options.context,
        extend=options.extend,
        extrapolate_costs=options.extrapolate_costs,
        confidence=options.confidence,
    )
    lines = [
        *_headline(plan),
        "",
        *_record(options, record),
        *paragraph("costs", _described(costs)),
        "",
        *_table(plan),
        *_limits(plan, record),
        *_budget(options, record),
    ]
    return "\n".join(lines)


def _costs(options: argparse.Namespace) -> CostSurface | None:
    """Return the surface that the options give, None if they give none."""
    given = [options.draft_ms is not None, options.target_ms is not None]
    if options.costs is not None:
        if any(given):
            raise InvalidParameter(
                "--costs stands for --draft-ms and --target-ms; got both. Drop one of them."
            )
        return read_costs(*options.costs)
    if not any(given):
        return None
    if not all(given):
        raise InvalidParameter(
            "--draft-ms and --target-ms go together; got one of them. Give both, or neither."
        )
    target = {n: ms / 1e3 for n, ms in _by_drafts(options.target_ms).items()}
    return CostSurface.flat(
        draft=options.draft_ms / 1e3, target=target, source="--draft-ms and --target-ms"
    )


def _by_drafts(text: str) -> dict[int, float]:
    """Read 20, or 0:20,4:21."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        if len(pairs) == 1 and len(pairs[0]) == 1:
            return {0: float(text)}
        found = {int(drafts): float(ms) for drafts, ms in pairs}
    except ValueError as error:
        raise InvalidParameter(
            f"--target-ms is a time, or times by number of drafts; got {text!r:.60}. Pass 0:20,8:24."
        ) from error
    return found


def _settings(
    options: argparse.Namespace, record: AcceptanceRecord, costs: CostSurface | None
) -> dict[str, Any]:
    if options.settings == "vllm":
        if costs is None:
            raise InvalidParameter(
                "Draft lengths by batch size need costs; none are given. Pass --costs."
            )
        contexts = options.context or costs.contexts[-1:]
        if len(contexts) > 1:
            raise InvalidParameter(
                f"vLLM's table is for one context length; got {contexts}. Pass one --context."
            )
        return vllm_lengths(
            record,
            costs,
            context=contexts[0],
            max_batch=None if options.batch is None else max(options.batch),
            extend=options.extend,
            extrapolate_costs=options.extrapolate_costs,
        )
    survival = kaplan_meier(record) if record.censoring == "observed" else record.survival
    if options.settings == "vllm-simulation":
        return vllm_simulation(survival)
    simulation = (
        sglang_simulation if options.settings == "sglang-simulation" else tensorrt_llm_simulation
    )(survival)
    return _written(simulation)


def _written(simulation: Simulation) -> dict[str, Any]:
    return {
        "runs": [dataclasses.asdict(run) for run in simulation.runs],
        "one run with the mean only": simulation.single,
        "its law is off by, total variation": simulation.distance,
    }


def _tidied(value: Any) -> Any:
    """Return JSON values without what binary fractions add in the last digits: .2, not
    .19999999999999996.
    """
    if isinstance(value, dict):
        return {name: _tidied(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_tidied(one) for one in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _headline(plan: LengthPlan) -> Iterator[str]:
    """Say what to do."""
    if len(plan.choices) > 1:
        drafting = [choice for choice in plan.choices if choice.verdict == "speculate"]
        open_ = sum(choice.verdict == "undecided" for choice in plan.choices)
        if not drafting:
            yield (
                "DO NOT SPECULATE"
                if not open_
                else f"DO NOT SPECULATE, but {open_} of {len(plan.choices)} cells are undecided"
            )
        elif len(drafting) == len(plan.choices):
            lengths = sorted({choice.length for choice in drafting})
            yield (
                f"SPECULATE: {lengths[0]} drafts a step in every cell"
                if len(lengths) == 1
                else (f"SPECULATE: {lengths[0]} to {lengths[-1]} drafts a step, by cell")
            )
        else:
            yield f"SPECULATE in {len(drafting)} of {len(plan.choices)} cells; {open_} undecided; in the others do not"
        yield from paragraph("", _interval_words(plan), indent=2)
        return
    (choice,) = plan.choices
    if choice.verdict == "do not speculate":
        length, best = choice.best
        yield "DO NOT SPECULATE"
        if length:
            yield f"  the best number of drafts, {length}, gives {best.words(unit=' x plain decoding')}"
        else:
            yield "  no number of drafts has measured costs"
    else:
        doubt = "" if choice.verdict == "speculate" else ", MAYBE: the interval contains 1"
        yield f"SPECULATE{doubt}: {choice.length} draft{'s' if choice.length > 1 else ''} a step"
        yield f"  {choice.over_plain.words(unit=' x plain decoding')}, {choice.tokens:.2f} tokens a step"
    if choice.over_engine is not None and plan.engine_length is not None:
        who = "" if choice.length else "plain decoding is "
        yield f"  {who}{choice.over_engine.words(unit=' x what the engine ran')}: {_drafts(plan.engine_length)} a step"
    yield from paragraph("", _interval_words(plan), indent=2)


def _drafts(count: float) -> str:
    return f"{count:.3g} draft{'' if count == 1 else 's'}"


def _interval_words(plan: LengthPlan, where: str = "in brackets") -> str:
    level = f"{100 * plan.confidence:g} %"
    return {
        "request": f"{where} {level} over requests, for all lengths at once",
        "step": f"{where} {level} if steps were independent: requests are not told apart, so too narrow where they differ",
        "none": "no interval: the record has nothing independent to count",
    }[plan.estimate.clusters]


def _record(options: argparse.Namespace, record: AcceptanceRecord) -> Iterator[str]:
    """Say what was read, and what it cannot say."""
    yield from paragraph(
        "record", f"{Path(options.file).name}: {_counts(record)}; {record.convention}"
    )
    means = f"tokens a step: {record.pooled_mean:.3f} pooled over steps"
    if record.unit == "request" and len(record.parts) > 1:
        found = request_mean(record, confidence=options.confidence)
        means += f"; {found.words(digits=3, unit=' mean of requests')}"
    elif record.reported_mean is not None:
        means += f"; {record.reported_mean:.3f} mean of requests, as the file says"
    yield from paragraph("", means)
    yield from paragraph("", _lengths_words(record))
    if record.censoring == "observed" and all(part.pairs is not None for part in record.parts):
        with contextlib.suppress(InvalidParameter):  # no long steps beside short ones
            check = check_lengths(record)
            if check.contradicted:
                yield from paragraph(
                    "",
                    f"THEY ARE NOT independent: of first drafts {check.longer:.2f} are accepted in long steps, "
                    f"{check.shorter:.2f} in short ones. What is corrected is off: go by the bounds",
                )
    for note in record.notes:
        yield from paragraph("", note)


def _counts(record: AcceptanceRecord) -> str:
    steps = f"{record.steps:,.0f} steps" if record.steps is not None else "rates without counts"
    parts = f"{len(record.parts):,} {record.unit}{'s' if len(record.parts) > 1 else ''}"
    return f"{record.form}, {parts}, {steps}"


def _lengths_words(record: AcceptanceRecord) -> str:
    """Say what is known about draft lengths, and what follows."""
    low, high = survival_bounds(record).tokens
    bounds = f"{low[-1]:.2f} to {high[-1]:.2f} tokens at {record.measured} drafts"
    return {
        "none": f"every step drafted {record.measured}",
        "observed": "draft lengths differ and are recorded: corrected, if they are independent of acceptance; without that "
        f"{bounds}",
        "hidden": "draft lengths differ and are not recorded: undrafted reads as rejected and cannot be corrected here; "
        f"{bounds}. Record steps in detail",
        "unknown": "draft lengths are not recorded: taken as equal; if they differ, undrafted reads as rejected, which a histogram "
        "cannot correct",
    }[record.censoring]


def _described(costs: CostSurface) -> str:
    size = f"batches of {_range(costs.batches)}, contexts of {_range(costs.contexts)}, calls of {_range(costs.tokens)} tokens"
    if len(costs.batches) * len(costs.contexts) == 1:
        calls = f"{1e3 * float(costs.target[0, 0, 0]):.4g} ms a target call"
        size = f"{1e3 * float(costs.draft[0, 0]):.4g} ms a draft, {calls}"
        if len(costs.tokens) > 1:
            size += f", {1e3 * float(costs.target[0, 0, -1]):.4g} ms checking {costs.tokens[-1] - 1} drafts"
    assumed = f". Assumed: {'; '.join(costs.assumptions)}" if costs.assumptions else ""
    return f"from {costs.source}: {size}{assumed}"


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _table(plan: LengthPlan) -> Iterator[str]:
    if len(plan.choices) == 1:
        (choice,) = plan.choices
        yield from _columns(plan, choice)
        return
    rows = [("batch", "context", "drafts", "x plain", "x what the engine ran")]
    for choice in plan.choices[:MAX_ROWS]:
        engine = "" if choice.over_engine is None else choice.over_engine.words()
        plain = (
            choice.over_plain.words() if choice.length else f"1; best {choice.best[1].value:.2f}"
        )
        marks = ("*" if choice.reach == "at the limit" or choice.limited_by_costs else "") + (
            "?" * (choice.verdict == "undecided")
        )
        rows.append(
            (f"{choice.batch}", f"{choice.context}", f"{choice.length}{marks:2}", plain, engine)
        )
    yield from columns(rows, right=(0, 1, 2))
    if any(choice.verdict == "undecided" for choice in plan.choices):
        yield "  ? the interval contains 1"
    if len(plan.choices) > MAX_ROWS:
        yield f"  … {len(plan.choices) - MAX_ROWS} more; --batch and --context choose"


def _columns(plan: LengthPlan, choice: LengthChoice) -> Iterator[str]:
    """Show every length, or a selection that holds the ends and the chosen one."""
    last = len(choice.curve) - 1
    shown = sorted(
        {1, 2, 3, 4, last, *range(max(1, choice.length - 2), choice.length + 3)}
        & set(range(1, last + 1))
    )[-MAX_COLUMNS:]
    known = plan.estimate.tokens
    rows = [
        ("drafts", *map(str, shown)),
        (
            "tokens",
            *(
                f"{known[n]:.2f}" if n < known.size and not math.isnan(known[n]) else "+"
                for n in shown
            ),
        ),
        ("x plain", *(f"{choice.curve[n]:.2f}" for n in shown)),
    ]
    yield from columns(rows, right=range(1, len(rows[0])))


def _limits(plan: LengthPlan, record: AcceptanceRecord) -> Iterator[str]:
    """Say where the answer ends because the measurements end."""
    if any(choice.reach == "at the limit" for choice in plan.choices):
        yield from paragraph(
            "limit",
            f"{'* ' * (len(plan.choices) > 1)}{plan.measured} drafts are the most that were measured: more may pay. Run the engine "
            f"with more, or --extend {2 * plan.measured}.",
        )
    if any(choice.reach == "beyond" for choice in plan.choices):
        yield from paragraph(
            "limit",
            f"beyond {plan.measured} drafts acceptance is extrapolated, at the last position's rate.",
        )
    if any(choice.limited_by_costs for choice in plan.choices):
        yield from paragraph(
            "limit",
            f"costs are measured up to {plan.costs.longest} drafts: measure longer calls, or --extrapolate-costs.",
        )
    if any(choice.costs_extrapolated for choice in plan.choices):
        yield from paragraph("limit", "some costs are extrapolated beyond what was measured.")
    if record.unlocated > 0.02:
        yield from paragraph(
            "limit", f"{record.unlocated:.2f} accepted drafts a step lie beyond the record's list."
        )


def _budget(options: argparse.Namespace, record: AcceptanceRecord) -> Iterator[str]:
    if options.budget is None:
        return
    plan = plan_budget(record, budget=options.budget)
    seen = (
        "counted on steps that the split had not seen"
        if plan.held_out
        else "too large: chosen on the same counts"
    )
    lengths = sorted(plan.lengths.tolist(), reverse=True)
    if len(lengths) == 1:
        yield from paragraph(
            "budget",
            f"the record has one request, with which nothing is shared: it drafts {lengths[0]}.",
        )
        return
    yield from paragraph(
        "budget",
        f"{options.budget} drafts a call over {len(lengths)} requests: {plan.tokens:.2f} tokens split by survival ({seen}), "
        f"{plan.even_tokens:.2f} in equal shares; {lengths[0]} to {lengths[-1]} drafts a request.",
    )


def _without_costs(options: argparse.Namespace, record: AcceptanceRecord) -> Iterator[str]:
    """Answer for a range of costs, and ask for them."""
    plans = [
        plan_lengths(
            record,
            CostSurface.flat(draft=ratio, target=1.0),
            extend=options.extend,
            confidence=options.confidence,
        )
        for ratio in COST_RATIOS
    ]
    choices = [plan.choices[0] for plan in plans]
    yield "IT DEPENDS ON COSTS, and none are given: pass --draft-ms and --target-ms,"
    yield "or --costs with what was measured (a record of `latency`, say)."
    yield ""
    yield from _record(options, record)
    yield from paragraph("", _interval_words(plans[0], "at least:"))
    yield ""
    rows = [
        ("a draft costs, in target calls", *(f"{ratio:g}" for ratio in COST_RATIOS)),
        (
            "drafts a step",
            *(f"{one.length}{'*' * (one.reach == 'at the limit')}" for one in choices),
        ),
        ("x plain decoding", *(f"{one.over_plain.value:.2f}" for one in choices)),
        (
            "  at least",
            *(
                "-" if math.isnan(one.over_plain.low) else f"{one.over_plain.low:.2f}"
                for one in choices
            ),
        ),
    ]
    yield from columns(rows, right=range(1, len(rows[0])))
    yield "(0 drafts: do not speculate. A target call is taken to cost the same whatever it"
    yield "checks, which flatters long drafts: give --target-ms by number of drafts.)"
    if any(choice.reach == "at the limit" for choice in choices):
        yield f"* the most that was measured: more may pay. --extend {2 * plans[0].measured} goes on."
    yield from _budget(options, record)
