#!/usr/bin/env bash
# onnxruntime-genai's MtpGenerator samples from all tokens where top_k=1 asks for the likeliest.
#
# With do_sample and top_k=1 Generator writes the greedy text, without drafts and with a draft model.
# MtpGenerator takes the same GeneratorParams and is to write as Generator does, but decides whether
# to sample by do_sample and the temperature alone, and takes a top_k of 1 for no limit. So a head
# changes the text of a configuration that was greedy; top_k=2 and more are kept to.
#
# Both models are tables: the logits are a row of the last token. They are written here as ONNX, with
# logits in half precision, as MtpGenerator refuses float32 on a CPU.
#
# Seen with onnxruntime-genai 0.18.0 on a CPU:
#   top_k 1, 100 seeds: 1 texts of Generator, 100 of MtpGenerator
#   top_k 16, 100 seeds: 100 texts of Generator, 100 of MtpGenerator
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 onnxruntime-genai==0.18.0
cd "$place"
env/bin/python - <<'PYTHON'
import json
from importlib.metadata import version

import numpy as np
import onnxruntime_genai
from onnx import TensorProto, helper, numpy_helper, save_model

onnxruntime_genai.disable_telemetry_events()
SIZE = 16


def write(path, table, head=False):
    """Write a model whose logits are the row of the last token; its cache is kept and not read.

    Its state is the last token. A head takes the target's state as well, and does not read it.
    """
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
        helper.make_node("Cast", ["input_ids"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "last"], ["state"]),
        helper.make_node("Unsqueeze", ["float", "axes"], ["new"]),
    ]
    real, half, number = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
    info = helper.make_tensor_value_info
    inputs = [info(name, number, ["b", "s"]) for name in ("input_ids", "attention_mask")]
    inputs += [info("hidden_states", real, ["b", "s", 1])] if head else []
    outputs = [info("logits", half, ["b", "s", SIZE]), info("state", real, ["b", "s", 1])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        nodes.append(helper.make_node("Concat", [past, "new"], [present], axis=2))
        inputs.append(info(past, real, ["b", 1, "p", 1]))
        outputs.append(info(present, real, ["b", 1, "t", 1]))
    constants = {"table": table.astype(np.float16), "axes": np.array([1, 3]), "last": np.array([2])}
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    save_model(model, path)


def load(filename, inputs, outputs, **others):
    """Return a model; its description is read once."""
    parts = ("key", "value")
    decoder = {
        "filename": filename,
        "head_size": 1,
        "hidden_size": 1,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"}
        | {f"past_{part}_names": f"past_key_values.%d.{part}" for part in parts}
        | inputs,
        "outputs": {"logits": "logits"}
        | {f"present_{part}_names": f"present.%d.{part}" for part in parts}
        | outputs,
    }
    model = {"type": "llama", "vocab_size": SIZE, "context_length": 2048, "bos_token_id": 1}
    model |= {"eos_token_id": 2, "pad_token_id": 3, "decoder": decoder} | others
    search = {"past_present_share_buffer": False, "max_length": 2048}
    with open("genai_config.json", "w") as file:
        json.dump({"model": model, "search": search}, file)
    return onnxruntime_genai.Model(".")


STATE = {"hidden_states": "state"}
MTP = {"main_hidden_states": "state", "outputs": STATE}
TAKEN = {"hidden_states": "hidden_states"}


rng = np.random.default_rng(0)
target = rng.normal(size=(SIZE, SIZE))
draft = target + 0.7 * rng.normal(size=(SIZE, SIZE))
for table in (target, draft):
    table[:, :4] = -90.0  # no special token is ever written
write("target.onnx", target)
write("draft.onnx", draft, head=True)
loaded = load("target.onnx", {}, STATE, mtp=MTP)
head = load("draft.onnx", TAKEN, {})


def run(seed, top_k, drafting):
    """Return a text of eight tokens."""
    given = onnxruntime_genai.GeneratorParams(loaded)
    given.set_search_options(
        max_length=9, do_sample=True, temperature=1.0, top_k=top_k, top_p=1.0, random_seed=seed
    )
    if drafting:
        generator = onnxruntime_genai.MtpGenerator(loaded, head, given)
    else:
        generator = onnxruntime_genai.Generator(loaded, given)
    generator.append_tokens(np.array([5], dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    text = generator.get_sequence() if drafting else generator.get_sequence(0)
    return tuple(text.tolist()[1:])


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
for top_k in (1, SIZE):
    plain, drafted = ({run(seed, top_k, drafting) for seed in range(100)} for drafting in (False, True))
    print(f"top_k {top_k}, 100 seeds: {len(plain)} texts of Generator, {len(drafted)} of MtpGenerator")
    assert len(plain) == 1 if top_k == 1 else len(plain) > 90
    assert len(drafted) > 90
PYTHON
