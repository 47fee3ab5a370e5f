"""Whoever reads the rows, the same uniforms give the same tokens: torch, Triton, and shards of the
vocabulary, whose sums are added.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.noise import Nodes, noise_rows, root_only
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Shard, Verified, probabilities
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from analysis.kernels.vertices import optimal_by_vertex
from analysis.kernels.vocabulary import Over, TorchRows
from otm.trees import TreeShape
from tests.analysis.kernels import batched_triton
from tests.analysis.kernels.steps import Requests

NUM_TOKENS = 11
CHAIN, SEQUENCES = TreeShape.chain(3), TreeShape.sequences(2, 2)
TREE = TreeShape([0, 0, 0, 1, 1])
LINKS = torch.tensor([[1, 4, -1, -1, -1, -1], [-1, 2, 3, -1, 5, -1]])
GRID = ScoreGrid.of(2, "cpu", octaves=2, per_octave=2)
KERNELS: dict[str, tuple[Any, TreeShape]] = {
    "token by token": (token_by_token, CHAIN),
    "block": (block, CHAIN),
    "refined scores": (refined_scores, SEQUENCES),
    "optimal by vertex": (optimal_by_vertex, SEQUENCES),
    "recursive rejection": (recursive_rejection, TREE),
    "traversal": (traversal, TREE),
}
long = pytest.mark.long
every = pytest.mark.parametrize("name", KERNELS)


@functools.cache
def requests(name: str, size: int) -> Requests:
    """Rows and drafts of at most 500 requests, repeated, all with uniforms of their own."""
    shape = KERNELS[name][1]
    made = Requests.random(shape, min(size, 500), NUM_TOKENS, 7, distinct=shape is TREE)
    rng = torch.Generator().manual_seed(8)
    given = [one.repeat(size // len(one), *[1] * (one.ndim - 1)) for one in made.arguments[:3]]
    uniforms = torch.rand((size, given[0].shape[1] + 1), generator=rng, dtype=torch.float64)
    return Requests(made.shape, *given, uniforms[:, :-1], uniforms[:, -1])


def step(name: str, given: tuple[Any, ...], over: Over = TorchRows) -> Verified:
    """A kernel on its requests: those of sequences have paths and a grid, those of trees links."""
    kernel, shape = KERNELS[name]
    if shape is CHAIN:
        return kernel(*given, over=over)
    candidates, *rest = given
    if shape is TREE:
        links = (one.expand(len(candidates), -1) for one in LINKS)
        return kernel(candidates, *links, *rest, depth=2, over=over)
    paths = torch.arange(1, 5).view(2, 2).T.expand(len(candidates), -1, -1)
    return kernel(candidates, paths, *rest, GRID, over=over)


def differences(one: Verified, other: Verified) -> int:
    """How many requests have other tokens or other nodes."""
    return int(((one.tokens != other.tokens) | (one.nodes != other.nodes)).any(dim=1).sum())


def rounded(given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(one.float() if one.is_floating_point() else one for one in given)


@pytest.mark.parametrize("size", [200, pytest.param(10_000, marks=long)])
@every
def test_triton_writes_the_same_tokens(name: str, size: int) -> None:
    """In float64 all; in float32 but for boundaries that rounding moves: a step has less than ten,
    each known to 10⁻⁶, so that in 10,000 steps one is expected to differ at most, and a Poisson
    number with that mean is above 6 once in 10⁴.
    """
    over, given = batched_triton.loaded().TritonRows, requests(name, size).arguments
    assert differences(step(name, given, over), step(name, given)) == 0
    given = rounded(given)
    assert differences(step(name, given, over), step(name, given)) <= 6


@every
def test_triton_refuses_the_same_requests(name: str) -> None:
    candidates, target, draft, *rest = requests(name, 200).arguments
    target, draft = target.clone(), draft.clone()
    target[::3, 0] = torch.nan
    draft[1::3, 0] = torch.nan
    given = candidates, target, draft[..., :9], *rest
    found = step(name, given, batched_triton.loaded().TritonRows)
    assert differences(found, step(name, given)) == 0
    assert found.count[::3].eq(0).all() and found.count[1::3].eq(0).all()


def race() -> tuple[Nodes, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Trees of six drafts on shared noise, logits at their nodes, seeds, positions."""
    rng = torch.Generator().manual_seed(3)
    draft = torch.randn((40, 8, NUM_TOKENS), generator=rng, dtype=torch.float64)
    seeds, first = torch.arange(40) - 20, 2**32 + torch.arange(40)
    noise = noise_rows(seeds[:, None], first[:, None] + torch.arange(3), NUM_TOKENS)
    nodes = root_only(40, 6, "cpu")
    for level in range(2):
        frontier = nodes.frontier(level, 3)
        nodes = nodes.extended(frontier, draft[:, :3], noise[:, level], 1.0, level)
    logits = draft[:, :7] + 0.5 * torch.randn((40, 7, NUM_TOKENS), generator=rng)
    return nodes, logits, seeds[:, None], first[:, None] + nodes.level


def test_triton_matches_on_the_same_noise() -> None:
    nodes, logits, seeds, positions = race()
    logits[3, 0, 4] = torch.nan
    found = nodes.followed(*batched_triton.loaded().winners(logits, seeds, positions), 2)
    noise = noise_rows(seeds, positions[:, :1] + torch.arange(3), NUM_TOKENS)
    wanted = nodes.matched(logits, noise)
    assert differences(found, wanted) == 0
    assert wanted.count[3] == 0
    assert set(wanted.count.tolist()) == {0, 2, 3}


def test_triton_s_own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of each, as it takes ten milliseconds a program."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: its interpreter was not run")
    if torch.cuda.is_available():
        pytest.skip("where there is a device, kernels are compiled for it")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from analysis.kernels import triton_rows

    monkeypatch.setattr(triton_rows, "_BLOCK", 8)
    monkeypatch.setattr(triton_rows, "_CHUNK", 8)
    for name in KERNELS:
        given = requests(name, 4).arguments
        assert differences(step(name, given, triton_rows.TritonRows), step(name, given)) == 0
    _, *made = race()
    logits, seeds, positions = (one[:2] for one in made)
    found = triton_rows.winners(logits, seeds, positions)
    noise = noise_rows(seeds.expand_as(positions), positions, NUM_TOKENS)
    best, token = (logits + noise).max(dim=-1)
    assert found[1].equal(token)
    assert (found[0] - best).abs().max() <= 1e-14 * best.abs().max()


def on_shards(ends: tuple[int, ...], run: Callable[[Shard, slice], Any]) -> list[Any]:
    """What a function returns on each shard, in threads whose sums wait for each other."""
    ranks, given = len(ends) - 1, dict[int, torch.Tensor]()
    barrier = threading.Barrier(ranks)
    answers: list[Any] = [None] * ranks

    def of_rank(rank: int) -> None:
        def all_reduce(tensor: torch.Tensor) -> None:
            given[rank] = tensor.clone()
            barrier.wait(60)
            total = functools.reduce(torch.add, (given[other] for other in range(ranks)))
            barrier.wait(60)
            tensor.copy_(total)

        shard = Shard(rank, ranks, ends[rank], all_reduce)
        answers[rank] = run(shard, slice(ends[rank], ends[rank + 1]))

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("reader", ["torch", "triton"])
@pytest.mark.parametrize("ends", [(0, 4, 11), (0, 3, 9, 11)])
@every
def test_shards_write_the_same_tokens(name: str, ends: tuple[int, ...], reader: str) -> None:
    """Every rank has all of them."""
    rows: Any = TorchRows if reader == "torch" else batched_triton.loaded().TritonRows
    candidates, target, draft, *rest = given = requests(name, 200).arguments

    def run(shard: Shard, here: slice) -> Verified:
        over = functools.partial(rows, shard=shard)
        return step(name, (candidates, target[..., here], draft[..., here], *rest), over)

    wanted = step(name, given)
    for found in on_shards(ends, run):
        assert differences(found, wanted) == 0


@pytest.mark.parametrize("name", ["block", "recursive rejection", "traversal"])
def test_drafts_that_are_sure_on_shards_and_by_triton(name: str) -> None:
    candidates, target, _, *rest = requests(name, 200).arguments

    def run(shard: Shard, here: slice) -> Verified:
        over = functools.partial(TorchRows, shard=shard)
        return step(name, (candidates, target[..., here], None, *rest), over)

    given = candidates, target, None, *rest
    wanted = step(name, given)
    for found in (
        *on_shards((0, 4, 11), run),
        step(name, given, batched_triton.loaded().TritonRows),
    ):
        assert differences(found, wanted) == 0


def test_softmax_and_match_on_shards() -> None:
    """Ties at temperature 0 go to the first token, wherever it lies."""
    nodes, logits, seeds, positions = race()
    logits[5] = 0.0
    heat = torch.linspace(0.0, 2.0, 40)
    heat[5] = 0.0
    noise = noise_rows(seeds, positions[:, :1] + torch.arange(3), NUM_TOKENS)
    over = batched_triton.loaded()

    def run(shard: Shard, here: slice) -> tuple[torch.Tensor, Verified, Verified]:
        race_ = over.winners(logits[..., here], seeds, positions, shard=shard)
        return (
            probabilities(logits[..., here], heat, shard=shard),
            nodes.matched(logits[..., here], noise[..., here], shard=shard),
            nodes.followed(*race_, 2),
        )

    wanted = nodes.matched(logits, noise)
    answers = on_shards((0, 3, 9, 11), run)
    laws = torch.cat([law for law, _, _ in answers], dim=-1)
    torch.testing.assert_close(laws, probabilities(logits, heat), rtol=1e-6, atol=1e-7)
    assert laws[5, :, 0].eq(1.0).all()
    for _, *both in answers:
        for found in both:
            assert differences(found, wanted) == 0


def of_process(rank: int, home: str) -> None:
    """What each of two processes does: the steps of all kernels on its half of the vocabulary."""
    group = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{home}/store", rank=rank, world_size=2)
    here = slice(0, 6) if rank == 0 else slice(6, NUM_TOKENS)
    shard = Shard(rank, 2, here.start, group.all_reduce)
    for name in KERNELS:
        candidates, target, draft, *rest = given = requests(name, 200).arguments
        over = functools.partial(TorchRows, shard=shard)
        found = step(name, (candidates, target[..., here], draft[..., here], *rest), over)
        assert differences(found, step(name, given)) == 0, name
    group.destroy_process_group()


@long
def test_shards_of_two_processes(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(of_process, (str(tmp_path),), nprocs=2)
