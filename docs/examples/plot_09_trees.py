"""
Optimal trees
=============

Given how often the i-th child of a vertex is accepted, the best tree of every size: it grows where
the product of acceptances is largest. Beside it, the tokens per call of a chain and of a full
binary tree with as many vertices.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing
from otm.trees import TreeShape, acceptance_vector, optimal_tree, tree_expected_tokens

draft = otm.examples.zipf(30)
problem = otm.Problem(draft=draft, target=np.roll(draft, 1), law=otm.WithoutReplacement(3))
acceptance = acceptance_vector(otm.RecursiveRejection(), problem)
print(
    "the first, second, third child is accepted with probability", np.round(acceptance, 4)
)

# %%
# The best tree of sixteen vertices:

with drawing.style():
    canvas, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    otm.plot.tree(optimal_tree(acceptance, num_nodes=16), ax=axes)

# %%
# Tokens per call of the target, by the number of drafted vertices:

sizes = np.arange(1, 31)
best = [optimal_tree(acceptance, num_nodes=int(n)).expected_tokens for n in sizes]
chain = [tree_expected_tokens(acceptance, shape=TreeShape.chain(int(n))) for n in sizes]
binary = [
    tree_expected_tokens(
        acceptance,
        shape=TreeShape([(i - 1) // 2 + 1 if i > 1 else 0 for i in range(int(n))]),
    )
    for n in sizes
]

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.plot(sizes, best, color="black", label="optimal tree")
    axes.plot(sizes, binary, color=drawing.PALETTE[1], ls="--", label="binary tree")
    axes.plot(sizes, chain, color=drawing.PALETTE[0], ls=":", label="chain")
    axes.set(xlabel="drafted vertices", ylabel="tokens per call of the target")
    axes.legend()
