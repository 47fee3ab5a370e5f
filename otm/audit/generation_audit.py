"""The generation audit: whole texts, where one iteration meets the next.

Caches, padding, positions, lengths that differ within a batch, the processing of logits and the end
of sequence are right or wrong over several iterations only. So a whole generation loop is run on a
toy language model that honours all of it (`otm.audit.toy_language`), and the joint law of the first
tokens of every row of a batch is held against the target's, its logits processed by this library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.budget import USUAL, Errors
from otm.audit.candidate import as_kind
from otm.audit.end_to_end import (
    DRAWS,
    EndToEndCandidate,
    Instance,
    WrittenAudit,
    check_end,
    joint,
    seeded_rng,
    stop_after_end_token,
)
from otm.audit.integration import Next
from otm.audit.toy_language import ToyLanguage
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import check_count, check_instance, plain_integers
from otm.tracing.branching import MOST_SECONDS

DRAFT = ToyLanguage([[3 / 4, 1 / 4], [1 / 4, 3 / 4], [1 / 2, 1 / 2]])  # type: ignore[arg-type]
TARGET = ToyLanguage([[1 / 2, 1 / 2], [3 / 5, 2 / 5], [1 / 5, 4 / 5]])  # type: ignore[arg-type]
"""The pair of toy models that loops are run on unless others are given."""


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """What a generation loop is asked for.

    Attributes:
        input_ids: the prompts `(B, S)`, padded with token 0.
        attention_mask: `(B, S)`, 0 at the padding.
        length: how many tokens each row is to get.
        temperature, top_k, top_p, min_p: what the loop is to apply to both models' raw logits, in
            this order.
        end: the token that ends a row; None if none does.
        rng: for loops that draw from NumPy.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    length: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    end: int | None
    rng: np.random.Generator


@dataclasses.dataclass(frozen=True, eq=False)
class GenerationCandidate(EndToEndCandidate):
    """A generation loop that writes whole texts.

    Args:
        verify: the function, `generate(draft_model, target_model, request)`, as
            `otm.audit.generate` takes it.
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> GenerationCandidate(lambda draft, target, request: [[0]], "zero").name
    'zero'
    """

    description: ClassVar[str] = "a generation"
    called: ClassVar[str] = "generate(draft_model, target_model, request)"

    def instances(self) -> list[Instance]:
        """Return the standard requests."""
        again = "result = otm.audit.generate({{}}, **standard_problems.GENERATIONS[{!r}], {})"
        return [
            Instance(name, name, dict(request), again.format(name, DRAWS))
            for name, request in standard.GENERATIONS.items()
        ]

    def audited(self, **options: Any) -> WrittenAudit:
        """Return the audit of one request."""
        return generate(self, **options)


def generate(
    candidate: object,
    *,
    rng: np.random.Generator,
    prompts: Sequence[Sequence[int]] = ((0, 1),),
    length: int = 3,
    draft: ToyLanguage = DRAFT,
    target: ToyLanguage = TARGET,
    padding: str = "left",
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    end: int | None = None,
    tolerance: float | None = None,
    errors: Errors = USUAL,
    seconds: float = MOST_SECONDS,
) -> WrittenAudit:
    """Audit a generation loop: the joint law of every row's first tokens against the target's.

    Args:
        candidate: a `GenerationCandidate`, or `generate(draft, target, request)` → for each prompt
            at least `length` new tokens, or fewer up to and with `end` (−1 is padding). The models
            are called as real ones: `model(input_ids, attention_mask, cache, use_cache)` → raw
            logits and cache.
        rng: of samples, if there are any.
        prompts: one or more, of any lengths of at least 1.
        length: L, how many new tokens of each row are compared.
        draft, target: toy models.
        padding: "left" or "right", of shorter prompts.
        temperature, top_k, top_p, min_p: what the loop is asked to do to the logits; temperature 0
            is greedy.
        end: the end of sequence.
        tolerance, errors, seconds: as for `step`.

    Returns:
        WrittenAudit: exact where the code's draws can be followed, else sampled, with the reason.

    Raises:
        CandidateFailure: if the loop raises or returns too little. InvalidParameter: on prompts
            that are none.
        TooLarge: beyond four million texts.

    Cost: two runs of the loop for each outcome of its draws: some hundred for one row of three
        tokens, squared for two rows.

    >>> def plain(draft, target, request):
    ...     text = request.input_ids[0].tolist()
    ...     for _ in range(request.length):
    ...         mass = otm.from_logits(
    ...             target([text]).logits[0, -1], temperature=request.temperature
    ...         )
    ...         text.append(int(request.rng.choice(len(mass), p=mass)))
    ...     return [text[-request.length :]]
    >>> generate(plain, rng=np.random.default_rng(0), temperature=0.5).verdict
    'lossless'
    """
    most = check_count(length, name="length")
    processing = Processing(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    thing = as_kind(candidate, GenerationCandidate)
    check_instance(draft, ToyLanguage, name="draft")
    check_instance(target, ToyLanguage, name="target")
    check_end(end, target.num_tokens)
    starts = _check_prompts(prompts, target.num_tokens)
    if padding not in ("left", "right"):
        raise InvalidParameter(f"padding must be 'left' or 'right'; got {padding!r}. Choose one.")
    width = max(map(len, starts))
    ids, mask = np.zeros((2, len(starts), width), dtype=np.int64)
    for i, start in enumerate(starts):
        place = slice(width - len(start), width) if padding == "left" else slice(0, len(start))
        ids[i, place], mask[i, place] = start, 1

    def law_after(start: tuple[int, ...]) -> Next:
        def law(row: tuple[int, ...]) -> NDArray[np.float64]:
            with np.errstate(divide="ignore"):
                logits = np.log(target.next((*start, *row)))
            return np.asarray(processing(logits))

        return stop_after_end_token(law, end)

    def write() -> list[tuple[int, ...]]:
        request = Request(
            ids.copy(), mask.copy(), most, temperature, top_k, top_p, min_p, end, seeded_rng()
        )
        return [_beginning(row, most, end) for row in thing.verify(draft, target, request)]

    filters = {"top-k": top_k, "top-p": top_p, "min-p": min_p}
    asked = [
        f"temperature {temperature:g}",
        *(f"{name} {value:g}" for name, value in filters.items() if value is not None),
    ]
    asked += [] if end is None else [f"end {end}"]
    return joint(
        write,
        [law_after(start) for start in starts],
        most,
        name=thing.name,
        instance=(
            f"toy language models on {target.num_tokens} tokens, prompts {starts}, {padding} "
            f"padding, {', '.join(asked)}"
        ),
        covered=(
            f"a generation of {len(starts)} row{'s' * (len(starts) > 1)}",
            "processing of logits",
            "caches and padding",
        ),
        not_covered=("other prompts",),
        rng=rng,
        tolerance=tolerance,
        errors=errors,
        seconds=seconds,
    )


def _check_prompts(prompts: Any, num_tokens: int) -> list[tuple[int, ...]]:
    """Return prompts as tuples of tokens, or raise `InvalidParameter`."""
    try:
        starts = [
            tuple(plain_integers(prompt, "prompts").reshape(-1).tolist()) for prompt in prompts
        ]
    except TypeError:
        starts = []
    if (
        not starts
        or not all(starts)
        or not all(0 <= token < num_tokens for start in starts for token in start)
    ):
        raise InvalidParameter(
            f"prompts must be one or more sequences of at least one token in [0, {num_tokens}); "
            f"got {prompts!r:.80}. "
            "Pass [[0, 1]], say."
        )
    return starts


def _beginning(row: Any, length: int, end: int | None) -> tuple[int, ...]:
    """Return the first tokens of a row, which stays at its end; what comes after it otherwise is
    left to be seen.
    """
    tokens = [int(token) for token in np.asarray(row).reshape(-1).tolist() if int(token) != -1]
    if end is not None and end in tokens[:length]:
        tokens += [end] * length
    if len(tokens) < length:
        raise InvalidParameter(f"Every row must get {length} tokens or an end; one got {tokens}.")
    return tuple(tokens[:length])
