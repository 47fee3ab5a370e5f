"""Pairs of language models: loading, prompts, processing of logits, whole trees in one pass, how
long passes take.
"""
