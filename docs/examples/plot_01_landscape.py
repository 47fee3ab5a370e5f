"""
The landscape
=============

Lossless verifiers, under three ways to draw the drafts from one drafter. The optimum depends on the
draft law; a verifier can be at its law's optimum and still below another law's.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

draft, target = np.random.default_rng(2).dirichlet(np.full(6, 0.6), size=2)
problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
laws = {
    otm.IID: [otm.KSeq(), otm.RecursiveRejection(), otm.ListRace(), otm.NaiveTree()],
    otm.WithoutReplacement: [otm.RecursiveRejection(), otm.Race(), otm.Naive()],
    otm.Greedy: [otm.Naive()],
}

# %% One panel for each draft law: black is the law's optimum, which no lossless verifier of that
# law exceeds.

with drawing.style():
    canvas, panels = plt.subplots(
        1, 3, figsize=(12.5, 3.8), sharey=True, layout="constrained"
    )
    for axes, (law, verifiers) in zip(panels, laws.items(), strict=True):
        otm.plot.curves(
            problem.with_law(law(2)), verifiers=verifiers, k=range(1, 5), ax=axes
        )
        axes.set_title(law.title)

# %%
# The drafts' law is worth as much as the verifier: the optimum of each law with three drafts.

for law in laws:
    print(f"{law.title:24} {otm.optimal_acceptance(problem.with_law(law(3))):.4f}")
