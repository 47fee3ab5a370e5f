#!/usr/bin/env bash
# With one draft a round, onnxruntime-genai calls the target twice a round: slower than no drafts.
#
# One draft is the cautious setting, and with most of them accepted one expects nearly two tokens a
# call. With max_draft_tokens=1 each round is followed by another pass of the target
# (target_reanchor_forward_passes), so that 1,000 tokens take more calls than plain decoding's. With
# two drafts or more the pass is part of the next round, and calls are rounds. Adaptive lengths that
# come down to one draft pay as well. acceptance_rate and mean_emitted_tokens_per_round show none of
# it; target_forward_passes does.
#
# Both models are tables: the logits are a row of the last token. They are written here as ONNX.
#
# Seen with onnxruntime-genai 0.18.0 on a CPU:
#   max_draft_tokens 1: 565 rounds, 1129 calls of the target for 1000 tokens
#   max_draft_tokens 2: 433 rounds, 433 calls
#   max_draft_tokens 4: 329 rounds, 329 calls
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


def write(path, table):
    """Write a model whose logits are the row of the last token; its cache is kept and not read."""
    ids = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    nodes, size = [ids, helper.make_node("Unsqueeze", ["input_ids", "axes"], ["wide"])], len(table)
    nodes.append(helper.make_node("Cast", ["wide"], ["new"], to=TensorProto.FLOAT))
    real, number = TensorProto.FLOAT, TensorProto.INT64
    info = helper.make_tensor_value_info
    inputs = [info(name, number, ["b", "s"]) for name in ("input_ids", "attention_mask")]
    outputs = [info("logits", real, ["b", "s", size])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        nodes.append(helper.make_node("Concat", [past, "new"], [present], axis=2))
        inputs.append(info(past, real, ["b", 1, "p", 1]))
        outputs.append(info(present, real, ["b", 1, "t", 1]))
    constants = {"table": table.astype(np.float32), "axes": np.array([1, 3])}
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    save_model(model, path)


def decoder(filename):
    """Return the part of genai_config.json that describes a model."""
    parts = ("key", "value")
    return {
        "filename": filename,
        "head_size": 1,
        "hidden_size": 1,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"}
        | {f"past_{part}_names": f"past_key_values.%d.{part}" for part in parts},
        "outputs": {"logits": "logits"} | {f"present_{part}_names": f"present.%d.{part}" for part in parts},
    }


rng = np.random.default_rng(0)
target = rng.normal(size=(16, 16))
draft = target + 0.7 * rng.normal(size=(16, 16))
for table in (target, draft):
    table[:, :4] = -90.0  # no special token is ever written
write("target.onnx", target)
write("draft.onnx", draft)
model = {"type": "llama", "vocab_size": 16, "context_length": 2048, "bos_token_id": 1}
model |= {"eos_token_id": 2, "pad_token_id": 3}
model |= {"decoder": decoder("target.onnx"), "draft": decoder("draft.onnx")}
search = {"past_present_share_buffer": False, "max_length": 2048}
with open("genai_config.json", "w") as file:
    json.dump({"model": model, "search": search}, file)
loaded = onnxruntime_genai.Model(".")


def run(length, seed=1, **speculative):
    """Return a sampled text and the engine's statistics of it."""
    given = onnxruntime_genai.GeneratorParams(loaded)
    given.set_search_options(
        max_length=length + 1, do_sample=True, temperature=1.0, top_k=16, top_p=1.0, random_seed=seed
    )
    given.set_speculative_options(**speculative)
    generator = onnxruntime_genai.Generator(loaded, given)
    generator.append_tokens(np.array([5], dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()[1:], generator.get_speculative_stats()


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
for most in (1, 2, 4):
    text, told = run(1_000, max_draft_tokens=most)
    rounds, calls = told["rounds"], told["target_forward_passes"]
    print(f"max_draft_tokens {most}: {rounds} rounds, {calls} calls of the target for {len(text)} tokens; "
          f"{len(text) / calls:.2f} tokens a call, {told['draft_tokens_accepted'] / told['draft_tokens_proposed']:.2f} of drafts accepted")
    if most == 1:
        assert calls > 1.9 * rounds
        assert told["target_reanchor_forward_passes"] == calls - rounds
        assert calls > len(text)  # more than without drafts
    else:
        assert calls == rounds
PYTHON
