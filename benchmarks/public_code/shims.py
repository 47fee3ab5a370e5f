"""All subjects: importing the files of shims enters them."""

from benchmarks.public_code import subjects  # isort: skip
from benchmarks.public_code import engines
from benchmarks.public_code.registry import SUBJECTS

__all__ = ["SUBJECTS", "engines", "subjects"]
