#!/usr/bin/env bash
# torch.multinomial draws a token of probability 0 from a float32 row that holds next to nothing.
#
# Siblings of a drafted tree are drawn without replacement: the tokens drawn so far are set to 0 and
# the next is drawn from what is left, which torch.multinomial takes without a sum of 1. At a low
# temperature the rest may be one subnormal number. One draw is the largest p/E with exponential E;
# the smallest subnormal over any E above 2 rounds to 0, all quotients are equal, and the first
# token is the answer, whatever its probability: with probability Pr(E > 2) = e^-2 = .1353. Any rule
# that divides by the draft's probability of its token then meets 0. Divided by its sum first, or in
# float64, the same row is drawn from rightly.
#
# Seen with torch 2.13.0 on a CPU:
#   torch 2.13.0+cpu
#   as it is: token 0, of probability 0, in 0.1383 of the draws; divided by its sum: 0.0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 torch==2.13.0
"$place/env/bin/python" - <<'PYTHON'
import torch

print("torch", torch.__version__)
torch.manual_seed(0)
left = torch.tensor([0.0, 0.0, 2.0**-149, 0.0])
assert left.sum() > 0
shares = [
    float((torch.multinomial(row.expand(20_000, -1), 1) == 0).double().mean())
    for row in (left, left / left.sum())
]
print(f"as it is: token 0, of probability 0, in {shares[0]:.4f} of the draws; "
      f"divided by its sum: {shares[1]}")
# five standard errors of 20,000 draws
assert abs(shares[0] - 2.718281828**-2) < 5 * (0.1353 * 0.8647 / 20_000) ** 0.5
assert shares[1] == 0.0
PYTHON
