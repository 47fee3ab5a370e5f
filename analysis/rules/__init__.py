"""Rules compared: the one that an engine runs, the gain of others, the needs of each."""
