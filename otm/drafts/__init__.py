"""Draft laws, one per file, and the registry `LAWS`."""

from otm.drafts.base import CountedLaw, Law
from otm.drafts.greedy import Greedy
from otm.drafts.iid import IID
from otm.drafts.product import Product
from otm.drafts.threshold_race import ThresholdRace
from otm.drafts.top_k import TopK
from otm.drafts.without_replacement import WithoutReplacement

LAWS: tuple[type[Law], ...] = (IID, WithoutReplacement, Greedy, TopK, Product, ThresholdRace)
"""Every draft law class; `compare` and the contract tests walk this list."""

SINGLE_DRAFTER_LAWS: tuple[type[Law], ...] = tuple(law for law in LAWS if law.one_drafter)
"""The laws in `LAWS` that need a single draft distribution, and so fit any pair of models."""

__all__ = [
    "IID",
    "LAWS",
    "SINGLE_DRAFTER_LAWS",
    "CountedLaw",
    "Greedy",
    "Law",
    "Product",
    "ThresholdRace",
    "TopK",
    "WithoutReplacement",
]
