"""Optimal transport with membership cost: exact optima, bounds and verifiers for speculative
decoding.

A small draft model proposes tokens, a large target model verifies them so that the output keeps the
target's law. How likely is a draft to be accepted, how likely could it be at best, and which scheme
gets there?

Notation, everywhere:

====================  ============================================================================
p, ``draft``          the draft model's distribution on a vocabulary Ω of V tokens, an array ``(..., V)``
q, ``target``         the target model's distribution (SpecTr and ERSD use these letters; Leviathan and vLLM swap them)
k                     number of drafts
X = (X₁..X_k), S      the drafts in order; the set of distinct drafted tokens
Y                     the output token; lossless means Y ~ q
P(T), Q(T), b(T)      masses of a token set; b(T) = Pr(S ⊆ T), the containment function of the draft law
H(t)                  the overlap curve Σ min(q, t p), t ≥ 0: what every question about i.i.d. drafts is asked of
α, α*                 acceptance Pr(Y ∈ S); its maximum over all couplings of the drafts and Y ~ q
β, γ, γ*              K-SEQ's single-try acceptance, its division factor, the smallest lossless one
====================  ============================================================================

A *draft law* says how drafts are drawn, a *verifier* how the output is chosen given the drafts; the
optimum depends on (draft, target, law) alone. Arrays are keyword-only, because α is not symmetric
in p and q.

Here are problems, laws, verifiers and the verbs. Everything else stands where one would look for
it:

====================  ============================================================================
``otm.bounds``        bounds on acceptances, direction in the name
``otm.divergences``   distances between a draft and a target
``otm.lossy``         frontiers of acceptance against distance, and what lossy schemes do
``otm.losses``        what acceptance is lost to: vocabulary, filters, ranking, rounding …
``otm.partial``       certified intervals from top-m probabilities
``otm.transport``     couplings by linear programming, exact certificates
``otm.sequence``      decoders, models, exact laws of a decoding step
``otm.trees``         draft trees: shapes, optimal trees, costs, entropy bounds
``otm.engines``       what engines write and want: acceptance records, costs, planned lengths
``otm.tracing``       what a sampler does with its random numbers, followed draw by draw
``otm.evidence``      tests of hypotheses with error budgets
``otm.audit``         is somebody else's verifier lossless?
``otm.table``         every scheme on every row of a batch, from one sort
``otm.verifiers``     what verifiers are made of, and more of them than have a name here
``otm.drafts``        what draft laws are made of
``otm.examples``      distributions to play with
``otm.overlap``       the curve H
``otm.plot``          pictures of problems and results
``otm.results``       what the verbs return
``otm.errors``        what they raise
====================  ============================================================================
"""

import logging

from otm import (
    audit,
    bounds,
    divergences,
    drafts,
    engines,
    errors,
    examples,
    losses,
    lossy,
    overlap,
    partial,
    plot,
    results,
    sequence,
    table,
    transport,
    trees,
    verifiers,
)
from otm.comparison import compare
from otm.drafts import IID, Greedy, Law, Product, TopK, WithoutReplacement
from otm.errors import OtmError
from otm.logits import Processing, from_logits
from otm.montecarlo import estimate
from otm.pmf import normalise
from otm.problem import Problem
from otm.table import acceptance_table
from otm.transport import optimum
from otm.verbs import (
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
from otm.verifiers import (
    BoundedRegret,
    Cactus,
    Cascade,
    Ensemble,
    Fuzzy,
    GreedyOptimal,
    KSeq,
    Lenience,
    ListRace,
    Mars,
    Maximal,
    Mentored,
    MinHash,
    Naive,
    NaiveTree,
    Optimal,
    Race,
    RecursiveRejection,
    RelaxedAcceptance,
    SelectThenReject,
    SpecHub,
    ThresholdMatching,
    Tournament,
    TransportPlan,
    TvOptimal,
    TypicalAcceptance,
    Verifier,
    WithoutReplacementOptimal,
    from_callable,
)

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(
    logging.NullHandler()
)  # says nothing unless the application listens

__all__ = [
    "IID",
    "BoundedRegret",
    "Cactus",
    "Cascade",
    "Ensemble",
    "Fuzzy",
    "Greedy",
    "GreedyOptimal",
    "KSeq",
    "Law",
    "Lenience",
    "ListRace",
    "Mars",
    "Maximal",
    "Mentored",
    "MinHash",
    "Naive",
    "NaiveTree",
    "Optimal",
    "OtmError",
    "Problem",
    "Processing",
    "Product",
    "Race",
    "RecursiveRejection",
    "RelaxedAcceptance",
    "SelectThenReject",
    "SpecHub",
    "ThresholdMatching",
    "TopK",
    "Tournament",
    "TransportPlan",
    "TvOptimal",
    "TypicalAcceptance",
    "Verifier",
    "WithoutReplacement",
    "WithoutReplacementOptimal",
    "__version__",
    "acceptance",
    "acceptance_curve",
    "acceptance_table",
    "audit",
    "bounds",
    "compare",
    "coupling",
    "divergences",
    "drafts",
    "engines",
    "errors",
    "estimate",
    "examples",
    "from_callable",
    "from_logits",
    "kernel",
    "losses",
    "lossy",
    "normalise",
    "optimal_acceptance",
    "optimal_acceptance_curve",
    "optimal_cut",
    "optimum",
    "overlap",
    "partial",
    "plot",
    "prepare",
    "results",
    "sample",
    "sequence",
    "table",
    "transport",
    "trees",
    "verifiers",
]
