"""Time real steps of real decoders, split into draft calls, the target call and the rest.

A step is timed where decoding stands: after a random part of a sampled text, with the caches of the
step before. Everything takes turns, so that a slow minute of a shared machine hits all of it and
ratios keep their meaning; a ratio's interval is over rounds. Steps that are not timed are modelled
from the pieces of those that are: a draft call by the vertices that draft in it, a target call by
its nodes, the rest (drawing, checking, verification) by levels and nodes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from otm._machine.arrays import Floats
from otm.sequence import Decoder, LanguageModel, Sampled, StaticDecoder, step

from ..decode.plain import plain_step
from ..kernels.decoders import by_kernel
from .clocked import Clocked
from .families import WalkedPlan, Work

STEPS = 4
"""Steps that are timed in a row, after one that fills the caches; plain ones twice as many."""

FROM_START = 0.3
"""Share of rounds that start right after a prompt, and so time the step that reads it."""


@dataclasses.dataclass
class Pieces:
    """Seconds of one decoder's steps, a mean for each round: draft calls, target call, the rest."""

    draft: list[float] = dataclasses.field(default_factory=list)
    target: list[float] = dataclasses.field(default_factory=list)
    rest: list[float] = dataclasses.field(default_factory=list)
    first: list[float] = dataclasses.field(default_factory=list)
    calls: int = 0
    contexts: int = 0
    steps: int = 0

    @property
    def totals(self) -> Floats:
        """Seconds per step, round by round."""
        totals: Floats = np.asarray([self.draft, self.target, self.rest], dtype=np.float64).sum(
            axis=0
        )
        return totals


@dataclasses.dataclass(frozen=True, eq=False)
class Clock:
    """A clock for steps of decoders, which are timed in turns.

    Attributes:
        draft, target: the models.
        texts: prompts and continuations in which steps are timed.
        eos: the token that ends a text.
        rng: chooses the places.
        pieces: by decoder, None for plain decoding.
        plain: by decoder, seconds of plain decoding beside each of its rounds.
    """

    draft: Clocked
    target: Clocked
    texts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    eos: int | None
    rng: np.random.Generator
    pieces: dict[Decoder | None, Pieces] = dataclasses.field(default_factory=dict)
    plain: dict[Decoder, list[float]] = dataclasses.field(default_factory=dict)

    def round(self, decoders: Sequence[Decoder]) -> None:
        """Time some steps of every decoder, plain decoding before and after each."""
        number = int(self.rng.integers(len(self.texts)))
        prefix, continuation = self.texts[number]
        start = int(self.rng.integers(len(continuation))) if self.rng.random() > FROM_START else 0
        context = prefix + continuation[:start]
        before = self._visit(None, context, reads_prompt=start == 0)
        for decoder in decoders:
            self._visit(decoder, context, reads_prompt=start == 0)
            after = self._visit(None, context, reads_prompt=start == 0)
            self.plain.setdefault(decoder, []).append((before + after) / 2)
            before = after

    def _visit(
        self, decoder: Decoder | None, context: tuple[int, ...], *, reads_prompt: bool
    ) -> float:
        """Take an untimed step that fills the caches, then timed steps; return the mean time."""
        self.draft.forget()
        self.target.forget()
        randomness = Sampled(self.rng)
        rows = []
        # The first step fills the caches: only the steps after it are like those of decoding.
        for number in range(1 + STEPS * (1 if decoder is not None else 2)):
            self.draft.reset()
            self.target.reset()
            began = time.perf_counter()
            tokens = self._step(decoder, context, randomness)
            whole = time.perf_counter() - began
            calls = self.draft.seconds, self.target.seconds
            if not number and reads_prompt:
                self.pieces.setdefault(decoder, Pieces()).first.append(whole)
            if number:
                rows.append((*calls, whole - sum(calls), self.draft.calls, self.draft.contexts))
            context += tokens
            if context[-1] == self.eos:
                context = context[:-1]  # only where the time goes is asked for, not how texts end
        mean = np.mean(rows, axis=0)
        pieces = self.pieces.setdefault(decoder, Pieces())
        for name, value in zip(("draft", "target", "rest"), mean, strict=False):
            getattr(pieces, name).append(float(value))
        pieces.calls += sum(int(row[3]) for row in rows)
        pieces.contexts += sum(int(row[4]) for row in rows)
        pieces.steps += len(rows)
        return float(mean[:3].sum())

    def _step(
        self, decoder: Decoder | None, context: tuple[int, ...], randomness: Sampled
    ) -> tuple[int, ...]:
        if decoder is None:
            return (plain_step(self.target, context, randomness),)
        models: dict[str, LanguageModel] = {"draft": self.draft, "target": self.target}
        decoder = by_kernel(decoder)  # as `decode` steps
        return step(decoder, **models, context=context, randomness=randomness, eos=self.eos).tokens

    def work(self, decoder: Decoder) -> Work:
        """Return the work of a timed decoder's step, averaged where the tree varies."""
        if isinstance(decoder, StaticDecoder):
            return Work.of(decoder)
        pieces = self.pieces[decoder]
        return Work(pieces.calls / pieces.steps, pieces.contexts / pieces.steps, decoder.num_nodes)

    def shares(self, decoder: Decoder, piece: str) -> Floats:
        """Return a piece of a step over plain decoding's time, by finished round."""
        plain = np.asarray(self.plain[decoder])
        return np.asarray(getattr(self.pieces[decoder], piece)[: len(plain)] / plain)

    def ratio(self, decoder: Decoder) -> tuple[float, float, int]:
        """Return a step's time over plain decoding's, the error of the log, and the rounds.

        The median over rounds, which an interrupted round does not move; the error of a single
        round is NaN.
        """
        ratios = np.log(self.shares(decoder, "totals"))
        spread = 1.4826 * float(np.median(np.abs(ratios - np.median(ratios))))
        if len(ratios) < 2:
            spread = float("nan")
        return float(np.exp(np.median(ratios))), 1.2533 * spread / np.sqrt(len(ratios)), len(ratios)

    @property
    def plain_seconds(self) -> float:
        """Seconds per token of plain decoding."""
        return float(np.median(self.pieces[None].totals))

    def first_seconds(self, decoder: Decoder | None) -> float:
        """Return the seconds of a step that reads the prompt, or of any step if none was timed."""
        first = self.pieces[decoder].first
        return float(np.median(first)) if first else self.seconds(decoder)

    def seconds(self, decoder: Decoder | None) -> float:
        """Return the seconds per step of a timed decoder, from the ratio to plain decoding."""
        return self.plain_seconds * (1.0 if decoder is None else self.ratio(decoder)[0])


@dataclasses.dataclass(frozen=True, eq=False)
class StepModel:
    """A model of the seconds of any step, fitted to the pieces of timed steps.

    Attributes:
        draft: seconds of a draft call, and of each vertex that drafts in it.
        target: nodes, and seconds of a target call that checks as many.
        rest: by family, seconds of a step, of each level and of each node.
    """

    draft: tuple[float, float]
    target: tuple[tuple[int, ...], tuple[float, ...]]
    rest: Mapping[str, tuple[float, float, float]]

    @classmethod
    def fitted(cls, clock: Clock, families: Mapping[str, Sequence[Decoder]]) -> StepModel:
        """Fit non-negative costs to the pieces of timed steps."""
        timed = [decoder for decoders in families.values() for decoder in decoders]
        work = {decoder: clock.work(decoder) for decoder in timed}
        draft = _fit(
            [[work[d].calls, work[d].drafting] for d in timed],
            [_typical(clock, d, "draft") for d in timed],
        )
        calls: dict[int, list[float]] = {0: [float(np.median(clock.pieces[None].target))]}
        for decoder in timed:
            calls.setdefault(decoder.num_nodes, []).append(_typical(clock, decoder, "target"))
        nodes = sorted(calls)
        # More nodes do not take less time: what says so is noise, and neighbours are averaged until
        # none does.
        target = scipy.optimize.isotonic_regression([float(np.median(calls[n])) for n in nodes]).x
        rest = {
            name: _fit(
                [[1.0, work[d].calls, work[d].nodes] for d in decoders],
                [_typical(clock, d, "rest") for d in decoders],
            )
            for name, decoders in families.items()
            if decoders  # limits may leave a family no plan; a fit of nothing aborts the process
        }
        return cls((draft[0], draft[1]), (tuple(nodes), tuple(map(float, target))), rest)  # type: ignore[arg-type]

    def seconds(self, plan: WalkedPlan) -> float:
        """Return the seconds of a step of a plan."""
        work, (per_call, per_vertex) = plan.work, self.draft
        fixed, level, node = self.rest[plan.family]
        calls = per_call * work.calls + per_vertex * work.drafting
        return calls + self.checking(work.nodes) + fixed + level * work.calls + node * work.nodes

    def checking(self, nodes: float) -> float:
        """Return the seconds of a target call that checks some nodes, linear between times."""
        points, seconds = self.target
        if nodes <= points[-1] or len(points) == 1:
            return float(np.interp(nodes, points, seconds))
        return seconds[-1] + (seconds[-1] - seconds[-2]) / (points[-1] - points[-2]) * (
            nodes - points[-1]
        )


def _typical(clock: Clock, decoder: Decoder, piece: str) -> float:
    """Return the seconds of a piece of a step, from the median share of plain decoding's time."""
    shares = clock.shares(decoder, piece)
    return float(np.median(shares)) * clock.plain_seconds


def _fit(features: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """Return non-negative coefficients, by least squares of relative errors."""
    matrix, found = np.asarray(features, dtype=np.float64), np.asarray(values)
    weight = 1.0 / np.maximum(found, 1e-9)
    return tuple(
        float(value) for value in scipy.optimize.nnls(matrix * weight[:, None], found * weight)[0]
    )
