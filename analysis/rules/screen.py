"""The rules on one screen: the answer, the table, the basis and the limits of the comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from otm._display.tabular import columns
from otm.commands.printing import paragraph
from otm.engines import CostSurface
from otm.results.statistics import Estimate

from ..models.processing import Setting, setting_text
from .answer import Attribution, RuleWalks, place_of
from .attribution import ERROR
from .drafting import BestProcessing, Stop
from .rules import BLOCK

UNSEEN = "trees sampled without replacement, what a step costs (`advise` times it), batches"


def rules_screen(
    read: RuleWalks, told: Attribution | None, costs: CostSurface | None = None
) -> str:
    """Render the answer, the table and the basis as text.

    Args:
        read: the rules along texts.
        told: the rules that a record is consistent with, if there is one.
        costs: of calls and drafts, by which rules are ranked by speed; None if not measured.
    """
    first = _best(read, costs) if told is None else _runs(read, told)
    lines = [*first, "", *_table(read, told), ""]
    return "\n".join([*lines, *_basis(read, told)])


def drafting_words(best: BestProcessing, stops: Sequence[Stop], *, cost: float) -> str:
    """Render the advice on drafting: the draft's processing, and when to stop.

    Args:
        best: the draft's processing.
        stops: when to stop.
        cost: of a draft, as a part of a target call.
    """
    sampling = Setting(best.processing, best.processing).recorded
    asked = ", ".join(
        setting_text(name, value) for name, value in sampling.items() if value is not None
    )
    lines = paragraph(
        "draft",
        f"by rejection a draft at {asked} yields {best.gain.words()} tokens a call more than as "
        f"set: the best of {best.tried}, chosen on half of the texts and judged on the others",
    )
    rows = [("when drafting stops", "tokens", "drafts", "x plain decoding")]
    for one in sorted(stops, key=lambda one: -one.speed.value):
        rows.append((one.words, f"{one.tokens:.2f}", f"{one.drafts:.2f}", one.speed.words()))
    lines += ["", *columns(rows, right=(1, 2)), ""]
    lines += paragraph(
        "stop",
        f"the best of each kind, likewise, where a draft costs {cost:g} of a target call and "
        "nothing else does; argmax drafts are matched, sampled ones verified by rejection. They "
        "are lossless: they decide before a draft is drawn, or drafts are argmaxes (llama.cpp's "
        "p-min). To drop a sampled draft for its own small probability biases the text",
    )
    return "\n".join(lines)


def _best(read: RuleWalks, costs: CostSurface | None) -> Iterator[str]:
    first, block = read.candidates[0], place_of(read.rules, BLOCK)
    if costs is not None:
        speeds = read.speeds(costs)
        fastest = max(read.candidates, key=lambda rule: speeds[rule])
        words = f"{read.rules[fastest].words}: {speeds[fastest]:.2f} x plain decoding"
        yield f"{'FASTEST' if speeds[fastest] > 1.0 else 'NONE PAYS; the fastest'}: {words}"
        yield from paragraph("", f"by {costs.source}, for one sequence", indent=2)
    within = "" if read.reader.engine is None else f" in {read.reader.engine.name}"
    yield f"MOST TOKENS{within}: {_told(read, first)}"
    if costs is None:
        yield "  which need not be the fastest: a call of many nodes takes longer (--costs)"
    if first != read.order[0]:
        yield f"  of all rules, elsewhere: {_told(read, read.order[0])}"
    if first != block:
        yield f"  of one sequence of {read.reader.sizes.length}: {_told(read, block)}"


def _told(read: RuleWalks, rule: int) -> str:
    return f"{read.rules[rule].words}: {read.survivals.tokens(rule).words()} tokens a call"


def _runs(read: RuleWalks, told: Attribution) -> Iterator[str]:
    seen = f"{told.record.drafting_mean:.2f} tokens a call over {told.seen.steps:,.0f} steps"
    if not told.consistent:
        nearest = min(
            read.candidates,
            key=lambda rule: abs(read.survivals.tokens(rule).value - told.record.drafting_mean),
        )
        yield f"NONE OF THESE RULES: {seen}"
        yield f"  nearest: {_told(read, nearest)}"
        yield "  other models, prompts or sampling than here, or a rule that is not here"
        if told.record.drafts_per_step is not None:
            yield f"  (rules of more than its {told.record.drafts_per_step:.3g} drafts cannot be)"
        return
    own, *others = told.consistent
    yield f"YOU {'MAY ' if others else ''}RUN {read.rules[own].words}: {seen}"
    if others:
        names = ", ".join(
            f"{read.rules[rule].name} ({_steps(*told.needed[rule])})" for rule in others
        )
        yield from paragraph("", f"not told apart by this record: {names}", indent=2)
    for other, lost in told.lost.items():
        rule = read.rules[other]
        said = f"{lost.words()} tokens a call lost against {rule.words}, needs {rule.needs}"
        yield from paragraph("", said, indent=2)


def _steps(about: float, least: float) -> str:
    """Render the number of steps that tell two rules apart: by this test, or by any."""
    if math.isfinite(about):
        return f"about {_rounded(about)} steps do"
    if math.isinf(least):
        return "nothing can"
    return f"no {_rounded(least)} steps can" if least > 1.0 else "longer texts may"


def _rounded(steps: float) -> str:
    return f"{float(f'{steps:.2g}'):,.0f}"


def _table(read: RuleWalks, told: Attribution | None) -> Iterator[str]:
    record, beside = "" if told is None else "record", "" if read.beside is None else "beside"
    head = ("rule", "tokens/call", beside, record, "nodes", "needs of the engine")
    rows: list[tuple[str, ...]] = [head]
    for rule in read.order:
        one, mark = read.rules[rule], ""
        if told is not None:
            p_value = told.p_values[rule]
            small = "<1e-9" if p_value < 1e-9 else f"{p_value:.0e}"
            mark = f"no {small}" if p_value < ERROR else f"yes {p_value:.2f}"
        gain = read.gain_beside(rule)
        more = "" if gain is None else _sure(gain, "+.2f")
        found = _sure(read.survivals.tokens(rule))
        rows.append((one.name, found, more, mark, str(one.nodes), one.needs))
    keep = [place for place, name in enumerate(head) if name]
    chosen = [tuple(row[place] for place in keep) for row in rows]
    yield from columns(chosen, right=(len(keep) - 2,))


def _sure(found: Estimate, form: str = ".2f") -> str:
    return format(found.value, form) + (
        f" ± {found.value - found.low:.2f}" if found.has_interval else ""
    )


def _basis(read: RuleWalks, told: Attribution | None) -> Iterator[str]:
    sizes, setting = read.reader.sizes, read.reader.setting.recorded
    block = read.survivals.tokens(place_of(read.rules, BLOCK)).value
    yield from paragraph(
        "most",
        "block verification is optimal for one sequence: from no context does another rule for one "
        f"that is drawn from these draft probabilities yield more; here {block:.2f}",
    )
    yield from paragraph(
        "text",
        "every rule here is lossless: the text is the target's own. But drafts that are drawn from "
        "masses in bfloat16 and verified by exact ones are off by a total variation of "
        f"{read.rounding_bias:.1e} a token",
    )
    accepted, best = read.heated
    yield from paragraph(
        "draft",
        f"rejection accepts {accepted:.3f} of drafts as they are set, and {best.lower:.3f} of "
        f"unfiltered ones at temperature {best.temperature:.2g}; at no temperature more than "
        f"{best.upper:.3f}, up to eight places a text",
    )
    sampled = ", ".join(
        setting_text(name, value) for name, value in setting.items() if value is not None
    )
    source = "that the engine wrote" if read.written else "of the target"
    yield from paragraph(
        "basis",
        f"{len(read.walks)} texts {source} from {read.survivals.clusters} prompts, "
        f"{sampled}; {sizes.length} drafts in a row. A call of the target verifies so many drafted "
        "nodes at most and writes the tokens that it accepts and one of its own. What rules accept "
        "is exact given the text, but for the noise of trees and the drafts of refined scores; "
        "95 % intervals over prompts",
    )
    if read.reader.engine is not None:
        yield from paragraph("engine", read.reader.engine.words)
    if read.vocabulary_loss > 0.0:
        yield from paragraph(
            "tokens",
            f"the target gives {read.vocabulary_loss:.1%} of its mass to tokens that the draft has "
            "not; but for string-match they are never drafted",
        )
    if limits := read.reader.limits:
        penalties = [f"{name} {limits[name]:g}" for name in ("repetition", "presence", "frequency")]
        grammar = "" if limits["allowed"] is None else ", and a grammar"
        yield from paragraph(
            "limits",
            f"the target has penalties {', '.join(penalties)}{grammar}; drafts know of none",
        )
    if read.other is not None:
        words = "the other draft yields more: on the same texts"
        if read.other.aware:
            words = "drafts under the same limits yield more: on the same texts"
        elif read.other.target is not read.reader.target:
            words = "the other target yields more: on its own texts, by the same random numbers"
        yield from paragraph(
            "beside", f"tokens a call that {words}, so that what they have in common cancels"
        )
    if told is not None:
        luck = "of texts as long as these, since it does not tell requests apart"
        if told.seen.requests:
            luck = f"of its {told.seen.requests} requests"
        if read.written:
            luck = "of its drafts alone, as it was counted while these texts were written"
        yield from paragraph(
            "record",
            f"{told.record.form}; its own luck is that {luck}. The rule that runs is called "
            f"inconsistent with probability {ERROR:.0%} at most"
            + ("" if read.written else ", if the prompts are a sample of the engine's requests"),
        )
    yield from paragraph("unseen", UNSEEN)
