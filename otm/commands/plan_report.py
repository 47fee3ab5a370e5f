"""The page of ``otm plan``: the answer first, then the grounds of the answer.

The grounds: the record and its conventions, the costs and where they come from, every length
compared, and where the answer ends because the measurements end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from otm._display.tabular import columns
from otm.commands.printing import paragraph
from otm.engines import (
    AcceptanceRecord,
    CostSurface,
    LengthChoice,
    LengthPlan,
    MeanPlan,
    check_lengths,
    plan_lengths,
    plan_mean,
    read_acceptance,
    read_costs,
    request_mean,
    survival_bounds,
    vllm_lengths,
)
from otm.errors import InvalidParameter

MAX_ROWS = 10
"""Rows of a table by batch and context that are shown."""

MAX_COLUMNS = 10
"""Draft lengths that are shown side by side."""

BASIS = ("costs", "estimate", "confidence", "samples")
"""Grounds of an answer, which JSON leaves out."""

COST_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Draft steps in target calls that are gone through where no costs are given."""


def read_record(options: SimpleNamespace) -> AcceptanceRecord:
    """Return the record that the options name."""
    record = AcceptanceRecord.together([read_acceptance(file) for file in options.files])
    return record if options.since is None else record.since(read_acceptance(options.since))


def answer(options: SimpleNamespace, record: AcceptanceRecord, *, as_json: bool = False) -> str:
    """Return the answer that the options ask for, in words or as JSON."""
    costs = _costs(options, record)
    if options.engine is not None:
        return json.dumps(_vllm_table(options, record, costs))
    if not record.measured:
        return _of_mean(options, record, costs, as_json=as_json)
    if costs is None:
        plans = _by_ratio(options, record)
        if as_json:
            ratios = dict(zip(map(str, COST_RATIOS), plans, strict=True))
            return _json(options, record, {"by_draft_cost": ratios})
        return "\n".join(_without_costs(options, record, plans))
    plan = plan_lengths(
        record,
        costs,
        batches=options.batch_sizes,
        contexts=options.context_lengths,
        extend=options.extend,
        extrapolate_costs=options.extrapolate_costs,
        confidence=options.confidence,
    )
    if as_json:
        return _json(options, record, plan)
    lines = [
        *_headline(plan),
        *paragraph("", _interval_words(plan), indent=2),
        "",
        *_record(options, record),
        *paragraph("costs", _described(costs)),
        "",
        *_table(plan),
        *_limits(plan, record),
    ]
    return "\n".join(lines)


def _json(options: SimpleNamespace, record: AcceptanceRecord, answer: object) -> str:
    """Return the record and the answer as JSON; unknown values are null."""
    told = {
        "record": {
            "form": record.form,
            "unit": record.unit,
            "parts": len(record.parts),
            "steps": record.steps,
            "tokens": record.mean,
            "drafts": record.drafts_per_step,
            "notes": record.notes,
            "times": record.times,
        },
        "answer": answer,
    }
    return json.dumps(_plain(told), allow_nan=False)


def _plain(value: Any) -> Any:
    """Return values in the types of JSON, without the grounds of the answer."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        names += [name for name in ("verdict", "pays", "could_pay") if name in vars(type(value))]
        return {name: _plain(getattr(value, name)) for name in names if name not in BASIS}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _costs(options: SimpleNamespace, record: AcceptanceRecord) -> CostSurface | None:
    """Return the surface that the options give, None without options of costs."""
    given = [options.draft_ms is not None, options.target_ms is not None]
    if options.costs:
        if any(given):
            raise InvalidParameter(
                "--costs stands for --draft-ms and --target-ms; got both. Drop one of them."
            )
        return read_costs(*options.costs)
    if options.times:
        return _timed(options, record)
    if not any(given):
        return None
    if not all(given):
        raise InvalidParameter(
            "--draft-ms and --target-ms go together; got one of them. Give both, or neither."
        )
    return CostSurface.flat(
        draft=options.draft_ms / 1e3,
        target=_by_drafts(options.target_ms),
        source="--draft-ms and --target-ms",
    )


def _timed(options: SimpleNamespace, record: AcceptanceRecord) -> CostSurface:
    """Return costs of which the record tells a step's time, and the user a call's."""
    times, drafts = record.times, record.drafts_per_step or record.length or options.max_drafts
    if times is None or not drafts or options.target_ms is None or options.draft_ms is not None:
        raise InvalidParameter(
            "--times needs a record with times and drafts a step, and --target-ms, what a token "
            "takes without speculation; one is missing, or --draft-ms is there. A log of the "
            "engine without speculation says it."
        )
    running = options.batch_sizes[0] if options.batch_sizes else times.usual
    if running not in times.token:
        raise InvalidParameter(
            f"--batch-sizes is a number of running requests in the record; got {running}. It has "
            f"{list(times.token)[:9]}."
        )
    step, calls = times.token[running] * record.mean, _by_drafts(options.target_ms)
    call = CostSurface.flat(draft=0.0, target=calls).at(batch=1, context=0, length=drafts).target
    draft = (step - call) / drafts if times.draft is None else times.draft
    if draft < 0:
        raise InvalidParameter(
            f"A step takes at least its call; by the record it took {1e3 * step:.4g} ms, the call "
            f"{1e3 * call:.4g} ms. Measure --target-ms with {running} running."
        )
    told = "a step's" if times.draft is None else "a draft's"
    source = f"--target-ms, and {told} time in the record with {running or 'some'} running"
    return CostSurface.flat(draft=draft, target=calls, source=source)


def _by_drafts(text: str) -> dict[int, float]:
    """Read 20, or 0:20,4:21, and return seconds by number of drafts."""
    pairs = text.split(",") if ":" in text else [f"0:{text}"]
    try:
        split = [pair.split(":") for pair in pairs]
        return {int(drafts): float(ms) / 1e3 for drafts, ms in split}
    except ValueError as error:
        raise InvalidParameter(
            f"--target-ms is a time, or times by number of drafts; got {text!r:.60}. Pass "
            "0:20,8:24."
        ) from error


def _vllm_table(
    options: SimpleNamespace, record: AcceptanceRecord, costs: CostSurface | None
) -> dict[str, object]:
    if costs is None:
        raise InvalidParameter(
            "Draft lengths by batch size need costs; none are given. Pass --costs."
        )
    contexts = options.context_lengths or costs.contexts[-1:]
    if len(contexts) != 1:
        raise InvalidParameter(
            f"vLLM's table is for one context length; got {contexts}. Pass one --context-lengths."
        )
    return vllm_lengths(
        record,
        costs,
        context=contexts[0],
        max_batch=None if options.batch_sizes is None else max(options.batch_sizes),
        extend=options.extend,
        extrapolate_costs=options.extrapolate_costs,
    )


def _headline(plan: LengthPlan) -> Iterator[str]:
    """Yield the advice."""
    if len(plan.choices) > 1:
        yield _of_all_cells(plan.choices)
        return
    (choice,) = plan.choices
    who, ran, longest = "", plan.engine_length, plan.costs.longest
    short = longest is not None and ran is not None and ran > longest and choice.over_engine is None
    known = f"costs are known to {longest}, the engine ran {ran:.3g}" if short else ""
    if choice.length:
        doubt = "" if choice.verdict == "speculate" else ", MAYBE: the interval contains 1"
        least = "at least " * choice.limited_by_costs
        drafts = f"{least}{choice.length} draft{'s' if choice.length > 1 else ''} a step"
        yield f"SPECULATE{doubt}: {drafts}{f'; {known}' if known else ''}"
        faster = choice.over_plain.words(unit=" x plain decoding")
        yield f"  {faster}, {choice.tokens:.2f} tokens a step"
    else:
        who = "plain decoding is "
        length, best = choice.best
        gives = best.words(unit=" x plain decoding")
        yield (
            f"DO NOT SPECULATE with {longest} drafts or fewer; {known}"
            if known
            else ("DO NOT SPECULATE")
        )
        yield (
            f"  the best number of drafts, {length}, gives {gives}"
            if length
            else "  no number of drafts has measured costs"
        )
    if choice.over_engine is not None and ran is not None:
        faster = choice.over_engine.words(unit=" x what the engine ran")
        drafts = f"{ran:.3g} draft{'' if ran == 1 else 's'}"
        yield f"  {who}{faster}: {drafts} a step"


def _of_all_cells(choices: Sequence[LengthChoice]) -> str:
    """Return the advice for all cells together."""
    lengths = sorted({choice.length for choice in choices if choice.verdict == "speculate"})
    drafting = sum(choice.verdict == "speculate" for choice in choices)
    undecided = sum(choice.verdict == "undecided" for choice in choices)
    if not drafting:
        but = f", but {undecided} of {len(choices)} cells are undecided" if undecided else ""
        return f"DO NOT SPECULATE{but}"
    if drafting < len(choices):
        return (
            f"SPECULATE in {drafting} of {len(choices)} cells; {undecided} undecided; in the "
            "others do not"
        )
    if len(lengths) == 1:
        return f"SPECULATE: {lengths[0]} drafts a step in every cell"
    return f"SPECULATE: {lengths[0]} to {lengths[-1]} drafts a step, by cell"


def _interval_words(plan: LengthPlan, where: str = "in brackets") -> str:
    level = f"{100 * plan.confidence:g} %"
    return {
        "request": f"{where} {level} over requests, for all lengths at once",
        "step": (
            f"{where} {level} if steps were independent: requests are not told apart, so too "
            "narrow where they differ"
        ),
        "none": "no interval: the record has nothing independent to count",
    }[plan.estimate.clusters]


def _record(options: SimpleNamespace, record: AcceptanceRecord) -> Iterator[str]:
    """Yield the record and the limits of the record."""
    steps = f"{record.steps:,.0f} steps" if record.steps is not None else "rates without counts"
    parts = f"{len(record.parts):,} {record.unit}{'s' if len(record.parts) > 1 else ''}"
    held = f"{record.form}, {parts}, {steps}; {record.convention}"
    named = ", ".join(Path(file).name for file in options.files)
    yield from paragraph("record", f"{named}: {held}")
    pooled = "pooled over steps" if record.counted else "mean of the parts"
    means = f"tokens a step: {record.mean:.3f} {pooled}"
    if record.unit == "request" and len(record.parts) > 1:
        found = request_mean(record, confidence=options.confidence)
        means += f"; {found.words(digits=3, unit=' mean of requests')}"
    elif record.reported_mean is not None:
        means += f"; {record.reported_mean:.3f} mean of requests, as the file says"
    yield from paragraph("", means)
    yield from paragraph("", _lengths_words(record))
    with contextlib.suppress(InvalidParameter):  # no steps listed, or no long ones beside short
        check = check_lengths(record)
        if check.contradicted:
            yield from paragraph(
                "",
                f"THEY ARE NOT independent: of first drafts {check.longer:.2f} are accepted in "
                f"long steps, {check.shorter:.2f} in short ones. What is corrected is off: go by "
                "the bounds",
            )
    for note in record.notes:
        yield from paragraph("", note)
    if record.times is not None:
        each, running = record.times.token[record.times.usual], record.times.usual or "some"
        yield from paragraph(
            "times",
            f"{1e3 * each:.4g} ms a token, {1e3 * each * record.mean:.4g} ms a step with {running} "
            "running; --times takes them as costs, beside --target-ms without speculation",
        )


def _lengths_words(record: AcceptanceRecord) -> str:
    """Return words on the known draft lengths, and the consequences."""
    if not record.measured:
        return "positions are not recorded: what ran is known, other lengths are bounded"
    low, high = survival_bounds(record).tokens
    bounds = f"{low[-1]:.2f} to {high[-1]:.2f} tokens at {record.measured} drafts"
    return {
        "none": f"every step drafted {record.measured}",
        "observed": (
            "draft lengths differ and are recorded: corrected, if they are independent of "
            f"acceptance; without that {bounds}"
        ),
        "hidden": (
            "draft lengths differ and are not recorded: undrafted reads as rejected and cannot be "
            f"corrected here; {bounds}. Record steps in detail"
        ),
        "unknown": (
            "draft lengths are not recorded: taken as equal; if they differ, undrafted reads as "
            "rejected, which a histogram cannot correct"
        ),
    }[record.censoring]


def _described(costs: CostSurface) -> str:
    """Return words on source, range and assumptions of costs."""
    size = (
        f"batches of {_range(costs.batches)}, contexts of {_range(costs.contexts)}, calls of "
        f"{_range(costs.tokens)} tokens"
    )
    if len(costs.batches) * len(costs.contexts) == 1:
        draft, *calls = 1e3 * np.concatenate([costs.draft[0], costs.target[0, 0]])
        size = f"{draft:.4g} ms a draft, {calls[0]:.4g} ms a target call"
        if len(calls) > 1:
            size += f", {calls[-1]:.4g} ms checking {costs.tokens[-1] - 1} drafts"
    assumed = f". Assumed: {'; '.join(costs.assumptions)}" if costs.assumptions else ""
    return f"from {costs.source}: {size}{assumed}"


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _table(plan: LengthPlan) -> Iterator[str]:
    """Show the speed-ups of every length, or of every cell."""
    if len(plan.choices) == 1:
        yield from _by_length(plan, plan.choices[0])
        return
    rows = [("batch", "context", "drafts", "x plain", "x what the engine ran")]
    for choice in plan.choices[:MAX_ROWS]:
        engine = "" if choice.over_engine is None else choice.over_engine.words()
        plain = f"1; best {choice.best[1].value:.2f}"
        if choice.length:
            plain = choice.over_plain.words()
        ends = choice.reach == "at the limit" or choice.limited_by_costs
        marks = "*" * ends + "?" * (choice.verdict == "undecided")
        drafts = f"{choice.length}{marks:2}"
        rows.append((f"{choice.batch}", f"{choice.context}", drafts, plain, engine))
    yield from columns(rows, right=(0, 1, 2))
    if any(choice.verdict == "undecided" for choice in plan.choices):
        yield "  ? the interval contains 1"
    if len(plan.choices) > MAX_ROWS:
        yield f"  … {len(plan.choices) - MAX_ROWS} more; --batch-sizes and --context-lengths choose"


def _by_length(plan: LengthPlan, choice: LengthChoice) -> Iterator[str]:
    """Show every length, or a selection that holds the ends and the chosen one."""
    last = len(choice.curve) - 1
    wanted = {1, 2, 3, 4, last, *range(max(1, choice.length - 2), choice.length + 3)}
    shown = sorted(wanted & set(range(1, last + 1)))[-MAX_COLUMNS:]
    tokens = [f"{plan.estimate.tokens[n]:.2f}" if n <= plan.measured else "+" for n in shown]
    rows = [
        ("drafts", *map(str, shown)),
        ("tokens", *tokens),
        ("x plain", *(f"{choice.curve[n]:.2f}" for n in shown)),
    ]
    yield from columns(rows, right=range(1, len(rows[0])))


def _limits(plan: LengthPlan, record: AcceptanceRecord) -> Iterator[str]:
    """Say where the answer ends because the measurements end."""
    star = "* " * (len(plan.choices) > 1)
    reached = {choice.reach for choice in plan.choices}
    limits = {
        f"{star}{plan.measured} drafts are the most that were measured: more may pay. Run the "
        f"engine with more, or --extend {2 * plan.measured}.": "at the limit" in reached,
        f"beyond {plan.measured} drafts acceptance is extrapolated, at the last position's rate.": (
            "beyond" in reached
        ),
        f"costs are measured up to {plan.costs.longest} drafts: measure longer calls, or "
        "--extrapolate-costs.": any(choice.limited_by_costs for choice in plan.choices),
        "some costs are extrapolated beyond what was measured.": any(
            choice.costs_extrapolated for choice in plan.choices
        ),
        f"{record.unlocated:.2f} accepted drafts a step lie beyond the record's list.": (
            record.unlocated > 0.02
        ),
    }
    for said, holds in limits.items():
        if holds:
            yield from paragraph("limit", said)


def _of_mean(
    options: SimpleNamespace, record: AcceptanceRecord, costs: CostSurface | None, *, as_json: bool
) -> str:
    """Answer from a mean: does the engine's run pay, and which lengths can."""
    if costs is None:
        cells = {f"{r:g}": (CostSurface.flat(draft=r, target=1.0), 1, 0) for r in COST_RATIOS}
    else:
        cells = {
            f"{batch} x {context}": (costs, batch, context)
            for context in options.context_lengths or costs.contexts
            for batch in options.batch_sizes or costs.batches
        }
    plans = {
        name: plan_mean(
            record,
            surface,
            batch=batch,
            context=context,
            drafts=options.max_drafts,
            extrapolate_costs=options.extrapolate_costs,
        )
        for name, (surface, batch, context) in cells.items()
    }
    if as_json:
        return _json(options, record, {"break_even_calls": record.mean, "by_cell": plans})
    lines = [*_mean_headline(record, costs, list(plans.values())), ""]
    lines += _record(options, record)
    lines += [] if costs is None else paragraph("costs", _described(costs))
    lines += ["", *_mean_tables(plans, costs is None)]
    return "\n".join(lines).rstrip()


def _mean_headline(
    record: AcceptanceRecord, costs: CostSurface | None, plans: Sequence[MeanPlan]
) -> Iterator[str]:
    """Yield the verdict on the engine's run."""
    plan, ran = plans[0], sum((one.over_plain or 0.0) > 1.0 for one in plans)
    even = [
        "  what the engine ran pays while a step, drafts and call together, takes less",
        f"  than {record.mean:.2f} x a call of the target without drafts",
    ]
    if costs is None:
        yield "IT DEPENDS ON COSTS, and none are given: pass --draft-ms and --target-ms"
        yield from even
    elif np.isnan(plan.drafts):
        yield "IT DEPENDS ON DRAFTS: the record does not say how many a step; pass --max-drafts"
        yield from even
    elif plan.over_plain is None:
        known = f"costs are known to {costs.longest} drafts, the engine ran {plan.drafts:.3g}"
        yield f"IT DEPENDS ON COSTS: {known}"
        yield from even
    elif len(plans) > 1:
        yield f"SPECULATE in {ran} of {len(plans)} cells: what the engine ran pays there"
    else:
        does = "SPECULATE: what the engine ran pays," if ran else "DO NOT SPECULATE as it ran:"
        yield f"{does} {plan.over_plain:.2f} x plain decoding"
        yield f"  {plan.tokens:.2f} tokens and {plan.drafts:.3g} drafts a step"
    if len(plan.lower) == 1:
        yield "  --max-drafts L, the most that a step drafts, bounds other lengths"
    elif len(plans) == 1:
        yield f"  surely faster than plain decoding: {_lengths(plan.pays)}"
        could = [length for length in plan.could_pay if length not in plan.pays]
        if could:
            yield f"  perhaps faster, which takes rates by position: {_lengths(could)}"


def _lengths(lengths: Sequence[int]) -> str:
    """Name lengths of drafts, which are consecutive or not."""
    drafting = [length for length in lengths if length]
    if not drafting:
        return "no length"
    single = len(drafting) == 1
    named = f"{drafting[0]}" if single else f"{drafting[0]} to {drafting[-1]}"
    if len(drafting) not in (1, drafting[-1] - drafting[0] + 1):
        named = ", ".join(map(str, drafting))
    return f"{named} draft{'' if single else 's'}"


def _mean_tables(plans: dict[str, MeanPlan], ratios: bool) -> Iterator[str]:
    """Yield a table of every length of one cell, or of every cell or cost."""
    if len(plans) == 1:
        (plan,) = plans.values()
        if len(plan.lower) == 1:
            return
        shown = range(1, min(len(plan.lower), MAX_COLUMNS + 1))
        rows: list[tuple[str, ...]] = [
            ("drafts", *map(str, shown)),
            ("x plain, at least", *(f"{plan.lower[n]:.2f}" for n in shown)),
            ("  at most", *(f"{plan.upper[n]:.2f}" for n in shown)),
        ]
        yield from columns(rows, right=range(1, len(rows[0])))
    elif plans:
        rows = [("a draft in calls" if ratios else "batch x context", "as it ran", "pays", "may")]
        for name, plan in list(plans.items())[:MAX_ROWS]:
            ran = "" if plan.over_plain is None else f"{plan.over_plain:.2f}"
            lists = ([n for n in each if n] for each in (plan.pays, plan.could_pay))
            rows.append((name, ran, *(" ".join(map(str, each[:12])) for each in lists)))
        yield from columns(rows, right=(0, 1))


def _by_ratio(options: SimpleNamespace, record: AcceptanceRecord) -> list[LengthPlan]:
    """Plan for a range of costs."""
    return [
        plan_lengths(
            record,
            CostSurface.flat(draft=ratio, target=1.0),
            extend=options.extend,
            confidence=options.confidence,
        )
        for ratio in COST_RATIOS
    ]


def _without_costs(
    options: SimpleNamespace, record: AcceptanceRecord, plans: Sequence[LengthPlan]
) -> Iterator[str]:
    """Answer for a range of costs, and ask for the user's costs."""
    choices = [plan.choices[0] for plan in plans]
    speedups = [choice.over_plain for choice in choices]
    at_limit = [choice.reach == "at the limit" for choice in choices]
    yield "IT DEPENDS ON COSTS, and none are given: pass --draft-ms and --target-ms,"
    yield "or --costs with what was measured (a record of `latency`, say)."
    yield ""
    yield from _record(options, record)
    yield from paragraph("", _interval_words(plans[0], "at least:"))
    yield ""
    marked = (f"{choice.length}{'*' * at}" for choice, at in zip(choices, at_limit, strict=True))
    least = (f"{one.low:.2f}" if one.has_interval else "-" for one in speedups)
    rows = [
        ("a draft costs, in target calls", *(f"{ratio:g}" for ratio in COST_RATIOS)),
        ("drafts a step", *marked),
        ("x plain decoding", *(f"{one.value:.2f}" for one in speedups)),
        ("  at least", *least),
    ]
    yield from columns(rows, right=range(1, len(rows[0])))
    yield "(0 drafts: do not speculate. A target call is taken to cost the same whatever it"
    yield "checks, which flatters long drafts: give --target-ms by number of drafts.)"
    if any(at_limit):
        further = f"--extend {2 * plans[0].measured} goes on."
        yield f"* the most that was measured: more may pay. {further}"
