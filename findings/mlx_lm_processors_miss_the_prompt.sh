#!/usr/bin/env bash
# With a draft model, MLX-LM's logits processors see the prompt's last token and not the prompt.
#
# A processor is a function of the tokens so far and the logits; a repetition penalty looks back on
# the prompt too. Without a draft model it is given the whole prompt. With one, prompts are read
# before the first call of a processor, which then gets their last token, at any length of the
# prompt. So a penalty is another one with a draft model than without, and so is greedy text.
#
# Seen with mlx-lm 0.32.2, mlx 0.32.4 on a CPU, Llamas of one block with seeded weights:
#   prompt of 10 tokens; a processor sees, without a draft: [10, 11, 12, 13]; with one: [1, 1, 2, …]
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


target, draft = model(0), model(1)
prompt = list(range(1, 11))


def seen(drafts):
    """Return the numbers of tokens that a logits processor is given, call by call."""
    lengths = []

    def processor(tokens, logits):
        lengths.append(tokens.size)
        return logits

    given = {"max_tokens": 3, "logits_processors": [processor]}
    if drafts:
        steps = speculative_generate_step(
            mx.array(prompt), target, draft, num_draft_tokens=1, **given
        )
    else:
        steps = generate_step(mx.array(prompt), target, **given)
    list(steps)
    return lengths


plain, drafted = seen(False), seen(True)
print(f"prompt of {len(prompt)} tokens; a processor sees, without a draft: {plain}; with one: {drafted}")
assert plain[0] == len(prompt)
assert drafted[0] == 1
assert max(drafted) < len(prompt)
PYTHON
