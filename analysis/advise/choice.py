"""A plan for each context, by the draft's distribution there, against one plan for all.

A step may draft nothing, a short chain, several sequences or a tree. Which of them pays depends on
the context, and of the context a drafter knows its own distribution p before it drafts further. So
the tokens of every plan's step are regressed on a few numbers of p, by least squares with a ridge,
and a step takes the plan with the most

    tokens expected − ρ · seconds,      ρ the tokens per second of choosing so (Dinkelbach 1967).

The choice sees nothing of the target, so it is lossless whatever the regression says
(docs/theory.md, "A plan for each context"). It is learnt on some texts and judged on others. Given
a text a plan's walk along it is exact, and the walk of a choice takes each place from the walk of
the plan that is chosen there. A step that chooses pays for the call that answered with p, also
where it then drafts nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from otm._display.tabular import columns
from otm._machine.arrays import Floats
from otm._machine.progress import counted
from otm.engines import CostSurface, read_costs
from otm.results.statistics import t_quantile

from ..models.causal import CausalModel
from ..steps.contexts import check_contexts
from .families import FAMILIES, SCALE_TEXTS, Limits, Plan, Reading
from .sampled_texts import sample_text
from .speedups import speedup
from .walk import Walk

NOTHING = "no drafts"
MENUS = (
    ("chain",),
    ("chain", "K sequences, K-SEQ"),
    ("chain", "tree on shared noise"),
)
"""Families whose plans are compared, no drafts besides."""

_LIMITS = Limits(64, 8)

_PARTS = (0.05, 0.2)
"""What a draft call takes of a target call, where the latter takes the same whatever it checks."""

_FOLDS = 4
"""Parts of the texts; each is judged by what the others teach."""

_RIDGE = 1e-3
"""Weight of the squared coefficients, for features of unit variance."""

_LOOKS = 8
"""Turns of ρ, which converges faster than geometrically."""


@dataclasses.dataclass(frozen=True)
class ChoiceRow:
    """One plan for all contexts, and a choice by context, on texts that neither was learnt on.

    Attributes:
        costs, plans: what passes take, and which plans are compared.
        one: the plan that was one for all, the commonest over the parts of the texts.
        one_tokens, tokens: per call, of the one plan and of the choice.
        one_speed, speed: tokens per second of both, over those without drafts.
        gain, low, high: the second speed over the first, with a 95 % t interval over texts.
        known: speed of a choice that knows the text to come, which no drafter does.
    """

    costs: str
    plans: str
    one: str
    one_tokens: float
    tokens: float
    one_speed: float
    speed: float
    gain: float
    low: float
    high: float
    known: float


@dataclasses.dataclass(frozen=True)
class ChoiceTable:
    """What `compare_choice` finds.

    Attributes:
        texts, num_tokens: texts, and the places of each where a step may start.
        folds: parts of the texts.
        rows: by costs and plans.
    """

    texts: int
    num_tokens: int
    folds: int
    rows: tuple[ChoiceRow, ...]

    def __str__(self) -> str:
        head = (
            "costs, plans",
            "one plan",
            "tokens",
            "speed",
            "by context",
            "speed",
            "gain",
            "known",
        )
        rows = [
            (
                f"{row.costs}, {row.plans}",
                row.one,
                f"{row.one_tokens:.2f}",
                f"{row.one_speed:.3f}",
                f"{row.tokens:.2f}",
                f"{row.speed:.3f}",
                f"{row.gain:.3f} [{row.low:.3f}, {row.high:.3f}]",
                f"{row.known:.3f}",
            )
            for row in self.rows
        ]
        title = f"{self.texts} texts of {self.num_tokens} tokens"
        return "\n".join([title, *columns([head, *rows], right=(2, 3, 4, 5, 6, 7))])


def compare_choice(
    *,
    draft: CausalModel,
    target: CausalModel,
    contexts: Sequence[tuple[int, ...]],
    costs: Mapping[str, CostSurface],
    eos: int | None,
    rng: np.random.Generator,
    num_tokens: int = 32,
    limits: Limits = _LIMITS,
) -> ChoiceTable:
    """Return tokens per call and predicted speed of one plan and of a plan for each context.

    Args:
        draft, target: two models over one vocabulary.
        contexts: at least six; after each the target writes a text.
        costs: what a draft call and a target call take, by name; at batch 1 and the contexts'
            length.
        eos: the token that ends a text.
        rng: the generator.
        num_tokens: places of each text where a step may start.
        limits: of the plans.

    Raises:
        AnalysisError: for fewer than six contexts.
    """
    check_contexts(contexts)
    length, seed = num_tokens + limits.depth, int(rng.integers(1 << 53))
    sampled = (
        sample_text(draft, target, context, num_tokens=length, eos=eos, seed=[seed, number])
        for number, context in enumerate(counted(contexts, "texts"))
    )
    texts = [text for text in sampled if text is not None]
    before = tuple(texts[:SCALE_TEXTS])
    families = [family for family in FAMILIES if any(family.name in menu for menu in MENUS)]
    laws: dict[str, list[Any]] = {family.name: [] for family in families}
    for text in counted(texts, "laws of texts"):
        draft.forget()
        reading = Reading(text, draft, target, limits, num_tokens, eos, rng, before)
        for family in families:
            laws[family.name].append(family.law(reading))
    plans = {
        family.name: list(family.plans(laws[family.name], limits=limits, starts=num_tokens))
        for family in families
    }
    seen = [features(text.draft[:num_tokens]) for text in texts]
    rows = list[ChoiceRow]()
    for (costly, surface), names in itertools.product(costs.items(), MENUS):
        some = [one for name in names for one in plans[name]]
        menu = Menu(some, seen, surface, len(contexts[0]))
        words = [NOTHING, *(plan.words for plan in some)]
        rows.append(_compared(menu, words, costly, " or ".join(names)))
    return ChoiceTable(len(texts), num_tokens, _FOLDS, tuple(rows))


def costs_with(measured: Path) -> dict[str, CostSurface]:
    """Return the costs of a record, and those of targets with room to check what is drafted."""
    flat = {f"a draft call {part:g}": CostSurface.flat(draft=part, target=1.0) for part in _PARTS}
    return {"measured": read_costs(measured)} | flat


def features(draft: Floats) -> Floats:
    """Return what a choice knows of distributions `(n, V)`, `(n, 8)`.

    A one, the entropy H in nats, H², the largest probability and its logarithm, the logarithms of
    the second and of Σ p², and the product of H with the largest.

    >>> import numpy as np
    >>> features(np.array([[0.5, 0.5, 0.0]])).round(3)[0, :4]
    array([1.   , 0.693, 0.48 , 0.5  ])
    """
    entropy = scipy.special.entr(draft).sum(axis=1)
    top = -np.partition(-draft, 1, axis=1)[:, :2]
    logs = np.log(np.maximum(np.column_stack([top, (draft**2).sum(axis=1)]), 1e-9))
    rest = [entropy**2, top[:, 0], *logs.T, entropy * top[:, 0]]
    return np.column_stack([np.ones(len(draft)), entropy, *rest])


def ridge(seen: Floats, tokens: Floats) -> Floats:
    """Return coefficients `(features, plans)` of tokens `(n, plans)` on features `(n, features)`.

    The first feature is 1 and is not shrunk; the others are shrunk as if they had unit variance.

    >>> import numpy as np
    >>> ridge(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1.0], [3.0]])).round(2).tolist()
    [[2.0], [1.0]]
    """
    shrunk = np.diag(_RIDGE * len(seen) * seen.var(axis=0))
    return np.asarray(scipy.linalg.solve(seen.T @ seen + shrunk, seen.T @ tokens, assume_a="pos"))


class Menu:
    """Plans along texts, the first of which drafts nothing, and what their steps take.

    Args:
        plans: with a walk for each text.
        seen: features at the places of each text.
        costs: what calls take.
        context: tokens before a text; costs are those of the nearest measured length.
    """

    def __init__(
        self, plans: Sequence[Plan], seen: Sequence[Floats], costs: CostSurface, context: int
    ) -> None:
        length = min(max(context, costs.contexts[0]), costs.contexts[-1])
        found = [costs.at(batch=1, context=length, length=plan.work.nodes) for plan in plans]
        drafting = [
            plan.work.calls * one.draft + one.target for plan, one in zip(plans, found, strict=True)
        ]
        self.plain = found[0].plain
        self.seconds = np.array([self.plain, *drafting])
        # A step that chooses has asked for p before, also where it then drafts nothing.
        self.choosing = np.array([self.plain + found[0].draft, *drafting])
        self.seen = seen
        empty = [Walk.of(np.ones((1, len(one))), np.zeros((0, len(one)))) for one in seen]
        self.walks = [tuple(empty), *(plan.walks for plan in plans)]
        steps, tokens = (
            np.array([[getattr(walk, name) for walk in walks] for walks in self.walks])
            for name in ("steps", "tokens")
        )
        self.fixed = np.stack([steps, tokens, steps * self.seconds[:, None]], axis=2)
        """Steps, tokens and seconds of each plan on each text, `(plans, texts, 3)`."""
        self.yields = [
            np.stack([1.0 + walk.gained.sum(axis=0) for walk in walks], axis=1)
            for walks in zip(*self.walks, strict=True)
        ]
        """Tokens of each plan's step at the places of each text, given the text."""

    def chosen(self, number: int, expected: Floats, rate: float) -> tuple[float, float, float]:
        """Return steps, tokens and seconds of the choice by what plans are expected to yield."""
        plans = (expected - rate * self.choosing).argmax(axis=1)
        own = {plan: self.walks[plan][number] for plan in np.unique(plans).tolist()}
        depth = max(len(walk.gained) for walk in own.values())
        reached, gained = np.zeros((depth + 1, len(plans))), np.zeros((depth, len(plans)))
        for plan, walk in own.items():
            here = plans == plan
            reached[: len(walk.reached), here] = walk.reached[:, here]
            gained[: len(walk.gained), here] = walk.gained[:, here]
        mixed = Walk.of(reached, gained)
        return mixed.steps, mixed.tokens, float(mixed.visits @ self.choosing[plans])

    def fastest(self, numbers: Sequence[int]) -> tuple[int, float]:
        """Return the one plan that is fastest on some texts, and its tokens per second."""
        _, tokens, seconds = np.moveaxis(self.fixed[:, numbers].sum(axis=1), 1, 0)
        return int((tokens / seconds).argmax()), float((tokens / seconds).max())

    def rate(self, numbers: Sequence[int], expected: Sequence[Floats]) -> float:
        """Return ρ of the choice on some texts, by what plans are expected to yield on all."""
        _, rate = self.fastest(numbers)
        for _ in range(_LOOKS):
            found = [self.chosen(number, expected[number], rate) for number in numbers]
            _, tokens, seconds = np.sum(found, axis=0)
            rate = float(tokens / seconds)
        return rate

    def learn(self, numbers: Sequence[int]) -> list[Floats]:
        """Return what plans are expected to yield on all texts, by what some texts teach."""
        weights = ridge(
            np.concatenate([self.seen[number] for number in numbers]),
            np.concatenate([self.yields[number] for number in numbers]),
        )
        return [seen @ weights for seen in self.seen]


def _compared(menu: Menu, words: Sequence[str], costs: str, plans: str) -> ChoiceRow:
    """Return a row: every part of the texts judged by what the others teach."""
    every = list(range(len(menu.seen)))
    totals, ones = np.zeros((3, len(every), 3)), list[int]()
    known = menu.rate(every, menu.yields)
    for fold in range(_FOLDS):
        others = [number for number in every if number % _FOLDS != fold]
        one, _ = menu.fastest(others)
        expected = menu.learn(others)
        rate = menu.rate(others, expected)
        ones.append(one)
        for number in every[fold::_FOLDS]:
            totals[0, number] = menu.fixed[one, number]
            totals[1, number] = menu.chosen(number, expected[number], rate)
            totals[2, number] = menu.chosen(number, menu.yields[number], known)
    steps, tokens, seconds = np.moveaxis(totals.sum(axis=1), 1, 0)
    shares = totals[..., 1] / tokens[:, None] - totals[..., 2] / seconds[:, None]
    speeds = tokens / seconds * menu.plain
    gain = speedup(
        float(speeds[1] / speeds[0]),
        shares[1] - shares[0],
        clock_error=0.0,
        critical=float(t_quantile(len(every))),
    )
    commonest = words[max(ones, key=ones.count)]
    one_tokens, own_tokens, _ = (tokens / steps).tolist()
    one_speed, speed, known_speed = speeds.tolist()
    return ChoiceRow(
        costs=costs,
        plans=plans,
        one=commonest,
        one_tokens=one_tokens,
        tokens=own_tokens,
        one_speed=one_speed,
        speed=speed,
        gain=gain.value,
        low=gain.low,
        high=gain.high,
        known=known_speed,
    )
