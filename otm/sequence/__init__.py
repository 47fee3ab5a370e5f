"""Decoding over sequences and trees: several drafted tokens per call of the target, exact on toy models, sampled on any.

A *shape* says where drafts stand (`TreeShape`), a *decoder* how they are drawn and verified, a *model* is anything with next-token
distributions. `step` and `generate` run a decoder; `step_law` enumerates it exactly.
"""

from otm.sequence.acceptance_vector import (
    PathAcceptance,
    acceptance_vector,
    check_acceptance,
    empirical_acceptance,
    entropy_bits,
    rank_counts,
    rejected_mass,
)
from otm.sequence.best_step import BestStep, best_step
from otm.sequence.block_verification import BlockVerification
from otm.sequence.chain_cost import chain_expected_tokens, chain_speedup, optimal_chain_length
from otm.sequence.decoder import (
    Decoder,
    DraftTree,
    Generation,
    Step,
    generate,
    step,
    steps,
)
from otm.sequence.draft_selection import DraftSelection
from otm.sequence.enumeration import StepLaw, completed_law, divergence_by_position, generated_law, step_law
from otm.sequence.ersd import Ersd
from otm.sequence.expected import ExpectedStep, expected_step
from otm.sequence.gsd import Gsd
from otm.sequence.interchange import (
    TreeRecord,
    acceptance_from_sequoia,
    acceptance_from_sequoia_static,
    acceptance_to_sequoia,
    sequoia_growmap,
    shape_from_successors,
    tree_from_json,
    tree_to_json,
)
from otm.sequence.models import (
    Absorbing,
    LanguageModel,
    MarkovModel,
    Memoised,
    TableModel,
    ZerothOrder,
    markov_pair,
    sequence_law,
)
from otm.sequence.optimal_tree import OptimalTree, optimal_tree, tree_acceptance
from otm.sequence.position_acceptance import (
    PositionAcceptance,
    chain_acceptance,
    positions_from_conditional,
    positions_from_csv,
    positions_from_histogram,
    positions_from_log,
    positions_from_metrics,
    positions_to_csv,
)
from otm.sequence.prefix_tree import PrefixTree
from otm.sequence.ranking import RankedDecoder, rank_decoders
from otm.sequence.shape import TreeShape, level_order
from otm.sequence.source import Outcomes, Source, Uniforms, outcomes
from otm.sequence.speculative_sampling import SpeculativeSampling
from otm.sequence.traversal_verification import TraversalVerification
from otm.sequence.tree_cost import TreeChoice, choose_tree, target_seconds_at
from otm.sequence.tree_program import tree_program
from otm.sequence.tree_verification import TreeVerification

DECODERS = (
    SpeculativeSampling,
    DraftSelection,
    PrefixTree,
    TreeVerification,
    Gsd,
    Ersd,
    BlockVerification,
    TraversalVerification,
)
"""Every decoding algorithm of the library."""

__all__ = [
    "DECODERS",
    "Absorbing",
    "BestStep",
    "BlockVerification",
    "Decoder",
    "DraftSelection",
    "DraftTree",
    "Ersd",
    "ExpectedStep",
    "Generation",
    "Gsd",
    "LanguageModel",
    "MarkovModel",
    "Memoised",
    "OptimalTree",
    "Outcomes",
    "PathAcceptance",
    "PositionAcceptance",
    "PrefixTree",
    "RankedDecoder",
    "Source",
    "SpeculativeSampling",
    "Step",
    "StepLaw",
    "TableModel",
    "TraversalVerification",
    "TreeChoice",
    "TreeRecord",
    "TreeShape",
    "TreeVerification",
    "Uniforms",
    "ZerothOrder",
    "acceptance_from_sequoia",
    "acceptance_from_sequoia_static",
    "acceptance_to_sequoia",
    "acceptance_vector",
    "best_step",
    "chain_acceptance",
    "chain_expected_tokens",
    "chain_speedup",
    "check_acceptance",
    "choose_tree",
    "completed_law",
    "divergence_by_position",
    "empirical_acceptance",
    "entropy_bits",
    "expected_step",
    "generate",
    "generated_law",
    "level_order",
    "markov_pair",
    "optimal_chain_length",
    "optimal_tree",
    "outcomes",
    "positions_from_conditional",
    "positions_from_csv",
    "positions_from_histogram",
    "positions_from_log",
    "positions_from_metrics",
    "positions_to_csv",
    "rank_counts",
    "rank_decoders",
    "rejected_mass",
    "sequence_law",
    "sequoia_growmap",
    "shape_from_successors",
    "step",
    "step_law",
    "steps",
    "target_seconds_at",
    "tree_acceptance",
    "tree_from_json",
    "tree_program",
    "tree_to_json",
]
