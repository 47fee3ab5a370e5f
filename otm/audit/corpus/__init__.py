"""A corpus of broken verifiers seen in public code: what an audit must find, and what usual tests miss.

`CORPUS` has the mutants, each with its sources, an instance with rational probabilities and its exact total variation there;
`CONTROLS` has lossless verifiers, two of which have been reported as lossy. `usual_tests` runs the tests that engines use on them;
``python -m otm.audit.corpus`` prints the table of docs/audit.md.
"""

from otm.audit.corpus.entries import CONTROLS, CORPUS
from otm.audit.corpus.mutant import Models, Mutant

__all__ = ["CONTROLS", "CORPUS", "Models", "Mutant"]
