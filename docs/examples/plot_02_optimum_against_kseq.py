"""
Optimum against K-SEQ
=====================

K-SEQ tries the drafts in turn, and reaches at least 1 − 1/e of the optimum. How much of the rest is
there to win depends on the pair: here on pairs of Dirichlet distributions that agree more or less.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

rng = np.random.default_rng(0)
noise = rng.dirichlet(np.full(1000, 0.05), size=(2, 200))
agreement = rng.uniform(0, 1, size=(200, 1))
target = noise[0]
draft = agreement * target + (1 - agreement) * noise[1]
problem = otm.Problem(
    draft=draft, target=target, law=otm.IID(1)
)  # two hundred rows at once

ks = (1, 2, 4, 8)
optimum = otm.optimal_acceptance_curve(problem, k=ks)
kseq = otm.acceptance_curve(otm.KSeq(), problem, k=ks)

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for i, k in enumerate(ks[1:], start=1):
        axes.plot(
            optimum[i],
            optimum[i] - kseq[i],
            drawing.MARKERS[i],
            color=drawing.PALETTE[i],
            ms=4,
            label=f"k = {k}",
        )
    axes.set(xlabel="best acceptance of any lossless verifier", ylabel="what K-SEQ leaves")
    axes.legend()

# %% Largest and mean loss, and the share of the optimum that K-SEQ reached at worst beside what is
# proved:

for i, k in enumerate(ks):
    lost, worst = optimum[i] - kseq[i], (kseq[i] / optimum[i]).min()
    print(
        f"k = {k}: largest {lost.max():.4f}, mean {lost.mean():.4f}; reached {worst:.4f} ≥ "
        f"{otm.bounds.kseq_factor(k):.4f}"
    )
