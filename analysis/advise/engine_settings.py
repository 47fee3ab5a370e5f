"""Settings for engines: chains for all, trees for engines that verify trees.

An engine compiles its steps, so the cost of Python here is absent there: its plans rest on the
passes alone, a draft call for each level and one target call, as they were timed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm.results.statistics import Estimate
from otm.sequence import LikeliestTree
from otm.trees import TreeShape

from .costs import StepModel


@dataclasses.dataclass(frozen=True)
class EngineChain:
    """The chain that is fastest where only the passes cost.

    Attributes:
        length: its drafts; the best even where it does not pay.
        speedup: over plain decoding, as sure as that of the best chain that was timed.
    """

    length: int
    speedup: Estimate

    @property
    def may_pay(self) -> bool:
        """True if the chain is faster than plain decoding."""
        return bool(self.speedup.value > 1.0)


def engine_chain(tokens: Sequence[float], model: StepModel, *, timed: Estimate) -> EngineChain:
    """Choose a chain by E_γ t(0)/(γ d + t(γ)).

    Args:
        tokens: per call of chains of 1, 2, … drafts.
        model: what passes cost.
        timed: the speed-up of a chain whose steps were timed, whose interval is as wide in
            proportion.

    >>> model = StepModel((1.0, 0.0), ((0, 2), (10.0, 10.0)), {})
    >>> engine_chain([1.8, 2.4], model, timed=Estimate(1.0, 0.75, 1.25))
    EngineChain(length=2, speedup=Estimate(value=2.0, low=1.5, high=2.5))
    """
    draft = sum(model.draft)
    speeds = [
        many * model.checking(0) / (length * draft + model.checking(length))
        for length, many in enumerate(tokens, start=1)
    ]
    best = int(np.argmax(speeds))
    value = float(speeds[best])
    return EngineChain(
        best + 1, Estimate(value, value * timed.low / timed.value, value * timed.high / timed.value)
    )


def chain_settings(draft: str, length: int) -> dict[str, Any]:
    """Return the settings for drafting a chain, by engine.

    Reference: vLLM, docs/features/speculative_decoding; SGLang, --speculative-algorithm STANDALONE,
        which counts the root; TensorRT-LLM, DraftTargetDecodingConfig in
        tensorrt_llm/llmapi/llm_args.py; llama.cpp, common/arg.cpp.

    >>> chain_settings("small", 3)["SGLang"].split(" --")[-1]
    'speculative-num-draft-tokens 4'
    """
    chain = {"method": "draft_model", "model": draft, "num_speculative_tokens": length}
    return {
        "vLLM": f"--speculative-config '{json.dumps(chain)}'",
        "SGLang": f"--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
        f"--speculative-num-steps {length} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {length + 1}",
        "TensorRT-LLM": (
            f"speculative_config: {{decoding_type: Draft_Target, max_draft_len: {length}, "
            f"speculative_model: {draft}}}"
        ),
        "llama.cpp": f"--model-draft {draft} --draft-max {length} --draft-min 0",
    }


def likeliest_settings(draft: str, tree: LikeliestTree) -> str:
    """Return SGLang's options for a tree of the likeliest paths, of which SGLang keeps 8 a level.

    Reference: SGLang, --speculative-eagle-topk and --speculative-num-draft-tokens, which counts the
        root.

    >>> likeliest_settings("small", LikeliestTree(12, 3)).split(" --", 2)[-1]
    'speculative-num-steps 3 --speculative-eagle-topk 8 --speculative-num-draft-tokens 13'
    """
    return (
        f"--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
        f"--speculative-num-steps {tree.depth} "
        f"--speculative-eagle-topk {min(8, tree.size)} --speculative-num-draft-tokens "
        f"{tree.size + 1}"
    )


def eagle_choices(shape: TreeShape) -> list[list[int]]:
    """Return a tree in the format of EAGLE and Medusa: the ranks on the way to each node, by level.

    Reference: `mc_sim_7b_63` of EAGLE, eagle/model/choices.py.

    >>> import otm
    >>> eagle_choices(otm.trees.TreeShape([0, 0, 1]))
    [[0], [1], [0, 0]]
    """
    return sorted((list(path) for path in shape.paths()[1:]), key=lambda path: (len(path), path))
