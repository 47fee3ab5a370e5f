#!/usr/bin/env bash
# The head of onnxruntime-genai's MtpGenerator drafts without having seen the prompt.
#
# A head for multi-token prediction has a layer with a cache of its own, and was trained on all the
# tokens before. Engines run it over the prompt, as they do a draft model. MtpGenerator begins the
# head's cache with the first token that is generated: a head that repeats names or code of the prompt
# finds neither, and is accepted less than the same head elsewhere. The text stays right.
#
# The target writes how many tokens it has read; the head drafts how many it was fed, and one, since
# it is not fed the first token of all. So it is always right if it is fed the prompt. Both are written
# here as ONNX, with logits in half precision, as MtpGenerator refuses float32 on a CPU.
#
# Seen with onnxruntime-genai 0.18.0 on a CPU:
#   prompt of 1, 1 drafts a round: 50 of 50 drafts accepted
#   prompt of 8, 1 drafts a round: 0 of 99 drafts accepted
#   prompt of 1, 4 drafts a round: 80 of 80 drafts accepted
#   prompt of 8, 4 drafts a round: 0 of 390 drafts accepted
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
SIZE = 256


def write(path, ahead, head=False):
    """Write a model whose likeliest next token is how many it was fed, and `ahead` more.

    What it was fed is told by its cache. Its state is the last token. A head takes the target's
    state as well, and does not read it.
    """
    real, half, number = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
    nodes = [
        helper.make_node("Shape", ["past_key_values.0.key"], ["past"], start=2, end=3),
        helper.make_node("Mul", ["input_ids", "zero"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["ones"]),
        helper.make_node("CumSum", ["ones", "one"], ["count"]),
        helper.make_node("Add", ["count", "past"], ["fed"]),
        helper.make_node("Add", ["fed", "ahead"], ["next"]),
        helper.make_node("OneHot", ["next", "size", "values"], ["logits"]),
        helper.make_node("Cast", ["input_ids"], ["float"], to=real),
        helper.make_node("Unsqueeze", ["float", "last"], ["state"]),
        helper.make_node("Unsqueeze", ["float", "axes"], ["new"]),
    ]
    info = helper.make_tensor_value_info
    inputs = [info(name, number, ["b", "s"]) for name in ("input_ids", "attention_mask")]
    inputs += [info("hidden_states", real, ["b", "s", 1])] if head else []
    outputs = [info("logits", half, ["b", "s", SIZE]), info("state", real, ["b", "s", 1])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        nodes.append(helper.make_node("Concat", [past, "new"], [present], axis=2))
        inputs.append(info(past, real, ["b", 1, "p", 1]))
        outputs.append(info(present, real, ["b", 1, "t", 1]))
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "ahead": np.array(ahead),
        "size": np.array([SIZE]),
        "values": np.array([0, 10], dtype=np.float16),
        "axes": np.array([1, 3]),
        "last": np.array([2]),
    }
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "counts", inputs, outputs, kept)
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
    model = {"type": "llama", "vocab_size": SIZE, "context_length": 512, "bos_token_id": 0}
    model |= {"eos_token_id": 255, "pad_token_id": 0, "decoder": decoder} | others
    search = {"past_present_share_buffer": False, "max_length": 512}
    with open("genai_config.json", "w") as file:
        json.dump({"model": model, "search": search}, file)
    return onnxruntime_genai.Model(".")


STATE = {"hidden_states": "state"}
MTP = {"main_hidden_states": "state", "outputs": STATE}
TAKEN = {"hidden_states": "hidden_states"}


write("target.onnx", 0)
write("head.onnx", 1, head=True)  # the first token of all has no state before it
loaded = load("target.onnx", {}, STATE, mtp=MTP)
head = load("head.onnx", TAKEN, {})


def run(prompt, drafts):
    """Return a greedy text of 100 tokens and the engine's statistics of it."""
    given = onnxruntime_genai.GeneratorParams(loaded)
    given.set_search_options(max_length=len(prompt) + 100)
    given.set_speculative_options(max_draft_tokens=drafts)
    generator = onnxruntime_genai.MtpGenerator(loaded, head, given)
    generator.append_tokens(np.array(prompt, dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence().tolist()[len(prompt) :], generator.get_stats()


print("onnxruntime-genai", version("onnxruntime-genai"), "onnxruntime", version("onnxruntime"))
for drafts in (1, 4):
    for prompt in ([5], [5] * 8):
        text, told = run(prompt, drafts)
        proposed, accepted = told["draft_tokens_proposed"], told["draft_tokens_accepted"]
        print(f"prompt of {len(prompt)}, {drafts} drafts a round: {accepted} of {proposed} drafts accepted")
        assert text == [len(prompt) + i for i in range(100)]
        assert accepted == (proposed if len(prompt) == 1 else 0)
PYTHON
