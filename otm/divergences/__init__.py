"""Distances between a draft and a target, and the taut string that solves two frontiers."""

from otm.divergences.distances import (
    divergence_term as divergence_term,
    harmonic_mean_distance,
    hockey_stick,
    kl_divergence,
    total_variation,
)

__all__ = ["harmonic_mean_distance", "hockey_stick", "kl_divergence", "total_variation"]
