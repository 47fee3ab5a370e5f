"""Verification in torch, batched, against the softmaxes of its rows and a pass of the target.

One thread, processor time, float32, language-like logits; drafts drawn from p. Chains have 8
drafts, K = L = 8 for sequences, the tree is binary with 62. "softmax" is `torch.softmax` of
all rows that the step reads, target's and draft's. The target's pass is one of a model of
SmolLM2-135M's shape with random weights, float32, over as many tokens as the step has nodes,
without the context's share: what a step costs at least. "compiled" is the kernel under
`torch.compile(fullgraph=True)`, once compiled, "library" the exact decoder of `otm.sequence` on the
same rows. Slopes are exponents of V, of requests and of drafts, fitted to the lines above (least
squares of logarithms).
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from analysis.kernels.vertices import optimal_by_vertex
from benchmarks.timing import medians
from otm.sequence import BlockVerification, RefinedScores, Sampled
from otm.sequence.decoder import DraftTree, StaticDecoder

MODEL_VOCABULARY = 49_152
SIZES = (
    (MODEL_VOCABULARY, 1, 8, 8),
    (MODEL_VOCABULARY, 8, 8, 8),
    (128_256, 1, 8, 8),
    (MODEL_VOCABULARY, 1, 4, 8),
    (MODEL_VOCABULARY, 1, 8, 4),
)
"""V, requests, K, L; a chain has L drafts."""
LIBRARY: dict[str, Callable[[int, int], StaticDecoder]] = {
    "block": lambda k, length: BlockVerification(length),
    "refined scores": RefinedScores,
}
_NONE = "—"


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time every kernel at every size with one thread and return one row each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [row for size in SIZES for row in operations(*size, seconds=seconds)]
        return [*rows, *_slopes(rows)]
    finally:
        torch.set_num_threads(threads)


def operations(
    num_tokens: int, requests: int, k: int, length: int, *, seconds: float
) -> Iterator[dict[str, Any]]:
    """Time the kernels at one size, each beside its softmaxes and the pass in turns."""
    for name, nodes, inner, kernel in kernels(num_tokens, requests, k, length):
        generator = torch.Generator().manual_seed(0)
        logits = 3.0 * torch.randn((requests, nodes, num_tokens), generator=generator)
        both = (logits, logits[:, :inner] + torch.randn(logits[:, :inner].shape))
        target, draft = (torch.softmax(one, dim=-1) for one in both)
        # any rows do: node i's token is drawn from the row before it
        drawn = torch.multinomial(draft.flatten(0, 1), 1).view(requests, inner)
        candidates = torch.nn.functional.pad(drawn.repeat(1, 2)[:, : nodes - 1], (1, 0))
        uniforms = torch.rand((requests, nodes + 1), generator=generator)
        rows = (target, draft, uniforms[:, :nodes], uniforms[:, nodes])
        functions: dict[str, Callable[[], object]] = {
            "ours": functools.partial(kernel, candidates, rows),
            "softmax": functools.partial(softmaxes, both),
        }
        if num_tokens == MODEL_VOCABULARY and name in ("refined scores", "block K-SEQ"):
            functions["pass"] = functools.partial(forward, target_model(), candidates)
        if (num_tokens, requests, k, length) == SIZES[0] and name in LIBRARY:
            compiled = torch.compile(kernel, fullgraph=True)
            functions["compiled"] = functools.partial(compiled, candidates, rows)
            functions["library"] = of_library(LIBRARY[name](k, length), candidates[0], rows)
        times = medians(functions, seconds=seconds / 2, least=3, clock=time.process_time)
        yield {
            "operation": name,
            "V": num_tokens,
            "requests": requests,
            "drafts": nodes - 1,
            "ms": times["ours"],
            "softmax ms": times["softmax"],
            "times softmax": times["ours"] / times["softmax"],
            "times target's pass": times["ours"] / times["pass"] if "pass" in times else _NONE,
            "compiled ms": times.get("compiled", _NONE),
            "library ms": times.get("library", _NONE),
        }


def kernels(
    num_tokens: int, requests: int, k: int, length: int
) -> Iterator[tuple[str, int, int, Callable[[torch.Tensor, Any], object]]]:
    """Yield each kernel's name, nodes, nodes with children, and a call of it."""
    yield "token by token", length + 1, length, lambda x, rows: token_by_token(x, *rows)
    yield "block", length + 1, length, lambda x, rows: block(x, *rows)
    grid = ScoreGrid.of(k, "cpu")
    # level by level: the last level has no children
    paths = (1 + torch.arange(k * length).view(length, k)).T.expand(requests, -1, -1)
    size, inner = 1 + k * length, 1 + k * (length - 1)
    yield (
        "refined scores",
        size,
        inner,
        lambda x, rows: refined_scores(x, paths, rows[0], rows[1], rows[2], rows[3], grid),
    )
    yield "block K-SEQ", size, inner, lambda x, rows: block_kseq(x, paths, *rows)
    yield (
        "optimal by vertex",
        size,
        inner,
        lambda x, rows: optimal_by_vertex(x, paths, rows[0], rows[1], rows[2], rows[3], grid),
    )
    if (k, length) == (8, 8):
        place = torch.arange(63)
        child = torch.where(place < 31, 2 * place + 1, -1).expand(requests, -1)
        sibling = torch.where(place % 2 == 1, place + 1, -1).expand(requests, -1)
        yield (
            "recursive rejection",
            63,
            31,
            lambda x, rows: recursive_rejection(x, child, sibling, *rows, depth=5),
        )
        yield "traversal", 63, 31, lambda x, rows: traversal(x, child, sibling, *rows, depth=5)


def of_library(
    decoder: StaticDecoder, candidates: torch.Tensor, rows: tuple[torch.Tensor, ...]
) -> Callable[[], object]:
    """Return a call of the library's decoder on one request's rows, in float64."""
    tokens = np.concatenate([[-1], candidates[1:].numpy()])
    tree = DraftTree(decoder.shape, (), tokens, {})
    contexts = [context for context in tree.contexts() if context is not None]
    target, draft = (
        # the last level has drafted nothing
        {c: row / row.sum() for c, row in zip(contexts, one[0].double().numpy(), strict=False)}
        for one in rows[:2]
    )
    tree = dataclasses.replace(tree, draft=draft)
    return lambda: decoder.verify(tree, target.__getitem__, Sampled(0))


def softmaxes(logits: tuple[torch.Tensor, ...]) -> object:
    """Return the rows of logits as probabilities."""
    return [torch.softmax(one, dim=-1) for one in logits]


def target_model() -> Any:
    """Return a model of SmolLM2-135M's shape."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=MODEL_VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def forward(model: Any, ids: torch.Tensor) -> object:
    """Run the model over all tokens at once."""
    with torch.inference_mode():
        return model(ids, use_cache=False).logits


def _slopes(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the exponents of each operation's time in each size that it was timed at."""
    for name in dict.fromkeys(row["operation"] for row in rows):
        first, *others = (row for row in rows if row["operation"] == name)
        for axis in ("V", "requests", "drafts"):
            free = [key for key in ("V", "requests", "drafts") if key != axis]
            same = [row for row in others if all(row[key] == first[key] for key in free)]
            if same:
                x, y = ([np.log(row[key]) for row in (first, *same)] for key in (axis, "ms"))
                shown = dict.fromkeys(first, _NONE) | {"operation": name, axis: "slope"}
                yield shown | {"ms": float(np.polyfit(x, y, 1)[0])}
