"""The same results from this process, local processes and a Dask cluster, also when a worker is
killed in the middle.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.run.runs import measure_trace_file
from analysis.run.scheduling import Workers, one_behind, run_each
from tests.analysis.run.pieces import die_at_three, die_once, exhaust, refuse, square
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace
from tests.paths import ROOT

SQUARES = [n * n for n in range(8)]


def test_inline_is_lazy_and_an_error_ends_it():
    """One piece at a time: a long run's arguments are not all made at once."""
    arguments = iter(range(8))
    results = run_each(Workers(), refuse, arguments)
    assert [next(results), next(arguments), next(results)] == [0, 1, 2]
    with pytest.raises(AnalysisError, match="not three"):
        next(results)


def test_local_processes_survive_a_killed_one(tmp_path):
    witness = str(tmp_path / "killed")
    assert sorted(run_each(Workers(count=2), die_once, [(n, witness) for n in range(8)])) == SQUARES
    assert int(Path(witness).read_text()) != os.getpid()


def test_a_piece_that_takes_all_memory_is_named_and_this_process_lives():
    """One process is its own process, too; the pieces beside the one that dies are computed."""
    told = {"name": lambda number: f"shard {number}"}
    results = run_each(Workers(apart=True), die_at_three, [0, 1, 3, 5], **told)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(AnalysisError, match=r"computed shard 3 was killed 4 times over\. Memory"):
        next(results)
    with pytest.raises(AnalysisError, match="computed shard 3 found none left"):
        list(run_each(Workers(), exhaust, [3], **told))


@pytest.mark.long
def test_the_piece_that_dies_is_told_from_those_beside_it():
    with pytest.raises(AnalysisError, match="the one that computed 3 was killed 4 times"):
        list(run_each(Workers(count=2), die_at_three, range(8)))


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    # nobody may wait for orphans here
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("sleeps", signal.SIGTERM),
        pytest.param(
            "computes",
            signal.SIGKILL,
            marks=pytest.mark.skipif(sys.platform != "linux", reason=""),
        ),
    ],
)
def test_workers_end_with_their_parent_and_let_go_of_its_output(tmp_path, kind, how):
    code = (
        "from analysis.run.scheduling import Workers, run_each\n"
        "from tests.analysis.run.pieces import hold\n"
        f"if __name__ == '__main__': list(run_each(Workers(count=2), hold, [({str(tmp_path)!r}, "
        f"{how!r})] * 2))\n"
    )
    (tmp_path / "script.txt").write_text(code)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as parent:
        while (
            len(workers := [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()])
            < 2
        ):
            assert parent.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
        begin = time.monotonic()
        parent.send_signal(kind)
        parent.communicate(timeout=10)  # until nobody holds its output
        while any(alive(worker) for worker in workers):
            assert time.monotonic() - begin < 2.0
            time.sleep(0.01)


@pytest.mark.parametrize(
    "address",
    ["nonsense", "nonsense://x", "tcp://127.0.0.1:1", "tcp://127.0.0.1:99999", "tcp://:8786", ""],
)
def test_a_scheduler_that_is_not_there_is_told_at_once(address, tmp_path):
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    begin = time.monotonic()
    with pytest.raises(AnalysisError, match="running Dask scheduler"):
        measure_trace_file(
            tmp_path / "run", trace=trace, settings=SETTINGS, workers=Workers(scheduler=address)
        )
    assert time.monotonic() - begin < 2
    assert not (tmp_path / "run").exists()
    pytest.importorskip("distributed")
    with pytest.raises(AnalysisError, match="running Dask scheduler"):
        list(run_each(Workers(scheduler=address), square, [1]))


@pytest.mark.filterwarnings("ignore")  # distributed closes sockets late when its workers are killed
def test_dask_cluster_of_processes_gives_the_same_and_survives_a_killed_worker(
    tmp_path,
):
    """A scheduler and a worker, each a process of its own; the trace measurement of a run equals
    the local one.
    """
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    measure_trace_file(tmp_path / "local", trace=trace, settings=SETTINGS)
    # a worker that Dask cannot start again is an error here, and no wait without end
    no_worker = dask.config.set({"distributed.scheduler.no-workers-timeout": "120s"})
    with (
        no_worker,
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
    ):
        witness, workers = str(tmp_path / "killed"), Workers(scheduler=cluster.scheduler_address)
        assert sorted(run_each(workers, die_once, [(n, witness) for n in range(8)])) == SQUARES
        assert Path(witness).exists()
        measure_trace_file(tmp_path / "cluster", trace=trace, settings=SETTINGS, workers=workers)
    local, remote = (
        [path.read_bytes() for path in sorted((tmp_path / run / "shards").iterdir())]
        for run in ("local", "cluster")
    )
    assert len(local) == 4 and local == remote


def test_no_more_processes_than_pieces_of_work():
    assert [Workers(4).for_pieces(pieces).count for pieces in (0, 1, 3, 9)] == [1, 1, 3, 4]
    with Workers(4).for_pieces(1).open() as executor:
        assert executor.submit(os.getpid).result() == os.getpid()


def test_two_arguments_are_alive_at_a_time_and_results_keep_their_order():
    """The next is made while one is computed, and no other."""
    alive = []
    second = threading.Event()

    def arguments():
        for number in range(6):
            alive.append(number)
            assert len(alive) <= 2
            if number == 1:
                second.set()
            yield number

    def square_and_let_go(number):
        assert second.wait(30)
        time.sleep(0.001 * (number % 2))
        alive.remove(number)
        return number * number

    assert list(one_behind(square_and_let_go, arguments())) == [n * n for n in range(6)]
    assert list(one_behind(square, iter([]))) == []


@pytest.mark.parametrize("place", ["function", "arguments"])
def test_what_is_raised_beside_is_raised_here_and_nothing_runs_on(place):
    begun = []

    def arguments():
        for number in range(8):
            begun.append(number)
            yield refuse(number) if place == "arguments" else number

    before = threading.active_count()
    results = one_behind(refuse if place == "function" else square, arguments())
    with pytest.raises(AnalysisError, match="not three"):
        list(results)
    assert begun == list(range(5 if place == "function" else 4))
    assert threading.active_count() == before
