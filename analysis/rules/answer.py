"""The table of rules from two models and prompts, and the rule behind an engine's record."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm._machine.arrays import Floats
from otm._machine.progress import with_progress
from otm.engines import AcceptanceRecord, CostSurface
from otm.losses import BestTemperature, best_temperature, draft_rounding
from otm.results.statistics import Estimate

from ..advise.walk import Walk
from ..errors import AnalysisError
from ..files import json_values
from .attribution import (
    ERROR,
    RecordStatistics,
    fewest_steps,
    log_likelihoods,
    of_texts,
    p_values,
    predicted,
    predicted_given,
    statistics_of,
    steps_to_tell,
)
from .rules import BLOCK, Reader, ReadText, Rule
from .survivals import Survivals

_ROWS = 8
"""Most positions of a text that the best temperature is searched at."""

_TOLERANCE = 5e-4
"""Of the acceptance there."""

_KEPT = 1 << 24
"""Most numbers of the draft's logits, of the first texts, that are kept for later use."""

LEAST_TEXTS = 4
"""Texts that are kept in any case: two to choose by and two to judge by."""


@dataclasses.dataclass(frozen=True, eq=False)
class RuleWalks:
    """Walks of rules along some texts, and the mean survivals.

    Attributes:
        reader: the reader of the texts.
        walks: of every rule along each text.
        prompts: the prompt of each text.
        survivals: of the rules, on the average.
        passages: the first texts.
        written: number of tokens in an engine's own texts; 0 for sampled texts.
        beside: of the rules, and after them of the same rules with other models; None without.
        other: the reader with the other models; None without.
    """

    reader: Reader
    walks: list[tuple[Walk, ...]]
    prompts: list[int]
    survivals: Survivals
    passages: list[ReadText]
    written: int = 0
    beside: Survivals | None = None
    other: Reader | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in the order of the walks."""
        return self.reader.rules

    @property
    def order(self) -> list[int]:
        """Rules by falling tokens per call."""
        found: list[int] = np.argsort(-self.survivals.mean.sum(axis=1), kind="stable").tolist()
        return found

    @property
    def candidates(self) -> list[int]:
        """Rules that the engine can run, in that order; all where none is named."""
        engine = self.reader.engine
        return [
            rule for rule in self.order if engine is None or self.rules[rule].name in engine.rules
        ]

    def gain_beside(self, rule: int) -> Estimate | None:
        """Return a rule's gain in tokens per call from the other models, or None without any."""
        if self.beside is None or self.other is None or rule >= len(self.other.rules):
            return None  # of two tokenizers there is a rule more
        return self.beside.lead(len(self.rules) + rule, rule)

    def speeds(self, costs: CostSurface) -> list[float]:
        """Return each rule's speed over plain decoding, drafts in a row and one call a step."""
        length, found = self.reader.sizes.length, []
        cell: dict[str, Any] = {
            "batch": costs.batches[0],
            "context": costs.contexts[0],
            "extrapolate": True,
        }
        for rule, one in enumerate(self.rules):
            call = costs.at(length=one.nodes, **cell)
            seconds = min(length, one.nodes) * call.draft + call.target
            found.append(self.survivals.tokens(rule).value * call.plain / seconds)
        return found

    @property
    def vocabulary_loss(self) -> float:
        """Mean mass of the target on tokens that the draft does not know."""
        found = [(one.text.target * np.isneginf(one.logits)).sum(axis=1) for one in self.passages]
        return float(np.concatenate(found).mean())

    @functools.cached_property
    def heated(self) -> tuple[float, BestTemperature]:
        """Rejection's acceptance of a draft as set and at its best temperature, unfiltered, at up
        to `_ROWS` positions of each text.
        """
        logits, draft, target = (
            np.concatenate([side[:: -(-len(side) // _ROWS)] for side in sides])
            for sides in zip(
                *((one.logits, one.text.draft, one.text.target) for one in self.passages),
                strict=True,
            )
        )
        return (
            float(np.minimum(draft, target).sum(axis=1).mean()),
            best_temperature(logits, target, tolerance=_TOLERANCE),
        )

    @property
    def rounding_bias(self) -> float:
        """Mean distance of an output token from the target's law, with drafts from bfloat16
        masses.
        """
        found = [
            draft_rounding(draft=one.text.draft, target=one.text.target).output_tv
            for one in self.passages
        ]
        return float(np.concatenate(found).mean())


def place_of(rules: Sequence[Rule], name: str) -> int:
    """Return the number of a rule.

    Raises:
        AnalysisError: if there is none of this name.
    """
    names = [rule.name for rule in rules]
    if name not in names:
        raise AnalysisError(f"A rule must be one of {', '.join(names)}; got {name!r}. Choose one.")
    return names.index(name)


def read_rules(
    reader: Reader,
    prompts: Sequence[Sequence[int]],
    *,
    written: Sequence[Sequence[int]] = (),
    beside: Reader | None = None,
) -> RuleWalks:
    """Walk with every rule along texts of the prompts, taken in turns.

    Args:
        reader: of two models.
        prompts: their tokens.
        written: an engine's own continuations, one of each prompt, instead of sampled ones.
        beside: of other models. With the same target it reads the same texts, with another the
            texts that this one writes by the same random numbers.

    Raises:
        AnalysisError: if no prompt leaves room for a text.
    """
    walks, owners, passages, others, held = [], [], list[ReadText](), [], 0
    wanted = len(written) or reader.sizes.texts
    for number in with_progress(range(wanted), f"texts by {len(reader.rules)} rules"):
        owner = prompts.index(prompts[number % len(prompts)])  # the first that is the same
        text = (
            reader.given(prompts[owner], written[number])
            if written
            else reader.sample(prompts, number)
        )
        if text is None:
            continue
        begin = len(prompts[owner])
        passage, row = reader.read(text, owner, number, begin)
        walks.append(row)
        if beside is not None:
            if beside.target is not reader.target:
                text = beside.sample(prompts, number) or text
            others.append((*row, *beside.read(text, owner, number, begin)[1]))
        owners.append(passage.prompt)
        held += passage.logits.size
        if held <= _KEPT or len(passages) < LEAST_TEXTS:
            passages.append(passage)
    if not walks:
        raise AnalysisError(
            "No prompt leaves room for a text within the models' positions. Cut them with "
            "--prompt-tokens."
        )
    return RuleWalks(
        reader,
        walks,
        owners,
        Survivals.of(walks, owners),
        passages,
        written=sum(map(len, written)),
        beside=Survivals.of(others, owners) if others else None,
        other=beside,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Attribution:
    """The rules that a record is consistent with, and the losses of the likeliest.

    Attributes:
        record: the record as read.
        seen: its observation, which rules are tested against.
        p_values: `(R,)`.
        consistent: the numbers of the rules that the record does not contradict, likeliest first.
        needed: for each other consistent rule, about how many steps would refute it if the first
            rule runs, and the number of steps below which no test can.
        lost: tokens per call less than another rule, by its number: than the best with the same
            needs, and than the best of all.
    """

    record: AcceptanceRecord
    seen: RecordStatistics
    p_values: Floats
    consistent: tuple[int, ...]
    needed: dict[int, tuple[float, float]]
    lost: dict[int, Estimate]


def attribute(read: RuleWalks, record: AcceptanceRecord) -> Attribution:
    """Test every rule against a record, and compare the likeliest rule with the others.

    Args:
        read: the rules.
        record: of the same number of drafts in a row.

    Raises:
        AnalysisError: if the texts are said to be the record's, and their length contradicts it.
    """
    length = read.reader.sizes.length
    seen, sampled = statistics_of(record, length), [rule.sampled for rule in read.rules]
    if read.written:
        tokens = (seen.steps + record.undrafted) * record.mean
        # each end of a text is worth a step at most
        if abs(tokens - read.written) > (length + 1) * len(read.walks):
            raise AnalysisError(
                f"The record must be of the texts; it has {tokens:,.0f} tokens, the "
                f"{len(read.walks)} texts {read.written:,}. Pass what was counted while just "
                "these were written."
            )
        prediction = predicted_given(read.walks, sampled)
        seen = of_texts(seen, read.written, len(read.walks))
    else:
        prediction = predicted(read.survivals, read.walks)
    found = p_values(seen, prediction)
    order = np.argsort(-log_likelihoods(seen, prediction), kind="stable").tolist()
    drafted = record.drafts_per_step
    # No step drafts more nodes than the record counts, unless longer paths are counted alone.
    most = math.inf if drafted is None or drafted > length else 1.01 * drafted
    can_run = set(read.candidates)
    consistent = tuple(
        rule
        for rule in order
        if rule in can_run and found[rule] >= ERROR and read.rules[rule].nodes <= most
    )
    lost, needed = {}, {}
    if consistent:
        own, *others = consistent
        least = fewest_steps(read.walks, sampled)[own]
        needed = {
            rule: (steps_to_tell(seen, prediction, own, rule), float(least[rule]))
            for rule in others
        }
        same = (rule for rule in read.order if read.rules[rule].needs == read.rules[own].needs)
        for other in dict.fromkeys((next(same), read.order[0])):
            if other != own:
                lost[other] = read.survivals.lead(other, own)
    return Attribution(record, seen, found, consistent, needed, lost)


def screen_json(read: RuleWalks, told: Attribution | None) -> dict[str, Any]:
    """Return the content of the screen and survival by position as JSON values."""
    survivals, sizes = read.survivals, read.reader.sizes
    rows = [
        {
            **dataclasses.asdict(read.rules[rule]),
            "tokens_per_call": json_values(survivals.tokens(rule)),
            "survival": survivals.mean[rule].tolist(),
            "gain_beside": json_values(read.gain_beside(rule)),
            "p_value": None if told is None else float(told.p_values[rule]),
        }
        for rule in read.order
    ]
    answer = {
        "format": "otm.rules",
        "version": 1,
        "engine": None if read.reader.engine is None else read.reader.engine.name,
        "sampling": read.reader.setting.recorded,
        "limits": {name: value for name, value in read.reader.limits.items() if name != "allowed"},
        "sizes": dataclasses.asdict(sizes),
        "texts": len(read.walks),
        "prompts": survivals.clusters,
        "rules": rows,
        "optimal_for_one_sequence": BLOCK,
        "rounding_bias": read.rounding_bias,
        "vocabulary_loss": read.vocabulary_loss,
        "first_draft": {"accepted": read.heated[0], "best": json_values(read.heated[1])},
    }
    if told is not None:
        answer["record"] = {
            "form": told.record.form,
            "steps": told.seen.steps,
            "requests": told.seen.requests,
            "tokens_per_call": told.record.drafting_mean,
            "consistent": [read.rules[rule].name for rule in told.consistent],
            "steps_to_tell": {
                read.rules[rule].name: {"about": about, "at_least": least}
                for rule, (about, least) in told.needed.items()
            },
            "lost": {read.rules[rule].name: json_values(one) for rule, one in told.lost.items()},
            "error": ERROR,
        }
    return answer
