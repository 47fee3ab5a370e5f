"""Where records of `otm plan` come from: numbers, addresses, a live view, several models."""

import json
import re
import time

import pytest

from otm.__main__ import main
from otm.commands import plan_sources
from otm.engines import read_acceptance
from tests.served import DEAD, served


def counters(steps, first=0.8, second=0.5, model="a"):
    """The page of a server that drafted two tokens in each step."""
    at = [round(first * steps), round(second * steps)]
    values = {"drafts": steps, "draft_tokens": 2 * steps, "accepted_tokens": sum(at)}
    start = "vllm:spec_decode_num_"
    lines = [f'{start}{name}_total{{model_name="{model}"}} {n}' for name, n in values.items()]
    for i, n in enumerate(at):
        labels = f'model_name="{model}",position="{i}"'
        lines.append(f"{start}accepted_tokens_per_pos_total{{{labels}}} {n}")
    return "\n".join(lines) + "\n"


def told(capsys, *words):
    """What a plan writes as JSON, and the lines beside it."""
    assert main(["plan", *map(str, words), "--json", "-"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("--accepted 1750 --steps 1000", 2.75),
        ("--mean 2.75 --drafts 3", 2.75),
        ("--rates .8,.55,.40", 2.75),
        ("--means 1:1.8,3:2.75", 2.75),
    ],
)
def test_numbers_take_the_place_of_a_file(capsys, words, tokens):
    assert told(capsys, *words.split())[0]["record"]["tokens"] == pytest.approx(tokens)


def test_a_page_is_fetched_and_its_address_named(capsys):
    with served(counters(1000)) as url:
        assert told(capsys, url)[0]["record"]["steps"] == 1000
        assert main(["plan", url, "--since", url]) == 2  # nothing happened in between
        assert main(["plan", url]) == 0
    assert f"record {url}" in " ".join(capsys.readouterr().out.split())


def test_a_live_view_names_drift_restarts_and_gaps_and_ends_with_what_it_saw(capsys):
    """800 steps until the server is started anew, 500 after it."""
    pages = [
        counters(1000),
        counters(1400),
        counters(1400),
        counters(1800, 0.75),
        DEAD,
        counters(500),
    ]
    with served(*pages) as url:
        found, lines = told(capsys, url, "--every", "1ms", "--windows", 5)
    assert found["record"]["steps"] == 1300
    shown = [re.sub(r"\s+", " ", line).strip() for line in lines.splitlines()]
    assert shown[:3] == [
        "1,000 steps before the first window",
        "400 steps 2.300 tokens a call 0.80 0.50",
        "0 steps",
    ]
    assert shown[3].endswith("drift: 1") and "answers 503" in shown[4]
    assert shown[5] == "counters fell: the server was started anew"
    assert shown[6].startswith("500 steps 2.300 tokens a call 0.80 0.50")


def test_an_interrupt_of_the_live_view_answers_with_what_there_is(capsys, monkeypatch):
    """The first wait is none; the second or third is interrupted."""
    for waits, steps in ((1, 1000), (2, 400)):
        left = [None] * waits

        def sleep(_, left=left):
            if not left:
                raise KeyboardInterrupt
            left.pop()

        with monkeypatch.context() as patch, served(counters(1000), counters(1400)) as url:
            patch.setattr(time, "sleep", sleep)
            assert told(capsys, url, "--every", "1m")[0]["record"]["steps"] == steps


def test_an_interrupt_before_anything_was_read_ends_with_130(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    for name in ("read_models", "fetch_page"):
        monkeypatch.setattr(plan_sources, name, interrupted)
    assert main(["plan", "file"]) == main(["plan", "http://a/", "--every", "1s"]) == 130


def test_models_are_planned_one_by_one(capsys, tmp_path):
    """Of a file and of a page; `--model` picks one."""
    early, late = (
        "".join(counters(steps + more, model=name) for name, steps in (("a", 100), ("b", 200)))
        for more in (0, 100)
    )
    file = tmp_path / "early"
    file.write_text(early, encoding="utf-8")
    with served(late) as url:
        found = told(capsys, url, "--since", file)[0]["models"]
        assert {name: one["record"]["steps"] for name, one in found.items()} == {"a": 100, "b": 100}
        assert told(capsys, url, "--model", "b")[0]["record"]["steps"] == 300
        assert told(capsys, url, "--model", "b", "--beside", file)[0]["tokens"] == [2.3, 2.3]
        assert main(["plan", url, "--every", "1ms"]) == 2
    assert "['a', 'b']; got None" in capsys.readouterr().err
    assert main(["plan", str(file)]) == 0
    printed = capsys.readouterr().out
    assert re.findall("^MODEL .*", printed, re.MULTILINE) == ["MODEL a", "MODEL b"]
    assert main(["plan", str(file), "--model", "c"]) == 2
    assert main(["plan", str(file), "--against", "2"]) == 2
    assert "['a', 'b']; got 'c'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "one source"),
        ("--mean 2 --rates .5", "got 2"),
        ("--accepted 3", "steps must be"),
        ("--mean 2 --drafts 0", "--drafts"),
        ("--rates .5,x", "numbers have commas"),
        ("--means 2", "--means has numbers by number of drafts"),
        ("file --every 10s", "for one address"),
        ("http://a/ --every 10", "for one address"),
        ("http://a/ --windows 2", "for one address"),
        ("--mean 2 --drafts 2 --token-ms 9 --target-ms 0", "a target call"),
        ("--mean 2 --drafts 2 --token-ms 0 --target-ms 9", "--token-ms"),
        ("--mean 2 --token-ms 9", "--token-ms instead"),
        ("http://a/ http://b/ --every 1s", "for one address"),
        ("--rates .8,.5 --extend 1", "goes on from the 2 measured positions"),
        ("--mean 2 --against 3 --beside file", "Drop one of them"),
        ("ftp://a/", "http or https"),
        ("--mean 2.5 --every 10s", "--every says nothing of numbers typed in"),
        ("--mean 2.5 --since page.txt", "--since says nothing of numbers typed in"),
        ("--rates .8,.6 --drafts 2", "--drafts says nothing of --rates and --means"),
        ("--mean 2.5 --drafts 3 --extend 9", "--extend goes on from measured positions"),
    ],
)
def test_what_is_no_source_or_would_say_nothing_is_refused(capsys, words, said):
    assert main(["plan", *words.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_live_view_needs_counters(capsys):
    gauge = "sglang:spec_accept_length 2.5\n"
    with served(gauge) as url:
        assert main(["plan", url, "--every", "1ms"]) == 2
    assert "takes a page of counters" in capsys.readouterr().err


def test_a_server_that_ends_leaves_the_answer_to_date(capsys, tmp_path):
    (tmp_path / "page").write_text(counters(1000), encoding="utf-8")
    with served(counters(1000), DEAD) as url:
        found, _ = told(capsys, url, "--every", "1ms", "--windows", 2)
    assert found["record"]["tokens"] == read_acceptance(tmp_path / "page").mean
