"""The repository keeps its own rules: lint, layering, registries, what the documents promise."""

import functools
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import types
import venv
from pathlib import Path

import pytest

import otm
from otm import sequence

ROOT = Path(__file__).resolve().parents[2]


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=["ruff", "format", "mypy"]
)
def test_lint(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_library_imports_neither_torch_nor_applications_nor_what_is_slow_to_load() -> None:
    outside = ("torch", "matplotlib", "analysis", "figures", "cvxpy", "numba", "scipy.stats", "scipy.optimize")
    code = f"import sys, otm, otm.sequence, otm.audit; print([m for m in {outside} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("folder", "registry"), [("verifiers", otm.verifiers.VERIFIERS), ("drafts", otm.drafts.LAWS)])
def test_every_module_is_registered_exported_documented_and_cited(folder: str, registry: tuple[type, ...]) -> None:
    modules = {
        p.stem for p in (ROOT / "otm" / folder).glob("*.py") if p.stem not in ("__init__", "base", "rules") and p.stem[0] != "_"
    }
    assert {cls.__module__.rsplit(".", 1)[1] for cls in registry} == modules
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for cls in registry:
        assert getattr(otm, cls.__name__) is cls
        assert cls.__name__ in otm.__all__
        assert f"`{cls.__name__}(" in readme, f"{cls.__name__} is not in the README's table"
        assert "Reference:" in (cls.__doc__ or ""), f"{cls.__name__} cites nothing"


def test_every_decoder_is_registered_exported_documented_and_cited() -> None:
    """A module of `otm.sequence` that holds a decoder ready for use must be found by whoever reads the registry or the README."""
    found = {cls for cls in _subclasses(sequence.Decoder) if cls.__module__.startswith("otm.") and not inspect.isabstract(cls)}
    assert found == set(sequence.DECODERS)
    assert len(sequence.DECODERS) == len(found)
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| decoder | drafts |")[2].partition("\n\n")[0]
    for cls in sequence.DECODERS:
        assert getattr(sequence, cls.__name__) is cls
        assert cls.__name__ in sequence.__all__
        assert f"| `{cls.__name__}(" in table, f"{cls.__name__} is not in the README's table of decoders"
        assert "Reference:" in (cls.__doc__ or ""), f"{cls.__name__} cites nothing"
        assert ">>>" in (cls.__doc__ or ""), f"{cls.__name__} has no example"


def _subclasses(cls: type) -> set[type]:
    return {cls}.union(*(_subclasses(sub) for sub in cls.__subclasses__()))


def _classes_of_the_library() -> list[type]:
    modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages(otm.__path__, "otm.")]
    return [
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]


def test_classes_are_abstract_or_final() -> None:
    """No public method is implemented twice along one line of inheritance; abstract ones are implemented once."""
    classes = _classes_of_the_library()
    assert len(classes) > 100
    for cls in classes:
        own = {name for name, value in vars(cls).items() if _is_method(value) and not name.startswith("__")}
        for base in cls.__mro__[1:]:
            if base.__module__.startswith("otm."):
                implemented = {name for name in own & vars(base).keys() if not _is_abstract(vars(base)[name])}
                assert not implemented, f"{cls.__name__} overrides {sorted(implemented)} of {base.__name__}"


def _is_method(value: object) -> bool:
    return isinstance(value, types.FunctionType | property | classmethod | staticmethod | functools.cached_property)


def _is_abstract(value: object) -> bool:
    return bool(getattr(value, "__isabstractmethod__", False))


def test_no_attribute_is_felt_for() -> None:
    """Capabilities are declared by types and registries, not discovered by `hasattr`."""
    for path in sorted((ROOT / "otm").rglob("*.py")):
        assert "hasattr(" not in path.read_text(encoding="utf-8"), path.relative_to(ROOT)


def test_repository_stands_alone() -> None:
    """No machine paths and no references to what is outside the repository."""
    patterns = [r"/work/", r"\.\./shared", r"/root/", r"files\.pythonhosted", r"\bissue #?\d", r"localhost:\d"]
    banned = re.compile("|".join(patterns))
    for path in _tracked():
        if path.suffix in (".py", ".md", ".toml", ".txt", ".cfg", ".yml", "") and path != Path(__file__).resolve():
            if path.name in ("held_out.txt", "LICENSE"):
                continue
            found = banned.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{path.relative_to(ROOT)}: {found.group(0)!r}"


def test_repository_is_small() -> None:
    assert sum(path.stat().st_size for path in _tracked()) < 40e6


def test_documents_link_to_files_that_exist() -> None:
    for document in (p for p in _tracked() if p.suffix == ".md"):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} links to {target}"


def test_every_direct_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = list(project["project"]["dependencies"])
    for extra in project["project"].get("optional-dependencies", {}).values():
        named += extra
    for group in project["dependency-groups"].values():
        named += [item for item in group if isinstance(item, str)]
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = {re.split(r"[<>=~!\[; ]", item)[0].lower() for item in named}
    assert wanted <= pinned, f"not pinned: {sorted(wanted - pinned)}"


def readme_example() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_readme_example_is_short_and_runs_from_the_wheel_without_torch(tmp_path: Path) -> None:
    """Build the wheel, install it into an empty environment, run the example there."""
    example = readme_example()
    assert len(example.strip().splitlines()) <= 11
    built = tmp_path / "dist"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(built),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    import zipfile

    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"otm", "otm_analysis"}
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, cwd=tmp_path)
    run = subprocess.run([str(python), "-c", example], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert "KSeq" in run.stdout
    absent = subprocess.run(
        [str(python), "-c", "import importlib.util as u; print([u.find_spec(m) for m in ('torch', 'matplotlib', 'analysis')])"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert absent.stdout.strip() == "[None, None, None]"


def test_benchmark_results_name_their_machine() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record["machine"]["processor"]
        assert record["rows"]
