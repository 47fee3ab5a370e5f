"""Rules side by side: which one an engine runs, what the others would give, and what they need."""
