"""Decoding prompts with any algorithm: its text, its results file, tokens per serial call."""
