"""The command line end to end on the shipped pair, and every way it can be asked for something
impossible.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.files import SHIPPED_PAIR
from analysis.models.source import PairSource, describe_source, load_source
from tests.analysis.traces_for_tests import edit_json


def test_compare_prints_a_table_and_writes_a_plot(printed, tmp_path):
    plot = tmp_path / "plot.png"
    asked = ("--prompt", "Return the number of", "--samples", "500", "--drafts", "1,2")
    shown = printed("compare", *asked, "--out", plot, "--device", "cpu")
    assert "BEST at 2 drafts: " in shown and "which engines run" in shown
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
    asked = ("--drafts", "1", "--samples", "0", "--device", "cpu")
    shown = printed("compare", "--prompts", file, "--nodes", "2", *asked)
    assert "6 contexts of 6 texts" in shown and "tree on shared noise" in shown
    assert "Tunstall" not in shown and "K-SEQ" in shown


def test_steps_prints_a_table_for_each_size(printed, tmp_path):
    out = tmp_path / "steps.json"
    sizes = ("--shapes", "2,2", "--shapes", "1,1")
    shown = printed("steps", *sizes, "--num-contexts", "6", "--device", "cpu", "--out", out)
    assert "K = 1 sequences of L = 1, 6 contexts" in shown
    assert "more than refined scores" in shown and shown.count("\nBEST: ") == 2
    two, one = json.loads(out.read_text())["tables"]
    assert two["num_drafts"] == two["length"] == 2
    # One sequence of one token is verified alike by all that do not toss a coin: 1 + Σ min.
    means = {row["name"]: row["mean"] for row in one["rows"]}
    for name in ("optimal, vertex by vertex", "greedy multi-path block verification"):
        assert means["refined scores"] == pytest.approx(means[name], abs=1e-12)
    lists = printed("steps", "--drafts", "2", "--num-contexts", "6", "--device", "cpu")
    assert "threshold race, matched" in lists and "list by belief, matched" in lists
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"text": "Return\\nthe {n}"}}\n' for n in range(6)))
    along = ("--prompts", prompts, "--per-text", "2", "--apart", "1", "--device", "cpu")
    few = ("--nodes", "2", "--num-sequences", "1", "--noises", "2", "--only", "likeliest tree")
    texts = printed("steps", *along, *few, "--blur", "0.4")
    assert texts.count("12 contexts of 6 texts") == 2  # the draft's, and the blurred one's


FILES = {
    "blank.txt": b"\n \n",
    "two.txt": b"x\ny\n",
    "none.jsonl": b"[]\n",
    "prompts.txt": b"Return the number.\n",
    "file": b"mine",
    "latin.txt": b"fine\n\xff\xfe\n",
    "bad.jsonl": b'{"text": "a"}\nnot json\n',
    "other.jsonl": b'{"prompt": "a"}\n',
    "number.jsonl": b'{"text": "a"}\n{"text": 3}\n',
    "null.jsonl": b'{"text": null}\n',
    "bad.parquet": b"PAR1 no",
    "half.jsonl": b'{"text": "a"}\n{"text": "b \\ud800"}\n',
}
LONG = "n" * 5_000
COMPARE = ("compare", "--out", "p.png")
ONE = (*COMPARE, "--prompt", "x")
MEASURE = ("measure", "--prompts", "prompts.txt", "--device", "cpu", "--out", "run")
ALONG = ("steps", "--prompts", "two.txt", "--per-text", "2", "--device", "cpu")
DECODE = ("decode", "--prompts", "two.txt", "--out", "d", "--decoder", "Gsd(chain(2))")
ADVISE = ("advise", "--prompts", "prompts.txt", "--device", "cpu")
TRAIN = (
    "train",
    "--target",
    "./nowhere",
    "--corpus",
    "none.txt",
    "--out",
    "draft",
    "--work",
    "work",
)
IMPOSSIBLE = [
    (COMPARE, "--prompts FILE"),
    ((*ONE, "--prompts", "two.txt"), "--prompts FILE"),
    ((*ONE, "--nodes", "4"), "--prompts FILE"),
    ((*COMPARE, "--prompts", "blank.txt"), "1 prompts or more"),
    ((*COMPARE, "--prompts", "two.txt", "--nodes", "2"), "6 prompts or more"),
    ((*COMPARE, "--prompt", ""), "at least one token"),
    ((*COMPARE, "--prompt", "   "), "at least one token"),
    ((*ONE, "--target", "no/such-model-here"), "could not be loaded"),
    ((*ONE, "--device", "tpu9"), "device"),
    ((*ONE, "--drafts", "one"), "commas between"),
    ((*ONE, "--drafts", "0"), "numbers start at 1; got 0."),
    ((*ONE, "--out", "no-such-folder/plot.png"), "existing folder"),
    ((*ONE, "--out", "plot.xyz"), ".svg"),
    ((*ONE, "--top-p", "2"), "top_p"),
    ((*ONE, "--chat-template"), "must have a chat template"),
    ((*ONE, "file", "file"), "pass one of them"),
    pytest.param(
        (*ONE, "--device", "cuda"),
        "--device cpu",
        marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
    ),
    (("steps", "--shapes", "8;8"), "K,L"),
    (ALONG, "Pass --nodes"),
    ((*ALONG, "--drafts", "2"), "Pass --nodes"),
    (("steps", "--nodes", "2", "--drafts", "2"), "got --nodes and --drafts"),
    ((*ADVISE, "--chat-template"), "must have a chat template"),
    ((*MEASURE, "--chat-template", "--workers", "1"), "must have a chat template"),
    ((*ALONG, "--nodes", "2", "--chat-template"), "must have a chat template"),
    ((*DECODE, "--chat-template"), "must have a chat template"),
    ((*ONE, "--draft", "nodraft"), "The draft's tokenizer must be"),
    ((*ONE, "--draft", "nodraft"), "no folder 'nodraft' is here"),
    ((*ADVISE, "--top-p", "7"), "top_p"),
    ((*ADVISE, "--dtype", "int8"), "dtype"),
    ((*ADVISE, "--prompts", "nowhere.txt"), "nowhere.txt"),
    (TRAIN, "nowhere does not exist"),
    (("rules", "--rule", "block"), "--rule and --fail-below"),
    (("rules", "--texts", "none.jsonl"), "holds none"),
    ((*MEASURE, "--drafts", "0"), "numbers start at 1; got 0."),
    ((*MEASURE, "--drafts", "8-1"), "8-1 runs backwards; write 1-8."),
    ((*MEASURE, "--drafts", "a"), "ranges"),
    ((*MEASURE, "--temperatures", "-1"), "must be a finite number ≥ 0; got -1.0"),
    ((*MEASURE, "--temperatures", "nan"), "must be a finite number ≥ 0; got nan"),
    ((*MEASURE, "--draft-temperatures", "1e400"), "must be a finite number ≥ 0; got inf"),
    ((*MEASURE, "--top-ps", "0"), "top_p"),
    (
        (*MEASURE, "--positions", "on-polcy"),
        "'on-polcy' is not one of 'text', 'target', 'draft', 'on-policy'",
    ),
    ((*MEASURE, "--out", "file"), "--out must be a folder"),
    ((*MEASURE, "--out", "/proc/run"), "The folder cannot be made; choose another --out."),
    ((*MEASURE, "--shards", "3:1"), "START:STOP"),
    ((*MEASURE, "--workers", "0"), "greater than or equal to 1"),
    ((*MEASURE, "--dtype", "int8"), "'float32', 'float16', 'bfloat16'"),
    ((*MEASURE, "--dataset", "also"), "either"),
    ((*MEASURE, "--settings", "file"), "file must be TOML"),
    ((*MEASURE, "--from-trace", "x"), "goes without"),
    ((*MEASURE, "--draft", "./missing"), "missing"),
    ((*MEASURE, "--draft", "./missing", "--out", "mine"), "missing"),
    ((*MEASURE, "--prompts", "absent.txt"), "existing file"),
    ((*MEASURE, "--prompts", "latin.txt"), r"UTF-8; line 2 .*byte 5"),
    ((*MEASURE, "--prompts", "blank.txt"), "at least one prompt"),
    ((*MEASURE, "--prompts", "bad.jsonl"), "line 2"),
    (
        (*MEASURE, "--prompts", "other.jsonl"),
        r"'text'; other.jsonl:1 has fields \['prompt'\]. Pass --field",
    ),
    (
        (*MEASURE, "--prompts", "number.jsonl"),
        r"'text' of number\.jsonl:2 is a number, not a string\. Correct it\.",
    ),
    (
        (*MEASURE, "--prompts", "null.jsonl"),
        r"'text' of null\.jsonl:1 is null, not a string",
    ),
    ((*MEASURE, "--prompts", "bad.parquet"), "Parquet"),
    (
        (*MEASURE, "--prompts", "half.jsonl"),
        r"half\.jsonl:2 holds half a surrogate pair at character 2",
    ),
    ((*MEASURE, "--prompts", LONG), ""),
    ((*MEASURE, "--out", LONG), ""),
    ((*MEASURE, "--draft", f"/{LONG}"), ""),
    (("measure", "--from-trace", LONG, "--out", "run"), ""),
    (("measure", "--from-trace", LONG, "--out", LONG), ""),
    (("merge", LONG, "--out", "run"), ""),
    (("merge", "run", "--out", LONG), ""),
    (("report", LONG), ""),
    (("report", "run", "--out", LONG), ""),
]


@pytest.mark.parametrize(("words", "message"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_impossible_requests_end_in_one_clear_line_and_leave_all_as_it_was(
    monkeypatch, refused, tmp_path, words, message
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    Path("mine").mkdir()
    error = refused(*words)
    assert re.search(message, error), error
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "mine"}
    assert Path("file").read_bytes() == b"mine"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_compare_runs_on_cuda(printed, tmp_path):
    words = ("--prompt", "Return", "--device", "cuda", "--out", tmp_path / "p.png")
    assert "cuda" in printed("compare", *words)


def test_pickled_weights_are_not_read(refused, copied_draft):
    weights = copied_draft / "model.safetensors"
    torch.save(load_file(weights), copied_draft / "pytorch_model.bin")
    weights.unlink()
    assert "safetensors" in refused("compare", "--prompt", "x", "--draft", copied_draft)


def test_remote_code_is_refused_unless_asked_for(refused, copied_draft, tmp_path):
    """A configuration that points to its own Python file must not run it."""
    witness = tmp_path / "executed"
    (copied_draft / "modeling_evil.py").write_text(
        f"open({str(witness)!r}, 'w').close()\n", encoding="utf-8"
    )
    own = {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForCausalLM": "modeling_evil.Evil"}
    edit_json(copied_draft / "config.json", model_type="evil", auto_map=own)
    assert "--trust-remote-code" in refused("compare", "--prompt", "x", "--draft", copied_draft)
    assert not witness.exists()


def test_padding_rows_are_cut_and_noted(copied_draft, pair):
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
    padded = load_source(source)
    assert describe_source(source)["num_tokens"] == padded.num_tokens == 4096
    assert "4096..4159" in describe_source(source)["notes"][0]
    context = padded.encode("Return the")
    torch.testing.assert_close(padded.next_logits(context)[0], pair.next_logits(context)[0])


@pytest.mark.parametrize("k", ["1", "2"])
def test_any_list_of_k_works_and_the_setting_is_said(printed, tmp_path, k):
    """Maximal() takes k = 1 only and SpecHub() k = 2 only; neither may spoil a table without it."""
    asked = ("--prompt", "Return", "--drafts", k, "--samples", "0", "--out", tmp_path / "p.svg")
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
