"""What the tests of decoders share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import randomness


@pytest.fixture
def remembered_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifiers are prepared once per pair of distributions: preparation is not random."""
    known: dict[object, Any] = {}
    prepare = randomness.prepare_conditional

    def remembered(
        verifier: otm.Verifier, law: otm.Law, draft: np.ndarray, target: np.ndarray
    ) -> otm.verifiers.Conditional:
        key = (verifier, law, draft.tobytes(), target.tobytes())
        if key not in known:
            known[key] = prepare(verifier, law, draft, target)
        return known[key]

    monkeypatch.setattr(randomness, "prepare_conditional", remembered)
