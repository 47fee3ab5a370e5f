"""The plugin in a run of pytest of its own: cheap to import, a stable seed, reports, and the rate
of false alarms.
"""

import os
import re
import subprocess
import sys
import tomllib

from tests.paths import ROOT

TESTS = """
import numpy as np
import otm

def trusting(p, q, drafts, uniforms):
    return int(drafts[0])

def test_right(assert_lossless):
    assert assert_lossless(otm.Maximal(), laws=[otm.IID(1)]).verdict == "lossless"

def test_wrong(assert_lossless):
    assert_lossless(trusting, laws=[otm.IID(1)])

def test_seed(assert_lossless):
    rows = []
    def batch(p, q, drafts, rng):
        rows.append(int(drafts.sum()))
        return rng.choice(len(q), p=q, size=len(drafts))
    errors = otm.audit.Errors(detect=0.5)
    assert_lossless(otm.audit.BatchCandidate(batch), laws=[otm.IID(1)], errors=errors)
    print("ROWS", rows[:5])
"""


RUNS = """
import sys, pytest
for options in ([], ["-k", "seed"], ["-k", "seed", "--otm-seed", "1"]):
    pytest.main(["-p", "otm.pytest_plugin", "-p", "no:cacheprovider", "-q", "-rP", *options])
    print("END")
"""


def test_the_fixture(tmp_path):
    (tmp_path / "test_kernels.py").write_text(TESTS, encoding="utf-8")
    alone = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = os.environ | alone
    command = [sys.executable, "-c", RUNS]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    first, again, moved, _ = done.stdout.split("\nEND\n")
    assert "1 failed, 2 passed" in first
    assert "## `trusting`: not lossless" in first
    assert "def test_trusting_on_the_smallest_problem_found() -> None:" in first
    # One or two of the audits draw samples, as the time allows.
    assert re.search(
        r"otm: 2 audits found nothing; in such a run a lossless verifier fails with probability ≤ "
        r"[12]e-09",
        first,
    )
    drawn = [
        next(line for line in run.splitlines() if line.startswith("ROWS"))
        for run in (first, again, moved)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_importing_the_plugin_imports_nothing_else():
    code = (
        "import sys, pytest; before = set(sys.modules); import otm.pytest_plugin; "
        "print(sorted(set(sys.modules) - before - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['lazy_loader', 'otm', 'otm.pytest_plugin']"


def test_pytest_finds_it():
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "entry-points"
    ]
    assert entries["pytest11"] == {"otm": "otm.pytest_plugin"}
