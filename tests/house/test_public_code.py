"""The page of audits of public code: its table is that of the committed results, its shims are
short, its revisions pinned.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from benchmarks.public_code import report
from benchmarks.public_code.checkouts import Missing, commands, load
from otm.tabular import section

SHIMS = Path(report.__file__).with_name("subjects.py")
MOST_STATEMENTS = 10


def test_page_shows_the_committed_results() -> None:
    assert section(report.PAGE.read_text(encoding="utf-8"), "results") == report.table(
        report.read()
    ), "run python -m benchmarks.public_code --checkouts FOLDER, or report.write(report.read())"


def test_results_are_of_the_pinned_revisions_and_of_every_subject() -> None:
    pytest.importorskip("torch")
    from benchmarks.public_code.subjects import PINS, SUBJECTS

    rows = {row["subject"]: row for row in report.read()["rows"]}
    assert list(rows) == list(SUBJECTS)
    for key, row in rows.items():
        assert (row["repository"], row["revision"]) == (
            SUBJECTS[key].repository,
            PINS[SUBJECTS[key].repository],
        )
        assert (row["code"], row["meant"]) == (SUBJECTS[key].code, SUBJECTS[key].meant)
        assert re.fullmatch("[0-9a-f]{40}|v[0-9].*", row["revision"])
    assert len({row["repository"] for row in rows.values()}) >= 10
    assert set(PINS) == {subject.repository for subject in SUBJECTS.values()}
    assert commands(PINS).count("checkout") == len(PINS)


def test_what_is_meant_lossless_and_is_not_is_described() -> None:
    text = report.PAGE.read_text(encoding="utf-8").split("<!-- results: end -->")[1]
    for row in report.read()["rows"]:
        if row["verdict"] != "lossless" or row["meant"] != "lossless":
            assert row["repository"] in text or row["subject"].split(",")[0] in text, row["subject"]


def test_shims_are_short() -> None:
    """The statements that define and return the audited callable left out."""
    for function in ast.parse(SHIMS.read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef) and any(
            argument.arg == "root" for argument in function.args.args
        ):
            inside = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
            own = [
                node
                for node in inside[1:]
                if not re.match(r"def (verify|step)\(|return (verify|step)$", ast.unparse(node))
            ]
            assert len(own) <= MOST_STATEMENTS, function.name


def test_files_are_loaded_in_isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper.py").write_text("VALUE = 3\n", encoding="utf-8")
    lines = [
        "from helper import VALUE",
        "from nowhere_at_all import Base, other",
        "import nowhere.at as all",
        "class Child(Base): pass",
        "@other.decorator",
        "def f(): return VALUE",
        "if __name__ == '__main__': raise SystemExit",
    ]
    (tmp_path / "code.py").write_text("\n".join(lines), encoding="utf-8")
    code = load(tmp_path, "code.py", VALUE=4)
    assert code.f() == 4
    assert issubclass(code.Child, Missing)
    assert isinstance(code.all, Missing)
    for name in ("helper", "audited"):
        sys.modules.pop(name, None)
