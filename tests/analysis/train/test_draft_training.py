"""A draft from one command: what is written loads beside its target, and its card says what was
measured.
"""

import contextlib
import io
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from analysis.commands import COMMANDS
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.causal import pair_models
from analysis.models.distilled import WEIGHTS, stored_weights
from analysis.models.pair import load_pair
from analysis.provenance import file_digest
from analysis.train import corpus, draft_training as t
from analysis.train.corpus import Corpus, Document
from analysis.train.distillation import Distillation
from otm.__main__ import main

DRAFTS = SHIPPED_PAIR.parent / "drafts"
FIELDS = {
    "layers": [0, 1],
    "head": 1024,
    "context": 64,
    "windows": 16,
    "held_windows": 2,
    "warm_up": 1,
    "steps": 4,
    "fall": 2,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory, one_thread):
    """A draft for the shipped target, the command's output, the draft's record."""
    place = tmp_path_factory.mktemp("distil")
    (place / "recipe.json").write_text(json.dumps(FIELDS))
    words = ["--target", str(SHIPPED_PAIR / "target"), "--threads", "1"]
    for name in ("recipe.json", "draft", "work"):
        option = {"draft": "out"}.get(name, name.removesuffix(".json"))
        words += [f"--{option}", str(place / name)]
    texts = corpus.from_text_files([SHIPPED_PAIR / "held_out.txt"])
    with pytest.MonkeyPatch.context() as patch:
        # the docstrings of all packages take minutes to gather
        patch.setattr(corpus, "from_installed_packages", lambda constraints: texts)
        patch.setattr("otm.commands.app.further", lambda: COMMANDS)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert main(["train", *words]) == 0
    record = json.loads((place / "draft" / "training.json").read_text(encoding="utf-8"))
    return place / "draft", said.getvalue(), record


def test_the_draft_loads_beside_its_target_and_is_as_good_as_its_record_says(written):
    folder, output, record = written
    pair = load_pair(draft=str(folder), target=str(SHIPPED_PAIR / "target"), device="cpu")
    assert pair.num_tokens == 4096
    # tokens without mass hinder no tree pass
    assert [model.fallback for model in pair_models(pair)] == [
        None,
        None,
    ]
    tokens = load_file(folder.parent / "work" / "held_text-00000.safetensors")["tokens"].long()
    draft, target = (
        torch.softmax(logits[:, 15::16].double(), dim=-1) for logits in pair.logits(tokens)
    )
    curves = record["acceptance"]["held_text"]
    # One draft's acceptance is Σ min(p, q), read here from the whole laws and there from those on
    # S.
    assert curves["optimum"][0]["mean"] == pytest.approx(
        torch.minimum(draft, target).sum(dim=-1).mean().item(), abs=1e-9
    )
    assert curves["Q(S)"][0]["mean"] == pytest.approx(
        (target * (draft > 0)).sum(dim=-1).mean().item(), abs=1e-9
    )
    kinds = ["held_code", "held_lists", "held_prose", "held_text"]
    assert list(record["acceptance"]) == [*kinds, "all"]
    means = [record["acceptance"][kind]["optimum"][1]["mean"] for kind in kinds]
    # as many windows of each kind
    assert record["acceptance"]["all"]["optimum"][1]["mean"] == pytest.approx(np.mean(means))
    for kind in ("held_text", "all"):
        means = [cell["mean"] for cell in record["acceptance"][kind]["optimum"]]
        assert means == sorted(means)
        assert f"{means[-1]:.3f}" in output


def test_the_card_says_what_was_measured_and_under_which_licence(written):
    folder, _, record = written
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert record["sha256"] in text
    assert "license: apache-2.0" in text
    assert f"{record['acceptance']['held_text']['K-SEQ'][-1]['mean']:.3f}" in text
    assert record["recipe"]["head"] == FIELDS["head"]
    of_texts = record["corpus"] | {"kind": "files"}
    of_texts.pop("openings", None)
    bare = t.card(record | {"corpus": of_texts})
    assert "Prompts are cut from documents." in bare and "opening" not in bare


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"width": 3}',
        '{"layers": []}',
        '{"layers": 3}',
        '{"steps": -1}',
        '{"context": 30}',
        '{"learning_rate": 0}',
        "{",
        '{"fall": 7000}',
        '{"temperatures": [0]}',
        '{"start": "nowhere"}',
        '{"start": 3}',
    ],
)
def test_an_impossible_recipe_is_refused(tmp_path, text):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(AnalysisError, match="recipe is a JSON object"):
        t.distillation_from_json(tmp_path / "recipe.json")


@pytest.mark.parametrize("folder", sorted(DRAFTS.iterdir()), ids=lambda folder: folder.name)
def test_a_committed_draft_is_the_one_of_its_record_and_card(folder):
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert file_digest(folder / WEIGHTS) == record["sha256"]
    assert record["sha256"] in (folder / "README.md").read_text(encoding="utf-8")
    weights = stored_weights(folder)
    vocabulary = weights.pop("vocabulary")
    assert sum(value.numel() for value in weights.values()) == record["parameters"]
    told = json.loads((folder / "distilled.json").read_text(encoding="utf-8"))
    assert told["head"] == record["recipe"]["head"] == len(vocabulary)
    assert all(value.isfinite().all() for value in weights.values())


def test_a_recipe_that_the_target_has_no_layers_for_is_refused(tmp_path):
    corpus = Corpus(documents=(Document("one", "text", held_out=False),), provenance={})
    with pytest.raises(AnalysisError, match="4 layers"):
        t.distil(
            str(SHIPPED_PAIR / "target"),
            corpus,
            Distillation(layers=(0, 9)),
            out=tmp_path,
            work=tmp_path / "work",
            device="cpu",
        )
