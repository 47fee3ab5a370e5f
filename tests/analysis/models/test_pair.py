"""The shipped pair loads like any other model, differs as promised, and gives the captured
distributions; the public target and the draft that was distilled for it are as good as their card.
"""

import json
import re

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import otm
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models import pair as pair_module
from analysis.models.causal import pair_models
from analysis.models.pair import choose_device, load_pair
from analysis.models.public import PUBLIC, public_folder
from analysis.models.source import PairSource, load_source
from analysis.papers import captures
from analysis.provenance import weights_digest
from figures import figure4, figure5, front
from figures.paths import DATA
from tests.paths import ROOT

RECORD = json.loads((SHIPPED_PAIR / "training.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["draft", "draft_small", "target"])
def test_loads_like_any_other_model(name):
    model = AutoModelForCausalLM.from_pretrained(SHIPPED_PAIR / name, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED_PAIR / name)
    assert model.config.model_type == "llama"
    assert len(tokenizer) == model.config.vocab_size == 4096
    text = "Return the largest value.\n\n    naïve → 数"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_weights_are_small_float16_safetensors_and_the_target_is_clearly_better():
    sizes = [path.stat().st_size for path in SHIPPED_PAIR.rglob("model.safetensors")]
    assert len(sizes) == 3 and sum(sizes) < 12e6 and not list(SHIPPED_PAIR.rglob("*.bin"))
    assert json.loads((SHIPPED_PAIR / "target" / "config.json").read_text())["dtype"] == "float16"
    held_out = RECORD["held_out"]
    assert held_out["target"]["bits_per_byte"] < 0.9 * held_out["draft"]["bits_per_byte"]


def held_out_rows(pair, width):
    """The first 40 rows of the shipped text."""
    text = (SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8")
    assert "\0" not in text
    tokens = np.asarray(pair.tokenizer(text)["input_ids"], dtype=np.int64)
    return torch.from_numpy(tokens[: 40 * width].reshape(40, width))


def test_recorded_figures_agree_with_a_fresh_look_at_held_out_text(pair):
    """On the shipped 60,000 characters the pair does what training.json says of the whole held-out
    side.

    The sample takes the *starts* of documents, where contexts are short, so it may only be compared
    coarsely: 15 %.
    """
    losses, accepted = [], []
    for row in held_out_rows(pair, 256):
        logits = pair.logits(row[None, :-1])
        losses.append([float(torch.nn.functional.cross_entropy(z[0], row[1:])) for z in logits])
        draft, target = (torch.softmax(z[0].double(), dim=-1) for z in logits)
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
        accepted.append(float(otm.acceptance(otm.Maximal(), problem).mean()))
    stated = [RECORD["held_out"][name]["nats_per_token"] for name in ("draft", "target")]
    assert np.mean(losses, axis=0) == pytest.approx(stated, rel=0.15)
    optimum = RECORD["acceptance"]["optimum"][0]
    assert 0.5 <= optimum <= 0.85 and np.mean(accepted) == pytest.approx(optimum, rel=0.1)


def test_the_smaller_draft_is_worse_and_as_stated():
    folder = SHIPPED_PAIR / "draft_small"
    small = load_pair(draft=str(folder), device="cpu")
    rows = held_out_rows(small, 128)
    logits = small.logits(rows[:, :-1])[0]
    loss = float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
    stated = json.loads((folder / "training.json").read_text(encoding="utf-8"))["held_out"]
    # a sample of document starts, as above
    assert loss == pytest.approx(stated["nats_per_token"], rel=0.15)
    assert loss > RECORD["held_out"]["draft"]["nats_per_token"]


# Logits are float32: a processor that sums in another order moves them by about 1e-5, probabilities
# by as much relatively.
FLOAT32 = 1e-3


def test_shipped_pair_reproduces_figure5(pair):
    fresh, committed = captures.capture_figure5(pair, {}), figure5.capture()
    assert fresh["prompt"] == committed["prompt"]
    by_id = [
        dict(zip(c["token_ids"], zip(c["draft"], c["target"], strict=True), strict=True))
        for c in (fresh, committed)
    ]
    assert by_id[0].keys() == by_id[1].keys()
    for token, masses in by_id[0].items():
        np.testing.assert_allclose(masses, by_id[1][token], rtol=FLOAT32)
    digests = {name: weights_digest(str(SHIPPED_PAIR / name)) for name in ("draft", "target")}
    assert committed["manifest"]["models"] == digests


def test_captions_say_what_the_whole_vocabulary_gives(pair):
    draft, target = captures.next_pair(pair, pair.encode(captures.PAPER_PROMPT))
    problem = otm.Problem(draft=otm.normalise(draft), target=otm.normalise(target), law=otm.IID(2))
    in_use = max(float(otm.acceptance(verifier, problem)) for verifier in front.IN_USE)
    gain = 100 * (float(otm.optimal_acceptance(problem)) - in_use)
    for page in ("README.md", "docs/index.md"):
        said = re.search(
            r"([\d.]+) points on the whole vocabulary", (ROOT / page).read_text(encoding="utf-8")
        )
        # one digit; 1e-5 in logits is worth less
        assert said and float(said[1]) == pytest.approx(gain, abs=0.05 + 0.01)


def test_shipped_pair_reproduces_figure4(pair):
    record = figure4.capture()
    assert pair.encode(record["prompt"]) == record["context"]
    for side, name in enumerate(("draft", "target")):
        for row in record[name]:
            mass = otm.from_logits(
                pair.side_logits(side, row["context"]).double(), top_k=captures.FIGURE4_TOP_K
            ).numpy()
            np.testing.assert_allclose(mass[row["tokens"]], row["mass"], rtol=FLOAT32)
    assert record["seed"] >= 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"model_type": "llama", "hidden_size": "x"}'),
        ("config.json", "[]"),
        ("config.json", '{"model_type": []}'),
        ("config.json", '{"a":' * 10_000),
        ("tokenizer_config.json", '{"model_max_length": "1"}'),
    ],
    ids=["width", "list", "type", "deep", "length"],
)
def test_a_damaged_configuration_is_told_in_a_message(copied_draft, name, content):
    """A length that is a string is read without a word and compared with a number when something is
    encoded.
    """
    kept = json.loads((copied_draft / "tokenizer_config.json").read_text(encoding="utf-8"))
    if name == "tokenizer_config.json":
        content = json.dumps(kept | json.loads(content))
    (copied_draft / name).write_text(content)
    with pytest.raises(AnalysisError, match=r"could not be loaded|tokenizer"):
        load_pair(draft=str(copied_draft), device="cpu")


def test_quantised_weights_name_the_package_that_reads_them(copied_draft):
    """Where it is there they are loaded as all others are:
    `compare` was run on int8 of torchao 0.18.0.
    """
    path = copied_draft / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(
        AnalysisError, match=r"GPTQ.*optimum.*Install the package that its weights are"
    ):
        load_pair(draft=str(copied_draft), device="cpu")


@pytest.mark.parametrize("name", ["meta", "mps", "xpu"])
def test_a_device_holds_numbers_in_float64(name):
    with pytest.raises(AnalysisError, match=f"'auto', 'cpu' or 'cuda'; got '{name}'"):
        choose_device(name)


def test_a_silent_hub_is_asked_once(monkeypatch):
    """Loading asks many times, each with retries; a copy that is kept here would be loaded all the
    same.
    """
    asked = []

    class Silent:
        def model_info(self, name, timeout):
            asked.append((name, timeout))
            raise ConnectionError("no route")

    monkeypatch.setattr(pair_module, "HfApi", Silent)
    pair_module._answers.cache_clear()
    with pytest.raises(AnalysisError, match="could not be loaded"):
        load_pair(draft="no/where", target="no/where")
    pair_module._answers.cache_clear()
    assert asked == [("no/where", pair_module._PATIENCE)]
    assert pair_module._PATIENCE <= 5


def test_each_model_has_its_revision_and_weights_as_in_the_files(monkeypatch):
    usual, asked = pair_module._load, []

    def load(factory, name, what, trust_remote_code, **options):
        asked.append((what, options.get("revision"), options.get("dtype")))
        return usual(factory, name, what, trust_remote_code, **options)

    monkeypatch.setattr(pair_module, "_load", load)
    source = PairSource(device="cpu", dtype="auto", draft_revision="old", revision="v2")
    assert load_source(source).target.dtype == torch.float16  # as its files say
    assert asked == [
        (f"{side}{what}", revision, dtype)
        for what, dtype in (("'s tokenizer", None), (" model", "auto"))
        for side, revision in (("draft", "old"), ("target", "v2"))
    ]


DRAFT = PUBLIC["smollm2"].draft


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def public_pair():
    return load_pair(target=fetched(), device="cpu")


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


def test_the_draft_reaches_its_cards_acceptance_and_never_more_than_its_mass(public_pair):
    lines = (DATA / "prompts_prose.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = torch.tensor([public_pair.encode(json.loads(line)["text"])[:6] for line in lines[:8]])
    torch.manual_seed(0)
    windows = public_pair.target.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=True,
        top_k=0,
        max_new_tokens=64,
        min_new_tokens=64,
    )
    draft, target = (
        torch.softmax(logits[:, 16:].double(), dim=-1) for logits in public_pair.logits(windows)
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


def test_the_draft_is_a_fraction_of_the_target_and_both_answer_for_a_tree_in_one_pass(public_pair):
    own = sum(
        weight.numel()
        for name, weight in public_pair.draft.named_parameters()
        if "embed" not in name
    )
    head = public_pair.draft.lm_head.weight.numel()
    assert (own + head) / public_pair.target.num_parameters() < 0.15  # what a pass reads
    assert [model.fallback for model in pair_models(public_pair)] == [None, None]
