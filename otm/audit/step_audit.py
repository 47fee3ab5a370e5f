"""The step audit: code that drafts by itself, where the faults between drafter and verifier are.

A verifier that is lossless for given drafts may be handed drafts that are not what it takes them
for: drawn with the noise that it uses again, cut short after a look at them, taken from a stale
cache. A step drafts and verifies in one call, and its tokens, followed by samples of the target,
must have the target's law.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.joint_audit import (
    Affordable,
    Errors,
    JointAudit,
    Next,
    absorbed,
    check_end,
    joint,
    seeded_rng,
    whole_of,
)
from otm.pmf import check_count
from otm.sequence.models import (
    LanguageModel,
    OneByOne,
    check_context,
    check_model,
    next_distribution,
)
from otm.tracing.branching import MOST_SECONDS


@dataclasses.dataclass(frozen=True, eq=False)
class _After(OneByOne):
    """A model after a context: what the step sees as the beginning."""

    model: LanguageModel
    context: tuple[int, ...]
    end: int | None

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.model.num_tokens

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution after the tokens so far."""
        return absorbed(self._law, self.end)(tuple(int(token) for token in context)).copy()

    @functools.cached_property
    def _law(self) -> Next:
        return functools.cache(
            lambda row: next_distribution(self.model, (*self.context, *row), name="model")
        )


def step(
    candidate: Callable[[Any, Any, np.random.Generator], Any],
    *,
    draft: LanguageModel,
    target: LanguageModel,
    length: int,
    rng: np.random.Generator,
    context: Sequence[int] = (),
    end: int | None = None,
    tolerance: float | None = None,
    detect: float | Affordable = 0.05,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
    seconds: float = MOST_SECONDS,
) -> JointAudit:
    """Audit a decoding step that drafts by itself: the joint law of its tokens, followed by the
    target's, against the target's.

    Args:
        candidate: `step(draft_model, target_model, rng)` → 1 to `length` tokens. The models have
            `next(tokens)`, the distribution `(V,)` after the tokens that follow the context;
            randomness may come from `rng`, NumPy, `random` or torch.
        draft, target: toy models, `otm.sequence.TableModel` say.
        length: the most tokens that a step writes, γ + 1 as a rule; the law of so many is compared.
        rng: of samples, if there are any.
        context: what the step continues.
        end: the token after which nothing else may come.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless
            given.
        detect, false_alarm, missed: as for `sampled`, if it comes to that.
        seconds: time for branching; where it is up before all is known, samples decide.

    Returns:
        JointAudit: exact where the code's draws can be followed, else sampled, with the reason.

    Raises:
        CandidateFailure: if the step raises or returns no tokens. TooLarge: beyond four million
            blocks.

    Cost: two runs of the step for each outcome of its draws.

    >>> p, q = otm.sequence.ZerothOrder([0.5, 0.5]), otm.sequence.ZerothOrder([0.25, 0.75])
    >>> trusting = lambda draft, target, rng: [int(rng.choice(2, p=draft.next([])))]
    >>> found = step(trusting, draft=p, target=q, length=1, rng=np.random.default_rng(0))
    >>> found.verdict, found.total_variation
    ('not lossless', 0.25)
    """
    check_model(draft, name="draft")
    check_model(target, name="target")
    start = check_context(context)
    most = check_count(length, name="length")
    check_end(end, target.num_tokens)
    p, q = _After(draft, start, end), _After(target, start, end)
    whole = whole_of(candidate, "step")
    return joint(
        lambda: [tuple(np.asarray(whole.verify(p, q, seeded_rng())).reshape(-1).tolist())],
        [absorbed(q._law, end)],
        most,
        name=whole.name,
        instance=f"toy models on {q.num_tokens} tokens after context {start}",
        covered=("a step that drafts by itself",),
        not_covered=("state that passes to the next step", "processing of logits"),
        rng=rng,
        tolerance=tolerance,
        errors=Errors(detect, false_alarm, missed),
        seconds=seconds,
    )
