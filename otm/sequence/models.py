"""What a language model is here: anything that gives next-token distributions of contexts.

A verifier's calculus needs distributions only. Everything that decodes takes two objects with the
protocol `LanguageModel`: the toys below, small enough to enumerate, a table captured from a real
model, or a wrapper around a network, which answers a batch of contexts in one forward pass.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import as_pmf, check_count, check_real, check_rng

Context = tuple[int, ...]
"""Tokens so far, oldest first."""

MAX_TABLE_ENTRIES = 1 << 24
"""Largest number of probabilities in a Markov model's table."""

_MOST_SHOWN = 12
"""Tokens of a context that an error names, the last ones."""

_MOST_FACTORS = 64  # 2^64 is far beyond any limit: larger powers are neither computed nor printed


class LanguageModel(Protocol):
    """A model over token contexts."""

    @property
    def num_tokens(self) -> int:
        """V, the size of the vocabulary."""
        ...

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after `context`."""
        ...

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the next-token distributions `(n, V)` after n contexts, by one call."""
        ...


class OneByOne(abc.ABC):
    """A model that is asked for one context at a time."""

    @abc.abstractmethod
    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after a context."""

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the distributions `(n, V)` after n contexts, in their order."""
        return np.stack([self.next(context) for context in contexts])


@dataclasses.dataclass(frozen=True, eq=False)
class ZerothOrder(OneByOne):
    """A model without memory: every token has the same distribution, whatever came before.

    Args:
        mass: probabilities `(V,)`.

    Raises:
        InvalidDistribution: if `mass` is not one distribution.

    Reference: ERSD, Section 4 (0-th order sources).

    >>> ZerothOrder([0.5, 0.5]).next([1, 0, 1])
    array([0.5, 0.5])
    """

    mass: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", _one_row(self.mass))

    @property
    def num_tokens(self) -> int:
        """V."""
        return len(self.mass)

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the one distribution."""
        return self.mass


@dataclasses.dataclass(frozen=True, eq=False)
class MarkovModel(OneByOne):
    """A Markov chain of order m: the next token depends on the last m tokens.

    Contexts shorter than m are filled up on the left with token 0.

    Args:
        table: probabilities `(V,) * m + (V,)`; `table[x₁, …, x_m]` is the law after x₁ … x_m, the
            newest token last.

    Raises:
        InvalidDistribution: if an entry is not a distribution, or the axes before the last are not
            all of length V.

    Reference: ERSD, Section 4 (m-th order sources).

    >>> chain = MarkovModel([[0.9, 0.1], [0.2, 0.8]])
    >>> chain.order, chain.next([0, 1]).tolist()
    (1, [0.2, 0.8])
    """

    table: NDArray[np.float64]

    def __post_init__(self) -> None:
        table = np.asarray(as_pmf(self.table, name="table"), dtype=np.float64)
        if len(set(table.shape)) != 1:
            raise InvalidDistribution(
                "A Markov table needs one axis of length V per remembered token and one for the "
                f"next; its shape is {table.shape}. Pass (V,) * order + (V,)."
            )
        object.__setattr__(self, "table", table)

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.table.shape[-1])

    @property
    def order(self) -> int:
        """m, how many tokens the chain remembers."""
        return self.table.ndim - 1

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Look up the last m tokens.

        Raises:
            InvalidParameter: on a token outside the vocabulary.
        """
        recent = tuple(context[max(0, len(context) - self.order) :])
        if any(not 0 <= token < self.num_tokens for token in recent):
            raise InvalidParameter(
                f"Context tokens must lie in [0, {self.num_tokens}); got {recent}. Check the "
                "vocabulary."
            )
        padded = (0,) * (self.order - len(recent)) + recent
        return np.asarray(self.table[padded], dtype=np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class TableModel(OneByOne):
    """A model given by a table of next-token distributions by context, such as a capture.

    Args:
        table: probabilities `(V,)` by context, a tuple of tokens; at least one.

    Raises:
        InvalidDistribution: if an entry is not a distribution.
        InvalidParameter: if the table is empty.

    >>> TableModel({(): [0.5, 0.5]}).next([])
    array([0.5, 0.5])
    """

    table: Mapping[Context, object]

    def __post_init__(self) -> None:
        if not isinstance(self.table, Mapping):
            raise InvalidParameter(
                "A table model needs a mapping from contexts to distributions; got "
                f"{self.table!r:.80}. Pass one."
            )
        if not self.table:
            raise InvalidParameter(
                "A table model needs at least one context; the table is empty. Capture one."
            )
        entries = self.table.items()
        checked = {context: as_pmf(mass, name=f"entry {context}") for context, mass in entries}
        object.__setattr__(self, "table", checked)

    @property
    def num_tokens(self) -> int:
        """V."""
        return len(np.asarray(next(iter(self.table.values()))))

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Look the context up.

        Raises:
            InvalidParameter: if the table has no entry for it.
        """
        key = tuple(int(token) for token in context)
        if key not in self.table:
            raise InvalidParameter(
                f"The context must be one of the {len(self.table)} in the table; {key} is not. "
                "Capture it as well."
            )
        return np.asarray(self.table[key], dtype=np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class Memoised:
    """A model that remembers its answers, as enumerations ask for the same contexts many times.

    Args:
        model: what is asked on the first request of a context.

    >>> Memoised(ZerothOrder([0.5, 0.5])).next_batch([(0,), (1,), (0,)]).shape
    (3, 2)
    """

    model: LanguageModel
    _known: dict[Context, NDArray[np.float64]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )
    _checked: dict[Context, NDArray[np.float64]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_model(self.model, name="wrapped")

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.model.num_tokens

    def distributions(
        self, contexts: Sequence[Context], *, name: str
    ) -> dict[Context, NDArray[np.float64]]:
        """Return the answers to these contexts, each checked to be a distribution once."""
        new = [context for context in contexts if context not in self._checked]
        if new:
            self._checked.update(_ask_model(self, new, name))
        return {context: self._checked[context] for context in contexts}

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Answer from memory, or ask."""
        key = tuple(context)
        if key not in self._known:
            self._known[key] = self.model.next(key)
        return self._known[key]

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Ask for the contexts that are new, in one call."""
        keys = [tuple(context) for context in contexts]
        new = list(dict.fromkeys(key for key in keys if key not in self._known))
        if new:
            self._known.update(zip(new, self.model.next_batch(new), strict=True))
        return np.stack([self._known[key] for key in keys])


@dataclasses.dataclass(frozen=True, eq=False)
class Absorbing:
    """A model that repeats the end-of-sequence token with certainty once it has been said.

    With both models wrapped, every lossless scheme stays lossless up to and including the first
    end-of-sequence token, without a line about it in any scheme: past the end drafts are always
    right. The decoder cuts the output there.

    Args:
        model: the model before the end.
        eos: the end-of-sequence token.
        start: contexts are searched for `eos` from here on, so that a prompt may contain it.

    Raises:
        InvalidParameter: if `eos` is no token of the model's, or `start` no integer ≥ 0.

    >>> Absorbing(ZerothOrder([0.5, 0.5]), eos=1).next([0, 1, 1])
    array([0., 1.])
    """

    model: LanguageModel
    eos: int
    start: int = 0

    def __post_init__(self) -> None:
        check_model(self.model, name="wrapped")
        check_count(self.start, name="start", minimum=0)
        whole = isinstance(self.eos, int | np.integer) and not isinstance(self.eos, bool)
        if not whole or not 0 <= self.eos < self.num_tokens:
            raise InvalidParameter(
                f"eos must be a token in [0, {self.num_tokens}); got {self.eos!r}. Pass eos=None "
                "for a text that does not end."
            )

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.model.num_tokens

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return certainty of `eos` after the end, the model's answer before."""
        return self._end() if self.eos in context[self.start :] else self.model.next(context)

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Ask the model for the contexts that have not ended."""
        answers = np.tile(self._end(), (len(contexts), 1))
        alive = [i for i, context in enumerate(contexts) if self.eos not in context[self.start :]]
        if alive:
            answers[alive] = self.model.next_batch([contexts[i] for i in alive])
        return answers

    def _end(self) -> NDArray[np.float64]:
        return np.asarray(np.arange(self.num_tokens) == self.eos, dtype=np.float64)


def markov_pair(
    num_tokens: int,
    *,
    order: int = 1,
    similarity: float = 0.5,
    concentration: float = 1.0,
    rng: np.random.Generator,
) -> tuple[MarkovModel, MarkovModel]:
    """Return a random draft and target chain whose agreement one number sets.

    Every context draws two independent Dirichlet(concentration) laws d and q; the target uses q,
    the draft s·q + (1 − s)·d. So TV(p, q) = (1 − s)·TV(d, q): similarity 0 gives unrelated models,
    1 the same model.

    Args:
        num_tokens: V ≥ 1.
        order: m ≥ 0 remembered tokens.
        similarity: s in [0, 1].
        concentration: of the Dirichlet laws, positive; small is peaked.
        rng: the generator.

    Returns:
        (draft, target).

    Raises:
        InvalidParameter: on a count or number outside its range.
        TooLarge: if the table would hold more than 2²⁴ probabilities.

    Cost: O(V^{m+1}). Reference: ERSD, Section 4 (m-th order Markov sources).

    >>> draft, target = markov_pair(3, order=2, similarity=1.0, rng=np.random.default_rng(0))
    >>> draft.order, bool(np.all(draft.table == target.table))
    (2, True)
    """
    size = check_count(num_tokens, name="num_tokens")
    memory = check_count(order, name="order", minimum=0)
    mixing = check_real(similarity, name="similarity", low=0.0, high=1.0)
    if size ** min(memory + 1, _MOST_FACTORS) > MAX_TABLE_ENTRIES:
        raise TooLarge(
            f"A Markov table holds at most {MAX_TABLE_ENTRIES:,} probabilities; V = {size} and "
            f"order {memory} need V^{memory + 1}. "
            "Lower the order, or write a model that computes its rows."
        )
    generator = check_rng(rng)
    shape = (size,) * memory
    weights = check_real(concentration, name="concentration", low=0.0, open_low=True) * np.ones(
        size
    )
    drafted, wanted = (generator.dirichlet(weights, size=shape) for _ in range(2))
    # The mixture is taken so that s = 1 gives the target's table to the last bit.
    mixed = wanted if mixing == 1.0 else mixing * wanted + (1 - mixing) * drafted
    return MarkovModel(mixed), MarkovModel(wanted)


def check_model(model: LanguageModel, *, name: str) -> None:
    """Raise `InvalidParameter` unless an object answers as a `LanguageModel` does."""
    size: object = getattr(model, "num_tokens", None)
    if (
        isinstance(model, type)
        or not callable(getattr(model, "next_batch", None))
        or not isinstance(size, int | np.integer)
    ):
        raise InvalidParameter(
            f"The {name} model must have num_tokens, next and next_batch, as LanguageModel has; "
            f"got {model!r:.80}. Wrap it."
        )


def check_context(context: Sequence[int]) -> Context:
    """Return a context as a tuple of tokens; raise `InvalidParameter` on anything else."""
    tokens: list[object] = [None]
    with contextlib.suppress(TypeError, RuntimeError):  # the latter from a tensor without data
        tokens = (
            []
            if isinstance(context, Mapping)
            else [None if isinstance(t, bool) else operator.index(t) for t in context]
        )
    if isinstance(context, str | bytes | Mapping) or not all(
        isinstance(token, int) and token >= 0 for token in tokens
    ):
        raise InvalidParameter(
            f"A context must be a sequence of tokens, integers ≥ 0; got {context!r:.80}. Pass [] "
            "for none."
        )
    return tuple(token for token in tokens if isinstance(token, int))


def next_distribution(
    model: LanguageModel, context: Sequence[int], *, name: str
) -> NDArray[np.float64]:
    """Return a model's answer for one context, checked to be a distribution `(V,)`."""
    return next_distributions(model, [tuple(context)], name=name)[tuple(context)]


def next_distributions(
    model: LanguageModel, contexts: Iterable[Context], *, name: str
) -> dict[Context, NDArray[np.float64]]:
    """Return a model's answers for several contexts, asked for in one batch, each context once.

    Raises:
        InvalidDistribution: if an answer is no distribution; it names the first such context.
    """
    wanted = list(dict.fromkeys(contexts))
    if not wanted:
        return {}
    if isinstance(model, Memoised):
        return model.distributions(wanted, name=name)
    return _ask_model(model, wanted, name)


def _ask_model(
    model: LanguageModel, wanted: list[Context], name: str
) -> dict[Context, NDArray[np.float64]]:
    """Ask a model for different contexts and check its answers."""
    answers = np.asarray(model.next_batch(wanted))
    if answers.ndim != 2 or len(answers) != len(wanted):
        raise InvalidDistribution(
            f"The {name} model must return one distribution per context, ({len(wanted)}, V); it "
            f"returned shape {answers.shape}."
        )
    try:
        checked = np.asarray(
            as_pmf(answers, name=f"the {name} model's next-token distribution"), dtype=np.float64
        )
    except InvalidDistribution:
        for context, row in zip(wanted, answers, strict=True):  # say which context it was
            try:
                as_pmf(row, name=f"the {name} model's next-token distribution")
            except InvalidDistribution as error:
                raise InvalidDistribution(
                    f"After context {_last_tokens(context)}: {error}"
                ) from error
        raise
    return dict(zip(wanted, checked, strict=True))


def sequence_law(model: LanguageModel, context: Sequence[int], length: int) -> NDArray[np.float64]:
    """Return the joint law of a model's next tokens, the product of its conditionals.

    Q(y₁ … y_L) = Π_i q(y_i | context, y₁ … y_{i−1}).

    Args:
        model: any model of next-token distributions.
        context: tokens so far.
        length: L ≥ 1.

    Returns:
        Probabilities of shape `(V,) * L`.

    Raises:
        TooLarge: beyond 2²⁴ sequences.
        InvalidDistribution: if the model returns something else than a distribution.

    Cost: one batched model call per level, V^{L−1} contexts in the last.

    >>> sequence_law(MarkovModel([[0.5, 0.5], [1.0, 0.0]]), [1], 2).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    check_model(model, name="sequence")
    count, size = check_count(length, name="length"), model.num_tokens
    if size > 1 and size ** min(count, _MOST_FACTORS) > MAX_TABLE_ENTRIES:
        raise TooLarge(
            f"A joint law is limited to {MAX_TABLE_ENTRIES:,} sequences; V = {size} and length "
            f"{count} have V^{count}. Sample instead: otm.sequence.generate."
        )
    prefix = check_context(context)
    law = np.ones(())
    for level in range(count):
        continuations = list(itertools.product(range(size), repeat=level))
        rows = next_distributions(model, ((*prefix, *c) for c in continuations), name="sequence")
        conditional = np.stack([rows[(*prefix, *c)] for c in continuations]).reshape(
            (size,) * (level + 1)
        )
        law = law[..., None] * conditional
    return law


def _last_tokens(context: Context) -> str:
    beyond = len(context) - _MOST_SHOWN
    shown = str(context[-_MOST_SHOWN:])
    return shown if beyond <= 0 else f"(… {beyond} tokens …, {shown[1:]}"


def _one_row(mass: object) -> NDArray[np.float64]:
    row = np.asarray(as_pmf(mass, name="mass"), dtype=np.float64)
    if row.ndim != 1:
        raise InvalidDistribution(
            f"mass must be one distribution (V,); its shape is {row.shape}. Pass one row."
        )
    return row
