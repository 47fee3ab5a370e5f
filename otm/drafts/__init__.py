"""Draft laws, one per file, and their registry."""

from otm.drafts.base import Law
from otm.drafts.deterministic import Deterministic
from otm.drafts.greedy import Greedy
from otm.drafts.iid import IID
from otm.drafts.product import Product
from otm.drafts.without_replacement import WithoutReplacement

LAWS: tuple[type[Law], ...] = (IID, WithoutReplacement, Greedy, Deterministic, Product)
"""Every draft law class; `compare` and the contract tests walk this list."""

__all__ = ["IID", "LAWS", "Deterministic", "Greedy", "Law", "Product", "WithoutReplacement"]
