"""The public target and the draft that was distilled for it: one name is enough everywhere, and the
pair is as good as its card.
"""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from analysis.commands.app import app  # noqa: E402
from analysis.errors import AnalysisError  # noqa: E402
from analysis.files import SHIPPED_PAIR  # noqa: E402
from analysis.models import pair as models  # noqa: E402
from analysis.models.causal import pair_models  # noqa: E402
from analysis.models.public import PUBLIC, public_folder  # noqa: E402
from analysis.provenance import file_digest  # noqa: E402

DRAFT = PUBLIC["smollm2"].draft
pytestmark = pytest.mark.xdist_group("smollm2")  # 540 MB, on one worker


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # beside other workers a second one waits most of the time
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def pair():
    return models.load_pair(target=fetched(), device="cpu")


@pytest.fixture
def run(pair, tmp_path, monkeypatch):
    """A command of the command line, in a folder of its own; it gets the pair that is loaded
    already if it asks for that one.
    """
    from typer.testing import CliRunner

    name = fetched()
    monkeypatch.chdir(tmp_path)

    def same(draft=None, target=None, **options):
        assert target == "smollm2"
        assert draft in (None, str(DRAFT))
        return pair

    monkeypatch.setattr(models, "load_pair", same)

    def invoke(command, *words):
        result = CliRunner().invoke(
            app, [command, "--target", name, *words], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


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
    weights = DRAFT / "model.safetensors"
    assert file_digest(weights) == record["sha256"]
    assert weights.stat().st_size < 16e6
    assert record["target"]["weights"] == PUBLIC["smollm2"].weights
    text = (DRAFT / "README.md").read_text(encoding="utf-8")
    for kind in ("held_text", "held_sampled"):
        curves = record["acceptance"][kind]
        for name in ("optimum", "K-SEQ"):
            assert [cell["mean"] for cell in curves[name]] == sorted(
                cell["mean"] for cell in curves[name]
            )
            for cell in curves[name]:
                assert cell["mean"] <= curves["Q(S)"][0]["mean"]
                assert f"{cell['mean']:.3f} ({cell['low']:.3f}–{cell['high']:.3f})" in text


def test_the_draft_reaches_its_cards_acceptance_and_never_more_than_its_mass(pair):
    tokens = pair.encode((SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8"))
    starts = range(0, len(tokens) - 64, len(tokens) // 8)  # eight places all over the text
    windows = torch.tensor([tokens[start : start + 64] for start in starts][:8])
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
        abs(by_window.mean() - card()["acceptance"]["held_text"]["optimum"][0]["mean"]) < 5 * error
    )


def test_the_draft_is_a_fraction_of_the_target(pair):
    own = sum(
        weight.numel() for name, weight in pair.draft.named_parameters() if "embed" not in name
    )
    head = pair.draft.lm_head.weight.numel()
    assert (own + head) / pair.target.num_parameters() < 0.15  # what a pass reads


def test_both_models_answer_for_a_tree_in_one_pass(pair):
    assert [model.fallback for model in pair_models(pair)] == [None, None]


def test_compare_takes_the_name(run):
    output = run("compare", "--prompt", "The", "--k", "1,2", "--samples", "0")
    assert "V = 49152" in output
    assert "note" not in output


def test_measure_takes_the_name(run, tmp_path):
    (tmp_path / "prompts.txt").write_text("Return the sum\n")
    run("measure", "--prompts", "prompts.txt", "--out", "run", "--k", "1,2", "--workers", "1")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert "smollm2-draft" in json.dumps(manifest)


def test_decode_takes_the_name(run, tmp_path):
    (tmp_path / "prompts.txt").write_text("Return the sum\n")
    words = ("--prompts", "prompts.txt", "--out", "out.jsonl", "--num-tokens", "4")
    assert "tokens" in run(
        "decode", *words, "--decoder", "SpeculativeSampling(3)", "--decoder", "DraftSelection(2, 2)"
    )


def test_latency_takes_the_name(run):
    small = (
        "--lengths",
        "4",
        "--batches",
        "1",
        "--nodes",
        "0",
        "--context",
        "8",
        "--seconds",
        "0",
        "--any-load",
    )
    assert "target" in run("latency", *small)


def test_an_experiment_takes_the_name(run, tmp_path, monkeypatch):
    from analysis.papers import experiments

    for name, value in (
        ("NUM_TOKENS", 2),
        ("TABLE2_LENGTHS", (2,)),
        ("TABLE2_DRAFTS", (1, 2)),
        ("SEEDS", (0,)),
    ):
        monkeypatch.setattr(experiments, name, value)
    run("experiment", "table2", "--work", "work", "--out", "out", "--num-prompts", "1")
    record = json.loads((tmp_path / "out" / "table2-smollm2.json").read_text(encoding="utf-8"))
    assert [(row["K"], row["verifier"]) for row in record["rows"]] == [
        (1, "K-SEQ"),
        (2, "K-SEQ"),
        (2, "Optimal"),
    ]
