"""The shims of engines' kernels: chains, blocks and trees as servers call them.

As in `subjects`, a shim has at most ten statements. Triton's kernels run as torch calls, so that
the audit follows them (`followed_triton`); JAX is sampled, in batches of rows.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evidence.public_code.checkouts import load
from evidence.public_code.followed_triton import GIVEN
from evidence.public_code.registry import subject
from evidence.public_code.toys import (
    PROMPT,
    KeyedNoise,
    as_jax,
    drafted,
    drafting,
    jax_rest,
    of_tensorrt,
    one_device,
    two_requests,
)


def _float(*arrays: Any) -> list[torch.Tensor]:
    """Return arrays as contiguous float32 tensors."""
    return [torch.from_numpy(np.ascontiguousarray(array)).float() for array in arrays]


def _bonus(target: Any, rng: np.random.Generator) -> Any:
    """Return what the caller of a kernel samples from the last rows `(m,)`."""
    upto = target[:, -1].cumsum(axis=1)
    return (upto <= rng.random((len(target), 1)) * upto[:, -1:]).sum(axis=1)


# SGLang

_SGLANG = (
    "python/sglang/kernels/ops/speculative/reject_sampling.py:chain_speculative_sampling_triton"
)


def _sglang(root: Path, *, block: bool) -> Any:
    code = load(root, _SGLANG.split(":")[0], **GIVEN)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        (p, q), u = _float(draft[None], target[None]), torch.rand(1, len(target))
        ids, places = torch.tensor([[PROMPT, *drafts]]), torch.arange(len(target))[None]
        found, path, count = (torch.zeros(shape).int() for shape in (len(target), ids.shape, 1))
        given = ids, places, None, None, u, torch.rand(1), q, p, 1.0, 1.0, True
        code.chain_speculative_sampling_triton(found, path, count, *given, block_verification=block)
        return found[: int(count) + 1].tolist()

    return verify


@subject("SGLang, chain", "sgl-project/sglang", _SGLANG, "block")
def _sglang_chain(root: Path) -> Any:
    return _sglang(root, block=False)


@subject("SGLang, block verification", "sgl-project/sglang", _SGLANG, "block")
def _sglang_block(root: Path) -> Any:
    return _sglang(root, block=True)


_TREE = "python/sglang/kernels/ops/speculative/tree_sampling.py"


@subject(
    "SGLang, tree of likeliest tokens",
    "sgl-project/sglang@main",
    f"{_TREE}:tree_speculative_sampling_target_only_triton",
    "tree",
    replacement=False,
)
def _sglang_tree(root: Path) -> Any:
    code = load(root, _TREE, **GIVEN)

    def verify(tree: Any, rng: Any) -> Any:
        links = tree.tokens.clip(min=0), np.arange(len(tree.tokens)), tree.first_child
        shape = (ids := torch.from_numpy(np.array([*links, tree.next_sibling])[:, None])).shape[1:]
        found, path, count = (torch.zeros(one).int() for one in (shape[1], shape, 1))
        (q,), coins = _float(tree.target[None]), (torch.rand(shape), torch.rand(1))
        code.tree_speculative_sampling_target_only_triton(
            found, path, count, *ids, *coins, q, torch.zeros_like(q)
        )
        return found[path[0, : int(count) + 1].long()].tolist()

    return verify


_DSPARK = "python/sglang/kernels/ops/speculative/dspark/blockwise_rejection.py"


@subject(
    "SGLang, DSpark, reference",
    "sgl-project/sglang",
    f"{_DSPARK}:blockwise_rejection_torch",
    "block",
)
def _sglang_dspark(root: Path) -> Any:
    code = load(root, _DSPARK, **GIVEN)
    noise = types.SimpleNamespace(key=0, counter=torch.zeros(1, dtype=torch.int64))

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        (p, q), ids = _float(np.log(draft)[None], np.log(target)), [[PROMPT, *drafts]]
        laws = {"target_logits": q, "draft_logits": p, "candidates": torch.tensor(ids)}
        ones = {"target_temperatures": torch.ones(1), "draft_temperatures": torch.ones(1)}
        kept, last, _ = code.blockwise_rejection_torch(**laws, **ones, noise=noise)
        return [*drafts[: int(kept)], int(last)]

    return verify


# vLLM

_VLLM = "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py:rejection_sample"


def _vllm(root: Path, *, known: bool = True, block: bool = False, **how: Any) -> Any:
    noise, row, cut = KeyedNoise(), how.get("row", 1), how.get("cut", False)
    gumbel = "vllm.v1.worker.gpu.sample.gumbel=vllm/v1/worker/gpu/sample/gumbel.py"
    code = load(root, _VLLM.split(":")[0], siblings=(gumbel,), **GIVEN, **noise.given())

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        noise.seen.clear()
        p, q = _float(np.log([draft] * 2), np.log([*target, *target]))
        given = q, p if known else None, *two_requests(drafts, cut=cut), len(drafts)
        found, counts = code.rejection_sample(*given, use_block_verification=block)
        return found[row, : counts[row]].tolist()

    return verify


@subject("vLLM", "vllm-project/vllm@v0.33.0", _VLLM, "block")
def _vllm_standard(root: Path) -> Any:
    return _vllm(root)


@subject("vLLM, argmax drafts", "vllm-project/vllm@v0.33.0", _VLLM, "block")
def _vllm_argmax(root: Path) -> Any:
    return _vllm(root, known=False)


@subject("vLLM, block verification", "vllm-project/vllm@v0.33.0", _VLLM, "block")
def _vllm_block(root: Path) -> Any:
    return _vllm(root, block=True)


@subject(
    "vLLM, −1 drafts",
    "vllm-project/vllm@v0.33.0",
    _VLLM,
    "step",
    length=3,
    only=("equal", "two tokens", "two tokens, turned"),
)
def _vllm_cut(root: Path) -> Any:
    return drafting(_vllm(root, cut=True), 2)


@subject(
    "vLLM, block verification, −1 drafts",
    "vllm-project/vllm@v0.33.0",
    _VLLM,
    "step",
    length=3,
    only=("equal", "two tokens", "two tokens, turned"),
)
def _vllm_block_cut(root: Path) -> Any:
    return drafting(_vllm(root, block=True, cut=True), 2)


_ARGMAX = ("another argmax", "argmax of three")


@subject("vLLM, row of temperature 0", "vllm-project/vllm@v0.33.0", _VLLM, "step", only=_ARGMAX)
def _vllm_zero(root: Path) -> Any:
    verify = _vllm(root, row=0)

    def softened(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        return verify(draft, target * 0.5 + 0.5 / target.shape[1], drafts, uniforms)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        return drafting(softened, 1)(draft, target, rng)

    return step


@subject(
    "vLLM, shorter draft vocabulary",
    "vllm-project/vllm@v0.33.0",
    _VLLM,
    "step",
    only=("draft without the last token",),
)
def _vllm_short(root: Path) -> Any:
    verify = _vllm(root)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        shorter = lambda p, *rest: verify(p[:, :-1], *rest)  # noqa: E731
        return drafting(shorter, 1)(draft, target, rng)

    return step


# TensorRT-LLM

_TENSORRT = "tensorrt_llm/_torch/pyexecutor/sampler/two_model_spec_dec.py"


@subject(
    "TensorRT-LLM, two models",
    "NVIDIA/TensorRT-LLM",
    f"{_TENSORRT}:TwoModelSpecDecHandler._process_draft_tokens_rejection_sampling",
    "block",
)
def _tensorrt(root: Path) -> Any:
    code = load(root, _TENSORRT, module="tensorrt_llm.audited", **of_tensorrt())
    handler = code.TwoModelSpecDecHandler(one_device())

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q = _float(draft, target)
        request = drafted(drafts, py_draft_logits=p, py_target_probs=q)
        last = torch.multinomial(q[-1], 1)
        handler._process_draft_tokens_rejection_sampling(request, last, torch.zeros(9, 1, 1))
        return request.written

    return verify


# lmdeploy

_LMDEPLOY = "lmdeploy/pytorch/spec_decode/reject_sampler.py"


def _lmdeploy(root: Path, *, known: bool) -> Any:
    code = load(root, _LMDEPLOY, **GIVEN)
    random = types.SimpleNamespace(max_top_k=0, top_k=None)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        (p, q), x = _float(draft[None], np.log(target)[None]), torch.from_numpy(drafts)[None]
        last = torch.multinomial(q[0, -1:].exp(), 1)[0]
        return code.rejection_sample(q[:, :-1], x, last, random, p if known else None)[0][0]

    return verify


@subject("lmdeploy", "InternLM/lmdeploy", f"{_LMDEPLOY}:rejection_sample", "block")
def _lmdeploy_known(root: Path) -> Any:
    return _lmdeploy(root, known=True)


@subject("lmdeploy, argmax drafts", "InternLM/lmdeploy", f"{_LMDEPLOY}:rejection_sample", "block")
def _lmdeploy_argmax(root: Path) -> Any:
    return _lmdeploy(root, known=False)


# ATOM


@subject(
    "ATOM",
    "ROCm/ATOM",
    "atom/model_ops/rejection_sampler.py:rejection_sample",
    "block",
    meant="lossy",
)
def _atom(root: Path) -> Any:
    strict = types.SimpleNamespace(ATOM_ENABLE_RELAXED_MTP=False)
    code = load(root, "atom/model_ops/rejection_sampler.py", envs=strict, **GIVEN)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        (q,), x = _float(np.log(target)), torch.from_numpy(drafts).int()
        last, size = torch.multinomial(q[-1:].exp(), 1), len(drafts)
        return code.rejection_sample(x, size, torch.tensor([size]), None, q[:-1], last)[0][0]

    return verify


# tpu-inference

_TPU = "tpu_inference/layers/jax/sample/rejection_sampler.py"


def _tpu(root: Path, logits: Any = None, temperature: float = 1.0, top_p: float = 1.0) -> Any:
    masks = "tpu_inference.layers.common.binary_search=tpu_inference/layers/common/binary_search.py"
    code = load(root, _TPU, siblings=(masks,))

    def verify(draft: Any, target: Any, drafts: Any, rng: Any) -> Any:
        raw = np.log(target[:, :-1]) if logits is None else np.broadcast_to(logits, draft.shape)
        p, q, ids, counts, settings = as_jax(draft, raw, drafts, temperature, top_p)
        law, last = code._compute_probs(q, counts, settings), _bonus(target, rng)
        seed = rng.integers(2**31)
        found = code.rejection_sample(ids, counts, p, law, *jax_rest(last, seed))
        return np.c_[np.reshape(found[: drafts.size], drafts.shape), found[drafts.size :]]

    return verify


@subject(
    "tpu-inference",
    "vllm-project/tpu-inference",
    f"{_TPU}:rejection_sample",
    "batch",
    only=("two tokens",),
)
def _tpu_plain(root: Path) -> Any:
    return _tpu(root)


@subject(
    "tpu-inference, temperature 2, top-p .55",
    "vllm-project/tpu-inference",
    f"{_TPU}:_compute_probs",
    "batch",
    only=("filtered",),
)
def _tpu_filtered(root: Path) -> Any:
    return _tpu(root, np.log([0.6, 0.3, 0.1]), 2.0, 0.55)
