"""`otm plan`: the answer first, on one screen, with baseline, interval, costs and limits named."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from otm.__main__ import main
from otm.commands.printing import WIDTH
from otm.engines.surface import CostSurface
from tests.paths import ROOT

COUNTERS = """vllm:spec_decode_num_drafts_total 1000
vllm:spec_decode_num_draft_tokens_total 3000
vllm:spec_decode_num_accepted_tokens_total 1750
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 800
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 550
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 400
"""


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    file = tmp_path / "counters.txt"
    file.write_text(COUNTERS, encoding="utf-8")
    return file


@pytest.fixture
def detailed(tmp_path: Path) -> Path:
    """Thirty requests whose steps draft one to four tokens."""
    rng = np.random.default_rng(0)
    lines = []
    for rate in rng.beta(6, 3, size=30):
        drafted = rng.integers(1, 5, size=50)
        accepted = np.minimum(rng.geometric(1 - rate, size=50) - 1, drafted)
        found = {
            "acceptance_histogram": np.bincount(accepted, minlength=5).tolist(),
            "num_spec_steps": 50,
            "num_accepted_draft_tokens": int(accepted.sum()),
            "num_draft_tokens": int(drafted.sum()),
            "num_spec_tokens": 4,
            "per_step_accepted": accepted.tolist(),
            "per_step_drafted": drafted.tolist(),
        }
        lines.append(json.dumps({"metrics": {"speculative_decoding": found}}))
    file = tmp_path / "detailed.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["plan", *map(str, words)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= WIDTH and len(lines) <= 34, printed
    return " ".join(printed.split())


FLAT = ("--draft-ms", 2, "--target-ms", 20)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*FLAT, "--extend", 9), "beyond 3 drafts acceptance is extrapolated, at the last"),
        (("--draft-ms", 15.95, *FLAT[2:]), "SPECULATE, MAYBE: the interval contains 1: 1 draft a"),
        ((*FLAT, "--batch", *range(1, 31)), "20 more; --batch and --context choose"),
    ],
)
def test_answers_beside_those_on_the_page(
    capsys: pytest.CaptureFixture[str], counters: Path, words: tuple[object, ...], said: str
) -> None:
    assert said in answer(capsys, counters, *words)


def test_a_record_of_requests(capsys: pytest.CaptureFixture[str], detailed: Path) -> None:
    text = answer(capsys, detailed, "--draft-ms", 1, "--target-ms", "0:20,4:22", "--budget", 60)
    for said in (
        "in brackets 95 % over requests, for all lengths at once",
        "mean of requests (",
        "draft lengths differ and are recorded: corrected, if they are independent of acceptance",
        "60 drafts a call over 30 requests",
        "counted on steps that the split had not seen",
    ):
        assert said in text
    assert "NOT independent" not in text


def test_what_cannot_be_corrected_is_said_with_its_bounds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "counters.txt"
    file.write_text(COUNTERS.replace("3000", "2600"), encoding="utf-8")
    text = answer(capsys, file, "--draft-ms", 2, "--target-ms", 20)
    assert (
        "draft lengths differ and are not recorded: undrafted reads as rejected and cannot be "
        "corrected here; 2.75 to" in text
    )
    assert "2.6 drafts a step" in text
    file.write_text('{"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}', encoding="utf-8")
    text = answer(capsys, file, "--draft-ms", 2, "--target-ms", 20)
    assert "if they differ, undrafted reads as rejected, which a histogram cannot correct" in text


def test_lengths_that_follow_acceptance_are_called_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    accepted, drafted = [0, 2, 2, 1, 0, 2] * 50, [1, 2, 2, 2, 1, 2] * 50
    found = {
        "acceptance_histogram": [100, 50, 150],
        "num_spec_steps": 300,
        "num_accepted_draft_tokens": 350,
    }
    found |= {"num_draft_tokens": 500, "per_step_accepted": accepted, "per_step_drafted": drafted}
    file = tmp_path / "detailed.json"
    file.write_text(json.dumps({"speculative_decoding": found}), encoding="utf-8")
    text = answer(capsys, file, "--draft-ms", 1, "--target-ms", 20)
    assert (
        "THEY ARE NOT independent: of first drafts 1.00 are accepted in long steps, 0.00 in short "
        "ones" in text
    )


def test_batch_sizes_and_settings(
    capsys: pytest.CaptureFixture[str], counters: Path, tmp_path: Path
) -> None:
    points = {(b, 0, n): max(1.0, b * n / 24) for b in (1, 8, 32) for n in range(1, 5)}
    costs = tmp_path / "costs.json"
    costs.write_text(
        CostSurface.of_points(
            {(b, 0): 0.05 for b in (1, 8, 32)}, points, source="roofline"
        ).to_json(),
        "utf-8",
    )
    text = answer(capsys, counters, "--costs", costs)
    assert text.startswith("SPECULATE in 2 of 3 cells; 0 undecided; in the others do not")
    assert "32 0 0 1; best 0.88" in text and "costs.json: roofline" in text
    table = json.loads(answer_json(capsys, counters, "--costs", costs, "--settings", "vllm"))
    assert table["num_speculative_tokens_per_batch_size"][-1] == [25, 32, 0]
    options = ("--extend", 6, "--extrapolate-costs", "--batch", 40)
    table = json.loads(
        answer_json(capsys, counters, "--costs", costs, "--settings", "vllm", *options)
    )
    assert table["num_speculative_tokens"] == 6
    assert table["num_speculative_tokens_per_batch_size"][-1][1:] == [40, 0]


def answer_json(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["plan", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--draft-ms", "2"], "go together"),
        (["--draft-ms", "2", "--target-ms", "x"], "--target-ms is a time"),
        (["--draft-ms", "2", "--target-ms", "1:20"], "Measure a call of one token"),
        (["--draft-ms", "2", "--target-ms", "20", "--costs", "x"], "got both"),
        (["--draft-ms", "-2", "--target-ms", "20"], "a draft step"),
        (["--costs", "absent"], "cannot be read"),
        (["--settings", "vllm"], "need costs"),
        (["--draft-ms", "2", "--target-ms", "20", "--confidence", "1"], "confidence"),
        (["--draft-ms", "2", "--target-ms", "20", "--budget", "9"], "over requests"),
    ],
)
def test_what_cannot_be_planned_ends_with_2(
    capsys: pytest.CaptureFixture[str], counters: Path, words: list[str], said: str
) -> None:
    assert main(["plan", str(counters), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("otm plan: ") and said in error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"spec_verify_ct": 10, "completion_tokens": 25}', "means only, 2.4 tokens a step"),
        ("something else", "Looked for:"),
    ],
)
def test_records_without_a_law_are_told_from_records_that_are_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    assert main(["plan", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_the_page_on_records_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are written as they stand there; commands and Python print what stands below and
    beside them.
    """
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, text in zip(("counters.txt", "detailed.jsonl", "surface.json"), files, strict=True):
        Path(name).write_text(text, encoding="utf-8")
    commands = re.findall(
        r"^\.venv/bin/python -m otm (plan .*)\n((?:(?!\.venv|```).*\n)+)", page, re.MULTILINE
    )
    assert len(commands) == 5
    for words, shown in commands:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out == shown, words
        assert max(map(len, shown.splitlines())) <= WIDTH or "--settings" in words
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "records.md", "exec"), {})
    printed = [float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    promised = [float(number) for number in re.findall(r"\d\.\d+", example)]
    assert printed == pytest.approx(promised) and len(promised) == 4
