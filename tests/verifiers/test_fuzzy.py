"""Fuzzy verification: the gate as written, and thresholds at the edge."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm import Fuzzy
from tests.verifiers.lossy_instances import one_draft


class TestFuzzy:
    P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])

    def divergences(self) -> dict[str, float]:
        m = 0.5 * (self.P + self.Q)
        kl = lambda a, b: float(a @ np.log(a / b))  # noqa: E731
        return {
            "tv": 0.5 * float(np.abs(self.P - self.Q).sum()),
            "kl": kl(self.Q, self.P),
            "js": 0.5 * (kl(self.P, m) + kl(self.Q, m)),
        }

    @pytest.mark.parametrize("divergence", ["tv", "kl", "js"])
    @pytest.mark.parametrize("fallback", ["target", "speculative"])
    def test_the_gate(self, divergence: str, fallback: str) -> None:
        problem, distance = one_draft((self.P, self.Q)), self.divergences()[divergence]
        is_open = Fuzzy(distance * 1.001, divergence=divergence, fallback=fallback)  # type: ignore[arg-type]
        closed = Fuzzy(distance * 0.999, divergence=divergence, fallback=fallback)  # type: ignore[arg-type]
        assert otm.acceptance(is_open, problem) == 1.0
        np.testing.assert_array_equal(otm.lossy.output_law(is_open, problem), self.P)
        np.testing.assert_allclose(otm.lossy.output_law(closed, problem), self.Q, atol=1e-15)
        rule, member = (otm.acceptance(closed, problem, by=by) for by in ("rule", "membership"))
        if fallback == "target":
            assert (rule, member) == (0.0, pytest.approx(self.P @ self.Q))
        else:
            assert rule == member == pytest.approx(np.minimum(self.P, self.Q).sum())

    def test_the_zero_threshold_opens_for_equal_distributions_only(self) -> None:
        for divergence in ("tv", "kl", "js"):
            verifier = Fuzzy(0.0, divergence=divergence)  # type: ignore[arg-type]
            assert otm.acceptance(verifier, one_draft((self.P, self.P)), by="rule") == 1.0
            assert otm.acceptance(verifier, one_draft((self.P, self.Q)), by="rule") == 0.0

    def test_parameters(self) -> None:
        for bad in ({"threshold": -1.0}, {"divergence": "hellinger"}, {"fallback": "draft"}):
            with pytest.raises(otm.errors.InvalidParameter, match=f"{next(iter(bad))} must"):
                Fuzzy(**bad)  # type: ignore[arg-type]
