"""The steps that rules need for the texts that engines wrote with a trained pair, exactly.

A lossless rule writes texts of the target's law, and given a text the number of its steps depends
on the drafts alone. Their mean follows from both models' distributions along the text
(`analysis.advise.walk`), so luck of texts does not enter the comparison with what was counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.advise.laws import race_agreement
from analysis.advise.walk import along_block
from analysis.models.pair import Pair
from analysis.rules.rules import chain_walk
from analysis.steps.texts import SampledText
from evidence.engines.rules import RULES, law
from evidence.engines.trained import DRAFTS, Task

PROMPTS, PROMPT_TOKENS = 100, 16

AGREEMENTS = {
    **{name: rule.accepted for name, rule in RULES.items()},
    "match-noise": lambda p, z, t: race_agreement(law(z, t), p),
}
"""Joint mass of draft and output by the names of rules, as `evidence.engines.rules.Rule` has it."""


@torch.inference_mode()
def task(pair: Pair, held_out: Path, length: int) -> Task:
    """Return the task of writing texts after windows of held-out text at equal distances."""
    tokens = pair.tokenizer.encode(held_out.read_text(encoding="utf-8"))
    starts = np.linspace(0, len(tokens) - PROMPT_TOKENS, PROMPTS).astype(int)
    prompts = [tokens[start : start + PROMPT_TOKENS] for start in starts]
    _, target = pair.logits(torch.tensor(prompts, device=pair.device))
    never = target.log_softmax(-1).amax(dim=(0, 1)).argmin()
    return Task(prompts, length, int(never))


@torch.inference_mode()
def predicted(pair: Pair, found: dict[str, Any], given: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Replace the texts of a configuration by the steps that its rule and the best one need.

    Args:
        pair: the models.
        found: a result of `evidence.engines.trained.run`.
        given: the prompts.

    Returns:
        The result with `tokens` of each text that are of its steps, and `steps`, `predicted` and
        `best` as numbers in a string, one for each text; without drafts none of them. The best is
        block verification, which no rule exceeds that verifies one sequence of drafts at the
        target's temperature.

    Raises:
        ValueError: if a text ended early.
    """
    if found["rule"] == "none":
        return {name: value for name, value in found.items() if name not in ("texts", "steps")}
    rule, temperature = AGREEMENTS.get(found["rule"]), found["temperature"]
    if len(lengths := set(map(len, found["texts"]))) > 1:
        raise ValueError(
            f"All texts of {found['name']!r} must have one length; there are {sorted(lengths)}. "
            "An engine that ends texts must end them at the task's token `never`."
        )
    needed: dict[str, list[float]] = {"predicted": [], "best": []}
    for prompt, text in zip(given, found.pop("texts"), strict=True):
        first = int(found["first"] == "prompt")
        prefix, tokens = (*prompt, *text[:first]), np.array(text[first:])
        rows = torch.tensor([[*prefix, *tokens[:-1]]], device=pair.device)
        draft, target = (
            logits[0, len(prefix) - 1 :].double().numpy() for logits in pair.logits(rows)
        )
        masses = law(target, temperature)
        drafted = SampledText(prefix, tokens, law(draft, temperature), masses)
        if rule is not None:
            joint = rule(masses, draft, temperature)
            walk = chain_walk(joint, drafted, DRAFTS, len(tokens), None)
            needed["predicted"].append(walk.steps)
        needed["best"].append(
            along_block(drafted, most=DRAFTS, starts=len(tokens), eos=None)[-1].steps
        )
    found["tokens"] = len(tokens)
    told = {name: " ".join(f"{steps:.3f}" for steps in each) for name, each in needed.items()}
    if found["rule"] == "block":
        told["predicted"] = told["best"]
    return found | told | {"steps": " ".join(map(str, found["steps"]))}


def record(written: Path, pair: Pair, given: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the record of an engine from what its run wrote."""
    raw: dict[str, Any] = json.loads(written.read_text())
    return raw | {"results": [predicted(pair, found, given) for found in raw["results"]]}
