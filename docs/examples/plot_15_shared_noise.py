"""
Trees on shared noise, and what a wrong scale costs
===================================================

A target that samples by argmax of log q + noise, with noise of seed and position, writes a text
that its drafter can look for: the tree holds the paths that are likely *on this noise*. One number
says how far the two models are apart. It is fitted on past steps; here over the scales, and beside
it the tree of the likeliest paths, with as many nodes.
"""

import matplotlib.pyplot as plt
import numpy as np

from otm._display import drawing
from otm.sequence import (
    LikeliestTree,
    NoiseTree,
    Sampled,
    SharedNoise,
    belief_rows,
    fit_scale,
    markov_pair,
    matched_tokens,
    noise_tokens,
)

SIZE, LENGTH = 16, 4
draft, target = markov_pair(
    40, similarity=0.7, concentration=0.3, rng=np.random.default_rng(3)
)
pair = {"draft": draft, "target": target, "context": [0]}

# %%
# What steps have decoded tells the scale: at each level the drafter's log p + g, and the token.

found = []
for seed in range(60):
    seeded = Sampled(np.random.default_rng(0), SharedNoise(seed))
    decoder = NoiseTree(SIZE, LENGTH)
    tree = decoder.draft(draft, (0,), seeded)
    found.append(belief_rows(tree, decoder.verify(tree, target.next, seeded)))
rows, tokens = (np.concatenate(parts) for parts in zip(*found, strict=True))
scale = fit_scale(rows, tokens)
print("scale:", scale)

# %%
# Tokens per call by scale, on noises that the fit has not seen:

noises = [SharedNoise(seed) for seed in range(1_000, 1_040)]
scales = 2.0 ** np.arange(-4, 3)
curve = [noise_tokens(NoiseTree(SIZE, LENGTH, s), **pair, noises=noises) for s in scales]
likeliest = matched_tokens(LikeliestTree(SIZE, LENGTH), **pair)[-1]

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.plot(scales, [one.value[-1] for one in curve], marker="o", label="on shared noise")
    axes.fill_between(
        scales,
        [one.low[-1] for one in curve],
        [one.high[-1] for one in curve],
        alpha=0.2,
        lw=0,
    )
    axes.axvspan(scale.low, scale.high, color="gray", alpha=0.3, label="fitted scale")
    axes.axhline(likeliest, color="black", ls="--", label="likeliest tree")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="scale", ylabel=f"tokens per call, {SIZE} nodes")
    axes.legend()
