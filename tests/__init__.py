"""The test suite; helpers are imported as `tests.*`, so run it as `python -m pytest` from the
repository root.
"""
