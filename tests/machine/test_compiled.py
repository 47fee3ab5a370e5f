"""Compiled code is loaded once array calls have worked for as long as it takes."""

import math
import signal
import subprocess
import sys
import time
import types

import pytest

import otm
from otm._machine import compiled as module
from otm.audit import budget
from otm.table.table import VALUE_SECONDS
from tests.paths import says


def test_little_is_done_by_array_calls(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(module, "_worked", 0.0)
    asked = [module.compiled("otm.overlap.compiled", seconds=0.75) for _ in range(4)]
    assert asked[:2] == [None, None] and asked[2] is asked[3] is not None


def test_a_table_counts_its_work_once(monkeypatch):
    monkeypatch.setattr(module, "_worked", 0.0)
    p = otm.examples.uniform(2_000)
    table = otm.acceptance_table(draft=p, target=p, k=[1, 2])
    num_values = len(table.columns) + len(table.description)
    assert module._worked == pytest.approx(2_000 * num_values * VALUE_SECONDS)


def test_the_page_on_installing_says_when():
    assert module._LONGEST == 2.0
    says("docs/start/install.md", "once NumPy has worked for about two seconds in a process")


def test_a_run_asks_for_it_at_once(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(module, "_worked", 0.0)
    assert module.compiled("otm.overlap.compiled", seconds=math.inf) is not None
    assert module.compiled("otm.overlap.compiled", seconds=0.0) is not None


def test_a_first_answer_waits_for_no_compiler():
    code = (
        "import sys, otm\n"
        "p = otm.examples.uniform(5000)\n"
        "print(otm.acceptance(otm.KSeq(), otm.Problem(draft=p, target=p, law=otm.IID(2))),\n"
        "    len(otm.acceptance_table(draft=p, target=p, k=[1, 2]).columns) > 9,\n"
        "    'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", "True", "False"]


def burn(seconds):
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass


@pytest.mark.skipif(not hasattr(signal, "ITIMER_PROF"), reason="needs a timer of CPU time")
def test_the_end_of_an_audit_s_time_waits_for_the_compiler(monkeypatch):
    """Numba that is interrupted is of no use to the process any more."""
    monkeypatch.setattr(budget, "_GRACE", 0.05)
    slow = types.SimpleNamespace(try_out=lambda: burn(0.4))
    monkeypatch.setitem(sys.modules, "slow_to_compile", slow)
    begin = time.process_time()
    with budget.Deadline(0.0).enforced():
        assert module._loaded.__wrapped__("slow_to_compile") is slow
        assert time.process_time() - begin >= 0.4
        assert not module.is_loading()
        with pytest.raises(budget.OutOfTime):
            burn(30.0)


@pytest.mark.skipif(not hasattr(signal, "ITIMER_PROF"), reason="needs a timer of CPU time")
def test_no_audit_s_time_is_spent_on_the_compiler(monkeypatch):
    """On a new machine compiling takes ten seconds, more than what audits beside it have."""
    monkeypatch.setattr(budget, "_GRACE", 0.05)
    slow = types.SimpleNamespace(try_out=lambda: burn(0.6))
    monkeypatch.setitem(sys.modules, "slow_to_compile", slow)
    deadline = budget.Deadline(0.4)
    with deadline.enforced():
        module._loaded.__wrapped__("slow_to_compile")
        burn(0.1)
        assert deadline.limit(lambda: "in time")() == "in time"
        with pytest.raises(budget.OutOfTime):
            burn(30.0)
    assert deadline.left < 0.0
