#!/usr/bin/env bash
# llama.cpp's "mean len" and its counters of drafts leave out the calls in which nothing was drafted.
#
# A drafter of n-grams finds nothing in most calls of a text that does not repeat itself; each of
# these calls writes one token. The log line of a request and the page of metrics count the calls
# that verified a draft only. So "mean len = 1.47" (1 + accepted/drafts) stands over a request of
# 200 tokens that took 190 calls after the prompt's: 1.05 tokens a call, and no speed-up to speak of.
# What tells is beside it: tokens less the first one and the accepted ones are the calls, and
# n_decode_total counts them with the prompt's.
#
# The model is a Llama of one block with seeded weights and 19 tokens, written here as GGUF.
#
# Seen with xllamacpp 2026.10.11549 on a CPU:
#   tokens 200, accepted 9, calls that drafted 19, calls in all 190 (n_decode_total 191)
#   mean by the engine's counters 1.474; tokens a call 1.047
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

VOCABULARY, WIDTH, HEADS, HIDDEN = 19, 32, 2, 64


def write(path):
    """Write a Llama of one block with seeded weights."""
    rng = np.random.default_rng(0)
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(512)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(VOCABULARY)
    file.add_tokenizer_model("llama")
    file.add_token_list(["<unk>", "<s>", "</s>", *map(chr, range(97, 97 + VOCABULARY - 3))])
    file.add_token_scores([0.0] * VOCABULARY)
    file.add_token_types([2, 3, 3] + [1] * (VOCABULARY - 3))
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    shapes = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
    shapes |= {f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{name}": (HIDDEN, WIDTH) for name in ("gate", "up")}
    shapes["blk.0.ffn_down"] = (WIDTH, HIDDEN)
    for name, shape in shapes.items():
        scale = 0.3 if "blk" in name else 1.0
        file.add_tensor(f"{name}.weight", (scale * rng.normal(size=shape)).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        file.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


write("tiny.gguf")
given = xllamacpp.CommonParams()
given.model.path = "tiny.gguf"
given.n_ctx, given.n_parallel, given.warmup, given.endpoint_metrics = 512, 1, False, True
kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
given.speculative.types = [kind]
given.speculative.ngram_simple.size_n, given.speculative.ngram_simple.size_m = 2, 4
server = xllamacpp.Server(given)
timings = server.handle_completions(
    {"prompt": [1, 5, 6], "n_predict": 200, "temperature": 1.0, "seed": 1, "ignore_eos": True}
)["timings"]
page = dict(re.findall(r"^llamacpp:(\w+) (\d+)$", str(server.handle_metrics()), re.MULTILINE))
tokens, accepted = timings["predicted_n"], timings["draft_n_accepted"]
drafts, decodes = int(page["spec_decode_num_drafts_total"]), int(page["n_decode_total"])
calls = tokens - 1 - accepted
print("xllamacpp", version("xllamacpp"))
print(f"tokens {tokens}, accepted {accepted}, calls that drafted {drafts}, "
      f"calls in all {calls} (n_decode_total {decodes})")
print(f"mean by the engine's counters {1 + accepted / drafts:.3f}; "
      f"tokens a call {(tokens - 1) / calls:.3f}")
assert accepted == int(page["spec_decode_num_accepted_tokens_total"])
assert decodes == calls + 1  # the prompt's
assert drafts < calls / 2
assert 1 + accepted / drafts > 1.2 * (tokens - 1) / calls
PYTHON
mean=$(grep -o "mean len = *[0-9.]*" log.txt | grep -o "[0-9.]*$")
echo "mean len in the log: $mean"
[ "$mean" = "1.47" ]
