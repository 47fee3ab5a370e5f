"""The page of audits of public code: its table is that of the committed results, its shims are
short, its revisions pinned.
"""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from evidence.corpus import BROKEN
from evidence.public_code import report
from evidence.public_code.checkouts import Missing, commands, load
from otm import audit
from otm._display.tabular import section
from otm.sequence import ZerothOrder
from tests.paths import ROOT

SHIMS = [Path(report.__file__).with_name(f"{name}.py") for name in ("subjects", "engines")]
MOST_STATEMENTS = 10


def test_page_shows_the_committed_results():
    assert section(report.PAGE.read_text(encoding="utf-8"), "results") == report.table(
        report.read()
    ), "run python -m evidence.public_code --checkouts FOLDER, or report.write(report.read())"


def test_results_are_of_the_pinned_revisions_and_of_every_subject():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from evidence.public_code.registry import PINS
    from evidence.public_code.shims import SUBJECTS

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


def test_what_is_meant_lossless_and_is_not_is_described():
    text = report.PAGE.read_text(encoding="utf-8").split("<!-- results: end -->")[1]
    for row in report.read()["rows"]:
        if row["verdict"] != "lossless" or row["meant"] != "lossless":
            assert row["repository"] in text or row["subject"].split(",")[0] in text, row["subject"]


def test_every_flag_is_said_to_be_what_its_audit_found():
    """The page of engines' flags against the committed audits and the corpus of broken rules."""
    page = (ROOT / "docs" / "howto" / "flags.md").read_text(encoding="utf-8")
    found = re.findall(r"\| ([^|]+) \| (audit|corpus): ([^|]+) \|", page)
    verdicts = {row["subject"]: row["verdict"] for row in report.read()["rows"]}
    verdicts |= {mutant.name: "not lossless" for mutant in BROKEN}
    assert len(found) >= 12
    for law, _, name in found:
        said = re.match(r"(target's)( in one step;.*)?$|\*\*biased\*\*$", law)
        assert said is not None, law
        assert verdicts[name] == ("lossless" if said[1] else "not lossless"), name


@pytest.mark.parametrize("shims", SHIMS, ids=lambda path: path.stem)
def test_shims_are_short(shims):
    """The statements that define and return the audited callable left out."""
    for function in ast.parse(shims.read_text(encoding="utf-8")).body:
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


def test_files_are_loaded_in_isolation(tmp_path, monkeypatch):
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


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def verify(out, draft, target, token, coins, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.load(token)
    if tl.load(coins) * tl.load(draft + x) < tl.load(target + x):
        tl.store(out, x)
        return
    block = tl.arange(0, BLOCK)
    inside = block < SIZE
    q = tl.load(target + block, mask=inside, other=0.0)
    p = tl.load(draft + block, mask=inside, other=0.0)
    rest = tl.maximum(q - p, 0.0)
    beyond = tl.cumsum(rest, axis=0) > tl.load(coins + 1) * tl.sum(rest)
    tl.store(out, tl.argmax(beyond.to(tl.int32), axis=0))
"""


@pytest.mark.parametrize("fault", ["", "q - p"])
def test_a_kernel_in_triton_is_followed(fault, tmp_path):
    """(1/2, 3/10, 1/5) against (1/5, 3/10, 1/2): all of the residual is token 2; drawn from q in
    its place, 3/10 of the drafts leave 1/5 and 3/10 of theirs elsewhere.
    """
    torch = pytest.importorskip("torch")
    from evidence.public_code.followed_triton import GIVEN

    (tmp_path / "kernel.py").write_text(KERNEL.replace(fault, "q") if fault else KERNEL)
    kernel = load(tmp_path, "kernel.py", **GIVEN).verify

    def verify(draft, target, drafts, rng):
        out, coins = torch.zeros(1, dtype=torch.int64), torch.rand(2, dtype=torch.float64)
        p, q, x = (torch.from_numpy(np.asarray(one)) for one in (draft, target, drafts))
        kernel[(1,)](out, p, q, x, coins, SIZE=3, BLOCK=1024)
        return int(out)

    def step(draft, target, rng):
        p, q = draft.next([]), target.next([])
        return [verify(p, q, rng.choice(3, size=1, p=p), rng)]

    found = audit.step(
        step,
        draft=ZerothOrder([0.5, 0.3, 0.2]),
        target=ZerothOrder([0.2, 0.3, 0.5]),
        length=1,
        rng=np.random.default_rng(0),
    )
    assert found.verdict == ("not lossless" if fault else "lossless")
    assert found.severity == pytest.approx(0.15 if fault else 0.0, abs=1e-9)
