"""What an engine copies: batched code in torch that never waits for its device.

`step`: what every verification takes and returns. `vocabulary`: who reads the rows, torch, or
Triton (`triton_rows`), and on how many devices. `chain`: one drafted sequence, token by token or
as a block. `grid`, `scores`, `vertices`, `block_kseq`: K sequences. `trees`, `traversal`: trees,
from the root down and from the leaves up. `sglang`, `vllm`: these as the engines call them.
`noise`: the tree on shared noise, from the noise to the tokens that match. `generation`,
`transformers`: K sequences, and that noise, in `generate`.
"""
