"""A corpus of broken verifiers seen in public code: what an audit must find, and what usual tests
miss.

`BROKEN` has the mutants, each with its sources, an instance with rational probabilities and its
exact total variation there; `CONTROLS` has lossless verifiers, two of which have been reported as
lossy. `usual_tests` runs the tests that engines use on them; ``python -m evidence.corpus`` prints
the table of docs/broken_verifiers.md.
"""

from evidence.corpus.entries import BROKEN, CONTROLS
from evidence.corpus.mutant import Mutant, ToyModels

__all__ = ["BROKEN", "CONTROLS", "Mutant", "ToyModels"]
