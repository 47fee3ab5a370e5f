"""Upper (`*_upper`) and lower (`*_lower`) bounds on acceptances, each with a theorem."""

from otm.bounds.acceptance import (
    Bracket,
    kseq_factor,
    kseq_lower,
    optimal_bracket,
    support_limit_upper,
)
from otm.bounds.index_entropy import (
    greedy_index_entropy_upper,
    index_entropy_lower,
    index_entropy_upper,
)
from otm.bounds.lists import (
    list_matching_lower,
    poisson_matching_lower,
    poisson_representation_lower,
    threshold_race_lower,
)
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
    "threshold_race_lower",
]
