"""What is refused because it would take too long."""

import pytest

from otm._machine import patience
from otm.errors import TooLarge


@pytest.mark.parametrize(
    ("spent", "share", "refused"),
    [
        (1.9, 1e-9, False),  # too early to say
        (3.0, 1 / 199, False),  # 597 s: the first seconds may be ten times too slow
        (3.0, 1 / 201, True),
        (31.0, 31 / 59, False),
        (31.0, 31 / 61, True),
        (59.0, 1.0, False),
        (61.0, 1.0, True),
    ],
)
def test_pace(spent, share, refused, monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(patience, "_cpu_seconds", lambda: now)
    pace = patience.Pace("A count", "Take fewer.")
    now = spent
    if refused:
        whole = f"{spent / share:,.0f} s or more"
        with pytest.raises(
            TooLarge, match=rf"^A count is limited to 60 s .*{whole}\. Take fewer\.$"
        ):
            pace.check(share)
    else:
        pace.check(share)


def test_a_limit_is_looked_at_when_it_can_be_reached(monkeypatch):
    """Eight cores, all of them at work; a clock of CPU time that counts how often it is read."""
    now, looks = 0.0, 0

    def cpu_seconds():
        nonlocal looks
        looks += 1
        return 8.0 * now

    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(patience, "_cpu_seconds", cpu_seconds)
    watch, reached = patience.Stopwatch(), []
    for step in range(1, 2_001):
        now = step / 1_000
        reached.append(watch.reaches(8.0))
    assert reached.index(True) == 999  # the first at one second, that is eight of CPU time
    assert all(reached[999:])
    assert looks < 20 + 1_001
    assert not watch.reaches(17.0)
    assert watch.reaches(15.9)


def test_a_compiler_is_neither_work_nor_waiting(monkeypatch):
    """Ten minutes of it, all CPU time; another ten minutes are waited for."""
    now, loaded = 0.0, 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.process_time", lambda: loaded)
    monkeypatch.setattr(patience, "loading_seconds", lambda: loaded)
    watch = patience.Stopwatch()
    now = loaded = 600.0
    assert watch.seconds < 1.0  # of children that end meanwhile
    now = 1_200.0
    assert watch.waited
    assert watch.seconds == 600.0 / patience.WAITING
