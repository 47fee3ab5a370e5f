"""Verbs: the optima of a problem, and the acceptance, kernel and samples of a verifier on it."""

from otm.verbs.answers import (
    acceptance as acceptance,
    acceptance_curve as acceptance_curve,
    coupling as coupling,
    kernel as kernel,
    optimal_acceptance as optimal_acceptance,
    optimal_acceptance_curve as optimal_acceptance_curve,
    optimal_cut as optimal_cut,
    output_marginal as output_marginal,
    prepare as prepare,
    run as run,
    runs as runs,
    sample as sample,
)
from otm.verbs.montecarlo import estimate as estimate
