"""From two models and prompts to a decision: speculate or not, how, and how much faster."""
