"""The rules along toy texts, what the screen says of them, and the command on the shipped pair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import otm
from analysis.advise.walk import Walk
from analysis.errors import AnalysisError
from analysis.models.processing import Setting
from analysis.rules.answer import RulesRead, as_json, attribute, place_of, read_rules
from analysis.rules.rules import BLOCK, Sizes
from analysis.rules.screen import screen
from otm.commands.printing import WIDTH
from otm.engines import AcceptanceRecord
from otm.engines.records import Tally

from .toys import toy_reader

SIZES = Sizes(length=2, nodes=4, sequences=2, num_tokens=16, texts=24)
EOS = 3  # rare
FILTERED = otm.Processing(temperature=0.7, top_p=0.9)


@pytest.fixture(scope="module")
def read() -> RulesRead:
    reader = toy_reader(SIZES, setting=Setting(FILTERED, FILTERED), eos=EOS)
    return read_rules(reader, [[number] for number in range(12)])


def test_rules_accept_what_the_library_says_on_the_same_rows(read: RulesRead) -> None:
    """The first draft's acceptance at every start, less where it ends the text."""
    (passage, *_), (walks, *_) = read.passages, read.walks
    text, starts = passage.text, min(SIZES.num_tokens, len(passage.text.tokens))
    p, q = text.draft[:starts], text.target[:starts]
    hot = np.asarray(otm.Processing(temperature=0.7)(passage.logits[:starts].astype(float)))
    for name, verifier, draft in (
        ("match-independent", otm.Naive(), p),
        ("match-argmax", otm.Maximal(), np.eye(12)[p.argmax(axis=1)]),
        ("match-noise", otm.Race(), p),
        ("rejection", otm.Maximal(), p),
        ("rejection-unfiltered", otm.Maximal(), hot),
        (BLOCK, otm.Maximal(), p),
    ):
        problem = otm.Problem(draft=draft, target=q, law=otm.IID(1))
        joint = otm.coupling(verifier, otm.Problem(draft=draft[0], target=q[0], law=otm.IID(1)))
        ending = sum(
            float(row[EOS])
            for drafts, row in zip(joint.drafts, joint.joint.toarray(), strict=True)
            if EOS in drafts
        )
        found = walks[place_of(read.rules, name)].gained[0]
        exact = np.asarray(otm.acceptance(verifier, problem))
        # logits are kept in single precision
        assert found[0] == pytest.approx(exact[0] - ending, abs=1e-6)
        assert (found <= exact + 1e-6).all()


def test_walks_start_where_the_last_step_ended(read: RulesRead) -> None:
    for row in read.walks:
        for walk in row:
            again = Walk.of(walk.reached, walk.gained)
            if walk.reached.shape[1] == SIZES.num_tokens:  # of refined scores: after the end none
                np.testing.assert_allclose(walk.visits, again.visits, atol=1e-14)
            assert walk.steps <= walk.tokens <= 3 * walk.steps


def test_the_answer_comes_first_and_fits_the_screen(read: RulesRead) -> None:
    lines = screen(read, None).splitlines()
    best, block = read.order[0], place_of(read.rules, BLOCK)
    assert lines[0].startswith(f"BEST: {read.rules[best].words}: ")
    assert lines[1].startswith("  of one sequence of 2: block verification: ") or best == block
    assert all(len(line) <= WIDTH for line in lines)
    assert [line.split()[0] for line in lines[4 : 4 + len(read.rules)]] == [
        read.rules[rule].name for rule in read.order
    ]
    with pytest.raises(AnalysisError, match="got 'other'"):
        place_of(read.rules, "other")


def test_a_record_names_the_rule_and_what_it_loses(read: RulesRead) -> None:
    own = place_of(read.rules, "match-argmax")
    steps = 20_000
    survivors = read.survivals.mean[own] * steps
    part = Tally.of_survivors(survivors, steps=steps, name="")
    record = AcceptanceRecord(form="drawn", unit="server", parts=(part,), convention="", length=2)
    told = attribute(read, record)
    text = screen(read, told)
    assert told.consistent[0] == own and told.p_values[own] == 1.0
    sure = "" if len(told.consistent) == 1 else "MAY "
    assert text.startswith(f"YOU {sure}RUN match, argmax draft: ")
    best = read.order[0]
    lead = read.survivals.mean.sum(axis=1)
    assert told.lost[best].value == pytest.approx(lead[best] - lead[own])
    assert "tokens a call lost against" in text and "drawn; its own luck" in text
    answer = as_json(read, told)["record"]
    assert answer["consistent"][0] == "match-argmax" and answer["steps"] == steps
    nothing = Tally.of_survivors([0.99 * steps, 0.01 * steps], steps=steps, name="")
    other = AcceptanceRecord(form="x", unit="server", parts=(nothing,), convention="", length=2)
    assert screen(read, attribute(read, other)).startswith("NONE OF THESE RULES: 2.00 tokens")
    assert all(len(line) <= WIDTH for line in text.splitlines())


def test_the_command_on_the_shipped_pair(
    command: Callable, refused: Callable, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    counted = {"meta_info": {"spec_verify_ct": 100, "spec_accept_histogram": [60, 40]}}
    record.write_text(json.dumps(counted), encoding="utf-8")
    asked = ("--texts", 8, "--num-tokens", 4, "--nodes", 2, "--sequences", 2, "--drafting")
    gate = ("--rule", "block", "--fail-below", 9)
    ended = command("rules", *asked, "--temperature", 0.8, "--record", record, "--json", *gate)
    assert ended.code == 1 and "below: block has " in ended.err
    assert "models: loading, about " in ended.err and "record: SGLang" in ended.err
    answer = json.loads(ended.out)
    assert answer["sizes"]["length"] == 1 and answer["sampling"]["temperature"] == 0.8
    found = {one["name"]: one["survival"][0] for one in answer["rules"]}
    assert len(answer["drafting"]["stops"]) == 6
    # of one draft block verification is rejection
    assert found["block"] == pytest.approx(found["rejection"], abs=1e-12)
    assert "--rule and --fail-below" in refused("rules", "--rule", "block")
    other = command("rules", *asked, "--rule", "b", "--fail-below", 1)
    assert other.code == 2 and "A rule must be one of" in other.err
