"""The costs of ``otm plan``: as given, as measured, or from what a token takes with speculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np

from otm.commands.printing import paragraph
from otm.engines import AcceptanceRecord, CostSurface, read_costs
from otm.errors import InvalidParameter


def costs_of(options: SimpleNamespace, record: AcceptanceRecord) -> CostSurface | None:
    """Return the surface that the options give, None without options of costs."""
    given = [options.draft_ms is not None, options.target_ms is not None]
    if options.costs:
        if any(given) or options.token_ms is not None:
            raise InvalidParameter(
                "--costs stands for --draft-ms and the other times; got both. Drop one of them."
            )
        return read_costs(*options.costs)
    if options.times or options.token_ms is not None:
        return _timed(options, record)
    if not any(given):
        return None
    if not all(given):
        raise InvalidParameter(
            "--draft-ms and --target-ms go together; got one of them. Give both, or neither."
        )
    return CostSurface.flat(
        draft=options.draft_ms / 1e3,
        target=_target_seconds(options),
        source="--draft-ms and --target-ms",
    )


def by_drafts(text: str, option: str) -> dict[int, float]:
    """Read numbers by number of drafts, such as 0:20,4:21.

    >>> by_drafts("3:2.59,5:2.80", "--means")
    {3: 2.59, 5: 2.8}
    """
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        return {int(drafts): float(number) for drafts, number in pairs}
    except ValueError as error:
        raise InvalidParameter(
            f"{option} has numbers by number of drafts; got {text!r:.60}. Pass 3:20,8:24, say."
        ) from error


def step_cost(options: SimpleNamespace, record: AcceptanceRecord) -> dict[str, float | None] | None:
    """Return the cost of a step in target calls, from the time of a token.

    A call takes the time of a token for each of its tokens, of which a call without drafts takes
    its own; the rest is that of steps.

    Returns:
        target_calls, per_draft (None where drafts a step are not known) and over_plain, the
        speed-up of what ran; None unless a time of a token is asked for.
    """
    times = record.times if options.times or options.token_ms is not None else None
    if times is None or options.target_ms is None:
        return None
    running = options.batch_sizes[0] if options.batch_sizes else times.usual
    if running not in times.token:
        raise InvalidParameter(
            f"--batch-sizes is a number of running requests in the record; got {running}. It has "
            f"{list(times.token)[:9]}."
        )
    targets = CostSurface.flat(draft=0.0, target=_target_seconds(options))
    plain, share = targets.at(batch=1, context=0, length=0).plain, record.drafting_share
    calls = (times.token[running] / plain * record.mean - (1.0 - share)) / share
    drafts = _drafts(options, record)
    return {
        "target_calls": calls,
        "per_draft": (calls - 1.0) / drafts if drafts else None,
        "over_plain": plain / times.token[running],
    }


def step_words(options: SimpleNamespace, record: AcceptanceRecord) -> Iterator[str]:
    """Yield the cost of a step, its parts, and the cost up to which it pays."""
    cost = step_cost(options, record)
    if cost is None:
        return
    calls, each = cost["target_calls"] or 0.0, cost["per_draft"]
    parts = f"1 the target's own, {calls - 1:.2f} for drafts and the longer check"
    parts += f", {each:.2f} a draft" if each else ""
    alone, drafts = record.times and record.times.draft, _drafts(options, record)
    if alone and drafts:  # an engine that times its drafts by themselves
        spent = alone * drafts / _target_seconds(options)[0]
        parts += f"; by the record drafting itself takes {spent:.2f}"
    yield from paragraph("step", f"costs {calls:.2f} target calls: {parts}")
    yield from paragraph("", f"pays below {record.drafting_mean:.2f}, the tokens of a step")


def described(costs: CostSurface) -> str:
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


def _target_seconds(options: SimpleNamespace) -> dict[int, float]:
    """Read 20, or 0:20,4:21, and return seconds by number of drafts."""
    text = options.target_ms if ":" in options.target_ms else f"0:{options.target_ms}"
    return {drafts: ms / 1e3 for drafts, ms in by_drafts(text, "--target-ms").items()}


def _drafts(options: SimpleNamespace, record: AcceptanceRecord) -> float | None:
    """Return the drafts of a step, as far as record or options tell."""
    return record.drafts_per_step or record.length or options.drafts


def _timed(options: SimpleNamespace, record: AcceptanceRecord) -> CostSurface | None:
    """Return costs of which the record or an option tells a step's time, and the user a call's."""
    cost, drafts, times = step_cost(options, record), _drafts(options, record), record.times
    if cost is None or times is None or options.draft_ms is not None:
        raise InvalidParameter(
            "--times needs a record with times, or --token-ms instead; and --target-ms, what a "
            "token takes without speculation. One is missing, or --draft-ms is there. A log of "
            "the engine without speculation says it."
        )
    if not drafts:
        return None
    targets = _target_seconds(options)
    step = (cost["target_calls"] or 0.0) * targets[0]
    call = CostSurface.flat(draft=0.0, target=targets).at(batch=1, context=0, length=drafts).target
    draft = (step - call) / drafts
    running = (options.batch_sizes or [times.usual])[0] or "some"
    if draft < 0:
        raise InvalidParameter(
            f"A step takes at least its call; by the times it took {1e3 * step:.4g} ms, the call "
            f"{1e3 * call:.4g} ms. Measure --target-ms with {running} running."
        )
    source = f"--target-ms, and a step's time in the record with {running} running"
    if options.token_ms is not None:
        source = "--target-ms and --token-ms"
    return CostSurface.flat(draft=draft, target=targets, source=source)


def _range(values: Sequence[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
