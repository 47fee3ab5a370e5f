"""The command from end to end: load, measure, show, run, write."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from otm.sequence import LikeliestTree

from ..errors import AnalysisError
from ..files import write_json
from ..models.causal import pair_models
from ..models.latency import measure_passes
from ..models.names import SIDES, model_places
from ..models.pair import end_of_text
from ..models.processing import Setting
from ..models.prompts import open_prompts, prompts as numbered
from ..models.source import PairSource, load_source
from ..provenance import environment, loads, model_identity, revision
from .advice import Advice, AdviceSettings, advise
from .losses import measure_losses
from .record import advice_record
from .screen import plan_name, screen, trial_table
from .trial import run_trials

PASSES = (0, 1, 2, 4, 8, 16, 32, 64)
"""Nodes of the target passes that are timed by context length."""


def run_advise(
    source: PairSource,
    prompts: Path,
    *,
    field: str,
    limit: int | None,
    prompt_tokens: int,
    chat: bool,
    processing: Setting,
    asked: AdviceSettings,
    repeats: int,
    out: Path | None,
    show: Callable[[str], object],
) -> str:
    """Measure a pair, show the answer, run it if asked, and return what is left to say.

    Args:
        source: the pair.
        prompts, field, limit, prompt_tokens, chat: where prompts are and how they become tokens.
        processing: of the draft and of the target.
        asked: how much is measured, and within what.
        repeats: texts per prompt and way of a real run; 0 for none.
        out: where the record goes.
        show: takes the answer before a run.
    """
    texts = list(itertools.islice(numbered(open_prompts(prompts, field=field)), limit))
    if not texts:
        raise AnalysisError(
            "Advice needs at least one prompt; the file has none. Give one per line."
        )
    pair = load_source(source)
    encode = pair.encode_chat if chat else pair.encode
    tokens = [encode(prompt.text)[-prompt_tokens:] for prompt in texts]
    draft, target = pair_models(pair, processing)
    eos, before = end_of_text(pair), os.getloadavg()
    with _Progress(asked.seconds) as bar:
        advice = advise(draft, target, tokens, asked=asked, eos=eos, progress=bar.told)
        middle = sorted(map(len, tokens))[len(tokens) // 2]
        passes = measure_passes(
            draft,
            target,
            nodes=[n for n in PASSES if n <= asked.limits.nodes],
            contexts=(middle, middle + asked.num_tokens),
            seconds=min(5.0, 0.05 * asked.seconds),
            device=pair.device,
            tick=lambda: bar.told("passes by context"),
        )
        bar.told("what drafts are lost to")
        trees = [
            row.plan.decoder for row in advice.rows if isinstance(row.plan.decoder, LikeliestTree)
        ]
        lost = measure_losses(
            draft,
            target,
            advice.sampled,
            decoder=advice.best.plan.decoder,
            tree=trees[0] if trees else LikeliestTree(1, 1),
            eos=eos,
            seconds=min(5.0, 0.05 * asked.seconds),
            rng=np.random.default_rng([asked.seed, 2]),
            rounded=pair.draft.dtype == torch.bfloat16,
        )
    dtype = str(pair.target.dtype).removeprefix("torch.")
    load = os.getloadavg()[0]
    surroundings = {
        "on": pair.device_name,
        "threads": torch.get_num_threads(),
        "weights": dtype,
        "load": f"{load:.1f}",
    }
    names = dict(zip(SIDES, source.names, strict=True))
    show(screen(advice, draft=names["draft"], surroundings=surroundings, passes=passes, lost=lost))
    trials = []
    if repeats:
        with _Progress(None) as bar:
            trials = run_trials(
                advice,
                draft,
                target,
                tokens,
                eos=eos,
                repeats=repeats,
                seed=asked.seed + 1,
                progress=bar.told,
            )
    said = [trial_table(trials, _names(advice))] if repeats else []
    said += [f"note    {note}" for note in pair.notes]
    said += [
        f"note    {side} model: {model.fallback}"
        for side, model in zip(SIDES, (draft, target), strict=True)
        if model.fallback
    ]
    if out is not None:
        places = dict(zip(SIDES, model_places(source.draft, source.target), strict=True))
        manifest = {
            "models": {side: model_identity(place) for side, place in places.items()},
            "processing": {
                side: dataclasses.asdict(one) for side, one in zip(SIDES, processing, strict=True)
            },
            "prompts": {"file": prompts.name, "count": len(tokens), "chat": chat},
            "device": pair.device_name,
            "dtype": dtype,
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            **loads(before),
            "notes": list(pair.notes),
            **environment(),
            "revision": revision(),
        }
        record = advice_record(
            advice,
            draft=names["draft"],
            surfaces={"passes": passes},
            lost=lost,
            trials=trials,
            manifest=manifest,
        )
        write_json(out, record)
        said.append(f"record  {out}")
    return "\n".join(said)


def _names(advice: Advice) -> dict[str, str]:
    return {row.plan.text: plan_name(row) for row in advice.rows}


class _Progress:
    """A bar over the budget's seconds, with what is being done; over nothing without a budget."""

    def __init__(self, seconds: float | None) -> None:
        layout = (
            "{desc} {elapsed}"
            if seconds is None
            else "{desc} |{bar}| {elapsed} of at most {total:.0f} s"
        )
        self._bar = tqdm(
            total=seconds, bar_format=layout, disable=not sys.stderr.isatty(), leave=False
        )
        self._began = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def told(self, what: str) -> None:
        """Move on."""
        self._bar.set_description_str(what, refresh=False)
        passed = time.monotonic() - self._began
        self._bar.update(max(0.0, min(passed, self._bar.total or passed) - self._bar.n))
        self._bar.refresh()
