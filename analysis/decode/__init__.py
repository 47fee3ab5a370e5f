"""Decoding of prompts with any algorithm: decoders as text, results files, tokens per serial
call.
"""
