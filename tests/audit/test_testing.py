"""The battery as an assertion, and its checks as tests of one's own."""

import os
import subprocess
import sys

import pytest

import otm
from evidence.corpus.one_token import accept_everything
from otm import audit
from tests.audit.callables import maximal
from tests.paths import ROOT


def test_what_fails_brings_the_report_and_a_test_to_copy():
    with pytest.raises(AssertionError) as failed:
        audit.assert_lossless(accept_everything, laws=[otm.IID(1)], only="ties")
    text = str(failed.value)
    assert text.startswith("## `accept_everything`: not lossless\nTaken for ")
    assert text.splitlines()[2].startswith("Tested: ")
    code = "```python\nimport otm\nfrom evidence.corpus.one_token import accept_everything\n"
    assert code in text


def test_nothing_said_is_no_pass():
    with pytest.raises(AssertionError, match="no verdict"):
        audit.assert_lossless(maximal, only="ties", seconds=0, shrink_for=0)


STRANGER = """
import numpy as np
import otm


def no_residual(p, q, drafts, uniforms):
    x = int(drafts[0])
    if uniforms[0] * p[x] < q[x]:
        return x
    return int(np.searchsorted(np.cumsum(q), uniforms[1], side="right"))


LAWS = [otm.IID(1)]


@otm.audit.parametrize_with_checks(
    no_residual,
    laws=LAWS,
    only=["zeros", "equal", "disjoint", "two tokens"],
    skip={"equal": "as the target"},
    expected_failures={"two tokens": "samples the target after a rejection"},
)
def test_kernel(check):
    check()


@otm.audit.parametrize_with_checks([otm.Maximal(), otm.KSeq()], laws=LAWS, only="ties")
def test_library(check):
    assert check().verdict == "lossless"


@otm.audit.parametrize_with_checks(
    otm.Maximal(), laws=LAWS, only="ties", expected_failures={"ties": "none in truth"}
)
def test_what_passes_though_it_should_not(check):
    check()
"""


def test_a_stranger_has_each_check_as_a_test_by_name(tmp_path):
    (tmp_path / "test_stranger.py").write_text(STRANGER, encoding="utf-8")
    options = ["-p", "no:cacheprovider", "-q", "-rA", "--tb=short"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_stranger.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    for line in (
        "FAILED test_stranger.py::test_kernel[no_residual-zeros, IID(k=1)]",
        "## `no_residual`: not lossless",
        "PASSED test_stranger.py::test_kernel[no_residual-disjoint, IID(k=1)]",
        "XFAIL test_stranger.py::test_kernel[no_residual-two tokens, IID(k=1)]",
        "samples the target after a rejection",
        "SKIPPED [3] test_stranger.py",
        "as the target",
        "PASSED test_stranger.py::test_library[KSeq(gamma=None)-ties, IID(k=1)]",
        "FAILED test_stranger.py::test_what_passes_though_it_should_not[Maximal()-ties",
        "2 failed, 3 passed, 3 skipped, 1 xfailed",
    ):
        assert line in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"skip": ["no such"]}, "No check is named 'no such'"),
        ({"expected_failures": {"no such": "why"}}, "No check is named 'no such'"),
        ({"only": "no such"}, "no check of kind or name no such"),
    ],
)
def test_names_of_no_check_are_refused(options, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        audit.parametrize_with_checks(maximal, laws=[otm.IID(1)], **options)


def test_a_check_without_time_fails():
    mark = audit.parametrize_with_checks(maximal, laws=[otm.IID(1)], only="ties", seconds=0.0)

    def test(check): ...

    (case,) = mark(test).pytestmark[0].args[1]
    with pytest.raises(TimeoutError, match="ties, IID\\(k=1\\) takes more than 0 seconds"):
        case.values[0]()


def test_samples_do_not_depend_on_the_order_of_the_checks():
    """Each check has a generator of its own, made from the seed and its name."""

    candidate = audit.BatchCandidate(lambda p, q, x, rng: rng.choice(len(q), p=q, size=len(x)))
    scope = audit.Scope(laws=(otm.IID(1),), errors=audit.Errors(detect=0.5))
    checks = {check.name: check for check in candidate.checks(scope)}
    names = ["zeros, IID(k=1), samples", "ties, IID(k=1), samples"]
    forth = [checks[name].run().row() for name in names]
    back = [checks[name].run().row() for name in reversed(names)]
    assert forth == back[::-1]
