"""Acceptance of lossy rules on a pair, distance from the target, and the optimum at that distance.

Acceptances, distances and frontiers are exact for every context, and averaged over contexts of
held-out text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm._machine.arrays import to_numpy
from otm._machine.progress import with_progress
from otm.sequence import Enumerated, Fly, Memoised, loose_step
from otm.sequence.decoding import evaluate
from otm.sequence.greedy_chain import read_chain

from ..models.causal import CausalModel
from ..models.pair import Pair

MakeRule = Callable[[float, float], otm.Verifier]
"""A rule for (its parameter, the largest logit of the context)."""

ONE_DRAFT: dict[str, tuple[MakeRule, Sequence[float]]] = {
    "Ensemble": (lambda x, _: otm.Ensemble(x), (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.03)),
    "Lenience": (lambda x, _: otm.Lenience(x), (0.95, 0.8, 0.6, 0.4, 0.2, 0.1, 0.03)),
    "Mentored": (lambda x, _: otm.Mentored(x), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),
    "Cactus": (lambda x, _: otm.Cactus(x), (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)),
    "Cascade, OPT": (lambda x, _: otm.Cascade(rule="opt", alpha=x), (0.0, 0.2, 0.4, 0.7, 1.0)),
    "Fuzzy": (
        lambda x, _: otm.Fuzzy(x, fallback="speculative"),
        (0.02, 0.05, 0.1, 0.15, 0.25, 0.4),
    ),
    "Cascade, Token v3": (lambda x, _: otm.Cascade(alpha=x), (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 0.99)),
    "TypicalAcceptance": (
        lambda x, _: otm.TypicalAcceptance(x, math.sqrt(x)),
        (0.5, 0.3, 0.09, 0.03, 0.01, 0.003),
    ),
    "RelaxedAcceptance": (lambda x, _: otm.RelaxedAcceptance(round(x)), (1, 2, 3, 5, 10, 30)),
    "BoundedRegret": (
        lambda x, _: otm.BoundedRegret(x, fallback="target"),
        (0.0, 0.5, 1.0, 2.0625, 3.0, 5.0),
    ),
    "Mars": (
        lambda x, top: otm.Mars(x, top_logit=max(top, 1e-9), fallback="target"),
        (1.0, 0.98, 0.95, 0.9, 0.8),
    ),
}
"""Rules for one sampled draft with the parameters that are shown; a rejection is followed by a draw
from the target.
"""

SIBLINGS = 4
SIBLING_RULES: dict[str, tuple[MakeRule, Sequence[float]]] = {
    "accumulated": (lambda x, _: otm.ThresholdMatching(1.0, x), (1.0, 0.9, 0.8, 0.6, 0.4, 0.2)),
    "single": (lambda x, _: otm.ThresholdMatching(x, 1.0), (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)),
}
"""Thresholds for the likeliest tokens as siblings."""

LENGTH = 8
WINDOWS = (9, 6, 4, 3, 2, 1)
"""Windows of `Fly` on chains of `LENGTH` drafts; the first forgives nothing."""

STRIDE = 8


def measure_rules(pair: Pair, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return acceptance and distortion of every rule, averaged over contexts."""
    contexts = contexts_along(pair, prompts)
    single = [(otm.Problem(draft=p, target=q, law=otm.IID(1)), top) for p, q, top in contexts]
    likeliest = [
        (otm.Problem(draft=p, target=q, law=otm.TopK(SIBLINGS)), top) for p, q, top in contexts
    ]
    return {
        "num_contexts": len(contexts),
        "one_draft": _compared(single, ONE_DRAFT),
        "siblings": {"k": SIBLINGS} | _compared(likeliest, SIBLING_RULES),
        "chains": _chains(pair, prompts),
    }


def contexts_along(
    pair: Pair, prompts: Sequence[Sequence[int]]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], float]]:
    """Return (p, q, the target's largest logit) at every `STRIDE`-th position."""
    import torch

    found = []
    for prompt in with_progress(prompts, "prompts"):
        logits = [z[0, STRIDE - 1 :: STRIDE] for z in pair.logits(torch.tensor([list(prompt)]))]
        laws = [to_numpy(otm.from_logits(z.double())) for z in logits]
        found += list(zip(*laws, to_numpy(logits[1].amax(dim=-1)).tolist(), strict=True))
    return found


def _compared(
    problems: Sequence[tuple[otm.Problem, float]],
    rules: dict[str, tuple[MakeRule, Sequence[float]]],
) -> dict[str, Any]:
    """Return the mean optimum, and by rule mean acceptance, TV, KL and distance to the frontier."""
    optima = np.array([float(otm.optimal_acceptance(problem)) for problem, _ in problems])
    rows = []
    for name, (make, parameters) in with_progress(rules.items(), "rules"):
        for parameter in parameters:
            accepted, tv, kl = np.array(
                [_point(make(parameter, top), problem) for problem, top in problems]
            ).T
            gap = np.minimum(1.0, optima + tv) - accepted
            rows.append(
                {
                    "rule": name,
                    "parameter": parameter,
                    "acceptance": float(accepted.mean()),
                    "tv": float(tv.mean()),
                    "kl": float(kl.mean()) if np.isfinite(kl).all() else None,
                    "gap": float(gap.mean()),
                }
            )
    return {"optimum": float(optima.mean()), "rows": rows}


def _point(verifier: otm.Verifier, problem: otm.Problem) -> tuple[float, float, float]:
    lost = otm.lossy.distortion(verifier, problem)
    return float(otm.acceptance(verifier, problem)), lost.total_variation, lost.kl


def _chains(pair: Pair, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the means of `loose_step` for `Fly` after each prompt, and the law of matches."""
    draft, target = (
        CausalModel(model, pair.num_tokens, pair.device) for model in (pair.draft, pair.target)
    )
    decoders = {(m, w): Fly(LENGTH, w, samples=m) for m in (1, 2) for w in WINDOWS}
    points: dict[tuple[int, int], list[tuple[float, float, float]]] = {key: [] for key in decoders}
    matches = np.zeros(LENGTH + 1)
    for prompt in with_progress(prompts, "prompts of chains"):
        drafter, judge = Memoised(draft), Memoised(target)
        for key, decoder in decoders.items():
            found = loose_step(decoder, draft=drafter, target=judge, context=prompt)
            points[key].append((found.block_efficiency, found.total_variation, found.frontier))
        tree = decoders[1, WINDOWS[0]].draft(drafter, tuple(prompt), Enumerated({}))
        _, tokens, rows = read_chain(tree, evaluate(judge, tree).__getitem__)
        matches += decoders[1, WINDOWS[0]].kept_law(tokens, rows[:-1]) / len(prompts)
    rows_out = []
    for (samples, window), found_there in points.items():
        tokens_mean, tv, frontier = np.mean(found_there, axis=0).tolist()
        rows_out.append(
            {
                "samples": samples,
                "window": window,
                "tokens": tokens_mean,
                "tv": tv,
                "gap": frontier - tokens_mean,
            }
        )
    return {"length": LENGTH, "matches": matches.tolist(), "rows": rows_out}
