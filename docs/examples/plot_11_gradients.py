"""
Gradients of the optimum
========================

The best acceptance of k drafts passes gradients on: a drafter can be trained on it. A toy drafter
that cannot copy its target, a softmax with four parameters, is fitted to the KL divergence and to
the acceptance of four drafts.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import otm
from otm._display import drawing

torch.manual_seed(0)
tokens = 24
target = torch.softmax(1.8 * torch.randn(tokens, dtype=torch.float64), dim=0)
features = torch.randn(tokens, 4, dtype=torch.float64)


def fitted(loss, steps=50):
    weights = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(torch.softmax(features @ weights, dim=0)).backward()
        optimiser.step()
    return torch.softmax(features @ weights, dim=0).detach()


def accepted(draft, k):
    return otm.optimal_acceptance(otm.Problem(draft=draft, target=target, law=otm.IID(k)))


by_divergence = fitted(lambda draft: (target * (target / draft).log()).sum())
by_acceptance = fitted(lambda draft: 1 - accepted(draft, 4))

ks = np.arange(1, 9)
with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for i, (name, draft) in enumerate(
        {"KL divergence": by_divergence, "acceptance of 4 drafts": by_acceptance}.items()
    ):
        axes.plot(
            ks,
            [float(accepted(draft, int(k))) for k in ks],
            color=drawing.PALETTE[i],
            marker=drawing.MARKERS[i],
            label=name,
        )
        print(
            f"{name:24}",
            {int(k): round(float(accepted(draft, int(k))), 4) for k in (1, 4, 8)},
        )
    axes.axvline(4, color="black", lw=0.8, ls=":")
    axes.set(xlabel="drafts k", ylabel="best acceptance")
    axes.legend(title="drafter trained on")
