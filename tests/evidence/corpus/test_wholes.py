"""Broken steps and kernels of trees: the audits of the whole find the stated distances."""

import pytest

from evidence.corpus.wholes import WHOLES
from otm.audit.end_to_end import JointAudit


@pytest.mark.parametrize("whole", WHOLES, ids=lambda whole: whole.name)
def test_found_with_the_stated_distance(whole):
    found = whole.audited()
    assert (found.verdict, type(found), found.error) == ("not lossless", JointAudit, 0.0)
    assert found.total_variation == pytest.approx(float(whole.total_variation), abs=1e-13)
