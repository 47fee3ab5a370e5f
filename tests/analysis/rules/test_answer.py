"""The rules along toy texts, how to draft, what the screen says of it, and the command on the
shipped pair.
"""

import dataclasses
import json

import numpy as np
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.models.causal import pair_models
from analysis.models.processing import Setting
from analysis.rules.answer import attribute, place_of, read_rules, screen_json
from analysis.rules.attribution import predicted_given
from analysis.rules.drafting import LONGEST, best_processing, best_stops
from analysis.rules.rules import BLOCK, Reader, Sizes
from analysis.rules.screen import drafting_words, rules_screen
from otm.commands.printing import WIDTH
from otm.engines import CostSurface
from otm.engines.records import Tally
from otm.sequence import MarkovModel
from tests.analysis.toys import Toy, record_of, toy_reader
from tests.paths import ROOT

DATA = ROOT / "figures" / "data"

SIZES = Sizes(length=2, nodes=4, sequences=2, num_tokens=16, texts=24)
EOS = 3  # rare
FILTERED = otm.Processing(temperature=0.7, top_p=0.9)
SHORT = Sizes(length=2, nodes=2, sequences=2, num_tokens=24, texts=8)
COLD = otm.Processing(temperature=0.5, top_k=5)


def accepted_histogram(text, length, start):
    """How many steps of chains of argmax drafts accept 0, …, L of them along a text."""
    certain, at = text.draft.argmax(axis=1) == text.tokens, start
    counts = [0] * (length + 1)
    while at < len(certain):
        accepted = int(np.cumprod(certain[at : at + length]).sum())
        counts[accepted] += 1
        at += 1 + accepted
    return counts


@pytest.fixture(scope="module")
def read():
    reader = toy_reader(SIZES, setting=Setting(FILTERED, FILTERED), eos=EOS)
    return read_rules(reader, [[number] for number in range(12)])


def test_rules_accept_what_the_library_says_on_the_same_rows(read):
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
        exact = np.asarray(
            otm.acceptance(verifier, otm.Problem(draft=draft, target=q, law=otm.IID(1)))
        )
        joint = otm.coupling(verifier, otm.Problem(draft=draft[0], target=q[0], law=otm.IID(1)))
        ending = joint.joint.toarray()[(joint.drafts == EOS).any(axis=1), EOS].sum()
        found = walks[place_of(read.rules, name)].gained[0]
        # logits are kept in single precision
        assert found[0] == pytest.approx(exact[0] - ending, abs=1e-6)
        assert (found <= exact + 1e-6).all()


def test_the_answer_comes_first_and_fits_the_screen(read):
    lines = rules_screen(read, None).splitlines()
    best, block = read.order[0], place_of(read.rules, BLOCK)
    assert lines[0].startswith(f"MOST TOKENS: {read.rules[best].words}: ")
    assert "need not be the fastest" in lines[1]
    assert lines[2].startswith("  of one sequence of 2: block verification: ") or best == block
    assert all(len(line) <= WIDTH for line in lines)
    assert [line.split()[0] for line in lines[5 : 5 + len(read.rules)]] == [
        read.rules[rule].name for rule in read.order
    ]
    with pytest.raises(AnalysisError, match="got 'other'"):
        place_of(read.rules, "other")


def test_no_temperature_of_the_draft_accepts_more_than_is_said(read):
    found, rows = screen_json(read, None)["first_draft"], []
    for one in read.passages:
        places = range(0, len(one.logits), -(-len(one.logits) // 8))
        rows += [(one.logits[i], one.text.draft[i], one.text.target[i]) for i in places]
    logits, draft, target = map(np.array, zip(*rows, strict=True))

    def accepted(temperature):
        drawn = otm.from_logits(logits.astype(float), temperature=temperature)
        return np.minimum(drawn, target).sum(axis=1).mean()

    assert found["accepted"] == pytest.approx(np.minimum(draft, target).sum(axis=1).mean())
    best = found["best"]
    assert accepted(best["temperature"]) == pytest.approx(best["lower"], abs=1e-9)
    assert max(map(accepted, np.geomspace(0.05, 20, 99))) <= best["upper"] <= best["lower"] + 5e-4


def test_a_record_names_the_rule_and_what_it_loses(read):
    own, best, steps = place_of(read.rules, "match-argmax"), read.order[0], 20_000
    part = Tally.of_survivors(read.survivals.mean[own] * steps, steps=steps, name="")
    told = attribute(read, record_of(part, length=2))
    text = rules_screen(read, told)
    assert told.consistent[0] == own and told.p_values[own] == 1.0
    sure = "" if len(told.consistent) == 1 else "MAY "
    assert text.startswith(f"YOU {sure}RUN match, argmax draft: ")
    lead = read.survivals.mean.sum(axis=1)
    assert told.lost[best].value == pytest.approx(lead[best] - lead[own])
    assert "tokens a call lost against" in text and "drawn; its own luck" in text
    answer = screen_json(read, told)["record"]
    assert (answer["consistent"][0], answer["steps"]) == ("match-argmax", steps)
    nothing = Tally.of_survivors([0.99 * steps, 0.01 * steps], steps=steps, name="")
    other = rules_screen(read, attribute(read, record_of(nothing, length=2)))
    assert other.startswith("NONE OF THESE RULES: 2.00 tokens")
    assert all(len(line) <= WIDTH for line in text.splitlines())
    grown = place_of(read.rules, "likeliest-tree")
    tree = Tally.of_survivors(read.survivals.mean[grown] * steps, steps=steps, name="")
    assert attribute(read, record_of(tree, length=2)).consistent[0] == grown
    counted = attribute(read, record_of(dataclasses.replace(tree, drafted=2 * steps), length=2))
    assert all(read.rules[rule].nodes <= 2 for rule in counted.consistent)


def test_with_costs_the_answer_is_the_fastest_rule(read):
    """Where each node costs half a call, no tree pays, and the chain is ahead of it."""
    points = {(1, 0, 1): 1.0, (1, 0, 65): 33.0}
    costs = CostSurface.of_points({(1, 0): 0.01}, points, source="by hand")
    speeds = read.speeds(costs)
    fastest = max(range(len(speeds)), key=lambda rule: speeds[rule])
    assert read.rules[fastest].nodes == 2
    tokens = read.survivals.tokens(fastest).value
    assert speeds[fastest] == pytest.approx(tokens / (2 * 0.01 + 2.0))
    lines = rules_screen(read, None, costs).splitlines()
    name = "FASTEST" if speeds[fastest] > 1 else "NONE PAYS; the fastest"
    assert lines[0].startswith(f"{name}: {read.rules[fastest].words}: ")
    assert any(line.startswith("MOST TOKENS: ") for line in lines)


def test_a_record_of_written_texts_and_another_draft_beside():
    """Texts that an engine wrote with argmax drafts; beside them the draft itself, and another."""
    sizes = dataclasses.replace(SIZES, num_tokens=14, texts=6)
    reader, other = (toy_reader(sizes, setting=Setting(FILTERED, FILTERED)) for _ in range(2))
    other.draft = other.target  # it drafts what it verifies
    prompts = [[number % 3] for number in range(6)]
    texts = [reader.sample(prompts, number) for number in range(6)]
    written = [text.tokens.tolist() for text in texts]
    counts = np.sum([accepted_histogram(text, 2, 1) for text in texts], axis=0)
    record = record_of(Tally.of_histogram(counts, name=""), length=2)
    found = read_rules(reader, prompts, written=written, beside=other)
    assert len(found.walks) == 6 and found.survivals.clusters == 3
    told = attribute(found, record)
    assert found.rules[told.consistent[0]].name == "match-argmax"
    text = " ".join(rules_screen(found, told).split())
    assert "6 texts that the engine wrote" in text and "its drafts alone" in text
    block = place_of(found.rules, BLOCK)
    gain = found.gain_beside(block)
    assert gain is not None and gain.low > 0
    assert found.survivals.tokens(block).value + gain.value <= 3.0
    same = read_rules(reader, prompts, written=written, beside=reader)
    assert same.gain_beside(block).value == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(AnalysisError, match="must be of the texts; it has"):
        attribute(read_rules(reader, prompts, written=written[:2]), record)
    with pytest.raises(AnalysisError, match="two texts or more"):
        predicted_given(found.walks[:1], [False] * len(found.rules))
    reader.target.processing = otm.Processing(top_k=1)
    with pytest.raises(AnalysisError, match="it never writes token"):
        read_rules(reader, prompts, written=[[0, *range(12)]])


def read_toys(*, same):
    """Read texts of two chains, of which the draft may be the target at another temperature."""
    reader = toy_reader(SHORT, setting=Setting(otm.Processing(), COLD))
    if same:
        reader.draft = Toy(reader.target.model, otm.Processing())
    return read_rules(reader, [[number] for number in range(8)])


def test_a_draft_that_is_the_target_is_best_processed_as_the_target():
    read = read_toys(same=True)
    best = best_processing(read)
    assert best.processing == COLD and best.tried > 20
    assert best.gain.value > 0.2 and best.gain.value > best.gain.low
    text = drafting_words(best, best_stops(read, cost=0.0), cost=0.0)
    assert "a draft at temperature 0.5, top k 5" in " ".join(text.split()).replace("-", " ")
    few = dataclasses.replace(read, passages=read.passages[:3])
    with pytest.raises(AnalysisError, match="got 3 texts"):
        best_processing(few)


def test_fewer_drafts_pay_where_they_cost_more():
    read = read_toys(same=False)
    free, dear = (best_stops(read, cost=cost) for cost in (0.0, 100.0))
    assert min(one.drafts for one in free[::3]) > LONGEST / 2  # the fixed lengths
    assert [one.drafts for one in dear[::3]] == [1.0, 1.0]
    assert dear[0].words == "never, 1 drafts, argmax"
    for one in free:
        assert one.speed.value == pytest.approx(one.tokens)


def test_a_stop_rule_drafts_where_the_drafter_is_sure():
    """From tokens 0 and 1 the next is 2 or 3 for sure, after which it is a coin."""
    coin, sure = [0.5, 0.5, 0.0, 0.0], np.eye(4)[2:]
    model = MarkovModel(np.array([sure[0], sure[1], coin, coin]))
    reader = toy_reader(SHORT, num_tokens=4)
    with np.errstate(divide="ignore"):
        reader.draft = reader.target = Toy(model, otm.Processing())
        read = read_rules(reader, [[0], [1]])
        fixed, stop, *_ = best_stops(read, cost=0.6)
    # Every step drafts the sure token and adds a coin of the target: 2/(1 + .6); to draft the coin
    # as well costs .6 more and wins less.
    assert stop.words == "largest probability < 0.6, argmax"
    assert (stop.tokens, stop.drafts, stop.speed.value) == pytest.approx((2.0, 1.0, 1.25))
    assert (fixed.tokens, fixed.drafts) == pytest.approx((2.0, 1.0))


def test_the_command_on_the_shipped_pair(command, tmp_path):
    record = tmp_path / "record.json"
    counted = {"meta_info": {"spec_verify_ct": 100, "spec_accept_histogram": [60, 40]}}
    record.write_text(json.dumps(counted), encoding="utf-8")
    asked = ("--num-texts", 8, "--num-tokens", 4, "--tree-size", 2, "--sequences", 2, "--drafting")
    gate = ("--rule", "block", "--fail-below", 9, "--beside-dtype", "bfloat16")
    ended = command("rules", *asked, "--temperature", 0.8, "--record", record, "--json", "-", *gate)
    assert ended.code == 1 and "below: block has " in ended.err
    assert "models: loading, about " in ended.err and "record: SGLang" in ended.err
    answer = json.loads(ended.out)
    assert answer["sizes"]["length"] == 1 and answer["sampling"]["temperature"] == 0.8
    found = {one["name"]: one["survival"][0] for one in answer["rules"]}
    assert len(answer["drafting"]["stops"]) == 6
    gains = {one["name"]: one["gain_beside"]["value"] for one in answer["rules"]}
    assert 0.0 < abs(gains["block"]) < 0.1 and answer["vocabulary_loss"] == 0.0
    # of one draft block verification is rejection
    assert found["block"] == pytest.approx(found["rejection"], abs=1e-12)
    other = command("rules", *asked, "--rule", "b", "--fail-below", 1)
    assert other.code == 2 and "A rule must be one of" in other.err


def _lines(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def test_the_record_of_the_page_is_that_of_argmax_drafts_along_its_texts(pair):
    setting = Setting(*(otm.Processing(temperature=0.7, top_p=0.95),) * 2)
    reader = Reader(*pair_models(pair, setting), setting=setting, sizes=Sizes(), eos=None)
    texts, metas = _lines("rules_texts.jsonl"), _lines("rules_record.jsonl")
    for text, meta in zip(texts, metas, strict=True):
        found = reader.given(text["prompt"], text["tokens"])
        assert found is not None
        counts = accepted_histogram(found, 4, 0)
        told = meta["meta_info"]
        assert told["spec_accept_histogram"] == counts
        assert told["completion_tokens"] == len(text["tokens"])
        assert told["spec_verify_ct"] == sum(counts)


@pytest.mark.long
def test_the_page_shows_what_the_command_prints(command):
    given = ("--texts", DATA / "rules_texts.jsonl", "--record", DATA / "rules_record.jsonl")
    found = command("rules", "--temperature", 0.7, "--top-p", 0.95, *given)
    page = (ROOT / "docs" / "howto" / "rules.md").read_text(encoding="utf-8")
    assert found.out.strip() in page
