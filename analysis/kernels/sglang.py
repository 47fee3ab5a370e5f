"""The verifications with the signature and the outputs of SGLang's sampling kernels.

SGLang calls one of several functions after the target's pass, all with these arguments, and reads
what they wrote::

    f(predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
      retrive_next_sibling, uniform_samples, uniform_samples_for_final_sampling, target_probs,
      draft_probs, threshold_single=1.0, threshold_acc=1.0, deterministic=True) -> None

`candidates`, both links, `uniform_samples` and `retrive_index`, the place of each node in
`predicts`, are `(B, n)`. Written are `accept_index` `(B, D + 1)`, places of the root and of the
accepted nodes, the rest left as it is; `predicts`, the token after each of them; and
`accept_token_num` `(B,)`, without the last token. A refused request (`analysis.kernels.step`) has
`accept_token_num` −1 and nothing else written.

The functions here are for chains (`chain_speculative_sampling`, `chain_block_speculative_sampling`:
links are not read and may be None), for trees without draft probabilities
(`tree_speculative_sampling_target_only`: `draft_probs` is not read), for trees of distinct children
with them (`tree_speculative_sampling` from the root down, `tree_traversal_sampling` from the
leaves up), and, made by `refined_score_sampling` and `block_kseq_sampling`, for K sequences.

Drafts, uniforms and the noise that both are made of must be drawn anew in every step, or keyed by
the step: all functions but `chain_speculative_sampling` and the two that go through a tree from the
root down look at drafts beyond the end of a step (docs/theory.md, "Noise by position"). SGLang's
own drafts are: `fast_sample` draws them as argmax p/E, with E from torch's generator.

Source: sgl-project/sglang at 1d33ae1 and b3939a5, `python/sglang/kernels/ops/speculative`,
`reject_sampling.py` and `tree_sampling.py`; of drafts `python/sglang/srt/speculative/spec_utils.py`
at 00731f0. No engine was run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from otm.errors import Unsupported

from .block_kseq import block_kseq
from .chain import block, token_by_token
from .grid import ScoreGrid
from .scores import refined_scores
from .step import Tensor, Verified, check_step
from .traversal import traversal
from .trees import recursive_rejection

Sampling = Callable[..., None]
Verification = Callable[..., Verified]
"""verify((candidates, target, draft, uniforms, final), (next_token, next_sibling), depth)."""


def sampling(verify: Verification, *, reads_draft: bool = True) -> Sampling:
    """Return a function with SGLang's signature for a verification.

    Args:
        verify: called with `Verification`'s arguments, tensors as `analysis.kernels.step` lists.
        reads_draft: whether draft probabilities are passed on.
    """

    @functools.wraps(verify)
    def speculative_sampling(
        predicts: Tensor,
        accept_index: Tensor,
        accept_token_num: Tensor,
        candidates: Tensor,
        retrive_index: Tensor,
        retrive_next_token: Tensor | None,
        retrive_next_sibling: Tensor | None,
        uniform_samples: Tensor,
        uniform_samples_for_final_sampling: Tensor,
        target_probs: Tensor,
        draft_probs: Tensor | None,
        threshold_single: float = 1.0,
        threshold_acc: float = 1.0,
        deterministic: bool = True,
    ) -> None:
        if (threshold_single, threshold_acc) != (1.0, 1.0):
            raise Unsupported(
                f"Thresholds other than 1 are lossy; got {threshold_single} and {threshold_acc}. "
                "Leave them out."
            )
        draft = draft_probs if reads_draft else None
        given = candidates, target_probs, draft, uniform_samples, uniform_samples_for_final_sampling
        check_step(*given)
        width = accept_index.shape[1]
        found = verify(given, (retrive_next_token, retrive_next_sibling), width - 1)
        _write(found, width, predicts, accept_index, retrive_index.long())
        accept_token_num[:] = found.count - 1

    return speculative_sampling


def _write(
    found: Verified, width: int, predicts: Tensor, accept_index: Tensor, place: Tensor
) -> None:
    """Write a step's tokens and nodes to SGLang's outputs, each token at the place of the node."""
    nodes, tokens = found.nodes[:, :width], found.tokens[:, :width]
    # a column more for what is not accepted
    after = torch.full((len(place), place.shape[1] + 1), -1, dtype=torch.int64, device=place.device)
    after = after.scatter_(1, torch.where(nodes >= 0, nodes, place.shape[1]), tokens)[:, :-1]
    old = predicts.index_select(0, place.flatten())
    new = torch.where(after.flatten() >= 0, after.flatten().to(old.dtype), old)
    predicts.index_copy_(0, place.flatten(), new)
    at = place.gather(1, nodes.clamp(min=0)).to(accept_index.dtype)
    accept_index[:] = torch.where(nodes >= 0, at, accept_index)


def refined_score_sampling(grid: ScoreGrid, num_drafts: int) -> Sampling:
    """Return a function with SGLang's signature for K i.i.d. sequences, by refined scores.

    The sequences have one length and begin at the children of the root.

    Args:
        grid: for K sequences.
        num_drafts: K.
    """
    return _of_sequences(functools.partial(refined_scores, grid=grid), num_drafts)


def block_kseq_sampling(num_drafts: int) -> Sampling:
    """Return a function with SGLang's signature for K i.i.d. sequences, by block K-SEQ.

    The sequences have one length and begin at the children of the root.

    Args:
        num_drafts: K.
    """
    return _of_sequences(block_kseq, num_drafts)


def _of_sequences(kernel: Verification, num_drafts: int) -> Sampling:
    def verify(given: tuple[Tensor, ...], links: tuple[Tensor, Tensor], depth: int) -> Verified:
        candidates, *rest = given
        paths = sequences(*links, num_drafts, (candidates.shape[1] - 1) // num_drafts)
        return kernel(candidates, paths, *rest)

    return sampling(verify)


def sequences(next_token: Tensor, next_sibling: Tensor, num_drafts: int, length: int) -> Tensor:
    """Return the nodes `(B, K, L)` of the K sequences that links hold, int64.

    Args:
        next_token, next_sibling: `(B, n)` int64, each node's first child and next sibling; each
            child of the root begins a sequence.
        num_drafts: K.
        length: L.
    """
    starts = [next_token[:, :1]]
    for _ in range(num_drafts - 1):
        starts.append(next_sibling.gather(1, starts[-1]))
    along = [torch.cat(starts, dim=1)]
    for _ in range(length - 1):
        along.append(next_token.gather(1, along[-1]))
    return torch.stack(along, dim=-1)


def _of_chains(kernel: Verification) -> Sampling:
    return sampling(lambda given, links, depth: kernel(*given))


def _of_trees(kernel: Verification, *, reads_draft: bool = True) -> Sampling:
    def verify(given: tuple[Tensor, ...], links: tuple[Tensor, Tensor], depth: int) -> Verified:
        return kernel(given[0], *links, *given[1:], depth=depth)

    return sampling(verify, reads_draft=reads_draft)


chain_speculative_sampling = _of_chains(token_by_token)
chain_block_speculative_sampling = _of_chains(block)
tree_speculative_sampling = _of_trees(recursive_rejection)
tree_speculative_sampling_target_only = _of_trees(recursive_rejection, reads_draft=False)
tree_traversal_sampling = _of_trees(traversal)
