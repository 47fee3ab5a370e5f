#!/usr/bin/env bash
# With one seed llama.cpp samples one text at temperature 1, whatever a greedy draft model proposes.
#
# Rejection sampling as in the papers keeps the law of the text and not the text: how many random
# numbers a step takes depends on the drafts. llama-server's default is no rejection: it samples the
# target at every position with the request's own generator, and keeps a draft, the draft model's
# most likely token, if it is the sample. So two draft models without anything in common, and no
# draft at all, give the same 200 tokens, and only the number of calls differs. What is accepted is
# the target's mass on the draft's favourite, not the overlap of the two laws.
# With spec-draft-sampling "probabilistic", which is rejection, the two drafts give two texts.
#
# Models are Llamas of one block with seeded weights and 19 tokens, written here as GGUF.
#
# Seen with xllamacpp 2026.10.11549 on a CPU:
#   accepted of drafted: none 0/0, draft 1 3/582, draft 2 2/586
#   texts: 1 - by rejection: 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 xllamacpp==2026.10.11549
cd "$place"
env/bin/python - <<'PYTHON' 2> log.txt || { cat log.txt; exit 1; }
from importlib.metadata import version

import gguf
import numpy as np
import xllamacpp

VOCABULARY, WIDTH, HEADS, HIDDEN = 19, 32, 2, 64


def write(path, seed):
    """Write a Llama of one block with weights of a seed."""
    rng = np.random.default_rng(seed)
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


for seed in range(3):
    write(f"{seed}.gguf", seed)


def run(draft, probabilistic=False):
    """Return text, accepted and drafted of one request, with the draft model of a seed."""
    given = xllamacpp.CommonParams()
    given.model.path = "0.gguf"
    given.n_ctx, given.n_parallel, given.warmup = 512, 1, False
    if draft is not None:
        kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
        given.speculative.types = [kind]
        given.speculative.draft.mparams.path = f"{draft}.gguf"
        given.speculative.draft.probabilistic = probabilistic
    server = xllamacpp.Server(given)
    found = server.handle_completions(
        {
            "prompt": [1, 5, 6],
            "n_predict": 200,
            "temperature": 1.0,
            "seed": 1,
            "ignore_eos": True,
        }
    )
    timings = found["timings"]
    text = found["choices"][0]["text"]
    return text, timings.get("draft_n_accepted", 0), timings.get("draft_n", 0)


print("xllamacpp", version("xllamacpp"))
runs = {"none": run(None), "draft 1": run(1), "draft 2": run(2)}
shown = ", ".join(f"{name} {accepted}/{drafted}" for name, (_, accepted, drafted) in runs.items())
print("accepted of drafted:", shown)
texts = {text for text, _, _ in runs.values()}
rejection = {run(draft, probabilistic=True)[0] for draft in (1, 2)}
print("texts:", len(texts), "- by rejection:", len(rejection))
assert len(texts) == 1 and len(rejection) == 2
assert runs["none"][2] == 0 and runs["draft 1"][1] != runs["draft 2"][1]
assert min(runs[name][1] for name in ("draft 1", "draft 2")) > 0
PYTHON
