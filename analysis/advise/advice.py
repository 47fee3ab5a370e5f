"""Measure texts and step times in turns, until the interval decides or the budget ends."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from otm._machine.progress import report_phase
from otm.results.statistics import Estimate
from otm.sequence import Decoder, LikeliestTree

from ..errors import AnalysisError
from ..models.causal import CausalModel
from ..models.from_logits import shared_positions
from ..steps.texts import SampledText
from .clocked import Clocked, DeadlinePassed, seconds_left
from .costs import Clock, StepModel
from .families import FAMILIES, SCALE_TEXTS, Family, Limits, TextToRead, WalkedPlan
from .sampled_texts import sample_text
from .speedups import Tokens, Verdict, speedup, verdict_of

LEAST_TEXTS = 3
"""Texts of the first look, at least, if there is time."""

_READING = 0.6
"""Largest share of the remaining time for the texts of a look."""

_FIRST_LOOK = 0.6
"""Largest share of the time for the first look, so that an early answer exists."""

_FINALISTS = 2
"""Plans of each family that are timed in the end."""

LEAST_ROUNDS = 3
"""Rounds of the clock in a look for the plans that promise most, at least; the others get one."""


@dataclasses.dataclass(frozen=True)
class AdviceSettings:
    """Settings of a measurement: length of texts, limits of plans, time and confidence.

    Attributes:
        num_tokens: tokens of a text.
        limits: of the compared plans.
        seconds: the budget.
        quick: seconds of the first look; later ones double.
        seed: of the texts and the clock's places.
        confidence: of the intervals, over all looks.
        families: names of the compared families, chains always among them.
    """

    num_tokens: int = 64
    limits: Limits = dataclasses.field(default_factory=lambda: Limits(64, 8))
    seconds: float = 300.0
    quick: float = 30.0
    seed: int = 0
    confidence: float = 0.95
    families: tuple[str, ...] = tuple(family.name for family in FAMILIES)


@dataclasses.dataclass(frozen=True, eq=False)
class TimedPlan:
    """A timed plan with tokens, seconds and speed-ups.

    Attributes:
        plan: what is drafted and verified, and its walks.
        tokens: per target call.
        seconds: of a step: draft calls, target call, everything else.
        over_plain, over_chain: speed-ups over plain decoding and over the best chain.
    """

    plan: WalkedPlan
    tokens: float
    seconds: tuple[float, float, float]
    over_plain: Estimate
    over_chain: Estimate


@dataclasses.dataclass(frozen=True, eq=False)
class Advice:
    """The measured decision: whether to draft, the best plans and the costs.

    Attributes:
        asked: the settings of the measurement.
        verdict: whether to draft at all.
        rows: the best plan of each family, the fastest first.
        chain: the fastest chain.
        chains: tokens per call of chains of 1, 2, … drafts.
        plain_seconds: of one token without drafts.
        model: seconds of steps that were not timed.
        looks, texts, prompts, rounds: how much was measured.
        decided: whether the interval decided, or the budget ended.
        num_plans: how many were compared.
        largest_matched: drafts of the largest tree among them that depends on the context.
        sampled: the texts: number of the prompt, its tokens, the continuation.
        left_out: families that there was no time to look at.
    """

    asked: AdviceSettings
    verdict: Verdict
    rows: tuple[TimedPlan, ...]
    chain: TimedPlan
    chains: tuple[float, ...]
    plain_seconds: float
    model: StepModel
    looks: int
    texts: int
    prompts: int
    rounds: int
    decided: bool
    num_plans: int
    largest_matched: int = 0
    sampled: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def best(self) -> TimedPlan:
        """The fastest plan, which may be slower than plain decoding."""
        return self.rows[0]


def advise(
    draft: CausalModel,
    target: CausalModel,
    prompts: Sequence[Sequence[int]],
    *,
    asked: AdviceSettings,
    eos: int | None,
    until: float = math.inf,
    on_progress: Callable[[Advice], object] = lambda advice: None,
) -> Advice:
    """Measure acceptance along the target's texts and the cost of steps, and decide how to draft.

    Args:
        draft, target: the models.
        prompts: their tokens, of equal weight.
        asked: how much, and within what.
        eos: the token that ends a text.
        until: when the answer is due, by `time.monotonic`, whatever is known by then; one text and
            one step of a chain are waited for.
        on_progress: called with the advice so far whenever measuring goes on.

    Raises:
        AnalysisError: if no prompt leaves room for a text.
    """
    return _Measurement(draft, target, prompts, asked, eos, until).run(on_progress)


class _Measurement:
    def __init__(
        self,
        draft: CausalModel,
        target: CausalModel,
        prompts: Sequence[Sequence[int]],
        asked: AdviceSettings,
        eos: int | None,
        until: float,
    ) -> None:
        self.draft, self.target, self.prompts = Clocked(draft), Clocked(target), prompts
        self.asked, self.eos, self.until = asked, eos, until
        self.families = [family for family in FAMILIES if family.name in asked.families]
        self.rng = np.random.default_rng([asked.seed, 1])
        self.laws: dict[Family, list[Any]] = {family: [] for family in self.families}
        self.owners: list[int] = []
        self.known: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.first: list[SampledText] = []
        self.begun: TextToRead | None = None
        self.asked_for = 0
        self.clock = Clock(self.draft, self.target, self.known, eos, self.rng)
        self.probes = {family.name: list(family.probes(asked.limits)) for family in self.families}

    def run(self, on_progress: Callable[[Advice], object]) -> Advice:
        """Measure in looks until the interval decides or the time is over."""
        began, looks = time.perf_counter(), 0
        share = min(self.asked.quick, self.asked.seconds)
        first = self.until
        if share < self.asked.seconds:
            first = time.monotonic() + _FIRST_LOOK * seconds_left(first)
        # Looks double in length: each one costs a part of the error rate, so there must be few.
        while True:
            looks += 1
            until = first if looks == 1 else self.until
            with contextlib.suppress(DeadlinePassed):
                self._read(share * 0.5, looks, until)
            self._limit(until)
            advice = self._look(share * 0.5, looks)
            self._limit(self.until)
            left = self.asked.seconds - (time.perf_counter() - began)
            left = min(left, seconds_left(self.until))
            share = min(2.0 * share, left)
            if advice.decided or left <= 0.1 * self.asked.quick:
                return advice
            on_progress(advice)

    def _limit(self, until: float) -> None:
        self.draft.until = self.target.until = until

    def _read(self, seconds: float, look: int, until: float) -> None:
        """Read texts until the time is over; in the first look every prompt at most once."""
        deadline, most = time.perf_counter() + seconds, len(self.prompts) * look
        least = len(self.owners) + (min(LEAST_TEXTS, len(self.prompts)) if look == 1 else 1)
        started = time.monotonic()
        limit = started + _READING * (until - started)
        self._complete(limit)
        # The look's share of time limits the texts, but an interval needs a few whatever they take.
        while (
            self.begun is None
            and self.asked_for < most
            and (time.perf_counter() < deadline or len(self.owners) < least)
        ):
            turn, number = divmod(self.asked_for, len(self.prompts))
            self.asked_for += 1
            report_phase(f"look {look}: texts", f"{len(self.owners)} read")
            text = sample_text(
                self.draft,
                self.target,
                self.prompts[number],
                num_tokens=self.asked.num_tokens + self.asked.limits.depth,
                eos=self.eos,
                seed=[self.asked.seed, 1 + turn * len(self.prompts) + number, 0],
            )
            if text is None:
                continue
            reading = TextToRead(
                text,
                self.draft,
                self.target,
                self.asked.limits,
                self.asked.num_tokens,
                self.eos,
                self.rng,
                tuple(self.first),
                shared_positions(self.draft, self.target),
            )
            self._take(reading, number, limit)
        if not self.owners:
            raise AnalysisError(
                "No prompt leaves room for a text within the models' positions. Cut them with "
                "--prompt-tokens."
            )

    def _complete(self, limit: float) -> None:
        """Compute the laws of the first text that were left out for lack of time."""
        if self.begun is not None:
            self._limit(limit)
            for family in self.families:
                if not self.laws[family]:
                    self.draft.check()
                    self.laws[family].append(family.law(self.begun))
            self.begun = None

    def _take(self, reading: TextToRead, number: int, limit: float) -> None:
        """Compute every family's law of a text; for the first text stop when time is up."""
        text, laws = reading.text, {self.families[0]: self.families[0].law(reading)}
        self.known.append((text.prefix, tuple(text.tokens.tolist())))
        if len(self.known) == 1:
            self.clock.round(self.probes[self.families[0].name][:1])
        self._limit(limit)
        try:
            for family in self.families[1:]:
                self.draft.check()  # some laws ask no model for anything, and take long
                laws[family] = family.law(reading)
        except DeadlinePassed:
            if len(self.known) > 1:
                self.known.pop()
                raise
            self.begun = reading
        for family, law in laws.items():
            self.laws[family].append(law)
        self.first = [*self.first, text][:SCALE_TEXTS]
        self.owners.append(number)

    def _look(self, seconds: float, look: int) -> Advice:
        """Time the probes and the finalists of every family, then compare all plans."""
        plans = [
            plan
            for family in self.families
            if self.laws[family]
            for plan in family.plans(
                self.laws[family], limits=self.asked.limits, starts=self.asked.num_tokens
            )
        ]
        every = list(
            dict.fromkeys(decoder for decoders in self.probes.values() for decoder in decoders)
        )
        self._time(every, 0.4 * seconds if look == 1 else 0.1 * seconds, look, least=1)
        timed = self.clock.plain
        probed = {name: [one for one in each if one in timed] for name, each in self.probes.items()}
        model = StepModel.fitted(self.clock, probed)
        plans = [plan for plan in plans if probed[plan.family]]
        tokens = Tokens.of(plans, self.owners)
        guessed = np.log(tokens.mean) - np.log([model.seconds(plan) for plan in plans])
        finalists = [index for name in self.probes for index in _best_of(plans, guessed, name)]
        self._time(
            [plans[index].decoder for index in finalists],
            0.6 * seconds if look == 1 else 0.9 * seconds,
            look,
            least=LEAST_ROUNDS,
        )
        # the same, unless the time was over before all of them were timed
        finalists = [i for name in self.probes for i in _best_of(plans, guessed, name, timed)]
        return self._compared(plans, tokens, finalists, model, look)

    def _time(self, decoders: Sequence[Decoder], seconds: float, look: int, *, least: int) -> None:
        deadline, rounds = time.perf_counter() + seconds, 0
        with contextlib.suppress(DeadlinePassed):
            while rounds < least or time.perf_counter() < deadline:
                report_phase(f"look {look}: costs", f"{len(decoders)} ways, round {rounds + 1}")
                self.clock.round(decoders)
                rounds += 1

    def _compared(
        self,
        plans: Sequence[WalkedPlan],
        tokens: Tokens,
        finalists: Sequence[int],
        model: StepModel,
        look: int,
    ) -> Advice:
        clock = self.clock
        critical = tokens.critical(
            error=(1.0 - self.asked.confidence) / 2.0**look, seed=self.asked.seed
        )
        timed = {index: clock.ratio(plans[index].decoder) for index in finalists}
        speeds = {index: float(tokens.mean[index]) / timed[index][0] for index in finalists}
        order = sorted(finalists, key=speeds.__getitem__, reverse=True)
        chain = next(index for index in order if plans[index].family == self.families[0].name)

        def row(index: int) -> TimedPlan:
            influence, error = tokens.influence[:, index], timed[index][1]
            both = np.hypot(error, timed[chain][1]) if index != chain else 0.0
            pieces = clock.pieces[plans[index].decoder]
            whole = clock.seconds(plans[index].decoder)
            parts = np.array(
                [np.median(pieces.draft), np.median(pieces.target), np.median(pieces.rest)]
            )
            draft, target, rest = (parts / parts.sum() * whole).tolist()
            return TimedPlan(
                plans[index],
                float(tokens.mean[index]),
                (draft, target, rest),
                speedup(speeds[index], influence, clock_error=error, critical=critical),
                speedup(
                    speeds[index] / speeds[chain],
                    influence - tokens.influence[:, chain],
                    clock_error=float(both),
                    critical=critical,
                ),
            )

        best = {plans[index].family: row(index) for index in reversed(order)}
        rows = sorted(best.values(), key=lambda one: -one.over_plain.value)
        verdict = verdict_of(rows[0].over_plain, [row(index).over_plain for index in order])
        chains = [
            float(tokens.mean[i])
            for i, plan in enumerate(plans)
            if plan.family == self.families[0].name
        ]
        return Advice(
            asked=self.asked,
            verdict=verdict,
            rows=tuple(rows),
            chain=best[self.families[0].name],
            chains=tuple(chains),
            plain_seconds=clock.plain_seconds,
            model=model,
            looks=look,
            texts=len(self.owners),
            prompts=tokens.clusters,
            rounds=timed[order[0]][2],
            decided=verdict != "undecided",
            num_plans=len(plans),
            largest_matched=max(
                (plan.decoder.size for plan in plans if isinstance(plan.decoder, LikeliestTree)),
                default=0,
            ),
            sampled=tuple(
                (owner, *text) for owner, text in zip(self.owners, self.known, strict=True)
            ),
            left_out=tuple(name for name, each in self.probes.items() if each and name not in best),
        )


def _best_of(
    plans: Sequence[WalkedPlan], guessed: Any, family: str, among: Container[Decoder] | None = None
) -> list[int]:
    """Return the most promising plans of a family, among some decoders or all."""
    mine = [
        index
        for index, plan in enumerate(plans)
        if plan.family == family and (among is None or plan.decoder in among)
    ]
    return sorted(mine, key=lambda index: -float(guessed[index]))[:_FINALISTS]
