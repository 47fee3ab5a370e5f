#!/usr/bin/env bash
# With a draft model mistral.rs writes greedy text at any temperature.
#
# The documentation says rejection sampling: accept a draft with min(1, p/q), else sample what is
# left of the target. Runner(which_draft=..., speculative_gamma=...) takes the likeliest token of the
# draft and of the target instead and compares these, whatever temperature, top_k or top_p a request
# has. No error, no warning; and one draft a step writes one token a step, since no token of the
# target's own follows accepted drafts. 0.6.0 is the last release on the package index whose Runner
# takes a draft model; later ones take MTP heads only.
#
# Seen with mistralrs 0.6.0 on a CPU, a Llama of one block with seeded weights and 16 tokens:
#   temperature 1.0: 100 texts of 8 tokens, 94 distinct without drafts, 1 with drafts
#   temperature 5.0: 100 texts of 8 tokens, 98 distinct without drafts, 1 with drafts
#   the one text is the greedy text without drafts
# (the numbers of distinct texts without drafts are other ones each time)
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 safetensors==0.6.2 mistralrs==0.6.0
PLACE="$place" RUST_LOG=off "$place/env/bin/python" - <<'PYTHON'
import json
import os
from importlib.metadata import version
from pathlib import Path

import mistralrs
import numpy as np
from safetensors.numpy import save_file

print("mistralrs", version("mistralrs"))
PLACE, WIDTH = Path(os.environ["PLACE"]), 32
PIECES = ["<unk>", "<s>", "</s>", "<pad>", *"abcdefghijkl"]


def write(name, seed):
    """Write a Llama of one block with seeded weights, and return its folder."""
    folder, rng = PLACE / name, np.random.default_rng(seed)
    folder.mkdir()
    shapes = {"model.embed_tokens": (16, WIDTH), "lm_head": (16, WIDTH)}
    for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o"):
        shapes[f"model.layers.0.{part}_proj"] = (WIDTH, WIDTH)
    for part in ("gate", "up", "down"):
        shapes[f"model.layers.0.mlp.{part}_proj"] = (WIDTH, WIDTH)
    weights = {f"{key}.weight": 0.3 * rng.normal(size=shape) for key, shape in shapes.items()}
    weights["lm_head.weight"][:4] = 0.0
    for part in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        weights[f"model.{part}.weight"] = np.ones(WIDTH)
    file = str(folder / "model.safetensors")
    save_file({key: value.astype(np.float32) for key, value in weights.items()}, file)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 16,
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "."},
            "behavior": "Isolated",
            "invert": False,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": False}
        | {"trim_offsets": False, "use_regex": False},
        "model": {
            "type": "WordLevel",
            "vocab": {piece: i for i, piece in enumerate(PIECES)},
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    return mistralrs.Which.Plain(
        model_id=str(folder),
        arch=mistralrs.Architecture.Llama,
        dtype=mistralrs.ModelDType.F32,
    )


def texts(runner, temperature, count=100):
    """Return the set of so many texts after one prompt."""
    request = mistralrs.CompletionRequest(
        prompt="abc", model="", max_tokens=7, temperature=temperature, top_k=16, top_p=1.0
    )
    return {runner.send_completion_request(request).choices[0].text for _ in range(count)}


target, draft = write("target", 0), write("draft", 1)
plain = mistralrs.Runner(target, no_paged_attn=True)
drafting = mistralrs.Runner(target, no_paged_attn=True, which_draft=draft, speculative_gamma=1)
greedy = texts(plain, 0.0, 1)
for temperature in (1.0, 5.0):
    without, with_drafts = texts(plain, temperature), texts(drafting, temperature)
    print(f"temperature {temperature}: 100 texts of 8 tokens, {len(without)} distinct without "
          f"drafts, {len(with_drafts)} with drafts")
    assert len(without) > 50
    assert with_drafts == greedy
print("the one text is the greedy text without drafts")
PYTHON
