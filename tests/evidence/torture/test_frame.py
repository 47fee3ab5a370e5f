"""The harness itself: a trial is found again, a failure is shrunk, told and counted, a killed run
loses nothing. And every family for its share of a minute, with a seed of its own for every revision
of the sources.
"""

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evidence.torture import frame, results
from evidence.torture.frame import Course, Family, Trial


def _of(random):
    while True:
        drawn = random.random()
        if drawn < 0.1:
            raise RuntimeError("broken")
        yield Trial("f", 1, drawn)


COURSE = Family("of", _of)


WHOLE = Course(COURSE, 3)
TRIALS = [WHOLE.trial(index) for index in range(50)]


def test_a_trial_is_found_again_without_those_before_it():
    for index in (49, 7, 20):
        assert Course(COURSE, 3).trial(index).ratio == TRIALS[index].ratio
    assert Course(COURSE, 4).trial(0) != TRIALS[0]


def test_an_exception_is_a_failure_with_its_traceback_and_the_next_trial_follows():
    broken = next(trial for trial in TRIALS if trial.inputs == 0)
    assert broken.failed
    assert "RuntimeError: broken" in broken.detail
    assert sum(trial.inputs for trial in TRIALS) > 30


def test_what_is_no_number_is_a_failure():
    ratios = (math.nan, math.inf, 1.0000001, 1.0)
    assert [Trial("f", 1, ratio).failed for ratio in ratios] == [True, True, True, False]


def test_shrinking_takes_the_simplest_that_still_fails():
    def simpler(number):
        return [number // 2, number - 1] if number else []

    def fails(number):
        if number == 40:
            raise RuntimeError
        return number >= 37

    # 40 raises, and that is no failure of the same kind
    assert frame.shrink(1000, simpler=simpler, fails=fails) == 41


def test_failures_are_told_and_counted(tmp_path):
    writer = results.Writer(tmp_path, seed=5, worker="0")
    writer.record("of", 0, Trial("f", 3, 0.5), 0.1)
    writer.record("of", 1, Trial("otm.f", 3, 2.0, "assert otm.f() == 2", "1 for 2"), 0.1)
    writer.record("of", 2, Trial("(family of)", 0, math.inf, detail="Traceback …"), 0.1)
    writer.close()
    total = results.summary(tmp_path)
    assert (
        total.functions["otm.f"].failures,
        total.functions["f"].inputs,
        len(total.failures),
    ) == (1, 3, 2)
    assert "| `otm.f` | 3 | 2 | 1 |" in results.table(total)
    told = frame.told("of", 5, 1, total.failures[0].trial)
    assert "--replay of:5:1" in told and "assert otm.f() == 2" in told


def test_a_torn_line_is_left_out_and_runs_add_up(tmp_path):
    for seed in (5, 6):
        writer = results.Writer(tmp_path, seed=seed, worker=str(seed))
        for index in range(4):
            writer.record("of", index, Trial("f", 10, 0.25), 0.1)
        writer.close()
    path = sorted(tmp_path.glob("trials-*"))[0]
    path.write_text(path.read_text() + '["of", "f", 10')
    assert results.summary(tmp_path).functions["f"].inputs == 80
    assert results.next_indices(tmp_path, 6) == {"of": 4}
    assert results.next_indices(tmp_path, 7) == {}


@pytest.mark.long
def test_a_run_is_killed_and_resumed(tmp_path):
    """A killed supervisor leaves no worker running, and what was written before counts."""
    command = [sys.executable, "-m", "evidence.torture", "--workers", "1", "--only", "trees"]
    command += ["--seed", "1", "--out", str(tmp_path)]
    running = subprocess.Popen([*command, "--minutes", "5"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while results.next_indices(tmp_path, 1).get("trees", 0) <= 20 and time.monotonic() < until:
        time.sleep(0.1)
    children = [
        Path("/proc") / child
        for task in Path(f"/proc/{running.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    assert children
    running.kill()
    running.wait()
    while any(child.exists() for child in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(child.exists() for child in children), "the worker goes on"
    before = results.next_indices(tmp_path, 1)["trees"]
    assert before > 20
    done = subprocess.run(
        [*command, "--minutes", "0.05"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = list(results.recorded(tmp_path))
    assert len({one.index for one in found}) == len(found) > before
    assert {one.source["seed"] for one in found} == {1}


def test_a_revision_has_one_seed_and_another_revision_another(tmp_path, monkeypatch):
    for folder in ("otm", "evidence", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "otm" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(frame, "ROOT", tmp_path)
    first = frame.revision_seed()
    assert frame.revision_seed() == first
    (tmp_path / "otm" / "a.py").write_text("x = 2\n")
    assert frame.revision_seed() != first


SECONDS, MOST = 35.0, 30
"""Of all families together, and trials of a family, so that a faster machine tries the same."""


@pytest.mark.parametrize("name", frame.families())
def test_nothing_fails(name):
    share, seed = SECONDS / len(frame.families()), frame.revision_seed()
    failures = [
        frame.told(name, seed, index, trial)
        for index, trial in frame.spend(name, seconds=share, seed=seed, most=MOST)
        if trial.failed
    ]
    assert not failures, "\n\n".join(failures[:5])
