"""What is won by leaving the target's law: the best acceptance within a distance of it, and what
each lossy scheme does.
"""

from otm.lossy.induced import Distortion, distortion, output_law
from otm.lossy.kl import KlFrontier, KlProgram, kl_frontier, kl_frontier_program
from otm.lossy.tv import tv_frontier

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
