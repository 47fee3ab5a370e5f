"""One file an engine: `python -m evidence.engines.runners.NAME OUT` in its environment."""
