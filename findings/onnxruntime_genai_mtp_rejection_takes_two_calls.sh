#!/usr/bin/env bash
# Each rejection costs onnxruntime-genai's MtpGenerator a second call, of any target.
#
# A cache of keys and values is cut where a draft is rejected, and so speculation costs one call of
# the target a round. A target with a recurrent state cannot be cut, and a second call, over what was
# accepted, writes its state anew. MtpGenerator makes this second call for targets that have a cache
# only, too. So four poor drafts a round cost more calls than no drafts, and so does one draft unless
# half of them are accepted. With a draft model (Generator, two drafts or more) calls are rounds.
# acceptance_rate and mean_emitted_tokens_per_round show none of it; target_forward_passes does.
#
# Both models are tables: the logits are a row of the last token. They are written here as ONNX, with
# logits in half precision, as MtpGenerator refuses float32 on a CPU.
#
# Seen with onnxruntime-genai 0.18.0 on a CPU, for 1000 tokens:
#   1 drafts a round, 0.80 accepted: 555 rounds, 665 calls; 1.80 tokens a round, 1.50 a call
#   4 drafts a round, 0.61 accepted: 292 rounds, 457 calls; 3.42 tokens a round, 2.19 a call
#   1 drafts a round, 0.39 accepted: 720 rounds, 1161 calls; 1.39 tokens a round, 0.86 a call
#   4 drafts a round, 0.17 accepted: 590 rounds, 1159 calls; 1.69 tokens a round, 0.86 a call
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
target[:, :4] = -90.0  # no special token is ever written
write("target.onnx", target)
loaded = load("target.onnx", {}, STATE, mtp=MTP)


def run(length, drafts, noise):
    """Return the engine's statistics of a sampled text; the head is the target with noise."""
    table = target + noise * np.random.default_rng(1).normal(size=(SIZE, SIZE))
    write("head.onnx", table, head=True)
    given = onnxruntime_genai.GeneratorParams(loaded)
    given.set_search_options(
        max_length=length + 1, do_sample=True, temperature=1.0, top_k=SIZE, top_p=1.0, random_seed=1
    )
    given.set_speculative_options(max_draft_tokens=drafts)
    generator = onnxruntime_genai.MtpGenerator(loaded, load("head.onnx", TAKEN, {}), given)
    generator.append_tokens(np.array([5], dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_stats()


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
for drafts, noise in ((1, 0.5), (4, 0.5), (1, 2.0), (4, 2.0)):
    told = run(1_000, drafts, noise)
    rounds, rejected, calls = (told[key] for key in ("rounds", "correction_tokens", "target_forward_passes"))
    accepted = told["draft_tokens_accepted"] / told["draft_tokens_proposed"]
    print(f"{drafts} drafts a round, {accepted:.2f} of them accepted: {rounds} rounds, {rejected} with a rejection, "
          f"{calls} calls of the target for 1000 tokens; {told['mean_emitted_tokens_per_round']:.2f} tokens a round "
          f"told, {1_000 / calls:.2f} a call")
    assert rejected > 100
    assert calls == rounds + rejected
assert calls > 1_000  # more than without drafts
PYTHON
