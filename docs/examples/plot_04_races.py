"""
Races
=====

Draft and target each let their tokens race on the same clocks, and output who arrives first. The
verifier never sees p, and the output does not depend on the drafter at all; what that costs in
acceptance is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing

rng = np.random.default_rng(0)
draft, other = rng.dirichlet(np.full(50, 0.3), size=2)
share = np.linspace(0, 1, 21)[:, None]
target = share * draft + (1 - share) * other
draft = np.broadcast_to(draft, target.shape)
problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))

verifiers = [otm.Maximal(), otm.Race(), otm.MinHash()]
with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    total_variation = otm.divergences.total_variation(draft=draft, target=target)
    for i, verifier in enumerate(verifiers):
        axes.plot(
            total_variation,
            otm.acceptance(verifier, problem),
            color="black" if i == 0 else drawing.PALETTE[i],
            ls=drawing.LINES[i],
            label=str(verifier) + (" (needs p)" if i == 0 else ""),
        )
    bound = otm.bounds.poisson_representation_lower(problem)
    axes.plot(
        total_variation,
        bound,
        color=drawing.PALETTE[4],
        ls=":",
        label="race, proved lower bound",
    )
    axes.set(
        xlabel="total variation between draft and target", ylabel="acceptance, one draft"
    )
    axes.legend()

# %%
# With k i.i.d. drafts the list race keeps the property.

for k in (1, 2, 4):
    several = problem.with_law(otm.IID(k))
    print(
        k,
        otm.acceptance(otm.ListRace(), several, by="rule")[10].round(4),
        otm.optimal_acceptance(several)[10].round(4),
    )
