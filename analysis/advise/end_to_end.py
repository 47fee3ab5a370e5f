"""The command from end to end: load, measure, show, run, write."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from otm._machine.progress import announce_limit, report_phase, say
from otm.engines import CostSurface
from otm.sequence import Gsd, LikeliestTree

from ..files import json_values, write_json
from ..models.causal import CausalModel, pair_models
from ..models.engines import Engine
from ..models.from_logits import shared_positions
from ..models.latency import measure_passes
from ..models.names import SIDES, model_places
from ..models.pair import Pair, end_of_text
from ..models.processing import Setting
from ..models.prompts import encoded_prompts
from ..models.source import PairSource, load_source
from ..provenance import environment, loads, model_identity, revision
from .advice import Advice, AdviceSettings, TimedPlan, advise
from .clocked import DeadlinePassed, seconds_left, stoppable, was_stopped
from .costs import STEPS
from .engine_settings import chain_settings, eagle_choices, engine_chain, likeliest_settings
from .losses import DraftLosses, measure_losses
from .screen import advice_screen, so_far, trial_table
from .trial import Trial, run_trials

PASSES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Nodes of the target passes that are timed by context length."""
_MEASURING, _PASSES = 0.85, 0.93
"""Shares of the budget until which plans, and passes, are measured; losses of drafts follow."""
FORMAT = "otm.advice"
VERSION = 1


def run_advise(
    source: PairSource,
    prompts: Path,
    *,
    field: str,
    limit: int | None,
    prompt_tokens: int,
    processing: Setting,
    asked: AdviceSettings,
    repeats: int,
    out: Path | None,
    engine: Engine | None = None,
) -> str:
    """Measure a pair, show the advice, run the plans if asked, and return the closing remarks.

    Args:
        source: the pair.
        prompts, field, limit, prompt_tokens: where prompts are and how they become tokens.
        processing: of the draft and of the target.
        asked: how much is measured, and within what.
        repeats: texts per prompt and way of a real run; 0 for none.
        out: where the record goes.
        engine: the engine that is asked about, if any.
    """
    deadline = announce_limit(asked.seconds)
    pair = load_source(source, two_tokenizers=True)
    tokens = encoded_prompts(
        prompts,
        pair.encode_prompt,
        field=field,
        limit=limit,
        most=prompt_tokens,
    )
    draft, target = pair_models(pair, processing)
    tokens, cut = _with_room(tokens, (draft, target), asked)
    eos, before = end_of_text(pair), os.getloadavg()
    with stoppable():
        advice, passes, lost = _measured(pair, (draft, target), tokens, asked, eos, deadline)
    dtype = str(pair.target.dtype).removeprefix("torch.")
    load = os.getloadavg()[0]
    surroundings = {
        "on": pair.device_name,
        "threads": torch.get_num_threads(),
        "weights": dtype,
        "load": f"{load:.1f}",
    }
    names = dict(zip(SIDES, source.names, strict=True))
    say(
        advice_screen(
            advice, draft=names["draft"], surroundings=surroundings, passes=passes, lost=lost
        )
    )
    trials, said = list[Trial](), list[str]()
    if repeats and not was_stopped():
        announce_limit(math.inf)  # the answer has been given
        with stoppable():
            trials = run_trials(
                advice, draft, target, tokens, eos=eos, repeats=repeats, seed=asked.seed + 1
            )
        said = [trial_table(trials, {row.plan.text: row.plan.words for row in advice.rows})]
    notes = [] if engine is None else [f"{engine.name}: {engine.words}"]
    notes += [*pair.notes, *cut]
    said += [f"note    {note}" for note in notes]
    said += [
        f"note    {side} model: {model.fallback}"
        for side, model in zip(SIDES, (draft, target), strict=True)
        if model.fallback
    ]
    if out is not None:
        places = model_places(source.draft, source.target)
        manifest = {
            "models": {side: model_identity(place) for side, place in places.items()},
            "processing": {
                side: dataclasses.asdict(one) for side, one in zip(SIDES, processing, strict=True)
            },
            "prompts": {"file": prompts.name, "count": len(tokens), "chat": pair.chat},
            "device": pair.device_name,
            "dtype": dtype,
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            **loads(before),
            "notes": notes,
            **environment(),
            "revision": revision(),
        }
        record = advice_record(
            advice,
            draft=names["draft"],
            surfaces={} if passes is None else {"passes": passes},
            lost=lost,
            trials=trials,
            manifest=manifest,
        )
        write_json(out, record)
        said.append(f"record  {out}")
    return "\n".join(said)


def _with_room(
    prompts: list[list[int]], models: Sequence[CausalModel], asked: AdviceSettings
) -> tuple[list[list[int]], list[str]]:
    """Cut prompts to leave room for a text and the steps timed after; add a note if any was cut."""
    depth, longest = asked.limits.depth, shared_positions(*models)
    room = longest - asked.num_tokens - depth - (1 + 2 * STEPS) * (1 + depth)
    if room < 1 or max(map(len, prompts)) <= room:
        return prompts, []
    note = f"prompts are cut to their last {room} tokens, of {longest} positions"
    return [prompt[-room:] for prompt in prompts], [note]


def _measured(
    pair: Pair,
    models: tuple[CausalModel, CausalModel],
    prompts: Sequence[Sequence[int]],
    asked: AdviceSettings,
    eos: int | None,
    deadline: float,
) -> tuple[Advice, CostSurface | None, DraftLosses | None]:
    """Return the advice and, as time permits, the passes by context and the losses of drafts."""
    measuring, passing = (deadline - (1.0 - part) * asked.seconds for part in (_MEASURING, _PASSES))
    advice = advise(
        *models,
        prompts,
        asked=asked,
        eos=eos,
        until=measuring,
        on_progress=lambda found: say(so_far(found)),
    )
    middle = sorted(map(len, prompts))[len(prompts) // 2]
    passes: CostSurface | None = None
    lost: DraftLosses | None = None

    def tick() -> None:
        report_phase("passes by context")
        if seconds_left(passing) <= 0.0:
            raise DeadlinePassed

    with contextlib.suppress(DeadlinePassed):
        tick()
        passes = measure_passes(
            *models,
            nodes=[n for n in PASSES if n <= asked.limits.nodes],
            contexts=(middle, middle + asked.num_tokens),
            seconds=min(5.0, 0.05 * asked.seconds),
            device=pair.device,
            tick=tick,
        )
    if seconds_left(deadline) > 0.0:
        report_phase("what drafts are lost to")
        trees = [
            row.plan.decoder for row in advice.rows if isinstance(row.plan.decoder, LikeliestTree)
        ]
        lost = measure_losses(
            *models,
            advice.sampled,
            decoder=advice.best.plan.decoder,
            tree=trees[0] if trees else LikeliestTree(1, 1),
            eos=eos,
            seconds=min(5.0, 0.05 * asked.seconds),
            rng=np.random.default_rng([asked.seed, 2]),
            rounded=pair.draft.dtype == torch.bfloat16,
        )
    return advice, passes, lost


def advice_record(
    advice: Advice,
    *,
    draft: str,
    surfaces: Mapping[str, CostSurface],
    lost: DraftLosses | None,
    trials: Sequence[Trial],
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record of an advice: everything that was measured and advised.

    Args:
        advice: what was measured.
        draft: the draft model's name, for engines.
        surfaces: measured passes by name, as `otm plan --costs` takes them.
        lost: the losses of drafts, if there was time.
        trials: real runs, if any.
        manifest: models, processing, device, load.
    """
    chain = engine_chain(advice.chains, advice.model, timed=advice.chain.over_plain)
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": advice.verdict,
        "decided": advice.decided,
        "confidence": advice.asked.confidence,
        "best": _row(advice.best, draft),
        "chain": _row(advice.chain, draft),
        "rows": [_row(row, draft) for row in advice.rows],
        "chains": {"tokens_per_call": list(advice.chains)},
        "plain": {"seconds_per_token": advice.plain_seconds},
        "step_model": dataclasses.asdict(advice.model),
        "costs": {name: surface.to_json() for name, surface in surfaces.items()},
        "measured": {
            "looks": advice.looks,
            "texts": advice.texts,
            "prompts": advice.prompts,
            "rounds": advice.rounds,
            "plans": advice.num_plans,
            "left_out": list(advice.left_out),
            "asked": dataclasses.asdict(advice.asked),
        },
        "lost": None if lost is None else json_values(lost),
        "engines": {
            "length": chain.length if chain.may_pay else 0,
            "speedup": json_values(chain.speedup),
            "basis": "passes alone, batch 1",
            "settings": chain_settings(draft, chain.length) if chain.may_pay else {},
        },
        "run": [dataclasses.asdict(one) for one in trials],
        "manifest": dict(manifest),
    }


def _row(row: TimedPlan, draft: str) -> dict[str, Any]:
    return {
        "family": row.plan.family,
        "name": row.plan.words,
        "decoder": row.plan.text,
        "nodes": row.plan.decoder.num_nodes,
        "depth": row.plan.decoder.depth,
        "tokens_per_call": row.tokens,
        "seconds": dict(zip(("draft", "target", "rest"), row.seconds, strict=True)),
        "over_plain": json_values(row.over_plain),
        "over_chain": json_values(row.over_chain),
        "sglang": likeliest_settings(draft, row.plan.decoder)
        if isinstance(row.plan.decoder, LikeliestTree)
        else None,
        "eagle_choices": eagle_choices(row.plan.decoder.shape)
        if isinstance(row.plan.decoder, Gsd)
        else None,
    }
