#!/usr/bin/env bash
# With a draft model OxiLLaMa samples at temperature 1, whatever the samplers of both models say.
#
# SpeculativeConfig takes the configurations of target and draft, each with its sampler. Neither is
# read: drafts and the test are of the plain softmax. Greedy samplers give sampled text, another one
# for another seed, and temperature 0.2 gives the text of temperature 1. No error, no warning.
#
# Seen with oxillama 0.1.4 on a CPU, two Llamas of one block that write one of 12 tokens:
#   the target alone, greedy: bfbfbfbfbfbfbfbf
#   temperature 0.0, 100 seeds with drafts: 100 texts, 0 greedy, 100 as at temperature 1
#   temperature 0.2, 100 seeds with drafts: 100 texts, 0 greedy, 100 as at temperature 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 oxillama==0.1.4
PLACE="$place" "$place/env/bin/python" - <<'PYTHON'
import json
import os
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import oxillama_py

print("oxillama", version("oxillama"))
PLACE, WIDTH = Path(os.environ["PLACE"]), 64
PIECES = ["<unk>", "<s>", "</s>", "<pad>", *"abcdefghijkl"]
tokenizer = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"Regex": "."},
        "behavior": "Isolated",
        "invert": False,
    },
    "decoder": {"type": "Fuse"},
    "model": {
        "type": "WordLevel",
        "vocab": {piece: i for i, piece in enumerate(PIECES)},
        "unk_token": "<unk>",
    },
}
(PLACE / "tokenizer.json").write_text(json.dumps(tokenizer))


def write(name, seed):
    """Write a Llama of one block as a GGUF file, its logits a seeded row for each last letter."""
    rng, path = np.random.default_rng(seed), PLACE / f"{name}.gguf"
    rows = 1.5 * rng.normal(size=(16, 16))
    rows[:, :4] = -50  # the first four tokens are never written
    embedding, head = np.zeros((16, WIDTH)), np.zeros((16, WIDTH))
    embedding[:, :16] = np.eye(16)
    head[:, :16] = rows.T / WIDTH**0.5  # the last norm makes WIDTH**0.5 of the 1 before it
    file = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "context_length": 512,
        "embedding_length": WIDTH,
        "block_count": 1,
        "feed_forward_length": WIDTH,
        "head_count": 2,
        "head_count_kv": 2,
        "layer_norm_rms_eps": 1e-6,
        "rope_dimension_count": WIDTH // 2,
        "rope_freq_base": 10000.0,
        "vocab_size": 16,
        "file_type": 0,
        "tokenizer_model": "llama",
        "token_list": PIECES,
        "token_types": [2, 3, 3] + [1] * 13,
        "token_scores": [0.0] * 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }.items():
        getattr(file, f"add_{key}")(value)
    tensors = {"token_embd": embedding, "output": head}
    tensors |= {name: np.ones(WIDTH) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{part}"] = np.zeros((WIDTH, WIDTH))
    for key, tensor in tensors.items():
        file.add_tensor(f"{key}.weight", tensor.astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return rows


def config(name, temperature):
    """Return a model's configuration, without filters and penalties."""
    sampler = oxillama_py.SamplerConfig.greedy()
    if temperature > 0:
        sampler = oxillama_py.SamplerConfig(
            temperature=temperature, top_k=0, top_p=1.0, repetition_penalty=1.0
        )
    return oxillama_py.EngineConfig(
        str(PLACE / f"{name}.gguf"),
        tokenizer_path=str(PLACE / "tokenizer.json"),
        num_threads=1,
        sampler=sampler,
    )


write("target", 0)
write("draft", 1)


def texts(temperature):
    """Return a text for each of 100 seeds."""
    found = []
    for seed in range(1, 101):
        pair = oxillama_py.SpeculativeConfig(
            config("target", temperature), config("draft", temperature), num_speculative=4, seed=seed
        )
        found.append(oxillama_py.SpeculativeEngine(pair).generate("abc", 16))
    return found


engine = oxillama_py.Engine(config("target", 0.0))
engine.load_model()
greedy = engine.generate("abc", 16)
plain = texts(1.0)
print(f"the target alone, greedy: {greedy}")
for temperature in (0.0, 0.2):
    found = texts(temperature)
    same = sum(map(str.__eq__, found, plain))
    print(f"temperature {temperature}, 100 seeds with drafts: {len(set(found))} texts, "
          f"{found.count(greedy)} greedy, {same} as at temperature 1")
    assert found == plain
    assert len(set(found)) > 50
PYTHON
