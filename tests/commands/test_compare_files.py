"""`otm compare` on two files: formats, sampling, rows, outputs, and what it refuses."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import otm
from analysis.commands import COMMANDS
from otm.__main__ import main

P, Q = [0.75, 0.25], [0.5, 0.5]


@pytest.fixture(autouse=True)
def of_the_checkout(monkeypatch):
    """An installation knows the commands on models under another name."""
    monkeypatch.setattr("otm.commands.app.further", lambda: COMMANDS)


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Return a function that compares files as JSON."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        status = main(["compare", *words, "--drafts", "1-2", "--json", "-"])
        shown = capsys.readouterr()
        assert status == 0, shown.err
        return json.loads(shown.out)

    return run


def accepted(found, verifier="KSeq"):
    """Return the acceptances of a verifier by row and number of drafts."""
    return [
        [one["exact"] for one in table["schemes"] if one["verifier"].startswith(verifier)]
        for table in found["comparisons"]
    ]


WRITTEN = {
    ".npy": lambda path, row: np.save(path, np.array(row)),
    "_float16.npy": lambda path, row: np.save(path, np.array(row, dtype=np.float16)),
    "_column.npy": lambda path, row: np.save(path, np.array(row)[:, None]),
    ".json": lambda path, row: path.write_text(json.dumps(row)),
    "_row.csv": lambda path, row: path.write_text("\ufeff" + ", ".join(map(str, row)) + "\n\n"),
    "_column.csv": lambda path, row: path.write_text("\n".join(map(str, row))),
    "_german.csv": lambda path, row: path.write_text("; ".join(map(str, row))),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_every_form_of_a_file_gives_the_same_numbers(form, compared, tmp_path):
    names = [f"{name}{form}" for name in "pq"]
    for name, row in zip(names, (P, Q), strict=True):
        WRITTEN[form](tmp_path / name, row)
    (values,) = accepted(compared(*names))
    assert values == pytest.approx([0.75, 0.8475971], abs=1e-6)


def test_one_file_may_name_both_and_rows_of_a_batch_are_compared_each(compared, tmp_path):
    np.savez(tmp_path / "pair.npz", draft=[P, Q], target=[Q, Q])
    (tmp_path / "pair.json").write_text(json.dumps({"draft": [P, Q], "target": [Q, Q]}))
    both = compared("pair.npz")
    assert both["comparisons"] == compared("pair.json")["comparisons"]
    assert [one["of"] for one in both["comparisons"]] == ["row 0", "row 1"]
    assert accepted(both)[1] == [1.0, 1.0]
    assert accepted(compared("pair.npz", "--row", "1")) == accepted(both)[1:]
    assert accepted(compared("pair.npz", "--limit", "1")) == accepted(both)[:1]


def test_logits_and_sampling_are_those_of_the_library(compared, tmp_path):
    p, q = np.random.default_rng(0).normal(size=(2, 5))
    sampling = {"temperature": 0.5, "top_k": 3}
    problem = otm.Problem(
        draft=otm.from_logits(p, **sampling), target=otm.from_logits(q, **sampling), law=otm.IID(2)
    )
    best = otm.optimal_acceptance(problem)
    for name, row in (("p", p), ("q", q)):
        np.save(tmp_path / f"{name}.npy", row)
        np.save(tmp_path / f"{name}_masses.npy", otm.from_logits(row))
    words = ("--temperature", "0.5", "--top-k", "3")
    for files in (("p.npy", "q.npy", "--logits"), ("p_masses.npy", "q_masses.npy")):
        rows = compared(*files, *words)["comparisons"][0]["schemes"]
        found = next(one["optimum"] for one in rows if one["law"] == "IID(k=2)")
        assert found == pytest.approx(best, abs=1e-12)


def test_outputs_by_ending_and_advice_below_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    WRITTEN[".json"](tmp_path / "p.json", P)
    WRITTEN[".json"](tmp_path / "q.json", Q)
    before = {*tmp_path.iterdir()}
    assert main(["compare", "p.json", "q.json"]) == 0
    shown = capsys.readouterr().out
    assert {*tmp_path.iterdir()} == before  # no plot unasked
    assert shown.count("BEST at 8 drafts: ") == 1 and "which engines run" in shown
    for ending, start in ((".csv", "of,law,"), (".tex", "% row 0"), (".json", '{"comparisons"')):
        assert main(["compare", "p.json", "q.json", "--drafts", "2", "--out", f"t{ending}"]) == 0
        assert (tmp_path / f"t{ending}").read_text().startswith(start)
    (kseq,) = (
        row
        for row in csv.DictReader((tmp_path / "t.csv").read_text().splitlines())
        if row["verifier"].startswith("KSeq")
    )
    assert float(kseq["exact"]) == pytest.approx(0.8475971, abs=1e-6)
    assert main(["compare", "p.json", "q.json", "--drafts", "1,2", "--out", "t.png"]) == 0
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["p.json"], "first the draft's"),
        (["p.json", "none.npy"], "No such file"),
        (["p.json", "broken.npz"], "cannot be read ("),
        (["p.json", "text.csv"], "could not convert string 'token'"),
        (["p.json", "longer.json"], "vocabular"),
        (["p.json", "logits.json"], "Here that is --logits."),
        (["p.json", "p.json", "--row", "1"], "The rows here are 0 to 0; got --row 1."),
        (["p.json", "p.json", "--prompt", "a"], "pass one of them"),
        (["two.json", "two.json", "--out", "t.png"], "Choose one: --row 0."),
        (["p.json", "p.json", "--out", "t.doc"], "ends in .csv, .tex"),
        (["p.json", "p.json", "--out", "none/t.csv"], "no folder"),
        (["p.json", "p.json", "--json", "folder"], "is a folder"),
    ],
)
def test_what_cannot_be_compared_or_written_is_said_before_the_work(
    words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    made = {"p": P, "two": [P, P], "longer": [*P, 0.0], "logits": [1.0, -2.0]}
    for name, values in made.items():
        WRITTEN[".json"](tmp_path / f"{name}.json", values)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "text.csv").write_text("token,mass\n")
    assert main(["compare", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err and not shown.out


def test_files_are_compared_without_torch(tmp_path):
    for name in "pq":
        np.save(tmp_path / f"{name}.npy", np.array(P))
    code = (
        "import sys; from otm.__main__ import main; main(['compare', 'p.npy', 'q.npy']); "
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "K-SEQ" in done.stdout and done.stdout.endswith("set()\n")
