"""What all kernels share: which requests are refused, rows of every kind, devices, compilation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Verified, check_step, draw, probabilities
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from analysis.kernels.vertices import optimal_by_vertex
from otm.errors import InvalidParameter, ShapeMismatch
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts
from tests.devices import fake_cuda

CHAIN, SEQUENCES = TreeShape.chain(3), TreeShape.sequences(2, 2)


GRID = ScoreGrid.of(2, "cpu", octaves=2, per_octave=2)


def elsewhere(grid: ScoreGrid, device: torch.device) -> ScoreGrid:
    """The grid as it would be made there, without its numbers."""
    tensors = {
        name: torch.empty(value.shape, dtype=value.dtype, device=device)
        for name, value in vars(grid).items()
        if isinstance(value, torch.Tensor)
    }
    return dataclasses.replace(grid, **tensors)


def two_sequences(candidates: torch.Tensor) -> torch.Tensor:
    """The nodes of two sequences of two tokens, level by level."""
    node = torch.arange(1, 5, device=candidates.device)
    return node.view(2, 2).T.expand(len(candidates), -1, -1)


def on_a_grid(kernel: Any) -> Any:
    """A kernel of two sequences with the grid where the candidates are."""

    def verify(candidates: torch.Tensor, *rest: torch.Tensor) -> Verified:
        grid = GRID if candidates.device.type == "cpu" else elsewhere(GRID, candidates.device)
        return kernel(candidates, two_sequences(candidates), *rest, grid)

    return verify


def in_turn(candidates: torch.Tensor, *rest: torch.Tensor) -> Verified:
    """Block K-SEQ of the same."""
    return block_kseq(candidates, two_sequences(candidates), *rest)


def on_a_tree(kernel: Any) -> Any:
    """A kernel of trees with two children, of which the first has two."""

    def verify(candidates: torch.Tensor, *rest: Any) -> Verified:
        links = torch.full((2, 5), -1, dtype=torch.int64, device=candidates.device)
        links[0, :2] = torch.arange(1, 5, 2, device=candidates.device)
        links[1, 1:4:2] = torch.arange(2, 5, 2, device=candidates.device)
        children, siblings = links[:, None].expand(-1, len(candidates), -1)
        return kernel(candidates, children, siblings, *rest, depth=2)

    return verify


TREE = TreeShape([0, 0, 1, 1])
KERNELS: dict[str, Any] = {
    "token by token": (token_by_token, CHAIN),
    "block": (block, CHAIN),
    "refined scores": (on_a_grid(refined_scores), SEQUENCES),
    "optimal by vertex": (on_a_grid(optimal_by_vertex), SEQUENCES),
    "block K-SEQ": (in_turn, SEQUENCES),
    "recursive rejection": (on_a_tree(recursive_rejection), TREE),
    "traversal": (on_a_tree(traversal), TREE),
}
every = pytest.mark.parametrize("name", KERNELS)


@every
def test_a_request_with_nan_is_refused_and_the_others_are_unharmed(name: str) -> None:
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 60, 4, 0)
    sound = kernel(*requests.arguments)
    target, draft = requests.target.clone(), requests.draft.clone()
    target[::3, 0] = torch.nan
    draft[1::6, 0] = torch.nan
    found = kernel(requests.candidates, target, draft, *requests.arguments[3:])
    assert found.count[::3].eq(0).all() and found.count[1::6].eq(0).all()
    assert found.tokens[::3].eq(-1).all() and found.nodes[1::6].eq(-1).all()
    for left, right in ((found.tokens, sound.tokens), (found.nodes, sound.nodes)):
        assert left[2::3].equal(right[2::3]) and left[4::6].equal(right[4::6])


@every
def test_a_draft_that_cannot_have_been_drawn_is_refused(name: str) -> None:
    """A buffer of zeros in place of draft probabilities accepts nothing by itself."""
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 60, 4, 5)
    draft = requests.draft.clone()
    draft[::2, 0] = 0.0
    sound = kernel(*requests.arguments)
    found = kernel(requests.candidates, requests.target, draft, *requests.arguments[3:])
    drafted = requests.candidates[:, 1] >= 0
    assert drafted.sum() > 20
    assert found.count[::2][drafted[::2]].eq(0).all()
    assert found.tokens[1::2].equal(sound.tokens[1::2])


@every
def test_a_shorter_draft_vocabulary_is_one_without_mass(name: str) -> None:
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 100, 4, 1)
    draft = requests.draft.clone()
    draft[..., 3] = 0.0
    candidates = requests.candidates.clamp(max=2)
    rest = (requests.uniforms, requests.final)
    whole = kernel(candidates, requests.target, draft, *rest)
    short = kernel(candidates, requests.target, draft[..., :3], *rest)
    assert whole.tokens.equal(short.tokens)


@every
def test_what_is_beyond_the_drafts_is_never_read(name: str) -> None:
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 60, 4, 2)
    candidates = requests.candidates.clone()
    candidates[:, 2:] = -1
    sound = kernel(candidates, *requests.arguments[1:])
    target, draft = requests.target.clone(), requests.draft.clone()
    target[:, 2:], draft[:, 1:] = torch.nan, torch.nan
    found = kernel(candidates, target, draft, *requests.arguments[3:])
    assert found.tokens.equal(sound.tokens)
    assert set(found.count.tolist()) == {1, 2}


@pytest.mark.parametrize("kernel", [token_by_token, block])
def test_drafts_without_a_law_are_sure(kernel: Any) -> None:
    requests = Requests.random(CHAIN, 200, 4, 3)
    sure = torch.zeros_like(requests.draft[:, :3])
    sure.scatter_(-1, requests.candidates[:, 1:, None].clamp(min=0), 1.0)
    rest = (requests.uniforms, requests.final)
    found = kernel(requests.candidates, requests.target, None, *rest)
    assert found.tokens.equal(kernel(requests.candidates, requests.target, sure, *rest).tokens)
    for row in texts(found.tokens, found.count):
        assert row


def test_probabilities_of_logits() -> None:
    """bfloat16 in, float32 sums: 2¹⁶ equal logits add up to 1; temperature 0 takes the first of the
    largest, and a NaN stays one.
    """
    logits = torch.zeros((3, 1, 2**16), dtype=torch.bfloat16)
    logits[1, 0, [5, 9]] = 1.0
    logits[2, 0, 7] = torch.nan
    warm = probabilities(logits, torch.ones(3))
    assert warm.dtype == torch.float32
    assert warm[0].sum().item() == pytest.approx(1.0, abs=1e-6)
    cold = probabilities(logits, torch.tensor([0.5, 0.0, 0.0]))
    assert cold[1, 0].nonzero().tolist() == [[5]]
    assert cold[2].isnan().any() and warm[2].isnan().any()
    for wrong in (-1.0, torch.nan):
        assert probabilities(logits[:1], torch.tensor([wrong])).isnan().all()
    halved = probabilities(torch.tensor([[[0.0, 1.0]]]), torch.tensor([0.5]))
    assert halved[0, 0].tolist() == pytest.approx([1 / (1 + torch.e**2), 1 / (1 + torch.e**-2)])


def test_draws_have_mass() -> None:
    """At both ends of the uniform, zeros at the ends, and by frequency: 40,000 draws, four standard
    errors, wrong once in 10⁴.
    """
    mass = torch.tensor([[0.0, 0.1, 0.0, 0.3, 0.0]])
    assert draw(mass, torch.tensor([0.0])).tolist() == [1]
    for most in (torch.tensor([1.0 - 2**-24]), torch.tensor([1.0 - 2**-53], dtype=torch.float64)):
        assert draw(mass, most).tolist() == [3]
    uniform = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    share = draw(mass.expand(40_000, -1), uniform).eq(1).double().mean().item()
    assert abs(share - 0.25) <= 4 * (0.25 * 0.75 / 40_000) ** 0.5


def test_tensors_that_do_not_fit_are_refused() -> None:
    good = Requests.random(CHAIN, 2, 4, 0).arguments
    check_step(*good)
    check_step(good[0], good[1], good[2][:, :3, :2], good[3], good[4])
    wrong = [
        (good[0][:, 0], *good[1:]),
        (good[0], good[1][:, :2], *good[2:]),
        (*good[:2], good[2][:1], *good[3:]),
        (*good[:3], good[3][:, 1:], good[4]),
        (*good[:4], good[3]),
    ]
    for arguments in wrong:
        with pytest.raises(ShapeMismatch, match=r"See|Give"):
            check_step(*arguments)
    for arguments in ((good[0].int(), *good[1:]), (good[0], good[1].bfloat16(), *good[2:])):
        with pytest.raises(InvalidParameter, match="Convert"):
            check_step(*arguments)
    with pytest.raises(InvalidParameter, match="one device"):
        check_step(good[0], good[1].to("meta"), *good[2:])


@every
def test_a_device_is_never_waited_for(name: str) -> None:
    """Fake tensors on CUDA: no value is read, no shape depends on one, nothing is copied."""
    kernel, shape = KERNELS[name]
    n, depth = shape.num_nodes + 1, shape.depth
    with fake_cuda() as (_, watch):
        candidates = torch.empty((2, n), dtype=torch.int64, device="cuda")
        rows = torch.empty((2, n, 6), device="cuda")
        uniforms = torch.empty((2, n), device="cuda")
        found = kernel(candidates, rows, rows[..., :5], uniforms, uniforms[:, 0])
        assert (found.tokens.shape, found.count.shape) == ((2, depth + 1), (2,))
        assert found.nodes.device.type == "cuda"
    assert not watch.waits
    assert not watch.sends


@every
def test_memory_of_at_most_three_copies_of_the_rows(name: str) -> None:
    """Traced allocations; a batch of two requests over 8,192 tokens."""
    kernel, shape = KERNELS[name]
    generator = torch.Generator().manual_seed(0)
    n = shape.num_nodes + 1
    logits = torch.randn((2, 2, n, 8192), generator=generator)
    target, draft = torch.softmax(logits, dim=-1)
    candidates = torch.randint(8192, (2, n), generator=generator)
    uniforms = torch.rand((2, n), generator=generator)
    given = candidates, target, draft, uniforms, uniforms[:, 0]
    kernel(*given)
    with torch.profiler.profile(profile_memory=True) as traced:
        kernel(*given)
    events = (one for one in traced.profiler.kineto_results.events() if one.name() == "[memory]")
    held = torch.tensor(
        [one.nbytes() for one in sorted(events, key=lambda one: one.start_ns())]
    ).cumsum(dim=0)
    rows = logits.nbytes
    assert rows / 100 < held.max() <= 3 * rows


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.long)])
@every
def test_one_graph(name: str, backend: str) -> None:
    """`torch.compile` finds no break, and the graph has the same answers."""
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 40, 4, 5)
    compiled = torch.compile(kernel, fullgraph=True, backend=backend)
    found, wanted = compiled(*requests.arguments), kernel(*requests.arguments)
    assert found.tokens.equal(wanted.tokens)
    assert found.nodes.equal(wanted.nodes)
