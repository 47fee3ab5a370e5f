"""The public target and the draft that was distilled for it: the pair is as good as its card."""

import json

import numpy as np
import pytest
import torch

from analysis.errors import AnalysisError
from analysis.models import pair as models
from analysis.models.causal import pair_models
from analysis.models.public import PUBLIC, public_folder
from figures.paths import DATA

DRAFT = PUBLIC["smollm2"].draft


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pair():
    return models.load_pair(target=fetched(), device="cpu")


def fetched():
    """The public model's short name, where it is on this machine."""
    try:
        public_folder("smollm2")
    except AnalysisError:
        pytest.skip("smollm2 is not on this machine: make public-model")
    return "smollm2"


def card():
    if not DRAFT.is_dir():
        pytest.skip("no draft for smollm2 comes with this copy")
    return json.loads((DRAFT / "training.json").read_text(encoding="utf-8"))


def test_the_shipped_draft_is_the_one_that_its_card_speaks_of():
    record = card()
    assert (DRAFT / "model.safetensors").stat().st_size < 8e6
    assert record["target"]["weights"] == PUBLIC["smollm2"].weights
    text = (DRAFT / "README.md").read_text(encoding="utf-8")
    assert len(record["acceptance"]) == 6
    for curves in record["acceptance"].values():
        for name in ("optimum", "K-SEQ"):
            means = [cell["mean"] for cell in curves[name]]
            assert means == sorted(means)
            for cell in curves[name]:
                assert cell["mean"] <= curves["Q(S)"][0]["mean"]
                assert f"{cell['mean']:.3f} ({cell['low']:.3f}–{cell['high']:.3f})" in text


def test_the_draft_reaches_its_cards_acceptance_and_never_more_than_its_mass(pair):
    lines = (DATA / "prompts_prose.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = torch.tensor([pair.encode(json.loads(line)["text"])[:6] for line in lines[:8]])
    torch.manual_seed(0)
    windows = pair.target.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=True,
        top_k=0,
        max_new_tokens=64,
        min_new_tokens=64,
    )
    draft, target = (
        torch.softmax(logits[:, 16:].double(), dim=-1) for logits in pair.logits(windows)
    )
    accepted = torch.minimum(draft, target).sum(dim=-1)
    mass = (target * (draft > 0)).sum(dim=-1)
    assert (accepted <= mass + 1e-12).all()
    assert ((draft > 0).sum(dim=-1) <= card()["recipe"]["head"]).all()
    by_window = accepted.mean(dim=1).numpy()
    # Eight windows' mean against the card's, five of its standard errors apart at most; the card's
    # own is far smaller.
    error = by_window.std(ddof=1) / np.sqrt(len(by_window))
    assert (
        abs(by_window.mean() - card()["acceptance"]["held_prose"]["optimum"][0]["mean"]) < 5 * error
    )


def test_the_draft_is_a_fraction_of_the_target_and_both_answer_for_a_tree_in_one_pass(pair):
    own = sum(
        weight.numel() for name, weight in pair.draft.named_parameters() if "embed" not in name
    )
    head = pair.draft.lm_head.weight.numel()
    assert (own + head) / pair.target.num_parameters() < 0.15  # what a pass reads
    assert [model.fallback for model in pair_models(pair)] == [None, None]
