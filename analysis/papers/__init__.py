"""The papers' experiments on the shipped pair: what figures read."""
