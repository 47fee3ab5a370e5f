"""The entries of the corpus that draft by themselves or verify trees, with their exact total
variation.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.corpus import steps, trees
from evidence.corpus.entries import NO_REPORT
from otm.audit.end_to_end import JointAudit, WrittenAudit, step
from otm.audit.standard_problems import table_model
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.trees import tree_kernel
from otm.sequence.models import LanguageModel, ZerothOrder

SIBLINGS = (-1, 0, 0)
"""The tree: two drafts for one position."""

_STEP_LAWS = (
    ((1 / 2, 3 / 10, 1 / 5), (1 / 5, 7 / 20, 9 / 20)),
    ((1 / 2, 3 / 10, 1 / 5), (1 / 10, 9 / 20, 9 / 20)),
)
_LATER_DRAFT = ((1 / 2, 1 / 4, 1 / 4), (1 / 5, 3 / 5, 1 / 5), (2 / 5, 2 / 5, 1 / 5))
_LATER_TARGET = ((1 / 5, 3 / 10, 1 / 2), (1 / 2, 1 / 4, 1 / 4), (1 / 10, 1 / 10, 4 / 5))


@dataclasses.dataclass(frozen=True, eq=False)
class Whole:
    """Broken code that is audited as a whole.

    Attributes:
        candidate: a step `step(draft, target, rng)`, or a kernel of trees `verify(tree, rng)`; its
            docstring says what is wrong.
        sources: as of `Mutant`.
        total_variation: of two tokens of a step, of one of a tree, on the models of `audited`;
            exact.
        siblings: "" for a step; of a tree, how its siblings were drawn.
    """

    candidate: Callable[..., Any]
    sources: tuple[str, ...]
    total_variation: Fraction
    siblings: str = ""

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.candidate.__name__.replace("_", " ")

    def audited(self) -> WrittenAudit:
        """Audit it on two chains on three tokens, whose laws after the first token depend on it."""
        first = _STEP_LAWS[bool(self.siblings)]
        draft = table_model(
            lambda context: _LATER_DRAFT[context[-1]] if context else first[0], 3, 2
        )
        target = table_model(
            lambda context: _LATER_TARGET[context[-1]] if context else first[1], 3, 2
        )
        return self.audited_on(draft, target)

    def audited_on(self, draft: LanguageModel, target: LanguageModel) -> WrittenAudit:
        """Audit it on these models: two tokens of a step, the one token of a tree of siblings."""
        rng = np.random.default_rng(0)
        if not self.siblings:
            return step(self.candidate, draft=draft, target=target, length=2, rng=rng)
        replacement = self.siblings == "with replacement"
        return tree_kernel(
            self.candidate,
            draft=draft,
            target=target,
            parents=SIBLINGS,
            replacement=replacement,
            rng=rng,
        )

    def first_token_law(self, draft: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the exact law of the first token `(V,)` that it writes, where the models' laws are
        the same everywhere.
        """
        found = self.audited_on(ZerothOrder(np.asarray(draft)), ZerothOrder(np.asarray(target)))
        assert isinstance(found, JointAudit)
        law = found.law
        return np.asarray(law.reshape(len(law), -1).sum(axis=1), dtype=np.float64)

    @property
    def differs_when_certain(self) -> bool:
        """Whether it writes something else than a certain target; drafts are certain, too, or
        siblings of which there are two.
        """
        certain = np.eye(2)
        drafts = np.full((1, 2), 0.5) if self.siblings else certain
        try:
            return any(
                self.first_token_law(p, q)[int(q.argmax())] < 0.5
                for p, q in itertools.product(drafts, certain)
            )
        except CandidateFailure:
            return True


WHOLES: tuple[Whole, ...] = (
    Whole(
        steps.shared_noise,
        ("vllm-project/vllm#47386", "vllm-project/vllm#54282"),
        Fraction(13, 460),
    ),
    Whole(steps.key_as_uniform, (NO_REPORT,), Fraction(3, 25)),
    Whole(steps.skip_after_a_look, (NO_REPORT,), Fraction(1, 8)),
    Whole(
        steps.capped_ranks,
        ("Rmuk655/Distill-Spec-Research, verifiers/verifier.py at 08571bb",),
        Fraction(7, 130),
    ),
    Whole(steps.reseeded_coin, (NO_REPORT,), Fraction(3, 50)),
    Whole(steps.bonus_from_the_wrong_row, (NO_REPORT,), Fraction(17, 100)),
    Whole(steps.stale_row, (NO_REPORT,), Fraction(9, 100)),
    Whole(
        steps.draft_law_in_another_order,
        ("huggingface/transformers, generation/candidate_generator.py at v5.23.0",),
        Fraction(3, 10),
    ),
    Whole(trees.no_renormalisation, (NO_REPORT,), Fraction(9, 100), "with replacement"),
    Whole(trees.youngest_first, (NO_REPORT,), Fraction(9, 280), "without replacement"),
    Whole(trees.duplicates_skipped, (NO_REPORT,), Fraction(9, 200), "with replacement"),
)
"""Broken steps and kernels of trees."""
