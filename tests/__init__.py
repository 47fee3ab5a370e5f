"""The test suite; run `python -m pytest` from the repository root, as helpers are `tests.*`."""
