"""A verifier that takes raw logits and applies temperature, top-k, top-p or min-p itself: ``otm
audit FILE.py``.

`verify(draft_logits, target_logits, drafts, uniforms, temperature)` gets logits (V,), or (γ, V) and
(γ + 1, V) for a block. What it should do with them stands in `LogitCandidate` below; each
temperature is audited, 0 is greedy. A verifier without the last argument: ``otm audit FILE:function
--mode logits --temperatures 0.7``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.audit import LogitCandidate


def verify(
    draft_logits: Any, target_logits: Any, drafts: Any, uniforms: Any, temperature: float
) -> int:
    """Put the verifier here; this one is speculative sampling after temperature and top-k."""
    p, q = _processed(draft_logits, temperature), _processed(target_logits, temperature)
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x
    rest = np.cumsum(np.maximum(q - p, 0.0))
    return int(np.searchsorted(rest / rest[-1], uniforms[-1], side="right"))


def _processed(logits: Any, temperature: float) -> Any:
    if temperature == 0.0:
        return np.eye(len(logits))[np.argmax(logits)]
    kept = np.argsort(-logits, kind="stable")[:3]
    weights = np.zeros(len(logits))
    weights[kept] = np.exp((logits[kept] - logits.max()) / temperature)
    return weights / weights.sum()


candidate = LogitCandidate(
    verify, name="logits", top_k=3, temperatures=(1.0, 0.7, 0.0), num_uniforms=lambda k, v: 2
)
