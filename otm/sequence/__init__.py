"""Decoding over sequences and trees: several drafted tokens per call of the target, exact on toy models, sampled on any.

A *shape* says where drafts stand (`TreeShape`), a *decoder* how they are drawn and verified, a *model* is anything with next-token
distributions. `step` and `generate` run a decoder; `step_law` enumerates it exactly.
"""

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
from otm.sequence.gsd import Gsd
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
from otm.sequence.prefix_tree import PrefixTree
from otm.sequence.shape import TreeShape
from otm.sequence.source import Outcomes, Source, Uniforms, outcomes
from otm.sequence.speculative_sampling import SpeculativeSampling
from otm.sequence.tree_verification import TreeVerification

DECODERS = (SpeculativeSampling, DraftSelection, PrefixTree, TreeVerification, Gsd, Ersd)
"""Every decoding algorithm of the library."""

__all__ = [
    "DECODERS",
    "Absorbing",
    "Decoder",
    "DraftSelection",
    "DraftTree",
    "Ersd",
    "Generation",
    "Gsd",
    "LanguageModel",
    "MarkovModel",
    "Memoised",
    "Outcomes",
    "PrefixTree",
    "Source",
    "SpeculativeSampling",
    "Step",
    "StepLaw",
    "TableModel",
    "TreeShape",
    "TreeVerification",
    "Uniforms",
    "ZerothOrder",
    "completed_law",
    "divergence_by_position",
    "generate",
    "generated_law",
    "markov_pair",
    "outcomes",
    "sequence_law",
    "step",
    "step_law",
    "steps",
]
