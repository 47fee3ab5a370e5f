"""Pairs of language models: loading, prompts, processing, trees in one pass, times of passes."""
