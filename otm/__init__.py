"""Optimal transport with membership cost: exact optima, bounds and verifiers for speculative decoding.

A small draft model proposes tokens, a large target model verifies them so that the output keeps the target's law. How likely is a
draft to be accepted, how likely could it be at best, and which scheme gets there?

Notation, everywhere:

====================  ==================================================================================================
p, ``draft``          the draft model's distribution on a vocabulary Ω of V tokens, an array ``(..., V)``
q, ``target``         the target model's distribution (SpecTr and ERSD use these letters; Leviathan and vLLM swap them)
k                     number of drafts
X = (X₁..X_k), S      the drafts in order; the set of distinct drafted tokens
Y                     the output token; lossless means Y ~ q
P(T), Q(T), b(T)      masses of a token set; b(T) = Pr(S ⊆ T), the containment function of the draft law
α, α*                 acceptance Pr(Y ∈ S); its maximum over all couplings of the drafts and Y ~ q
β, γ, γ*              K-SEQ's single-try acceptance, its division factor, the smallest lossless one
====================  ==================================================================================================

A *draft law* says how drafts are drawn, a *verifier* how the output is chosen given the drafts; the optimum depends on (draft,
target, law) alone. Arrays are keyword-only, because α is not symmetric in p and q.
"""

from otm import audit
from otm.bounds.index_entropy import greedy_index_entropy_upper, index_entropy_lower, index_entropy_upper
from otm.bounds.kseq_lower import kseq_factor, kseq_lower
from otm.bounds.limit_upper import support_limit_upper
from otm.bounds.list_matching_lower import list_matching_lower
from otm.bounds.poisson_matching_lower import poisson_matching_lower, poisson_representation_lower
from otm.bounds.spectr_upper import spectr_minimum_upper, spectr_upper
from otm.bounds.tunstall_upper import (
    ExploredBound,
    even_spread,
    leaf_entropy,
    tunstall_explored_upper,
    tunstall_minimum_upper,
    tunstall_upper,
)
from otm.comparison import Comparison, ComparisonRow, compare
from otm.distortion import Distortion, distortion, output_law
from otm.distributions import bernoulli, describe, dirichlet, from_logits, uniform, zipf
from otm.divergences import harmonic_mean_distance, kl_divergence, total_variation
from otm.drafts import IID, LAWS, SINGLE_DRAFTER_LAWS, Deterministic, Greedy, Law, Product, WithoutReplacement
from otm.errors import (
    InvalidDistribution,
    InvalidParameter,
    OtmError,
    ShapeMismatch,
    SolverFailure,
    TooLarge,
    Unsupported,
)
from otm.frontiers.kl import KlFrontier, KlProgram, kl_frontier, kl_frontier_program
from otm.frontiers.tv import tv_frontier
from otm.montecarlo import estimate
from otm.optimum.batched import BatchedOptimalRule, prepare_batch
from otm.optimum.bins import Bracket, optimal_bracket
from otm.optimum.certify import certify_exactly
from otm.optimum.closed_forms import two_token_optimum, uniform_optimum
from otm.optimum.lp import optimum
from otm.optimum.program import TransportProgram, optimum_program
from otm.partial import (
    Completion,
    Interval,
    PartialDivergences,
    PartialPair,
    TopTokens,
    partial_divergences,
    partial_gamma_star,
    partial_kseq,
    partial_optimal_acceptance,
    partial_overlap,
    partial_recursive_rejection,
    top_tokens,
)
from otm.pmf import normalise
from otm.problem import Problem
from otm.rao_blackwell import rao_blackwell_acceptance
from otm.results import Coupling, Estimate, Optimum, Samples
from otm.schemes import (
    acceptance,
    acceptance_curve,
    coupling,
    kernel,
    optimal_acceptance,
    optimal_acceptance_curve,
    optimal_cut,
    prepare,
    sample,
)
from otm.table import AcceptanceTable, TableColumn, acceptance_table, table_columns
from otm.verifiers import (
    PLANS,
    VERIFIERS,
    Conditional,
    CurvedVerifier,
    Fuzzy,
    GreedyOptimal,
    KSeq,
    Lenience,
    ListRace,
    Maximal,
    Mentored,
    MinHash,
    Naive,
    NaiveTree,
    Optimal,
    Otm,
    Race,
    RecursiveRejection,
    Rule,
    SelectThenReject,
    Shared,
    SpecHub,
    TypicalAcceptance,
    Verifier,
)
from otm.verifiers.kseq import gamma_star
from otm.verifiers.select_then_reject import selection_with_law

__all__ = [
    "IID",
    "LAWS",
    "PLANS",
    "SINGLE_DRAFTER_LAWS",
    "VERIFIERS",
    "AcceptanceTable",
    "BatchedOptimalRule",
    "Bracket",
    "Comparison",
    "ComparisonRow",
    "Completion",
    "Conditional",
    "Coupling",
    "CurvedVerifier",
    "Deterministic",
    "Distortion",
    "Estimate",
    "ExploredBound",
    "Fuzzy",
    "Greedy",
    "GreedyOptimal",
    "Interval",
    "InvalidDistribution",
    "InvalidParameter",
    "KSeq",
    "KlFrontier",
    "KlProgram",
    "Law",
    "Lenience",
    "ListRace",
    "Maximal",
    "Mentored",
    "MinHash",
    "Naive",
    "NaiveTree",
    "Optimal",
    "Optimum",
    "Otm",
    "OtmError",
    "PartialDivergences",
    "PartialPair",
    "Problem",
    "Product",
    "Race",
    "RecursiveRejection",
    "Rule",
    "Samples",
    "SelectThenReject",
    "ShapeMismatch",
    "Shared",
    "SolverFailure",
    "SpecHub",
    "TableColumn",
    "TooLarge",
    "TopTokens",
    "TransportProgram",
    "TypicalAcceptance",
    "Unsupported",
    "Verifier",
    "WithoutReplacement",
    "acceptance",
    "acceptance_curve",
    "acceptance_table",
    "audit",
    "bernoulli",
    "certify_exactly",
    "compare",
    "coupling",
    "describe",
    "dirichlet",
    "distortion",
    "estimate",
    "even_spread",
    "from_logits",
    "gamma_star",
    "greedy_index_entropy_upper",
    "harmonic_mean_distance",
    "index_entropy_lower",
    "index_entropy_upper",
    "kernel",
    "kl_divergence",
    "kl_frontier",
    "kl_frontier_program",
    "kseq_factor",
    "kseq_lower",
    "leaf_entropy",
    "list_matching_lower",
    "normalise",
    "optimal_acceptance",
    "optimal_acceptance_curve",
    "optimal_bracket",
    "optimal_cut",
    "optimum",
    "optimum_program",
    "output_law",
    "partial_divergences",
    "partial_gamma_star",
    "partial_kseq",
    "partial_optimal_acceptance",
    "partial_overlap",
    "partial_recursive_rejection",
    "poisson_matching_lower",
    "poisson_representation_lower",
    "prepare",
    "prepare_batch",
    "rao_blackwell_acceptance",
    "sample",
    "selection_with_law",
    "spectr_minimum_upper",
    "spectr_upper",
    "support_limit_upper",
    "table_columns",
    "top_tokens",
    "total_variation",
    "tunstall_explored_upper",
    "tunstall_minimum_upper",
    "tunstall_upper",
    "tv_frontier",
    "two_token_optimum",
    "uniform",
    "uniform_optimum",
    "zipf",
]
