"""Exact optima, bounds and verifiers for speculative decoding: transport with membership cost.

A small draft model proposes tokens, a large target model verifies them so that the output keeps the
target's law. How likely is a draft to be accepted, how likely could it be at best, and which scheme
gets there?

Notation, everywhere:

===============  =================================================================================
p, ``draft``     the draft model's distribution on a vocabulary Ω of V tokens, an array ``(..., V)``
q, ``target``    the target model's (SpecTr and ERSD write so; Leviathan and vLLM swap the letters)
k                number of drafts
X = (X₁..X_k)    the drafts in order; S is the set of distinct drafted tokens
Y                the output token; lossless means Y ~ q
P(T), Q(T)       masses of a token set; b(T) = Pr(S ⊆ T) is the containment function of the law
H(t)             the overlap curve Σ min(q, t p), t ≥ 0: it answers every question on i.i.d. drafts
α, α*            acceptance Pr(Y ∈ S); its maximum over all couplings of the drafts and Y ~ q
β, γ, γ*         K-SEQ's single-try acceptance, its division factor, the smallest lossless one
===============  =================================================================================

A *draft law* says how drafts are drawn, a *verifier* how the output is chosen given the drafts; the
optimum depends on (draft, target, law) alone. Arrays are keyword-only, because α is not symmetric
in p and q.

Here are problems, laws, verifiers and the verbs. Everything else stands where one would look for
it, and is loaded when it is asked for:

===================  ==========================================================================
``otm.bounds``       bounds on acceptances, direction in the name
``otm.continuous``   Gaussians and other densities: the same curve, and verifiers of their drafts
``otm.divergences``  distances between a draft and a target
``otm.lossy``        frontiers of acceptance against distance, and what lossy schemes do
``otm.losses``       what acceptance is lost to: vocabulary, filters, ranking, rounding …
``otm.partial``      certified intervals from top-m probabilities
``otm.transport``    couplings by linear programming, exact certificates
``otm.sequence``     decoders, models, exact laws of a decoding step
``otm.trees``        draft trees: shapes, optimal trees, costs, entropy bounds
``otm.engines``      what engines write and want: acceptance records, costs, planned lengths
``otm.audit.tracing``      what a sampler does with its random numbers, followed draw by draw
``otm.statistics``   the two types of a number and how sure it is
``otm.audit``        is somebody else's verifier lossless?
``otm.table``        every scheme on every row of a batch, from one sort
``otm.verifiers``    what verifiers are made of, and more of them than have a name here
``otm.drafts``       what draft laws are made of
``otm.examples``     distributions to play with
``otm.overlap``      the curve H
``otm.plot``         pictures of problems and results
``otm.results``      what the verbs return
``otm.errors``       what they raise
===================  ==========================================================================
"""

import logging
import sys

import lazy_loader

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # the application decides who listens

# A command or a notebook that audits nothing loads no audit: the stub lists every public name once.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except AttributeError as error:  # with both the interpreter adds the nearest name
        raise AttributeError(str(error), name=name, obj=sys.modules[__name__]) from None
