"""
K from an engine's log
======================

vLLM's counters, as its server gives them. How many drafts a step are worth their cost? The answer
depends on what a draft and a call of the target cost, and comes with an interval.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

from otm._display import drawing
from otm.engines import CostSurface, plan_lengths, read_acceptance

accepted = (820, 610, 440, 300, 190)  # of a thousand steps of five drafts
lines = [
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}'
    for i, n in enumerate(accepted)
]
lines += [
    "vllm:spec_decode_num_drafts_total 1000",
    "vllm:spec_decode_num_draft_tokens_total 5000",
]
lines += [f"vllm:spec_decode_num_accepted_tokens_total {sum(accepted)}"]
with TemporaryDirectory() as folder:
    path = Path(folder) / "metrics.txt"
    path.write_text("\n".join(lines))
    record = read_acceptance(path)
print(record.form, "tokens a step:", 1 + record.survival.survival.sum())

# %%
# A target call of 20 ms, drafts that cost from 1 % to 40 % of it:

with drawing.style():
    canvas, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for i, cost in enumerate((0.01, 0.05, 0.1, 0.2, 0.4)):
        (choice,) = plan_lengths(
            record, CostSurface.flat(draft=0.020 * cost, target=0.020)
        ).choices
        tokens = 1 + np.cumsum(record.survival.survival)
        lengths = np.arange(1, 6)
        axes.plot(
            lengths,
            tokens / (1 + cost * lengths),
            color=drawing.PALETTE[i],
            marker=drawing.MARKERS[i],
            label=f"{cost:.0%}",
        )
        axes.plot(
            [choice.length], [choice.over_plain.value], "o", mfc="none", mec="black", ms=13
        )
        print(
            f"a draft costs {cost:4.0%} of a call: {choice.length} drafts, "
            f"{choice.over_plain.value:.2f} × plain, {choice.verdict}"
        )
    axes.axhline(1, color="black", lw=0.8)
    axes.set(xlabel="drafts a step", ylabel="speed, × plain decoding", xticks=lengths)
    axes.legend(title="a draft costs, of a target call")
