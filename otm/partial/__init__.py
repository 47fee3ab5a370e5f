"""Certified bounds from partly known distributions: likely tokens and the mass of the rest.

Engines and interfaces return the m most likely tokens with their log-probabilities and hide the
rest. `PartialPair` holds what is known of both models; the functions here bound what depends on the
rest, over every way it may look.
"""

from otm.partial.completion import Completion, PartialPair
from otm.partial.distances import PartialDivergences, divergences
from otm.partial.top import TopTokens
from otm.partial.values import Interval, acceptance, gamma_star, optimal_acceptance

__all__ = [
    "Completion",
    "Interval",
    "PartialDivergences",
    "PartialPair",
    "TopTokens",
    "acceptance",
    "divergences",
    "gamma_star",
    "optimal_acceptance",
]
