"""Verifiers, one per file, and their registry."""

from otm.verifiers.base import Conditional, Rule, Shared, Verifier
from otm.verifiers.kseq import KSeq
from otm.verifiers.maximal import Maximal
from otm.verifiers.otm import Otm
from otm.verifiers.recursive_rejection import RecursiveRejection

VERIFIERS: tuple[type[Verifier], ...] = (Maximal, KSeq, RecursiveRejection, Otm)
"""Every verifier class; `compare` and the contract tests walk this list."""

__all__ = ["VERIFIERS", "Conditional", "KSeq", "Maximal", "Otm", "RecursiveRejection", "Rule", "Shared", "Verifier"]
