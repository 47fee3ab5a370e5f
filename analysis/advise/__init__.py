"""From two models and a file of prompts to a decision: speculate or not, with which scheme, and how
much faster.
"""
