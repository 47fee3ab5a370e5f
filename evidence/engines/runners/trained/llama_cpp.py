"""llama.cpp with a trained pair: as it is, and by rejection."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from evidence.engines import tiny, trained
from evidence.engines.runners import llama_cpp as engine

_FIRST = 0x10000
"""Every token is spelled as one character from here on, so that text tells its tokens."""

_TYPES = {"F16": np.float16, "F32": np.float32}

_DRAFT = engine._KINDS.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE


def tensors(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file as float32."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, told in header.items():
        if name != "__metadata__":
            begin, end = told["data_offsets"]
            values = np.frombuffer(data[8 + size + begin : 8 + size + end], _TYPES[told["dtype"]])
            found[name] = values.reshape(told["shape"]).astype(np.float32)
    return found


def write_gguf(folder: Path, path: Path, never: int) -> None:
    """Write a model of Hugging Face's Llama form as a GGUF file in float32.

    Args:
        folder: of the model.
        path: of the file.
        never: the token that ends a text, as one must.
    """
    told = json.loads((folder / "config.json").read_text())
    vocabulary = told["vocab_size"]
    settings = {
        "context_length": told["max_position_embeddings"],
        "embedding_length": told["hidden_size"],
        "block_count": told["num_hidden_layers"],
        "feed_forward_length": told["intermediate_size"],
        "head_count": told["num_attention_heads"],
        "head_count_kv": told["num_key_value_heads"],
        "layer_norm_rms_eps": told["rms_norm_eps"],
        "rope_dimension_count": told["head_dim"],
        "rope_freq_base": told["rope_parameters"]["rope_theta"],
        "vocab_size": vocabulary,
        "file_type": 0,
        "tokenizer_model": "llama",
        "token_list": [chr(_FIRST + token) for token in range(vocabulary)],
        "token_types": [1] * vocabulary,
        "token_scores": [0.0] * vocabulary,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "unk_token_id"), never),
    }
    found = tensors(folder / "model.safetensors")
    for name, value in found.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            # llama.cpp rotates neighbours, Hugging Face's form the two halves of a head
            halves = value.reshape(-1, 2, told["head_dim"] // 2, value.shape[-1])
            found[name] = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(value.shape)
    tiny.pair.write_gguf_file(path, settings, found)


def prepare(pair: Path, folder: Path, never: int) -> Path:
    """Write both models of the pair into a folder."""
    for role in ("target", "draft"):
        write_gguf(pair / role, folder / role, never)
    return folder


class Server(engine.Server):
    """A server whose texts are characters from `_FIRST` on."""

    def spelled(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [ord(letter) - _FIRST for letter in text]


def opened(pair: Path, settings: dict[str, bool]) -> Server:
    """Start a server, with drafts where they have settings."""
    kinds = (_DRAFT,) if settings else ()
    return Server(pair, *kinds, drafts=trained.DRAFTS, **settings)


CASES = trained.cases(
    opened,
    ({}, "no drafts", "none", ""),
    ({"probabilistic": False}, "as it is", "match-argmax", "--spec-draft-n-max 4"),
    (
        {"probabilistic": True},
        "probabilistic",
        "rejection-top-10",
        "--spec-draft-sampling probabilistic",
    ),
    first="prompt",
)

if __name__ == "__main__":
    trained.run(engine.PACKAGES, CASES, prepare)
