"""What an entry of the corpus is."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from otm.audit.candidate import UniformsCandidate
from otm.drafts import Law
from otm.problem import Problem
from otm.sequence.models import TableModel


@dataclasses.dataclass(frozen=True, eq=False)
class ToyModels:
    """An instance for a block verifier: toy models and the number of drafts.

    Attributes:
        draft, target: complete for blocks of `num_drafts` drafts and one token more.
        num_drafts: γ.
    """

    draft: TableModel
    target: TableModel
    num_drafts: int


@dataclasses.dataclass(frozen=True, eq=False)
class Mutant:
    """A broken verifier, where it was seen, and how wrong it is on one instance.

    Attributes:
        name: a few words.
        description: what it does, in one sentence.
        sources: where it was seen or reported: "owner/repository#number", or a reference of
            docs/theory.md.
        candidate: a few lines in the audit's signature; a block verifier where `instance` is
            `ToyModels`.
        instance: the standard instance, with rational probabilities.
        total_variation: between its output law and the target on `instance`, exactly.
        in_tests: what an engine's test of the kernel runs: the fault is not in the kernel itself
            where this is another function.
        law_in_tests: how such a test draws the drafts.
        beyond_samples: why the sampled audit does not find it; empty where it does.
        sampled_on: the instance of the sampled audit, where `instance` is too mild for a test that
            counts; None if it is not.
    """

    name: str
    description: str
    sources: tuple[str, ...]
    candidate: UniformsCandidate
    instance: Problem | ToyModels
    total_variation: Fraction
    in_tests: UniformsCandidate
    law_in_tests: Law
    sampled_on: Problem | None = None
    beyond_samples: str = ""
