"""`otm plan`: the answer first, on one screen, with baseline, interval, costs and limits named."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from otm.__main__ import main
from otm.commands import plan_sources
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


DECODE = (
    "Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.50, cuda graph: True, "
    "gen throughput (token/s): 78.125, #queue-req: 0\n"
)
UNTOLD = DECODE.replace(" accept rate: 0.50,", "")
SEVEN = """vllm:spec_decode_num_drafts_total 100
vllm:spec_decode_num_draft_tokens_total 700
""" + "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}\n'
    for i, n in enumerate((88, 78, 70, 61, 54, 46, 40))
)
COSTS = "--draft-ms 4 --target-ms 20"


def detailed(accepted, drafted):
    """What vLLM says of one request whose steps are listed."""
    found = {
        "acceptance_histogram": np.bincount(accepted).tolist(),
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
    return json.dumps({"metrics": {"speculative_decoding": found}}) + "\n"


def requests():
    """Yield thirty requests whose steps draft one to four tokens."""
    rng = np.random.default_rng(0)
    for rate in rng.beta(6, 3, size=30):
        drafted = rng.integers(1, 5, size=50)
        accepted = np.minimum(rng.geometric(1 - rate, size=50) - 1, drafted)
        yield detailed(accepted.tolist(), drafted.tolist())


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_text(COUNTERS, encoding="utf-8")
    return tmp_path / "file"


def answer(capsys, *words):
    assert main(["plan", *map(str, words)]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= WIDTH and len(lines) <= 34, printed
    return " ".join(printed.split())


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        # The engine's page, beside what stands on ours.
        (
            COUNTERS,
            "--draft-ms 2 --target-ms 20 --extend 9",
            ["beyond 3 drafts acceptance is extrapolated, at the last"],
        ),
        (
            COUNTERS,
            "--draft-ms 15.95 --target-ms 20",
            ["SPECULATE, MAYBE: the interval contains 1: 1 draft a"],
        ),
        (
            COUNTERS,
            "--draft-ms 2 --target-ms 20 --batch-sizes 1-30",
            ["20 more; --batch-sizes and --context-lengths choose"],
        ),
        # Draft lengths that differ, with their bounds where they cannot be corrected.
        (
            COUNTERS.replace("3000", "2600"),
            "--draft-ms 2 --target-ms 20",
            [
                "draft lengths differ and are not recorded: undrafted reads as rejected and cannot "
                "be corrected here; 2.75 to",
                "2.6 drafts a step",
            ],
        ),
        (
            '{"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}',
            "--draft-ms 2 --target-ms 20",
            ["if they differ, undrafted reads as rejected, which a histogram cannot correct"],
        ),
        (
            detailed([0, 2, 2, 1, 0, 2] * 50, [1, 2, 2, 2, 1, 2] * 50),
            "--draft-ms 1 --target-ms 20",
            [
                "THEY ARE NOT independent: of first drafts 1.00 are accepted in long steps, 0.00 "
                "in short ones"
            ],
        ),
        (
            "".join(requests()),
            "--draft-ms 1 --target-ms 0:20,4:22",
            [
                "in brackets 95 % over requests, for all lengths at once",
                "mean of requests (",
                "draft lengths differ and are recorded: corrected, if they are independent of "
                "acceptance; without",
            ],
        ),
        # Fewer drafts than ran are not recommended for want of costs.
        (
            SEVEN,
            "--draft-ms 2 --target-ms 0:20,3:23",
            ["SPECULATE: at least 3 drafts a step; costs are known to 3, the engine ran 7"],
        ),
        (
            SEVEN,
            "--draft-ms 90 --target-ms 0:20,3:23",
            ["DO NOT SPECULATE with 3 drafts or fewer; costs are known to 3, the engine ran 7"],
        ),
        # Means: 2.5 tokens of 3 drafts take 32 ms, 2.5 x 20/32 = 1.5625; with 15 ms drafts 50/65.
        (DECODE, COSTS, ["SPECULATE: what the engine ran pays, 1.56 x plain decoding"]),
        (DECODE, "--draft-ms 15 --target-ms 20", ["DO NOT SPECULATE as it ran: 0.77 x"]),
        (DECODE, "--draft-ms 4 --target-ms 0:20,2:21", ["known to 2 drafts, the engine"]),
        (
            DECODE,
            "",
            ["than 2.50 x a call", "12.8 ms a token, 32 ms a step with 1 running"],
        ),
        (DECODE, "--times --target-ms 20", ["pays, 1.56 x plain decoding"]),
        (UNTOLD, COSTS, ["IT DEPENDS ON DRAFTS"]),
        (UNTOLD, f"{COSTS} --drafts 3", ["1.56 x plain"]),
        (
            "draft acceptance = 0.6 (78 accepted / 123 generated), mean len = 2.64",
            COSTS,
            ["1.74 x plain"],
        ),
        ('{"spec_verify_ct": 10, "completion_tokens": 25}', "", ["than 2.40 x a call"]),
    ],
)
def test_answers(capsys, file, text, words, said):
    file.write_text(text, encoding="utf-8")
    printed = answer(capsys, file, *words.split())
    for part in said:
        assert part in printed
    assert "NOT independent" not in printed or "NOT independent" in said[0]
    assert main(["plan", str(file), *words.split(), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["record"]["tokens"] >= 1


def test_batch_sizes_and_settings(capsys, file):
    points = {(b, 0, n): max(1.0, b * n / 24) for b in (1, 8, 32) for n in range(1, 5)}
    steps = {(b, 0): 0.05 for b in (1, 8, 32)}
    costs = file.with_name("costs.json")
    surface = CostSurface.of_points(steps, points, source="roofline")
    costs.write_text(surface.to_json(), encoding="utf-8")
    text = answer(capsys, file, "--costs", costs)
    assert text.startswith("SPECULATE in 2 of 3 cells; 0 undecided; in the others do not")
    assert "32 0 0 1; best 0.88" in text and "costs.json: roofline" in text
    further = ("--extend", "6", "--extrapolate-costs", "--batch-sizes", "40")
    for options, longest, last in (((), 3, [25, 32, 0]), (further, 6, [25, 40, 0])):
        words = ["plan", str(file), "--costs", str(costs), "--engine", "vllm", *options]
        assert main(words) == 0
        table = json.loads(capsys.readouterr().out)
        assert table["num_speculative_tokens"] == longest
        assert table["num_speculative_tokens_per_batch_size"][-1] == last


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (COUNTERS, "--draft-ms 2", "go together"),
        (COUNTERS, "--draft-ms 2 --target-ms x", "--target-ms has numbers by number of drafts"),
        (COUNTERS, "--draft-ms 2 --target-ms 1:20", "Measure a call of one token"),
        (COUNTERS, "--draft-ms 2 --target-ms 20 --costs x", "got both"),
        (COUNTERS, "--draft-ms -2 --target-ms 20", "a draft step"),
        (COUNTERS, "--costs absent", "cannot be read"),
        (COUNTERS, "--engine vllm", "need costs"),
        (COUNTERS, f"{COSTS} --confidence 1", "confidence"),
        (DECODE, "--times", "--times needs"),
        (DECODE, f"--times {COSTS}", "--times needs"),
        (DECODE, "--times --target-ms 33", "at least its call"),
        (DECODE, "--times --target-ms 20 --batch-sizes 4", "running requests in the record"),
        ("something else", "", "no word of them"),
    ],
)
def test_what_cannot_be_planned_ends_with_2(capsys, file, text, words, said):
    file.write_text(text, encoding="utf-8")
    assert main(["plan", str(file), *words.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("otm plan: ") and said in error


def scaled(page, factor):
    """A page with all counters multiplied."""
    return re.sub(r" (\d+)$", lambda found: f" {int(factor * int(found[1]))}", page, flags=re.M)


def test_files_scrapes_and_standard_input(capsys, file):
    """Pages of two servers are one record; a page less a scrape of it is the time between."""
    twice = scaled(COUNTERS, 2)
    late, log, other = (file.with_name(name) for name in ("late", "log", "other"))
    busier = COUNTERS.replace("1000", "1100").replace("3000", "3300").replace(" 800", " 900")
    other.write_text(busier.replace(" 550", " 450"), encoding="utf-8")
    late.write_text(twice, encoding="utf-8")
    log.write_text(DECODE, encoding="utf-8")
    answers = []
    for files in ([file], [late, "--since", file], [file, other]):
        assert main(["plan", *map(str, files), *COSTS.split(), "--json", "-"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    first, since, both = answers
    assert since["answer"] == first["answer"]
    assert both["record"]["steps"] == 2100
    assert both["record"]["tokens"] == pytest.approx(1 + 3500 / 2100)
    for files in ([file, "--since", late], [file, log], [log, "--since", log]):
        assert main(["plan", *map(str, files)]) == 2
    assert "Counters only rise" in capsys.readouterr().err
    piped = [sys.executable, "-m", "otm", "plan", "-", *COSTS.split(), "--json", "-"]
    found = subprocess.run(
        piped, input=COUNTERS, capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert json.loads(found.stdout)["answer"] == first["answer"]


def test_the_page_on_records_shows_what_is_printed(capsys, tmp_path, monkeypatch):
    """Its files are written as they stand there; commands and Python print what stands below and
    beside them. The server of the page serves its counters, and more of them each time.
    """
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names = ("counters.txt", "other.txt", "detailed.jsonl", "server.log", "surface.json")
    for name, text in zip(names, files, strict=True):
        Path(name).write_text(text, encoding="utf-8")
    rarer = scaled(files[0], 20).replace(" 16000", " 15500").replace(" 35000", " 34500")
    pages = iter([scaled(files[0], 10), scaled(files[0], 14), rarer, scaled(rarer, 1.25)])
    monkeypatch.setattr(plan_sources, "fetch_page", lambda _: next(pages))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    commands = re.findall(r"^otm (plan .*)\n((?:(?!otm |```).*\n)+)", page, re.MULTILINE)
    assert len(commands) == 10
    for words, shown in commands:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out == shown, words
        assert max(map(len, shown.splitlines())) <= WIDTH or "--engine" in words
    # the one before needs models
    _, example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "records.md", "exec"), {})
    printed = [float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    promised = [float(number) for number in re.findall(r"\d\.\d+", example)]
    assert printed == pytest.approx(promised) and len(promised) == 4


def test_the_time_of_a_token_says_what_a_step_costs(capsys):
    """85 % of three drafts are 3.55 tokens; 5 % faster than plain, a step costs 3.55/1.05 calls."""
    words = "--mean 3.55 --target-ms 20 --token-ms 19.0476"
    text = answer(capsys, *words.split(), "--drafts", "3")
    assert "1.05 x plain decoding" in text and "pays below 3.55" in text
    assert "costs 3.38 target calls: 1 the target's own, 2.38 for drafts and the longer" in text
    assert "0.79 a draft" in text
    unknown = answer(capsys, *words.split())
    assert unknown.startswith("SPECULATE: what the engine ran pays, 1.05 x") and "3.38" in unknown
    assert "a draft" not in unknown


def test_calls_that_drafted_nothing_are_told_from_steps(capsys, monkeypatch, file):
    """Of 1,800 calls 1,000 drafted: 1,750/1,800 more than one token a call, 1,750/1,000 a step.

    A call takes 30 ms on average; 800 take 20 ms, so that a step takes 38 ms.
    """
    read = plan_sources.read_models

    def rarer(path):
        (record,) = read(path).values()
        parts = (dataclasses.replace(record.parts[0], undrafted=800.0),)
        return {"": dataclasses.replace(record, parts=parts)}

    monkeypatch.setattr(plan_sources, "read_models", rarer)
    mean = 1 + 1750 / 1800
    text = answer(capsys, file, "--target-ms", "20", "--token-ms", 30 / mean)
    assert "tokens a call: 1.972; 2.750 where something was drafted (1,000 of 1,800 calls)" in text
    assert "costs 1.90 target calls" in text and "pays below 2.75" in text
    assert "1.97 tokens a call" in text.partition("record")[0]


def test_what_ran_is_kept_where_no_measured_length_is_faster(capsys, file):
    """The list ends at two positions, of which 1.6 drafts are accepted, and of all 2.6 a step."""
    text = "draft acceptance = 0.65 (2600 accepted / 4000 generated), mean len = 3.60\n"
    file.write_text(f"{text}acc per pos = (0.800, 0.800)\n", encoding="utf-8")
    printed = answer(capsys, file, "--draft-ms", "1", "--target-ms", "20")
    assert printed.startswith("KEEP WHAT RAN: 4 drafts a step, 3.00 x plain decoding no measured")
    assert "faster: 2 drafts, 2.36 x (" in printed and "lie beyond the record's list" in printed
    several = answer(capsys, file, "--draft-ms", "1", "--target-ms", "20", "--batch-sizes", "1,2")
    assert several.startswith("KEEP WHAT RAN in 2 of 2 cells")
    assert "ran: no measured length is faster" in answer(capsys, file)


def test_records_beside_each_other(capsys, file):
    other = file.with_name("other")
    other.write_text(
        COUNTERS.replace("1750", "1250").replace(" 550", " 300").replace(" 400", " 150"),
        encoding="utf-8",
    )
    text = answer(capsys, file, "--beside", other)
    assert text.startswith("DIFFER: 2.750 and 2.250 tokens a call 0.500 tokens a call (")
    assert "so too narrow" in text and "calls would tell this difference" in text
    assert "file 2.750 3 other 2.250 3" in text
    assert answer(capsys, file, "--beside", file).startswith("NOT SHOWN TO DIFFER")
    assert main(["plan", str(file), "--against", "2.7", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "not shown to differ" and found["tokens"] == [2.75, 2.7]
    file.write_text(DECODE, encoding="utf-8")
    timed = answer(capsys, file, "--beside", file)
    assert "no interval" in timed and "12.8, 1 running" in timed


def test_the_page_of_engines_shows_real_records_and_what_is_printed_of_them(capsys, monkeypatch):
    page = (ROOT / "docs" / "howto" / "engines.md").read_text(encoding="utf-8")
    real = ROOT / "tests" / "engines" / "records" / "real"
    monkeypatch.chdir(real)
    records = re.findall(r"records/real/([\w.-]+)\).*?```text\n(.*?)```", page, re.DOTALL)
    printed = re.findall(
        r"^`otm (plan [^`]*)` prints:\n\n```console\n(.*?)```", page, re.DOTALL | re.M
    )
    assert len(records) == len(printed) == 5
    for name, excerpt in records:
        written = (real / name).read_text(encoding="utf-8").splitlines()
        assert set(excerpt.splitlines()) <= set(written), name
    for words, shown in printed:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out.startswith(shown), words
