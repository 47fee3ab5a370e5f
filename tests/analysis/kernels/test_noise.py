"""The kernel against the library: the noise to the last bits of the logarithm, the same trees, the
same texts; on a device it waits for nothing.
"""

import numpy as np
import pytest
import torch

from analysis.kernels.noise import noise_rows, root_only
from otm.sequence import NoiseTree, Sampled, SharedNoise, markov_pair, step
from tests.analysis.kernels.steps import texts
from tests.devices import fake_cuda

SEEDS = [0, 7, 2**40 + 1, 2**63 + 5, 2**64 - 1]


def as_int64(seeds):
    return torch.tensor(np.array(seeds, dtype=np.uint64).astype(np.int64))


def test_noise_is_the_library_s():
    positions = torch.tensor([0, 3, 2**31 + 7, 2**40])
    found = noise_rows(as_int64(SEEDS)[:, None], positions, 7)
    wanted = [[SharedNoise(seed).row(at, 7) for at in positions.tolist()] for seed in SEEDS]
    # log twice, each within an ulp of its library
    np.testing.assert_allclose(found.numpy(), np.array(wanted), rtol=4e-15, atol=1e-15)


def grown(log_p, last, noise, size, width, scale):
    """Trees of a Markov draft `(V, V)` after the last tokens `(B,)`."""
    nodes = root_only(len(last), size, last.device)
    for level in range(noise.shape[1] - 1):
        frontier = nodes.frontier(level, width)
        token = nodes.token.gather(1, frontier.nodes)
        state = torch.where(token < 0, last[:, None], token)
        nodes = nodes.extended(frontier, log_p[state], noise[:, level], scale, level)
    return nodes


@pytest.mark.parametrize("size", [1, 5, 12])
def test_trees_and_texts_are_the_library_s(size):
    """A batch of five requests of one context each; draft and target with zeros, as filters leave
    them.
    """
    depth, scale = 3, 0.6
    draft, target = markov_pair(5, similarity=0.5, rng=np.random.default_rng(3))
    p = np.where(draft.table < 0.05, 0.0, draft.table)
    p /= p.sum(axis=1, keepdims=True)
    model = type(draft)(p)
    with np.errstate(divide="ignore"):
        log_p, log_q = torch.tensor(np.log(p)), torch.tensor(np.log(target.table))
    contexts = [(0,), (1, 2), (3,), (4, 4, 4), (2,)]
    last = torch.tensor([context[-1] for context in contexts])
    starts = torch.tensor([len(context) for context in contexts])
    noise = noise_rows(as_int64(SEEDS)[:, None], starts[:, None] + torch.arange(depth + 1), 5)
    nodes = grown(log_p, last, noise, size, size, scale)
    rows = log_q[torch.where(nodes.token < 0, last[:, None], nodes.token)]
    found = nodes.matched(rows, noise)
    written = texts(found.tokens, found.count)
    mask = nodes.ancestors(depth)
    for i, (context, seed) in enumerate(zip(contexts, SEEDS, strict=True)):
        decoder = NoiseTree(size, depth, scale)
        seeded = Sampled(np.random.default_rng(0), SharedNoise(seed))
        tree = decoder.draft(model, context, seeded)
        live = tree.shape.num_nodes + 1
        assert nodes.token[i, :live].tolist() == tree.tokens.tolist()
        assert nodes.token[i, live:].eq(-1).all()
        assert nodes.parent[i, 1:live].tolist() == tree.shape.parents.tolist()
        paths = tree.shape.paths()
        for vertex, own in enumerate(paths):
            above = [at for at, path in enumerate(paths) if own[: len(path)] == path]
            assert torch.nonzero(mask[i, vertex])[:, 0].tolist() == above
        once = step(decoder, draft=model, target=target, context=context, randomness=seeded)
        assert written[i] == list(once.tokens)
        way = found.nodes[i, : found.count[i]]
        assert [0, *nodes.parent[i, way[1:]].tolist()] == [0, *way[:-1].tolist()]
        assert nodes.token[i, way[1:]].tolist() == written[i][:-1]
    # a NaN refuses the request that meets it, and no other
    rows[1, 0, 0], rows[2, -1, 0] = torch.nan, torch.nan
    refused = nodes.matched(rows, noise)
    assert (refused.count[1], refused.tokens[1].max()) == (0, -1)
    assert refused.tokens[[0, 3, 4]].equal(found.tokens[[0, 3, 4]])


def test_a_narrow_frontier_asks_for_the_best_nodes_only():
    """One node a level: a chain, the text that the draft would write on this noise."""
    draft, _ = markov_pair(4, rng=np.random.default_rng(0))
    noise = noise_rows(torch.tensor([[9]]), 1 + torch.arange(4), 4)
    nodes = grown(torch.tensor(np.log(draft.table)), torch.tensor([2]), noise, 3, 1, 0.01)
    text = [2]
    for position in range(1, 4):
        text.append(SharedNoise(9).choose(draft.table[text[-1]], position))
    assert nodes.token[0].tolist() == [-1, *text[1:]]
    assert nodes.parent[0].tolist() == [0, 0, 1, 2]


def test_a_device_is_never_waited_for():
    """Fake tensors on CUDA: no value is read, no shape depends on one, nothing is copied."""
    with fake_cuda() as (_, watch):
        seeds = torch.empty((2, 1), dtype=torch.int64, device="cuda")
        positions = torch.empty((1, 4), dtype=torch.int64, device="cuda")
        noise = noise_rows(seeds, positions, 6)
        nodes = root_only(2, 5, "cuda")
        log_p = torch.empty((2, 3, 6), device="cuda")
        for level in range(3):
            frontier = nodes.frontier(level, 3)
            nodes = nodes.extended(frontier, log_p, noise[:, level], 0.8, level)
        found = nodes.matched(torch.empty((2, 6, 6), device="cuda"), noise)
        mask = nodes.ancestors(3)
        assert {one.device.type for one in (noise, found.tokens, found.count, mask)} == {"cuda"}
        assert (noise.shape, found.nodes.shape, mask.shape) == ((2, 4, 6), (2, 4), (2, 6, 6))
    assert not watch.waits + watch.sends
