#!/usr/bin/env bash
# MLX-LM rotates a Llama by the base 10,000 whatever base the model's config has, if transformers 5 wrote it.
#
# transformers 5 writes the base of the rotary positions as rope_parameters.rope_theta, versions before
# it as rope_theta. MLX-LM's Llama reads rope_theta alone and takes 10,000 where it is absent,
# without a word. Many Llamas have another base (SmolLM2 100,000, Llama 3 500,000): saved once by
# transformers 5, fine-tuned or merged, they load, write fluent text, and are another model. Nothing in
# the weights tells. As a draft such a model is accepted less; as a target the text has another law.
#
# A line "rope_theta" in config.json mends it. Some other models of MLX-LM read both places.
#
# Seen with mlx-lm 0.32.2, mlx 0.32.4, transformers 5.23.0 on a CPU, a Llama of one block with seeded weights:
#   as transformers 5 writes it, base 500,000: loaded with base 10000
#   total variation from the model meant, after 64 tokens: 0.372; with rope_theta in the config: 0.000
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 transformers==5.23.0
cd "$place"
env/bin/python - <<'PYTHON' 2> log.txt || { cat log.txt; exit 1; }
import json
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama
from mlx_lm.utils import load_model
from transformers import LlamaConfig

print(*(f"{name} {version(name)}" for name in ("mlx", "mlx-lm", "transformers")))
BASE, TOKENS = 500_000.0, 64

shape = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
mx.random.seed(0)
meant = llama.Model(llama.ModelArgs(model_type="llama", rope_theta=BASE, **shape))
meant.update(tree_map(lambda x: 0.5 * mx.random.normal(x.shape), meant.parameters()))

folder = Path("model")
LlamaConfig(rope_parameters={"rope_type": "default", "rope_theta": BASE}, **shape).save_pretrained(folder)
mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(meant.parameters())))
text = mx.random.randint(0, 32, (1, TOKENS))


def distance(model):
    """Return the total variation of the next token's law from the one that is meant."""
    found, due = (mx.softmax(one(text)[0, -1]) for one in (model, meant))
    return float(abs(found - due).sum()) / 2


model, _ = load_model(folder)
base = model.layers[0].self_attn.rope.base
print(f"as transformers 5 writes it, base {BASE:,.0f}: loaded with base {base:g}")
told = json.loads((folder / "config.json").read_text())
(folder / "config.json").write_text(json.dumps(told | {"rope_theta": BASE}))
mended, _ = load_model(folder)
print(
    f"total variation from the model meant, after {TOKENS} tokens: {distance(model):.3f}; "
    f"with rope_theta in the config: {distance(mended):.3f}"
)
assert base == 10_000 and distance(model) > 0.01 and distance(mended) < 1e-4
PYTHON
