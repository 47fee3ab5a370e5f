"""Measure coupling schemes on the logits of real language models (installed as `otm_analysis`)."""
