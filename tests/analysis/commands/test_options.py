"""Groups of options, one meaning for each name, and runs repeated from their records."""

import contextlib
import inspect
import json
from collections import defaultdict

import pytest

import otm
from analysis.commands import COMMANDS
from analysis.commands.options import grouped, models_of, sampling_of
from analysis.models.processing import Setting
from analysis.models.source import PairSource
from analysis.run import scheduling
from otm import Processing
from otm.commands import COMMANDS as OWN
from otm.commands.app import load

EXCUSED = {
    "out": "each command makes something of its own, some of them always",
    "seconds": "an audit, advice and a measurement of latency take different times",
}
"""Options of one name with different defaults, and why."""

ALONE = {
    ("plan", "--drafts"): "one number that a record's step has, elsewhere a list to measure",
    ("audit", "--engine"): "the address of one that runs, elsewhere its name",
    ("plan", "--engine"): "whose settings are printed, elsewhere whose rules are candidates",
}
"""Options of another type than their namesakes, and why."""


@pytest.fixture(scope="module")
def commands():
    return {one.name: load(one) for one in (*OWN, *COMMANDS)}


def test_an_option_of_one_name_has_one_type_and_one_default_and_every_one_a_sentence(commands):
    found = defaultdict(dict)
    for command in commands.values():
        assert all(one.help for one in command.params), command.name
        for one in command.params:
            if one.param_type_name == "option" and (command.name, one.opts[0]) not in ALONE:
                meaning = (str(one.type_descriptor.annotation), one.metavar, one.nargs)
                default = () if one.opts[0][2:] in EXCUSED else (str(one.default),)
                found[one.opts[0]].setdefault(meaning + default, []).append(command.name)
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1} == {}
    assert set(EXCUSED) <= {name[2:] for name in found}


def test_a_group_stands_for_its_options():
    found = []

    @grouped(models=models_of, setting=sampling_of, without=("temperature",))
    def command(*, models: PairSource, temperatures: str = "0.5,1", setting: Setting) -> None:
        found.extend((temperatures, setting, models))

    command(temperatures="2", top_k=3, draft_top_k=5, device="cpu")
    target = Processing(top_k=3)
    assert found == ["2", Setting(Processing(top_k=5), target), PairSource(device="cpu")]
    options = inspect.signature(command).parameters
    assert "temperature" not in options and options["temperatures"].default == "0.5,1"


def test_the_draft_is_sampled_as_the_target_unless_said():
    assert sampling_of(temperature=0.5, order="vllm") == Setting(
        *[Processing(temperature=0.5, order="vllm")] * 2
    )
    assert sampling_of(draft_temperature=0.0).draft == Processing(temperature=0.0)
    with pytest.raises(otm.errors.InvalidParameter, match="top_p"):
        sampling_of(top_p=2.0)


def test_a_measurement_is_repeated_from_its_manifest(printed, monkeypatch, tmp_path):
    """The first in a process apart, as from a shell, which takes seconds to start; the second in
    this one, of the same bytes.
    """
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Return the\nIf not\n", encoding="utf-8")
    small = ("--prompts", prompts, "--limit", 1, "--prompt-tokens", 4)
    small += ("--temperatures", "0.7,1", "--bounds")
    machine = ("--device", "cpu", "--workers", 1, "--threads", 1, "--allow", "a", "--allow", "b")
    printed("measure", *small, "--drafts", "1-2", *machine, "--out", tmp_path / "one")
    record = tmp_path / "one" / "manifest.json"
    here = scheduling.Inline()
    monkeypatch.setattr(scheduling.Workers, "open", lambda _: contextlib.nullcontext(here))
    printed("measure", "--settings", record, "--out", tmp_path / "two")
    one, two = (
        json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))
        for name in ("one", "two")
    )
    assert one["settings"] == two["settings"] and one["options"] == two["options"]
    assert (
        one["options"]["limit"] == 1
        and one["options"]["allow"] == ["a", "b"]
        and "out" not in one["options"]
    )
    shards = [tmp_path / name / "shards" / "shard-00000.parquet" for name in ("one", "two")]
    assert shards[0].read_bytes() == shards[1].read_bytes()


def test_rules_are_repeated_from_their_record(printed, tmp_path):
    record = tmp_path / "rules.json"
    asked = ("--num-texts", 4, "--num-tokens", 4, "--tree-size", 2, "--temperature", 0.8)
    asked += ("--engine", "transformers", "--length", 2)
    shown = printed("rules", *asked, "--json", record)
    assert printed("rules", "--settings", record) == shown
    again = json.loads(printed("rules", "--settings", record, "--json", "-"))
    assert again == json.loads(record.read_text(encoding="utf-8"))
    assert again["sampling"]["draft_temperature"] == pytest.approx(0.64)  # as it drafts, squared
