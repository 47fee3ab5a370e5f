"""Audits of verifiers from elsewhere: is a verifier lossless, and if not, by how much?

*Candidates.* Code under audit is a `Candidate`: an abstract base with one final class for each way
of being called, which describes, samples and integrates the code, and yields its checks. `classify`
finds the class of a plain function.

======================  =============================================  ========================
candidate               called as                                      audited by
======================  =============================================  ========================
`TokenCandidate`        ``verify(draft, target, drafts, uniforms)``    `exact`, `sampled`
`BatchCandidate`        ``verify(draft, target, drafts, rng)``         `sampled`
`VerifierCandidate`     one of the library's verifiers                 `exact`, `sampled`
`BlockCandidate`        ``verify(draft, target, drafts, uniforms)``    `sequence`
`BlockBatchCandidate`   ``verify(draft, target, drafts, rng)``         `sampled_blocks`
`LogitCandidate`        with raw logits, and a temperature at the end  `exact`, `sequence`
`StepCandidate`         ``step(draft_model, target_model, rng)``       `step`
`TreeCandidate`         ``verify(tree, rng)``                          `tree_kernel`
`GenerationCandidate`   ``generate(draft, target, request)``           `generate`
======================  =============================================  ========================

*Checks.* A `Check` is one audit on one instance: it has a name ("zeros, IID(k=2)"), a kind
("exact" or "sampled"), and runs to one result. A list of checks is all that a battery is:

* `battery` carries them out within a time and gives one verdict, with the smallest problem on which
  the candidate fails;
* `assert_lossless` asserts that verdict in a test (and as a fixture, `otm.pytest_plugin`);
* `parametrize_with_checks` makes each check a test of pytest, to be skipped, or expected to fail,
  by name.

*Audits*, strongest first:

* `exact`, and `sequence` of a block: the output law by integration over the uniforms and over every
  draft, against the target; nothing is sampled. `library_sampler` does the same to the sampler of
  one of the library's own verifiers.
* `step`, `tree_kernel`, `generate`: the joint law of what code writes that draws by itself, exact
  where its draws can be branched on, sampled where not.
* `several_steps`: the same of a text that a verifier of blocks or a kernel of trees writes, by the
  key of the noise that its drafts are drawn with.
* `sampled`, and `sampled_blocks`; `outputs` for given samples: any callable, any vocabulary, with
  proved error probabilities. `Errors` says what must be found, and how often they may be wrong.
* `server_log`: what a server logged, every context seen once; where the noise of its sampler is
  known, `tokens_to_mismatch` says how few tokens tell.
* `engine`: a running engine, by the texts that it writes with the tiny pair of `write_pair`.
* `same_text`: two runs that should write the same, from their log-probabilities.
* `acceptance_counts`: how many drafts an engine counted as accepted, which can accuse and cannot
  acquit.

*Reports.* Every result is an `otm.audit.report.Audit`: a verdict, what it covers, and a report in
Markdown (`str`). `shrink` and `shrink_sequence` find the smallest problem on which a verifier
fails. On the command line: ``otm audit module:function``.
"""

from otm.audit.acceptance_audit import acceptance_counts
from otm.audit.batteries import battery
from otm.audit.blocks import (
    BlockBatchCandidate,
    BlockCandidate,
    sampled_blocks,
    sequence,
    shrink_sequence,
)
from otm.audit.budget import Deadline, DetectionBudget, Errors
from otm.audit.callables import AcceptanceInterval, CallableVerifier, from_callable
from otm.audit.candidate import Candidate, Check, Scope
from otm.audit.classification import classify
from otm.audit.draft_noise import several_steps
from otm.audit.end_to_end import StepCandidate, step
from otm.audit.engine_audit import engine, write_pair
from otm.audit.evidence import samples_needed, tokens_to_mismatch
from otm.audit.generations import GenerationCandidate, generate
from otm.audit.hugging_face import as_hf
from otm.audit.log_audit import records_needed, server_log
from otm.audit.logits import LogitCandidate
from otm.audit.mlx_face import as_mlx
from otm.audit.one_token import (
    BatchCandidate,
    TokenCandidate,
    VerifierCandidate,
    exact,
    library_sampler,
    sampled,
    shrink,
)
from otm.audit.same_text_audit import same_text
from otm.audit.sampled_audit import outputs
from otm.audit.testing import assert_lossless, parametrize_with_checks
from otm.audit.tracing.output_law import rounding_tolerance
from otm.audit.trees import TreeCandidate, tree_kernel

__all__ = [
    "AcceptanceInterval",
    "BatchCandidate",
    "BlockBatchCandidate",
    "BlockCandidate",
    "CallableVerifier",
    "Candidate",
    "Check",
    "Deadline",
    "DetectionBudget",
    "Errors",
    "GenerationCandidate",
    "LogitCandidate",
    "Scope",
    "StepCandidate",
    "TokenCandidate",
    "TreeCandidate",
    "VerifierCandidate",
    "acceptance_counts",
    "as_hf",
    "as_mlx",
    "assert_lossless",
    "battery",
    "classify",
    "engine",
    "exact",
    "from_callable",
    "generate",
    "library_sampler",
    "outputs",
    "parametrize_with_checks",
    "records_needed",
    "rounding_tolerance",
    "same_text",
    "sampled",
    "sampled_blocks",
    "samples_needed",
    "sequence",
    "server_log",
    "several_steps",
    "shrink",
    "shrink_sequence",
    "step",
    "tokens_to_mismatch",
    "tree_kernel",
    "write_pair",
]
