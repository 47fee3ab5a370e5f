"""Results of the verbs, and the two types of a number with its uncertainty."""

from otm.results.couplings import (
    Coupling,
    Definition as Definition,
    Optimum,
    Samples,
    is_member as is_member,
)
from otm.results.statistics import Certified, Estimate

__all__ = ["Certified", "Coupling", "Estimate", "Optimum", "Samples"]
