#!/usr/bin/env bash
# The assistant model of transformers' assisted generation drafts at the square of the temperature.
#
# generate(..., temperature=T, assistant_model=...) hands the assistant the logits processors of the
# request and, within its own generate, the request's temperature again: drafts are drawn from
# softmax(z/T/T). Verification uses the law that they are drawn from, so the text keeps the target's
# law; but what is accepted is the overlap of the target at T with the draft at T*T. A twin of the
# target, of which every draft would be accepted if it drafted at T, is rejected at any T but 1.
# One draft a step, a constant schedule and no confidence threshold leave nothing else to decide.
#
# Seen with transformers 5.23.0, torch 2.13.0 on a CPU, a Llama of one block with seeded weights:
#   T 1.0: a twin has 1.000 of its drafts accepted
#   T 0.7: a twin has 0.935 of its drafts accepted; the overlap with T is 1, with T*T 0.938
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 torch==2.13.0 transformers==5.23.0
"$place/env/bin/python" - <<'PYTHON'
import copy

import torch
import transformers

transformers.logging.set_verbosity_error()
print("transformers", transformers.__version__, "torch", torch.__version__)
TOKENS = 1_500


def assisted(temperature):
    """Return the share of a twin's drafts that are accepted, and its overlap at T and at T*T."""
    torch.manual_seed(0)
    target = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=2 * TOKENS,
            bos_token_id=1,
            eos_token_id=None,
            pad_token_id=0,
        )
    ).eval()
    with torch.no_grad():
        target.lm_head.weight.mul_(20)  # logits of a deviation of about 2
    twin, calls = copy.deepcopy(target), 0
    twin.generation_config.num_assistant_tokens = 1
    twin.generation_config.num_assistant_tokens_schedule = "constant"
    twin.generation_config.assistant_confidence_threshold = 0.0
    forward = target.forward

    def counted(*args, **kwargs):
        nonlocal calls
        calls += 1
        return forward(*args, **kwargs)

    target.forward = counted
    prompt = torch.tensor([[1, 5, 6]])
    text = target.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=TOKENS,
        assistant_model=twin,
    )
    written = text.shape[1] - prompt.shape[1]
    with torch.no_grad():
        logits = forward(text).logits[0, prompt.shape[1] - 1 : -1].double()
    law, again = (logits.div(temperature**power).softmax(-1) for power in (1, 2))
    return (written - calls) / calls, torch.minimum(law, again).sum(-1).mean().item()


for temperature in (1.0, 0.7):
    share, overlap = assisted(temperature)
    print(f"T {temperature}: a twin has {share:.3f} of its drafts accepted; "
          f"the overlap with T is 1, with T*T {overlap:.3f}")
    # five standard errors of a share of some 800 steps
    assert abs(share - overlap) < 5 * (0.25 / 800) ** 0.5
    assert (share == 1.0) == (temperature == 1.0)
PYTHON
