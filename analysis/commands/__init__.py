"""The commands of `python -m analysis`, one per file."""
