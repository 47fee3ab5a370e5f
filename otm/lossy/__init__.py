"""Lossy schemes, which trade the target's law for acceptance: frontiers, distortions, detection."""

from otm.lossy.composition import MAX_COMPOSED, Composed, composed, tokens_to_detect
from otm.lossy.frontiers import (
    KlFrontier,
    KlProgram,
    kl_frontier,
    kl_frontier_program,
    tv_frontier,
)
from otm.lossy.output import Distortion, distortion, output_law

__all__ = [
    "MAX_COMPOSED",
    "Composed",
    "Distortion",
    "KlFrontier",
    "KlProgram",
    "composed",
    "distortion",
    "kl_frontier",
    "kl_frontier_program",
    "output_law",
    "tokens_to_detect",
    "tv_frontier",
]
