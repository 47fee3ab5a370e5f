"""
Partial logits
==============

Engines log the likely tokens only. Certified intervals say what is known for sure: they hold for
every completion of what was not logged, and shrink as more tokens are.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

rng = np.random.default_rng(3)
logits = 3 * rng.normal(size=400)
draft, target = (np.exp(z - z.max()) for z in (logits + rng.normal(size=400), logits))
draft, target = draft / draft.sum(), target / target.sum()


def top(probabilities, m):
    tokens = np.argsort(-probabilities)[:m]
    return otm.partial.TopTokens(tokens=tokens, probabilities=probabilities[tokens])


ms = (5, 10, 20, 50, 100, 200)
with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for i, k in enumerate((1, 2, 4)):
        truth = otm.optimal_acceptance(
            otm.Problem(draft=draft, target=target, law=otm.IID(k))
        )
        ends = [
            otm.partial.optimal_acceptance(
                otm.partial.PartialPair(
                    draft=top(draft, m), target=top(target, m), num_tokens=400
                ),
                k=[k],
            )
            for m in ms
        ]
        low, high = (
            [float(end.lower[0]) for end in ends],
            [float(end.upper[0]) for end in ends],
        )
        axes.fill_between(ms, low, high, color=drawing.PALETTE[i], alpha=0.25, lw=0)
        axes.plot(
            ms, low, color=drawing.PALETTE[i], marker=drawing.MARKERS[i], label=f"k = {k}"
        )
        axes.plot(ms, high, color=drawing.PALETTE[i], marker=drawing.MARKERS[i])
        axes.axhline(truth, color="black", lw=0.8, ls=":")
        print(
            f"k = {k}: {low[3]:.4f} ≤ {truth:.4f} ≤ {high[3]:.4f} from the {ms[3]} likeliest "
            "tokens of 400"
        )
    axes.set(
        xscale="log", xlabel="tokens known of each model", ylabel="best acceptance, between"
    )
    axes.legend(loc="lower right")
