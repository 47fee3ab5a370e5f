"""Distillation on the shipped target: what is kept of it is exact, a killed run goes on, a written
draft is the trained one; from one command it loads beside its target as its card says.
"""

import contextlib
import copy
import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from analysis.commands import COMMANDS
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.causal import pair_models
from analysis.models.distilled import WEIGHTS, is_distilled, load_distilled, stored_weights
from analysis.models.pair import load_pair
from analysis.provenance import file_digest
from analysis.train import corpus, distillation as d, draft_training as t
from analysis.train.corpus import Corpus, Document
from analysis.train.openings import with_openings
from otm.__main__ import main

RECIPE = d.Distillation(
    layers=(0, 1),
    head=512,
    context=32,
    windows=24,
    held_windows=4,
    batch=4,
    warm_up=1,
    steps=10,
    fall=5,
    seed=1,
)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def target():
    return AutoModelForCausalLM.from_pretrained(SHIPPED_PAIR / "target", dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def small():
    """A target with the shipped one's vocabulary, for what holds of any: steps cost a tenth."""
    sizes = {"hidden_size": 32, "head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = AutoConfig.from_pretrained(
        SHIPPED_PAIR / "target", **sizes, intermediate_size=64, num_hidden_layers=2
    )
    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(SHIPPED_PAIR / "target")


@pytest.fixture(scope="module")
def sample():
    text = (SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8")[:9000]
    halves = (
        Document("one", text[:8000], held_out=False),
        Document("two", text[8000:], held_out=True),
    )
    return Corpus(documents=halves, provenance={"kind": "a sample"})


@pytest.fixture(scope="module")
def shards(target, tokenizer, sample, tmp_path_factory):
    work = tmp_path_factory.mktemp("distillation")
    return work, d.prepare(target, tokenizer, sample, RECIPE, work)


@pytest.fixture(scope="module")
def small_shards(small, tokenizer, sample, tmp_path_factory):
    work = tmp_path_factory.mktemp("small")
    return work, d.prepare(small, tokenizer, sample, RECIPE, work)


@pytest.fixture(scope="module")
def drafted(small, small_shards, tmp_path_factory):
    """A trained draft of the small target, its vocabulary, and where it is written."""
    folder = tmp_path_factory.mktemp("drafted")
    model, vocabulary = d.train_draft(small, small_shards[1], RECIPE, folder / "work")
    d.write_draft(model, vocabulary, folder / "draft")
    return model, vocabulary, folder / "draft"


def law(target, rows):
    with torch.inference_mode():
        return torch.softmax(target(rows.long()).logits.double(), dim=-1)


def test_what_is_kept_of_the_target_gives_its_law(target, shards):
    stored = load_file(shards[1][d.TRAIN][0])
    weight = target.get_output_embeddings().weight.float()
    kept = torch.exp(
        stored["hidden"].float() @ weight.T - stored["log_normaliser"][..., None]
    ).double()
    exact = law(target, stored["tokens"])
    # Hidden states are kept to 8 bits: logits of size up to 20 move by 2⁻⁹ of themselves, most
    # cancelling over 256 coordinates.
    assert (kept - exact).abs().sum(dim=-1).div(2).max() < 0.02
    assert stored["tokens"].shape == (24, RECIPE.context)


def test_sampled_windows_continue_prompts_by_the_targets_law(target):
    prompts = [np.arange(5, 13, dtype=np.int32), np.arange(7, 10, dtype=np.int32)] * 800
    heat = (1.0, 0.6)  # dealt out in turn: the second prompt's rows are all at one
    rows = d.sampled_features(target, prompts, 10, seed=3, temperatures=heat)["tokens"].numpy()
    for prompt, own, power in zip(prompts, (rows[::2], rows[1::2]), heat, strict=False):
        given = len(prompt)
        assert (own[:, :given] == prompt).all()
        exact = law(target, torch.from_numpy(own[:1, :given]))[0, -1].numpy() ** (1 / power)
        exact /= exact.sum()
        counts = np.bincount(own[:, given], minlength=len(exact)) / len(own)
        # E TV of n draws is at most ½ Σ √(q(1 − q)/n), and one draw moves it by 1/n: beyond 4/√n
        # more with probability e^{-32}.
        assert np.abs(counts - exact).sum() / 2 < 0.5 * np.sqrt(
            exact * (1 - exact) / len(own)
        ).sum() + 4 / np.sqrt(len(own))


def test_prompts_are_cut_from_documents_of_each_kind_and_return_where_they_are_few(tokenizer):
    held = Document("d", "held out", held_out=True)
    documents = (
        Document("a", "word " * 40, held_out=False),
        held,
        Document("b", "def f(", held_out=False, kind="code"),
        dataclasses.replace(held, kind="code"),
    )
    prompts = d.choose_prompts(tokenizer, Corpus(documents, {}), RECIPE)
    code, text = (tokenizer(documents[at].text)["input_ids"] for at in (2, 0))
    assert [len(prompts.train), *map(len, prompts.held.values())] == [24, 4, 4]
    assert all(list(row) == code for row in prompts.train[::2])
    cut = [text[start : start + 8] for start in range(0, len(text) - 8, 32)]
    assert [list(row) for row in prompts.train[1 : 1 + 2 * len(cut) : 2]] == cut
    with pytest.raises(AnalysisError, match="of code none is held out"):
        d.choose_prompts(tokenizer, Corpus(documents[:3], {}), RECIPE)


def test_openings_are_frames_around_words_of_the_tokenizer_on_one_side_each(tokenizer):
    found = with_openings(Corpus((), {}), tokenizer)
    sides = {}
    for document in found.documents:
        kind, word = document.source.split(":")
        assert word in document.text and kind == document.kind
        sides.setdefault(word, set()).add(document.held_out)
    assert {document.kind for document in found.documents} == {"code", "lists", "prose"}
    assert all(len(own) == 1 for own in sides.values())
    assert 0.005 < np.mean([own == {True} for own in sides.values()]) < 0.05


def test_questions_are_put_into_a_chat_template(tokenizer):
    asking = copy.copy(tokenizer)
    asking.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    texts = with_openings(Corpus((), {}), asking).texts(held_out=False, kind="questions")
    assert all(text.startswith("<") and text.endswith(">") for text in texts)


def test_the_vocabulary_holds_the_likely_tokens(target, shards):
    paths = shards[1][d.TRAIN]
    chosen = d.likely_tokens(target, paths, 512)
    mean = torch.stack(
        [law(target, load_file(path)["tokens"]).flatten(0, 1)[::16].mean(dim=0) for path in paths]
    ).mean(dim=0)
    best = mean.topk(512).values.sum()
    # The kept law is within .02 of the exact one, so the two sums differ by at most twice that.
    assert (chosen.diff() > 0).all()
    assert mean[chosen].sum() > best - 0.04


@pytest.mark.parametrize("forward_kl", [True, False])
def test_the_gradient_is_that_of_the_loss(forward_kl):
    random = torch.Generator().manual_seed(5)
    hidden = torch.randn((2, 40, 8), generator=random, requires_grad=True)
    head = torch.randn((30, 8), generator=random).bfloat16()
    stored = {
        "hidden": torch.randn((2, 40, 8), generator=random).bfloat16(),
        "log_normaliser": 4 + torch.rand((2, 40), generator=random),
    }
    found, accepted = d.score(hidden.detach(), head, stored, forward_kl=forward_kl)
    draft = torch.log_softmax(hidden.bfloat16().float() @ head.float().T, dim=-1)
    target = torch.exp(
        stored["hidden"].float() @ head.float().T - stored["log_normaliser"][..., None]
    )
    overlap = torch.minimum(draft.exp(), target).sum(dim=-1)
    loss = -(target * draft).sum(dim=-1).mean() if forward_kl else -overlap.log().mean()
    loss.backward()
    # Logits are rounded to 2⁻⁹ of themselves and lie within 20: probabilities to a few hundredths,
    # and the gradient with them.
    assert accepted == pytest.approx(overlap.mean().item(), rel=0.03)
    assert (found - hidden.grad).norm() < 0.05 * hidden.grad.norm()


def same(one, other):
    """Both have trained to the same numbers."""
    there = other.trained()
    return all(torch.equal(value, there[name]) for name, value in one.trained().items())


def test_a_run_that_is_killed_or_made_longer_goes_on_where_it_was_and_ends_the_same(
    small, small_shards, tmp_path, interrupted
):
    stored, longer = small_shards[1], dataclasses.replace(RECIPE, steps=14)
    whole, _ = d.train_draft(small, stored, longer, tmp_path / "whole")
    for last in (4, 11):  # before the rate falls, and while it does
        with interrupted(last):
            d.train_draft(small, stored, longer, tmp_path / f"{last}")
        resumed, _ = d.train_draft(small, stored, longer, tmp_path / f"{last}")
        assert same(whole, resumed)
    d.train_draft(small, stored, RECIPE, tmp_path / "part")
    continued, _ = d.train_draft(small, stored, longer, tmp_path / "part")
    assert same(whole, continued)
    with pytest.raises(AnalysisError, match="at least 14 steps"):
        d.train_draft(small, stored, dataclasses.replace(RECIPE, steps=11), tmp_path / "part")


def test_a_folder_of_another_recipe_is_refused(target, tokenizer, sample, shards):
    with pytest.raises(AnalysisError, match="same recipe"):
        d.prepare(target, tokenizer, sample, dataclasses.replace(RECIPE, seed=2), shards[0])


def test_training_raises_acceptance(target, shards, tmp_path):
    recipe = dataclasses.replace(RECIPE, batch=2, steps=24, learning_rate=1.5e-4)
    start, _ = d.train_draft(
        target, shards[1], dataclasses.replace(recipe, steps=0, fall=0), tmp_path / "none"
    )
    trained, vocabulary = d.train_draft(target, shards[1], recipe, tmp_path / "some")
    plain = d.DraftModule(target, recipe, vocabulary)
    none, before, after = (
        overlap(target, model, vocabulary, shards[1][d.TRAIN]) for model in (plain, start, trained)
    )
    assert before > none + 0.02
    assert after > before + 0.01


def overlap(target, model, vocabulary, shards):
    rows = load_file(shards[0])["tokens"].long()
    with torch.inference_mode():
        draft = torch.softmax((model.last_hidden(rows).float() @ model.head.T).double(), dim=-1)
    return torch.minimum(draft, law(target, rows)[..., vocabulary]).sum(dim=-1).mean().item()


def test_a_written_draft_is_the_trained_one_and_proposes_likely_tokens_only(small, drafted):
    model, vocabulary, folder = drafted
    assert is_distilled(folder)
    draft = load_distilled(folder, small)
    rows = torch.arange(10, 30)[None]
    with torch.inference_mode():
        logits = draft(rows).logits
        mine = torch.log_softmax(
            model.lens(model.body(rows).last_hidden_state) @ model.head.T, dim=-1
        )
    allowed = torch.zeros(logits.shape[-1], dtype=torch.bool)
    allowed[vocabulary] = True
    assert (logits[..., ~allowed] == -torch.inf).all()
    # Weights are written to half of 1/127 of the largest of a row.
    assert (torch.log_softmax(logits, dim=-1)[..., allowed] - mine).abs().max() < 0.1
    assert (
        draft.get_input_embeddings().weight.data_ptr()
        == small.get_input_embeddings().weight.data_ptr()
    )


def test_training_goes_on_from_a_draft_with_the_same_layers(small, small_shards, drafted, tmp_path):
    first, vocabulary, folder = drafted
    on = dataclasses.replace(RECIPE, steps=0, fall=0, start=str(folder))
    second, _ = d.train_draft(small, small_shards[1], on, tmp_path / "second")
    for name, value in first.trained().items():
        # a matrix's row is written to half of 1/127 of its largest number
        most = value.abs().amax(dim=-1, keepdim=True) / 250 if value.ndim == 2 else 0.0
        assert (value - second.trained()[name]).abs().le(most).all(), name
    with pytest.raises(AnalysisError, match="a draft with 1 layers"):
        d.DraftModule(small, dataclasses.replace(on, layers=(0,)), vocabulary)
    other = AutoModelForCausalLM.from_pretrained(SHIPPED_PAIR / "draft")
    with pytest.raises(AnalysisError, match="distilled for"):
        load_distilled(folder, other)


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
            d.Distillation(layers=(0, 9)),
            out=tmp_path,
            work=tmp_path / "work",
            device="cpu",
        )
