"""The advice as JSON, for scripts and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from otm.engines import CostSurface
from otm.sequence import Gsd, LikeliestTree

from ..files import json_values
from .advice import Advice, Row
from .engine_settings import chain_settings, eagle_choices, engine_chain, likeliest_settings
from .losses import DraftLosses
from .screen import plan_name
from .trial import Trial

FORMAT = "otm.advice"
VERSION = 1


def advice_record(
    advice: Advice,
    *,
    draft: str,
    surfaces: Mapping[str, CostSurface],
    lost: DraftLosses,
    trials: Sequence[Trial],
    manifest: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that was measured and said.

    Args:
        advice: what was measured.
        draft: the draft model's name, for engines.
        surfaces: measured passes by name, as `otm plan --costs` takes them.
        lost: what drafts are lost to.
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
            "asked": dataclasses.asdict(advice.asked),
        },
        "lost": json_values(lost),
        "engines": {
            "length": chain.length if chain.may_pay else 0,
            "speedup": json_values(chain.speedup),
            "basis": "passes alone, batch 1",
            "settings": chain_settings(draft, chain.length) if chain.may_pay else {},
        },
        "run": [dataclasses.asdict(one) for one in trials],
        "manifest": dict(manifest),
    }


def _row(row: Row, draft: str) -> dict[str, Any]:
    return {
        "family": row.plan.family,
        "name": plan_name(row),
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
