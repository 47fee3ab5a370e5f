"""The test suite; run `python -m pytest` from the repository root, as helpers are `tests.*`."""

import os

# Toy models gain nothing by a second thread, and where each of several workers starts as many as
# there are cores, threads spend four fifths of the time in waiting for each other. NumPy looks when
# it is imported, which conftest.py does.
os.environ.setdefault("OMP_NUM_THREADS", "1")
