"""Instances that the tests of lossy verifiers share."""

from __future__ import annotations

import numpy as np

from otm import IID, Problem

ROUNDING = 1e-13  # sums of a handful of masses below 1, see tests/tolerance.py


def one_draft(pair: tuple[np.ndarray, np.ndarray]) -> Problem:
    return Problem(draft=pair[0], target=pair[1], law=IID(1))
