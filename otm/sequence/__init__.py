"""Decoding over sequences: drafts of several tokens, verified level by level."""

from otm.sequence.draft_selection import Round, Selection, draft_sequences, select_draft
from otm.sequence.models import LanguageModel, TableModel

__all__ = ["LanguageModel", "Round", "Selection", "TableModel", "draft_sequences", "select_draft"]
