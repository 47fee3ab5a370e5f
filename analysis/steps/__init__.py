"""Tokens per target call, with schemes side by side on the same contexts and drafts."""
