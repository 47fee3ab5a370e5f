"""What several tests of audits share."""

from __future__ import annotations

import pytest

import otm
from otm import audit
from otm.audit.batteries import BatteryAudit
from tests.audit.callables import one_uniform


@pytest.fixture(scope="package")
def failing() -> BatteryAudit:
    """A battery that fails, with its counterexample."""
    return audit.battery(one_uniform, only="exact", laws=[otm.IID(2)], seconds=120.0)
