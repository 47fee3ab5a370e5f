"""Recorded top-m log-probabilities, read in batches without models (docs/traces.md)."""
