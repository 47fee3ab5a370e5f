"""
The overlap curve
=================

For i.i.d. drafts everything follows from one concave curve, H(t) = Σ min(q, t p). At t = 1 stands
the overlap, what a single draft accepts. Further along sit recursive rejection, K-SEQ's γ*, and the
optimum: the height of each point is its acceptance.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

draft, target = otm.examples.zipf(10), otm.examples.zipf(10)[::-1].copy()
problem = otm.Problem(draft=draft, target=target, law=otm.IID(4))

with drawing.style():
    canvas, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained")
    otm.plot.pair(draft=draft, target=target, ax=left)
    otm.plot.overlap(problem, ax=right)

# %% The optimum is 1 + min Q(T) − P(T)^k over sets T of tokens with the smallest ratios q/p: only V
# cuts need to be tried. The one that binds, for more and more drafts:

for k in (2, 4, 8):
    cut = otm.optimal_cut(problem.with_law(otm.IID(k)))
    print(
        k,
        round(otm.optimal_acceptance(problem.with_law(otm.IID(k))), 6),
        np.flatnonzero(cut).tolist(),
    )
