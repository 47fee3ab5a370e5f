#!/usr/bin/env bash
# With a draft model, sampling in OpenVINO GenAI does not follow the target's law.
#
# Speculative sampling is taken to be lossless everywhere, and greedy text here is the plain one. But
# sampled text with draft_model is of another law: tokens come out that target and draft give a
# probability of 1e-41 both, and likely ones at twice or half their probability. It is so in float32,
# without filters, for one draft a step and for four. Without a draft model, and by prompt lookup,
# the same pipeline samples the target's law.
#
# The models' logits are a row of the last token, so every conditional probability is known. They
# are written here as GGUF, whose reader in OpenVINO converts them.
#
# Seen with openvino-genai 2026.4.1.0 on a CPU (sampled texts differ a little from run to run):
#   0 drafts: 0 of 2000 texts have a token of probability 1e-41
#   1 drafts: 233 of 2000 texts have a token of probability 1e-41; token 11 after 11: 0.552 for 0.304
#   4 drafts: 87 of 2000 texts have a token of probability 1e-41; token 11 after 11: 0.712 for 0.304
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 openvino-genai==2026.4.1.0
cd "$place"
env/bin/python - <<'PYTHON'
import os

import gguf
import numpy as np
import openvino
import openvino_genai

VOCABULARY, WIDTH, HEADS = 16, 64, 2
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def write(name, logits):
    """Write a Llama whose logits are the row of its last token; OpenVINO converts the GGUF."""
    os.mkdir(name)
    file = gguf.GGUFWriter(f"{name}/model.gguf", "llama")
    file.add_context_length(512)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(WIDTH)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-6)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(VOCABULARY)
    file.add_file_type(1)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("default")
    file.add_token_merges(["a b"])
    file.add_token_list(["<unk>", "<s>", "</s>", "ab", *"abcdefghijkl"])
    file.add_token_types([2, 3, 3] + [1] * 13)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    # unit vectors go in, no block adds to them, and the norm makes them 8 long: √64
    table = {"token_embd": 4 * np.eye(VOCABULARY, WIDTH), "output": np.zeros((VOCABULARY, WIDTH))}
    table["output"][:, :VOCABULARY] = logits.T / 8
    blocks = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    table |= {f"blk.0.{block}": np.zeros((WIDTH, WIDTH)) for block in blocks}
    for key, value in table.items():
        file.add_tensor(f"{key}.weight", value.astype(np.float16))
    for key in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        file.add_tensor(f"{key}.weight", np.ones(WIDTH, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    openvino_genai.LLMPipeline(f"{name}/model.gguf", "CPU", enable_save_ov_model=True)


rng = np.random.default_rng(0)
logits = np.round(64 * rng.normal(size=(2, VOCABULARY, VOCABULARY))) / 64
logits[1] = np.round(64 * (logits[0] + 0.5 * logits[1])) / 64
logits[:, :, :4] = -96  # tokens that are no letter: a probability of 1e-41
write("target", logits[0])
write("draft", logits[1])
law = np.exp(logits[0]) / np.exp(logits[0]).sum(axis=1, keepdims=True)


def start(drafts):
    """Return a pipeline in float32, with a draft model or without."""
    memory = openvino_genai.SchedulerConfig()
    memory.cache_size = 1
    given = dict(EXACT, scheduler_config=memory)
    if drafts:
        given["draft_model"] = openvino_genai.draft_model("draft", "CPU", **EXACT)
    return openvino_genai.LLMPipeline("target", "CPU", **given)


def write_text(pipeline, length, drafts, seed=None):
    """Return the result of one request, sampled at temperature 1 if it has a seed, else greedy."""
    given = openvino_genai.GenerationConfig()
    given.max_new_tokens, given.ignore_eos = length, True
    if seed is not None:
        given.do_sample, given.temperature, given.rng_seed = True, 1.0, seed
    if drafts:
        given.num_assistant_tokens = drafts
    ids = np.array([[4, 9, 6]], dtype=np.int64)
    inputs = (openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
    return pipeline.generate(openvino_genai.TokenizedInputs(*inputs), given)


print("openvino-genai", openvino_genai.get_version())
TEXTS, LENGTH = 2_000, 6
for drafts in (0, 1, 4):
    pipeline = start(drafts)
    texts = [list(write_text(pipeline, LENGTH, drafts, i).tokens[0]) for i in range(TEXTS)]
    impossible = sum(min(text) < 4 for text in texts)
    pairs = [(a, b) for text in texts for a, b in zip(text[:2], text[1:3])]
    seen = np.zeros((VOCABULARY, VOCABULARY))
    for a, b in pairs:
        seen[a, b] += 1
    expected = seen.sum(axis=1, keepdims=True) * law
    a, b = np.unravel_index(np.argmax(np.abs(seen - expected)), seen.shape)
    share, error = seen[a, b] / seen[a].sum(), (law[a, b] / seen[a].sum()) ** 0.5
    print(f"{drafts} drafts: {impossible} of {TEXTS} texts have a token of probability 1e-41; "
          f"token {b} after {a}: {share:.3f} for {law[a, b]:.3f}")
    if drafts:
        assert impossible > 20
        assert abs(share - law[a, b]) > 6 * error
    else:
        assert impossible == 0
        assert abs(share - law[a, b]) < 6 * error
PYTHON
