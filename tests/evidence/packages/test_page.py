"""The page of audits of packages: its table is that of the committed results, its shims are short,
and what was found is what a reader would compute by hand.
"""

import re

import pytest

pytest.importorskip("torch")

from evidence.packages import page, subjects  # noqa: F401  # subjects enter themselves
from evidence.packages.registry import PACKAGES, SUBJECTS
from evidence.public_code import report
from otm._display.tabular import section
from tests.paths import ROOT

MOST_STATEMENTS = 10
ROWS = {row["subject"]: row for row in report.read(page.RESULTS)["rows"]}
TEXT = page.PAGE.read_text(encoding="utf-8")


def test_page_shows_the_committed_results():
    shown = page.table(report.read(page.RESULTS), SUBJECTS)
    assert section(TEXT, "results") == shown, "run python -m evidence.packages --page"


def test_results_are_of_every_subject_and_of_the_pinned_versions():
    assert list(ROWS) == list(SUBJECTS)
    assert {subject.repository for subject in SUBJECTS.values()} == set(PACKAGES)
    for name, needed in PACKAGES.items():
        assert needed[0].startswith(f"{name}=="), name
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", item) for item in needed), name
    for key, subject in SUBJECTS.items():
        row = ROWS[key]
        assert (row["repository"], row["revision"]) == (subject.repository, subject.revision)
        assert (row["code"], row["meant"]) == (subject.code, subject.meant)
        assert row["instances"] > 0
        assert 0 <= row["seconds"] < 30
        assert "/" not in row["raised"]


def test_every_row_says_all_that_a_reader_asks():
    for subject in SUBJECTS.values():
        cells = page.cells(ROWS[subject.key], subject)
        assert len(cells) == len(page.HEAD)
        said = dict(zip(page.HEAD, cells, strict=True))
        assert all(said[name] for name in page.HEAD if name != "smallest counterexample"), said
        if ROWS[subject.key]["verdict"].startswith("not"):
            assert said["smallest counterexample"]


def test_what_is_meant_lossless_and_is_not_has_a_report():
    faults = section_of("Faults that the authors do not state")
    known = section_of("Known, documented, or meant")
    for row in ROWS.values():
        if row["verdict"].startswith("not"):
            stated = row["meant"] == "lossy" or row["verdict"] == "not exact"
            assert row["repository"] in (known if stated else faults), row["subject"]
    for name in re.findall(r"^\*\*([a-z-]+) [0-9.]+\*\*, `", faults, re.MULTILINE):
        assert name in PACKAGES


def section_of(title):
    """The text below a heading, up to the next one."""
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_scripts_of_the_page_exist():
    scripts = re.findall(r"\]\(\.\./(findings/\w+\.sh)\)", TEXT)
    assert len(scripts) == len(set(scripts)) == 6
    assert all((ROOT / script).stat().st_mode & 0o100 for script in scripts)


def test_shims_are_short_and_counted():
    assert all(subject.statements <= MOST_STATEMENTS for subject in SUBJECTS.values())
    # its own five and the four of the function that makes its sampler
    assert SUBJECTS["economize, RejectionVerifier.verify"].statements == 9


@pytest.mark.parametrize(
    "key, text, probability, due",
    [
        # two drafts 1 of a half each, kept without a look at the first; then the target's 3/4
        ("sequential-speculative-decoding, capped", "(1, 1, 1)", "3/16", "27/64"),
        # draft 1 is kept with 1/2, and token 0 drawn from q with 1/2 of the rest; then 1/2 again
        ("srep-moe", "(0, 0)", "1/8", "1/4"),
        # the uniform draft's greedy text 0, 0 is kept with q/p = 1; then the target's 1/2
        ("naive-speculate, greedy drafts", "(0, 0, 0)", "0.5", "1/8"),
    ],
)
def test_counterexamples_are_those_of_a_hand_computation(key, text, probability, due):
    row = next(ROWS[name] for name in ROWS if name.startswith(key))
    assert f"{text} comes out with {probability}, should with {due}" in row["counterexample"]
