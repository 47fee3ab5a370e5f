"""Acceptance won by leaving the target's law: frontiers, and each lossy scheme's distortion."""

from otm.lossy.frontiers import (
    KlFrontier,
    KlProgram,
    kl_frontier,
    kl_frontier_program,
    tv_frontier,
)
from otm.lossy.output import Distortion, distortion, output_law

__all__ = [
    "Distortion",
    "KlFrontier",
    "KlProgram",
    "distortion",
    "kl_frontier",
    "kl_frontier_program",
    "output_law",
    "tv_frontier",
]
