"""Verifiers, one per file, and the registry `VERIFIERS`."""

from otm.verifiers.action_distance import ActionDistance
from otm.verifiers.base import Conditional, CurvedVerifier, Rule, Shared, Verifier
from otm.verifiers.bounded_regret import BoundedRegret
from otm.verifiers.cactus import Cactus
from otm.verifiers.cascade import Cascade
from otm.verifiers.ensemble import Ensemble
from otm.verifiers.fuzzy import Fuzzy
from otm.verifiers.greedy_optimal import GreedyOptimal
from otm.verifiers.grouped import Grouped
from otm.verifiers.kseq import KSeq, gamma_star
from otm.verifiers.lantern import Lantern
from otm.verifiers.lenience import Lenience
from otm.verifiers.list_race import ListRace
from otm.verifiers.mars import Mars
from otm.verifiers.maximal import Maximal
from otm.verifiers.mentored import Mentored
from otm.verifiers.minhash import MinHash
from otm.verifiers.naive import Naive
from otm.verifiers.naive_tree import NaiveTree
from otm.verifiers.optimal import BatchedOptimalRule, Optimal, prepare_batch
from otm.verifiers.race import Race
from otm.verifiers.rao_blackwell import rao_blackwell_acceptance
from otm.verifiers.recursive_rejection import RecursiveRejection
from otm.verifiers.relaxed_acceptance import RelaxedAcceptance
from otm.verifiers.select_then_reject import SelectThenReject, selection_with_law
from otm.verifiers.spechub import SpecHub
from otm.verifiers.threshold_matching import ThresholdMatching
from otm.verifiers.tournament import Tournament
from otm.verifiers.transport_plan import TransportPlan
from otm.verifiers.tv_optimal import TvOptimal
from otm.verifiers.typical_acceptance import TypicalAcceptance
from otm.verifiers.without_replacement_optimal import WithoutReplacementOptimal

VERIFIERS: tuple[type[Verifier], ...] = (
    Maximal,
    Naive,
    NaiveTree,
    KSeq,
    RecursiveRejection,
    SpecHub,
    GreedyOptimal,
    SelectThenReject,
    Tournament,
    Optimal,
    WithoutReplacementOptimal,
    Race,
    ListRace,
    MinHash,
    TransportPlan,
    Mentored,
    Lenience,
    TypicalAcceptance,
    RelaxedAcceptance,
    BoundedRegret,
    Mars,
    ThresholdMatching,
    Ensemble,
    Cascade,
    Cactus,
    TvOptimal,
    Fuzzy,
    Lantern,
    Grouped,
    ActionDistance,
)
"""Every verifier class; `otm.compare`, the contract tests and the documents walk this list."""

__all__ = [
    "VERIFIERS",
    "ActionDistance",
    "BatchedOptimalRule",
    "BoundedRegret",
    "Cactus",
    "Cascade",
    "Conditional",
    "CurvedVerifier",
    "Ensemble",
    "Fuzzy",
    "GreedyOptimal",
    "Grouped",
    "KSeq",
    "Lantern",
    "Lenience",
    "ListRace",
    "Mars",
    "Maximal",
    "Mentored",
    "MinHash",
    "Naive",
    "NaiveTree",
    "Optimal",
    "Race",
    "RecursiveRejection",
    "RelaxedAcceptance",
    "Rule",
    "SelectThenReject",
    "Shared",
    "SpecHub",
    "ThresholdMatching",
    "Tournament",
    "TransportPlan",
    "TvOptimal",
    "TypicalAcceptance",
    "Verifier",
    "WithoutReplacementOptimal",
    "gamma_star",
    "prepare_batch",
    "rao_blackwell_acceptance",
    "selection_with_law",
]
