"""
Audit of a broken verifier
==========================

The commonest mistake: after a rejection the token is drawn from the target without the drafted
token, instead of from (q − p)₊. Its output looks right, and no test of shapes or of temperature 0
sees it. The audit integrates the code over its uniforms and over every draft: the law that comes
out is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm import audit
from otm._display import drawing


def verify(draft, target, drafts, uniforms):
    x = int(drafts[0])
    if uniforms[0] * draft[x] < target[x]:
        return x, True
    residual = np.where(np.arange(len(target)) == x, 0.0, target)
    return int(
        np.searchsorted(np.cumsum(residual / residual.sum()), uniforms[1], side="right")
    ), False


problem = otm.Problem(
    draft=[0.6, 0.2, 0.15, 0.05], target=[0.25, 0.4, 0.15, 0.2], law=otm.IID(1)
)
found = audit.exact(verify, problem)
print(found.verdict, "total variation", round(float(found.total_variation), 6))

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    tokens = np.arange(4)
    axes.bar(
        tokens - 0.2,
        np.asarray(problem.target),
        0.4,
        color="black",
        label="the target's law",
    )
    axes.bar(
        tokens + 0.2,
        np.asarray(found.law),
        0.4,
        color=drawing.PALETTE[1],
        hatch="//",
        label="what comes out",
    )
    axes.set(xlabel="token", ylabel="probability", xticks=tokens)
    axes.legend()

# %%
# The remedy, audited the same way:


def mended(draft, target, drafts, uniforms):
    x = int(drafts[0])
    if uniforms[0] * draft[x] < target[x]:
        return x, True
    residual = np.maximum(target - draft, 0.0)
    return int(
        np.searchsorted(np.cumsum(residual / residual.sum()), uniforms[1], side="right")
    ), False


print(audit.exact(mended, problem).verdict)
