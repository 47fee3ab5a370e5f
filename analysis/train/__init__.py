"""Training a small pair, checkpointed."""
