"""Draft trees: shapes, the best tree for measured acceptances and costs, entropy bounds, JSON."""

from otm.trees.cost import TreeChoice, choose_tree, target_seconds_at
from otm.trees.optimal import OptimalTree, optimal_tree, tree_acceptance, tree_expected_tokens
from otm.trees.shape import TreeShape, level_order
from otm.trees.tunstall import (
    ExploredBound,
    even_spread,
    leaf_entropy,
    tunstall_explored_upper,
    tunstall_minimum_upper,
    tunstall_upper,
)
from otm.trees.vector import (
    PathAcceptance,
    acceptance_vector,
    check_acceptance,
    empirical_acceptance,
    entropy_bits,
    rank_counts,
    rejected_mass,
)

__all__ = [
    "ExploredBound",
    "OptimalTree",
    "PathAcceptance",
    "TreeChoice",
    "TreeShape",
    "acceptance_vector",
    "check_acceptance",
    "choose_tree",
    "empirical_acceptance",
    "entropy_bits",
    "even_spread",
    "leaf_entropy",
    "level_order",
    "optimal_tree",
    "rank_counts",
    "rejected_mass",
    "target_seconds_at",
    "tree_acceptance",
    "tree_expected_tokens",
    "tunstall_explored_upper",
    "tunstall_minimum_upper",
    "tunstall_upper",
]
