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
from otm.commands.plan_costs import costs_of, described, step_cost, step_words
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
    request_mean,
    survival_bounds,
    vllm_lengths,
)
from otm.engines.records.estimates import Clusters
from otm.engines.records.record import Times
from otm.errors import InvalidParameter
from otm.pmf import check_real

MAX_ROWS = 10
"""Rows of a table by batch and context that are shown."""

MAX_COLUMNS = 10
"""Draft lengths that are shown side by side."""

BASIS = ("costs", "estimate", "confidence", "samples")
"""Grounds of an answer, which JSON leaves out."""

COST_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Draft steps in target calls that are gone through where no costs are given."""


def answer(
    options: SimpleNamespace, models: dict[str, AcceptanceRecord], *, as_json: bool = False
) -> str:
    """Return the answers for all models, in words or as JSON."""
    told = {name: _answer(options, record, as_json=as_json) for name, record in models.items()}
    if len(told) == 1:
        return "".join(told.values())
    if as_json or options.engine is not None:
        return json.dumps({"models": {name: json.loads(text) for name, text in told.items()}})
    return "\n\n".join(f"MODEL {name}\n{text}" for name, text in told.items())


def _answer(options: SimpleNamespace, record: AcceptanceRecord, *, as_json: bool) -> str:
    """Return the answer that the options ask for, in words or as JSON."""
    if options.extend is not None and options.extend < record.measured:
        raise InvalidParameter(
            f"--extend goes on from the {record.measured} measured positions; got "
            f"{options.extend}. All lengths up to them are compared anyway: leave it out."
        )
    if options.token_ms is not None:
        token = check_real(options.token_ms, name="--token-ms", low=0.0, open_low=True, high=1e9)
        running = (options.batch_sizes or [0])[0]
        record = dataclasses.replace(record, times=Times({running: token / 1e3}, running))
    costs = costs_of(options, record)
    if options.engine is not None:
        return json.dumps(_vllm_table(options, record, costs))
    if not record.measured:
        return _of_mean(options, record, costs, as_json=as_json)
    if costs is None:
        plans = [
            plan_lengths(
                record,
                CostSurface.flat(draft=ratio, target=1.0),
                extend=options.extend,
                confidence=options.confidence,
            )
            for ratio in COST_RATIOS
        ]
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
        *paragraph("", interval_words(plan.estimate.clusters, plan.confidence), indent=2),
        "",
        *_record(options, record),
        *step_words(options, record),
        *paragraph("costs", described(costs)),
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
            "undrafted": record.undrafted,
            "notes": record.notes,
            "times": record.times,
        },
        "step": step_cost(options, record),
        "answer": answer,
    }
    return json.dumps(plain(told), allow_nan=False)


def plain(value: Any) -> Any:
    """Return values in the types of JSON, without the grounds of the answer."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        names += [
            name
            for name in ("verdict", "pays", "could_pay", "as_it_ran")
            if name in vars(type(value))
        ]
        return {name: plain(getattr(value, name)) for name in names if name not in BASIS}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


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
    unit = "step" if plan.estimate.share == 1.0 else "call"
    who, ran, longest = "", plan.engine_length, plan.costs.longest
    short = longest is not None and ran is not None and ran > longest and choice.over_engine is None
    known = f"costs are known to {longest}, the engine ran {ran:.3g}" if short else ""
    if _keeps(choice):
        yield f"KEEP WHAT RAN: {ran:.3g} drafts a step, {choice.as_it_ran:.2f} x plain decoding"
        faster = choice.over_plain.words(unit=" x")
        yield f"  no measured length is faster: {_lengths([choice.length])}, {faster}"
    elif choice.length:
        doubt = "" if choice.verdict == "speculate" else ", MAYBE: the interval contains 1"
        least = "at least " * choice.limited_by_costs
        drafts = f"{least}{choice.length} draft{'s' if choice.length > 1 else ''} a step"
        yield f"SPECULATE{doubt}: {drafts}{f'; {known}' if known else ''}"
        faster = choice.over_plain.words(unit=" x plain decoding")
        yield f"  {faster}, {choice.tokens:.2f} tokens a {unit}"
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


def _keeps(choice: LengthChoice) -> bool:
    """Return True where what ran beats all measured lengths, by more than rounding."""
    return choice.as_it_ran is not None and float(choice.best[1].value) < 0.995 * choice.as_it_ran


def _fastest(choice: LengthChoice) -> float:
    """Return the speed-up of what ran where that is kept, else of the chosen length."""
    return float((_keeps(choice) and choice.as_it_ran) or choice.over_plain.value)


def _of_all_cells(choices: Sequence[LengthChoice]) -> str:
    """Return the advice for all cells together."""
    if kept := sum(map(_keeps, choices)):
        return f"KEEP WHAT RAN in {kept} of {len(choices)} cells: no measured length is faster"
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


def interval_words(
    clusters: Clusters,
    confidence: float,
    where: str = "in brackets",
    whole: str = ", for all lengths at once",
) -> str:
    """Return words on the kind of an interval."""
    level = f"{100 * confidence:g} %"
    return {
        "request": f"{where} {level} over requests{whole}",
        "step": (
            f"{where} {level} if steps were independent: requests are not told apart, so too "
            "narrow where they differ"
        ),
        "none": "no interval: the record has nothing independent to count",
    }[clusters]


def _record(options: SimpleNamespace, record: AcceptanceRecord) -> Iterator[str]:
    """Yield the record and the limits of the record."""
    steps = f"{record.steps:,.0f} steps" if record.steps is not None else "rates without counts"
    parts = f"{len(record.parts):,} {record.unit}{'s' if len(record.parts) > 1 else ''}"
    held = f"{record.form}, {parts}, {steps}; {record.convention}"
    named = ", ".join(map(name_of, options.files or ()))
    yield from paragraph("record", f"{named}: {held}" if named else held)
    pooled = "pooled over steps" if record.counted else "mean of the parts"
    means = f"tokens a step: {record.mean:.3f} {pooled}"
    if record.undrafted:
        means = f"tokens a call: {record.mean:.3f}; {record.drafting_mean:.3f} where something was "
        calls = record.weight + record.undrafted
        means += f"drafted ({record.weight:,.0f} of {calls:,.0f} calls)"
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
    if record.times is not None and step_cost(options, record) is None:
        each, running = record.times.token[record.times.usual], record.times.usual or "some"
        yield from paragraph(
            "times",
            f"{1e3 * each:.4g} ms a token, {1e3 * each * record.mean:.4g} ms a {_unit(record)} "
            f"with {running} running; --times takes them as costs, beside --target-ms without "
            "speculation",
        )


def name_of(source: str) -> str:
    """Return the name of a file, or a whole address."""
    return source if "://" in source else Path(source).name


def _unit(record: AcceptanceRecord) -> str:
    """Return the name of a target call: a step, if all of them check drafts."""
    return "call" if record.undrafted else "step"


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
    most = "1 draft is" if plan.measured == 1 else f"{plan.measured} drafts are"
    limits = {
        f"{star}{most} the most that were measured: more may pay. Run the engine with more, or "
        f"--extend {2 * plan.measured}.": "at the limit" in reached,
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
    if options.extend is not None:
        raise InvalidParameter(
            f"--extend goes on from measured positions; this {record.form} has none. Record rates "
            "by position, or leave it out."
        )
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
            drafts=options.drafts,
            extrapolate_costs=options.extrapolate_costs,
        )
        for name, (surface, batch, context) in cells.items()
    }
    if as_json:
        return _json(options, record, {"break_even_calls": record.mean, "by_cell": plans})
    lines = [*_mean_headline(options, record, costs, list(plans.values())), ""]
    lines += [*_record(options, record), *step_words(options, record)]
    lines += [] if costs is None else paragraph("costs", described(costs))
    lines += ["", *_mean_tables(plans, costs is None)]
    return "\n".join(lines).rstrip()


def _mean_headline(
    options: SimpleNamespace,
    record: AcceptanceRecord,
    costs: CostSurface | None,
    plans: Sequence[MeanPlan],
) -> Iterator[str]:
    """Yield the verdict on the engine's run."""
    plan, ran = plans[0], sum((one.over_plain or 0.0) > 1.0 for one in plans)
    even = [
        "  what the engine ran pays while a step, drafts and call together, takes less",
        f"  than {record.drafting_mean:.2f} x a call of the target without drafts",
    ]
    cost = step_cost(options, record)
    if costs is None and cost:
        yield _ran(cost["over_plain"] or 0.0)
    elif costs is None:
        yield "IT DEPENDS ON COSTS, and none are given: pass --draft-ms and --target-ms"
        yield from even
    elif np.isnan(plan.drafts):
        yield "IT DEPENDS ON DRAFTS: the record does not say how many a step; pass --drafts"
        yield from even
    elif plan.over_plain is None:
        known = f"costs are known to {costs.longest} drafts, the engine ran {plan.drafts:.3g}"
        yield f"IT DEPENDS ON COSTS: {known}"
        yield from even
    elif len(plans) > 1:
        yield f"SPECULATE in {ran} of {len(plans)} cells: what the engine ran pays there"
    else:
        yield _ran(plan.over_plain)
        yield f"  {plan.tokens:.2f} tokens and {plan.drafts:.3g} drafts a {_unit(record)}"
    if len(plan.lower) == 1:
        yield "  --drafts L, the most that a step drafts, bounds other lengths"
    elif len(plans) == 1:
        yield f"  surely faster than plain decoding: {_lengths(plan.pays)}"
        could = [length for length in plan.could_pay if length not in plan.pays]
        if could:
            yield f"  perhaps faster, which takes rates by position: {_lengths(could)}"


def _ran(speedup: float) -> str:
    """Return the verdict on what the engine ran."""
    pays = "SPECULATE: what the engine ran pays," if speedup > 1 else "DO NOT SPECULATE as it ran:"
    return f"{pays} {speedup:.2f} x plain decoding"


def _lengths(lengths: Sequence[int]) -> str:
    """Name lengths of drafts, which are consecutive or not."""
    drafting = [length for length in lengths if length]
    if not drafting:
        return "no length"
    single = len(drafting) == 1
    named = f"{drafting[0]}" if single else f"{drafting[0]} to {drafting[-1]}"
    if len(drafting) not in (1, drafting[-1] - drafting[0] + 1):
        named = ", ".join(map(str, drafting))
    return f"{named} draft{'' if drafting == [1] else 's'}"


def _mean_tables(plans: dict[str, MeanPlan], ratios: bool) -> Iterator[str]:
    """Yield a table of every length of one cell, or of every cell or cost."""
    if all(len(one.lower) == 1 and one.over_plain is None for one in plans.values()):
        return
    if len(plans) == 1:
        (plan,) = plans.values()
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
    yield from paragraph(
        "", interval_words(plans[0].estimate.clusters, options.confidence, "at least:")
    )
    yield ""
    marked = (
        "ran" if _keeps(choice) else f"{choice.length}{'*' * at}"
        for choice, at in zip(choices, at_limit, strict=True)
    )
    least = (
        f"{one.low:.2f}" if one.has_interval and not _keeps(choice) else "-"
        for one, choice in zip(speedups, choices, strict=True)
    )
    rows = [
        ("a draft costs, in target calls", *(f"{ratio:g}" for ratio in COST_RATIOS)),
        ("drafts a step", *marked),
        ("x plain decoding", *(f"{_fastest(choice):.2f}" for choice in choices)),
        ("  at least", *least),
    ]
    yield from columns(rows, right=range(1, len(rows[0])))
    yield "(0 drafts: do not speculate. A target call is taken to cost the same whatever it"
    yield "checks, which flatters long drafts: give --target-ms by number of drafts.)"
    if any(map(_keeps, choices)):
        yield "ran: no measured length is faster than what the engine ran."
    if any(at_limit):
        further = f"--extend {2 * plans[0].measured} goes on."
        yield f"* the most that was measured: more may pay. {further}"
