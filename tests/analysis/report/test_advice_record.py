"""Records of `advise` in a report: its answer at its own setting, its costs at every other, and
what is refused.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.advise import end_to_end as written_by
from analysis.advise.costs import StepModel
from analysis.advise.families import FAMILIES
from analysis.errors import AnalysisError
from analysis.report import advice_record
from analysis.report.advice_record import read_advice
from analysis.report.aggregate import aggregate
from analysis.report.answer import answer_run
from analysis.report.reading import open_run
from analysis.report.write import write_report
from tests.analysis.report.records import advice, written
from tests.analysis.report.synthetic_run import write_run


def test_the_record_is_the_one_that_advise_writes() -> None:
    assert (advice_record.FORMAT, advice_record.VERSION) == (written_by.FORMAT, written_by.VERSION)
    assert set(advice_record._KINDS.values()) <= {family.name for family in FAMILIES}
    assert {"draft", "target", "rest"} == {field.name for field in dataclasses.fields(StepModel)}


def test_the_answer_stands_at_its_own_setting_and_its_costs_at_the_others(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", prompts=5, positions=6, temperatures=(0.7, 1.0), top_ps=(0.9, 1.0)
    )
    path = written(tmp_path / "advice.json", advice())
    run = open_run(folder)
    found = aggregate(run)
    told = read_advice(path)
    answer = answer_run(run, found, None, told)
    assert found.strata.settings[answer.first] == (0.7, 0.9) and answer.advised == answer.first
    own = answer.cards[answer.first]
    assert (
        own.title == "Speculate"
        and own.what == "tree of 4 nodes, depth 2"
        and "5 prompts, 77 plans" in own.basis
    )
    assert [box.value for box in own.boxes] == ["1.30×", "1.10×", "2.25"]
    assert [box.note for box in own.boxes] == ["95 %: 1.20 to 1.40", "", "4 drafted"]
    others = [card for setting, card in enumerate(answer.cards) if setting != answer.first]
    assert len(others) == 3 and not any(
        "1.30" in card.boxes[0].value or card.what == own.what for card in others
    )
    assert all(
        card.basis.startswith(
            "otm advise on a board. In steps of plain decoding, a draft pass takes 0.20"
        )
        for card in others
    )
    assert told.costs.most_nodes == 8 == answer.budget
    assert told.costs.rest["ranks"] == pytest.approx((0.0, 0.2, 0.0))
    assert told.costs.drafting(2) == pytest.approx(0.25) and told.costs.checking(
        4
    ) == pytest.approx(1.0)
    report = write_report(folder, advice=path)
    assert report.findings[0] == "Speculate: tree of 4 nodes, depth 2"
    assert "1.30× the speed of plain decoding" in report.markdown.read_text(encoding="utf-8")
    assert "of 4 measured the one that the advice is for" in report.findings[-1]


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"top_k": 20}, {"order": "vllm"}, {"draft": 0.9}]
)
def test_advice_at_another_setting_gives_costs_only_and_says_so(
    change: dict[str, Any], tmp_path: Path
) -> None:
    run = open_run(
        write_run(
            tmp_path / "run",
            prompts=3,
            positions=4,
            ks=(1, 2),
            temperatures=(0.7, 1.0),
            top_ps=(0.9, 1.0),
        )
    )
    record = advice()
    sides = record["manifest"]["processing"]
    sides["target"] = sides["target"] | {
        key: value for key, value in change.items() if key != "draft"
    }
    sides["draft"] = sides["draft"] | ({"temperature": 0.9} if "draft" in change else change)
    answer = answer_run(
        run, aggregate(run), None, read_advice(written(tmp_path / "a.json", record))
    )
    assert answer.advised is None and answer.costs is not None
    assert "only its costs are used" in answer.warnings[0]


def test_costs_of_other_weights_are_pointed_at(tmp_path: Path) -> None:
    run = open_run(
        write_run(tmp_path / "run", prompts=3, positions=4, ks=(1,), temperatures=(1.0,))
    )
    told, found = read_advice(written(tmp_path / "a.json", advice())), aggregate(run)
    provenance = run.section("provenance")
    for weights, said in (
        ({"draft": "draft", "target": "target"}, 1),
        ({"draft": "draft", "target": "elsewhere"}, 2),
    ):
        same = dataclasses.replace(
            run, manifest=run.manifest | {"provenance": provenance | {"weights": weights}}
        )
        assert len(answer_run(same, found, None, told).warnings) == said


@pytest.mark.parametrize(
    ("verdict", "plain", "title"),
    [
        ("do not speculate", 0.9, "Do not speculate"),
        ("undecided", 1.02, "Speculate, probably"),
        ("undecided", 0.98, "Do not speculate, probably"),
    ],
)
def test_do_not_speculate_stands_where_the_recommendation_stands(
    verdict: str, plain: float, title: str, tmp_path: Path
) -> None:
    record = advice(verdict=verdict)
    record["best"]["over_plain"]["value"] = plain
    told = read_advice(written(tmp_path / "a.json", record)).card
    assert told.title == title and told.boxes[0].value == f"{plain:.2f}×"
    assert (told.what == "plain decoding") == title.startswith("Do not")


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"format": "otm.advice", "version": 2},
        advice(best=None),
        advice(step_model={}),
        advice(rows=[{}]),
        advice(manifest=[]),
        advice(plain={"seconds_per_token": 0}),
    ],
    ids=["list", "version", "best", "costs", "rows", "manifest", "plain"],
)
def test_what_is_no_record_of_advise_is_refused_in_one_sentence(
    record: Any, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisError) as error:
        read_advice(written(tmp_path / "advice.json", record))
    assert "\n" not in str(error.value)
