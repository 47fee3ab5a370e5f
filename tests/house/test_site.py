"""The site and the package: examples and notebooks run, every page is reached, what is published is
one version and true.
"""

import ast
import importlib
import json
import re
import sys
import tomllib

import numpy as np
import pytest

import otm
from otm import sequence
from tests.paths import ROOT, says, tracked

DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("plot_*.py"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.job(name="site")

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _without_windows():
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def test_the_gallery_is_large_and_every_example_has_a_title():
    assert len(EXAMPLES) >= 14
    for path in EXAMPLES:
        title, line, *_ = (
            ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        ).splitlines()
        assert title, path.name
        assert line == "=" * len(title), path.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path):
    """Without pictures being written; their numbers are those of other tests."""
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_keep_no_outputs(path):
    names = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec(compile("".join(cell["source"]), path.name, "exec"), names)


def test_there_is_a_notebook_for_every_door():
    pages = {path.stem for path in (DOCS / "start").glob("*.md")}
    assert [path.stem for path in NOTEBOOKS] == sorted(pages - {"install", "faq"})


def _pages():
    listed = {
        path for path in tracked() if DOCS in path.parents and path.suffix in (".md", ".ipynb")
    }
    return {
        str(path.relative_to(DOCS).with_suffix(""))
        for path in listed
        if path.relative_to(DOCS).parts[0] not in ("paper", "examples")
        and path != DOCS / "README.md"
    }


def _in_toctrees(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    folder = page.rpartition("/")[0]
    entries = [
        line
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        for line in tree.splitlines()
    ]
    return {
        f"{folder}/{entry}".strip("/") for entry in entries if entry and not entry.startswith(":")
    }


def test_every_page_is_reached_from_the_first():
    reached = {"index"} | _in_toctrees("index") | _in_toctrees("notebooks/index")
    assert reached - _pages() == {"gallery/index", "api/index"}  # written by the build
    assert _pages() <= reached


@pytest.fixture
def extension(monkeypatch):
    """Import a module of the site's own extensions by name."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))

    def load(name):
        return importlib.import_module(name)

    yield load
    for name in ("docstrings", "reference", "tables", "which", "plain", "repository"):
        sys.modules.pop(name, None)


def test_the_table_of_verifiers_is_whole(extension):
    rows = extension("tables").verifier_rows()
    assert len(rows) == len(otm.verifiers.VERIFIERS)
    for name, laws, lossless, _, reference in rows:
        assert lossless in ("yes", "no")
        assert all((name, laws, reference)), name


def test_pages_have_their_tables_and_the_map_as_text_too(extension):
    """Where nobody builds the site, and as up to date as there."""
    plain = extension("plain")
    marked = [
        page for page in DOCS.rglob("*.md") if ": begin -->\n\n" in page.read_text(encoding="utf-8")
    ]
    assert {"which.md", "table.md", "comparison.md", "conventions.md"} <= {
        page.name for page in marked
    }
    for page in marked:
        text = page.read_text(encoding="utf-8")
        assert plain.written(text) == text, (
            f"{page.name} is out of date: python docs/_extensions/plain.py"
        )
        assert not re.search(r"^```\{(map|registry|timings)", text, re.MULTILINE), (
            "only the site draws this: between marks instead"
        )


def test_the_map_names_what_exists_and_every_lossless_family(extension):
    which = extension("which")
    exact, lossy, several = (
        {name for names in cases.values() for name in names} for cases in which.MAP.values()
    )
    known = {
        cls.__name__: cls
        for cls in (*otm.verifiers.VERIFIERS, *sequence.DECODERS, *sequence.LOSSY_DECODERS)
    }
    assert exact | lossy | several <= set(known)
    assert all(known[name].lossless for name in exact)
    assert not any(known[name].lossless for name in lossy)


def test_docstrings_become_text_without_loose_marks(extension):
    convert = extension("docstrings").convert
    lines = [
        "Return α* of `otm.IID`, |S| ≤ k.",
        "",
        "    Σ min(p, q)*",
        "",
        "Cost: O(V).",
        "",
        ">>> 2 * 2",
        "4",
    ]
    assert convert(lines) == [
        "Return α\\* of :py:obj:`otm.IID <otm.IID>`, \\|S\\| ≤ k.",
        "",
        "::",
        "",
        "    Σ min(p, q)*",
        "",
        "**Cost:** O(V).",
        "",
        ">>> 2 * 2",
        "4",
    ]


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(
        r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cited is not None
    assert project["version"] == otm.__version__ == cited[1]
    assert f"## {otm.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_oldest_versions_are_those_that_are_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = {
        line.partition(",")[0].replace(">=", "==")  # without what is left out
        for line in [*project["dependencies"], *project["optional-dependencies"]["fast"]]
    }
    lines = (ROOT / "minimum.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} == promised


def _front():
    record = json.loads((ROOT / "figures" / "data" / "figure5.json").read_text(encoding="utf-8"))
    draft, target = (otm.normalise(np.array(record[side])) for side in ("draft", "target"))
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(2))
    kseq, recursive = (
        float(otm.acceptance(v, problem)) for v in (otm.KSeq(), otm.RecursiveRejection())
    )
    return float(otm.optimal_acceptance(problem)), kseq, recursive


def test_the_first_picture_s_gain_is_true():
    best, kseq, _ = _front()
    for page in ("README.md", "docs/index.md"):
        says(page, f"up to {100 * (best - kseq):.1f} points above K-SEQ")


def _milliseconds(results, task, alternative):
    text = (ROOT / "benchmarks" / "results" / f"{results}.md").read_text(encoding="utf-8")
    (row,) = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if task in line and alternative in line
    ]
    numbers = [float(cell) for cell in row if re.fullmatch(r"[\d.]+(?:e[+-]\d+)?", cell)]
    return numbers[0], numbers[1]


def test_the_paper_says_what_is_measured():
    text, references = (
        (DOCS / "paper" / name).read_text(encoding="utf-8") for name in ("paper.md", "paper.bib")
    )
    assert 750 <= len(text.split()) <= 1750
    cited = set(re.findall(r"@(\w+)", text))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", references, re.MULTILINE))
    best, kseq, recursive = (f"{100 * value:.1f}" for value in _front())
    small, pot = _milliseconds("core", "V = 10, k = 3 | optimum, method=sequences", "ot.emd2")
    assert 0.8 <= pot <= 1.5 and 1.15 <= small / pot <= 1.35
    prepared, pot = _milliseconds("optimal", "prepare(Optimal()), V = 10, k = 5", "ot.emd2")
    assert 5500 <= pot <= 6500 and 0.8 <= prepared <= 1.5
    large, sort = _milliseconds("core", "optimum, V = 128,256, k = 8 ", "argsort")
    assert abs(large / sort - 0.125) < 0.02
    says(
        "docs/paper/paper.md",
        f"accepts {best} %, K-SEQ [@sun2023] {kseq} % and recursive rejection [@miao2024] "
        f"{recursive} %",
        "takes about a millisecond, and this library's answer",
        "certified from both sides, a quarter more",
        "take POT six seconds, where preparing the optimal verifier takes about a millisecond",
        f"about {large:.1f} milliseconds, an eighth of the time of sorting",
    )
