"""Serving engines: records of acceptance, costs, and draft lengths planned from both."""

from otm.engines.chain import chain_expected_tokens, chain_speedup, optimal_chain_length
from otm.engines.difference import RecordDifference, compare_records
from otm.engines.planning import (
    LengthChoice,
    LengthPlan,
    MeanPlan,
    plan_lengths,
    plan_mean,
    vllm_lengths,
)
from otm.engines.positions import PositionAcceptance
from otm.engines.recording import StepRecord
from otm.engines.records import (
    AcceptanceRecord,
    LengthCheck,
    SurvivalBounds,
    TokensBounds,
    TokensEstimate,
    check_lengths,
    estimate_tokens,
    kaplan_meier,
    mean_bounds,
    parse_acceptance,
    parse_models,
    read_acceptance,
    read_models,
    record_of_counts,
    record_of_mean,
    record_of_means,
    record_of_rates,
    request_mean,
    survival_bounds,
)
from otm.engines.surface import CostSurface, read_costs

__all__ = [
    "AcceptanceRecord",
    "CostSurface",
    "LengthCheck",
    "LengthChoice",
    "LengthPlan",
    "MeanPlan",
    "PositionAcceptance",
    "RecordDifference",
    "StepRecord",
    "SurvivalBounds",
    "TokensBounds",
    "TokensEstimate",
    "chain_expected_tokens",
    "chain_speedup",
    "check_lengths",
    "compare_records",
    "estimate_tokens",
    "kaplan_meier",
    "mean_bounds",
    "optimal_chain_length",
    "parse_acceptance",
    "parse_models",
    "plan_lengths",
    "plan_mean",
    "read_acceptance",
    "read_costs",
    "read_models",
    "record_of_counts",
    "record_of_mean",
    "record_of_means",
    "record_of_rates",
    "request_mean",
    "survival_bounds",
    "vllm_lengths",
]
