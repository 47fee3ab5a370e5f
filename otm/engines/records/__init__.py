"""Engines' records of acceptance: a file for each form, and one reader for all."""

from otm.engines.records.document import Form
from otm.engines.records.estimates import (
    LengthCheck,
    SurvivalBounds,
    TokensBounds,
    TokensEstimate,
    check_lengths,
    estimate_tokens,
    kaplan_meier,
    mean_bounds,
    request_mean,
    survival_bounds,
)
from otm.engines.records.reader import (
    FORMS,
    parse_acceptance,
    parse_models,
    read_acceptance,
    read_models,
)
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally
from otm.engines.records.typed import (
    record_of_counts,
    record_of_mean,
    record_of_means,
    record_of_rates,
)

__all__ = [
    "FORMS",
    "AcceptanceRecord",
    "Form",
    "LengthCheck",
    "SurvivalBounds",
    "Tally",
    "TokensBounds",
    "TokensEstimate",
    "check_lengths",
    "estimate_tokens",
    "kaplan_meier",
    "mean_bounds",
    "parse_acceptance",
    "parse_models",
    "read_acceptance",
    "read_models",
    "record_of_counts",
    "record_of_mean",
    "record_of_means",
    "record_of_rates",
    "request_mean",
    "survival_bounds",
]
