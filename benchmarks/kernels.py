"""Verification in torch, batched, against the softmaxes of its rows and a pass of the target.

One thread, processor time, float32, language-like logits; drafts drawn from p. Chains have 8
drafts, K = L = 8 for sequences, the tree is binary with 62. "softmax" is `torch.softmax` of
all rows that the step reads, target's and draft's. The target's pass is one of a model of
SmolLM2-135M's shape with random weights, float32, over as many tokens as the step has nodes,
without the context's share: what a step costs at least. All is called in inference mode, as engines
do. "by numba" are rows that `CompiledRows` reads. "compiled" is the kernel under
`torch.compile(fullgraph=True)`, once compiled, "library" the exact decoder of `otm.sequence` on the
same rows, "before" the same kernel of another revision's checkout, by torch, where `--beside` names
one. Slopes are exponents of V, of requests and of drafts, fitted to the lines above (least
squares of logarithms).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from analysis.kernels.compiled_rows import CompiledRows
from analysis.kernels.vocabulary import Rows
from benchmarks.timing import medians
from otm.sequence import BlockVerification, RefinedScores, Sampled
from otm.sequence.decoder import StaticDecoder
from otm.sequence.drafted_tree import DraftTree

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
OURS, BEFORE = "analysis.kernels", "kernels_before"
_BY_NUMBA = ", by numba"
_NONE = "—"

Kernel = tuple[int, int, Callable[[torch.Tensor, Any], object]]
"""Nodes, nodes with children, and a call."""


def run(*, seconds: float, beside: Path | None = None) -> list[dict[str, Any]]:
    """Time every kernel at every size with one thread and return one row each.

    Args:
        seconds: per measured function.
        beside: a checkout of another revision.
    """
    before = None if beside is None else load_before(beside)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            rows = [row for size in SIZES for row in operations(size, before, seconds=seconds)]
        return [*rows, *_slopes(rows)]
    finally:
        torch.set_num_threads(threads)


def load_before(checkout: Path) -> str:
    """Return the name under which the kernels of a checkout are imported."""
    folder = checkout / "analysis" / "kernels"
    place = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        BEFORE, place, submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError(place)
    sys.modules[BEFORE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[BEFORE])
    return BEFORE


def operations(
    size: tuple[int, int, int, int], before: str | None, *, seconds: float
) -> Iterator[dict[str, Any]]:
    """Time the kernels at one size, each beside its softmaxes and the pass in turns."""
    num_tokens, requests, k, length = size
    others = {} if before is None else kernels(size, before)
    for name, (nodes, inner, kernel) in kernels(size, OURS, by_numba=True).items():
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
        rule = name.removesuffix(_BY_NUMBA)
        if num_tokens == MODEL_VOCABULARY and rule in ("refined scores", "block K-SEQ"):
            functions["pass"] = functools.partial(forward, target_model(), candidates)
        if rule in others:
            functions["before"] = functools.partial(others[rule][2], candidates, rows)
        if size == SIZES[0] and name in LIBRARY:
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
            "ms before": times.get("before", _NONE),
            "times before": times["ours"] / times["before"] if "before" in times else _NONE,
            "compiled ms": times.get("compiled", _NONE),
            "library ms": times.get("library", _NONE),
        }


def kernels(
    size: tuple[int, int, int, int], package: str, *, by_numba: bool = False
) -> dict[str, Kernel]:
    """Return a package's kernels by name; at the first size those of rows by numba, too."""
    _, requests, k, length = size

    def of(module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{package}.{module}"), name)

    def usual(over: type[Rows] | None) -> Iterator[tuple[str, Kernel]]:
        more = {} if over is None else {"over": over}
        block, alone = of("chain", "block"), of("chain", "token_by_token")
        refined, vertex = of("scores", "refined_scores"), of("vertices", "optimal_by_vertex")
        yield "token by token", (length + 1, length, lambda x, rows: alone(x, *rows, **more))
        yield "block", (length + 1, length, lambda x, rows: block(x, *rows, **more))
        grid = of("grid", "ScoreGrid").of(k, "cpu")
        # level by level: the last level has no children
        paths = (1 + torch.arange(k * length).view(length, k)).T.expand(requests, -1, -1)
        nodes = 1 + k * length, 1 + k * (length - 1)
        yield "refined scores", (*nodes, lambda x, rows: refined(x, paths, *rows, grid, **more))
        yield "optimal by vertex", (*nodes, lambda x, rows: vertex(x, paths, *rows, grid, **more))
        if over is None:
            kseq = of("block_kseq", "block_kseq")
            yield "block K-SEQ", (*nodes, lambda x, rows: kseq(x, paths, *rows))
        if (k, length) == (8, 8):
            place = torch.arange(63)
            child = torch.where(place < 31, 2 * place + 1, -1).expand(requests, -1)
            sibling = torch.where(place % 2 == 1, place + 1, -1).expand(requests, -1)
            for name, module in (("recursive rejection", "trees"), ("traversal", "traversal")):
                tree = functools.partial(of(module, name.replace(" ", "_")), depth=5, **more)
                yield name, (63, 31, lambda x, rows, tree=tree: tree(x, child, sibling, *rows))

    found = dict(usual(None))
    if by_numba and size == SIZES[0]:
        found |= {name + _BY_NUMBA: kernel for name, kernel in usual(CompiledRows)}
    return found


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
