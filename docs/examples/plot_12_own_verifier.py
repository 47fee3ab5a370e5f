"""
Your own verifier
=================

A function becomes a verifier: its exact law is found by integrating it over its uniforms, and it
goes wherever a verifier goes. Here an idea that many have had: put every draft to the test of a
single one.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing


def eager(draft, target, drafts, uniforms):
    """Take the first draft if it passes the usual test, else the second if that does, else the
    residual.
    """
    for x, u in zip(drafts, uniforms, strict=False):
        if u * draft[x] < target[x]:
            return x, True
    residual = np.maximum(target - draft, 0)
    return int(
        np.searchsorted(np.cumsum(residual / residual.sum()), uniforms[-1], side="right")
    ), False


mine = otm.from_callable(eager, law=otm.IID)
problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=otm.IID(2))
print(
    "acceptance",
    round(otm.acceptance(mine, problem), 6),
    "optimum",
    round(otm.optimal_acceptance(problem), 6),
)

# %% More than the optimum: that can only be a verifier which is not lossless. What comes out,
# beside the target; and on the right the joint law of drafts and output under recursive rejection,
# which is lossless:

output = otm.lossy.output_law(mine, problem)
print(
    np.round(output, 4),
    "total variation",
    round(0.5 * np.abs(output - problem.target).sum(), 6),
)

with drawing.style():
    canvas, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.9), layout="constrained")
    tokens = np.arange(3)
    left.bar(tokens - 0.2, problem.target, 0.4, color="black", label="target")
    left.bar(
        tokens + 0.2, output, 0.4, color=drawing.PALETTE[1], hatch="//", label="output"
    )
    left.set(xlabel="token", ylabel="probability", xticks=tokens)
    left.legend()
    otm.plot.coupling(otm.coupling(otm.RecursiveRejection(), problem), ax=right)

# %%
# Recursive rejection moves the target after each refusal, and is lossless:

print(round(otm.acceptance(otm.RecursiveRejection(), problem), 6))
