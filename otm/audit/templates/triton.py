"""A Triton kernel, interpreted on the CPU, so that it is audited without a GPU: ``otm audit
FILE.py``.

`TRITON_INTERPRET=1` must be set before Triton is imported, which `compiled` sees to; tensors stay
on the CPU. Needs Triton and torch; without them the audit ends with what to install. What the
interpreter computes is what the kernel says, in NumPy: races between its programs, and what a
compiler makes of it, are not seen.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from otm.audit import BlockBatchCandidate

tl: Any = None
"""`triton.language`, which the interpreter looks for among the names of this file."""


@functools.cache
def compiled() -> Any:
    """Return the kernel, once Triton is there; import your own here instead."""
    global tl  # noqa: PLW0603 (see above)
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton  # noqa: PLC0415
        import triton.language as tl  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"Triton kernels need Triton, interpreted ones too ({error}): pip install triton torch"
        ) from error

    @triton.jit
    def accept(draft, target, ids, coins, kept, gamma, num_tokens):  # type: ignore[no-untyped-def]
        """Count for each row how many drafts pass one after the other."""
        row = tl.program_id(0)
        going, count = 1, 0
        for i in range(gamma):
            x = tl.load(ids + row * gamma + i)
            p = tl.load(draft + (row * gamma + i) * num_tokens + x)
            q = tl.load(target + (row * (gamma + 1) + i) * num_tokens + x)
            going = going * (tl.load(coins + row * gamma + i) * p < q).to(tl.int32)
            count += going
        tl.store(kept + row, count)

    return accept


def verify(draft: Any, target: Any, drafts: Any, rng: np.random.Generator) -> Any:
    """Launch it as the engine does: draft (B, γ, V), target (B, γ + 1, V), drafts (B, γ) -> tokens
    (B, γ + 1), −1 after the end.
    """
    accept = compiled()
    import torch  # noqa: PLC0415

    size, gamma, num_tokens = draft.shape
    p, q = (torch.from_numpy(np.ascontiguousarray(laws)).float() for laws in (draft, target))
    ids, coins = (
        torch.from_numpy(np.ascontiguousarray(drafts)),
        torch.from_numpy(rng.random((size, gamma))).float(),
    )
    kept = torch.zeros(size, dtype=torch.int32)
    accept[(size,)](p, q, ids, coins, kept, gamma, num_tokens)
    rows, last = np.arange(size), kept.numpy().astype(int)
    residual = np.maximum(target[rows, last] - draft[rows, np.minimum(last, gamma - 1)], 0.0)
    rest = np.where((last < gamma)[:, None], residual, target[rows, last])
    found = np.where(np.arange(gamma + 1) < last[:, None], np.pad(drafts, ((0, 0), (0, 1))), -1)
    found[rows, last] = (rest / rng.exponential(size=rest.shape)).argmax(axis=1)
    return found


candidate = BlockBatchCandidate(verify, name="triton")
