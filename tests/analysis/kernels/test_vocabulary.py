"""Whoever reads the rows, the same uniforms give the same tokens: torch, Triton, and shards of the
vocabulary, whose sums are added.
"""

import functools
import importlib.util
import threading

import pytest
import torch

from analysis.kernels.compiled_rows import CompiledRows
from analysis.kernels.noise import noise_rows, root_only
from analysis.kernels.step import Shard, probabilities
from analysis.kernels.vocabulary import TorchRows
from tests.analysis.kernels import batched_triton
from tests.analysis.kernels.steps import KERNELS, TREE, Requests

NUM_TOKENS = 11
NAMES = [name for name in KERNELS if name != "block K-SEQ"]  # by torch alone
long = pytest.mark.long
every = pytest.mark.parametrize("name", NAMES)


@functools.cache
def requests(name, size):
    """Rows and drafts of at most 500 requests, repeated, all with uniforms of their own."""
    shape = KERNELS[name][1]
    made = Requests.random(shape, min(size, 500), NUM_TOKENS, 7, distinct=shape is TREE)
    rng = torch.Generator().manual_seed(8)
    given = [one.repeat(size // len(one), *[1] * (one.ndim - 1)) for one in made.arguments[:3]]
    uniforms = torch.rand((size, given[0].shape[1] + 1), generator=rng, dtype=torch.float64)
    return *given, uniforms[:, :-1], uniforms[:, -1]


def differences(one, other):
    """How many requests have other tokens or other nodes."""
    return int(((one.tokens != other.tokens) | (one.nodes != other.nodes)).any(dim=1).sum())


READERS = {"triton": lambda: batched_triton.loaded().TritonRows, "numba": lambda: CompiledRows}
by_each = pytest.mark.parametrize("reader", READERS)


@pytest.mark.parametrize("size", [200, pytest.param(10_000, marks=long)])
@by_each
@every
def test_another_reader_writes_the_same_tokens(name, reader, size):
    """In float64 all; in float32 but for boundaries that rounding moves: a step has less than ten,
    each known to 10⁻⁶, so that in 10,000 steps one is expected to differ at most, and a Poisson
    number with that mean is above 6 once in 10⁴. torch's own in float32 are as near.
    """
    over, given = READERS[reader](), requests(name, size)
    step = KERNELS[name][0]
    exact = step(*given)
    assert differences(step(*given, over=over), exact) == 0
    rounded = [one.float() if one.is_floating_point() else one for one in given]
    plain = step(*rounded)
    assert differences(step(*rounded, over=over), plain) <= 6
    assert differences(plain, exact) <= 6


@by_each
@every
def test_another_reader_refuses_the_same_requests(name, reader):
    candidates, target, draft, *rest = requests(name, 200)
    target, draft = target.clone(), draft[..., :9].clone()
    target[::3, 0], draft[1::3, 0] = torch.nan, torch.nan
    given, step = (candidates, target, draft, *rest), KERNELS[name][0]
    found = step(*given, over=READERS[reader]())
    assert differences(found, step(*given)) == 0
    assert found.count[::3].eq(0).all() and found.count[1::3].eq(0).all()


def race():
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


def test_triton_s_own_interpreter(monkeypatch):
    """A few steps of each, as it takes ten milliseconds a program."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed: its interpreter was not run")
    if torch.cuda.is_available():
        pytest.skip("where there is a device, kernels are compiled for it")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from analysis.kernels import triton_rows

    monkeypatch.setattr(triton_rows, "_BLOCK", 8)
    monkeypatch.setattr(triton_rows, "_CHUNK", 8)
    for name in NAMES:
        given, step = requests(name, 4), KERNELS[name][0]
        assert differences(step(*given, over=triton_rows.TritonRows), step(*given)) == 0
    _, *made = race()
    logits, seeds, positions = (one[:2] for one in made)
    found = triton_rows.winners(logits, seeds, positions)
    noise = noise_rows(seeds.expand_as(positions), positions, NUM_TOKENS)
    best, token = (logits + noise).max(dim=-1)
    assert found[1].equal(token)
    assert (found[0] - best).abs().max() <= 1e-14 * best.abs().max()


def on_shards(ends, run):
    """What a function returns on each shard, in threads whose sums wait for each other."""
    ranks, given = len(ends) - 1, dict[int, torch.Tensor]()
    barrier = threading.Barrier(ranks)
    answers = [None] * ranks

    def of_rank(rank):
        def all_reduce(tensor):
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


def step_here(name, given, rows, shard, here):
    """The step of one rank, on its part of the vocabulary."""
    candidates, target, draft, *rest = given
    rows_here = target[..., here], None if draft is None else draft[..., here]
    over = functools.partial(rows, shard=shard)
    return KERNELS[name][0](candidates, *rows_here, *rest, over=over)


@pytest.mark.parametrize("reader", ["torch", "triton"])
@every
def test_shards_write_the_same_tokens(name, reader):
    """Every rank has all of them; the kernels that can, do so with drafts that are sure too."""
    rows = TorchRows if reader == "torch" else batched_triton.loaded().TritonRows
    candidates, target, draft, *rest = requests(name, 200)
    sure = [None] if name in ("block", "recursive rejection", "traversal") else []
    for law, ends in ((draft, (0, 3, 9, 11)), *((one, (0, 4, 11)) for one in sure)):
        given = candidates, target, law, *rest
        wanted = KERNELS[name][0](*given)
        run = functools.partial(step_here, name, given, rows)
        for found in on_shards(ends, run):
            assert differences(found, wanted) == 0


def test_softmax_and_match_on_shards_and_on_the_whole():
    """Ties at temperature 0 go to the first token, wherever it lies; Triton matches as torch."""
    nodes, logits, seeds, positions = race()
    logits[5], logits[3, 0, 4] = 0.0, torch.nan
    heat = torch.linspace(0.0, 2.0, 40)
    heat[5] = 0.0
    noise = noise_rows(seeds, positions[:, :1] + torch.arange(3), NUM_TOKENS)
    over = batched_triton.loaded()

    def run(shard=None, here=slice(None)):
        race_ = over.winners(logits[..., here], seeds, positions, shard=shard)
        return (
            probabilities(logits[..., here], heat, shard=shard),
            nodes.matched(logits[..., here], noise[..., here], shard=shard),
            nodes.followed(*race_, 2),
        )

    wanted, whole = nodes.matched(logits, noise), run()
    assert wanted.count[3] == 0 and set(wanted.count.tolist()) == {0, 2, 3}
    answers = on_shards((0, 3, 9, 11), run)
    laws = torch.cat([law for law, _, _ in answers], dim=-1)
    torch.testing.assert_close(laws, whole[0], rtol=1e-6, atol=1e-7, equal_nan=True)
    assert laws[5, :, 0].eq(1.0).all()
    for _, *both in (*answers, whole):
        for found in both:
            assert differences(found, wanted) == 0
