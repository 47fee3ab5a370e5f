#!/usr/bin/env bash
# litgpt's generation with a draft model leaves out the first token that it samples.
#
# generate() of litgpt.generate.speculative_decoding draws a token from the target after the prompt,
# goes on from it, and returns only what comes after it. The text has a gap of one token behind the
# prompt, greedy or sampled, and its first token has the law of the second one. What follows is right
# given that token, so that the text reads well and acceptance rates are as they should be. Here the
# draft model is the target itself, so that nothing but the missing token can differ.
#
# Seen with litgpt 0.5.13, torch 2.13.0 on a CPU, a model of one block with seeded weights:
#   plain, greedy:       [27, 23, 7, 3, 20, 28, 2, 19]
#   speculative, greedy: [23, 7, 3, 20, 28, 2, 19, 2]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 torch==2.13.0 litgpt==0.5.13
"$place/env/bin/python" -W ignore - <<'PYTHON'
import copy
from importlib.metadata import version

import torch
from litgpt import GPT, Config
from litgpt.generate import base, speculative_decoding

print("litgpt", version("litgpt"), "torch", torch.__version__)
torch.manual_seed(0)
config = Config(
    block_size=64, padded_vocab_size=32, n_layer=1, n_head=2, n_embd=32, intermediate_size=64
)
target = GPT(config).eval()
with torch.no_grad():
    target.lm_head.weight.mul_(20)  # logits of a deviation of about 2
draft = copy.deepcopy(target)
prompt = torch.tensor([3, 1, 4])


def text(write, *models, **how):
    """Return what is written after the prompt, greedily."""
    for model in models:
        model.max_seq_length = 64
        model.set_kv_cache(batch_size=1)
    found = write(*models, prompt, max_returned_tokens=11, temperature=0.0, **how)
    return (found[0] if isinstance(found, tuple) else found)[len(prompt):].tolist()


plain = text(base.generate, target)
speculative = text(speculative_decoding.generate, draft, target, speculative_k=2)
print("plain, greedy:      ", plain)
print("speculative, greedy:", speculative)
assert speculative[:7] == plain[1:] and speculative[0] != plain[0]
PYTHON
