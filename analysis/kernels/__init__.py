"""Verification kernels for engines to copy: batched torch code that never waits for the device.

`step`: arguments and result of every verification. `vocabulary`: rows read by torch or by
Triton (`triton_rows`), on one or several devices. `chain`: one drafted sequence, token by token or
as a block. `grid`, `scores`, `vertices`, `block_kseq`: K sequences. `trees`, `traversal`: trees,
from the root down and from the leaves up. `sglang`, `vllm`: these as the engines call them.
`noise`: the tree on shared noise, from the noise to the tokens that match. `generation`,
`transformers`: K sequences, and that noise, in `generate`.
"""
