"""Laws that are no vectors: Gaussians, whose curve and verifiers are exact, and any densities on a
line, between two finite problems.

A step of a diffusion model is a Gaussian; a cheaper model's step is another of the same covariance.
What k drafts of it can do depends on one number, the distance of the means.
"""

from otm.continuous.densities import Density, Enclosure, GaussianMixture, enclosure
from otm.continuous.gaussian_block import GaussianBlock, GaussianBlockSamples
from otm.continuous.gaussian_curve import GaussianCurve
from otm.continuous.gaussian_optimal import GaussianOptimal
from otm.continuous.gaussian_rule import (
    GaussianKSeq,
    GaussianReflection,
    GaussianRejection,
    GaussianSamples,
)
from otm.continuous.values import acceptance, optimal_acceptance

__all__ = [
    "Density",
    "Enclosure",
    "GaussianBlock",
    "GaussianBlockSamples",
    "GaussianCurve",
    "GaussianKSeq",
    "GaussianMixture",
    "GaussianOptimal",
    "GaussianReflection",
    "GaussianRejection",
    "GaussianSamples",
    "acceptance",
    "enclosure",
    "optimal_acceptance",
]
