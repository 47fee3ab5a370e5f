"""
Block against token
===================

A drafted sequence can be verified token by token, or as a block. Both are lossless; the block keeps
more, and nothing keeps more than the block: the best step, certified by cuts, is the same number.
"""

import matplotlib.pyplot as plt
import numpy as np

from otm._display import drawing
from otm.sequence import (
    BlockVerification,
    SpeculativeSampling,
    ZerothOrder,
    best_step,
    expected_step,
)

draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
models = {"draft": draft, "target": target, "context": []}
lengths = np.arange(1, 9)
token = [
    expected_step(SpeculativeSampling(int(n)), **models).block_efficiency for n in lengths
]
block = [
    expected_step(BlockVerification(int(n)), **models).block_efficiency for n in lengths
]
best = [float(best_step(BlockVerification(int(n)), **models).value) for n in lengths[:4]]

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.plot(lengths, block, color="black", marker="o", label="block verification")
    axes.plot(
        lengths,
        token,
        color=drawing.PALETTE[1],
        ls="--",
        marker="s",
        label="token by token",
    )
    axes.plot(
        lengths[:4],
        best,
        "x",
        color=drawing.PALETTE[0],
        ms=9,
        label="best of any lossless scheme (certified)",
    )
    axes.set(xlabel="drafted tokens γ", ylabel="tokens per call of the target")
    axes.legend()

# %%
# Expected accepted drafts on this pair, as fractions of a whole:

for n in (1, 2, 3):
    print(
        n, round(token[n - 1] - 1, 6), round(block[n - 1] - 1, 6), round(best[n - 1] - 1, 6)
    )
