"""Draft laws, one per file, and their registry."""

from otm.drafts.base import Law
from otm.drafts.iid import IID

LAWS: tuple[type[Law], ...] = (IID,)
"""Every draft law class; `compare` and the contract tests walk this list."""

__all__ = ["IID", "LAWS", "Law"]
