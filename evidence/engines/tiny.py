"""The tiny pair for engines that are run here, with a writer of ONNX.

Executed in the environment of an engine, which has no other package of this project: the pair's
file is loaded by itself.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from otm.audit import tiny_pair as pair
else:
    _PATH = Path(__file__).parents[2] / "otm" / "audit" / "tiny_pair.py"
    _SPEC = importlib.util.spec_from_file_location("tiny_pair", _PATH)
    pair = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(pair)


def write_onnx(folder: Path, seed: int, attention: float, *, head: bool = False) -> Path:
    """Write a model as an ONNX file, of the operators that onnxruntime-genai's own builder takes.

    The draft is put beside its target, `genai_config.json` is the session's. A `head` takes the
    target's states, too, and does not read them: it drafts as the model of this seed does.
    """
    from onnx import TensorProto, helper

    tensors, size = pair.weights(seed, attention), pair.WIDTH // pair.HEADS
    angles = np.outer(np.arange(pair.CONTEXT), 10000.0 ** (-2 * np.arange(size // 2) / size))
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
        num_heads=pair.HEADS,
        kv_num_heads=pair.HEADS,
        do_rotary=1,
    )
    x = node("Add", x, product(seen, f"{layer}self_attn.o_proj"), out="attended")
    h = norm(x, f"{layer}post_attention_layernorm")
    gate, up = (product(h, f"{layer}mlp.{name}_proj") for name in ("gate", "up"))
    gate = node("Mul", gate, node("Sigmoid", gate, out="sigmoid"), out="silu")
    h = product(node("Mul", gate, up, out="hidden"), f"{layer}mlp.down_proj")
    states = norm(node("Add", x, h, out="last"), "model.norm")
    # the engine's loop for heads takes no float32 on a CPU; half precision keeps these logits
    exact = product(states, "lm_head")
    node("Cast", exact, out="logits", to=TensorProto.FLOAT16)
    number, real = TensorProto.INT64, TensorProto.FLOAT
    cache = ["batch", pair.HEADS, "kept", size]
    inputs = [("input_ids", number, ["batch", "new"]), ("attention_mask", number, ["batch", "all"])]
    inputs += [(f"past_key_values.0.{part}", real, cache) for part in ("key", "value")]
    wide = ["batch", "new", pair.WIDTH]
    inputs += [("hidden_states", real, wide)] if head else []
    outputs = [("logits", TensorProto.FLOAT16, ["batch", "new", pair.VOCABULARY])]
    outputs += [(states, real, wide)]
    outputs += [(f"present.0.{part}", real, cache) for part in ("key", "value")]
    _save(folder, nodes, inputs, outputs, constants)
    return folder


def write_paged_onnx(path: Path, seed: int, *, head: bool = False) -> None:
    """Write a model without attention whose cache is in blocks, which it takes and does not read.

    onnxruntime has no attention over blocks on a CPU. A `head` is as above.
    """
    from onnx import TensorProto, helper

    number, count, real = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", [name, "input_ids"], [out])
        for name, out in (("rows", "logits"), ("embedding", "model.norm.out"))
    ]
    cache = ["blocks", "slots", pair.HEADS, pair.WIDTH // pair.HEADS]
    inputs = [("input_ids", number, ["tokens"]), ("block_table", count, ["batch", "columns"])]
    inputs += [("cumulative_sequence_lengths", count, ["ends"])]
    inputs += [("past_sequence_lengths", count, ["batch"])]
    inputs += [("hidden_states", real, ["tokens", pair.WIDTH])] if head else []
    outputs = [("logits", real, ["tokens", pair.VOCABULARY])]
    outputs += [("model.norm.out", real, ["tokens", pair.WIDTH])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        nodes.append(helper.make_node("Identity", [past], [present]))
        inputs.append((past, real, cache))
        outputs.append((present, real, cache))
    embedding = pair.weights(seed, 0.0)["model.embed_tokens.weight"]
    rows = pair.logits(seed).astype(np.float32)
    _save(path, nodes, inputs, outputs, {"rows": rows, "embedding": embedding})


def write_lattice_onnx(path: Path, seed: int, drafts: int) -> None:
    """Write a block drafter, all of whose letters are candidates at each of the block's positions.

    A candidate's score after another is the logit of this seed's model, so a walk through the
    lattice draws as that model does. The target's states and the cache are taken and not read.
    """
    from onnx import TensorProto, helper

    number, count, real = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
    nodes = [
        helper.make_node("Reshape", ["input_ids", "blocks_of"], ["block"]),
        helper.make_node("Slice", ["block", "zero", "one", "one"], ["anchor"]),
        helper.make_node("Where", ["first", "anchor", "all"], ["before"]),
        helper.make_node("Gather", ["rows", "before"], ["draft_scores"]),
        helper.make_node("Mul", ["before", "zero"], ["none"]),
        helper.make_node("Add", ["none", "all"], ["candidates"]),
        helper.make_node("Cast", ["candidates"], ["draft_candidate_ids"], to=count),
    ]
    inputs = [("aux_hidden_states", real, ["context", pair.WIDTH]), ("input_ids", number, ["rows"])]
    inputs += [(name, count, [f"{name}_size"]) for name in ("q_row_map", "qkv_row_map")]
    inputs += [("block_row_index", count, ["rows"]), ("block_table", count, ["batch", "columns"])]
    inputs += [("cumulative_sequence_lengths", count, ["ends"])]
    inputs += [("past_sequence_lengths", count, ["batch"]), ("attention_metadata", count, [3])]
    lattice = ["batch", drafts, pair.VOCABULARY]
    outputs = [("draft_candidate_ids", count, lattice)]
    outputs += [("draft_scores", real, [*lattice, pair.VOCABULARY])]
    cache = ["blocks", 16, pair.HEADS, pair.WIDTH // pair.HEADS]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        nodes.append(helper.make_node("Identity", [past], [present]))
        inputs.append((past, real, cache))
        outputs.append((present, real, cache))
    constants = {
        "rows": pair.logits(seed).astype(np.float32),
        "blocks_of": np.array([-1, drafts + 1, 1]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "first": np.arange(drafts).reshape(1, drafts, 1) == 0,
        "all": np.arange(pair.VOCABULARY),
    }
    _save(path, nodes, inputs, outputs, constants)


def _save(
    path: Path,
    nodes: list[Any],
    inputs: list[tuple[Any, ...]],
    outputs: list[tuple[Any, ...]],
    constants: dict[str, np.ndarray],
) -> None:
    """Write a graph; inputs and outputs are name, type and shape."""
    from onnx import helper, numpy_helper, save_model

    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    save_model(model, path.with_suffix(".onnx"))


def write_head_gguf(path: Path, attention: float) -> None:
    """Write the target as a GGUF file with a head, whose logits after a token are the draft's row.

    The architecture is one of those that llama.cpp drafts with and that have no recurrent layers.
    The layer of a sliding window, which it must have, adds nothing here.
    """
    target, draft = (pair.weights(seed, attention) for seed in pair.SEEDS.values())
    one, eye = np.ones(pair.WIDTH, dtype=np.float32), np.eye(pair.WIDTH, dtype=np.float32)
    tensors = {
        name.replace(".0.", f".{layer}."): np.float32(share) * tensor
        for layer, share in enumerate((1, 0, 1))
        for name, tensor in target.items()
    }
    # a token's embedding as it was before its norm, and none of the target's state before it
    embedding = eye * target["model.embed_tokens.weight"].max() / np.float32(pair.WIDTH**0.5)
    tensors["blk.2.nextn.eh_proj.weight"] = np.hstack((embedding, 0 * eye))
    tensors["blk.2.nextn.shared_head_head.weight"] = draft["lm_head.weight"]
    for name in ("enorm", "hnorm", "shared_head_norm"):
        tensors[f"blk.2.nextn.{name}.weight"] = one
    settings = pair.gguf_settings() | {
        "block_count": 3,
        "nextn_predict_layers": 1,
        "sliding_window": pair.CONTEXT,
        "sliding_window_pattern": [False, True, False],
        "expert_feed_forward_length": pair.HIDDEN,
    }
    pair.write_gguf_file(path, settings, tensors, architecture="step35")
