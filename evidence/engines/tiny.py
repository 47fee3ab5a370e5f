"""A tiny pair of models, written in the formats that engines read, and what a run records of them.

This file is executed in the environment of an engine: it imports the standard library and numpy,
and a writer of a format where that format is asked for.

Both models are Llamas of one block over 16 tokens, the last 12 of them letters. Token x is embedded
as a multiple of the unit vector e_x, and without attention (`attention=0`) the logits after x are
row x of a given matrix, to float32's rounding. So the law of a text of any length is known from 12
rows, and so is what every rule accepts. Caches matter to no such model: texts that must be equal
are written by a second pair whose attention sees all tokens.
"""

from __future__ import annotations

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

PROMPT = (4, 9, 6)
"""The prompt of sampled texts."""

PROMPTS = tuple((4 + i, 15 - i, 6 + i % 5, 4 + 3 * i % 12) for i in range(6))
"""The prompts of greedy texts."""


def logits(seed: int) -> np.ndarray:
    """Draw the logits `(16, 16)` of a model: the target for seed 0, a draft near it for others.

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
    found = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
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
    tensors, header, at = weights(seed, attention), {"__metadata__": {"format": "pt"}}, 0
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


def write_gguf(path: Path, seed: int, attention: float, *, half: bool = False) -> Path:
    """Write a model as a GGUF file; `half` is the kind that OpenVINO reads."""
    import gguf

    file = gguf.GGUFWriter(path, "llama")
    settings = {
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
    settings |= (
        {"tokenizer_pre": "default", "token_merges": ["a b"]}
        if half
        else {"token_scores": [0.0] * VOCABULARY}
    )
    for name, value in settings.items():
        getattr(file, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    for name, value in weights(seed, attention).items():
        # no rotary permutation of q and k: another model than the folder's, as good a one
        kept = value.astype(np.float16) if half and value.ndim == 2 else value
        file.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", kept)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def write_onnx(folder: Path, seed: int, attention: float) -> Path:
    """Write a model as an ONNX file, of the operators that onnxruntime-genai's own builder takes.

    The draft is put beside its target, `genai_config.json` is the session's.
    """
    from onnx import TensorProto, helper, numpy_helper, save_model

    tensors, size = weights(seed, attention), WIDTH // HEADS
    angles = np.outer(np.arange(CONTEXT), 10000.0 ** (-2 * np.arange(size // 2) / size))
    constants = {
        **{name: value.T if value.ndim == 2 else value for name, value in tensors.items()},
        "model.embed_tokens.weight": tensors["model.embed_tokens.weight"],
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
        "one": np.array([1]),
        "second": np.array(1),
    }
    nodes = []

    def node(kind: str, *inputs: str, out: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, out.split(), domain=domain, **attributes))
        return out.split()[0]

    def norm(value: str, weight: str) -> str:
        name = f"{weight}.weight"
        given = {"axis": -1, "epsilon": 1e-6, "stash_type": 1}
        return node("SimplifiedLayerNormalization", value, name, out=f"{weight}.out", **given)

    def product(value: str, weight: str, out: str = "") -> str:
        return node("MatMul", value, f"{weight}.weight", out=out or f"{weight}.out")

    layer = "model.layers.0."
    count = node("ReduceSum", "attention_mask", "one", out="count", keepdims=0)
    before = node("Sub", count, "one", out="before")
    lengths = node("Cast", before, out="lengths", to=TensorProto.INT32)
    shape = node("Shape", "attention_mask", out="mask_shape")
    total = node(
        "Cast", node("Gather", shape, "second", out="all"), out="total", to=TensorProto.INT32
    )
    x = node("Gather", "model.embed_tokens.weight", "input_ids", out="embedded")
    h = norm(x, f"{layer}input_layernorm")
    q, k, v = (product(h, f"{layer}self_attn.{letter}_proj") for letter in "qkv")
    seen = node(
        "GroupQueryAttention",
        *(
            q,
            k,
            v,
            "past_key_values.0.key",
            "past_key_values.0.value",
            lengths,
            total,
            "cos",
            "sin",
        ),
        out="seen present.0.key present.0.value",
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=HEADS,
        do_rotary=1,
    )
    x = node("Add", x, product(seen, f"{layer}self_attn.o_proj"), out="attended")
    h = norm(x, f"{layer}post_attention_layernorm")
    gate, up = (product(h, f"{layer}mlp.{name}_proj") for name in ("gate", "up"))
    gate = node("Mul", gate, node("Sigmoid", gate, out="sigmoid"), out="silu")
    h = product(node("Mul", gate, up, out="hidden"), f"{layer}mlp.down_proj")
    product(norm(node("Add", x, h, out="last"), "model.norm"), "lm_head", out="logits")
    number, real = TensorProto.INT64, TensorProto.FLOAT
    cache = ["batch", HEADS, "kept", size]
    inputs = [("input_ids", number, ["batch", "new"]), ("attention_mask", number, ["batch", "all"])]
    inputs += [(f"past_key_values.0.{part}", real, cache) for part in ("key", "value")]
    outputs = [("logits", real, ["batch", "new", VOCABULARY])]
    outputs += [(f"present.0.{part}", real, cache) for part in ("key", "value")]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save_model(
        helper.make_model(graph, opset_imports=sets, ir_version=10), folder.with_suffix(".onnx")
    )
    return folder
