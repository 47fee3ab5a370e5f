"""A record written step by step is read as what was written."""

import json

import pytest

import otm
from otm.engines import StepRecord, read_acceptance


def test_each_way_to_tell_of_a_step_is_read_as_it_was(tmp_path):
    path = tmp_path / "steps.jsonl"
    for _ in range(2):  # a file that exists is gone on with
        record = StepRecord(path)
        record.step("a", accepted=2, offered=4, seconds=0.03)
        record.step("a", accepted=0, offered=0, seconds=0.02)
        record.calls("b", [3, 1, 5], offered=4)
        # the last two drafts are of a step that was cut
        record.flags("c", [True, True, False, False, True, True], offered=2)
    found = read_acceptance(path)
    counted = [(part.name, part.steps, part.undrafted, part.accepted) for part in found.parts]
    assert counted == [("a", 2, 2, 4), ("b", 6, 0, 12), ("c", 4, 0, 4)]
    assert [part.drafted for part in found.parts] == [8, 24, 8]
    assert found.times.token == {0: pytest.approx(0.1 / 8)}  # 8 tokens in steps with a time


def test_a_line_is_on_the_disk_at_once(tmp_path):
    record = StepRecord(tmp_path / "steps.jsonl")
    record.step(7, accepted=1)
    line = json.loads((tmp_path / "steps.jsonl").read_text(encoding="utf-8"))
    assert line == {"request": "7", "offered": None, "accepted": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accepted": 5, "offered": 4}, "at most what is offered; got 5 of 4"),
        ({"accepted": -1}, "accepted must be"),
        ({"accepted": 1.5}, "accepted must be"),
        ({"accepted": 1, "seconds": -1.0}, r"seconds must lie in \[0"),
    ],
)
def test_what_no_step_is_is_refused(given, message, tmp_path):
    with pytest.raises(otm.errors.InvalidParameter, match=message):
        StepRecord(tmp_path / "steps.jsonl").step("a", **given)
    assert not (tmp_path / "steps.jsonl").exists()


def test_a_streamer_is_handed_the_prompt_and_then_target_calls(tmp_path):
    record = StepRecord(tmp_path / "steps.jsonl")
    streamer = record.streamer("a", offered=3)
    for _ in range(2):
        for tokens in ([1, 2, 3, 4, 5], [6, 7], [8]):
            streamer.put(tokens)
        streamer.end()
    (part,) = read_acceptance(tmp_path / "steps.jsonl").parts
    assert (part.steps, part.accepted, part.drafted) == (4, 2, 12)
