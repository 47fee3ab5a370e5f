"""Time a pair's forward passes: SpecTr's Tables 1 and 3, and passes over draft trees.

SpecTr's computational model says that scoring a few more tokens, or a few more sequences, takes
about as long as scoring one. `otm latency` checks that on a machine: a pass over
`length` new tokens of each of `batch` sequences that share the length of what is cached before
them. The tree times are those of `CausalModel.next_batch`, from tokens to probabilities on the
host: what a decoding step really waits for.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from otm._display.tabular import columns
from otm._machine.progress import report_phase
from otm.engines import CostSurface

from ..errors import AnalysisError
from ..files import write_json
from ..provenance import environment, loads, model_identity, require_quiet, revision
from .causal import CausalModel, pair_models
from .from_logits import shared_positions
from .names import SIDES
from .pair import Pair
from .tree_check import longest_context

REFERENCE = (4, 1)
"""Length and batch of the target's pass that SpecTr's tables divide by."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Sizes of the passes to time.

    Attributes:
        lengths, batches: new tokens per sequence and sequences in a pass.
        nodes: drafted nodes of a tree; its pass also scores the token at its root.
        context: tokens that are cached before.
    """

    lengths: tuple[int, ...] = tuple(range(1, 9))
    batches: tuple[int, ...] = (1, 2, 4, 8)
    nodes: tuple[int, ...] = (0, 1, 2, 4, 8, 16, 32, 64)
    context: int = 128


def measure_latency(
    pair: Pair, grid: Grid, *, seconds: float = 60.0, least: int = 5
) -> dict[str, Any]:
    """Time every cell of a grid on both models, and return medians and quartiles in seconds.

    The cells take turns, so that a slow minute of a shared machine hits all of them and ratios keep
    their meaning.

    Args:
        pair: the two models.
        grid: what to time.
        seconds: stop after the round that passes this time.
        least: rounds at least, ≥ 1.

    Returns:
        A JSON-ready record: `passes` and `tree` by model, `draft_step` (one more token of the draft
        model, as a distribution on the host), and `relative`, the tables (lengths × batches)
        relative to the target at length 4 and batch 1.

    Raises:
        AnalysisError: if the grid does not fit the models' positions, or lacks the cell that the
            tables are relative to.
    """
    _check_grid(grid, pair)
    language_models = dict(zip(SIDES, pair_models(pair), strict=True))
    cells: dict[tuple[Any, ...], _Cell] = {}
    for side, model in zip(SIDES, (pair.draft, pair.target), strict=True):
        for batch in grid.batches:
            cache = _cached(model, batch, grid.context, pair)
            for length in grid.lengths:
                cells["passes", side, length, batch] = _pass_cell(
                    model, cache, _tokens(batch, length, pair)
                )
        for count in grid.nodes:
            cells["tree", side, count] = _tree_cell(language_models[side], count, grid.context)
    report_phase(f"passes, for {seconds:.0f} s")
    times = _take_turns(cells, seconds=seconds, least=least, device=pair.device)
    return _record(grid, {name: _summary(values) for name, values in times.items()})


def write_latency(
    pair: Pair,
    out: Path,
    *,
    grid: Grid,
    seconds: float = 60.0,
    any_load: bool = False,
) -> dict[str, Any]:
    """Time a pair and write the record, with a manifest of models, machine, load and versions.

    Args:
        pair, grid, seconds: as in `measure_latency`.
        out: the JSON file to write.
        any_load: time on a busy machine too.

    Raises:
        AnalysisError: on a busy machine, and as `measure_latency`.
    """
    require_quiet(any_load=any_load)
    load = os.getloadavg()
    record = measure_latency(pair, grid, seconds=seconds)
    record["manifest"] = {
        "models": {side: model_identity(place) for side, place in pair.places.items()},
        "parameters": {side: int(getattr(pair, side).num_parameters()) for side in SIDES},
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "device": pair.device_name,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        **loads(load),
        **environment(),
        "revision": revision(),
    }
    write_json(out, record, indent=None)
    return record


def measure_passes(
    draft: CausalModel,
    target: CausalModel,
    *,
    nodes: Sequence[int],
    contexts: Sequence[int],
    seconds: float,
    device: str,
    tick: Callable[[], object] = lambda: None,
) -> CostSurface:
    """Time a draft step and target calls by tree nodes and context length, at batch 1.

    Args:
        draft, target: the two models; sizes and contexts that they cannot hold are left out.
        nodes: sizes of drafted trees, 0 among them.
        contexts: lengths of what is cached.
        seconds: stop after the round that passes this time.
        device: where the models are.
        tick: called after each round.

    Returns:
        CostSurface of medians.
    """
    sizes = [count for count in nodes if count < target.num_tokens]
    room = shared_positions(draft, target) - (1 + max(sizes)).bit_length()
    lengths = sorted({max(1, min(context, room)) for context in contexts})
    cells: dict[tuple[Any, ...], _Cell] = {}
    for context in lengths:
        cells["draft", context] = _tree_cell(draft, 0, context)
        cells |= {("target", context, count): _tree_cell(target, count, context) for count in sizes}
    times = _take_turns(cells, seconds=seconds, least=3, device=device, tick=tick)
    medians = {name: _summary(values)["median"] for name, values in times.items()}
    return CostSurface.of_points(
        {(1, context): medians["draft", context] for context in lengths},
        {
            (1, context, count + 1): medians["target", context, count]
            for context in lengths
            for count in sizes
        },
        source="tree passes timed by advise",
    )


def latency_table(record: Mapping[str, Any]) -> str:
    """Return SpecTr's Tables 1 and 3 as text: relative medians with quartiles.

    Lengths are 4 and 8, where they were measured.
    """
    batches = record["batches"]
    rows = [("relative latency", "", *(f"batch = {batch}" for batch in batches))]
    for side in reversed(SIDES):
        for length, row in zip(record["lengths"], record["relative"][side], strict=True):
            if length in (4, 8) or len(record["lengths"]) <= 2:
                values = (
                    f"{cell['median']:.2f} ({cell['low']:.2f}–{cell['high']:.2f})" for cell in row
                )
                rows.append((side, f"length = {length}", *values))
    return "\n".join(columns(rows))


@dataclasses.dataclass(frozen=True, eq=False)
class _Cell:
    """A call to time, and the preparation before each run, outside the clock."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None


def _pass_cell(model: Any, cache: Any, tokens: torch.Tensor) -> _Cell:
    @torch.inference_mode()
    def run(fresh: Any) -> object:
        return model(input_ids=tokens, past_key_values=fresh, use_cache=True).logits

    return _Cell(run, lambda: copy.deepcopy(cache))  # a pass appends to its cache


def _tree_cell(model: CausalModel, num_nodes: int, context: int) -> _Cell:
    """Return the call for a binary tree of drafted nodes below a token with a cached context."""
    stem = [(7 * i + 3) % model.num_tokens for i in range(context)]
    paths: list[list[int]] = [[0]]
    for node in range(1, num_nodes + 1):
        paths.append([*paths[(node - 1) // 2], node % model.num_tokens])
    contexts = [(*stem, *path) for path in dict.fromkeys(map(tuple, paths))]
    # The logits of a cached token are not kept, so each call evaluates the root and the nodes
    # again, and nothing else. The cells share the model and the context; a call before the clock
    # starts fits the cache to this one's tree.
    return _Cell(lambda _: model.next_batch(contexts), lambda: model.next_batch(contexts))


def _take_turns(
    cells: Mapping[Any, _Cell],
    *,
    seconds: float,
    least: int,
    device: str,
    tick: Callable[[], object] = lambda: None,
) -> dict[Any, list[float]]:
    waits = torch.device(device).type == "cuda"
    synchronise: Callable[[], object] = torch.cuda.synchronize if waits else lambda: None
    times: dict[Any, list[float]] = {name: [] for name in cells}
    for cell in cells.values():
        cell.run(cell.prepare())  # kernels compile and memory is taken on first use
    deadline = time.perf_counter() + seconds
    rounds = 0
    while rounds < max(1, least) or time.perf_counter() < deadline:
        for name, cell in cells.items():
            argument = cell.prepare()
            synchronise()
            start = time.perf_counter()
            cell.run(argument)
            synchronise()
            times[name].append(time.perf_counter() - start)
        rounds += 1
        tick()
    return times


def _summary(values: Sequence[float]) -> dict[str, float]:
    low, median, high = np.quantile(np.asarray(values), [0.25, 0.5, 0.75])
    return {"median": float(median), "low": float(low), "high": float(high), "rounds": len(values)}


def _record(grid: Grid, cells: Mapping[Any, dict[str, float]]) -> dict[str, Any]:
    unit = cells["passes", "target", *REFERENCE]["median"]

    def table(side: str, scale: float) -> list[list[dict[str, float]]]:
        shown = ("median", "low", "high")
        rows = [
            [cells["passes", side, length, batch] for batch in grid.batches]
            for length in grid.lengths
        ]
        return [[{name: cell[name] / scale for name in shown} for cell in row] for row in rows]

    return {
        "unit": "seconds; quartiles in low and high",
        "context": grid.context,
        "lengths": list(grid.lengths),
        "batches": list(grid.batches),
        "nodes": list(grid.nodes),
        "rounds": cells["passes", "target", *REFERENCE]["rounds"],
        "passes": {side: table(side, 1.0) for side in SIDES},
        "relative": {side: table(side, unit) for side in SIDES},
        "tree": {side: [cells["tree", side, count] for count in grid.nodes] for side in SIDES},
        "draft_step": cells["tree", "draft", 0],
    }


def _check_grid(grid: Grid, pair: Pair) -> None:
    if REFERENCE[0] not in grid.lengths or REFERENCE[1] not in grid.batches or 0 not in grid.nodes:
        raise AnalysisError(
            f"A grid needs length {REFERENCE[0]}, batch {REFERENCE[1]} and the tree of 0 nodes, "
            "which the tables refer to; got "
            f"lengths {grid.lengths}, batches {grid.batches}, nodes {grid.nodes}. Add them."
        )
    if min(*grid.lengths, *grid.batches, grid.context) < 1 or min(grid.nodes) < 0:
        raise AnalysisError(
            f"Lengths, batches and the context must be at least 1 and nodes at least 0; got {grid}."
        )
    needed = grid.context + max(*grid.lengths, (1 + max(grid.nodes)).bit_length())
    for side, model in zip(SIDES, (pair.draft, pair.target), strict=True):
        limit = longest_context(model)
        if limit is not None and needed > limit:
            raise AnalysisError(
                f"The grid needs {needed} positions; the {side} model has {limit}. Take a shorter "
                "context."
            )
    if max(grid.nodes) >= pair.num_tokens:
        raise AnalysisError(
            f"A tree of {max(grid.nodes)} nodes needs more than {pair.num_tokens} tokens. Take "
            "fewer nodes."
        )


@torch.inference_mode()
def _cached(model: Any, batch: int, context: int, pair: Pair) -> Any:
    cache = DynamicCache(config=model.config)
    model(input_ids=_tokens(batch, context, pair), past_key_values=cache, use_cache=True)
    return cache


def _tokens(batch: int, length: int, pair: Pair) -> torch.Tensor:
    """Return tokens `(batch, length)` from all over the vocabulary."""
    values: NDArray[np.int64] = (np.arange(batch * length) * 7919 + 11) % pair.num_tokens
    return torch.from_numpy(values.reshape(batch, length)).to(pair.device)
