"""A tiny pair of models whose laws are known, in the formats that engines read.

Both are Llamas of one block over 16 tokens, the last 12 of them letters. Token x is embedded as a
multiple of the unit vector e_x, and without attention (`attention=0`) the logits after x are row x
of a given matrix, to float32's rounding. So the law of a text of any length is known from 12 rows,
and so is what every rule accepts. Caches matter to no such model: a second pair has attention that
sees all tokens.

The file imports the standard library and numpy only, since it is also executed in the environments
of engines.
"""

from __future__ import annotations

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, SPECIAL, WIDTH, HEADS, HIDDEN, CONTEXT = 16, 4, 64, 2, 64, 512
UNIT = 64
BOS, EOS = 1, 2
NEVER = -96
"""Logit of the four tokens that are no letters: they are never sampled."""

SEEDS = {"target": 0, "draft": 1}
"""The models, by the seeds of their logits."""

PROMPT = (4, 9, 6)
"""The prompt of sampled texts."""

PROMPTS = tuple((4 + i, 15 - i, 6 + i % 5, 4 + 3 * i % 12) for i in range(6))
"""The prompts of greedy texts."""


def logits(seed: int) -> np.ndarray:
    """Draw the logits `(16, 16)` of a model: the target for seed 0, a near draft for others.

    They are multiples of 1/64, so that half precision keeps them.
    """
    drawn = [np.random.default_rng(s).normal(size=(VOCABULARY, VOCABULARY)) for s in (0, seed)]
    mixed = 1.2 * drawn[0] if seed == 0 else 0.9 * drawn[0] + 0.8 * drawn[1]
    mixed[:, :SPECIAL] = NEVER
    return np.round(mixed * UNIT) / UNIT


def weights(seed: int, attention: float) -> dict[str, np.ndarray]:
    """Return the weights of a model by their names in Hugging Face's Llama."""
    rng = np.random.default_rng(99)  # one attention for both, as a trained draft would agree
    embedding = np.zeros((VOCABULARY, WIDTH))
    embedding[:, :VOCABULARY] = 4 * np.eye(VOCABULARY)
    head = np.zeros((VOCABULARY, WIDTH))
    # the norm before the head makes √WIDTH e_x of any multiple of e_x
    head[:, :VOCABULARY] = logits(seed).T / np.sqrt(WIDTH)
    # attention and network write beside the letters' coordinates, where only letters look
    head[SPECIAL:, VOCABULARY:] = 0.5 * rng.normal(size=(VOCABULARY - SPECIAL, WIDTH - VOCABULARY))
    layer = "model.layers.0."
    found: dict[str, Any] = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    for name, shape in (
        *((f"self_attn.{letter}_proj", (WIDTH, WIDTH)) for letter in "qkvo"),
        *((f"mlp.{name}_proj", (HIDDEN, WIDTH)) for name in ("gate", "up")),
        ("mlp.down_proj", (WIDTH, HIDDEN)),
    ):
        found[f"{layer}{name}.weight"] = attention * rng.normal(size=shape) / np.sqrt(shape[1])
        if name in ("self_attn.o_proj", "mlp.down_proj"):
            found[f"{layer}{name}.weight"][:VOCABULARY] = 0.0
    for name in ("model.norm", f"{layer}input_layernorm", f"{layer}post_attention_layernorm"):
        found[f"{name}.weight"] = np.ones(WIDTH)
    return {name: value.astype(np.float32) for name, value in found.items()}


def write_folder(folder: Path, seed: int, attention: float, **changes: Any) -> Path:
    """Write a model as a folder of Hugging Face's form, with a tokenizer of one letter a token."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, at = weights(seed, attention), 0
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name, value in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [at, at + value.nbytes],
        }
        at += value.nbytes
    told = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(told)) + told + b"".join(map(np.ndarray.tobytes, tensors.values()))
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for i, text in enumerate(pieces()[:SPECIAL])
        ],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated"}
        | {"invert": False},
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {text: i for i, text in enumerate(pieces())},
            "unk_token": "<unk>",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def pieces() -> list[str]:
    """Return the texts of the tokens, whose fourth is there since some readers want a merge."""
    return ["<unk>", "<s>", "</s>", "ab", *"abcdefghijkl"]


def gguf_settings(*, half: bool = False) -> dict[str, Any]:
    """List what a GGUF file says of a model; `half` is the kind that OpenVINO reads."""
    settings: dict[str, Any] = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": 1,
        "feed_forward_length": HIDDEN,
        "head_count": HEADS,
        "head_count_kv": HEADS,
        "layer_norm_rms_eps": 1e-6,
        "rope_dimension_count": WIDTH // HEADS,
        "rope_freq_base": 10000.0,
        "vocab_size": VOCABULARY,
        "file_type": int(half),  # llama.cpp's numbers: 0 is float32, 1 float16
        "tokenizer_model": "gpt2" if half else "llama",
        "token_list": pieces(),
        "token_types": [2, 3, 3] + [1] * (VOCABULARY - 3),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "unk_token_id": 0,
    }
    # OpenVINO reads half precision and merges of pieces, llama.cpp's plain form has scores
    return settings | (
        {"tokenizer_pre": "default", "token_merges": ["a b"]}
        if half
        else {"token_scores": [0.0] * VOCABULARY}
    )


def write_gguf(path: Path, seed: int, attention: float, *, half: bool = False) -> Path:
    """Write a model as a GGUF file; `half` is the kind that OpenVINO reads."""
    # no rotary permutation of q and k: another model than the folder's, as good a one
    tensors = {
        name: tensor.astype(np.float16) if half and tensor.ndim == 2 else tensor
        for name, tensor in weights(seed, attention).items()
    }
    return write_gguf_file(path, gguf_settings(half=half), tensors)


def write_gguf_file(
    path: Path,
    settings: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    architecture: str = "llama",
) -> Path:
    """Write settings and tensors, named as in Hugging Face's Llama or as in GGUF, as a file."""
    gguf = importlib.import_module("gguf")
    file = gguf.GGUFWriter(path, architecture)
    for name, value in settings.items():
        getattr(file, f"add_{name}")(value)
    kind = gguf.MODEL_ARCH[architecture.upper()]
    names = gguf.get_tensor_name_map(kind, settings["block_count"])
    for name, tensor in tensors.items():
        base = name.removesuffix(".weight")
        file.add_tensor(f"{names.get_name(base) or base}.weight", tensor)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
