#!/usr/bin/env bash
# DynamicCache.crop of transformers 5.23 takes the number of tokens to drop, not the length to keep.
#
# Loops of speculative decoding roll their cache back with cache.crop(length). In 4.57 a positive
# number is the length that stays, and 0 empties the cache. In 5.23 a positive number is refused,
# and 0 drops nothing: a loop that keeps what a step accepted and computes crop(0) goes on with the
# rejected tokens in its cache, and is told nothing. Negative numbers drop so many in both.
#
# Seen with torch 2.13.0 on a CPU; lengths after a crop of a cache of five tokens:
#   transformers 4.57.1: crop(-2) 3, crop(3) 3, crop(0) 0
#   transformers 5.23.0: crop(-2) 3, crop(3) ValueError, crop(0) 5
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet numpy==2.4.6 torch==2.13.0
cat >"$place/crops.py" <<'PYTHON'
import sys

import torch
import transformers
from transformers import DynamicCache


def length_after(crop):
    """Crop a cache of five tokens and return what is left, or the name of the error."""
    cache = DynamicCache()
    keys = torch.arange(5.0).reshape(1, 1, 5, 1)
    cache.update(keys, keys, 0)
    try:
        cache.crop(crop)
    except ValueError as error:
        return type(error).__name__
    return cache.get_seq_length()


found = [length_after(crop) for crop in (-2, 3, 0)]
print("transformers", transformers.__version__, "torch", torch.__version__, "lengths", found)
seen = {"4.57.1": [3, 3, 0], "5.23.0": [3, "ValueError", 5]}
sys.exit(0 if found == seen[transformers.__version__] else "the behaviour has changed")
PYTHON
for version in 4.57.1 5.23.0; do
  "$place/env/bin/python" -m pip install --quiet "transformers==$version"
  "$place/env/bin/python" "$place/crops.py"
done
