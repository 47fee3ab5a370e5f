"""A whole generation loop: ``otm audit FILE.py``.

`candidate(draft, target, request)` returns `request.length` new tokens for each prompt, or fewer up
to and with `request.end`. The models are called as real ones, `model(input_ids, attention_mask,
cache, use_cache)` -> `.logits` (raw) and `.cache`, in NumPy, or in torch if the tokens are. Caches,
padding, lengths that differ in a batch, and processing of logits are what this audit is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.logits import Processing


def candidate(draft: Any, target: Any, request: Any) -> list[list[int]]:
    """Put the loop here; this one drafts one token, row by row, with a cache of the target that is
    cropped after a rejection.
    """
    process = Processing(
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
    )
    found = []
    for ids, mask in zip(request.input_ids, request.attention_mask, strict=True):
        text = ids[mask == 1].tolist()
        start, cache = len(text), None
        while len(text) < start + request.length and request.end not in text[start:]:
            p = np.asarray(process(draft(np.asarray([text])).logits[0, -1]))
            x = _drawn(p, request.rng)
            seen = 0 if cache is None else cache.length
            output = target(np.asarray([[*text[seen:], x]]), cache=cache)
            cache = output.cache
            q, after = (np.asarray(process(row)) for row in output.logits[0, -2:])
            if request.rng.random() * p[x] < q[x]:
                text += [x, _drawn(after, request.rng)]
            else:
                cache.crop(len(text))
                text.append(_drawn(np.maximum(q - p, 0.0), request.rng))
        new = text[start : start + request.length]
        found.append(new[: new.index(request.end) + 1] if request.end in new else new)
    return found


def _drawn(weights: Any, rng: np.random.Generator) -> int:
    return int(rng.choice(len(weights), p=weights / weights.sum()))
