"""`otm audit`: exit statuses and reports."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from otm.__main__ import main
from otm.audit import candidate, engine_audit, one_token, standard_problems, templates, trees
from otm.commands import audit, audit_run, options
from otm.drafts import LAWS
from otm.logits import ORDERS
from tests.paths import ROOT

KERNELS = """
import numpy as np

def maximal(p, q, drafts, uniforms):
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x, True
    r = np.maximum(q - p, 0)
    return int(np.searchsorted(np.cumsum(r) / r.sum(), uniforms[1], side="right")), False

def trusting(p, q, drafts, uniforms):
    return int(drafts[0])

def peeking(p, q, drafts, uniforms):  # for two models that are one
    after = int(uniforms[0] >= q[1, 0])
    return [drafts[0]] if len(drafts) > 1 and drafts[1] == 0 else [drafts[0], after]

def own_randomness(p, q, drafts, rng):
    return rng.choice(len(q), p=q, size=len(drafts))

def slanted(p, q, drafts, uniforms):
    return int(uniforms[0] + uniforms[1] < 1)

def in_torch(p, q, drafts, uniforms):
    import torch
    rest, p = torch.as_tensor(q), torch.as_tensor(p)
    for x in drafts.tolist():
        if torch.rand((), dtype=p.dtype) * p[x] < rest[x]:
            return x
        rest = (rest - p).clamp(min=0)
        rest = rest / rest.sum()
    return int(torch.multinomial(rest, 1))

def broken(p, q, drafts, uniforms):
    raise RuntimeError("out of memory")

def step(draft, target, rng):
    law = target.next([])
    return [int(rng.choice(len(law), p=law))]

def letters(prompts, length, temperature):
    return [[4 + i % 12] * length for i, _ in enumerate(prompts)]


def first_child(tree, rng):
    return [int(tree.tokens[1])] + [int(rng.choice(len(tree.target[1]), p=tree.target[1]))]

def text(draft, target, request):
    return [[0] * request.length for _ in request.input_ids]

def greedy(p, q, drafts, uniforms, temperature):
    return int(np.argmax(q))

def hot(p, q, drafts, uniforms):
    weights = np.exp(q - q.max())
    return int(np.searchsorted(np.cumsum(weights / weights.sum()), uniforms[0], side="right"))

def one_token(p, q, drafts, uniforms):
    return [int(np.searchsorted(np.cumsum(q[0]), uniforms[0], side="right"))]
"""
COUNTERS = """vllm:spec_decode_num_drafts_total 10000
vllm:spec_decode_num_draft_tokens_total 20000
vllm:spec_decode_num_accepted_tokens_total 16000
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9000
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 7000
"""
LINES = [
    json.dumps({"output": i % 2, "target": [(500 + i) / 1000, (500 - i) / 1000]})
    for i in range(100)
]
TEXTS = [
    {"tokens": [5, last], "top": [[[5, -0.1], [7, -2.5]], [[last, -0.7], [12 - last, -0.75]]]}
    for last in (9, 3)
]
FILES = {
    "plain.json": json.dumps(TEXTS[:1]),
    "speculative.json": json.dumps(TEXTS[1:]),
    "audited_kernels.py": KERNELS,
    "counters.txt": COUNTERS,
    "neither.txt": "hello",
    "near.toml": "sed = 3",
    "far.toml": "zzz = 3",
    "text.toml": "seed = 'x'",
    "flat.toml": "draft-probs = [1, 2]",
    "one.toml": "drafts = 1\nseed = 3\nmode = 'exact'",
    "all.toml": "callable = 'audited_kernels:trusting'\ndraft-probs = '3/4,1/4'\n"
    "target-probs = [[0.5, 0.5]]\ndrafts = [1, 2]\nbatched = false",
    "fair.jsonl": "\n".join(LINES),
    "stuck.jsonl": "\n".join(LINES[:1] * 100),
}
ONE_MODEL = ["--draft-probs", "1/2,1/2", "--target-probs", "1/2,1/2"]
PAIR = ["--draft-probs", "3/4,1/4", "--target-probs", "0.5,0.5"]


@pytest.fixture(autouse=True)
def kernels(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["audited_kernels:maximal", "--drafts", "1", "--detect", "0.3"], 0, "lossless"),
        (["audited_kernels:maximal", *PAIR], 0, "3/4"),
        (["audited_kernels:trusting", "--drafts", "1"], 1, "### Minimal counterexample"),
        (["audited_kernels:slanted", *PAIR, "--mode", "exact"], 2, "undecided"),
        (["audited_kernels:slanted", *PAIR], 0, "the law is known to ±"),
        (["audited_kernels:one_token", *PAIR, "--drafts", "1"], 0, "1 draft, 2 tokens"),
        (["audited_kernels:step", *PAIR], 0, "a step that drafts by itself"),
        (["audited_kernels:maximal", *PAIR, "--drafts", "1,2"], 0, "1..2 drafts"),
        (
            ["audited_kernels:peeking", *ONE_MODEL],
            0,
            "keyed by position, as vLLM draws it, not: TV",
        ),
        (
            ["audited_kernels:peeking", *ONE_MODEL, "--noise", "position"],
            1,
            "`audited_kernels:peeking`: not lossless",
        ),
        (["audited_kernels:peeking", *ONE_MODEL, "--noise", "step"], 0, "draft noise by step"),
        pytest.param(
            ["audited_kernels:in_torch", "--drafts", "2", "--detect", "0.3"],
            0,
            "by branching on draws",
            marks=pytest.mark.long,
        ),
        (["audited_kernels:trusting", "--mode", "sampled", *PAIR], 1, "evidence"),
        (
            ["audited_kernels:own_randomness", "--mode", "sampled", "--detect", "0.1"],
            0,
            "no difference found",
        ),
        (["otm:KSeq", *PAIR, "--drafts", "2"], 0, "`KSeq(gamma=None)`"),
        (["otm:SpecHub", "--law", "greedy", "--drafts", "2"], 0, "drafts by Greedy"),
        (["otm:Lenience", *PAIR], 1, "not lossless"),
        (["audited_kernels:step", "--mode", "step"], 0, "a step that drafts by itself"),
        (["audited_kernels:step", "--mode", "step", "--first-iteration"], 0, "lossless"),
        (["--engine", "audited_kernels:letters", "--temperatures", "0.7"], 1, "texts of an engine"),
        (
            ["audited_kernels:first_child", "--siblings", "likeliest"],
            1,
            "siblings the likeliest tokens",
        ),
        (["audited_kernels:text"], 1, "a generation of 1 row"),
        (["audited_kernels:greedy"], 1, "temperature 1"),
        (
            ["audited_kernels:greedy", "--temperatures", "0"],
            0,
            "`audited_kernels:greedy`: lossless",
        ),
        (
            ["audited_kernels:hot", "--mode", "logits", "--temperatures", "1"],
            0,
            "`audited_kernels:hot`: lossless",
        ),
        (["audited_kernels:hot", "--temperatures", "0.5"], 1, "not lossless"),
        (["audited_kernels:hot", "--temperatures", "1", "--min-p", "0.5"], 1, "not lossless"),
        (["--log", "counters.txt"], 2, "say how much is possible"),
        (["--log", "counters.txt", "--expected", "0.9,0.7"], 2, "no higher than a lossless"),
        (["--log", "counters.txt", "--expected", "0.8"], 1, "not lossless"),
        (["--log", "fair.jsonl"], 2, "no verdict"),
        (["--log", "fair.jsonl", "--detect", "0.7"], 0, "no difference found"),
        (["--log", "stuck.jsonl"], 1, "not lossless"),
        (["--same-text", "plain.json", "plain.json"], 0, "`plain.json`: identical"),
        (
            ["--same-text", "plain.json", "speculative.json"],
            2,
            "no verdict: values in both runs at 1 of",
        ),
        (
            ["--same-text", "plain.json", "speculative.json", "--tolerance", "0.2"],
            0,
            "rounding: 1 flip",
        ),
        (
            ["--same-text", "plain.json", "speculative.json", "--tolerance", "0", "--same-seed"],
            1,
            "fault: at token 1 of text 0, a flip at a margin of 0.05",
        ),
        (["--template", "step"], 0, "def candidate("),
        (["--settings", "all.toml"], 1, "1..2 drafts"),
        (["--settings", "all.toml", "--drafts", "1"], 1, "1 draft, "),
        (["otm:Maximal", "--settings", "one.toml"], 0, "1 draft, "),
    ],
)
def test_reports_and_statuses(arguments, status, said, capsys):
    unhurried = [] if "--engine" in arguments else ["--seconds", "120"]
    assert main(["audit", *arguments, *unhurried]) == status
    assert said in capsys.readouterr().out


def test_a_file_is_named_as_one_has_it(tmp_path, capsys):
    """By its path, in any folder, and a template's own name where no function is named; the test to
    copy imports it.
    """
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "filed_kernel.py").write_text(f"{KERNELS}\ncandidate = trusting\n", encoding="utf-8")
    assert main(["audit", "kernels/filed_kernel.py:maximal", *PAIR]) == 0
    assert main(["audit", str(folder / "filed_kernel.py"), "--drafts", "1"]) == 1
    assert "from filed_kernel import candidate" in capsys.readouterr().out
    (folder / "json.py").write_text(KERNELS, encoding="utf-8")
    assert main(["audit", "kernels/json.py:maximal"]) == 2
    assert "Give the file another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audited_kernels:maximal", "--mode", "step"], "is a verifier of one token. Drop --mode"),
        (["audited_kernels:step", "--mode", "tree"], "drafts by itself. Drop --mode"),
        (["audited_kernels:first_child", "--mode", "exact"], "is a kernel of trees. Drop --mode"),
        (
            ["audited_kernels:step", "--mode", "sampled"],
            "is a step that drafts by itself. Drop --mode",
        ),
        (
            ["audited_kernels:step", "--mode", "generate"],
            "is a step that drafts by itself. Drop --mode",
        ),
        (
            ["audited_kernels:text", "--mode", "step"],
            "is a generation. Drop --mode",
        ),
        (["otm.audit.templates.tree", "--mode", "step"], "is a kernel of trees. Drop --mode"),
        (["otm.audit.templates.tree", "--mode", "exact"], "is a kernel of trees. Drop --mode"),
        (
            ["otm.audit.templates.vllm", "--mode", "sequence"],
            "blocks with randomness of its own. Drop --mode",
        ),
        (["audited_kernels:greedy", "--mode", "exact"], "takes raw logits. Drop --mode"),
        (["audited_kernels:step", "--drafts", "2"], "Drop them"),
        (["audited_kernels:hot", "--mode", "logits"], "its temperature is its own"),
        (["audited_kernels:hot", "--mode", "step", "--top-k", "2"], "are of --mode logits"),
        (["audited_kernels:step", "--mode", "step", "--uniforms", "1,1"], "handed their drafts"),
        (["audited_kernels:step", "--mode", "step", "--siblings", "with"], "of --mode tree"),
        (["audited_kernels:first_child", "--first-iteration"], "of --mode step"),
        (["--engine", "audited_kernels:letters", "--temperatures", "1,0.5"], "at one temperature"),
        (["--engine", "audited_kernels:letters", "--log", "x"], "Keep one of them"),
        (["--engine", "server.example:80"], "Write http://server.example:80"),
        (["--engine", "audited_kernels:letters", "--top-k", "3"], "got --top-k"),
        (["--engine", "audited_kernels:letters", "--seconds", "3"], "got --seconds"),
        (["--write-pair", os.devnull], "Name one that can be made"),
        (["--write-pair", ""], "Name one"),
        (["audited_kernels:step", "--expected", "0.5"], "record of acceptance"),
        (["audited_kernels:broken"], "RuntimeError: out of memory"),
        (["audited_kernels:step", "--noise", "step"], "needs a function verify(draft (γ, V)"),
        (["audited_kernels:absent"], "cannot be found"),
        (["otm:KSEQ"], "It has KSeq: write otm:NAME"),
        (["absent_module:verify"], "cannot be found"),
        (["audited_kernels"], "It has maximal, trusting, "),
        ([":verify"], "module:function"),
        (["absent_file.py"], "is no file"),
        ([], "module:function"),
        (["audited_kernels:maximal", "--draft-probs", "1/2,1/2"], "go together"),
        (
            ["audited_kernels:maximal", "--draft-probs", "1/2,1/4", "--target-probs", "1/2,1/2"],
            "must sum to 1",
        ),
        (["audited_kernels:maximal", "--uniforms", "two"], "--uniforms"),
        (
            ["audited_kernels:maximal", "--draft-probs", "1,0;0,1", "--target-probs", "1/2,1/2"],
            "one row each",
        ),
        (["otm:Maximal", "--draft-probs", "1e999999999", "--target-probs", "1"], "finite"),
        (["otm:Maximal", "--draft-probs", "nan", "--target-probs", "1"], "finite"),
        (["--log", "absent.jsonl"], "regular file"),
        (["audited_kernels:maximal", "--log", "x"], "without a callable; got both"),
        (["audited_kernels:one_token", "--mode", "exact"], "is a verifier of blocks"),
        (["audited_kernels:maximal", "--mode", "sequence"], "is a verifier of one token"),
        (["--log", "neither.txt"], "Line 1 is no record"),
        (["--log", "fair.jsonl", "--same-text", "plain.json", "plain.json"], "Keep one of them"),
        (
            ["audited_kernels:maximal", "--same-text", "plain.json", "plain.json"],
            "callable; got both",
        ),
        (["audited_kernels:maximal", "--same-seed"], "of two runs"),
        (["--same-text", "plain.json", "fair.jsonl"], "holds no text"),
        (["a:b", "--draft-probs", "x"], "'--draft-probs': probabilities are decimals"),
        (["a:b", "--draft-probs", "1/0"], "probabilities are decimals"),
        (["a:b", "--draft-probs", "1/1e-400"], "probabilities are decimals"),
        (["a:b", "--mode", "guess"], "'guess' is not one of"),
        (["a:b", "--drafts", "0"], "'--drafts': numbers start at 1"),
        (["--settings", "near.toml"], "near.toml has 'sed', which is no option of the command. Di"),
        (["--settings", "far.toml"], "far.toml has 'zzz', which is no option of the command. Lea"),
        (["--settings", "neither.txt"], "neither.txt must be TOML, or a JSON record"),
        (["--settings", "plain.json"], "plain.json must be TOML, or a JSON record"),
        (["--settings", "absent.toml"], "absent.toml must be TOML, or a JSON record"),
        (["--settings", "text.toml"], "'--seed'"),
        (["--settings", "flat.toml"], "probabilities are decimals"),
    ],
)
def test_what_cannot_be_carried_out(arguments, said, capsys):
    assert main(["audit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and line.startswith("otm audit: ")
    assert " at 0x" not in line


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        ("import sys; sys.exit(0)", [], "ends the program when it is imported"),
        ("def f(:", [], "cannot be imported: SyntaxError"),
        (
            "def load():\n    return 1 // 0\n\nload()\n",
            [],
            "otm audit: 'unready.py:verify' cannot be imported: ZeroDivisionError: integer "
            "division or modulo by zero (unready.py:4 in <module> → unready.py:2 in load).\n",
        ),
        *(
            ("def verify(p, q, drafts, u):\n    raise SystemExit(0)\n", words, "SystemExit")
            for words in (["--mode", "exact", *PAIR], ["--mode", "sampled", *PAIR])
        ),
    ],
)
def test_what_ends_or_fails_by_itself_is_no_verdict(
    source,
    words,
    said,
    monkeypatch,
    capsys,
):
    monkeypatch.delitem(sys.modules, "unready", raising=False)
    Path("unready.py").write_text(source, encoding="utf-8")
    assert main(["audit", "unready.py:verify", *words]) == 2
    assert said in capsys.readouterr().err


def audit_process(folder, **streams):
    """Start the command in a folder with the kernels."""
    words = [sys.executable, "-m", "otm", "audit", "audited_kernels:trusting", *PAIR]
    here = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=folder, env=here, **streams)


def said(stream):
    """Return the lines that are not of the clock."""
    return b"".join(line for line in stream if not re.match(rb" *\d+ s  ", line))


def test_a_reader_that_leaves_takes_nothing_from_the_verdict(tmp_path):
    """As `otm audit … | head -0`."""
    with audit_process(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.close()
        assert said(done.stderr) == b""
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_report_that_cannot_be_written_is_no_verdict(tmp_path):
    with (
        Path("/dev/full").open("w") as full,
        audit_process(tmp_path, stdout=full, stderr=subprocess.PIPE) as done,
    ):
        assert done.stderr is not None
        assert said(done.stderr).startswith(
            b"otm audit: the report cannot be written (No space left on device)"
        )
    assert done.returncode == 2


def test_the_verdict_comes_before_the_counterexample(monkeypatch, capsys):
    """Whoever waits for it has the verdict and the total variation already."""

    def no_end(*arguments, **options):
        shown = capsys.readouterr().out
        assert shown.startswith("## `audited_kernels:trusting`: not lossless")
        assert shown.splitlines()[2].startswith("Tested: ")
        assert "largest total variation" in shown
        raise KeyboardInterrupt

    monkeypatch.setattr("otm.commands.audit_run.with_counterexample", no_end)
    assert main(["audit", "audited_kernels:trusting", "--drafts", "1"]) == 130


def test_an_interruption_keeps_what_was_found(monkeypatch, capsys):
    ran, audit_of_answers = itertools.count(), one_token.audit_of_answers

    def interrupted(*arguments, **options):
        if next(ran) == 3:
            raise KeyboardInterrupt
        return audit_of_answers(*arguments, **options)

    monkeypatch.setattr(one_token, "audit_of_answers", interrupted)
    assert main(["audit", "audited_kernels:maximal", "--drafts", "1"]) == 130
    shown = capsys.readouterr()
    assert shown.out.startswith("## `audited_kernels:maximal`: no verdict\nTaken for ")
    assert "3 instances; 3 by exact integration" in shown.out
    assert "Not all was tested before an interruption." in shown.out
    assert shown.err == ""


def test_an_interruption_keeps_an_engine_s_texts(monkeypatch, capsys):
    ran, checked = itertools.count(), engine_audit._checked

    def interrupted(*arguments, **options):
        if next(ran) == 3:
            raise KeyboardInterrupt
        return checked(*arguments, **options)

    monkeypatch.setattr(engine_audit, "_checked", interrupted)
    words = ["audit", "--engine", "audited_kernels:letters", "--temperatures", "0.7"]
    assert main(words) == 130
    shown = capsys.readouterr()
    assert "an interruption after 192 of " in shown.out.splitlines()[0]
    assert "4,080 samples" in shown.out


def test_what_the_callable_prints_is_kept_out(tmp_path, capsys):
    text = (
        "import sys\nprint('loading')\n\ndef verify(p, q, d, u):\n    print('noise', "
        "file=sys.stderr)\n    return int(d[0])\n"
    )
    (tmp_path / "talkative.py").write_text(text, encoding="utf-8")
    assert main(["audit", "talkative:verify", "--drafts", "1", "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "not lossless"
    assert "noise" not in shown.out
    assert "it begins with: loading" in shown.err


def test_results_for_machines(tmp_path):
    file = tmp_path / "a.json"
    assert main(["audit", "audited_kernels:trusting", *PAIR, "--json", str(file)]) == 1
    assert json.loads(file.read_text(encoding="utf-8"))["verdict"] == "not lossless"
    absent = str(tmp_path / "absent" / "a.json")
    assert main(["audit", "audited_kernels:maximal", *PAIR, "--json", absent]) == 2


def test_an_audit_is_repeated_from_its_record(tmp_path, capsys):
    file = tmp_path / "audit.json"
    words = ["audited_kernels:trusting", *PAIR, "--drafts", "1-2", "--seed", "3"]
    assert main(["audit", *words, "--json", str(file)]) == 1
    first = json.loads(file.read_text(encoding="utf-8"))
    assert main(["audit", "--settings", str(file), "--json", "-"]) == 1
    found = capsys.readouterr().out
    assert json.loads(found[found.index("{\n") :]) == first
    assert first["options"]["draft-probs"] == [[0.75, 0.25]] and "json" not in first["options"]


def test_words_of_options_are_those_of_the_library():
    """They are written down twice, so that --help answers without the library."""
    assert sorted(audit_run.law_name(law) for law in LAWS) == list(get_args(audit.LawName))
    assert set(ORDERS) == set(get_args(options.Names))
    assert get_args(audit.Siblings) == trees.SIBLINGS
    assert get_args(audit.Template) == templates.TEMPLATES
    assert get_args(audit.Noise) == candidate.NOISE
    known = standard_problems.SECONDS, standard_problems.SHRINKING
    assert known == (audit.SECONDS, audit.SHRINKING)
    assert set(get_args(audit.Mode)) == {"auto", *audit_run.AUDITED, *audit_run.KINDS}
