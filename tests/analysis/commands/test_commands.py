"""The command line end to end on the shipped pair, and every way it can be asked for something
impossible.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.files import SHIPPED_PAIR
from analysis.models.pair import load_pair
from analysis.models.source import PairSource, describe_source, load_source


def test_compare_prints_a_table_and_writes_a_plot(printed, tmp_path):
    plot = tmp_path / "plot.png"
    asked = ("--prompt", "Return the number of", "--samples", "500", "--drafts", "1,2")
    shown = printed("compare", *asked, "--plot", plot, "--device", "cpu")
    assert "V = 4096, temperature 1, cpu" in shown
    table = shown[shown.index("drafts: i.i.d.") :].splitlines()
    optimum, kseq = (
        next(line.split()[1:3] for line in table if line.startswith(name))
        for name in ("optimum", "K-SEQ")
    )
    assert 0 < float(kseq[1]) < float(optimum[1]) < 1
    assert kseq[0].rstrip("★") == optimum[0]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_compare_takes_the_mean_over_prompts(printed, tmp_path):
    """The mean over prompts, without one prompt's bounds, and trees with intervals."""
    file = tmp_path / "prompts.txt"
    file.write_text("Returns the\nIf True\nThe default\nA list of\nRaises an\nSee also\n")
    asked = ("--drafts", "1", "--samples", "0", "--device", "cpu", "--plot", tmp_path / "plot.png")
    shown = printed("compare", "--prompts", file, "--nodes", "2", *asked)
    assert "6 contexts of 6 texts" in shown and "tree on shared noise" in shown
    assert "Tunstall" not in shown and "K-SEQ" in shown


def test_compare_takes_a_prompt_or_a_file(refused, tmp_path):
    asked = ("--plot", tmp_path / "plot.png")
    for wrong in ((), ("--prompt", "x", "--prompts", "y"), ("--prompt", "x", "--nodes", "4")):
        assert "--prompts FILE" in refused("compare", *wrong, *asked)
    few = tmp_path / "few.txt"
    few.write_text("\n")
    assert "1 prompts or more" in refused("compare", "--prompts", few, *asked)
    few.write_text("x\ny\n")
    assert "6 prompts or more" in refused("compare", "--prompts", few, "--nodes", "2", *asked)


def test_steps_prints_a_table_for_each_size(printed, refused, tmp_path):
    out = tmp_path / "steps.json"
    sizes = ("--shapes", "2,2", "--shapes", "1,1")
    shown = printed("steps", *sizes, "--num-contexts", "6", "--device", "cpu", "--out", out)
    assert "K = 1 sequences of L = 1, 6 contexts" in shown
    two, one = json.loads(out.read_text())["tables"]
    assert two["num_drafts"] == two["length"] == 2
    # One sequence of one token is verified alike by all that do not toss a coin: 1 + Σ min.
    means = {row["name"]: row["mean"] for row in one["rows"]}
    for name in ("optimal, vertex by vertex", "greedy multi-path block verification"):
        assert means["refined scores"] == pytest.approx(means[name], abs=1e-12)
    assert "K,L" in refused("steps", "--shapes", "8;8")
    lists = printed("steps", "--drafts", "2", "--num-contexts", "6", "--device", "cpu")
    assert "threshold race, matched" in lists and "list by belief, matched" in lists
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"text": "Return\\nthe {n}"}}\n' for n in range(6)))
    along = ("--prompts", prompts, "--per-text", "2", "--apart", "1", "--device", "cpu")
    few = ("--nodes", "2", "--num-sequences", "1", "--noises", "2", "--only", "likeliest tree")
    texts = printed("steps", *along, *few, "--blur", "0.4")
    assert texts.count("12 contexts of 6 texts") == 2  # the draft's, and the blurred one's
    assert "Pass --nodes" in refused("steps", *along)
    assert "Pass --nodes" in refused("steps", *along, "--drafts", "2")
    assert "got --nodes and --drafts" in refused("steps", "--nodes", "2", "--drafts", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", ""), "at least one token"),
        (("--prompt", "   "), "at least one token"),
        (("--prompt", "x", "--target", "no/such-model-here"), "could not be loaded"),
        (("--prompt", "x", "--device", "tpu9"), "device"),
        (("--prompt", "x", "--drafts", "one"), "commas between"),
        (("--prompt", "x", "--drafts", "0"), "numbers start at 1; got 0."),
        (("--prompt", "x", "--plot", "no-such-folder/plot.png"), "existing folder"),
        (("--prompt", "x", "--plot", "plot.xyz"), ".svg"),
        (("--prompt", "x", "--top-p", "2"), "top_p"),
    ],
)
def test_impossible_requests_end_in_one_clear_line(
    monkeypatch, refused, arguments, message, tmp_path
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    plot = () if "--plot" in arguments else ("--plot", tmp_path / "p.png")
    assert message in refused("compare", *arguments, *plot)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_a_gpu_is_refused(refused):
    assert "--device cpu" in refused("compare", "--prompt", "x", "--device", "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_compare_runs_on_cuda(printed, tmp_path):
    words = ("--prompt", "Return", "--device", "cuda", "--plot", tmp_path / "p.png")
    assert "cuda" in printed("compare", *words)


def test_differing_tokenizers_are_refused(refused, copied_draft):
    path = copied_draft / "tokenizer.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = record["model"]["vocab"]
    first, second = list(vocabulary)[1000:1002]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(record), encoding="utf-8")
    error = refused("compare", "--prompt", "x", "--draft", copied_draft)
    assert "share one tokenizer" in error and "2 differ" in error


def test_pickled_weights_are_not_read(refused, copied_draft):
    weights = copied_draft / "model.safetensors"
    torch.save(load_file(weights), copied_draft / "pytorch_model.bin")
    weights.unlink()
    assert "safetensors" in refused("compare", "--prompt", "x", "--draft", copied_draft)


def test_remote_code_is_refused_unless_asked_for(refused, edit_json, copied_draft, tmp_path):
    """A configuration that points to its own Python file must not run it."""
    witness = tmp_path / "executed"
    (copied_draft / "modeling_evil.py").write_text(
        f"open({str(witness)!r}, 'w').close()\n", encoding="utf-8"
    )
    own = {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForCausalLM": "modeling_evil.Evil"}
    edit_json(copied_draft / "config.json", model_type="evil", auto_map=own)
    assert "--trust-remote-code" in refused("compare", "--prompt", "x", "--draft", copied_draft)
    assert not witness.exists()


def test_padding_rows_are_cut_and_noted(edit_json, copied_draft):
    """Output layers padded to a round size are common: rows beyond the other model's are cut before
    the softmax.
    """
    tensors = load_file(copied_draft / "model.safetensors")
    name = "model.embed_tokens.weight"
    padding = torch.full((64, tensors[name].shape[1]), 9.0, dtype=torch.float16)
    tensors[name] = torch.cat([tensors[name], padding])
    save_file(tensors, copied_draft / "model.safetensors", metadata={"format": "pt"})
    edit_json(copied_draft / "config.json", vocab_size=4160)
    source = PairSource(draft=str(copied_draft), device="cpu")
    padded, plain = load_source(source), load_pair(device="cpu")
    assert describe_source(source)["num_tokens"] == padded.num_tokens == 4096
    assert "4096..4159" in describe_source(source)["notes"][0]
    context = padded.encode("Return the")
    torch.testing.assert_close(padded.next_logits(context)[0], plain.next_logits(context)[0])


@pytest.mark.parametrize("k", ["1", "2"])
def test_any_list_of_k_works_and_the_setting_is_said(printed, tmp_path, k):
    """Maximal() takes k = 1 only and SpecHub() k = 2 only; neither may spoil a table without it."""
    asked = ("--prompt", "Return", "--drafts", k, "--samples", "0", "--plot", tmp_path / "p.svg")
    setting = ("--temperature", "0.8", "--draft-temperature", "0.6", "--min-p", "0.05")
    assert "V = 4096, temperature 0.8, min-p 0.05, draft temperature 0.6, cpu" in printed(
        "compare", *asked, "--device", "cpu", *setting
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_help_on_a_full_disk_is_a_message():
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "otm", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 2
    (message,) = ended.stderr.decode().splitlines()
    assert message.startswith("otm: The output cannot be written")


def test_an_interrupt_while_modules_are_loaded_is_no_traceback(tmp_path):
    """The first import of the command's own raises what the signal raises."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SHIPPED_PAIR.parents[1])])
    }
    ended = subprocess.run(
        [sys.executable, "-m", "otm", "--help"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
