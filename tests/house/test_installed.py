"""What `pip install '.[analysis]'` gives outside the checkout: `otm measure` and its kin, and clear
words without the extra.
"""

import os
import re
import site
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.paths import ROOT

# one wheel, on one worker
pytestmark = pytest.mark.job(name="wheel")

PROMPTS = ROOT / "analysis" / "pair" / "prompts.txt"


class Installed:
    """An environment with the wheel, made to see or not to see the packages that are installed
    already: nothing is downloaded.
    """

    def __init__(self, folder):
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        pip = [sys.executable, "-m", "pip", "--quiet"]
        self._run(
            [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
        )
        (self.wheel,) = folder.glob("*.whl")
        venv.create(folder / "environment", with_pip=False)
        self.bin = folder / "environment" / "bin"
        self._run(
            [
                *pip,
                "--python",
                str(self.bin / "python"),
                "install",
                "--no-deps",
                "--no-compile",
                str(self.wheel),
            ]
        )
        (packages,) = (folder / "environment").glob("lib/python*/site-packages")
        self.others = packages / "others.pth"

    def see(self, *folders):
        """Let the environment find packages in these folders, and in no others, but for numba:
        a fresh folder would be compiled for.
        """
        hidden = "import sys; sys.modules['numba'] = None\n"
        self.others.write_text("".join(f"{folder}\n" for folder in folders) + hidden)

    def python(self, code):
        """Return what code prints in the environment."""
        return self._run([str(self.bin / "python"), "-I", "-c", code]).stdout

    def _run(self, command):
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.folder)

    def otm(self, *words):
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
        }
        command = [str(self.bin / "otm"), *words]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self.folder, env=environment
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_wheel_holds_the_library_and_the_analysis_under_a_name_of_its_own(
    installed,
):
    # with a small pair and a draft for the public model
    assert installed.wheel.stat().st_size < 30e6
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "otm",
        "otm_analysis",
    }
    page = {f"otm_analysis/report/page.{kind}" for kind in ("css", "html", "js")}
    weights = {
        f"otm_analysis/{folder}/model.safetensors"
        for folder in ("pair/draft", "pair/target", "drafts/smollm2")
    }
    assert page | weights | {"otm/py.typed"} <= set(names)


def test_commands_run_outside_the_checkout(installed):
    installed.see(*site.getsitepackages())
    shown = installed.otm("--help")
    assert shown.returncode == 0 and all(
        name in shown.stdout
        for name in ("audit", "measure", "compare", "report", "decode", "latency", "merge")
    )
    assert installed.otm("--version").stdout.startswith("otm 0.")
    small = [
        "--device",
        "cpu",
        "--workers",
        "1",
        "--threads",
        "1",
        "--drafts",
        "1,2",
        "--prompt-tokens",
        "8",
    ]
    measured = installed.otm("measure", "--prompts", str(PROMPTS), "--out", "RUN", *small)
    assert measured.returncode == 0, measured.stderr
    reported = installed.otm("report", "RUN")
    assert reported.returncode == 0, reported.stderr
    assert (installed.folder / "RUN" / "report.html").is_file()
    where = installed.python("import otm_analysis, otm; print(otm_analysis.__file__, otm.__file__)")
    assert str(ROOT) not in where


def link_dependencies(folder):
    """Link what the wheel depends on into a folder, and what that depends on in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting, linked = list(project["dependencies"]), set()
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop())[0]
        if name not in linked:
            linked.add(name)
            found = metadata.distribution(name)
            waiting += [line for line in found.requires or () if ";" not in line]
            for top in {file.parts[0] for file in found.files or ()} - {".."}:
                (folder / top).symlink_to(Path(str(found.locate_file(top))))


def test_without_the_extra_the_library_works_and_one_sentence_says_what_to_install(
    installed, tmp_path
):
    link_dependencies(tmp_path)
    installed.see(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ((example, shown),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", readme, re.DOTALL)
    assert len(example.strip().splitlines()) <= 11
    assert installed.python(example) == shown
    done = installed.otm("measure", "--prompts", "x", "--out", "RUN2")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("otm measure: The command needs ") and " torch, " in line
    assert "pip install 'otm-speculative[analysis]', in a checkout '.[analysis]'" in line
    audited = installed.otm(
        "audit", "otm:Maximal", "--draft-probs", "3/4,1/4", "--target-probs", "1/2,1/2"
    )
    assert audited.returncode == 0


def test_an_editable_installation_finds_the_folder_under_that_name():
    code = "import otm_analysis.errors as e, otm_analysis.commands; print(e.__file__)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "editable")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert Path(done.stdout.strip()) == ROOT / "analysis" / "errors.py"
