"""What all kernels share: which requests are refused, rows of every kind, devices, compilation."""

import pytest
import torch

from analysis.kernels.step import check_step, draw, probabilities
from otm.errors import InvalidParameter, ShapeMismatch
from tests.analysis.kernels.steps import CHAIN, KERNELS, Requests, every_kernel
from tests.devices import fake_cuda

DRAFTED, WHOLE, EVERY = "drafted", 0, slice(None)
REFUSED = {
    "NaN of the target": ("target", WHOLE, torch.nan),
    "NaN of the draft": ("draft", WHOLE, torch.nan),
    "infinite": ("target", WHOLE, torch.inf),
    "not drawn": ("draft", DRAFTED, 0.0),
    "a draft's row without mass": ("draft", WHOLE, 0.0),
    "rows of the target without mass": ("target", EVERY, 0.0),
}
"""What is spoiled: a side, the root's row, its entry at the first draft or every row, a value."""


@pytest.mark.parametrize("kind", REFUSED)
@every_kernel
def test_what_the_contract_lists_is_refused_and_the_others_are_unharmed(name, kind):
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 80, 4, 5)
    sound = kernel(*requests.arguments)
    side, place, value = REFUSED[kind]
    refused = torch.arange(80) % 4 == 0
    where = (0, requests.candidates[refused, 1]) if place == DRAFTED else (place,)
    getattr(requests, side)[refused.nonzero()[:, 0], *where] = value
    found = kernel(*requests.arguments)
    assert found.count[refused].eq(0).all()
    for left, right in ((found.tokens, sound.tokens), (found.nodes, sound.nodes)):
        assert left[refused].eq(-1).all() and left[~refused].equal(right[~refused])


def test_unequal_rows_of_equal_prefixes_are_refused_vertex_by_vertex_only():
    """Both sequences begin with token 0; the second goes on with 1, of which the first's row has
    nothing. A text of one sequence's own rows is what refined scores verify.
    """
    tokens = torch.tensor([[-1, 0, 0, 2, 1]])
    half = torch.tensor([0.5, 0.0, 0.5]).expand(1, 5, 3)
    draft = half.clone()
    draft[0, 2] = torch.tensor([0.5, 0.5, 0.0])
    given = tokens, torch.full((1, 5, 3), 1 / 3), draft, torch.full((1, 5), 0.1), torch.zeros(1)
    assert KERNELS["optimal by vertex"][0](*given).count.tolist() == [0]
    for name in ("refined scores", "block K-SEQ"):
        assert KERNELS[name][0](*given).count.all()


@every_kernel
def test_a_shorter_draft_vocabulary_is_one_without_mass(name):
    kernel, shape = KERNELS[name]
    candidates, target, draft, *rest = Requests.random(shape, 100, 4, 1).arguments
    draft[..., 3] = 0.0
    candidates = candidates.clamp(max=2)
    whole, short = (kernel(candidates, target, one, *rest) for one in (draft, draft[..., :3]))
    assert whole.tokens.equal(short.tokens)


@every_kernel
def test_what_is_beyond_the_drafts_is_never_read(name):
    kernel, shape = KERNELS[name]
    candidates, target, draft, *rest = Requests.random(shape, 60, 4, 2).arguments
    candidates[:, 2:] = -1
    sound = kernel(candidates, target, draft, *rest)
    target[:, 2:], draft[:, 1:] = torch.nan, torch.nan
    assert kernel(candidates, target, draft, *rest).tokens.equal(sound.tokens)
    assert set(sound.count.tolist()) == {1, 2}


def test_probabilities_of_logits():
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


def test_draws_have_mass():
    """At both ends of the uniform, with zeros at the ends."""
    mass = torch.tensor([[0.0, 0.1, 0.0, 0.3, 0.0]])
    assert draw(mass, torch.tensor([0.0])).tolist() == [1]
    for most in (torch.tensor([1.0 - 2**-24]), torch.tensor([1.0 - 2**-53], dtype=torch.float64)):
        assert draw(mass, most).tolist() == [3]


def test_tensors_that_do_not_fit_are_refused():
    good = Requests.random(CHAIN, 2, 4, 0).arguments
    check_step(good[0], good[1], good[2][:, :3, :2], good[3], good[4])
    for place, tensor, kind, told in (
        (0, good[0][:, 0], ShapeMismatch, "Give"),
        (1, good[1][:, :2], ShapeMismatch, "See"),
        (2, good[2][:1], ShapeMismatch, "See"),
        (3, good[3][:, 1:], ShapeMismatch, "See"),
        (4, good[3], ShapeMismatch, "See"),
        (0, good[0].int(), InvalidParameter, "Convert"),
        (1, good[1].bfloat16(), InvalidParameter, "Convert"),
        (1, good[1].to("meta"), InvalidParameter, "one device"),
        (2, good[2].float(), InvalidParameter, "of one type"),
    ):
        with pytest.raises(kind, match=told):
            check_step(*good[:place], tensor, *good[place + 1 :])


@every_kernel
def test_a_device_is_never_waited_for(name):
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
    assert not watch.waits + watch.sends


@every_kernel
def test_memory_of_at_most_three_copies_of_the_rows(name):
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
@every_kernel
def test_one_graph(name, backend):
    """`torch.compile` finds no break, and the graph has the same answers."""
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 40, 4, 5)
    compiled = torch.compile(kernel, fullgraph=True, backend=backend)
    found, wanted = compiled(*requests.arguments), kernel(*requests.arguments)
    assert found.tokens.equal(wanted.tokens)
    assert found.nodes.equal(wanted.nodes)
