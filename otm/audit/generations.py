"""The generation audit: whole texts, where one iteration meets the next.

Caches, padding, positions, lengths that differ within a batch, the processing of logits and the end
of sequence are right or wrong over several iterations only. So a whole generation loop is run on a
toy language model that is called as real ones are (`ToyLanguage`), and the joint law of the first
tokens of every row of a batch is held against the target's, its logits processed by this library.

The model's law of the next token depends on every attended token and its place, and on nothing
else: whoever attends to padding, leaves a rejected row in the cache, or miscounts positions gets
another law; whoever does it right gets the same one, padded or not.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.budget import USUAL, Errors
from otm.audit.candidate import Check, Scope, as_kind
from otm.audit.end_to_end import (
    EndToEndCandidate,
    ProcessedModel,
    WrittenAudit,
    check_end,
    check_of,
    ending,
    joint,
    seeded_rng,
)
from otm.audit.integration import Next
from otm.audit.tracing.branching import MOST_SECONDS
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import RNGLike, check_choice, check_count, check_instance, host_pmf, plain_integers
from otm.sequence.models import OneByOne


@dataclasses.dataclass(eq=False)
class ToyCache:
    """A toy cache of keys and values: the tokens `(B, S)` read so far.

    Attributes:
        tokens: by row, oldest first.
    """

    tokens: NDArray[np.int64]

    @property
    def length(self) -> int:
        """S, the number of positions in the cache."""
        return int(self.tokens.shape[1])

    def crop(self, length: int) -> None:
        """Keep the first positions only."""
        self.tokens = self.tokens[:, :length]


@dataclasses.dataclass(frozen=True, eq=False)
class ToyOutput:
    """The output of one call of the toy model.

    Attributes:
        logits: `(B, T, V)`, NumPy or torch as the tokens were.
        cache: of all tokens so far; None if `use_cache` was False.
    """

    logits: Any
    cache: ToyCache | None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ToyLanguage(OneByOne):
    """A model whose next token after x₁ … x_n has the law in row (Σ i (x_i + 1)) mod R of a table.

    Args:
        table: probabilities `(R, V)`.

    Raises:
        InvalidDistribution: if a row is not a distribution.

    >>> import numpy as np
    >>> model = ToyLanguage([[0.5, 0.5], [0.25, 0.75]])
    >>> logits = model([[9, 0]], attention_mask=[[0, 1]]).logits[0, -1]
    >>> np.exp(logits).tolist() == model.next([0]).tolist()
    True
    """

    table: NDArray[np.float64]

    def __post_init__(self) -> None:
        rows = np.atleast_2d(host_pmf(self.table, name="table"))
        object.__setattr__(self, "table", rows)

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.table.shape[1])

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution `(V,)` after the given tokens."""
        law: NDArray[np.float64] = self.table[
            sum(i * (token + 1) for i, token in enumerate(context, start=1)) % len(self.table)
        ]
        return law.copy()

    def __call__(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        cache: ToyCache | None = None,
        use_cache: bool = True,
    ) -> ToyOutput:
        """Return raw logits after every given token.

        Args:
            input_ids: `(B, T)`, what follows the cache.
            attention_mask: `(B, S + T)`, 0 for what must not be seen (padding, on either side); all
                1 unless given.
            cache: of the S positions before; it is not changed.
            use_cache: whether to return one.

        Raises:
            InvalidParameter: if the shapes do not fit.
        """
        tokens = _whole(input_ids)
        seen = tokens if cache is None else np.concatenate([cache.tokens, tokens], axis=1)
        mask = np.ones_like(seen) if attention_mask is None else _whole(attention_mask)
        if mask.shape != seen.shape:
            raise InvalidParameter(
                f"attention_mask must be {seen.shape}, cache and tokens; it is {mask.shape}. "
                "Extend it."
            )
        ends = range(seen.shape[1] - tokens.shape[1] + 1, seen.shape[1] + 1)
        laws = [
            [self.next(row[:end][keep[:end] != 0].tolist()) for end in ends]
            for row, keep in zip(seen, mask, strict=True)
        ]
        with np.errstate(divide="ignore"):
            logits: Any = np.log(laws)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(input_ids, torch.Tensor):
            logits = torch.from_numpy(logits)
        return ToyOutput(logits, ToyCache(seen) if use_cache else None)


def _whole(values: Any) -> NDArray[np.int64]:
    found = np.asarray(values)
    if found.ndim != 2 or found.dtype.kind not in "iub":
        raise InvalidParameter(
            f"Token ids and masks must be integers (B, T); got {found.dtype} of shape "
            f"{found.shape}."
        )
    return found.astype(np.int64)


DRAFT = ToyLanguage([[3 / 4, 1 / 4], [1 / 4, 3 / 4], [1 / 2, 1 / 2]])  # type: ignore[arg-type]
TARGET = ToyLanguage([[1 / 2, 1 / 2], [3 / 5, 2 / 5], [1 / 5, 4 / 5]])  # type: ignore[arg-type]
"""The pair of toy models that loops are run on unless others are given."""


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """A request to a generation loop.

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

    def instances(self, scope: Scope) -> list[Check]:
        """Return the standard requests."""
        tables = (DRAFT.table, TARGET.table) if scope.pair is None else scope.pair
        draft, target = map(ToyLanguage, tables)
        return [
            check_of(generate, self, (draft, target), request, (name, "", name))
            for name, request in standard.GENERATIONS.items()
            if request.get("end", 0) < target.num_tokens
        ]


def generate(
    candidate: object,
    *,
    rng: RNGLike,
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
    """Audit a generation loop: compare the joint law of every row's first tokens with the target's.

    Args:
        candidate: a `GenerationCandidate`, or `generate(draft, target, request)` → for each prompt
            at least `length` new tokens, or fewer up to and with `end` (−1 is padding). The models
            are called as real ones: `model(input_ids, attention_mask, cache, use_cache)` → raw
            logits and cache.
        rng: of samples, if there are any: a NumPy generator, or a seed of one.
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

    >>> import numpy as np
    >>> import otm
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
    check_choice(padding, name="padding", choices=("left", "right"))
    width = max(map(len, starts))
    ids, mask = np.zeros((2, len(starts), width), dtype=np.int64)
    for i, start in enumerate(starts):
        place = slice(width - len(start), width) if padding == "left" else slice(0, len(start))
        ids[i, place], mask[i, place] = start, 1

    def law_after(start: tuple[int, ...]) -> Next:
        model = ProcessedModel(ending(target, end, len(start)), processing)
        return lambda row: model.next((*start, *row))

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
    audit = joint(
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
    tested = dataclasses.replace(audit.tested, temperatures=(temperature,))
    return dataclasses.replace(audit, tested=tested)


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
    """Return the first `length` tokens of a row, with the end token repeated after the first."""
    tokens = [int(token) for token in np.asarray(row).reshape(-1).tolist() if int(token) != -1]
    if end is not None and end in tokens[:length]:
        tokens += [end] * length
    if len(tokens) < length:
        raise InvalidParameter(f"Every row must get {length} tokens or an end; one got {tokens}.")
    return tuple(tokens[:length])
