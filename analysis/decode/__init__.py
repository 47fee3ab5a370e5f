"""Decoding of prompts with any algorithm: decoders as text, results, tokens per serial call."""
