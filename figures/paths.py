"""Folders of captured data and of the figures' output."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent
DATA = ROOT / "data"
"""Captures from the shipped pair, committed: no figure needs torch."""

OUT = ROOT / "out"
"""Default output folder, not committed: `python -m figures` regenerates it."""
