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
