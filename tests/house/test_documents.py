"""What the documents say is true: examples run, commands and options exist, tables are complete,
cited sections are there, headline figures are those that the code computes.
"""

import ast
import contextlib
import importlib
import inspect
import io
import re
import shlex

import numpy as np
import pytest

from figures import front, house
from figures.__main__ import DEFAULT, FURTHER
from figures.work import Work
from otm.commands import COMMANDS
from otm.commands.app import further, load
from tests.contracts.calls import public_names
from tests.paths import ROOT, tracked

SCHEMES = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [
    ROOT / "README.md",
    ROOT / "docs" / "schemes.md",
    *(p for p in DOCUMENTS if p.parent.name in ("start", "guide", "howto")),
]


@pytest.mark.parametrize("document", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_print_the_numbers_beside_them(document, tmp_path, monkeypatch):
    """The examples of a page run one after another, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in re.findall(
        r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL
    ):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, document.name, "exec"), names)
        shown = re.findall(r"\d+\.\d+", printed.getvalue())
        for promised in re.findall(r"print\(.*\)  # (\d+\.\d+)", example):
            # As it is printed, or half a unit in the last place that the comment shows; but no
            # zeros that are not.
            unit = 10.0 ** -len(promised.partition(".")[2])
            near = any(
                abs(float(number) - float(promised)) <= 0.5 * unit + 1e-12 for number in shown
            )
            assert promised in shown or (near and promised[-1] != "0"), f"{promised} is not printed"


def test_the_readme_shows_what_its_example_prints_and_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[1], "README.md", "exec"), {})
    assert printed.getvalue() == found[2]
    assert len(text.splitlines()) <= 120


def fences(document):
    """Return the language and the text of every fenced block."""
    text = document.read_text(encoding="utf-8")
    return re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_code_on_pages_fits_their_width():
    """What a reader copies, Python and commands, needs no scrolling at 1,280 pixels; logs and JSON
    are as engines write them, and the formulas of the theory as their terms want it.
    """
    for document in (one for one in DOCUMENTS if one.name != "theory.md"):
        for language, text in fences(document):
            wide = [line for line in text.splitlines() if len(line) > 84 and line[0] != "{"]
            assert language not in ("", "python") or not wide, (document, wide)


def _command_lines(document):
    """Return the words of every `otm` command in a fenced block without a language."""
    lines = [
        line.partition(" # ")[0]
        for language, block in fences(document)
        for line in block.replace("\\\n", " ").splitlines()
        if not language
    ]
    return [shlex.split(line[4:]) for line in lines if line.startswith("otm ")]


def _commands():
    """Return every command by name."""
    return {one.name: load(one) for one in (*COMMANDS, *further())}


def test_commands_in_documents_exist_with_their_options():
    known = {
        name: {option for each in command.params for option in each.opts}
        for name, command in _commands().items()
    }
    for document in DOCUMENTS:
        for name, *words in _command_lines(document):
            if not name.startswith("--"):
                options = {word for word in words if re.fullmatch(r"--[a-z][a-z-]*", word)}
                missing = options - known[name]
                assert not missing, f"{document.name}: {name} has no {sorted(missing)}"


def test_every_command_is_in_the_table():
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in _commands():
        assert re.search(rf"^\| .*`{name}`", table, re.MULTILINE), (
            f"docs/commands.md has no row for {name}"
        )


def test_every_figure_is_registered_and_in_its_table():
    drawn = {
        path.stem
        for path in (ROOT / "figures").glob("*.py")
        if "\ndef draw(" in path.read_text(encoding="utf-8")
    }
    assert drawn == {*DEFAULT, *FURTHER}
    table = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in table.splitlines() if line.startswith("| "))
    for shown in (*(f"| {name[6:]} |" for name in DEFAULT), *(f"`{name}`" for name in FURTHER)):
        assert shown in rows, f"docs/figures.md has no row for {shown}"


def test_names_in_the_tables_of_calls_exist():
    """Calls named in tables: `name` in the second column of a table headed | what | call |
    reference |.
    """
    tables = re.findall(
        r"^\| what \| call \| reference \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", SCHEMES, re.MULTILINE
    )
    assert len(tables) == 2
    for row in "".join(tables).splitlines():
        for path in re.findall(r"`([A-Za-z_.]+)[`(]", row.split(" | ")[1]):
            space, _, name = f"otm.{path}".rpartition(".")
            assert name in importlib.import_module(space).__all__, f"docs/schemes.md names {path}"


def test_every_document_is_listed():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"]({path.name})" in index, (
            f"docs/README.md does not list {path.name}"
        )


def _theory_titles():
    """Return headings, and the bold titles of paragraphs without their marks: **Trees
    [proved].**
    """
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    bold = re.findall(r"^(?:\d+\. )?\*\*([^*]+?)(?: \[[^\]]*\])?\.?\*\*", text, re.MULTILINE)
    return {
        *re.findall(r"^#+ (.+)$", text, re.MULTILINE),
        *(" ".join(title.split()) for title in bold),
    }


def test_cited_sections_of_the_theory_exist():
    titles = _theory_titles()
    cited = 0
    for path in (p for p in tracked() if p.suffix in (".py", ".md")):
        text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
        for group in re.findall(r'theory\.md[),]* \(?((?:"[^"]+"(?:, and |, | and |))+)', text):
            for title in re.findall(r'"([^"]+)"', group):
                cited += 1
                assert title in titles, (
                    f"{path.relative_to(ROOT)} cites {title!r}, which docs/theory.md does not have"
                )
    assert cited > 50  # the pattern still finds them


def test_theory_lists_its_sections():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    contents = " ".join(text.partition("Contents:")[2].partition("\n## ")[0].split())
    assert re.findall(r"\[([^\]]+)\]\(#", contents) == re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_exports_say_what_they_take_give_and_cost():
    """Every public name; what takes no argument need not say what it takes."""
    for name, thing in public_names().items():
        own = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
        if inspect.isclass(thing):
            assert own, f"{name} has no docstring"
            assert not own.startswith(f"{thing.__name__}("), f"{name} has no docstring of its own"
        elif inspect.isfunction(thing):
            takes = ("Args:",) if inspect.signature(thing).parameters else ()
            for part in (*takes, "Cost", ">>>", r"^(Returns|Yields):"):
                assert re.search(part, own or "", re.MULTILINE), f"{name} has no {part}"


RITUAL = (
    r"^\s*Always\.|Raises:\s+(?:Nothing|None)\b|Cost: (?:none|nothing|negligible)\b|^\s+(\w+): "
    r"(?:the )?\1\.$"
)
"""A part that has nothing to say is left out; an argument is not described by its own name."""

FELT_FOR = r"hasattr\("
"""Capabilities are declared by types and registries, not discovered by `hasattr`."""


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [("otm", RITUAL), ("analysis", RITUAL), ("figures", RITUAL), ("otm", FELT_FOR)],
    ids=["otm", "analysis", "figures", "attributes"],
)
def test_sources_say_nothing_ritual_and_feel_for_no_attribute(folder, pattern):
    for path in (ROOT / folder).rglob("*.py"):
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE | re.IGNORECASE)
        assert found is None, f"{path.relative_to(ROOT)}: {found[0]!r}"


DIALECT = r"\A(?:What\b|(?:Return|Say|Tell|Give)s? (?:what|whether|how|which|that|those|it|them)\b)"
"""A first sentence is understood by itself: no "What …", no "Return whether …"."""

LOST = r"^(?:Cost|Accuracy|References?): .*\n(?:    .*\n)*(?![A-Z][a-z]+:|>>>)\S"
"""A line that goes on with a section is indented, or the page shows it as another paragraph."""


def test_docstrings_name_their_object_and_keep_the_lines_of_their_sections():
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    for path in (path for folder in ("otm", "analysis") for path in (ROOT / folder).rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in (module, *house.statements(module)):
            text = (ast.get_docstring(node) or "") if isinstance(node, kinds) else ""
            pattern = DIALECT if isinstance(node, ast.Module) else f"{DIALECT}|{LOST}"
            found = re.search(pattern, text, re.MULTILINE)
            assert found is None, f"{path.relative_to(ROOT)}: {found[0]!r}"


def test_python_in_documents_parses_and_imports_what_exists():
    """Examples that need an engine or a finished run are not run here; what they take from this
    repository must be there.
    """
    here = ("otm", "analysis", "figures")
    for document in DOCUMENTS:
        for example in (text for language, text in fences(document) if language == "python"):
            for node in ast.walk(ast.parse(example)):
                if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in here:
                    names = {alias.name for alias in node.names}
                    missing = names - set(dir(importlib.import_module(str(node.module))))
                    assert not missing, f"{document.name}: {node.module} has no {missing}"


def test_the_references_are_in_alphabetical_order():
    theory = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- ([\w-]+)", theory.partition("## References")[2], re.MULTILINE)
    assert len(listed) > 50
    assert listed == sorted(listed, key=str.casefold)


PAGES = ("README.md", "docs/index.md")


@pytest.fixture(scope="module")
def points():
    """Percentage points between the optimum and the best scheme in use, by number of drafts."""
    work = Work(samples=0, rng=np.random.default_rng(0), fast=True, tick=lambda: None)
    data = front.compute(work)
    return 100 * (np.array(data["optimum"]) - np.max(list(data["in_use"].values()), axis=0))


@pytest.mark.parametrize("page", PAGES)
def test_the_front_picture_s_words_name_its_largest_gap(page, points):
    text = (ROOT / page).read_text(encoding="utf-8")
    (alternative,) = re.findall(r"!\[([^]]*)\]\([^)]*front\.png\)", text)
    assert f"{points.max():.1f} points" in alternative
