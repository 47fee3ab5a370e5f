"""Decoding over sequences and trees: several drafted tokens per call of the target.

A *shape* (`otm.trees.TreeShape`) says where drafts stand, a *decoder* how they are drawn and
verified, a *model* is anything with next-token distributions. `step` and `generate` run a decoder
on any models; `step_law` and `expected_step` give the exact law of a step on small ones.
"""

from otm.sequence.best_step_lp import BestStep, best_step
from otm.sequence.block_kseq import BlockKSeq
from otm.sequence.block_verification import BlockVerification
from otm.sequence.blocks import BlockMarginals, block_marginals
from otm.sequence.decoder import Decoder, StaticDecoder
from otm.sequence.decoding import Generation, generate, step, steps
from otm.sequence.drafted_tree import DraftTree, Step
from otm.sequence.ersd import Ersd
from otm.sequence.exact_laws import (
    DeferredDecoder,
    ExpectedStep,
    StepLaw,
    completed_law,
    divergence_by_position,
    expected_step,
    generated_law,
    step_law,
)
from otm.sequence.fly import Fly
from otm.sequence.greedy_chain import GreedyChain, LooseStep, loose_step
from otm.sequence.greedy_multipath import GreedyMultipath
from otm.sequence.jacobi import (
    Jacobi,
    JacobiDraft,
    JacobiLaw,
    JacobiState,
    jacobi_generate,
    jacobi_law,
)
from otm.sequence.level_cuts import LevelCutBound, level_cut_upper
from otm.sequence.likeliest_tree import LikeliestTree, matched_tokens
from otm.sequence.matching import MatchingDecoder
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
from otm.sequence.noise_tree import NoiseTree, belief_rows, fit_scale, noise_tokens
from otm.sequence.randomness import Enumerated, Randomness, Sampled, outcomes
from otm.sequence.ranking import (
    DecoderRanking,
    DelayedExpansion,
    RankedDecoder,
    delayed_expansions,
    rank_decoders,
)
from otm.sequence.refined_scores import RefinedScores
from otm.sequence.regret_budget import RegretBudget
from otm.sequence.sampled_tree import PredictableTree, SampledTree
from otm.sequence.shared_noise import SharedNoise
from otm.sequence.staged import Staged, expected_calls
from otm.sequence.stochastic_beam import StochasticBeam
from otm.sequence.traversal_verification import TraversalVerification
from otm.sequence.tree_cuts import TreeCut
from otm.sequence.vertex_decoder import (
    DraftSelection,
    Gsd,
    PrefixTree,
    SpeculativeSampling,
    TreeVerification,
    VertexDecoder,
)

DECODERS = (
    SpeculativeSampling,
    DraftSelection,
    PrefixTree,
    TreeVerification,
    Gsd,
    Ersd,
    BlockVerification,
    TraversalVerification,
    GreedyMultipath,
    LikeliestTree,
    NoiseTree,
    SampledTree,
    StochasticBeam,
    Staged,
    RefinedScores,
    BlockKSeq,
)
"""The decoding algorithms of the library that are lossless, with a lossless verifier."""

LOSSY_DECODERS = (Fly, RegretBudget)
"""The decoding algorithms that relax exact matching by a test of the whole chain."""

__all__ = [
    "DECODERS",
    "LOSSY_DECODERS",
    "Absorbing",
    "BestStep",
    "BlockKSeq",
    "BlockMarginals",
    "BlockVerification",
    "Decoder",
    "DecoderRanking",
    "DeferredDecoder",
    "DelayedExpansion",
    "DraftSelection",
    "DraftTree",
    "Enumerated",
    "Ersd",
    "ExpectedStep",
    "Fly",
    "Generation",
    "GreedyChain",
    "GreedyMultipath",
    "Gsd",
    "Jacobi",
    "JacobiDraft",
    "JacobiLaw",
    "JacobiState",
    "LanguageModel",
    "LevelCutBound",
    "LikeliestTree",
    "LooseStep",
    "MarkovModel",
    "MatchingDecoder",
    "Memoised",
    "NoiseTree",
    "PredictableTree",
    "PrefixTree",
    "Randomness",
    "RankedDecoder",
    "RefinedScores",
    "RegretBudget",
    "Sampled",
    "SampledTree",
    "SharedNoise",
    "SpeculativeSampling",
    "Staged",
    "StaticDecoder",
    "Step",
    "StepLaw",
    "StochasticBeam",
    "TableModel",
    "TraversalVerification",
    "TreeCut",
    "TreeVerification",
    "VertexDecoder",
    "ZerothOrder",
    "belief_rows",
    "best_step",
    "block_marginals",
    "completed_law",
    "delayed_expansions",
    "divergence_by_position",
    "expected_calls",
    "expected_step",
    "fit_scale",
    "generate",
    "generated_law",
    "jacobi_generate",
    "jacobi_law",
    "level_cut_upper",
    "loose_step",
    "markov_pair",
    "matched_tokens",
    "noise_tokens",
    "outcomes",
    "rank_decoders",
    "sequence_law",
    "step",
    "step_law",
    "steps",
]
