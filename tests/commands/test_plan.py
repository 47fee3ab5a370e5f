"""`otm plan`: the answer first, on one screen, with baseline, interval, costs and limits named."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
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


DECODE = (
    "Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.50, cuda graph: True, "
    "gen throughput (token/s): 78.125, #queue-req: 0\n"
)
COSTS = ["--draft-ms", "4", "--target-ms", "20"]


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (DECODE, COSTS, "SPECULATE: what the engine ran pays, 1.56 x plain decoding"),
        (DECODE, ["--draft-ms", "15", "--target-ms", "20"], "DO NOT SPECULATE as it ran: 0.77 x"),
        (DECODE, ["--draft-ms", "4", "--target-ms", "0:20,2:21"], "known to 2 drafts, the engine"),
        (DECODE, [], "than 2.50 x a call"),
        (DECODE, ["--times", "--target-ms", "20"], "pays, 1.56 x plain decoding"),
        (DECODE, [], "12.8 ms a token, 32 ms a step with 1 running"),
        (DECODE.replace(" accept rate: 0.50,", ""), COSTS, "IT DEPENDS ON DRAFTS"),
        (DECODE.replace(" accept rate: 0.50,", ""), [*COSTS, "--drafts", "3"], "1.56 x plain"),
        (
            "draft acceptance = 0.6 (78 accepted / 123 generated), mean len = 2.64",
            COSTS,
            "1.74 x plain",
        ),
        ('{"spec_verify_ct": 10, "completion_tokens": 25}', [], "than 2.40 x a call"),
    ],
)
def test_a_mean_answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: list[str], said: str
) -> None:
    """2.5 tokens of 3 drafts take 32 ms, 2.5 x 20/32 = 1.5625; with 15 ms drafts 50/65."""
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    assert main(["plan", str(file), *words]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert main(["plan", str(file), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["record"]["tokens"] >= 2.4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--times"], "--times needs"),
        (["--times", *COSTS], "--times needs"),
        (["--times", "--target-ms", "33"], "at least its call"),
        (["--times", "--target-ms", "20", "--batch", "4"], "running requests in the record"),
    ],
)
def test_times_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "log").write_text(DECODE, encoding="utf-8")
    assert main(["plan", str(tmp_path / "log"), *words]) == 2
    assert said in capsys.readouterr().err


def test_what_is_no_record_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something else", encoding="utf-8")
    assert main(["plan", str(tmp_path / "file")]) == 2
    assert "Looked for:" in capsys.readouterr().err


def test_fewer_drafts_than_ran_are_not_recommended_for_want_of_costs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    survivors = (88, 78, 70, 61, 54, 46, 40)
    (tmp_path / "page").write_text(
        "vllm:spec_decode_num_drafts_total 100\nvllm:spec_decode_num_draft_tokens_total 700\n"
        + "".join(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}\n'
            for i, n in enumerate(survivors)
        ),
        encoding="utf-8",
    )
    words = ["plan", str(tmp_path / "page"), "--draft-ms"]
    assert main([*words, "2", "--target-ms", "0:20,3:23"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "SPECULATE: at least 3 drafts a step; costs are known to 3, the engine ran 7"
    assert main([*words, "90", "--target-ms", "0:20,3:23"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "DO NOT SPECULATE with 3 drafts or fewer; costs are known to 3, the engine ran 7"
    )


def test_files_scrapes_and_standard_input(
    capsys: pytest.CaptureFixture[str], counters: Path, tmp_path: Path
) -> None:
    """The page twice is two servers; the page less a scrape of it is the time between."""
    page = counters.read_text(encoding="utf-8")
    twice = re.sub(r" (\d+)$", lambda found: f" {2 * int(found[1])}", page, flags=re.MULTILINE)
    late = tmp_path / "late"
    late.write_text(twice, encoding="utf-8")
    answers = []
    for files in ([counters], [late, "--since", counters], [counters, counters]):
        assert main(["plan", *map(str, files), *COSTS, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    first, since, both = answers
    assert since["answer"] == first["answer"]
    assert both["record"]["steps"] == 2 * first["record"]["steps"]
    assert both["record"]["tokens"] == first["record"]["tokens"]
    assert main(["plan", str(counters), "--since", str(late)]) == 2
    assert "Counters only rise" in capsys.readouterr().err
    (tmp_path / "log").write_text(DECODE, encoding="utf-8")
    assert main(["plan", str(counters), str(tmp_path / "log")]) == 2
    assert main(["plan", str(tmp_path / "log"), "--since", str(tmp_path / "log")]) == 2
    found = subprocess.run(
        [sys.executable, "-m", "otm", "plan", "-", *COSTS, "--json"],
        input=page,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert json.loads(found.stdout)["answer"] == first["answer"]


def test_the_page_on_records_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are written as they stand there; commands and Python print what stands below and
    beside them.
    """
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, text in zip(
        ("counters.txt", "detailed.jsonl", "server.log", "surface.json"), files, strict=True
    ):
        Path(name).write_text(text, encoding="utf-8")
    commands = re.findall(r"^otm (plan .*)\n((?:(?!otm |```).*\n)+)", page, re.MULTILINE)
    assert len(commands) == 6
    for words, shown in commands:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out == shown, words
        assert max(map(len, shown.splitlines())) <= WIDTH or "--settings" in words
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "records.md", "exec"), {})
    printed = [float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    promised = [float(number) for number in re.findall(r"\d\.\d+", example)]
    assert printed == pytest.approx(promised) and len(promised) == 4
