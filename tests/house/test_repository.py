"""The repository keeps its own rules: lint, layering, registries, what the documents promise."""

import functools
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

import otm
from otm import sequence
from tests.conftest import collect_ignore
from tests.house.namespaces import NAMESPACES
from tests.paths import ROOT, tracked

OUTSIDE = ("torch", "matplotlib", "analysis", "figures", "cvxpy", "numba")
SLOW = ("scipy.stats", "scipy.optimize")


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (
            "import otm.sequence, otm.audit; "
            f"print([m for m in {OUTSIDE + SLOW} if m in sys.modules])",
            "[]",
        ),
        ("print([m for m in sys.modules if m.split('.')[0] in ('otm', 'numpy')])", "['otm']"),
        (
            "otm.Problem(draft=[1.0], target=[1.0], law=otm.IID(1)); "
            "print(dir(otm) == otm.__all__, 'otm.verifiers' in sys.modules)",
            "True False",
        ),
    ],
    ids=["neither torch nor applications", "nothing before it is asked", "only its room"],
)
def test_what_an_import_loads(code, printed):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, otm; {code}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == printed


def test_the_top_has_no_name_that_its_stub_does_not_list():
    with pytest.raises(AttributeError, match="Problme"):
        otm.Problme  # noqa: B018


REGISTRIES = [
    pytest.param(otm.Verifier, otm.verifiers.VERIFIERS, otm.verifiers, id="verifiers"),
    pytest.param(otm.Law, otm.drafts.LAWS, otm, id="laws"),
    pytest.param(
        sequence.Decoder, sequence.DECODERS + sequence.LOSSY_DECODERS, sequence, id="decoders"
    ),
]


@pytest.mark.parametrize(("base", "registry", "namespace"), REGISTRIES)
def test_every_scheme_is_registered_exported_named_documented_and_cited(base, registry, namespace):
    """Whoever reads the registry or the page of schemes finds every scheme that is ready for use,
    one object per file; the vertex decoders, which are parameters of one, are together.
    """
    found = {
        cls
        for cls in _subclasses(base)
        if cls.__module__.startswith("otm.") and not inspect.isabstract(cls)
    }
    # holds a user's function: no scheme of the library
    found.discard(otm.audit.CallableVerifier)
    assert found == set(registry)
    alone = {cls for cls in found if not issubclass(cls, sequence.VertexDecoder)}
    assert len(registry) == len(found)
    assert len({cls.__module__ for cls in alone}) == len(alone)
    assert len({cls.__module__ for cls in found - alone}) <= 1
    assert len({cls.title for cls in registry}) == len(registry)  # one display name each
    page = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
    for cls in registry:
        assert getattr(namespace, cls.__name__) is cls
        assert cls.__name__ in namespace.__all__
        assert f"| `{cls.__name__}(" in page, f"docs/schemes.md has no row for {cls.__name__}"
        assert "Reference:" in (cls.__doc__ or ""), f"{cls.__name__} cites nothing"
        assert ">>>" in (cls.__doc__ or ""), f"{cls.__name__} has no example"


def _subclasses(cls):
    return {cls}.union(*(_subclasses(sub) for sub in cls.__subclasses__()))


def test_a_namespace_holds_what_it_names_and_hides_no_module():
    """`import otm.x.y` and the attribute otm.x.y are one thing; every name of `__all__` exists."""
    for name in ("otm", *NAMESPACES):
        module = importlib.import_module(name)
        assert len(set(module.__all__)) == len(module.__all__), name
        for exported in module.__all__:
            assert hasattr(module, exported), f"{name} has no {exported}"
        if not hasattr(module, "__path__") and name.rpartition(".")[2] in otm.__all__:
            assert dir(module) == sorted(module.__all__), name  # what a prompt completes
        for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if found.name != "__main__":
                inner = importlib.import_module(f"{name}.{found.name}")
                assert getattr(module, found.name) is inner, f"{name}.{found.name} is shadowed"


def test_one_name_means_one_thing():
    """A name that two namespaces export is one object.

    But for the verbs of `otm.partial`, which are those of `otm` on intervals, the audits that are
    called as their subject, and the pictures that are called as what they show.
    """
    meant = {}
    twice = {
        exported
        for module in map(importlib.import_module, ("otm", *NAMESPACES))
        for exported in module.__all__
        if meant.setdefault(exported, getattr(module, exported)) is not getattr(module, exported)
    }
    on_intervals = {"acceptance", "optimal_acceptance", "gamma_star", "divergences"}
    audited, drawn = {"sequence", "step", "generate"}, {"coupling", "overlap"}
    assert twice == on_intervals | audited | drawn


def _classes_of_the_library():
    modules = [
        importlib.import_module(found.name) for found in pkgutil.walk_packages(otm.__path__, "otm.")
    ]
    return [
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]


def test_classes_are_abstract_or_final():
    """No public method is implemented twice along one line of inheritance; abstract ones are
    implemented once.
    """
    classes = _classes_of_the_library()
    assert len(classes) > 100
    for cls in classes:
        own = {
            name
            for name, value in vars(cls).items()
            if isinstance(value, METHODS) and not name.startswith("__")
        }
        for base in (one for one in cls.__mro__[1:] if one.__module__.startswith("otm.")):
            implemented = {
                name
                for name in own & vars(base).keys()
                if not getattr(vars(base)[name], "__isabstractmethod__", False)
            }
            assert not implemented, f"{cls.__name__} overrides {implemented} of {base.__name__}"


METHODS = types.FunctionType | property | classmethod | staticmethod | functools.cached_property


def test_tests_mirror_the_tree():
    """A module's tests are found by its name (`_x`, `__main__` without the underscores); what
    crosses modules stands apart.
    """
    tests = ROOT / "tests"
    homes = {name: ROOT / name for name in ("analysis", "benchmarks", "evidence", "figures")}
    for path in sorted(tests.rglob("test_*.py")):
        room, *inside = path.relative_to(tests).parent.parts or ("",)
        if room in ("contracts", "house"):
            continue
        home = homes.get(room, ROOT / "otm" / room)
        folder = (home if home.is_dir() else home.with_name(f"_{room}")).joinpath(*inside)
        assert folder.is_dir(), f"{path.relative_to(ROOT)}: there is no {folder.relative_to(ROOT)}"
        # beside the library stands its plugin for pytest
        modules = [
            *folder.glob("*.py"),
            *(() if room else ROOT.glob("*.py")),
        ]
        known = {module.stem.strip("_") for module in modules}
        assert room == "analysis" or path.stem.removeprefix("test_") in known, (
            f"{path.relative_to(ROOT)} tests no module"
        )


def test_every_file_of_tests_is_imported_whole():
    """pytest takes a file whose import failed while it looked for doctests for an empty one."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if str(path.relative_to(ROOT / "tests")) not in collect_ignore:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            names = vars(importlib.import_module(name))
            assert any(thing.lower().startswith("test") for thing in names), name


READ = {
    "",
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".cfg",
    ".yml",
    ".yaml",
    ".cff",
    ".json",
    ".ipynb",
    ".html",
    ".js",
    ".css",
    ".bib",
}
"""Suffixes of what is text."""


def test_repository_is_small_and_stands_alone():
    """No machine paths and no references to what is outside the repository."""
    assert sum(path.stat().st_size for path in tracked()) < 40e6
    banned = r"/work/|\.\./shared|/root/|files\.pythonhosted|\bissue #?\d|localhost:\d"
    excused = {"held_out.txt", "LICENSE", Path(__file__).name}
    for path in tracked():
        if path.suffix in READ and path.name not in excused:
            found = re.search(banned, path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{path.relative_to(ROOT)}: {found.group(0)!r}"


def test_documents_link_to_files_that_exist():
    for document in (p for p in tracked() if p.suffix == ".md"):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
            assert (document.parent / target).exists(), (
                f"{document.relative_to(ROOT)} links to {target}"
            )


def test_what_a_person_must_decide_is_listed_in_one_place():
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".md", ".toml", ".cff", ".py", ".yml") and "tests" not in path.parts:
            said = "TODO" in path.read_text(encoding="utf-8")
            assert not said or f"`{name}`" in listed or name == "CONTRIBUTING.md", name


@pytest.mark.parametrize("script", [".ci/run", ".ci/wheel"])
def test_scripts_of_the_pipeline_can_be_read(script):
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)


def test_every_direct_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = {re.split(r"[<>=~!\[; ]", item)[0].lower() for group in groups for item in group}
    assert wanted <= pinned, f"not pinned: {sorted(wanted - pinned)}"


def test_benchmark_results_name_their_machine():
    results = (ROOT / "benchmarks" / "results").glob("*.json")
    audited = (ROOT / "evidence" / name for name in ("public_code.json", "packages/results.json"))
    for path in (*results, *audited):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["machine"]["processor"]
        assert record["rows"]
