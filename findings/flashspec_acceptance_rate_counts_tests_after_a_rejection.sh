#!/usr/bin/env bash
# The acceptance rate that flashspec's rejection_sample returns counts drafts that were thrown away.
#
# It is called the mean fraction of draft tokens accepted, and is the mean of all tests of a block,
# those behind the first rejection too. Drafts there are not written, whatever their test says. With
# gamma drafts of probability a each the rate is a, not (a + a^2 + ... + a^gamma)/gamma: the number
# of tokens a step that it suggests is too high. typical_sample of the same package counts the drafts
# before the first rejection, under the same name and description, so the two cannot be compared.
#
# Three drafts, the first of target probability 0, the others certain in both models.
#
# Seen with flashspec 0.3.1, torch 2.13.0:
#   rejection_sample: 0 drafts kept, rate 0.667
#   typical_sample: 0 drafts kept, rate 0.000
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet \
  numpy==2.4.6 torch==2.13.0 transformers==5.23.0 flashspec==0.3.1
"$place/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import torch
from flashspec.sampling.rejection import rejection_sample
from flashspec.sampling.typical import typical_sample

print("flashspec", version("flashspec"), "torch", torch.__version__)
torch.manual_seed(0)
draft = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]]).log()
target = torch.tensor([[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]]).log()
tokens = torch.tensor([[0, 1, 1]])
_, first, rejection = rejection_sample(tokens[:, :0], draft, target, tokens, 3)
print(f"rejection_sample: {first.item()} drafts kept, rate {rejection:.3f}")
_, other, typical = typical_sample(draft, target, tokens, 3)
print(f"typical_sample: {other.item()} drafts kept, rate {typical:.3f}")
assert first.item() == other.item() == 0
assert abs(rejection - 2 / 3) < 1e-6 and typical == 0.0
PYTHON
