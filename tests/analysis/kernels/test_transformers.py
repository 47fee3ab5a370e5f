"""`generate` on shared noise: one text whatever drafts it, the library's."""

import numpy as np
import pytest
import torch

from analysis.kernels.transformers import shared_noise
from analysis.models.causal import CausalModel
from otm import Processing
from otm.errors import InvalidParameter, Unsupported
from otm.sequence import NoiseTree, SharedNoise, generate
from tests.analysis.kernels.tiny_llamas import PROMPT, V, llama, text

# transformers warns about how its own assisted decoding calls `generate`
pytestmark = pytest.mark.filterwarnings("ignore")
WARM = Processing(temperature=0.5, top_p=0.8)


@pytest.fixture(scope="module")
def target():
    return llama(0, layers=2)


def test_one_text_with_any_assistant_and_none_and_it_is_the_library_s(target):
    near, far = llama(0, layers=2, like=target, change=0.3), llama(5)
    draft, model = (CausalModel(one, V, "cpu", WARM) for one in (near, target))
    for seed in (7, 2**64 - 1):
        ours = generate(
            NoiseTree(4, 3),
            draft=draft,
            target=model,
            context=PROMPT,
            num_tokens=16,
            rng=np.random.default_rng(0),
            noise=SharedNoise(seed),
        )
        for assistant in (None, target, near, far):
            found = text(
                target, max_new_tokens=16, assistant_model=assistant, **shared_noise(seed, WARM)
            )
            assert found == list(ours.tokens)


def test_the_assistant_is_given_the_noise(target):
    """Drafts of the target's twin are the target's tokens: one call writes five, for any seed."""
    calls = list[int]()
    hook = target.register_forward_pre_hook(lambda *_: calls.append(1))
    twin = llama(0, layers=2, like=target)
    for seed in range(8):
        hot = shared_noise(seed, Processing(temperature=2.0))
        assert len(text(target, max_new_tokens=5, assistant_model=twin, **hot)) == 5
    hook.remove()
    assert len(calls) == 8


def test_scores_are_the_noisy_log_probabilities_and_zero_where_they_win():
    """After a processor of one's own, which comes first; no temperature is no noise."""
    logits = torch.tensor([[0.5, 9.0, 0.1, -0.3]])

    def forbid(_, scores):
        return scores.masked_fill(torch.arange(4) == 1, -torch.inf)

    for processing in (Processing(temperature=0.7), Processing(temperature=0.0)):
        scores = logits
        for processor in shared_noise(5, processing, first=[forbid])["logits_processor"]:
            scores = processor(torch.zeros((1, 11), dtype=torch.int64), scores)
        with np.errstate(divide="ignore"):
            wanted = np.log(processing(forbid(None, logits).double().numpy()))
        wanted = wanted + SharedNoise(5).row(11, 4)
        np.testing.assert_allclose(scores.numpy(), wanted - wanted.max(), rtol=1e-6)
        assert scores.dtype == torch.float32 and scores.max() == 0
        assert scores[0, 1] == -torch.inf


def test_requests_together_and_other_seeds_are_refused(target):
    with pytest.raises(Unsupported, match="got 2 rows"):
        target.generate(
            torch.tensor([PROMPT, PROMPT]), max_new_tokens=1, pad_token_id=0, **shared_noise(7)
        )
    with pytest.raises(InvalidParameter, match="seed of noise"):
        shared_noise(-1)
