#!/usr/bin/env bash
# Self-speculative decoding of csaq-quant compares each draft with the law of the position after it.
#
# The pass that verifies reads the last token and the drafts, so its row k is the law of draft k. The
# engine takes row k + 1, the law after that draft. A greedy text is then not the greedy text of the
# model that verifies, and a sampled one has another law, unless the law does not depend on the last
# token. Besides, the engine reads no prompt but its last token. Here both models write one greedy
# text, the speculative text is another, and it is the same after two prompts that end alike.
#
# Seen with csaq-quant 0.6.0, transformers 4.57.1, torch 2.13.0 on a CPU, a Llama of one block:
#   after [5]: greedy [29, 8, 23, 8, 23, 8], quantized [29, 8, 23, 8, 23, 8], speculative [8, 8, 8, 8, 8, 8]
#   after [1, 2, 3, 4, 5]: greedy [19, 9, 13, 15, 23, 22], quantized the same, speculative
#   [8, 8, 8, 8, 8, 8]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
# transformers 5 has other caches, which the engine cannot cut
"$place/env/bin/python" -m pip install --quiet \
  numpy==2.4.6 torch==2.13.0 transformers==4.57.1 csaq-quant==0.6.0
"$place/env/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import csaq
import torch
import transformers

print("csaq-quant", version("csaq-quant"), "transformers", transformers.__version__,
      "torch", torch.__version__)
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(
    transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
).eval()
with torch.no_grad():
    model.lm_head.weight.mul_(20)  # logits of a deviation of about 2
calibration = [{"input_ids": torch.randint(32, (1, 32))} for _ in range(4)]
model, info = csaq.quantize(model, calibration, verbose=False)
engine = csaq.CSAQInferenceEngine(model, info["causal_map"], verbose=False)
assert engine._hooks  # without them it writes no speculative text


def greedy(prompt):
    """Return six greedy tokens of the model as it is, without a cache."""
    text = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(6):
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], dim=1)
    return text[0, len(prompt):].tolist()


def speculative(prompt, lookahead):
    """Return six tokens of the engine at temperature 0."""
    ids = torch.tensor([prompt])
    how = {"speculative": True, "temperature": 0.0, "lookahead": lookahead, "max_new_tokens": 6}
    return engine.generate(ids, **how)[0][0, len(prompt):].tolist()


texts = []
for prompt in ([5], [1, 2, 3, 4, 5]):
    quantized = greedy(prompt)
    engine._swap_to_verify()
    plain = greedy(prompt)
    engine._swap_to_draft()
    one, four = (speculative(prompt, lookahead) for lookahead in (1, 4))
    print(f"after {prompt}: greedy {plain}, quantized {quantized}, speculative {one}")
    assert plain == quantized and one == four != plain
    texts.append(one)
assert texts[0] == texts[1]
PYTHON
