"""Measure coupling schemes on the logits of real language models (an application of the repository, not of the wheel)."""
