"""Is somebody else's verifier lossless, and if not, by how much?

`battery` audits a callable of any kind as far as it can be done by default, and says in its first
line what that covers; `assert_lossless` does so in a test (and as a fixture, `otm_pytest`). What it
is made of, strongest first:

* `exact` (on the standard instances `exact_battery`): its output law by integration over its
  uniforms and over every draft, against the target; nothing is sampled. `sampler` does the same to
  the sampler of one of the library's own verifiers.
* `sequence` (on standard toy models `sequence_battery`): the same for the joint law of a block of
  tokens.
* `step`: a decoding step that drafts by itself, exact where it can be branched on, sampled where
  not.
* `generate`: a whole generation loop on toy language models with caches, padding and raw logits;
  likewise.
* `tree`: a kernel that takes a drafted tree and returns a path; likewise.
* `sampled` (`sampled_battery`; `sampled_blocks` for γ + 1 tokens jointly; `outputs` for given
  samples): any callable, any vocabulary, with proved error probabilities.
* `log`: what a server logged, every context seen once.
* `acceptance`: how many drafts an engine counted as accepted, which can accuse and cannot acquit.

`shrink` and `shrink_sequence` find the smallest problem on which a verifier fails; `str` of any
result is a report in Markdown. What a callable looks like: `otm.audit.candidate`. On the command
line: ``python -m otm audit module:function``.

Each result is a class in the module that makes it: `ExactAudit` in `otm.audit.exact_audit`, and so
on.
"""

from otm.audit.acceptance_audit import acceptance
from otm.audit.assertion import assert_lossless
from otm.audit.batteries import battery, exact_battery, sampled_battery, sequence_battery
from otm.audit.block_samples import sampled_blocks
from otm.audit.candidate import (
    BatchCandidate,
    BlockKernel,
    Candidate,
    LogitCandidate,
    WholeCandidate,
)
from otm.audit.exact_audit import exact, sampler
from otm.audit.generation_audit import generate
from otm.audit.log_audit import log, records_needed
from otm.audit.sampled_audit import outputs, sampled
from otm.audit.sequence_audit import sequence
from otm.audit.shrinking import shrink, shrink_sequence
from otm.audit.step_audit import step
from otm.audit.tree_audit import tree
from otm.evidence import samples_needed
from otm.tracing.output_law import rounding_tolerance

__all__ = [
    "BatchCandidate",
    "BlockKernel",
    "Candidate",
    "LogitCandidate",
    "WholeCandidate",
    "acceptance",
    "assert_lossless",
    "battery",
    "exact",
    "exact_battery",
    "generate",
    "log",
    "outputs",
    "records_needed",
    "rounding_tolerance",
    "sampled",
    "sampled_battery",
    "sampled_blocks",
    "sampler",
    "samples_needed",
    "sequence",
    "sequence_battery",
    "shrink",
    "shrink_sequence",
    "step",
    "tree",
]
