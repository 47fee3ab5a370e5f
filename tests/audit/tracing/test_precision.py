"""Types of arrays in sight of code, and the profiler that looks for them."""

import cProfile
import pstats
import sys

import numpy as np
import pytest

from otm.audit.tracing.precision import type_in_sight


def in_float32(uniforms):
    weights = np.asarray([0.25, 0.75], dtype=np.float32)
    return int(uniforms[0] >= weights[0])


@pytest.mark.parametrize("profiler", [None, lambda frame, event, argument: None])
def test_the_profiler_before_is_set_again(profiler):
    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        assert type_in_sight([in_float32], 1) == "float32"
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)


def test_an_audit_can_be_profiled():
    profile = cProfile.Profile()
    profile.enable()
    try:
        assert type_in_sight([in_float32], 1) == "float32"
        max(map(abs, [1, 2]))
    finally:
        profile.disable()
    assert any(name == "<built-in method builtins.max>" for *_, name in pstats.Stats(profile).stats)
