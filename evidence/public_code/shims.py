"""All subjects: importing the files of shims enters them."""

from evidence.public_code import subjects  # isort: skip
from evidence.public_code import engines
from evidence.public_code.registry import SUBJECTS

__all__ = ["SUBJECTS", "engines", "subjects"]
