"""Draft trees: their shapes, the best one for measured acceptances and costs, entropy bounds, and the formats of engines."""

from otm.trees.chain import chain_expected_tokens, chain_speedup, optimal_chain_length
from otm.trees.cost import TreeChoice, choose_tree, target_seconds_at
from otm.trees.interchange import (
    TreeRecord,
    acceptance_from_sequoia,
    acceptance_from_sequoia_static,
    acceptance_to_sequoia,
    sequoia_growmap,
    shape_from_successors,
    tree_from_json,
    tree_to_json,
)
from otm.trees.optimal import OptimalTree, optimal_tree, tree_acceptance
from otm.trees.planning import (
    BudgetPlan,
    BudgetSplit,
    LengthChoice,
    LengthPlan,
    Speedup,
    plan_budget,
    plan_lengths,
    split_budget,
)
from otm.trees.positions import (
    PositionAcceptance,
)
from otm.trees.program import tree_program
from otm.trees.records import (
    AcceptanceRecord,
    SurvivalBounds,
    TokensEstimate,
    estimate_tokens,
    kaplan_meier,
    parse_acceptance,
    read_acceptance,
    request_mean_interval,
    survival_bounds,
)
from otm.trees.settings import Simulation, sglang_simulation, tensorrt_llm_simulation, vllm_lengths, vllm_simulation
from otm.trees.shape import TreeShape, level_order
from otm.trees.surface import CostSurface, read_costs
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
    "AcceptanceRecord",
    "BudgetPlan",
    "BudgetSplit",
    "CostSurface",
    "ExploredBound",
    "LengthChoice",
    "LengthPlan",
    "OptimalTree",
    "PathAcceptance",
    "PositionAcceptance",
    "Simulation",
    "Speedup",
    "SurvivalBounds",
    "TokensEstimate",
    "TreeChoice",
    "TreeRecord",
    "TreeShape",
    "acceptance_from_sequoia",
    "acceptance_from_sequoia_static",
    "acceptance_to_sequoia",
    "acceptance_vector",
    "chain_expected_tokens",
    "chain_speedup",
    "check_acceptance",
    "choose_tree",
    "empirical_acceptance",
    "entropy_bits",
    "estimate_tokens",
    "even_spread",
    "kaplan_meier",
    "leaf_entropy",
    "level_order",
    "optimal_chain_length",
    "optimal_tree",
    "parse_acceptance",
    "plan_budget",
    "plan_lengths",
    "rank_counts",
    "read_acceptance",
    "read_costs",
    "rejected_mass",
    "request_mean_interval",
    "sequoia_growmap",
    "sglang_simulation",
    "shape_from_successors",
    "split_budget",
    "survival_bounds",
    "target_seconds_at",
    "tensorrt_llm_simulation",
    "tree_acceptance",
    "tree_from_json",
    "tree_program",
    "tree_to_json",
    "tunstall_explored_upper",
    "tunstall_minimum_upper",
    "tunstall_upper",
    "vllm_lengths",
    "vllm_simulation",
]
