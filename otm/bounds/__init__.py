"""Bounds on acceptances; the direction is in the name."""
