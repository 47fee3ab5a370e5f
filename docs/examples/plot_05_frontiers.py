"""
Frontiers of lossy verification
===============================

How much acceptance does a little distortion buy at best, and how far from that best are the rules
in use? Within a total variation the frontier is the optimum plus that variation; within a KL
divergence it is a curve that mentored decoding attains for one draft.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

draft, target = np.random.default_rng(1).dirichlet(np.full(20, 0.5), size=2)
problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
rules = [
    otm.Lenience(0.5),
    otm.TypicalAcceptance(),
    otm.Ensemble(0.2),
    otm.Cascade(),
    otm.TvOptimal(0.1),
    otm.Mentored(0.1),
]

with drawing.style():
    canvas, panels = plt.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained")
    for axes, by in zip(panels, ("tv", "kl"), strict=True):
        otm.plot.frontier(problem, by=by, verifiers=rules, ax=axes)

# %%
# The same as numbers, with what the best scheme of the same total variation would accept:

for rule in rules:
    moved = otm.lossy.distortion(rule, problem).total_variation
    accepted, best = otm.acceptance(rule, problem), otm.lossy.tv_frontier(problem, tv=moved)
    print(f"{rule.title:24} TV {moved:.4f}: accepts {accepted:.4f} of {best:.4f}")

# %%
# What a text of a hundred tokens betrays: the chance that the best detector, with one false alarm
# in a hundred texts of the target, finds the rule.

for rule in rules:
    law = otm.lossy.output_law(rule, problem)
    low, high = otm.lossy.composed(target=target, output=law, tokens=100).power(0.01)
    print(
        f"{rule.title:24} accepts {otm.acceptance(rule, problem):.4f}, found with {low:.2f}"
    )
