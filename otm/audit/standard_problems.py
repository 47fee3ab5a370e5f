"""Standard instances of the batteries, on which mistakes show that pass unseen elsewhere.

For one token: zeros of the target under the draft and the reverse, ties, equal and disjoint laws,
point masses, a truncated (top-p) target, masses below the clamps found in code (1e-8), vocabulary
rows that neither model uses, and pairs on which the second draft is accepted with a probability
strictly between 0 and 1, without which a uniform reused for it does not show. A vocabulary of one
token and k > V come with them, and laws that differ by less than float32 resolves. Windows of
confidence, in which the target or the draft is nearly certain of a token, the same or another, are
where shortcuts hide: of one token, and for blocks, steps and trees at the root and below it. Long
tails show what a user would see of a fault that four tokens make small. For blocks: toy models
whose laws are the same everywhere, or not, zeros, near certainty and a tail.

The batteries (`otm.audit.batteries`) integrate an instance where the drafts are few enough to
enumerate, small ones first, and spend what time is left on samples of what is larger.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.callables import MOST_SEQUENCES
from otm.drafts import Law
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter
from otm.examples import zipf
from otm.problem import Problem
from otm.sequence.models import LanguageModel, MarkovModel, OneByOne, TableModel

Masses = tuple[float, ...]
"""A distribution, written out."""

Laws = tuple[Masses, ...]
"""Distributions of the next token."""

INSTANCES: dict[str, tuple[Masses, Masses]] = {
    "two tokens": ((0.75, 0.25), (0.5, 0.5)),
    "three tokens": ((0.2, 0.5, 0.3), (0.55, 0.4, 0.05)),
    "later drafts matter": ((0.5, 0.3, 0.15, 0.05), (0.2, 0.35, 0.2, 0.25)),
    "ties": ((0.25, 0.25, 0.25, 0.25), (0.125, 0.125, 0.375, 0.375)),
    "zeros": ((0.5, 0.5, 0.0, 0.0), (0.0, 0.25, 0.25, 0.5)),
    "equal": ((0.5, 0.3, 0.2), (0.5, 0.3, 0.2)),
    "disjoint": ((0.75, 0.25, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)),
    "truncated target": ((0.4, 0.3, 0.2, 0.1), (0.625, 0.375, 0.0, 0.0)),
    "truncated draft": ((0.625, 0.375, 0.0, 0.0), (0.4, 0.3, 0.2, 0.1)),
    "one draft token": ((0.0, 1.0, 0.0), (0.3, 0.3, 0.4)),
    "one target token": ((0.2, 0.3, 0.5), (0.0, 1.0, 0.0)),
    "one token each": ((1.0, 0.0), (0.0, 1.0)),
    "tiny masses": ((0.6, 0.4 - 1e-9, 1e-9), (0.3, 0.7 - 4e-9, 4e-9)),
    "unused rows": ((0.5, 0.5, 0.0, 0.0), (0.25, 0.75, 0.0, 0.0)),
    "vocabulary of one": ((1.0,), (1.0,)),
    "nearly certain target": ((0.6, 0.3, 0.1), (0.9995, 0.0004, 0.0001)),
    "nearly certain draft": ((0.9995, 0.0004, 0.0001), (0.6, 0.3, 0.1)),
    "both nearly certain": ((0.9995, 0.0003, 0.0002), (0.9995, 0.0001, 0.0004)),
    "nearly certain of another token": ((0.9995, 0.0005), (0.0005, 0.9995)),
}
"""Pairs (draft, target) by name, of which a verdict needs every one."""

GIVEN = "the laws given"
"""The name of a pair that was given."""

WINDOWS = (0.9, 0.95, 0.99, 0.999, 0.9999)
"""Confidences, between which code may begin to take shortcuts."""


def windows() -> dict[str, tuple[Masses, Masses]]:
    """Return pairs in which one law is confident of a token, by name.

    >>> windows()["target .9 off the favourite"]
    ((0.5, 0.3, 0.2), (0.06, 0.04, 0.9))
    """
    found: dict[str, tuple[Masses, Masses]] = {}
    for before, most in itertools.pairwise((0.8, *WINDOWS)):
        more, less = round(0.6 * (1 - most), 9), round(0.4 * (1 - most), 9)
        shown = f"{most:g}".lstrip("0")
        found |= {
            f"target {shown} on the favourite": ((0.5, 0.3, 0.2), (most, less, more)),
            f"target {shown} off the favourite": ((0.5, 0.3, 0.2), (more, less, most)),
            f"draft {shown} on the favourite": ((most, more, less), (0.5, 0.2, 0.3)),
            f"draft {shown} off the favourite": ((most, more, less), (0.2, 0.3, 0.5)),
            f"both {shown}, the target less": (
                (most, more, less),
                (before, round(0.4 * (1 - before), 9), round(0.6 * (1 - before), 9)),
            ),
        }
    return found


NEAR: dict[str, tuple[Masses, Masses]] = {
    "nearly equal": ((0.5, 0.3, 0.2), (0.5 + 2**-10, 0.3, 0.2 - 2**-10)),
    "equal in float32": ((0.5, 0.3, 0.2), (0.5 + 2**-30, 0.3, 0.2 - 2**-30)),
}
"""Pairs of laws that hardly differ."""

LATER = {"later residuals": ((0.2, 0.05, 0.75), (0.5, 0.4, 0.1))}
"""A pair on which every rejection leaves another residual of more than one token."""

BETWEEN = "largest probabilities other than .9, .95, .99, .999, .9999 and those of the instances"
"""Reported as untested: largest probabilities between those of the instances."""

BESIDE: dict[str, tuple[Masses, Masses]] = NEAR | LATER | windows()
"""Pairs that are integrated beside `INSTANCES` where there is time."""

TAILS: dict[str, int] = {"long tail of 48": 48, "long tail of 2,000": 2_000}
"""Vocabularies of long-tailed pairs (`long_tailed`)."""

DRAFTS = (1, 2, 3)
"""Numbers of drafts that are tested on every instance, and that a verdict needs."""

MANY_DRAFTS = (4, 5, 6, 7, 8)
"""Further numbers of drafts, on `FEW_TOKENS`."""

FEW_TOKENS = ("two tokens", "one token each", "later residuals")

BLOCKS = (1, 2, 3)
"""Numbers γ of drafted positions of a block, which a verdict needs."""

MANY_POSITIONS = (4, 5, 6, 7, 8)
"""Further numbers of positions, with chance at the first, a middle and the last position."""

BATCHES = (1, 2, 5, 33)
"""Rows of small batches, up to five of which are compared jointly; beyond 32 some kernels take
another way.
"""

TAILED_BLOCKS = {1: 64, 2: 30, 3: 12}
"""Vocabularies of long-tailed models for blocks, by γ; sampled."""

MOST_CONTEXTS = 5_000
"""Contexts up to which a long-tailed model is made."""

TEMPERATURES = (1.0, 0.6, 0.0, 0.3, 1.5)
"""Temperatures for code that takes raw logits and is told the temperature."""

LOGITS = (
    "three tokens",
    "later drafts matter",
    "zeros",
    "nearly certain target",
    "draft .95 off the favourite",
)
"""Instances whose logarithms are raw logits, at temperature 1."""

SAMPLED = {"later drafts matter": (8,), "long tail of 2,000": (1, 3, 8)}
"""Instances sampled beside integration, with numbers of drafts: all are too large to integrate."""

FEW = (
    "later drafts matter",
    "zeros",
    "truncated draft",
    "nearly certain draft",
    "long tail of 2,000",
)
"""Instances sampled for code that can neither be integrated nor run in batches."""

FEW_MODELS = ("after the token before", "zeros", "nearly certain")
"""The same for blocks."""

LEVELS = (0.02, 0.03, 0.05, 0.06, 0.1, 0.15, 0.2, 0.3)
"""Total variations of which samples are planned to find the smallest that there is time for."""

FLOOR, FLOOR_LARGE, FLOOR_BESIDE, FLOOR_BATCHES = 0.05, 0.02, 0.06, 0.15
"""The smallest total variations planned for: of small instances; of a large instance, with the time
left by the others; beside integration; and of small batches, each of which is a call.
"""

LARGE = ("long tail of 64", "long tail of 2,000")
"""Instances that are large."""

NEEDED = 16
"""Largest number of drafts for which a verdict needs the integration of an instance."""

KEPT, KEPT_BESIDE = 0.7, 0.6
"""Shares of the time left at the end of optional integration, and of samples beside it."""

USED = 0.8
"""Share of the time for samples that is planned: the pace of samples varies."""

SECONDS, SHRINKING = 18.0, 8.0
"""Time for the audits of a battery, and for a minimal counterexample."""


SHAPES: dict[str, tuple[int, ...]] = {
    "two siblings": (-1, 0, 0),
    "a chain": (-1, 0, 1),
    "two siblings and a child": (-1, 0, 0, 1),
    "three siblings": (-1, 0, 0, 0),
    "a child of each sibling": (-1, 0, 0, 1, 2),
    "siblings below a child": (-1, 0, 1, 1),
}
"""Trees, by the parents of their nodes."""

MOST_TREES = 64
"""Largest number of drafted trees of one shape for integration."""

WINDOW_SHAPES = ("two siblings and a child", "siblings below a child")
"""The trees of the windows of confidence."""

STEP_LENGTH = 3
"""Tokens of a step that are compared, more where the step writes more."""

CHANCES = {5: 243, 8: 81}
"""Largest number of drafted blocks, by length of a step, for which all positions are left to chance
at once; beyond, a few positions at a time.
"""

CHANCES_BEYOND, FEW_CHAINED = 27, ("after the token before", "far apart")
"""And of longer steps, which are run on fewer pairs."""

GENERATIONS: dict[str, dict[str, Any]] = {
    "one row": {"prompts": ((0, 1),), "length": 3},
    "temperature 0.6": {"prompts": ((0, 1),), "length": 3, "temperature": 0.6},
    "temperature 0": {"prompts": ((0, 1),), "length": 3, "temperature": 0.0},
    "top-p": {"prompts": ((1,),), "length": 3, "top_p": 0.7},
    "two rows of different lengths": {"prompts": ((0, 1), (1,)), "length": 2},
    "two rows, the longer last": {"prompts": ((1,), (0, 1, 0)), "length": 2},
    "end of sequence": {"prompts": ((0, 1),), "length": 3, "end": 1},
    "temperature 0.3": {"prompts": ((0, 1),), "length": 3, "temperature": 0.3},
    "temperature 1.5": {"prompts": ((0, 1),), "length": 3, "temperature": 1.5},
}
"""Requests for whole generations."""


@functools.cache
def instance(name: str) -> tuple[Masses, Masses]:
    """Return a pair (draft, target) by name: of `INSTANCES`, `BESIDE` or `TAILS`.

    >>> instance("two tokens"), len(instance("long tail of 48")[0])
    (((0.75, 0.25), (0.5, 0.5)), 48)
    """
    return long_tailed(TAILS[name]) if name in TAILS else (INSTANCES | BESIDE)[name]


def floor_of(name: str) -> float:
    """Return the smallest total variation that samples of an instance are planned to find."""
    if name in LARGE:
        return FLOOR_LARGE
    return FLOOR_BESIDE if name.startswith("long tail") else FLOOR


def is_needed(name: str, size: int, *, usual: bool) -> bool:
    """True if a verdict needs an instance with `size` drafts, of a usual number or not."""
    return name == GIVEN or (usual and name in {**INSTANCES, **MODELS} and size <= NEEDED)


def long_tailed(num_tokens: int) -> tuple[Masses, Masses]:
    """Return (Zipf, the mean of Zipf and a permuted Zipf): a draft and a target like language
    models', the same on every call.
    """
    draft = zipf(num_tokens)
    target = 0.5 * draft + 0.5 * np.random.default_rng(num_tokens).permutation(draft)
    return tuple(draft.tolist()), tuple((target / target.sum()).tolist())


def heavy_tailed(num_tokens: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a draft and a target whose tail is lighter: nearly all tokens have no residual."""
    return zipf(num_tokens), zipf(num_tokens, exponent=2.0)


def names_of(selection: str, k: int, *, every: bool = False) -> Iterable[str]:
    """Return the names of the instances on which k drafts are tried.

    Args:
        selection: "standard", "few" or "integrable", what may be small enough to integrate; "all",
            which has the long tails; or "large", what is sampled beside an integration.
        k: the number of drafts.
        every: whether also what is for other numbers of drafts, unless it is integrated.
    """
    if selection == "large":
        return [name for name, ks in SAMPLED.items() if every or k in ks]
    if k in MANY_DRAFTS and (selection == "integrable" or not every):
        return FEW_TOKENS
    integrable = (*INSTANCES, *TAILS, *BESIDE)
    named = {"standard": INSTANCES, "few": FEW, "integrable": integrable}
    return named.get(selection, (*INSTANCES, *TAILS))


def problems_under(
    law: Law,
    selection: str = "integrable",
    *,
    every: bool = False,
    pair: Tables | None = None,
) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of a selection from which a law can draw, with names.

    Args:
        law: how the drafts are drawn.
        selection, every: as of `names_of`; of "integrable" those that are small enough.
        pair: laws to take instead, of one row each; nothing is large beside them.
    """
    if pair is not None:
        if selection != "large":
            (p,), (q,) = pair
            yield GIVEN, Problem(draft=one_per_drafter(p, law), target=q, law=law)
        return
    for name in names_of(selection, law.size, every=every):
        draft, target = instance(name)
        if selection == "integrable" and law.num_sequences(len(target)) > MOST_SEQUENCES:
            continue
        with contextlib.suppress(InvalidParameter):  # more drafts than tokens
            yield name, Problem(draft=one_per_drafter(draft, law), target=target, law=law)


def one_per_drafter(draft: Sequence[float] | NDArray[Any], law: Law) -> NDArray[Any]:
    """Return a distribution `(V,)` in the shape of the law's draft: unchanged, or for different
    drafters one copy each, rolled by 0, 1, 2, … tokens.
    """
    shape = law.draft_shape(len(draft))
    return np.stack([np.roll(draft, turn) for turn in range(math.prod(shape[:-1]))]).reshape(shape)


def last_token(context: Sequence[int]) -> int:
    """Return the last token, 0 for an empty context."""
    return context[-1] if len(context) else 0


_DRAFT = ((0.5, 0.3, 0.2), (0.1, 0.6, 0.3), (0.25, 0.25, 0.5))
_TARGET = ((0.2, 0.3, 0.5), (0.4, 0.2, 0.4), (0.3, 0.6, 0.1))
MODELS: dict[str, tuple[Laws, Laws, Callable[[Sequence[int]], int]]] = {
    "same at every position": (((2 / 3, 1 / 3),), ((1 / 3, 2 / 3),), len),
    "equal models": (_DRAFT, _DRAFT, last_token),
    "after the token before": (_DRAFT, _TARGET, last_token),
    "by position": (_DRAFT, _TARGET, len),
    "zeros": (
        ((0.5, 0.5, 0.0), (0.0, 0.5, 0.5), (1.0, 0.0, 0.0)),
        ((0.0, 0.25, 0.75), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5)),
        last_token,
    ),
    "nearly certain": (
        ((0.9995, 0.0004, 0.0001), (0.6, 0.3, 0.1), (0.2, 0.4, 0.4)),
        ((0.6, 0.3, 0.1), (0.9995, 0.0001, 0.0004), (1.0, 0.0, 0.0)),
        last_token,
    ),
}
"""Pairs of models (draft, target, index of the law after a context: by last token or length)."""


def window_models() -> dict[str, tuple[Laws, Laws, Callable[[Sequence[int]], int]]]:
    """Return models of two tokens in which one law is confident, at the root and below, by name;
    and two pairs in which draft and target hardly differ.

    After token 0 and after token 1 the target is confident on the draft's favourite or off it, or
    the draft is confident.
    """
    found: dict[str, tuple[Laws, Laws, Callable[[Sequence[int]], int]]] = {
        name: (((0.6, 0.4), (0.3, 0.7)), ((0.6 + by, 0.4 - by), (0.3 - by, 0.7 + by)), last_token)
        for name, by in (("nearly equal", 2**-10), ("equal in float32", 2**-30))
    }
    for most in WINDOWS:
        least = round(1 - most, 9)
        laws: list[tuple[Masses, Masses]] = [
            ((0.6, 0.4), (most, least)),
            ((0.6, 0.4), (least, most)),
            ((most, least), (0.4, 0.6)),
        ]
        where = ("target on the favourite", "target off the favourite", "draft")
        for root, below in ((0, 1), (1, 2), (2, 0)):
            (p, q), (p_below, q_below) = laws[root], laws[below]
            name = f"{most:g} sure".lstrip("0") + f", {where[root]} first"
            found[name] = ((p, p_below), (q, q_below), last_token)
    return found


WINDOW_MODELS = window_models()
"""Models that are integrated beside `MODELS`, and beside `CHAINED`, where there is time."""

CHAINED: dict[str, tuple[Laws, Laws]] = {
    "after the token before": (
        ((0.5, 0.25, 0.25), (0.2, 0.6, 0.2), (0.4, 0.4, 0.2)),
        ((0.2, 0.3, 0.5), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8)),
    ),
    "far apart": (((0.75, 0.25), (0.9, 0.1)), ((0.25, 0.75), (0.4, 0.6))),
    "zeros": (
        ((0.5, 0.5, 0.0), (0.5, 0.25, 0.25), (0.75, 0.0, 0.25)),
        ((0.0, 0.25, 0.75), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5)),
    ),
    "nearly certain": (((0.9995, 0.0005), (0.6, 0.4)), ((0.6, 0.4), (0.0005, 0.9995))),
}
"""Pairs of chains (draft, target) for steps and trees: the next law by the last token."""


def models_of(
    selection: str, gamma: int, pair: Tables | None = None
) -> dict[str, tuple[TableModel, TableModel]]:
    """Return a selection of toy pairs (draft, target), complete for blocks of γ drafts, by name.

    Args:
        selection: "large", long-tailed ones beyond what is integrated; "few" of the standard ones;
            "all" of these and the long tails; or "integrable", with the windows of confidence.
        gamma: γ.
        pair: tables to take instead, by the last token or of one row; nothing is large beside them.
    """
    if pair is not None:
        draft, target = (placed_model(rows.tolist(), last_token, gamma) for rows in pair)
        return {} if selection == "large" else {GIVEN: (draft, target)}
    tails = tail_models(gamma) if selection in ("all", "large") else {}
    found = {} if selection == "large" else standard_models(gamma)
    names: Iterable[str] = {"all": MODELS, "few": FEW_MODELS}.get(selection, found)
    return {name: pair for name, pair in found.items() if name in names} | tails


def standard_models(gamma: int) -> dict[str, tuple[TableModel, TableModel]]:
    """Return the standard toy pairs (draft, target), complete for blocks of γ drafts and small
    enough to integrate, by name.
    """
    if gamma in MANY_POSITIONS:
        return {"a few positions": few_positions(gamma)}
    beside = WINDOW_MODELS if gamma == 2 else {}  # the root, and below it
    return {
        name: (placed_model(draft, place, gamma), placed_model(target, place, gamma))
        for name, (draft, target, place) in (MODELS | beside).items()
        if len(draft[0]) == 2 or len(draft[0]) ** gamma <= MOST_SEQUENCES
    }


CHANCE_LAWS: tuple[Laws, Laws] = (
    ((2 / 3, 1 / 3), (1 / 4, 3 / 4), (3 / 5, 2 / 5), (1 / 2, 1 / 2)),
    ((1 / 3, 2 / 3), (5 / 8, 3 / 8), (1 / 5, 4 / 5), (1 / 8, 7 / 8)),
)
"""Laws (draft, target) that differ from place to place."""


def few_positions(gamma: int) -> tuple[TableModel, TableModel]:
    """Return models that leave the first, a middle and the last of γ positions and the next one to
    chance, and agree on a token at all other positions.
    """
    rows: list[list[Masses]] = [[(1.0, 0.0)] * (gamma + 1) for _ in range(2)]
    for place, *laws in zip((0, gamma // 2, gamma - 1, gamma), *CHANCE_LAWS, strict=True):
        for model, law in zip(rows, laws, strict=True):
            model[place] = law
    draft, target = (placed_model(model, len, gamma) for model in rows)
    return draft, target


def placed_model(
    laws: Sequence[Any], place: Callable[[Sequence[int]], int], depth: int
) -> TableModel:
    """Return a model with the law `laws[place(context)]`, cyclically, after every short context."""
    return table_model(lambda context: laws[place(context) % len(laws)], len(laws[0]), depth)


Tables = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Draft and target: one row each, or a row for each last token."""


def chained_models(pair: Tables | None = None) -> dict[str, tuple[MarkovModel, MarkovModel]]:
    """Return pairs (draft, target) of Markov chains for steps and trees, by name, with
    `WINDOW_MODELS` last; or the pair of the given tables.
    """
    chains: dict[str, tuple[Any, Any]] = (
        {GIVEN: pair}
        if pair is not None
        else {
            **CHAINED,
            **{name: models[:2] for name, models in WINDOW_MODELS.items()},
        }
    )
    return {name: (_chain(draft), _chain(target)) for name, (draft, target) in chains.items()}


def _chain(rows: Any) -> MarkovModel:
    """Return the chain of a table, which may have one row for all tokens."""
    table = np.asarray(rows)
    return MarkovModel(np.broadcast_to(table, (table.shape[-1],) * 2).copy())


def written(draft: LanguageModel, target: LanguageModel) -> str:
    """Return Python code for a pair of chains, of windows on chains, or of toy language models."""
    return "".join(
        f"{name} = {_written(model)}\n" for name, model in (("draft", draft), ("target", target))
    )


def _written(model: Any) -> str:
    if isinstance(model, Windowed):
        window = f"first={model.first}, end={model.end}"
        return f"standard_problems.Windowed({_written(model.model)}, {window})"
    room = "sequence" if isinstance(model, MarkovModel) else "audit.generations"
    return f"otm.{room}.{type(model).__name__}({model.table.tolist()})"


@dataclasses.dataclass(frozen=True, eq=False)
class Windowed(OneByOne):
    """A model that leaves a few positions to chance.

    Before and after these the last token is repeated, 0 in the beginning.

    Args:
        model: its law at these positions.
        first, end: the positions first, …, end − 1.

    >>> Windowed(MarkovModel([[0.5, 0.5], [0.5, 0.5]]), 1, 2).next([0, 1])
    array([0., 1.])
    """

    model: LanguageModel
    first: int
    end: int

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.model.num_tokens

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the model's law at positions left to chance, elsewhere the last token for
        certain.
        """
        if self.first <= len(context) < self.end:
            return self.model.next(context)
        law = np.zeros(self.num_tokens)
        law[last_token(context)] = 1.0
        return law


def step_models(
    length: int, models: Mapping[str, tuple[MarkovModel, MarkovModel]]
) -> dict[str, tuple[LanguageModel, LanguageModel]]:
    """Return chains for steps that write up to `length` tokens, by name.

    A step has V^γ drafts. Where they are too many (`CHANCES`), draft and target agree on one token
    at all positions but a few, and these few move over the step: each model comes once for every
    place of theirs, overlapping by one position, so that every position is compared, and every one
    together with its neighbours.
    """
    found: dict[str, tuple[LanguageModel, LanguageModel]] = {}
    most = next((blocks for tokens, blocks in CHANCES.items() if length <= tokens), CHANCES_BEYOND)
    # Long steps of large vocabularies cannot be enumerated: windows move over them instead.
    for name, (p, q) in models.items():
        width = int(math.log(most, p.num_tokens) + 1e-9)  # 3^5 itself
        if name in WINDOW_MODELS and length > STEP_LENGTH:
            found[name] = Windowed(p, 0, STEP_LENGTH), Windowed(q, 0, STEP_LENGTH)
            continue
        if length > max(CHANCES) and name not in FEW_CHAINED:
            continue
        if length <= width:
            found[name] = p, q
        elif p.num_tokens**length <= MAX_SEQUENCES:
            for first in (*range(0, length - width, width - 1), length - width):
                window = first, first + width
                found[f"{name}, tokens {first + 1} to {first + width}"] = (
                    Windowed(p, *window),
                    Windowed(q, *window),
                )
    return found


def tail_models(gamma: int) -> dict[str, tuple[TableModel, TableModel]]:
    """Return long-tailed toy pairs for blocks of γ drafts, too large to integrate; none for lengths
    without one.
    """
    num_tokens = TAILED_BLOCKS.get(gamma, TAILED_BLOCKS[max(TAILED_BLOCKS)])
    if num_tokens**gamma > MOST_CONTEXTS:
        return {}
    p, q = long_tailed(num_tokens)
    draft = table_model(lambda c: np.roll(p, len(c)), num_tokens, gamma)
    target = table_model(lambda c: np.roll(q, last_token(c)), num_tokens, gamma)
    return {f"long tail of {num_tokens}": (draft, target)}


def table_model(law: Callable[[tuple[int, ...]], Any], num_tokens: int, depth: int) -> TableModel:
    """Return a model with `law(context)` after every context of at most `depth` tokens.

    Args:
        law: the next-token distribution `(V,)` after a context, a tuple of tokens.
        num_tokens: V.
        depth: length of the longest context.

    Returns:
        TableModel.

    Raises:
        InvalidDistribution: if `law` returns something else.

    Cost: (V^{depth+1} − 1)/(V − 1) calls of `law`.

    >>> table_model(lambda context: [0.5, 0.5], 2, 1).next([1])
    array([0.5, 0.5])
    """
    contexts = [
        path
        for length in range(depth + 1)
        for path in itertools.product(range(num_tokens), repeat=length)
    ]
    return TableModel({context: law(context) for context in contexts})
