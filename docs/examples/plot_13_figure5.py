"""
Figure 5: a real pair
=====================

Next-token distributions of two small models after the prompt of SpecTr's Figure 5, captured once
and kept in the repository.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

import otm
from otm._display import drawing

captured = Path(otm.__file__).parents[1] / "figures" / "data" / "figure5.json"
record = json.loads(captured.read_text(encoding="utf-8"))
draft, target = otm.normalise(record["draft"]), otm.normalise(record["target"])
names = [token.replace("\n", "⏎") for token in record["tokens"]]
problem = otm.Problem(draft=draft, target=target, law=otm.IID(2))
print(repr(record["prompt"]))

with drawing.style():
    canvas, (left, right) = plt.subplots(1, 2, figsize=(12.0, 4.4), layout="constrained")
    otm.plot.pair(draft=draft, target=target, tokens=names, ax=left)
    otm.plot.curves(
        problem, verifiers=[otm.KSeq(), otm.RecursiveRejection()], k=range(1, 11), ax=right
    )

# %%
# What the optimum saves with two drafts:

best, kseq = otm.optimal_acceptance(problem), otm.acceptance(otm.KSeq(), problem)
print(f"K-SEQ rejects {1 - kseq:.4f}, the optimum {1 - best:.4f}")
