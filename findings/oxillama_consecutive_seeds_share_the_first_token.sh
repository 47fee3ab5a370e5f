#!/usr/bin/env bash
# In OxiLLaMa texts of the seeds 1, 2, 3, ... begin with the same token.
#
# Engine.generate(prompt, max_tokens, seed=...) begins a generator with the seed itself, whose first
# number hardly depends on the seed's low bits. So the usual way to ask for several samples of a
# prompt, one seed after the other, gives one first token; the tokens behind it do vary. Seeds that
# differ in their high bits sample the law.
#
# Seen with oxillama 0.1.4 on a CPU, a Llama of one block that writes one of 12 tokens:
#   seeds 1 to 1000: 1000 texts begin with 'a', whose probability is 0.120
#   seeds times 2**64 over the golden ratio: 239 begin with 'b', 250 expected
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 oxillama==0.1.4
PLACE="$place" "$place/env/bin/python" - <<'PYTHON'
import json
import os
from collections import Counter
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


rows = write("target", 0)
engine = oxillama_py.Engine(config("target", 1.0))
engine.load_model()


def first(seeds):
    """Return the letters that texts of these seeds begin with, most frequent first."""
    found = Counter()
    for seed in seeds:
        engine.reset()
        found[engine.generate("abc", 4, seed=seed)[0]] += 1
    return found.most_common()


law = np.exp(rows[PIECES.index("c")])
law /= law.sum()
(letter, count), *_ = first(range(1, 1001))
print(f"seeds 1 to 1000: {count} texts begin with {letter!r}, "
      f"whose probability is {law[PIECES.index(letter)]:.3f}")
assert count > 990 and law[PIECES.index(letter)] < 0.5
(letter, count), *_ = first(seed * 0x9E3779B97F4A7C15 % 2**64 for seed in range(1, 1001))
expected = law[PIECES.index(letter)]
print(f"seeds times 2**64 over the golden ratio: {count} begin with {letter!r}, "
      f"{1000 * expected:.0f} expected")
assert abs(count - 1000 * expected) < 5 * (1000 * expected * (1 - expected)) ** 0.5
PYTHON
