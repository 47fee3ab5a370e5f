#!/usr/bin/env bash
# Capped hierarchical speculative decoding of sequential-speculative-decoding never rejects the first
# of two drafts for its own probability.
#
# The ratio that keeps the whole block is computed for gamma - 1 drafts where it should be for gamma,
# since the function counts tokens and is handed an index; the branches of the backward scan are
# shifted by one position as well. With two drafts the first token has the draft's law, not the
# target's. The standard and the naive hierarchical step of the same package have the target's, and
# so does this one with a single draft, the case that a quick test would take.
#
# Draft (1/2, 1/2) and target (1/4, 3/4) at every position: the first token should be 1 in 3/4 of the
# texts. Each share is of 4,000 steps, with a deviation below 0.008.
#
# Seen with sequential-speculative-decoding 0.1.1, torch 2.13.0:
#   standard, 2 drafts: first token 1 with 0.743
#   naive, 2 drafts: first token 1 with 0.756
#   capped, 1 draft: first token 1 with 0.752
#   capped, 2 drafts: first token 1 with 0.514
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet \
  numpy==2.4.6 torch==2.13.0 transformers==5.23.0 sequential-speculative-decoding==0.1.1
"$place/env/bin/python" - <<'PYTHON'
import types
from importlib.metadata import version

import torch
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

STEPS = 4_000


def model(law):
    """Return a causal model with one law at every position."""
    row = torch.tensor(law).log()
    return lambda ids: types.SimpleNamespace(logits=row.expand(*ids.shape, 2))


print("sequential-speculative-decoding", version("sequential-speculative-decoding"),
      "torch", torch.__version__)
torch.manual_seed(0)
draft, target, prompt = model([0.5, 0.5]), model([0.25, 0.75]), torch.tensor([[0]])
cases = {
    "standard, 2 drafts": (standard_speculative_step, 2, 0.75),
    "naive, 2 drafts": (naive_hsd_step, 2, 0.75),
    "capped, 1 draft": (capped_hsd_step, 1, 0.75),
    "capped, 2 drafts": (capped_hsd_step, 2, 0.5),
}
for name, (step, gamma, expected) in cases.items():
    texts = [step(draft, target, prompt, gamma, 1.0, 1.0)[0] for _ in range(STEPS)]
    share = sum(text[0, 1].item() for text in texts) / STEPS
    print(f"{name}: first token 1 with {share:.3f}")
    assert abs(share - expected) < 0.04
PYTHON
