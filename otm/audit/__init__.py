"""Is somebody else's verifier lossless, and if not, by how much?

Audits of a callable, strongest first:

* `exact` (on the standard instances `exact_battery`): its output law by integration over its uniforms and over every draft, against
  the target; nothing is sampled. `sampler` does the same to the sampler of one of the library's own verifiers.
* `sequence` (on standard toy models `sequence_battery`): the same for the joint law of a block of tokens.
* `step`: a decoding step that drafts by itself, exact where it can be branched on, sampled where not.
* `generate`: a whole generation loop on toy language models with caches, padding and raw logits; likewise.
* `tree`: a kernel that takes a drafted tree and returns a path; likewise.
* `sampled` (`sampled_battery`; `outputs` for given samples): any callable, any vocabulary, with proved error probabilities.
* `log`: what a server logged, every context seen once.

`shrink` and `shrink_sequence` find the smallest problem on which a verifier fails; `str` of any result is a report in Markdown.
What a callable looks like: `otm.audit.candidate`. On the command line: ``python -m otm audit module:function``.

Each result is a class in the module that makes it: `ExactAudit` in `otm.audit.exact_audit`, and so on.
"""

from otm.audit.batteries import exact_battery, sampled_battery, sequence_battery
from otm.audit.candidate import BatchCandidate, Candidate
from otm.audit.evidence import samples_needed
from otm.audit.exact_audit import exact, sampler
from otm.audit.generation_audit import generate
from otm.audit.integration import rounding_tolerance
from otm.audit.log_audit import log
from otm.audit.sampled_audit import outputs, sampled
from otm.audit.sequence_audit import sequence
from otm.audit.shrinking import shrink, shrink_sequence
from otm.audit.step_audit import step
from otm.audit.tree_audit import tree

__all__ = [
    "BatchCandidate",
    "Candidate",
    "exact",
    "exact_battery",
    "generate",
    "log",
    "outputs",
    "rounding_tolerance",
    "sampled",
    "sampled_battery",
    "sampler",
    "samples_needed",
    "sequence",
    "sequence_battery",
    "shrink",
    "shrink_sequence",
    "step",
    "tree",
]
