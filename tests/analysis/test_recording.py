"""transformers' assisted generation, recorded by a streamer: every token is in the record."""

import pytest
import torch

from otm.engines import StepRecord, read_acceptance


@pytest.fixture(scope="module")
def models():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(
        **sizes, num_attention_heads=2, num_key_value_heads=2, eos_token_id=None, pad_token_id=0
    )
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        made.append(transformers.LlamaForCausalLM(config).eval())
    return made


def test_a_streamer_records_assisted_generation(models, tmp_path):
    """Written with transformers 5.23.0: the prompt first, then a put for each target call."""
    target, draft = models
    draft.generation_config.update(
        num_assistant_tokens=3,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    record, prompt, number = StepRecord(tmp_path / "steps.jsonl"), torch.tensor([[1, 2, 3]]), 24
    torch.manual_seed(3)
    written = target.generate(
        prompt,
        assistant_model=draft,
        do_sample=True,
        max_new_tokens=number,
        streamer=record.streamer("a", offered=3),
    )
    (part,) = read_acceptance(tmp_path / "steps.jsonl").parts
    assert written.shape[1] - prompt.shape[1] == number == part.steps + part.accepted
    assert 0 < part.accepted <= 3 * part.steps
