"""Costs of a call in steps of plain decoding, measured on a machine or assumed.

A call drafts a tree level by level, one draft pass a level, and lets the target check all of it at
once:

    cost = Σ_i d(w_i) + t(n) + r,

w_i the vertices of level i that draft, d(w) a draft pass over w of them, n the drafted tokens, t(n)
a target pass that checks n, and r what else a step takes, 0 where only passes were timed. For a
chain of L drafts, d(1) = c and t = 1 this is the 1 + L·c of [Leviathan et al. 2023, Theorem 3.8].
Between measurements d and t are linear; nothing beyond the largest n measured is considered.

Without measurements nobody knows c = d and the v of t(n) = 1 + n·v, and the answer depends on them.
So two ends are shown instead. Cheap: c = .02, a draft of a fiftieth of the target's parameters or
one extra layer in a memory-bound engine, and v = 0, a target pass at batch 1 that waits for its
weights. Dear: c = .5, a small draft that is held up by launching kernels or by a large vocabulary
(the shipped pair's passes are .47 of its target's on two cores), and v = .05, twenty tokens the
price of a pass, as on a CPU or with a batch that fills the device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from otm.engines import read_costs
from otm.errors import OtmError

from ..errors import AnalysisError
from ..files import read_json
from .plans import MOST_NODES, TreePlan
from .text import printable

_MOST_BYTES = 64 << 20

Points = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of a call, in units of one step of plain decoding.

    Attributes:
        draft: (vertices that draft, a draft pass over them), ascending.
        target: (drafted tokens, a target pass that checks them), ascending.
        rest: by kind of plan, what else a step costs: fixed, per level, per drafted token.
        source: where they come from, in words; empty for the reader's own.
        models: digests of the models' weights that were timed, by side, where they are known.
    """

    draft: Points
    target: Points
    rest: dict[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)
    source: str = ""
    models: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_ratios(cls, draft: float, verify: float) -> Costs:
        """Return costs of c for every draft pass and 1 + n·v for a target pass.

        >>> Costs.of_ratios(0.1, 0.01).target
        ((0.0, 1.0), (64.0, 1.6400000000000001))
        """
        return cls(((1.0, draft),), ((0.0, 1.0), (float(MOST_NODES), 1.0 + MOST_NODES * verify)))

    @property
    def most_nodes(self) -> int:
        """The largest number of drafted tokens that these costs cover."""
        return min(MOST_NODES, int(self.target[-1][0]))

    def drafting(self, width: int) -> float:
        """Return the cost of a draft pass over some vertices."""
        return _at(self.draft, width)

    def checking(self, nodes: int) -> float:
        """Return the cost of a target pass that checks some drafted tokens."""
        return _at(self.target, nodes)

    def of_call(self, plan: TreePlan) -> float:
        """Return the cost of one call."""
        fixed, level, node = self.rest.get(_steps_of(plan), (0.0, 0.0, 0.0))
        return (
            _sum_at(self.draft, plan.widths)
            + self.checking(plan.nodes)
            + fixed
            + level * plan.depth
            + node * plan.nodes
        )


def _steps_of(plan: TreePlan) -> str:
    """Return the kind of a plan's steps: one sequence is a chain, whoever verifies it."""
    if plan.nodes == plan.depth:
        return "chain"
    return "K-SEQ" if (plan.kind, plan.verifier[:5]) == ("levels", "K-SEQ") else plan.kind


def read_latency(path: Path) -> Costs:
    """Read costs from a record of `latency` or a cost surface.

    A surface, as `otm.engines.read_costs` takes, is read at batch 1 and the first context.

    Raises:
        AnalysisError: if the file is neither.
    """
    record = read_object(path, "a record of latency")
    if "tree" not in record:
        return _of_surface(path)
    with whole_record(path, "latency"):
        nodes = [int(count) for count in record["nodes"]]
        target, draft = (
            [float(cell["median"]) for cell in record["tree"][side]] for side in ("target", "draft")
        )
        plain = target[nodes.index(0)]
        return measured_costs(
            {count + 1: seconds / plain for count, seconds in zip(nodes, draft, strict=False)},
            {count: seconds / plain for count, seconds in zip(nodes, target, strict=False)},
            source=f"otm latency on {record['manifest']['device']}",
            models=record["manifest"]["models"],
        )


@contextlib.contextmanager
def whole_record(path: Path, command: str) -> Iterator[None]:
    """Turn the errors of a damaged record of a command into an `AnalysisError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise AnalysisError(
            f"{path.name} is no whole record of {command} ({type(error).__name__}: {error}). "
            f"Run {command} again."
        ) from error


def _of_surface(path: Path) -> Costs:
    try:
        surface = read_costs(path)
    except OtmError as error:
        raise AnalysisError(f"Costs are a record of latency or a cost surface: {error}") from error
    context = surface.contexts[0]
    plain = surface.at(batch=1, context=context, length=0)
    tokens = range(surface.tokens[-1])
    target = {
        n: surface.at(batch=1, context=context, length=n).target / plain.target for n in tokens
    }
    return measured_costs({1: plain.draft / plain.target}, target, source=surface.source)


def measured_costs(
    draft: dict[int, float],
    target: dict[int, float],
    *,
    source: str,
    rest: dict[str, tuple[float, float, float]] | None = None,
    models: Mapping[str, Any] | None = None,
) -> Costs:
    """Return `Costs` of checked measurements.

    Raises:
        AnalysisError: if a cost is not finite, a target pass not positive, or one drafted token was
            not measured.
    """
    every = [
        *draft.values(),
        *target.values(),
        *(value for part in (rest or {}).values() for value in part),
    ]
    if (
        not np.isfinite(every).all()
        or min(every) < 0
        or min(target.values(), default=0.0) <= 0
        or max(target) < 1
        or 0 not in target
    ):
        raise AnalysisError(
            "Costs must be positive, finite and known for 0 and at least 1 drafted token; "
            f"{printable(source)} has others."
        )
    digests = {
        side: str(model["sha256"]) for side, model in (models or {}).items() if model.get("sha256")
    }
    points = [
        tuple((float(at), float(cost)) for at, cost in sorted(part.items()))
        for part in (draft, target)
    ]
    return Costs(points[0], points[1], rest or {}, printable(source)[:120], digests)


def read_object(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object of limited size."""
    try:
        record = read_json(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise AnalysisError(
            f"{path.name} cannot be read as {what} ({error}). Pass its JSON file."
        ) from error
    if not isinstance(record, dict):
        raise AnalysisError(
            f"{path.name} is no {what}: it holds no JSON object. Pass the right file."
        )
    return record


@functools.lru_cache(maxsize=1 << 14)  # the same few widths in hundreds of plans
def _at(points: Points, value: float) -> float:
    places, costs = zip(*points, strict=True)
    return float(np.interp(value, places, costs))


@functools.lru_cache(maxsize=1 << 14)  # and the same few trees
def _sum_at(points: Points, values: tuple[int, ...]) -> float:
    return sum(_at(points, value) for value in values)
