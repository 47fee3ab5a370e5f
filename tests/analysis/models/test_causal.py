"""A tree pass gives what plain passes give, on the models of several families, whatever the cache
has seen before.
"""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import otm
from analysis.errors import AnalysisError
from analysis.models import tree_pass
from analysis.models.causal import CausalModel
from analysis.models.tree_check import configuration_obstacle, observed_obstacle
from analysis.models.tree_pass import TreeEvaluator
from analysis.models.trie import CacheLayout, make_plan, tree_mask
from otm import Processing

V = 23
_SHAPE = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_GROUPED = _SHAPE | {"num_key_value_heads": 2}
_ENDS = {"bos_token_id": 0, "eos_token_id": 0}
# The default initialisation (standard deviation 0.02) gives nearly uniform distributions in models
# this small; a wide one makes every context's distribution its own, so that a wrong mask shows.
_WIDE = {"initializer_range": 0.3}


def llama(**changes):
    return _built(LlamaForCausalLM, LlamaConfig(**_GROUPED | _WIDE | changes))


def _built(factory, config):
    torch.manual_seed(0)
    return factory(config).eval()


TREE_MODELS = {
    "llama": llama,
    "gpt2": lambda: _built(
        GPT2LMHeadModel,
        GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64, **_ENDS, **_WIDE),
    ),
    "gpt-neox": lambda: _built(GPTNeoXForCausalLM, GPTNeoXConfig(**_SHAPE, **_WIDE)),
    "qwen2": lambda: _built(Qwen2ForCausalLM, Qwen2Config(**_GROUPED, **_WIDE)),
    "falcon": lambda: _built(FalconForCausalLM, FalconConfig(**_SHAPE, **_WIDE)),
    "mistral, no window": lambda: _built(
        MistralForCausalLM, MistralConfig(**_GROUPED, **_WIDE, sliding_window=None)
    ),
    "llama, eager": lambda: llama(attn_implementation="eager"),
}
OTHER_MODELS = {
    "mistral, window": (
        lambda: _built(MistralForCausalLM, MistralConfig(**_GROUPED, **_WIDE, sliding_window=5)),
        "Sliding",
    ),
    "mamba": (
        lambda: _built(
            MambaForCausalLM, MambaConfig(vocab_size=V, hidden_size=32, num_hidden_layers=2)
        ),
        "Linear",
    ),
    "bloom": (
        lambda: _built(
            BloomForCausalLM, BloomConfig(vocab_size=V, hidden_size=32, n_layer=2, n_head=4)
        ),
        "accept",
    ),
    "mpt": (
        lambda: _built(MptForCausalLM, MptConfig(vocab_size=V, d_model=32, n_heads=4, n_layers=2)),
        "honour",
    ),
    "gpt-neo": (
        lambda: _built(
            GPTNeoForCausalLM,
            GPTNeoConfig(
                vocab_size=V,
                hidden_size=32,
                num_layers=2,
                num_heads=4,
                attention_types=[[["global", "local"], 1]],
                **_ENDS,
            ),
        ),
        "local",
    ),
    "dynamic rope": (
        lambda: llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
        "frequencies",
    ),
}

# The logits of these models stay below 8 in size, and two float32 evaluations of one context differ
# by a few units in the last place of that, |Δz| ≤ 8 · 2⁻²¹ ≈ 4e-6 (measured: 6e-7). A softmax moves
# by at most 2|Δz|p. A wrong mask moves masses by 0.05 and more (see the mutants).
FLOAT32 = 1e-5


def plain(model, context):
    """The oracle: one context, no cache, no mask of ours, softmax by torch."""
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor([list(context)], device=model.device), use_cache=False
        ).logits[0, -1]
    return torch.softmax(logits.double(), dim=-1).cpu().numpy()


def assert_answers(answers, model, contexts):
    assert answers.shape == (len(contexts), V) and answers.dtype == np.float64
    expected = [plain(model, context) for context in contexts]
    np.testing.assert_allclose(answers, expected, rtol=0, atol=FLOAT32)


def random_calls(rng, count, longest=20):
    """Calls as decoders make them, in any order: a stem that grows, backtracks or restarts, and
    trees on it.

    Three tokens only, so that contexts collide: prefixes of one another, duplicates, paths that an
    earlier tree had.
    """
    stem = (1, 2)
    calls = []
    for _ in range(count):
        cut = (
            int(rng.integers(1, len(stem) + 1))
            if rng.random() < 0.4 or len(stem) > longest
            else len(stem)
        )
        stem = stem[:cut] + tuple(int(t) for t in rng.integers(0, 3, int(rng.integers(0, 4))))
        paths = [
            tuple(int(t) for t in rng.integers(0, 3, int(rng.integers(0, 5))))
            for _ in range(int(rng.integers(1, 7)))
        ]
        calls.append([stem + path for path in paths])
        stem += paths[0][: int(rng.integers(0, 5))]
    return calls


@pytest.fixture
def model():
    return llama()


@pytest.fixture
def ours(model):
    return CausalModel(model, V, "cpu")


NO_CUDA = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="this machine has no CUDA device"
)


@pytest.mark.parametrize(
    ("name", "device"),
    [*((name, "cpu") for name in TREE_MODELS), pytest.param("llama", "cuda", marks=NO_CUDA)],
)
def test_tree_passes_equal_plain_passes(name, device):
    model = TREE_MODELS[name]().to(device)
    ours = CausalModel(model, V, device)
    assert ours.fallback is None, ours.fallback
    calls = random_calls(np.random.default_rng(7), 12)
    assert max(len(set(call)) for call in calls) >= 5
    assert any(len(set(call)) < len(call) for call in calls)
    for contexts in calls:
        assert_answers(ours.next_batch(contexts), model, contexts)
    assert ours.evaluator.passes == len(calls)


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_models_that_see_no_tree_are_evaluated_as_sequences(name):
    """Each is found out by its configuration or by the comparison; the answers are right all the
    same.
    """
    build, reason = OTHER_MODELS[name]
    model = build()
    ours = CausalModel(model, V, "cpu")
    assert reason in str(ours.fallback)
    long = (1, 2, 3, 4, 5, 6, 7, 8)
    contexts = [(*long, 9), (1, 2, 3), (*long, 1), (4, 2, 3), (1, 2, 3)]
    assert_answers(ours.next_batch(contexts), model, contexts)
    assert (ours.evaluator.passes, ours.evaluator.tokens) == (2, 2 * 9 + 2 * 3)
    ours.forget()
    assert "sequences" in repr(ours)


class IgnoresMask(LlamaForCausalLM):
    def forward(self, attention_mask=None, **rest):
        return super().forward(**rest)


class IgnoresPositions(LlamaForCausalLM):
    def forward(self, position_ids=None, **rest):
        return super().forward(**rest)


@pytest.mark.parametrize("factory", [IgnoresMask, IgnoresPositions])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_ignores_mask_or_positions_is_found_out(factory, dtype):
    model = _built(factory, LlamaConfig(**_GROUPED, **_WIDE)).to(dtype)
    assert "honour" in str(observed_obstacle(model, "cpu", V))
    # Without the comparison the answers would be visibly wrong.
    contexts = [(1, 2, 3, 4), (1, 2, 5), (1, 2, 5, 6), (1, 2, 7, 3)]
    wrong = torch.softmax(TreeEvaluator(model, "cpu").logits(contexts).double(), dim=-1).numpy()
    assert np.abs(wrong - [plain(model, context) for context in contexts]).max() > 0.05


def _causal_over_flattened(plan):
    """Mutant: every token sees all that precede it in the flattened tree."""
    return (
        np.arange(plan.num_rows)
        <= plan.num_rows - len(plan.tokens) + np.arange(len(plan.tokens))[:, None]
    )


def _first_rows(contexts, layout):
    """Mutant: the first rows of the cache are kept instead of those on the new paths."""
    plan = make_plan(contexts, layout)
    return dataclasses.replace(plan, kept=list(range(len(plan.kept))))


@pytest.mark.parametrize("mutant", [_causal_over_flattened, _first_rows])
def test_a_wrong_mask_or_choice_of_rows_is_found_out(mutant, monkeypatch, model):
    assert observed_obstacle(model, "cpu", V) is None
    monkeypatch.setattr(tree_pass, "make_plan" if mutant is _first_rows else "tree_mask", mutant)
    assert "honour" in str(observed_obstacle(model, "cpu", V))
    contexts = [(1, 2, 3, 4), (1, 2, 5), (1, 2, 5, 6)]  # answered by the fallback
    assert_answers(CausalModel(model, V, "cpu").next_batch(contexts), model, contexts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_models_pass_the_comparison(model, dtype):
    ours = CausalModel(model.to(dtype), V, "cpu")
    assert ours.fallback is None, ours.fallback
    mass = ours.next_batch([(1, 2, 3), (1, 2, 4)])
    assert mass.dtype == np.float64
    # a softmax in half precision misses by 1e-3
    np.testing.assert_allclose(mass.sum(axis=1), 1.0, atol=1e-12, rtol=0)


def test_a_constant_model_cannot_be_checked_and_is_not_trusted(model):
    torch.nn.init.zeros_(model.lm_head.weight)
    ours = CausalModel(model, V, "cpu")
    assert "cannot show" in str(ours.fallback)
    np.testing.assert_allclose(ours.next((1, 2)), 1 / V)
    assert "too few" in str(CausalModel(llama(max_position_embeddings=8), V, "cpu").fallback)


def _paths(layout, num_rows):
    """The context that ends in each cache row."""
    paths = [layout.trunk[: place + 1] for place in range(len(layout.trunk))]
    for (parent, token), row in sorted(layout.children.items(), key=lambda item: item[1]):
        assert row == len(paths)
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert len(paths) == num_rows
    return paths


@given(seed=st.integers(0, 2**32 - 1))
def test_plans_move_evaluate_and_mask_the_right_tokens(seed):
    """Against sets of paths: what is kept, what is evaluated, who sees whom; over a history of
    calls.
    """
    layout, before = CacheLayout(), []
    for call in random_calls(np.random.default_rng(seed), 5, longest=8):
        contexts = list(dict.fromkeys(call))
        plan = make_plan(contexts, layout)
        paths = _paths(plan.layout, plan.num_rows)
        new = paths[len(plan.kept) :]
        assert sorted(paths) == sorted(
            {context[:length] for context in contexts for length in range(1, len(context) + 1)}
        )
        assert [before[row] for row in plan.kept] == paths[: len(plan.kept)]
        assert plan.tokens == [path[-1] for path in new]
        assert plan.depths == [len(path) - 1 for path in new]
        assert [new[place] for place in plan.wanted] == contexts
        visible = [[path[: len(other)] == other for other in paths] for path in new]
        np.testing.assert_array_equal(tree_mask(plan), visible)
        # Nothing is evaluated twice: a token that was there is kept unless its logits, or an
        # ancestor's, are wanted.
        lost = {path for path in before if any(path[: len(end)] == end for end in contexts)}
        assert set(paths[: len(plan.kept)]) == set(before) & set(paths) - lost
        layout, before = plan.layout, paths


def test_decoding_evaluates_each_token_once(model, ours):
    """A prompt of 20, a tree drafted level by level, the accepted path, a chain: counted to the
    token.
    """
    prompt = tuple(i % V for i in range(20))
    accepted = (*prompt, 2, 1)  # both tokens are in the cache, on a branch
    counted = [ours.evaluator.tokens]
    calls = (
        (20, [prompt]),
        (2, [(*prompt, 1), (*prompt, 2)]),
        (3, [(*prompt, 1, 1), (*prompt, 1, 2), (*prompt, 2, 1)]),
        (2, [(*prompt, 2, 1, 5), (*prompt, 1, 2, 5)]),
        (1, [(*accepted, 7)]),
        (1, [(*accepted, 7, 8)]),
        (3, [(*accepted, 7), (*accepted, 7, 8), (*accepted, 7, 9)]),  # asked again: evaluated again
        (1, [prompt[:5]]),  # far back: only the token whose logits are wanted
        (1, [(*prompt[:5], 22)]),
    )
    for _, contexts in calls:
        assert_answers(ours.next_batch(contexts), model, contexts)
        counted.append(ours.evaluator.tokens)
    assert np.diff(counted).tolist() == [new for new, _ in calls]
    ours.forget()
    ours.next((*prompt[:5], 22))
    assert (ours.evaluator.passes, ours.evaluator.tokens) == (len(calls) + 1, counted[-1] + 6)


def test_a_run_that_starts_by_forgetting_repeats_bit_for_bit(ours):
    """Two ways to one context may round differently; the same calls from an empty cache may not."""
    calls = random_calls(np.random.default_rng(11), 4)
    ours.forget()
    first = [ours.next_batch(contexts) for contexts in calls]
    ours.next((5, 6, 7))
    ours.forget()
    for contexts, answers in zip(calls, first, strict=True):
        np.testing.assert_array_equal(ours.next_batch(contexts), answers)


def test_contexts_of_any_kind_and_none(model, ours):
    contexts = [(1, 2, 3), (1,), [1, 2, 3], np.array([5, 6, 7]), (5, 6), (1, 2, 3, 4)]
    assert_answers(ours.next_batch(contexts), model, contexts)
    assert ours.next_batch([]).shape == (0, V)
    assert (ours.evaluator.passes, ours.evaluator.tokens) == (1, 7)


def test_unrelated_long_prompts_and_trees_beyond_the_largest_mask(monkeypatch, model, ours):
    rng = np.random.default_rng(5)
    stem = tuple(int(t) for t in rng.integers(0, V, 30))
    prompts = [tuple(int(t) for t in rng.integers(0, V, 60)) for _ in range(6)]
    trees = [stem + tuple(int(t) for t in rng.integers(0, V, 5)) for _ in range(8)]
    assert_answers(ours.next_batch(prompts), model, prompts)
    assert ours.evaluator.passes == 1
    monkeypatch.setattr(tree_pass, "LARGEST_MASK", 1500)
    monkeypatch.setattr(tree_pass, "LARGEST_BATCH", 100)
    parts = CausalModel(model, V, "cpu")
    assert_answers(parts.next_batch(prompts), model, prompts)
    assert parts.evaluator.passes == len(prompts)
    before = parts.evaluator.passes
    assert_answers(parts.next_batch([*trees, stem]), model, [*trees, stem])
    assert parts.evaluator.passes - before == 3  # the trunk without a mask, then two halves
    windowed = _built(MistralForCausalLM, MistralConfig(**_GROUPED, **_WIDE, sliding_window=5))
    assert_answers(CausalModel(windowed, V, "cpu").next_batch(prompts), windowed, prompts)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ((), "at least one token"),
        ((1, V), f"0..{V - 1}; got {V}"),
        ((-1,), "got -1"),
        ((1.5, 2), "integers"),
        (("a",), "integers"),
        ((1,) * 65, "64 positions; this one has 65"),
    ],
)
def test_bad_contexts_are_refused_and_nothing_is_lost(context, message, model, ours):
    ours.next((1, 2, 3))
    before = ours.evaluator.tokens
    with pytest.raises(AnalysisError, match=message):
        ours.next_batch([(1, 2), context])
    assert ours.evaluator.tokens == before
    assert_answers(ours.next_batch([(1, 2, 3, 4)]), model, [(1, 2, 3, 4)])
    assert ours.evaluator.tokens - before == 1  # the cache survived
    assert_answers(ours.next_batch([(1,) * 64]), model, [(1,) * 64])


@pytest.mark.parametrize(
    ("num_tokens", "device", "training", "message"),
    [
        (V + 1, "cpu", False, f"1..{V}"),
        (V, "cuda", False, "on device 'cuda'; it is on 'cpu'"),
        (V, "cpu", True, r"model\.eval\(\)"),
    ],
)
def test_models_that_cannot_be_used_are_refused(model, num_tokens, device, training, message):
    with pytest.raises(AnalysisError, match=message):
        CausalModel(model.train(training), num_tokens, device)


@pytest.mark.parametrize(
    ("error", "message"),
    [(otm.errors.InvalidDistribution, r"\(…, 3, 4, 5, 6\).*NaN"), (KeyboardInterrupt, None)],
)
def test_a_pass_that_breaks_off_or_gives_nan_leaves_no_cache(error, message, model, ours):
    ours.next((1, 2, 3, 4, 5))

    def broken(_, __, found):
        if error is KeyboardInterrupt:
            raise KeyboardInterrupt
        return found * float("nan")

    # the first layer has cached its keys already
    handle = model.model.layers[1].mlp.register_forward_hook(broken)
    with pytest.raises(error, match=message):
        ours.next((1, 2, 3, 4, 5, 6))
    handle.remove()
    contexts = [(1, 2, 3, 4, 5, 6), (1, 2, 3), (1, 2, 7)]
    assert_answers(ours.next_batch(contexts), model, contexts)


def test_padding_rows_are_cut_before_the_softmax_and_its_temperature(model):
    mass = CausalModel(model, V - 3, "cpu", Processing(temperature=0.8)).next((1, 2, 3))
    expected = plain(model, (1, 2, 3))[: V - 3] ** (1 / 0.8)
    np.testing.assert_allclose(mass, expected / expected.sum(), atol=FLOAT32, rtol=0)


def test_greedy_decoding_agrees_with_generate(pair):
    prompt = pair.encode("If True, the")
    ours = CausalModel(pair.target, pair.num_tokens, "cpu", Processing(temperature=0.0))
    tokens = list(prompt)
    for _ in range(24):
        tokens.append(int(ours.next(tokens).argmax()))
    options = {"do_sample": False, "max_new_tokens": 24, "eos_token_id": None}
    options["pad_token_id"] = 0
    assert pair.target.generate(torch.tensor([prompt]), **options)[0].tolist() == tokens
    assert ours.evaluator.tokens == len(prompt) + 23


def test_configuration_obstacles_name_what_a_small_tree_cannot_show():
    assert configuration_obstacle(llama()) is None
    windowed = _built(MistralForCausalLM, MistralConfig(**_GROUPED, **_WIDE, sliding_window=32))
    assert "Sliding" in str(configuration_obstacle(windowed))
    # A small tree fits into the window, so the comparison alone would let this model pass.
    assert observed_obstacle(windowed, "cpu", V) is None
