"""The step audit: code that drafts by itself, where the faults between drafter and verifier are.

A verifier that is lossless for given drafts may be handed drafts that are not what it takes them
for: drawn with the noise that it uses again, cut short after a look at them, taken from a stale
cache. A step drafts and verifies in one call, and its tokens, followed by samples of the target,
must have the target's law.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.budget import USUAL, Errors
from otm.audit.candidate import Check, Scope, as_kind
from otm.audit.end_to_end import (
    DRAWS,
    EndToEndCandidate,
    WrittenAudit,
    check_end,
    joint,
    seeded_rng,
    stop_after_end_token,
)
from otm.audit.integration import Next
from otm.errors import TooLarge
from otm.pmf import RNGLike, check_count
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
        return stop_after_end_token(self._law, self.end)(
            tuple(int(token) for token in context)
        ).copy()

    @functools.cached_property
    def _law(self) -> Next:
        return functools.cache(
            lambda row: next_distribution(self.model, (*self.context, *row), name="model")
        )


_LOOKS = 152
"""Runs of a step that tell how many tokens it writes."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepCandidate(EndToEndCandidate):
    """A decoding step that drafts by itself.

    Args:
        verify: the function, `step(draft_model, target_model, rng)`, as `otm.audit.step` takes it.
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> StepCandidate(lambda draft, target, rng: [0], "zero").name
    'zero'
    """

    description: ClassVar[str] = "a step that drafts by itself"
    called: ClassVar[str] = "step(draft_model, target_model, rng)"

    def instances(self, scope: Scope) -> list[Check]:
        """Return every pair of models, for as many tokens as it writes."""
        length = max(standard.STEP_LENGTH, self._longest())
        models = standard.step_models(length, standard.chained_models(scope.pair))
        if not models:
            raise TooLarge(
                f"The step writes up to {length} tokens, more than joint laws are kept of. Let it "
                "draft fewer, or call otm.audit.step."
            )
        asked = f"draft=draft, target=target, length={length}, {DRAWS}"
        return [
            Check(
                name,
                "",
                "windows" if name in standard.WINDOW_MODELS else "steps",
                "exact",
                functools.partial(step, self, draft=p, target=q, length=length),
                needed=name not in standard.WINDOW_MODELS,
                again=f"{standard.written(p, q)}result = otm.audit.step({{}}, {asked})",
            )
            for name, (p, q) in models.items()
        ]

    def _longest(self) -> int:
        """Return how many tokens it was seen to write; what fails here is counted later."""
        longest = 0
        pairs = itertools.cycle(standard.chained_models().values())
        for seed, (draft, target) in enumerate(itertools.islice(pairs, _LOOKS)):
            # a drafter that is the target has all its drafts accepted
            drafter = target if seed % 2 else draft
            try:
                tokens = self.verify(drafter, target, np.random.default_rng(seed))
                longest = max(longest, int(np.asarray(tokens).size))
            except (Exception, SystemExit):
                break
        return longest


def step(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    length: int,
    rng: RNGLike,
    context: Sequence[int] = (),
    end: int | None = None,
    tolerance: float | None = None,
    errors: Errors = USUAL,
    seconds: float = MOST_SECONDS,
) -> WrittenAudit:
    """Audit a step that drafts by itself: the joint law of its tokens against the target's.

    Its tokens are followed by samples of the target.

    Args:
        candidate: a `StepCandidate`, or `step(draft_model, target_model, rng)` → 1 to `length`
            tokens. The models have `next(tokens)`, the distribution `(V,)` after the tokens that
            follow the context; randomness may come from `rng`, NumPy, `random` or torch.
        draft, target: toy models, `otm.sequence.TableModel` say.
        length: the most tokens that a step writes, γ + 1 as a rule; the law of so many is compared.
        rng: of samples, if there are any: a NumPy generator, or a seed of one.
        context: what the step continues.
        end: the token after which nothing else may come.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless
            given.
        errors: of samples, if it comes to that; .05 is to be found unless they say otherwise.
        seconds: time for branching; where it is up before all is known, samples decide.

    Returns:
        WrittenAudit: exact where the code's draws can be followed, else sampled, with the reason.

    Raises:
        CandidateFailure: if the step raises or returns no tokens. TooLarge: beyond four million
            blocks.

    Cost: two runs of the step for each outcome of its draws.

    >>> import numpy as np
    >>> import otm
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
    thing = as_kind(candidate, StepCandidate)
    return joint(
        lambda: [tuple(np.asarray(thing.verify(p, q, seeded_rng())).reshape(-1).tolist())],
        [stop_after_end_token(q._law, end)],
        most,
        name=thing.name,
        instance=f"toy models on {q.num_tokens} tokens after context {start}",
        covered=("a step that drafts by itself",),
        not_covered=("state that passes to the next step", "processing of logits"),
        rng=rng,
        tolerance=tolerance,
        errors=errors,
        seconds=seconds,
    )
