#!/usr/bin/env bash
# Once a rotating cache is full, speculation in MLX-LM changes greedy text, without a word.
#
# Models with sliding windows have rotating caches (max_kv_size makes them for others), which cannot
# be taken back once they have turned. speculative_generate_step asks can_trim_prompt_cache before
# the first token, when an empty cache still can; later trim_prompt_cache refuses silently, rejected
# drafts stay in the cache, and the text is another than the target's greedy one. Short texts, below
# the window, are right, so that tests on them pass.
#
# Seen with mlx-lm 0.32.2, mlx 0.32.4 on a CPU, a Llama of one block with seeded weights:
#   window none: 78 of 120 tokens are drafts, equal up to token 120
#   window 512: 78 of 120 tokens are drafts, equal up to token 120
#   window 32: 75 of 120 tokens are drafts, equal up to token 28
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
"$place/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import cache, llama
from mlx_lm.sample_utils import make_sampler

print("mlx", version("mlx"), "mlx-lm", version("mlx-lm"))


def model(seed):
    """Return a Llama of one block with seeded weights and 32 tokens."""
    mx.random.seed(seed)
    found = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=32,
            num_hidden_layers=1,
            intermediate_size=64,
            num_attention_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=32,
            tie_word_embeddings=False,
        )
    )
    found.update(tree_map(lambda x: 0.5 * mx.random.normal(x.shape), found.parameters()))
    return found


target, draft = model(0), model(0)
draft.update(tree_map(lambda x: x + 0.05 * mx.random.normal(x.shape), draft.parameters()))
prompt, LENGTH = mx.array([1, 5, 6]), 120


def texts(window):
    """Return the greedy text without and with the draft; both caches keep `window` tokens."""
    def caches(*models):
        return [cache.RotatingKVCache(window) if window else cache.KVCache() for _ in models]

    plain = [
        int(token)
        for token, _ in generate_step(prompt, target, max_tokens=LENGTH, prompt_cache=caches(target))
    ]
    found = [
        (int(token), drafted)
        for token, _, drafted in speculative_generate_step(
            prompt,
            target,
            draft,
            max_tokens=LENGTH,
            num_draft_tokens=3,
            prompt_cache=caches(target, draft),
        )
    ]
    return plain, [token for token, _ in found], sum(drafted for _, drafted in found)


for window in (0, 512, 32):
    plain, drafted, accepted = texts(window)
    same = next((i for i, (a, b) in enumerate(zip(plain, drafted)) if a != b), LENGTH)
    print(f"window {window or 'none'}: {accepted} of {LENGTH} tokens are drafts, equal up to token {same}")
    assert (same < LENGTH) == (window == 32)
PYTHON
