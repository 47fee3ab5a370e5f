#!/usr/bin/env bash
# In llama.cpp a recurrent target takes a second call after every step that rejects a draft.
#
# A state cannot be taken back as a cache of keys can. After a rejection the state before the step is
# restored and the kept tokens are read again, in a call of their own that writes one token more. So
# a rejected step is two plain calls with the draft's time on top. Nothing counts these calls as
# steps: the log's mean and spec_decode_num_drafts count the first of the two. They are in
# n_decode_total, and tokens less the first and the accepted ones are the calls.
#
# Models are a Mamba and a Llama of one block with seeded weights and 19 tokens, written as GGUF.
#
# Seen with xllamacpp 2026.10.11549 on a CPU:
#   llama: 200 tokens, 135 drafts accepted: 64 steps by these, 63 told; 64 calls
#   mamba: 200 tokens, 5 drafts accepted: 194 steps by these, 97 told; 194 calls
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 xllamacpp==2026.10.11549
cd "$place"
env/bin/python - <<'PYTHON' 2> log.txt || { cat log.txt; exit 1; }
import re
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

VOCABULARY, WIDTH, INNER, STATES, RANK, KERNEL = 19, 32, 64, 16, 2, 4


def start(path, architecture):
    """Return a writer with what both models have in common."""
    file = gguf.GGUFWriter(path, architecture)
    file.add_context_length(512)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(VOCABULARY)
    file.add_tokenizer_model("llama")
    file.add_token_list(["<unk>", "<s>", "</s>", *map(chr, range(97, 97 + VOCABULARY - 3))])
    file.add_token_scores([0.0] * VOCABULARY)
    file.add_token_types([2, 3, 3] + [1] * (VOCABULARY - 3))
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    return file


def finish(file, tensors):
    """Write the tensors, a norm's being ones."""
    for name, value in tensors.items():
        file.add_tensor(name, value.astype(np.float32))
    for name in ("output_norm.weight", "blk.0.attn_norm.weight"):
        file.add_tensor(name, np.ones(WIDTH, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


rng = np.random.default_rng(0)
embedding, head = rng.normal(size=(2, VOCABULARY, WIDTH))
file = start("mamba.gguf", "mamba")
file.add_feed_forward_length(0)
file.add_head_count(0)
file.add_ssm_conv_kernel(KERNEL)
file.add_ssm_inner_size(INNER)
file.add_ssm_state_size(STATES)
file.add_ssm_time_step_rank(RANK)
finish(
    file,
    {
        "token_embd.weight": embedding,
        "output.weight": head,
        "blk.0.ssm_in.weight": 0.3 * rng.normal(size=(2 * INNER, WIDTH)),
        "blk.0.ssm_conv1d.weight": 0.3 * rng.normal(size=(INNER, KERNEL)),
        "blk.0.ssm_conv1d.bias": np.zeros(INNER),
        "blk.0.ssm_x.weight": 0.3 * rng.normal(size=(RANK + 2 * STATES, INNER)),
        "blk.0.ssm_dt.weight": 0.3 * rng.normal(size=(INNER, RANK)),
        "blk.0.ssm_dt.bias": np.zeros(INNER),
        "blk.0.ssm_a": -np.ones((INNER, STATES)),
        "blk.0.ssm_d": np.ones(INNER),
        "blk.0.ssm_out.weight": 0.3 * rng.normal(size=(WIDTH, INNER)),
    },
)
file = start("llama.gguf", "llama")
file.add_feed_forward_length(INNER)
file.add_head_count(2)
file.add_head_count_kv(2)
file.add_rope_dimension_count(WIDTH // 2)
shapes = {f"attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
shapes |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
file.add_tensor("blk.0.ffn_norm.weight", np.ones(WIDTH, np.float32))
tensors = {f"blk.0.{name}.weight": 0.3 * rng.normal(size=shape) for name, shape in shapes.items()}
finish(file, {"token_embd.weight": embedding, "output.weight": head} | tensors)


def run(target, draft):
    """Return calls of the target, accepted drafts and steps told, of one sampled request."""
    given = xllamacpp.CommonParams()
    given.model.path = target
    given.n_ctx, given.n_parallel, given.warmup, given.endpoint_metrics = 512, 1, False, True
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
    given.speculative.types = [kind]
    given.speculative.draft.mparams.path = draft
    server = xllamacpp.Server(given)
    timings = server.handle_completions(
        {"prompt": [1, 5, 6], "n_predict": 200, "temperature": 1.0, "seed": 1, "ignore_eos": True}
    )["timings"]
    page = dict(re.findall(r"^llamacpp:(\w+) (\d+)$", str(server.handle_metrics()), re.MULTILINE))
    calls = int(page["n_decode_total"]) - 1
    return calls, timings["draft_n_accepted"], int(page["spec_decode_num_drafts_total"])


print("xllamacpp", version("xllamacpp"))
for target in ("llama", "mamba"):
    calls, accepted, drafts = run(f"{target}.gguf", "llama.gguf")
    steps = 199 - accepted
    print(f"{target}: 200 tokens, {accepted} drafts accepted: {steps} steps by these, {drafts} told; "
          f"{calls} calls, mean by the counters {1 + accepted / drafts:.2f}, tokens a call {199 / calls:.2f}")
    assert (calls > 1.5 * drafts) == (target == "mamba")
PYTHON
