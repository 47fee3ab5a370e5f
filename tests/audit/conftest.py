"""Fixtures that several tests of audits share."""

import pytest

import otm
from evidence.corpus.one_token import resample_target
from otm import audit
from otm.audit.batteries import BatteryAudit


@pytest.fixture(scope="package")
def failing() -> BatteryAudit:
    """Return a battery that fails, with a counterexample."""
    only = ["two tokens", "ties", "equal", "one token each"]
    return audit.battery(resample_target, only=only, laws=[otm.IID(1)], seconds=120.0)
