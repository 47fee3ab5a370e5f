"""
A public model
==============

The best acceptance along a text of SmolLM2-135M-Instruct with the draft that was distilled for it.
The model is not part of the repository: `make public-model` fetches it once. Where it is absent
this page says so and shows the shipped pair instead.
"""

import matplotlib.pyplot as plt
import torch

import otm
from analysis.models.pair import load_pair
from analysis.models.public import converted_folder
from otm._display import drawing

TEXT = (
    "The verifier looks at what the draft model proposed, and keeps every token that the large "
    "model could have written itself."
)
public = (converted_folder("smollm2") / "config.json").is_file()
if not public:
    print(
        "NOT SHOWN: the public model is not on this machine (`make public-model`); below is the "
        "pair in the repository"
    )
pair = load_pair(target="smollm2" if public else None, device="cpu")

# %% Both models' distributions at every position of the text, and the best acceptance of one, two
# and four drafts there:

draft, target = (
    otm.from_logits(logits[0].double())
    for logits in pair.logits(torch.tensor([pair.encode(TEXT)]))
)
problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
best = otm.optimal_acceptance_curve(problem, k=(1, 2, 4))
kseq = otm.acceptance_curve(otm.KSeq(), problem, k=(1, 2, 4))

with drawing.style():
    canvas, axes = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
    for i, k in enumerate((1, 2, 4)):
        axes.plot(
            best[i],
            color=drawing.PALETTE[i],
            marker=drawing.MARKERS[i],
            ms=4,
            label=f"k = {k}: mean {best[i].mean():.3f}",
        )
    axes.set(
        xlabel="position",
        ylabel="best acceptance",
        title=f"V = {problem.num_tokens:,}" + ("" if public else ", the shipped pair"),
    )
    axes.legend()

# %%
# In the mean over the text:

for i, k in enumerate((1, 2, 4)):
    print(f"k = {k}: optimum {best[i].mean():.4f}, K-SEQ {kseq[i].mean():.4f}")
