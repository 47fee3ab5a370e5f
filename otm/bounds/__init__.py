"""Bounds on acceptances, from above (`*_upper`) and from below (`*_lower`), each with the theorem
that proves it.
"""

from otm.bounds.bracket import Bracket, optimal_bracket
from otm.bounds.index_entropy import (
    greedy_index_entropy_upper,
    index_entropy_lower,
    index_entropy_upper,
)
from otm.bounds.kseq import kseq_factor, kseq_lower
from otm.bounds.limit import support_limit_upper
from otm.bounds.list_matching import list_matching_lower
from otm.bounds.poisson_matching import poisson_matching_lower, poisson_representation_lower
from otm.bounds.spectr import spectr_minimum_upper, spectr_upper

__all__ = [
    "Bracket",
    "greedy_index_entropy_upper",
    "index_entropy_lower",
    "index_entropy_upper",
    "kseq_factor",
    "kseq_lower",
    "list_matching_lower",
    "optimal_bracket",
    "poisson_matching_lower",
    "poisson_representation_lower",
    "spectr_minimum_upper",
    "spectr_upper",
    "support_limit_upper",
]
