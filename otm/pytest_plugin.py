"""The plugin for pytest: a fixture that asserts that a verifier is lossless, and how likely a false
alarm was in the whole run.

Installed with the library, found by pytest itself::

    def test_my_kernel(assert_lossless):
        assert_lossless(my_kernel)

Each test has a seed of its own, made from its name: the same on every run and every machine.
`--otm-seed` moves them all. Nothing is imported before a test asks; without the fixture,
`otm.audit.assert_lossless` is the same function.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

_PROPERTY = "otm_false_alarm"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--otm-seed`."""
    group = parser.getgroup("otm", "audits of verifiers")
    group.addoption(
        "--otm-seed",
        type=int,
        default=0,
        help="moves the seeds of all audits (default: %(default)s)",
    )


@pytest.fixture
def assert_lossless(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`otm.audit.assert_lossless` with a stable seed, counted in the summary of the run."""
    from otm.audit import assert_lossless as assertion  # noqa: PLC0415 (the plugin is imported by every run of pytest)

    name = f"{request.config.getoption('--otm-seed')} {request.node.nodeid}"
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

    def check(candidate: object, **options: Any) -> Any:
        __tracebackhide__ = True
        found = assertion(candidate, **{"seed": seed, **options})
        request.node.user_properties.append(
            (_PROPERTY, found.false_alarm)
        )  # travels with the test's report, also from a worker
        return found

    return check


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """State the false-alarm probability of all audits together."""
    found = [
        value
        for report in itertools.chain(*terminalreporter.stats.values())
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if found:
        terminalreporter.write_line(
            f"otm: {len(found)} audit{'s' * (len(found) != 1)} found nothing; in such a run a "
            "lossless verifier fails with "
            f"probability ≤ {sum(found):.1g}"
        )
