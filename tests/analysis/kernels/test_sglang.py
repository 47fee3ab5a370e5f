"""The fronts, called as SGLang's code calls its kernels, by keyword and with its types."""

import pytest
import torch

from analysis.kernels import sglang
from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm.errors import Unsupported
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts
from tests.devices import fake_cuda

SIZE, UNWRITTEN = 40, -9


def called(front, requests, *, depth, linked, **other):
    """Outputs as the engine reads them, from buffers that it has made."""
    size, n = requests.candidates.shape
    predicts = torch.full((size * n,), UNWRITTEN, dtype=torch.int32)
    accept_index = torch.full((size, depth + 1), -1, dtype=torch.int32)
    accept_token_num = torch.empty(size, dtype=torch.int32)
    first, sibling = requests.links if linked else (None, None)
    arguments = {
        "candidates": requests.candidates,
        "retrive_index": torch.arange(size * n, dtype=torch.int32).view(size, n),
        "retrive_next_token": first,
        "retrive_next_sibling": sibling,
        "uniform_samples": requests.uniforms.float(),
        "uniform_samples_for_final_sampling": requests.final.float(),
        "target_probs": requests.target.float(),
        "draft_probs": requests.draft.float(),
        "threshold_single": 1.0,
        "threshold_acc": 1.0,
        "deterministic": True,
    }
    found = front(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        **(arguments | other),
    )
    assert found is None
    return predicts, accept_index, accept_token_num


def read(outputs, n):
    """The texts as the engine puts them together; nothing else is written."""
    predicts, accept_index, accept_token_num = outputs
    found = []
    for b, (places, number) in enumerate(zip(accept_index, accept_token_num, strict=True)):
        assert places[0] == b * n
        assert places[number + 1 :].eq(-1).all()
        found.append(predicts[places[: number + 1].long()].tolist())
    assert predicts.ne(UNWRITTEN).sum() == sum(map(len, found))
    return found


CHAIN, TREE, SEQUENCES = TreeShape.chain(3), TreeShape([0, 0, 1, 1, 2]), TreeShape.sequences(3, 2)
GRID = ScoreGrid.of(3, "cpu", octaves=2, per_octave=2)
PATHS = torch.tensor([[1, 4], [2, 5], [3, 6]]).expand(SIZE, -1, -1)
"""Nodes are numbered level by level: the links say which belongs to which sequence."""


@pytest.mark.parametrize(
    ("front", "kernel", "shape", "named"),
    [
        (sglang.chain_speculative_sampling, token_by_token, CHAIN, {}),
        (sglang.chain_block_speculative_sampling, block, CHAIN, {}),
        (sglang.tree_speculative_sampling, recursive_rejection, TREE, {"depth": 2}),
        (sglang.tree_traversal_sampling, traversal, TREE, {"depth": 2}),
        (sglang.refined_score_sampling(GRID, 3), refined_scores, SEQUENCES, {"grid": GRID}),
        (sglang.block_kseq_sampling(3), block_kseq, SEQUENCES, {}),
    ],
)
def test_texts_are_those_of_the_kernel(front, kernel, shape, named):
    requests = Requests.random(shape, SIZE, 4, shape.depth, distinct=shape is TREE)
    further = {CHAIN: (), TREE: requests.links, SEQUENCES: (PATHS,)}[shape]
    outputs = called(front, requests, depth=shape.depth, linked=shape is not CHAIN)
    laws = (one.float() for one in requests.arguments[1:])
    found = kernel(requests.candidates, *further, *laws, **named)
    assert read(outputs, shape.num_nodes + 1) == texts(found.tokens, found.count)


def test_sure_trees_have_a_scratch_of_zeros_for_the_draft_s_probabilities():
    requests = Requests.random(TREE, SIZE, 4, 1, distinct=True)
    front, scratch = sglang.tree_speculative_sampling_target_only, torch.zeros(SIZE, 6, 4)
    alone = called(front, requests, depth=2, linked=True, draft_probs=scratch)
    _, target, _, uniforms, final = (one.float() for one in requests.arguments)
    given = requests.candidates, *requests.links, target, None, uniforms, final
    sure = recursive_rejection(*given, depth=2)
    assert read(alone, 6) == texts(sure.tokens, sure.count)


def test_what_is_not_done():
    """A refused request writes −1 and nothing else; lossy thresholds raise."""
    requests = Requests.random(TreeShape.chain(2), 3, 4, 3)
    front = sglang.chain_speculative_sampling
    target = requests.target.float()
    target[1] = torch.nan
    predicts, places, number = called(front, requests, depth=2, linked=False, target_probs=target)
    assert number[1] == -1 and (number[[0, 2]] >= 0).all()
    assert predicts[3:6].eq(UNWRITTEN).all() and places[1].eq(-1).all()
    with pytest.raises(Unsupported, match="lossy"):
        called(front, requests, depth=2, linked=False, threshold_acc=0.5)


def test_a_device_is_never_waited_for():
    """Fake tensors on CUDA, as the outputs are."""
    with fake_cuda() as (_, watch):
        integers = torch.empty((2, 5), dtype=torch.int64, device="cuda")
        rows, uniforms = torch.empty((2, 5, 6), device="cuda"), torch.empty((2, 5), device="cuda")
        outputs = [
            torch.empty(shape, dtype=torch.int32, device="cuda") for shape in ((10,), (2, 3), (2,))
        ]
        rest = uniforms, uniforms[:, 0], rows, rows
        sglang.tree_speculative_sampling(*outputs, *[integers] * 4, *rest)
        sglang.tree_speculative_sampling_target_only(*outputs, *[integers] * 4, *rest)
    assert not watch.waits + watch.sends
