"""The shims of research code and of loops: each fits a piece of public code to an audit.

A shim has at most ten statements.

A shim loads the code from a checkout and returns the callable that `otm.audit` takes:
`verify(draft, target, drafts, uniforms)` for one token or a block, `verify(tree, rng)`, or
`step(draft, target, rng)`. Nothing else of this package touches the code.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evidence.public_code.checkouts import load
from evidence.public_code.registry import subject
from evidence.public_code.toys import (
    PROMPT,
    Causal,
    Halves,
    Hierarchy,
    Masked,
    NoBar,
    NoTokenizer,
    Positioned,
    Softened,
    answering,
    drafting,
    fixed,
    from_vllm,
    opt_tree,
    path_tokens,
    paths,
    rows,
    two_siblings,
    with_cache,
)

_TWO = ("equal", "two tokens", "two tokens, turned")
"""The pairs on two tokens, for what is slow."""


# Kernels on given drafts


def _assisted(weight: float | None) -> Any:
    from transformers.generation.utils import _speculative_sampling

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        return _speculative_sampling(x, p.log(), len(drafts), q.log(), weight)[0][0]

    return verify


_TRANSFORMERS = "src/transformers/generation/utils.py:_speculative_sampling"


@subject("transformers", "huggingface/transformers", _TRANSFORMERS, "block")
def _transformers(root: Path) -> Any:
    return _assisted(None)


@subject(
    "transformers, ensemble weight 1/2",
    "huggingface/transformers",
    _TRANSFORMERS,
    "block",
    meant="lossy",
)
def _transformers_weight(root: Path) -> Any:
    return _assisted(0.5)


_CONSTANT = ("equal", "two tokens", "two tokens, turned", "three tokens")
"""The pairs whose laws are the same everywhere."""


def _universal(*, descending: bool) -> Any:
    from evidence.public_code.universal import generate

    def step(draft: Any, target: Any, rng: Any) -> Any:
        return generate(draft.next([]), target.next([]), descending=descending)

    return step


_UNIVERSAL = (
    "src/transformers/generation/candidate_generator.py:UniversalSpeculativeDecodingGenerator"
)


@subject(
    "transformers, two tokenizers, dictionary by id",
    "huggingface/transformers",
    _UNIVERSAL,
    "step",
    only=_CONSTANT,
)
def _universal_ascending(root: Path) -> Any:
    return _universal(descending=False)


@subject(
    "transformers, two tokenizers, another order",
    "huggingface/transformers",
    _UNIVERSAL,
    "step",
    only=_CONSTANT,
)
def _universal_descending(root: Path) -> Any:
    return _universal(descending=True)


def _hsd(root: Path, **how: bool) -> Any:
    code = load(
        root,
        "transformers/generation/utils.py",
        module="transformers.generation.audited",
        tabs=4,
    )
    rest = {"stop": lambda *_, **__: False, **how}

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        given = x, p.log(), len(drafts), q.log(), torch.tensor([False])
        return code._speculative_sampling(*given, **rest)[0][0]

    return verify


_HSD = "transformers/generation/utils.py:_speculative_sampling"


@subject("HSD, backward", "ZhouYuxuanYX/Hierarchical-Speculative-Decoding", _HSD, "block")
def _hsd_backward(root: Path) -> Any:
    return _hsd(root, backward=True, clever=True)


@subject("HSD, blockwise", "ZhouYuxuanYX/Hierarchical-Speculative-Decoding", _HSD, "block")
def _hsd_blockwise(root: Path) -> Any:
    return _hsd(root, blockwise=True)


@subject(
    "Speculative-Decoding (shreyansh26)",
    "shreyansh26/Speculative-Decoding",
    "common/verification.py:probabilistic_verify",
    "block",
)
def _shreyansh(root: Path) -> Any:
    code = load(root, "common/verification.py")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        model = fixed(torch.as_tensor(np.asarray(target)).log())
        given = [PROMPT], drafts.tolist(), torch.as_tensor(np.asarray(draft))
        return code.probabilistic_verify(model, *given, torch.default_generator).emitted_ids

    return verify


@subject(
    "speculative-decoding-from-scratch",
    "sdivyanshu90/speculative-decoding-from-scratch",
    "speculative_decoding/core/verifier.py:TokenVerifier.verify",
    "block",
)
def _from_scratch(root: Path) -> Any:
    code = load(
        root, "speculative_decoding/core/verifier.py", module="speculative_decoding.audited"
    )
    drawn = types.SimpleNamespace(
        is_greedy=False, sample_from_probs=lambda law: torch.multinomial(law, 1)
    )

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = (part[0] for part in rows(draft, target, drafts))
        return code.TokenVerifier().verify(x, p.log(), q.log(), drawn).accepted_tokens

    return verify


@subject(
    "FLy, rejection sampling",
    "AMD-AGI/FLy",
    "fly/models/FLy.py:_batch_modified_rejection_sampling, _create_output",
    "block",
)
def _fly(root: Path) -> Any:
    code = load(root, "fly/models/FLy.py")
    kinds = next(one for one in vars(code).values() if hasattr(one, "_get_recovered_probs"))
    self = object.__new__(kinds)
    vars(self).update(probs_dtype=torch.float32, token_id_dtype=torch.int64, _num_bonus_tokens=1)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        found = self._batch_modified_rejection_sampling(q[:, :-1].float(), p.float(), x, {})
        return self._create_output(*found, x, torch.multinomial(q[0, -1:], 1))[0]

    return verify


@subject(
    "speculative_pipeline_decoding",
    "yuyijiong/speculative_pipeline_decoding",
    "pipeline_model.py:_verify_pipeline_draft_token",
    "token",
)
def _pipeline(root: Path) -> Any:
    code = load(root, "pipeline_model.py")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q = (torch.as_tensor(np.asarray(law)) for law in (draft, target))
        how = {"greedy": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        return code._verify_pipeline_draft_token(q.log(), int(drafts[0]), q_full=p, **how)[1]

    return verify


@subject(
    "Spec-Bench, SpS", "hemingkx/Spec-Bench", "model/sps/decoding.py:_speculative_sampling", "block"
)
def _spec_bench(root: Path) -> Any:
    code = load(root, "model/sps/decoding.py")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        return code._speculative_sampling(x, p.log(), len(drafts), q.log(), False, len(drafts))[0][
            0
        ]

    return verify


@subject(
    "vLLM 0.6",
    "vllm-project/vllm",
    "vllm/model_executor/layers/rejection_sampler.py:RejectionSampler",
    "block",
)
def _vllm(root: Path) -> Any:
    module = "vllm.model_executor.layers.spec_decode_base_sampler"
    base = f"{module}=vllm/model_executor/layers/spec_decode_base_sampler.py"
    sampler = load(
        root, "vllm/model_executor/layers/rejection_sampler.py", siblings=(base,)
    ).RejectionSampler(use_flashinfer=False)
    sampler.init_tensors("cpu", device_type="cpu")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        return sampler(q.float(), torch.multinomial(q[0, -1:], 1), p.float(), x)[0]

    return verify


def _ascend(root: Path, *, probabilities: bool = True, **how: bool) -> Any:
    code = load(root, "vllm_ascend/sample/rejection_sampler.py", **from_vllm(**how))
    asked = {"all_greedy": False, "all_random": True, "generators": {}}

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = (torch.as_tensor(np.asarray(array)) for array in (draft, target, drafts))
        known = p.float().contiguous() if probabilities else None
        counts, last = ([len(x)], len(x), torch.tensor([len(x)])), torch.multinomial(q[-1:], 1)
        sampling = types.SimpleNamespace(temperature=torch.ones(1), **asked)
        return code.rejection_sample(x, *counts, known, q[:-1].log().float(), last, sampling)[0]

    return verify


_ASCEND = "vllm_ascend/sample/rejection_sampler.py:rejection_sample"


@subject("vllm-ascend", "vllm-project/vllm-ascend", _ASCEND, "block")
def _ascend_standard(root: Path) -> Any:
    return _ascend(root)


@subject("vllm-ascend, n-gram", "vllm-project/vllm-ascend", _ASCEND, "block")
def _ascend_ngram(root: Path) -> Any:
    return _ascend(root, probabilities=False)


@subject(
    "vllm-ascend, block verify",
    "vllm-project/vllm-ascend",
    _ASCEND,
    "step",
    meant="lossy",
    length=4,
    only=_TWO,
)
def _ascend_block(root: Path) -> Any:
    return drafting(_ascend(root, block=True), 3)


@subject("vllm-ascend, entropy verify", "vllm-project/vllm-ascend", _ASCEND, "block", meant="lossy")
def _ascend_entropy(root: Path) -> Any:
    return _ascend(root, entropy=True)


@subject(
    "DeepSpec",
    "deepseek-ai/DeepSpec",
    "deepspec/eval/base_evaluator.py:verify_draft_tokens",
    "block",
)
def _deepspec(root: Path) -> Any:
    sampling = "deepspec.utils.sampling=deepspec/utils/sampling.py"
    code = load(root, "deepspec/eval/base_evaluator.py", siblings=(sampling,))

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, [PROMPT, *drafts])
        proposal = {
            "proposal": code.DraftProposal(len(drafts), x, p),
            "max_proposal_tokens": len(drafts),
        }
        where = {"position_ids": x, "start": 0, "past_key_values_target": None, "temperature": 1.0}
        return code.verify_draft_tokens(
            target_model=answering(q.log()), **proposal, **where
        ).committed_tokens[0]

    return verify


def _ssd(root: Path, hit: int) -> Any:
    code = load(root, "ssd/utils/verify.py")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, [PROMPT, *drafts])
        accepted, last = code.verify(
            q.log(), p.log(), x, torch.ones(1), torch.ones(1), cache_hits=torch.tensor([hit])
        )
        return [*accepted[0][1:], last[0]]

    return verify


@subject("ssd", "tanishqkumar/ssd", "ssd/utils/verify.py:verify", "block")
def _ssd_hit(root: Path) -> Any:
    return _ssd(root, 1)


@subject("ssd, cache miss", "tanishqkumar/ssd", "ssd/utils/verify.py:verify", "step")
def _ssd_miss(root: Path) -> Any:
    verify = _ssd(root, 0)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        # what draft_runner.py sends for a miss: the argmax of uniform numbers
        x = int(torch.randint(target.num_tokens, (1,)))
        return verify([draft.next([])], [target.next([]), target.next([x])], [x], None)

    return step


@subject(
    "FlashInfer, reference",
    "flashinfer-ai/flashinfer",
    "flashinfer/trace/templates/sampling.py:_chain_speculative_sampling_reference",
    "block",
    meant="lossy",
)
def _flashinfer(root: Path) -> Any:
    code = load(root, "flashinfer/trace/templates/sampling.py")

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q, x = rows(draft, target, drafts)
        return code._chain_speculative_sampling_reference(p, x, q)[0]

    return verify


@subject(
    "language-model-arithmetic",
    "eth-sri/language-model-arithmetic",
    "src/model_arithmetic/model_arithmetic.py:speculation_sample",
    "token",
)
def _arithmetic(root: Path) -> Any:
    code = load(root, "src/model_arithmetic/model_arithmetic.py")
    monitor = types.SimpleNamespace(add_result=lambda **_: None)
    self = types.SimpleNamespace(epsilon=1e-6, monitor=monitor)

    def verify(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        p, q = (torch.as_tensor(np.asarray(law)) for law in (draft, target))
        return code.ModelArithmetic.speculation_sample(self, int(drafts[0]), p, q)

    return verify


def _redrafter(root: Path, beams: Callable[..., list[list[int]]]) -> Any:
    code = load(
        root, "recurrent_drafting/recurrent_drafting.py", module="recurrent_drafting.audited"
    )

    def step(draft: Any, target: Any, rng: Any) -> Any:
        drafted = beams(draft)
        laws = [
            [model.next(b[:i]) for i in range(len(b) + more)]
            for more, model in ((0, draft), (1, target))
            for b in drafted
        ]
        p, q = (
            torch.tensor(np.array(part))[None].log()
            for part in (laws[: len(drafted)], laws[len(drafted) :])
        )
        accepted, best = code._choose_from_candidates(
            torch.tensor([[[PROMPT, *b] for b in drafted]]), q, p
        )
        hidden = torch.zeros(1, len(drafted), q.shape[2], 1)
        last = code._prepare_next_input(p, q, hidden, best, accepted)[1]
        return [*drafted[int(best)][: int(accepted)], int(last)]

    return step


_REDRAFTER = "recurrent_drafting/recurrent_drafting.py:_choose_from_candidates, _prepare_next_input"


@subject("ReDrafter, one sampled draft", "apple/ml-recurrent-drafter", _REDRAFTER, "step")
def _redrafter_one(root: Path) -> Any:
    return _redrafter(
        root, lambda draft: [[int(torch.multinomial(torch.tensor(draft.next([])), 1))]]
    )


@subject("ReDrafter, a beam", "apple/ml-recurrent-drafter", _REDRAFTER, "step")
def _redrafter_beam(root: Path) -> Any:
    return _redrafter(
        root, lambda draft: [[int(x)] for x in np.argsort(-draft.next([]), kind="stable")[:2]]
    )


# Kernels of trees


def _eagle(root: Path, path: str, temperature: float) -> Any:
    code = load(root, path)

    def verify(tree: Any, rng: Any) -> Any:
        nodes, candidates = paths(tree)
        logits = torch.as_tensor(tree.target)[nodes].log() * temperature
        best, accepted, law = code.evaluate_posterior(
            logits, candidates, lambda ids, scores: scores / temperature
        )
        return path_tokens(tree, nodes, best, accepted, torch.multinomial(law, 1))

    return verify


@subject(
    "EAGLE", "SafeAILab/EAGLE", "eagle/model/utils.py:evaluate_posterior", "tree", replacement=False
)
def _eagle_itself(root: Path) -> Any:
    return _eagle(root, "eagle/model/utils.py", 0.5)


@subject(
    "HASS, temperature 1",
    "HArmonizedSS/HASS",
    "model/utils.py:evaluate_posterior",
    "tree",
    replacement=False,
)
def _hass_one(root: Path) -> Any:
    return _eagle(root, "model/utils.py", 1.0)


@subject(
    "HASS, temperature 1/2",
    "HArmonizedSS/HASS",
    "model/utils.py:evaluate_posterior",
    "tree",
    replacement=False,
)
def _hass_half(root: Path) -> Any:
    return _eagle(root, "model/utils.py", 0.5)


@subject(
    "AngelSlim, temperature 1/2",
    "Tencent/AngelSlim",
    "angelslim/compressor/speculative/utils/util.py:evaluate_posterior",
    "tree",
    replacement=False,
)
def _angelslim(root: Path) -> Any:
    code = load(root, "angelslim/compressor/speculative/utils/util.py")

    def verify(tree: Any, rng: Any) -> Any:
        nodes, candidates = paths(tree)
        logits = torch.as_tensor(tree.target)[nodes].log() * 0.5
        found = code.evaluate_posterior(logits, candidates, lambda ids, scores: scores / 0.5)
        return path_tokens(tree, nodes, *found)

    return verify


def _matched(root: Path, path: str, accept: Callable[..., Any]) -> Any:
    code = load(root, path)

    def verify(tree: Any, rng: Any) -> Any:
        nodes, last = accept(code, tree, torch.as_tensor(tree.target)[None].log())
        return [*(int(tree.tokens[node]) for node in nodes[1:]), int(last)]

    return verify


@subject(
    "JetSpec",
    "hao-ai-lab/JetSpec",
    "jetspec/tree/_core/accept.py:tree_accept",
    "tree",
    replacement=False,
)
def _jetspec(root: Path) -> Any:
    def accept(code: Any, tree: Any, logits: Any) -> Any:
        ids, parents = torch.as_tensor(tree.tokens), torch.as_tensor(tree.parents)
        drafted = {"num_nodes": len(ids), "child_maps": None}
        whole = types.SimpleNamespace(token_ids=ids, parent_indices=parents, **drafted)
        return code.tree_accept(whole, logits, temperature=1.0)[::2]

    return _matched(root, "jetspec/tree/_core/accept.py", accept)


@subject(
    "DDTree",
    "liranringel/ddtree",
    "ddtree.py:follow_verified_tree",
    "tree",
    replacement=False,
)
def _ddtree(root: Path) -> Any:
    def accept(code: Any, tree: Any, logits: Any) -> Any:
        children = [
            {int(tree.tokens[c]): c for c in tree.children(n)} for n in range(len(tree.tokens))
        ]
        sampled = torch.multinomial(logits[0].softmax(-1), 1).reshape(1, -1)
        return code.follow_verified_tree(children, sampled)

    return _matched(root, "ddtree.py", accept)


def _medusa(root: Path, **how: Any) -> Any:
    code = load(root, "medusa/model/utils.py")

    def verify(tree: Any, rng: Any) -> Any:
        nodes, candidates = paths(tree)
        law = torch.as_tensor(tree.target)[nodes]
        best, accepted = code.evaluate_posterior(law.log(), candidates.clamp(min=0), 1.0, **how)
        return path_tokens(tree, nodes, best, accepted, torch.multinomial(law[best, accepted], 1))

    return verify


@subject(
    "Medusa, typical acceptance",
    "FasterDecoding/Medusa",
    "medusa/model/utils.py:evaluate_posterior",
    "tree",
    meant="lossy",
)
def _medusa_typical(root: Path) -> Any:
    return _medusa(root)


@subject(
    "Medusa, nucleus",
    "FasterDecoding/Medusa",
    "medusa/model/utils.py:evaluate_posterior",
    "tree",
    meant="lossy",
)
def _medusa_nucleus(root: Path) -> Any:
    return _medusa(root, sampling="nucleus", top_p=1.0)


@subject(
    "REST, nucleus",
    "FasterDecoding/REST",
    "rest/model/utils.py:evaluate_posterior, generate_candidates_and_draft_buffer",
    "tree",
)
def _rest(root: Path) -> Any:
    code = load(root, "rest/model/utils.py")

    def verify(tree: Any, rng: Any) -> Any:
        nodes, candidates = paths(tree)
        law = torch.as_tensor(tree.target)[nodes]
        best, accepted = code.evaluate_posterior(
            law.log(), candidates.clamp(min=0), 1.0, top_p=1 - 1e-9
        )
        # as for the first candidate of the next step
        filtered = code.top_p_filtering(law.log()[best, accepted][None], top_p=1 - 1e-9)
        return path_tokens(
            tree, nodes, best, accepted, torch.multinomial(filtered.softmax(-1)[0], 1)
        )

    return verify


@subject(
    "OPT-Tree", "Jikai0Wang/OPT-Tree", "opt_classic/utils.py:verify", "tree", replacement=False
)
def _opt_tree(root: Path) -> Any:
    code = load(root, "opt_classic/utils.py")

    def verify(tree: Any, rng: Any) -> Any:
        return opt_tree(code.verify, tree)

    return verify


# Several drafts of a position: MCSD, drafting by itself


def _mcsd(root: Path, **how: Any) -> Any:
    code = load(root, "MCSD/inference/strategies.py")

    def step(draft: Any, target: Any, rng: Any) -> Any:
        strategy = code.BatchStrategy(Halves(draft), Halves(target), k_config=(2,), **how)
        drafted = strategy.generate_draft(torch.tensor([[PROMPT]]), None)
        found = strategy.verify(
            drafted.sequences, None, drafted.past_key_values, drafted.cand_probs
        )
        return found.sequences[0, 1:]

    return step


_MCSD = "MCSD/inference/strategies.py:BatchStrategy"


@subject("MCSD, with replacement", "NJUNLP/MCSD", _MCSD, "step")
def _mcsd_with(root: Path) -> Any:
    return _mcsd(root, replacement=True)


@subject("MCSD, without replacement", "NJUNLP/MCSD", _MCSD, "step", skip=("zeros",))
def _mcsd_without(root: Path) -> Any:
    return _mcsd(root, replacement=False)


@subject("MCSD, naive sampling", "NJUNLP/MCSD", _MCSD, "step", skip=("zeros",))
def _mcsd_naive(root: Path) -> Any:
    return _mcsd(root, speculative_sampling=False)


@subject("MCSD, draft temperature 0", "NJUNLP/MCSD", _MCSD, "step")
def _mcsd_zero(root: Path) -> Any:
    return _mcsd(root, draft_model_temp=0)


# Whole steps and loops


@subject(
    "LLMSpeculativeSampling",
    "feifeibear/LLMSpeculativeSampling",
    "sampling/speculative_sampling.py:speculative_sampling",
    "step",
    length=3,
)
def _feifeibear(root: Path, **how: Any) -> Any:
    code = load(root, "sampling/speculative_sampling.py")

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Causal(draft, offset=1), Causal(target, offset=1)
        return (
            code.speculative_sampling(torch.tensor([[PROMPT]]), *models, 2, gamma=1, **how)[0, 1:]
            - 1
        )

    return step


@subject(
    "LLMSpeculativeSampling, seeded",
    "feifeibear/LLMSpeculativeSampling",
    "sampling/speculative_sampling.py:speculative_sampling",
    "step",
    length=3,
)
def _feifeibear_seeded(root: Path) -> Any:
    return _feifeibear(root, random_seed=1)


@subject(
    "LLMSpeculativeSampling, v2",
    "feifeibear/LLMSpeculativeSampling",
    "sampling/speculative_sampling.py:speculative_sampling_v2",
    "step",
    length=3,
)
def _feifeibear_two(root: Path) -> Any:
    code = load(root, "sampling/speculative_sampling.py", tqdm=NoBar)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Causal(draft, offset=1), Causal(target, offset=1)
        return (
            code.speculative_sampling_v2(torch.tensor([[PROMPT]]), *models, 2, gamma=1)[0, 1:] - 1
        )

    return step


@subject(
    "speculative-sampling",
    "jaymody/speculative-sampling",
    "main.py:speculative_sampling",
    "step",
    length=3,
)
def _jaymody(root: Path) -> Any:
    code = load(root, "main.py", tqdm=NoBar)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = (
            lambda x, m=m: np.stack([m.next(x[1:i].tolist()) for i in range(1, len(x) + 1)])
            for m in (draft, target)
        )
        return code.speculative_sampling(np.array([PROMPT]), *models, N=2, K=1)[1:]

    return step


@subject(
    "Speculative-Decoding (romsto)",
    "romsto/Speculative-Decoding",
    "sampling/speculative_decoding.py:speculative_generate",
    "step",
    length=3,
    only=_TWO,
)
def _romsto(root: Path) -> Any:
    code = load(root, "sampling/speculative_decoding.py")
    sampler = load(root, "utils/logits_processor.py", module="processor").MultinomialProcessor(1.0)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Causal(draft), Causal(target)
        return code.speculative_generate(
            [PROMPT], *models, gamma=1, logits_processor=sampler, max_gen_len=3, eos_tokens_id=-1
        )[0]

    return step


@subject(
    "speculative-decoding (lucidrains)",
    "lucidrains/speculative-decoding",
    "speculative_decoding/speculative_decoding.py:speculative_decoding",
    "step",
    length=3,
)
def _lucidrains(root: Path) -> Any:
    code = load(root, "speculative_decoding/speculative_decoding.py")

    def step(draft: Any, target: Any, rng: Any) -> Any:
        nets = with_cache(target), with_cache(draft)
        return code.speculative_decoding(
            *nets, torch.tensor([[PROMPT]]), 4, gamma=1, filter_thres=0.0
        )[0][0]

    return step


@subject("llama-ssp", "dust-tt/llama-ssp", "lssp/ssp.py:ssp", "step", length=3)
def _llama_ssp(root: Path) -> Any:
    base = load(root, "lssp/base.py", module="base", LlamaTokenizer=NoTokenizer)
    names = ("get_temperature_distribution", "sample_fn", "stream_token_if_required", "tokenizer")
    code = load(root, "lssp/ssp.py", **{name: getattr(base, name) for name in names})

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = (Causal(model, temperature=base.TEMPERATURE) for model in (target, draft))
        return code.ssp(*models, 2, torch.tensor([[PROMPT]]), K=1)[0, 1:]

    return step


@subject("gpt-fast", "pytorch-labs/gpt-fast", "generate.py:speculative_decode", "step", length=3)
def _gpt_fast(root: Path) -> Any:
    code = load(root, "generate.py")

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Positioned(target), Positioned(draft)
        return code.speculative_decode(*models, torch.tensor(PROMPT), 0, 2)

    return step


@subject(
    "PEARL, sd mode",
    "smart-lty/ParallelSpeculativeDecoding",
    "src/engine.py:Decoding.speculative_decoding",
    "step",
    length=3,
)
def _pearl(root: Path) -> Any:
    code = load(root, "src/engine.py", module="src.audited")

    def step(draft: Any, target: Any, rng: Any) -> Any:
        args = types.SimpleNamespace(gamma=1, max_tokens=2, temp=1, top_k=0, top_p=0)
        one = types.SimpleNamespace(is_main_process=True)
        models = {
            "draft_model": Causal(draft),
            "target_model": Causal(target),
            "vocab_size": target.num_tokens,
        }
        self = types.SimpleNamespace(
            args=args,
            accelerator=one,
            num_acc_tokens=[],
            draft_forward_times=0,
            target_forward_times=0,
            **models,
        )
        return code.Decoding.speculative_decoding(self, torch.tensor([[PROMPT]]))[0, 1:]

    return step


def _triforce(root: Path, *, whole: bool) -> Any:
    text: list[int] = []
    code = load(root, "utils/decoding.py", spec_stream=lambda token, *_: text.append(int(token)))

    def step(draft: Any, target: Any, rng: Any) -> Any:
        engine, tokenizer = Hierarchy(draft, target, target), types.SimpleNamespace(eos_token_id=-1)
        if not whole:
            return code.Middle_Spec(torch.tensor([[PROMPT]]), engine.begun(), 1, False, tokenizer)[
                0
            ][1:]
        text.clear()
        code.TriForce(
            tokenizer, engine, torch.tensor([[PROMPT, PROMPT]]), 1, 2, -1, 0.0, 1.0, verbose=True
        )
        return text[:3]

    return step


@subject(
    "TriForce, middle level", "Infini-AI-Lab/TriForce", "utils/decoding.py:Middle_Spec", "step"
)
def _triforce_middle(root: Path) -> Any:
    return _triforce(root, whole=False)


@subject("TriForce", "Infini-AI-Lab/TriForce", "utils/decoding.py:TriForce", "step", length=3)
def _triforce_whole(root: Path) -> Any:
    return _triforce(root, whole=True)


def _sequoia(root: Path, name: str, *, anew: bool = False) -> Any:
    code = load(
        root, f"Tree/{name}.py", module="Tree.audited", siblings=("Tree.Tree=Tree/Tree.py",)
    )
    fittings = two_siblings(load(root, "utils.py", module="sequoia_utils"), code.Tree)

    def step(draft: Any, target: Any, rng: Any) -> Any:
        engines = (Masked(model, max_length=16, offset=3) for model in (draft, target))
        tree = getattr(code, name)(
            *engines,
            torch.tensor([PROMPT]),
            1.0,
            1.0,
            vocab_size=target.num_tokens + 3,
            **fittings(),
        )
        for _ in range(2):
            if anew:  # what prepare_for_next_iter leaves out
                tree.r, tree.rand = torch.rand(tree.r.shape), torch.rand(tree.rand.shape)
            tree.construct_grow_map()
            tokens = tree.verify()[0]
        return tokens[1:4] - 3

    return step


@subject(
    "Sequoia, SpecInferTree",
    "Infini-AI-Lab/Sequoia",
    "Tree/SpecInferTree.py:SpecInferTree",
    "step",
    length=3,
    only=_TWO,
)
def _sequoia_infer(root: Path) -> Any:
    return _sequoia(root, "SpecInferTree")


@subject(
    "Sequoia, SpecInferTree, drawn anew",
    "Infini-AI-Lab/Sequoia",
    "Tree/SpecInferTree.py:SpecInferTree",
    "step",
    length=3,
    only=_TWO,
)
def _sequoia_infer_anew(root: Path) -> Any:
    return _sequoia(root, "SpecInferTree", anew=True)


@subject(
    "Sequoia, SpecTree",
    "Infini-AI-Lab/Sequoia",
    "Tree/SpecTree.py:SpecTree",
    "step",
    length=3,
    only=_TWO,
)
def _sequoia_tree(root: Path) -> Any:
    return _sequoia(root, "SpecTree")


def _litgpt(root: Path, share: float, **how: Any) -> Any:
    base = "litgpt.generate.base=litgpt/generate/base.py"
    code = load(root, "litgpt/generate/speculative_decoding.py", siblings=(base,))

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Softened(draft, share), Softened(target, share)
        begin = torch.tensor([PROMPT]), torch.tensor([0]), 1
        return code.speculative_decoding(*models, *begin, speculative_k=1, **how)

    return step


_LITGPT = "litgpt/generate/speculative_decoding.py:speculative_decoding"


@subject("litgpt", "Lightning-AI/litgpt", _LITGPT, "step")
def _litgpt_one(root: Path) -> Any:
    return _litgpt(root, 1.0, temperature=1.0)


@subject("litgpt, temperature 0", "Lightning-AI/litgpt", _LITGPT, "step", only=("another argmax",))
def _litgpt_zero(root: Path) -> Any:
    return _litgpt(root, 0.5, temperature=0.0)


@subject("litgpt, top-p .7", "Lightning-AI/litgpt", _LITGPT, "step", only=("another argmax",))
def _litgpt_nucleus(root: Path) -> Any:
    return _litgpt(root, 0.5, temperature=1.0, top_p=0.7)


@subject(
    "batched_specdec",
    "r-rishabh-j/batched_specdec",
    "speculative_decoding.py:speculative_generate_batch",
    "step",
    length=3,
    only=_TWO,
)
def _batched(root: Path) -> Any:
    names = ("logits_processor", "cache_manager")
    beside = tuple(f"batched.{name}={name}.py" for name in names)
    code = load(root, "speculative_decoding.py", module="batched.audited", siblings=beside)
    sampler = load(root, "logits_processor.py", module="processor").MultinomialProcessor(1.0)
    how = {"gamma": 1, "use_cache": False, "debug": False, "eos_tokens_id": -1, "max_gen_len": 3}

    def step(draft: Any, target: Any, rng: Any) -> Any:
        models = Causal(draft), Causal(target)
        return code.speculative_generate_batch(
            [[PROMPT]], *models, logits_processor=sampler, **how
        )[0][0]

    return step
