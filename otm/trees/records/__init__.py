"""What engines write about acceptance: one file for each form, one class for what they hold, one call that recognises them."""

from otm.trees.records.document import Form
from otm.trees.records.estimates import (
    LengthCheck,
    SurvivalBounds,
    TokensEstimate,
    check_lengths,
    estimate_tokens,
    kaplan_meier,
    request_mean_interval,
    survival_bounds,
)
from otm.trees.records.reader import FORMS, parse_acceptance, read_acceptance
from otm.trees.records.record import AcceptanceRecord
from otm.trees.records.tally import Tally

__all__ = [
    "FORMS",
    "AcceptanceRecord",
    "Form",
    "LengthCheck",
    "SurvivalBounds",
    "Tally",
    "TokensEstimate",
    "check_lengths",
    "estimate_tokens",
    "kaplan_meier",
    "parse_acceptance",
    "read_acceptance",
    "request_mean_interval",
    "survival_bounds",
]
