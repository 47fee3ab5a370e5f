"""Certified answers from partly known distributions: the likely tokens of both models and the mass of the rest.

Engines and interfaces return the m most likely tokens with their log-probabilities and hide the rest. `PartialPair` holds what is
known of both models; the `partial_*` functions bound what depends on the rest, over every way it may look.
"""

from otm.partial.completion import Completion
from otm.partial.distances import PartialDivergences, partial_divergences
from otm.partial.interval import Interval
from otm.partial.pair import PartialPair
from otm.partial.top import TopTokens, top_tokens
from otm.partial.values import (
    partial_gamma_star,
    partial_kseq,
    partial_optimal_acceptance,
    partial_overlap,
    partial_recursive_rejection,
)

__all__ = [
    "Completion",
    "Interval",
    "PartialDivergences",
    "PartialPair",
    "TopTokens",
    "partial_divergences",
    "partial_gamma_star",
    "partial_kseq",
    "partial_optimal_acceptance",
    "partial_overlap",
    "partial_recursive_rejection",
    "top_tokens",
]
