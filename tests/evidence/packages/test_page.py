"""The page of audits of packages: its table is that of the committed results, its shims are short,
and what is meant to be lossless and is not has a report.
"""

import re

import pytest

pytest.importorskip("torch")

from evidence.packages import page
from evidence.packages.registry import PACKAGES, SUBJECTS
from evidence.public_code import report
from otm._display.tabular import section

MOST_STATEMENTS = 10
RECORD = report.read(page.RESULTS)
ROWS = {row["subject"]: row for row in RECORD["rows"]}
TEXT = page.PAGE.read_text(encoding="utf-8")


def test_page_shows_the_committed_results():
    shown = page.table(RECORD)
    assert section(TEXT, "results") == shown, "run python -m evidence.packages --page"


def test_results_are_of_every_subject_and_of_the_pinned_versions():
    assert list(ROWS) == list(SUBJECTS)
    assert {subject.repository for subject in SUBJECTS.values()} == set(PACKAGES)
    for name, needed in PACKAGES.items():
        assert needed[0].startswith(f"{name}==")
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", item) for item in needed)
    for key, subject in SUBJECTS.items():
        row = ROWS[key]
        assert (row["repository"], row["revision"]) == (subject.repository, subject.revision)
        assert (row["code"], row["meant"]) == (subject.code, subject.meant)
        assert 0 <= row["seconds"] < 30
        assert "/" not in row["raised"]


def test_every_row_says_all_that_a_reader_asks():
    for key, subject in SUBJECTS.items():
        said = dict(zip(page.HEAD, page.cells(ROWS[key], subject), strict=True))
        assert said.pop("smallest counterexample") or not ROWS[key]["verdict"].startswith("not")
        assert all(said.values())
        assert 0 < subject.statements <= MOST_STATEMENTS


def test_what_is_meant_lossless_and_is_not_has_a_report():
    _, faults, known, _ = re.split(r"\n## ", TEXT)
    for row in ROWS.values():
        if row["verdict"].startswith("not"):
            stated = row["meant"] == "lossy" or row["verdict"] == "not exact"
            assert row["repository"] in (known if stated else faults)


@pytest.mark.parametrize(
    "key, found",
    [
        # two drafts 1 of a half each, kept without a look at the first; then the target's 3/4
        (
            "sequential-speculative-decoding, capped",
            "(1, 1, 1) comes out with 3/16, should with 27/64",
        ),
        # draft 1 is kept with 1/2, and token 0 drawn from q with 1/2 of the rest; then 1/2 again
        ("srep-moe", "(0, 0) comes out with 1/8, should with 1/4"),
        # the greedy drafts 0, 0 of the uniform draft have q/p = 1; then the target's 1/2
        ("naive-speculate, greedy drafts", "(0, 0, 0) comes out with 0.5, should with 1/8"),
    ],
)
def test_counterexamples_are_those_of_a_hand_computation(key, found):
    row = next(ROWS[name] for name in ROWS if name.startswith(key))
    assert found in row["counterexample"]
