"""What to tell engines: chains for all, trees for those that verify them.

An engine compiles its steps, so what Python costs here is not there: its plans rest on the passes alone, a draft call for each
level and one target call, as they were timed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm.trees import TreeShape

from .costs import StepModel


@dataclasses.dataclass(frozen=True)
class EngineChain:
    """The chain that is fastest where only the passes cost.

    Attributes:
        length: its drafts; the best even where it does not pay.
        speedup: over plain decoding.
    """

    length: int
    speedup: float

    @property
    def pays(self) -> bool:
        """Whether an engine should draft."""
        return self.speedup > 1.0


def engine_chain(tokens: Sequence[float], model: StepModel) -> EngineChain:
    """Choose a chain by E_γ t(0)/(γ d + t(γ)).

    Args:
        tokens: per call of chains of 1, 2, … drafts.
        model: what passes cost.

    >>> engine_chain([1.8, 2.4], StepModel((1.0, 0.0), ((0, 2), (10.0, 10.0)), {}))
    EngineChain(length=2, speedup=2.0)
    """
    draft = sum(model.draft)
    speeds = [
        many * model.checking(0) / (length * draft + model.checking(length)) for length, many in enumerate(tokens, start=1)
    ]
    best = int(np.argmax(speeds))
    return EngineChain(best + 1, float(speeds[best]))


def chain_settings(draft: str, length: int) -> dict[str, Any]:
    """Return what engines are told to draft a chain, by engine.

    Reference: vLLM, docs/features/speculative_decoding; SGLang, --speculative-algorithm STANDALONE, which counts the root;
    TensorRT-LLM, DraftTargetDecodingConfig in tensorrt_llm/llmapi/llm_args.py; llama.cpp, common/arg.cpp.

    >>> chain_settings("small", 3)["SGLang"].split(" --")[-1]
    'speculative-num-draft-tokens 4'
    """
    return {
        "vLLM": "--speculative-config "
        f"'{json.dumps({'method': 'draft_model', 'model': draft, 'num_speculative_tokens': length})}'",
        "SGLang": f"--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
        f"--speculative-num-steps {length} --speculative-eagle-topk 1 --speculative-num-draft-tokens {length + 1}",
        "TensorRT-LLM": f"speculative_config: {{decoding_type: Draft_Target, max_draft_len: {length}, speculative_model: {draft}}}",
        "llama.cpp": f"--model-draft {draft} --draft-max {length} --draft-min 0",
    }


def eagle_choices(shape: TreeShape) -> list[list[int]]:
    """Return a tree as EAGLE and Medusa write it: the ranks on the way to each node, level by level.

    Reference: `mc_sim_7b_63` of EAGLE, eagle/model/choices.py.

    >>> eagle_choices(TreeShape.from_parents([0, 0, 1]))
    [[0], [1], [0, 0]]
    """
    return sorted((list(path) for path in shape.paths()[1:]), key=lambda path: (len(path), path))
