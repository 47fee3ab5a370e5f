"""The front, called as vLLM's runner calls its function, by position and with its types."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from analysis.kernels.chain import block
from analysis.kernels.noise import noise_rows, uniform_rows
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
@pytest.mark.parametrize("num_drafted", [4, 3, None])
def test_requests_side_by_side_are_the_library_s_one_by_one(as_block, num_drafted):
    """Of drafts over the whole vocabulary, over less of it, and of drafts that were not drawn."""
    sure = num_drafted is None
    batch = Batch.random(3, num_drafted=num_drafted or 4)
    if sure:
        batch.arguments["draft_logits"] = None
    found = batch.called(use_block_verification=as_block)
    assert found == [batch.written(b, as_block=as_block, sure=sure) for b in range(SIZE)]
    assert {1, 2, 3 - sure} <= {len(text) for text in found}
    assert batch.called(use_block_verification=as_block, use_fp64=True) == found


def written_in_steps(num_requests, pair, *, drafts="step", own_positions=False, as_block=True):
    """χ² of texts of four tokens that steps of two drafts write, one after the other.

    Args:
        num_requests: how many texts.
        pair: draft and target.
        drafts: what keys the noise of the drafts, "position" or "step".
        own_positions: whether each test's uniform belongs to the position of its draft.
        as_block: or token by token.
    """
    p, q = (torch.tensor(row, dtype=torch.float64) for row in pair)
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(-(2**62), 2**62, (num_requests,), generator=generator)
    length = torch.zeros_like(seeds)
    text = torch.zeros((num_requests, 8), dtype=torch.int64)
    states = torch.arange(num_requests)
    while (length < 4).any():
        pos = length[:, None] + torch.arange(3)
        keys = pos[:, :2] + (2**20 * (1 + length[:, None]) if drafts == "step" else 0)
        tokens = (p.log() + noise_rows(seeds[:, None], keys, 2)).argmax(dim=-1)
        tokens = torch.nn.functional.pad(tokens, (1, 0))
        rows = q.log().expand(3 * num_requests, 2), p.log().expand(num_requests, 2, 2)
        if own_positions:
            by_place = uniform_rows(seeds[:, None], pos, 2, stream=1)
            step = block(
                tokens,
                q.expand(num_requests, 3, 2),
                p.expand(num_requests, 2, 2),
                by_place[..., 0],
                uniform_rows(seeds, length, 1, stream=2)[:, 0],
            )
            found, count = step.tokens, step.count
        else:
            found, count = rejection_sample(
                *rows,
                tokens.flatten(),
                3 * torch.arange(num_requests + 1),
                pos.flatten(),
                states,
                states.repeat_interleave(3),
                torch.arange(3).repeat(num_requests),
                torch.ones(num_requests),
                seeds,
                2,
                use_block_verification=as_block,
                draft_noise="step" if as_block else drafts,
            )
        going = (length < 4)[:, None] & (torch.arange(3) < count[:, None])
        at = (length[:, None] + torch.arange(3)).clamp(max=7)
        text.scatter_(1, at, torch.where(going, found, text.gather(1, at)))
        length = length + torch.where(length < 4, count, 0)
    index = (text[:, :4] * torch.tensor([8, 4, 2, 1])).sum(dim=1)
    counts = torch.bincount(index, minlength=16).numpy()
    wanted = num_requests * np.prod(list(itertools.product(q.tolist(), repeat=4)), axis=1)
    return float(((counts - wanted) ** 2 / wanted).sum())


LIMIT = chi2.isf(1e-6, 15)
"""Of χ² of 16 texts, exceeded once in a million."""


def test_texts_of_many_steps_have_the_target_s_law():
    """Uniforms of tests by the drafts' own positions, which a block's next step would meet again,
    are found.
    """
    pair = (0.9, 0.1), (0.5, 0.5)
    assert written_in_steps(8_000, pair) <= LIMIT
    assert written_in_steps(8_000, pair, own_positions=True) > LIMIT


def test_draft_noise_by_position_is_for_tests_token_by_token():
    """What the front refuses is biased, whatever keys the tests."""
    pair = (0.75, 0.25), (0.25, 0.75)
    assert written_in_steps(8_000, pair) <= LIMIT
    assert written_in_steps(8_000, pair, drafts="position", as_block=False) <= LIMIT
    assert written_in_steps(8_000, pair, drafts="position") > LIMIT


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
