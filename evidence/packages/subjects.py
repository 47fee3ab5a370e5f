"""The shims: each fits a package's verifier to an audit, in at most ten statements.

A shim is the callable that `otm.audit` takes: `verify(draft, target, drafts, uniforms)` for a token
or a block, `verify(tree, rng)`, or `step(draft, target, rng)`. It imports the package when it runs,
in the package's environment.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
import unittest.mock
from typing import Any

import numpy as np
import torch

from evidence.packages.fitting import (
    HEAT,
    empty_cache,
    laws,
    likeliest,
    load_file,
    models,
    row_by_row,
    sampler,
    scores,
)
from evidence.packages.registry import package
from evidence.public_code.toys import (
    PROMPT,
    NoTokenizer,
    Softened,
    fixed,
    opt_tree,
    path_tokens,
    paths,
    rows,
    with_cache,
)
from otm.audit import as_hf

GREEDY = ("another argmax", "argmax of three", "certain chains")
"""The pairs whose target has no chance, for what is greedy."""

SAMPLED: dict[str, Any] = {"gammas": (2,), "only": ("two tokens, turned", "zeros")}
"""The instances of what draws by a generator that cannot be followed."""

_PROMPT = torch.tensor([[PROMPT]])


@package(
    "flashspec, rejection_step",
    "flashspec",
    "flashspec.sampling.rejection:rejection_step",
    "block",
    rule="ratio test",
    uncovered="its engine's loop and caches",
)
def _flashspec_step(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from flashspec.sampling.rejection import rejection_step

    p, q, x = rows(draft, target, drafts)
    kept, last = rejection_step(x, p.log(), q.log())[0].tolist()
    return [*drafts[:kept], last]


@package(
    "flashspec, rejection_sample",
    "flashspec",
    "flashspec.sampling.rejection:rejection_sample",
    "block",
    rule="ratio test",
    uncovered="the last token, which its caller draws",
)
def _flashspec_sample(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from flashspec.sampling.rejection import rejection_sample

    p, q, x = rows(draft, target, drafts)
    written, first, _ = rejection_sample(None, p.log(), q[:, :-1].log(), x, len(drafts))
    last = torch.multinomial(q[0, -1], 1) if first == len(drafts) else written[0, :0]
    return [*written[0, : first + 1], *last]


@package(
    "flashspec, rejection_step_onehot",
    "flashspec",
    "flashspec.sampling.rejection:rejection_step_onehot",
    "step",
    rule="accept with q(x), certain drafts",
    uncovered="drafts of several lengths",
    length=3,
)
def _flashspec_certain(draft: Any, target: Any, rng: Any) -> Any:
    from flashspec.sampling.rejection import rejection_step_onehot

    x = likeliest(draft, 2)
    kept, last = rejection_step_onehot(torch.tensor([x]), laws(target, x).log())[0].tolist()
    return [*x[:kept], last]


@package(
    "flashspec, typical_sample",
    "flashspec",
    "flashspec.sampling.typical:typical_sample",
    "token",
    rule="window around the entropy",
    meant="lossy",
    uncovered="more than one draft",
)
def _flashspec_typical(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from flashspec.sampling.typical import typical_sample

    p, q, x = rows([draft], [target], drafts)
    return int(typical_sample(p.log(), q.log(), x, 1)[0])


@package(
    "specdec",
    "specdec",
    "specdec.decoder:SpecDecoder.verify",
    "block",
    rule="ratio test",
    uncovered="drafting; temperatures, which it does not have",
)
def _specdec(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from specdec import SpecDecoder

    p, q, _ = rows(draft, target, drafts)
    decoder = types.SimpleNamespace(device="cpu", big_model=fixed(q[0].log()))
    return SpecDecoder.verify(decoder, _PROMPT, drafts.tolist(), list(p[0][:, None]))


@package(
    "mini-infer, temperature 1/2",
    "mini-infer",
    "mini_infer.speculative.verifier:speculative_step",
    "step",
    rule="ratio test",
    uncovered="caches and pages of its engine",
    length=3,
)
def _mini_infer(draft: Any, target: Any, rng: Any) -> Any:
    from mini_infer.speculative.verifier import speculative_step

    def called(model: Any) -> Any:
        return lambda ids: (model(ids).logits, None)

    drafter, scorer = map(called, models(draft, target))
    return speculative_step(scorer, drafter, _PROMPT, 2, HEAT)[0]


@package(
    "dflash",
    "dflash",
    "dflash.model:_rejection_sample",
    "block",
    rule="ratio test",
    uncovered="drafts of a part of the vocabulary; the kernels for MLX",
)
def _dflash(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from dflash.model import _rejection_sample

    p, q, x = rows(draft, target, drafts)
    kept, last = _rejection_sample(x, q, p)
    return [*drafts[:kept], *last.reshape(-1)]


def _seqspecdecod(draft: Any, target: Any, rng: Any, step: str) -> Any:
    from seqspecdecod import capped_hsd, naive_hsd, standard_sd

    found = vars(standard_sd) | vars(naive_hsd) | vars(capped_hsd)
    return found[step](*models(draft, target), _PROMPT, 2, HEAT, HEAT)[0][0, 1:]


for _module, _step, _rule in (
    ("standard_sd", "standard_speculative_step", "ratio test"),
    ("naive_hsd", "naive_hsd_step", "backward over joint ratios"),
    ("capped_hsd", "capped_hsd_step", "backward over capped joint ratios"),
):
    package(
        f"sequential-speculative-decoding, {_step}, temperature 1/2",
        "sequential-speculative-decoding",
        f"seqspecdecod.{_module}:{_step}",
        "step",
        rule=_rule,
        uncovered="more than two drafts",
        length=3,
    )(functools.partial(_seqspecdecod, step=_step))


@package(
    "srep-moe",
    "srep-moe",
    "srep_moe.sd_engine:EAGLE3SDDriver.speculative_sampling",
    "block",
    rule="accept with q(x), replace from q",
    uncovered="drafting by its EAGLE head",
)
def _srep(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from srep_moe.sd_engine import EAGLE3SDDriver

    engine = types.SimpleNamespace(gamma=len(drafts), device="cpu")
    logits = rows(target)[0].log()
    return EAGLE3SDDriver.speculative_sampling(engine, drafts.tolist(), logits)[1]


# rotalabs-accel: only the probability of the drafted token is handed over


@package(
    "rotalabs-accel, rejection_sample",
    "rotalabs-accel",
    "rotalabs_accel.speculative.sampling:rejection_sample",
    "token",
    rule="ratio test, residual lowered at the draft alone",
    uncovered="its greedy mode",
)
def _rotalabs_token(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from rotalabs_accel.speculative.sampling import rejection_sample

    (p,), (q,), x = rows(draft, target, drafts[0])
    return int(rejection_sample(q[x[0]], p[x[0]], x[0], q.log())[1])


@package(
    "rotalabs-accel, verify_tokens",
    "rotalabs-accel",
    "rotalabs_accel.speculative.core:verify_tokens",
    "block",
    rule="ratio test, residual lowered at the draft alone",
    uncovered="caches; what drafts, since draft_tokens raises TypeError",
)
def _rotalabs_core(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from rotalabs_accel.speculative.core import verify_tokens

    (p,), (q,), (x,) = rows(draft, target, drafts)
    known = p.gather(1, x[:, None])[:, 0], None
    return verify_tokens(fixed(q.log()), _PROMPT, x, *known)[0]


@package(
    "rotalabs-accel, eagle_verify",
    "rotalabs-accel",
    "rotalabs_accel.speculative.eagle:eagle_verify",
    "block",
    rule="ratio test, residual lowered at all tokens by one number",
    uncovered="caches",
)
def _rotalabs_eagle(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from rotalabs_accel.speculative.eagle import eagle_verify

    p, q, x = rows(draft, target, drafts)
    known = p.gather(2, x[..., None])[..., 0], None
    return eagle_verify(fixed(q[0].log()), _PROMPT, x, *known, use_sampling=True)[0]


@package(
    "speculative-decoding",
    "speculative-decoding",
    "speculative_decoding.speculative_decoding:speculative_decoding",
    "step",
    rule="ratio test",
    uncovered="batches; top-k, which is on by default; early exit and prophet",
    length=3,
)
def _lucidrains(draft: Any, target: Any, rng: Any) -> Any:
    from speculative_decoding.speculative_decoding import speculative_decoding

    nets = with_cache(target), with_cache(draft)
    return speculative_decoding(*nets, _PROMPT, 4, gamma=1, filter_thres=0.0)[0][0]


@package(
    "dspark-mlx",
    "dspark-mlx",
    "dspark_mlx.verify:speculative_sample_accept",
    "block",
    rule="ratio test",
    uncovered="its loop, which is greedy",
)
def _dspark(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from dspark_mlx.verify import speculative_sample_accept

    return speculative_sample_accept(drafts, draft, target, np.random.default_rng()).tokens


@package(
    "mlx-dspark, temperature 1/2",
    "mlx-dspark",
    "mlx_dspark.generate:_spec_sample_accept",
    "batch",
    rule="ratio test",
    uncovered="top-k and top-p; exactness, since MLX draws",
    **SAMPLED,
)
def _mlx_dspark(draft: Any, target: Any, drafts: Any, rng: Any) -> Any:
    import mlx.core as mx
    from mlx_dspark.generate import _spec_sample_accept

    def verify(p: Any, q: Any, x: list[int]) -> list[int]:
        logits = mx.array(scores(q, HEAT))
        kept, last = _spec_sample_accept(logits, x, mx.array(p), HEAT)
        return [*x[:kept], last]

    mx.random.seed(int(rng.integers(2**31)))
    return row_by_row(verify, draft, target, drafts)


@package(
    "naive-speculate",
    "naive-speculate",
    "naive_speculate/speculate/utils.py:speculative_sampling",
    "block",
    rule="ratio test, 1e-9 added to q(x) and to the residual",
    uncovered="temperatures, which it does not have",
)
def _naive(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    (p,), (q,), (x,) = rows(draft, target, drafts)
    kept, last = load_file("naive_speculate", "speculate/utils.py").speculative_sampling(q, p, x)
    return [*drafts[:kept], int(last)]


@package(
    "naive-speculate, greedy drafts",
    "naive-speculate",
    "naive_speculate/speculate/utils.py:speculative_sampling",
    "step",
    rule="the same; drafts are greedy, p is the softmax",
    uncovered="its decoder's caches",
    meant="lossy",
    length=3,
)
def _naive_greedy(draft: Any, target: Any, rng: Any) -> Any:
    x = likeliest(draft, 2)
    return _naive(laws(draft, x)[0, :-1], laws(target, x)[0], np.array(x), None)


@package(
    "litgpt, speculative_decoding, temperature 1/2",
    "litgpt",
    "litgpt.generate.speculative_decoding:speculative_decoding",
    "step",
    rule="ratio test",
    uncovered="top-k and top-p; compiled models",
)
def _litgpt(draft: Any, target: Any, rng: Any) -> Any:
    from litgpt.generate.speculative_decoding import speculative_decoding

    pair = (Softened(model, 1.0, HEAT) for model in (draft, target))
    begin = torch.tensor([PROMPT]), torch.tensor([0]), 1, 1
    return speculative_decoding(*pair, *begin, temperature=HEAT)


@package(
    "litgpt, generate, temperature 1/2",
    "litgpt",
    "litgpt.generate.speculative_decoding:generate",
    "step",
    rule="ratio test",
    uncovered="top-k and top-p; compiled models",
    length=3,
)
def _litgpt_whole(draft: Any, target: Any, rng: Any) -> Any:
    from litgpt.generate.speculative_decoding import generate

    pair = (Softened(model, 1.0, HEAT) for model in (draft, target))
    how = {"temperature": HEAT, "include_prompt": False, "speculative_k": 1}
    return generate(*pair, torch.tensor([PROMPT]), 4, **how)[0]


@package(
    "core-deepinfer",
    "core-deepinfer",
    "core_deepinfer.speculative:verify_greedy",
    "step",
    rule="match with the argmax",
    uncovered="sampling, which it does not have",
    length=3,
    only=GREEDY,
)
def _core(draft: Any, target: Any, rng: Any) -> Any:
    from core_deepinfer.speculative import verify_greedy

    x = likeliest(draft, 2)
    return verify_greedy(laws(target, x)[0], x).tokens  # scores with the same argmax


@package(
    "autodraft-sd",
    "autodraft-sd",
    "opt_classic.utils:verify",
    "tree",
    rule="match with samples at the nodes",
    uncovered="drafting; calls of CUDA, left out; its local runner, which is greedy",
    replacement=False,
)
def _autodraft(tree: Any, rng: Any) -> Any:
    from opt_classic.utils import verify

    with unittest.mock.patch.object(torch.cuda, "synchronize"):
        return opt_tree(verify, tree, 2)


@package(
    "medusa-llm",
    "medusa-llm",
    "medusa.model.utils:evaluate_posterior, generate_candidates",
    "tree",
    rule="typical acceptance, then the argmax",
    uncovered="its heads, buffers and caches",
    meant="lossy",
)
def _medusa(tree: Any, rng: Any) -> Any:
    from medusa.model.utils import evaluate_posterior

    nodes, candidates = paths(tree)
    law = torch.as_tensor(tree.target)[nodes]
    best, kept = evaluate_posterior(law.log(), candidates.clamp(min=0), 1.0, 0.09, 0.3)
    return path_tokens(tree, nodes, best, kept, law[best, kept].argmax())


def _uarc(draft: Any, target: Any, rng: Any, temperature: float) -> Any:
    from uarc.backends.huggingface import HuggingFaceBackend
    from uarc.scheduling.eads_engine import EADSSpeculativeEngine

    drafter, scorer = models(draft, target, 1.0)
    backend = types.SimpleNamespace(_tokenizer=NoTokenizer(), _model=scorer)
    backend._spec_engine = EADSSpeculativeEngine(scorer, drafter)
    return HuggingFaceBackend.generate(backend, "", 3, temperature)["token_ids"]


@package(
    "flashspec-asm-kernel",
    "flashspec-asm-kernel",
    "flashspec.sampling.rejection:rejection_step",
    "block",
    rule="ratio test, the residual by a kernel in assembly",
    uncovered="the kernel by itself",
)
def _assembly(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    p, q = (torch.as_tensor(np.asarray(law)).float() for law in (draft, target))
    return _flashspec_step(p, q, drafts, uniforms)


@package(
    "economize, RejectionVerifier.verify",
    "economize",
    "economize.decoding.verifiers:RejectionVerifier.verify",
    "block",
    rule="ratio test",
    uncovered="batches; drafts without probabilities",
)
def _economize(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from economize.decoding import RejectionVerifier

    (p,), (q,), (text,) = rows(draft, target, drafts)
    given = q.log(), drafts.tolist(), p, sampler(), text, 0
    kept, last = RejectionVerifier.verify(None, *given)
    return [*drafts[:kept], last]


@package(
    "economize, RejectionVerifier.verify_tree",
    "economize",
    "economize.decoding.verifiers:RejectionVerifier.verify_tree",
    "tree",
    rule="recursive rejection",
    uncovered="batches; siblings without replacement",
)
def _economize_tree(tree: Any, rng: Any) -> Any:
    from economize.decoding import Draft, RejectionVerifier

    tokens, target, above = rows(tree.tokens[1:], tree.target, tree.parents[1:])
    drafted = Draft(tokens, [tokens.shape[1]], above - 1, torch.as_tensor(tree.draft)[above])
    nodes, last = RejectionVerifier.verify_tree(None, target.log(), drafted, sampler())
    return [*tokens[0, nodes[0]], last[0]]


@package(
    "mtplx",
    "mtplx",
    "mtplx.sampling:verify_one_token",
    "token",
    rule="ratio test",
    uncovered="its engine, which needs Metal",
)
def _mtplx(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from mtplx.sampling import verify_one_token

    return verify_one_token(target, draft, int(drafts[0]), np.random.default_rng()).token_id


@package(
    "tightwad",
    "tightwad",
    "tightwad.speculation:verify_draft_tokens",
    "block",
    rule="ratio test, then the argmax",
    uncovered="its proxy, and what a server answers it",
)
def _tightwad(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
    from tightwad.speculation import DraftToken, TargetLogprob, verify_draft_tokens

    p, q, x = scores(draft), scores(target), drafts.tolist()
    drafted = [DraftToken(token, row[token]) for token, row in zip(x, p, strict=True)]
    best = [(int(row.argmax()), row.max()) for row in q]
    known = [TargetLogprob(*one, row[t]) for one, row, t in zip(best, q, [*x, 0], strict=True)]
    found = verify_draft_tokens(drafted, known, 1.0)
    last = found.resample_token or found.bonus_token
    return [*x[: found.accepted_count], last.token_id]


@package(
    "dejavuu",
    "dejavuu",
    "dejavuu.core.tree:accept",
    "tree",
    rule="match with samples of a seed and a position",
    uncovered="several steps of one seed; its drafters",
)
def _dejavuu(tree: Any, rng: Any) -> Any:
    from dejavuu.core.sampling import Sampler
    from dejavuu.core.tree import accept
    from dejavuu.drafters import DraftTree

    drafted = DraftTree(tree.tokens.tolist(), tree.parents.tolist())
    return accept(drafted, scores(tree.target), Sampler(seed=int(rng.integers(2**31))))[0]


@package(
    "eagle-harness",
    "eagle-harness",
    "eagle_harness.core.sampled_tree:draw_children, reject_children",
    "step",
    rule="recursive rejection without replacement",
    uncovered="its kernels in Triton; more than two drafts of one position",
    length=1,
)
def _eagle_harness(draft: Any, target: Any, rng: Any) -> Any:
    from eagle_harness.core.sampled_tree import draw_children, reject_children

    p, q = (torch.as_tensor(model.next([]))[None] for model in (draft, target))
    drafted = draw_children(p.log(), torch.arange(p.shape[1])[None], 2)
    return reject_children(q, drafted, torch.rand(1, 2), torch.rand(1)).tokens


@package(
    "csaq-quant, temperature 1/2",
    "csaq-quant",
    "csaq.inference:CSAQInferenceEngine._generate_speculative",
    "step",
    rule="ratio test",
    uncovered="quantized weights; top-p",
)
def _csaq(draft: Any, target: Any, rng: Any) -> Any:
    from csaq.inference import CSAQInferenceEngine

    drafter, scorer = models(draft, target)
    engine = object.__new__(CSAQInferenceEngine)
    vars(engine).update(model=drafter, device="cpu", tokenizer=None, verbose=False, _hooks=[])
    vars(engine).update(_in_verify=False, telemetry=collections.Counter())
    engine._swap_to_verify = lambda: setattr(engine, "model", scorer)
    engine._swap_to_draft = lambda: setattr(engine, "model", drafter)
    return engine._generate_speculative(_PROMPT, 2, 2, HEAT, 1.0)[0][0, 1:]


@package(
    "nunspark, temperature 1/2",
    "nunspark",
    "nunspark.tree_spec:sample_accepted_path",
    "tree",
    rule="recursive rejection",
    uncovered="exactness, since MLX draws; streaming",
    only=("two tokens, turned",),
    detect=0.1,
)
def _nunspark(tree: Any, rng: Any) -> Any:
    import mlx.core as mx
    from nunspark.tree_spec import sample_accepted_path

    mx.random.seed(int(rng.integers(2**31)))
    tokens = dict(enumerate(tree.tokens.tolist()))
    shape = types.SimpleNamespace(children={node: tree.children(node) for node in tokens})
    p, q = (dict(enumerate(mx.array(scores(law, HEAT)))) for law in (tree.draft, tree.target))
    kept, last, _ = sample_accepted_path(shape, tokens, p, q, temp=HEAT)
    return [*kept, last]


@package(
    "yunshu",
    "yunshu",
    "yunshu_engine/spec_draft_verifier.py:_probabilistic_accept",
    "batch",
    rule="ratio test, replace from q",
    uncovered="exactness, since MLX draws; its engines",
    **SAMPLED,
)
def _yunshu(draft: Any, target: Any, drafts: Any, rng: Any) -> Any:
    import mlx.core as mx

    code = load_file("yunshu_engine", "spec_draft_verifier.py")

    def verify(p: Any, q: Any, x: list[int]) -> list[int]:
        known = scores(p)[range(len(x)), x].tolist()
        kept, _, last = code._probabilistic_accept(mx.array(scores(q)), x, known, len(x))
        return [*kept, last]

    mx.random.seed(int(rng.integers(2**31)))
    code._prob_rng.seed(int(rng.integers(2**31)))
    return row_by_row(verify, draft, target, drafts)


@package(
    "mlx-vlm",
    "mlx-vlm",
    "mlx_vlm.speculative.mtp:_speculative_walk_deferred_greedy",
    "batch",
    rule="match with samples",
    uncovered="exactness, since MLX draws; its drafters",
    **SAMPLED,
)
def _mlx_vlm(draft: Any, target: Any, drafts: Any, rng: Any) -> Any:
    import mlx.core as mx
    from mlx_vlm.speculative.mtp import _speculative_walk_deferred_greedy

    def verify(p: Any, q: Any, x: list[int]) -> Any:
        given = mx.array(scores(q))[None], mx.array([x]), mx.random.categorical, len(q)
        return _speculative_walk_deferred_greedy(model, *given)[1]

    model = types.SimpleNamespace(logits_from_hidden=lambda hidden: hidden)
    mx.random.seed(int(rng.integers(2**31)))
    return row_by_row(verify, draft, target, drafts)


@package(
    "divine-mtp",
    "divine-mtp",
    "divine_mtp/inference.py:DivineMtpInferenceEngine.generate",
    "step",
    rule="match with the argmax",
    uncovered="its trained heads; sampling, which it does not have",
    length=3,
    only=GREEDY,
)
def _divine(draft: Any, target: Any, rng: Any) -> Any:
    code = load_file("divine_mtp", "inference.py", DivineMtpWrapper=object)
    scorer = as_hf(target)

    def base_model(**given: Any) -> Any:
        found = scorer(**given)
        return types.SimpleNamespace(**vars(found) | {"hidden_states": [found.logits]})

    def predict_next_candidates(current_token: int, **_: Any) -> list[int]:
        return likeliest(draft, 2, (current_token,))

    heads = types.SimpleNamespace(
        predict_next_candidates=predict_next_candidates, embed_fn=None, lm_head=None
    )
    engine = types.SimpleNamespace(base_model=base_model, mtp=heads, wrapper=heads, device="cpu")
    return code.DivineMtpInferenceEngine.generate(engine, _PROMPT, 3).token_ids[1:]


@package(
    "flashmap, temperature 1/2",
    "flashmap",
    "flashmap.modeling_flashmap:FlashMapDraftModel.spec_generate",
    "step",
    rule="ratio test",
    uncovered="its drafter, in whose place one law stands in every slot",
    length=3,
    only=("two tokens", "zeros", "after the token before"),
)
def _flashmap(draft: Any, target: Any, rng: Any) -> Any:
    from flashmap import modeling_flashmap as code

    (_, scorer), features = models(draft, target), torch.zeros(1, 9)
    scorer.get_input_embeddings = scorer.get_output_embeddings = lambda: None
    drafter = unittest.mock.MagicMock(device="cpu")
    drafter.config.block_size, slots = 2, laws(draft, [])[:, :1].expand(1, 2, -1)
    drafter.draft.return_value = slots.log() * HEAT
    drafter.target_features.return_value = contextlib.nullcontext(lambda: features)
    with unittest.mock.patch.multiple(code, DynamicCache=empty_cache, FlashMapCache=drafter):
        found = code.FlashMapDraftModel.spec_generate(drafter, scorer, _PROMPT, 3, HEAT)
    return found.sequences[0, 1:]


@package(
    "specforge, temperature 1/2",
    "specforge",
    "specforge.modeling.draft.dflash:DFlashDraftModel.spec_generate",
    "step",
    rule="match of greedy drafts with samples",
    uncovered="its drafter; engines that serve what it trains",
    length=3,
)
def _specforge(draft: Any, target: Any, rng: Any) -> Any:
    from specforge.modeling.draft import dflash as code

    def drafted(target: Any, hidden: Any, block: torch.Tensor) -> torch.Tensor:
        return torch.tensor(likeliest(draft, 2, (int(block[0, 0]),)))

    _, scorer = models(draft, target)
    scorer.model = unittest.mock.MagicMock()
    drafter = unittest.mock.MagicMock(block_size=3, mask_token_id=-1, _sample_draft_tokens=drafted)
    given = {"DynamicCache": empty_cache, "extract_context_feature": unittest.mock.MagicMock()}
    with unittest.mock.patch.multiple(code, **given):
        found = code.DFlashDraftModel.spec_generate(drafter, scorer, _PROMPT, 3, None, HEAT)
    return found[0, 1:]


for _heat, _pairs in ((0.0, GREEDY), (0.7, ("equal", "two tokens", "zeros"))):
    package(
        f"uarc, temperature {_heat:g}",
        "uarc",
        "uarc.backends.huggingface:HuggingFaceBackend.generate",
        "step",
        rule="match with the argmax",
        uncovered="its other backends",
        length=3,
        only=_pairs,
    )(functools.partial(_uarc, temperature=_heat))
