"""The advice on one screen: the verdict, the plans, the costs and losses, settings for engines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otm._display.tabular import columns
from otm.commands.printing import paragraph
from otm.engines import CostSurface
from otm.losses import ROUNDED_MOST
from otm.results.statistics import Estimate
from otm.sequence import BlockVerification, Decoder, LikeliestTree, NoiseTree, RefinedScores

from ..run.loss_columns import PARTS
from .advice import Advice
from .engine_settings import chain_settings, engine_chain, likeliest_settings
from .families import NEEDS
from .losses import SEVERAL, DraftLosses
from .trial import Trial

_NAME, _NAME_OF_TRIAL = 34, 31
"""Columns of a plan's name, at most, in the two tables."""

_PAGES: dict[type[Decoder], str] = {
    NoiseTree: "matching",
    BlockVerification: "kernels",
    RefinedScores: "kernels",
}
"""Guide pages on decoders that no engine has an option for."""


def advice_screen(
    advice: Advice,
    *,
    draft: str,
    surroundings: Mapping[str, Any],
    passes: CostSurface | None,
    lost: DraftLosses | None,
) -> str:
    """Render the advice as text.

    Args:
        advice: what was measured.
        draft: the draft model's name, for engines.
        surroundings: device, threads, dtype, load and whatever else the costs depend on.
        passes: calls by context length; None if there was no time.
        lost: the losses of drafts; None likewise.
    """
    lines = [
        *_headline(advice),
        "",
        *_table(advice),
        *_limits(advice),
        *(_losses(lost) if lost is not None else ()),
        *_costs(advice, surroundings, passes),
        *_measured(advice),
    ]
    return "\n".join([*lines, *_engines(advice, draft)])


def trial_table(trials: Sequence[Trial], names: Mapping[str, str]) -> str:
    """Render predicted beside measured wall time."""
    if not trials:
        return "run     no prompt leaves room for a text; nothing was run"
    rows: list[tuple[str, ...]] = [
        ("", "tokens", "a call", "seconds", "", "x plain", ""),
        ("", "adv.", "meas.", "pred.", "meas.", "adv.", "meas."),
    ]
    for one in trials:
        name = f"  {names.get(one.name, one.name)[:_NAME_OF_TRIAL]}"
        values = (
            one.expected,
            one.tokens / one.calls,
            one.predicted,
            one.seconds,
            one.advised,
            one.speedup,
        )
        rows.append((name, *(f"{value:.2f}" for value in values)))
    lines = [
        f"run     {trials[0].texts} texts, decoded in every way in turns; steps timed again in "
        "between"
    ]
    lines += columns(rows, right=range(1, 7))
    wall, ratio, advised = (
        100.0 * max(abs(getattr(one, left) / getattr(one, right) - 1.0) for one in trials)
        for left, right in (
            ("predicted", "seconds"),
            ("predicted_speedup", "speedup"),
            ("advised", "speedup"),
        )
    )
    lines.append(
        f"  predicted wall times are off by at most {_at_most(wall)} %, their ratios by "
        f"{_at_most(ratio)} %,"
    )
    lines.append(f"  and the speed-ups of the advice, timed earlier, by {_at_most(advised)} %")
    return "\n".join(lines)


def _at_most(percent: float) -> int:
    """Round a percentage up to an integer, without regard to errors of subtraction."""
    return math.ceil(percent - 1e-9)


def so_far(advice: Advice) -> str:
    """Render the answer while measuring goes on, in two lines."""
    what, how_much = (line.strip() for line in itertools.islice(_headline(advice), 2))
    return f"so far  {what}\n        {how_much}; measuring goes on"


def _headline(advice: Advice) -> Iterator[str]:
    best = advice.best
    where = "plain decoding"
    if advice.verdict == "speculate":
        yield f"SPECULATE: {best.plan.words}"
        yield f"  {best.over_plain.words(unit=f' x {where}')}, {best.tokens:.2f} tokens a call"
        if best is not advice.chain:
            chain = f" x the best chain, of {advice.chain.plan.decoder.depth}"
            yield f"  {best.over_chain.words(unit=chain)}"
            if not best.over_chain.low > 1.0:
                yield "  not surely faster than that chain, which is simpler"
            yield f"  needs of the engine {NEEDS[best.plan.family]}"
        else:
            yield "  no other plan within the limits is faster than this chain"
    elif advice.verdict == "do not speculate":
        yield "DO NOT SPECULATE with this pair on this machine"
        yield f"  fastest: {best.plan.words}, {best.over_plain.words(unit=f' x {where}')}"
    else:
        lean = "SPECULATE, MAYBE" if best.over_plain.value > 1.0 else "DO NOT SPECULATE, PROBABLY"
        interval = best.over_plain.has_interval
        why = (
            "the interval of the fastest plan contains 1"
            if interval
            else "no interval from one prompt or one round"
        )
        yield f"{lean}: {why}"
        yield f"  {best.plan.words}: {best.over_plain.words(unit=f' x {where}')}"
        yield "  more --seconds or more prompts may decide"
    yield (
        f"  ({100 * advice.asked.confidence:g} % over prompts, for all {advice.num_plans} plans "
        "and every look at once)"
    )


def _table(advice: Advice) -> Iterator[str]:
    rows = [("", "tokens", "ms per", "x plain", "x chain"), ("", "a call", "call", "", "")]
    plain = ("plain decoding", 1.0, advice.plain_seconds, "1", 1 / advice.chain.over_plain.value)
    others = (
        (
            row.plan.words,
            row.tokens,
            sum(row.seconds),
            str(row.over_plain) if row.over_plain.has_interval else f"{row.over_plain.value:.2f}",
            row.over_chain.value,
        )
        for row in advice.rows
    )
    for name, tokens, seconds, speed, over_chain in (plain, *others):
        rows.append(
            (name[:_NAME], f"{tokens:.2f}", f"{1e3 * seconds:.2f}", speed, f"{over_chain:.2f}")
        )
    yield from columns(rows, right=(1, 2, 4))
    yield ""


def _limits(advice: Advice) -> Iterator[str]:
    best, model = advice.best, advice.model
    draft, target, rest = best.seconds
    tokens, whole = best.tokens * advice.plain_seconds, sum(best.seconds)
    reliefs = {
        "what drafting costs: with free draft calls": tokens / (target + rest),
        (
            "what verification costs: if a call that checks the drafts took no longer than one "
            "that "
            "checks none"
        ): tokens / (draft + min(target, model.checking(0)) + rest),
        "what drawing and verifying in Python costs: without it": tokens / (draft + target),
        "acceptance: with every draft accepted": (1 + best.plan.decoder.depth)
        * advice.plain_seconds
        / whole,
    }
    most = max(reliefs, key=reliefs.__getitem__)
    cause, _, relieved = most.partition(": ")
    limit = f"{cause}: {relieved}" if reliefs[most] >= 1.0 else f"no single part: even {relieved}"
    shares = [100.0 * part / whole for part in best.seconds]
    yield from paragraph(
        "limits",
        f"{limit}, the fastest plan would give {reliefs[most]:.2f} x. First drafts are accepted "
        f"{100 * (advice.chains[0] - 1.0):.0f} % of the time; a draft call takes "
        f"{sum(model.draft) / model.checking(0):.2f} of a target call; a step is {shares[0]:.0f} % "
        "drafting, "
        f"{shares[1]:.0f} % target, {shares[2]:.0f} % Python",
    )
    bounds = []
    if best.plan.decoder.depth == advice.asked.limits.depth:
        bounds.append(f"--max-depth {advice.asked.limits.depth}")
    if best.plan.decoder.num_nodes >= advice.asked.limits.nodes:
        bounds.append(f"--max-nodes {advice.asked.limits.nodes}")
    if bounds:
        yield from paragraph("", f"the fastest plan stands at {' and '.join(bounds)}: more may pay")


def _losses(lost: DraftLosses) -> Iterator[str]:
    accepted = lost.accepted
    sure = (
        f" ({100 * accepted.low:.0f} to {100 * accepted.high:.0f})" if accepted.has_interval else ""
    )
    yield from paragraph(
        "lost",
        f"at {lost.positions} random positions {100 * accepted.value:.0f} %{sure} of first drafts "
        "are accepted; lost are "
        f"{_parts(lost.parts, PARTS)}. With its likeliest {lost.size} drafts of at most "
        f"{lost.length} in a row this draft wins "
        f"{lost.tokens.value:.2f} tokens a call; one that knew the target would win "
        f"{lost.clairvoyant.value:.2f}",
    )
    if (several := lost.several) is not None:
        yield from paragraph(
            "",
            f"the fastest plan begins with {several.drafts} drafts: of so many, drawn "
            f"independently, {several.verifier} accepts "
            f"one {100 * several.accepted.value:.0f} % of the time; lost are "
            f"{_parts(several.parts, SEVERAL)}",
        )
    if (rounding := lost.rounding) is not None:
        k = 1 if several is None else several.drafts
        gain, here, anywhere = rounding.gain.value, k * rounding.draft_tv.value, k * ROUNDED_MOST
        yield from paragraph(
            "",
            f"drawn from masses in bfloat16, one draft is accepted {100 * abs(gain):.3f} "
            "percentage points "
            f"{'less' if gain < 0 else 'more'} often, and the output is "
            f"{rounding.output_tv.value:.1e} from the target in total "
            f"variation; {k} draft{'s' * (k > 1)} change nothing by more than {here:.1e} here, "
            f"{anywhere:.1e} anywhere",
        )


def _parts(shares: Mapping[str, Estimate], words: Mapping[str, str]) -> str:
    parts = {
        words[name].split(":")[0]: share.value
        for name, share in shares.items()
        if share.value >= 0.005
    }
    return (
        ", ".join(
            f"{100 * value:.0f} % to {name}"
            for name, value in sorted(parts.items(), key=lambda one: -one[1])
        )
        or "none"
    )


def _costs(
    advice: Advice, surroundings: Mapping[str, Any], passes: CostSurface | None
) -> Iterator[str]:
    nodes = advice.model.target[0]
    shown = [0, *sorted({nodes[len(nodes) // 2], nodes[-1]} - {0})]
    calls = ", ".join(f"{n}: {1e3 * advice.model.checking(n):.1f}" for n in shown)
    alone = ""
    if passes is not None:
        alone = ". Timed alone, a call of one token takes " + " and ".join(
            f"{1e3 * passes.at(batch=1, context=context, length=0).target:.1f} ms after {context} "
            "tokens"
            for context in sorted({passes.contexts[0], passes.contexts[-1]})
        )
    yield from paragraph(
        "costs",
        "real steps timed here, batch 1 "
        f"({', '.join(f'{name} {value}' for name, value in surroundings.items())}): a draft call "
        f"{1e3 * sum(advice.model.draft):.1f} ms, target calls by nodes checked {calls} "
        f"ms{alone}",
    )


def _measured(advice: Advice) -> Iterator[str]:
    ended = "" if advice.decided else "; measuring ended before the interval decided"
    if advice.left_out:
        ended += f"; there was no time for {', '.join(advice.left_out)}"
    yield from paragraph(
        "basis",
        f"{advice.texts} texts of the target from {advice.prompts} prompts, acceptance exact given "
        "the text; "
        f"{advice.rounds} rounds of timing; {advice.num_plans} plans of at most "
        f"{advice.asked.limits.nodes} nodes and depth "
        f"{advice.asked.limits.depth}, likeliest trees and trees on noise of at most "
        f"{advice.largest_matched}{ended}",
    )


def _engines(advice: Advice, draft: str) -> Iterator[str]:
    chain = engine_chain(advice.chains, advice.model, timed=advice.chain.over_plain)
    gives = (
        f"where only the passes cost, a chain of {chain.length} gives "
        f"{chain.speedup.words(unit=' x plain decoding')}"
    )
    if not chain.may_pay:
        yield from paragraph(
            "engines",
            f"{gives}: configure no draft model in vLLM, SGLang, TensorRT-LLM or llama.cpp",
        )
        return
    doubt = (
        ""
        if chain.speedup.low > 1.0
        else ", so it may not pay: compare in the engine before you keep it"
    )
    yield from paragraph("engines", f"{gives}{doubt}")
    for engine, text in chain_settings(draft, chain.length).items():
        # One line each, however long: it is there to be copied.
        yield f"  {engine}: {text}"
    best = advice.best.plan
    if isinstance(best.decoder, LikeliestTree):
        yield f"  SGLang, tree: {likeliest_settings(draft, best.decoder)}"
    elif page := _PAGES.get(type(best.decoder)):
        yield f"  {best.words}: no option sets it; docs/howto/{page}.md says what changes"
