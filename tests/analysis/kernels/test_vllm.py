"""The front, called as vLLM's runner calls its function, by position and with its types."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from analysis.kernels.noise import uniform_rows
from analysis.kernels.vllm import rejection_sample
from otm.errors import ShapeMismatch, Unsupported
from otm.sequence import BlockVerification, SpeculativeSampling
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts
from tests.devices import fake_cuda

GAMMA, SIZE, STATES = 3, 60, 64
RULES = pytest.mark.parametrize("as_block", [False, True])


@dataclasses.dataclass(frozen=True)
class Batch:
    """Requests as the runner lays them out, and what is known of each.

    Attributes:
        arguments: of the function.
        requests: the same, dense.
        lengths: how many drafts each has, before a placeholder.
        heat: each one's temperature.
    """

    arguments: dict[str, Any]
    requests: Requests
    lengths: list[int]
    heat: list[float]

    @classmethod
    def random(cls, seed, *, num_drafted=4):
        """Ragged rows, temperatures with 0 among them, −1 drafts, states in any order."""
        rng = np.random.default_rng(seed)
        requests = Requests.random(TreeShape.chain(GAMMA), SIZE, 4, seed)
        asked = rng.integers(0, GAMMA + 1, SIZE)
        broken = np.minimum(asked, rng.integers(0, 2 * GAMMA, SIZE))
        state = rng.permutation(STATES)[:SIZE]
        heat, seeds = rng.choice([0.0, 0.7, 1.3], STATES), rng.integers(-(2**62), 2**62, STATES)
        draft = requests.draft.clone()
        draft[..., num_drafted:] = 0.0
        draft[..., 0] += draft.sum(dim=-1) == 0.0
        draft /= draft.sum(dim=-1, keepdim=True)
        tokens = requests.candidates.clone()
        possible = draft[:, :GAMMA].gather(-1, tokens[:, 1:, None])[..., 0] > 0.0
        tokens[:, 1:] = torch.where(possible, tokens[:, 1:], draft[:, :GAMMA].argmax(dim=-1))
        tokens[:, 0] = 2
        place = torch.arange(GAMMA + 1)
        tokens[place > torch.from_numpy(broken)[:, None]] = -1
        kept = place <= torch.from_numpy(asked)[:, None]
        kept[:, 0] = True
        logits = torch.full((STATES, GAMMA, num_drafted), torch.nan)
        own = torch.from_numpy(heat[state])[:, None, None]
        logits[state] = (draft.log()[:, :GAMMA, :num_drafted] * own + 1.5).float()
        begin = torch.from_numpy(rng.integers(0, 2**40, SIZE))
        uniforms = uniform_rows(torch.from_numpy(seeds[state]), begin, GAMMA + 2, stream=1)
        requests = Requests(
            requests.shape,
            tokens,
            requests.target,
            draft,
            uniforms[:, :-1],
            uniforms[:, -1],
        )
        every = np.repeat(np.arange(SIZE), asked + 1)
        arguments = {
            "target_logits": (requests.target.log() - 0.5).float()[kept],
            "draft_logits": logits,
            "draft_sampled": tokens[kept].int(),
            "cu_num_logits": torch.tensor([0, *np.cumsum(asked + 1)], dtype=torch.int32),
            "pos": (begin[:, None] + place)[kept],
            "idx_mapping": torch.from_numpy(state).int(),
            "expanded_idx_mapping": torch.from_numpy(state[every]).int(),
            "expanded_local_pos": place.expand(SIZE, -1)[kept].int(),
            "temperature": torch.from_numpy(heat).float(),
            "seed": torch.from_numpy(seeds),
            "num_speculative_steps": GAMMA,
        }
        return cls(arguments, requests, broken.tolist(), heat[state].tolist())

    def called(self, **other):
        """The texts as the runner reads them."""
        sampled, number = rejection_sample(*self.arguments.values(), draft_noise="step", **other)
        assert (sampled.dtype, number.dtype) == (torch.int64, torch.int32)
        assert sampled.shape == (SIZE, GAMMA + 1)
        return texts(sampled, number)

    def written(self, b, *, as_block, sure):
        """What the rule itself or the library's decoder writes."""
        whole, length = self.requests, self.lengths[b]
        target, tokens = whole.target[b].numpy(), whole.candidates[b].tolist()
        if self.heat[b] == 0.0:
            best = target.argmax(axis=-1).tolist()
            agree = itertools.takewhile(lambda i: best[i] == tokens[i + 1], range(length))
            return best[: len(list(agree)) + 1]
        if length == 0:
            place = np.searchsorted(target[0].cumsum(), float(whole.final[b]), side="right")
            return [int(place)]
        draft = whole.draft.clone()
        if sure:
            index = whole.candidates[b, 1:].clamp(min=0)
            draft[b, :GAMMA] = torch.nn.functional.one_hot(index, 4).double()
        trimmed = dataclasses.replace(
            whole,
            shape=TreeShape.chain(length),
            draft=draft,
            candidates=whole.candidates[:, : length + 1],
            uniforms=whole.uniforms[:, : length + 1],
        )
        if as_block:
            return trimmed.written(BlockVerification(length), b, lambda u: u[-2::-1])
        return trimmed.written(SpeculativeSampling(length), b, lambda u: u[:-1])


@RULES
@pytest.mark.parametrize("num_drafted", [4, 3])
def test_requests_side_by_side_are_the_library_s_one_by_one(as_block, num_drafted):
    batch = Batch.random(3, num_drafted=num_drafted)
    found = batch.called(use_block_verification=as_block)
    assert found == [batch.written(b, as_block=as_block, sure=False) for b in range(SIZE)]
    assert {1, 2, 3} <= {len(text) for text in found}
    assert batch.called(use_block_verification=as_block, use_fp64=True) == found


@RULES
def test_drafts_that_were_not_drawn(as_block):
    batch = Batch.random(4)
    batch.arguments["draft_logits"] = None
    found = batch.called(use_block_verification=as_block)
    assert found == [batch.written(b, as_block=as_block, sure=True) for b in range(SIZE)]


def test_a_block_of_drafts_by_position_is_refused():
    """As this engine draws them, unless the caller says otherwise, or nothing was drawn."""
    given = Batch.random(6).arguments
    with pytest.raises(Unsupported, match=r'got draft_noise=\'position\'.*draft_noise="step"'):
        rejection_sample(*given.values(), use_block_verification=True)
    rejection_sample(*given.values())
    rejection_sample(*(given | {"draft_logits": None}).values(), use_block_verification=True)


def test_what_is_not_done():
    """A NaN refuses its request alone; lossy rates, watermarks and wrong shapes raise."""
    batch = Batch.random(5)
    sound = batch.called()
    logits = batch.arguments["target_logits"]
    logits[batch.arguments["cu_num_logits"][7]] = torch.nan
    found = batch.called()
    assert found[7] == [] and found[:7] + found[8:] == sound[:7] + sound[8:]
    for name in ("synthetic_conditional_rates", "contexts"):
        with pytest.raises(Unsupported, match=name):
            batch.called(**{name: torch.ones(GAMMA)})
    batch.arguments["draft_logits"] = torch.ones(STATES, GAMMA, 4).long()
    batch.arguments["num_speculative_steps"] = 0
    with pytest.raises(ShapeMismatch, match="root and drafts"):
        batch.called()


@RULES
def test_a_device_is_never_waited_for(as_block):
    """Fake tensors on CUDA, bfloat16 logits as an engine may have them."""
    with fake_cuda() as (_, watch):
        integers = torch.empty(7, dtype=torch.int64, device="cuda")
        found, number = rejection_sample(
            torch.empty((7, 6), dtype=torch.bfloat16, device="cuda"),
            torch.empty((4, 2, 5), device="cuda"),
            integers,
            integers[:4],
            integers,
            integers[:3],
            integers,
            integers,
            torch.empty(4, device="cuda"),
            integers[:4],
            2,
            use_block_verification=as_block,
            draft_noise="step",
        )
        assert (found.shape, number.shape) == ((3, 3), (3,))
    assert not watch.waits + watch.sends
