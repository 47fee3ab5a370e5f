#!/usr/bin/env bash
# Where yunshu's verifier rejects a sampled draft, it draws the next token from the target's own law.
#
# It is handed the draft's log-probability of each drafted token, not the draft's law, and keeps a
# draft with min(1, p/q) of these. After a rejection the token should be drawn from what the target
# has beyond the draft; it is drawn from the target, and the code says that this is still correct. A
# token that the draft prefers then has two chances, as draft and as replacement.
#
# Draft (3/4, 1/4) and target (1/4, 3/4), one draft: token 0 is kept with 3/4 * 1/3, and comes out of
# a rejection with 1/2 * 1/4 more: 3/8 where it should be 1/4. The share is of 4,000 calls, with a
# deviation below 0.008.
#
# Seen with yunshu 0.1.5, mlx 0.32.4 on a CPU:
#   token 0 comes out with 0.358, the target has 0.250
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 "mlx[cpu]==0.32.4"
# its servers and models are not needed, nor is Python 3.13 for what is run
"$place/env/bin/python" -m pip install --quiet --no-deps --ignore-requires-python yunshu==0.1.5
"$place/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import mlx.core as mx
import numpy as np
from yunshu_engine import spec_draft_verifier

CALLS = 4_000
print("yunshu", version("yunshu"), "mlx", version("mlx"))
rng = np.random.default_rng(0)
mx.random.seed(0)
spec_draft_verifier._prob_rng.seed(0)
draft, target = np.array([0.75, 0.25]), np.array([0.25, 0.75])
rows, share = mx.array(np.log([target, target])), 0.0
for token in rng.choice(2, p=draft, size=CALLS):
    given = rows, [int(token)], [float(np.log(draft[token]))], 1
    kept, _, last = spec_draft_verifier._probabilistic_accept(*given)
    share += ([*kept, last][0] == 0) / CALLS
print(f"token 0 comes out with {share:.3f}, the target has {target[0]:.3f}")
assert abs(share - 0.375) < 0.04
PYTHON
