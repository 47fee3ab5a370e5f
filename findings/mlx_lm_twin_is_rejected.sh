#!/usr/bin/env bash
# In MLX-LM a model that drafts for itself has most of its sampled drafts rejected.
#
# Rejection sampling accepts every draft of a twin. MLX-LM samples the draft, samples the target, and
# keeps the draft if both are the same token: the target's law, but a twin's draft is kept with
# probability sum p*p, and argmax drafts (which it does not offer when sampling) would do better.
# The flatter the law, the worse: temperature costs acceptance however good the draft model is.
#
# Seen with mlx-lm 0.32.2, mlx 0.32.4 on a CPU, a Llama of one block with seeded weights and 32 tokens:
#   a model that drafts for itself: 0.077 of the drafts kept, sum of p*p 0.080
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


target = model(0)
TOKENS = 2_000
mx.random.seed(1)
found = list(
    speculative_generate_step(
        mx.array([1, 5, 6]),
        target,
        target,
        max_tokens=TOKENS,
        num_draft_tokens=1,
        sampler=make_sampler(temp=1.0),
    )
)
accepted = sum(drafted for _, _, drafted in found)
calls = TOKENS - accepted
squares = sum(float(mx.exp(2 * row).sum()) for _, row, _ in found) / TOKENS
print(f"a model that drafts for itself: {accepted / calls:.3f} of the drafts kept, sum of p*p {squares:.3f}")
assert accepted / calls < 0.9
assert abs(accepted / calls - squares) < 5 * (0.25 / calls) ** 0.5 + 0.02
PYTHON
