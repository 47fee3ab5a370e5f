"""Is somebody else's verifier lossless, and if not, by how much?

Four audits of a callable, strongest first:

* *exact* (`audit_exactly`, on the standard instances `audit_battery`): its output law by integration over its uniforms and over
  every draft, against the target; nothing is sampled.
* *sequence* (`audit_sequence`, on standard toy models `audit_sequence_battery`): the same for the joint law of a block of tokens.
* *sampled* (`audit_sampled`, `audit_sampled_battery`; `audit_outputs` for given samples): any callable, any vocabulary, with proved
  error probabilities.
* *log* (`audit_log`): what a server logged, every context seen once.

`shrink` and `shrink_sequence` find the smallest problem on which a verifier fails; `str` of any result is a report in Markdown.
What a callable looks like: `otm.audit.candidate`. On the command line: ``python -m otm audit module:function``.
"""

from otm.audit.battery import BatteryAudit, SampledBatteryAudit, audit_battery, audit_sampled_battery
from otm.audit.candidate import BatchCandidate, Candidate, CandidateFailure, steps_of
from otm.audit.evidence import ConfidenceInterval, samples_needed
from otm.audit.exact import ExactAudit, audit_exactly, audit_steps, rounding_tolerance
from otm.audit.log import LogAudit, audit_log, audit_records
from otm.audit.records import InvalidRecord, Record, parse_record, read_log
from otm.audit.sampled import SampledAudit, audit_outputs, audit_sampled
from otm.audit.sequence import SequenceAudit, audit_sequence
from otm.audit.sequence_battery import SequenceBatteryAudit, audit_sequence_battery, shrink_sequence
from otm.audit.sequence_instances import table_model
from otm.audit.shrinking import shrink

__all__ = [
    "BatchCandidate",
    "BatteryAudit",
    "Candidate",
    "CandidateFailure",
    "ConfidenceInterval",
    "ExactAudit",
    "InvalidRecord",
    "LogAudit",
    "Record",
    "SampledAudit",
    "SampledBatteryAudit",
    "SequenceAudit",
    "SequenceBatteryAudit",
    "audit_battery",
    "audit_exactly",
    "audit_log",
    "audit_outputs",
    "audit_records",
    "audit_sampled",
    "audit_sampled_battery",
    "audit_sequence",
    "audit_sequence_battery",
    "audit_steps",
    "parse_record",
    "read_log",
    "rounding_tolerance",
    "samples_needed",
    "shrink",
    "shrink_sequence",
    "steps_of",
    "table_model",
]
