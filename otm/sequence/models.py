"""Language models: any object that gives next-token distributions of contexts.

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
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import brief_repr
from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import (
    RNGLike,
    check_count,
    check_instance,
    check_real,
    check_rng,
    host_pmf,
)

Context = tuple[int, ...]
"""Tokens so far, oldest first."""

MAX_LAW = 1 << 24
"""Largest number of probabilities in a Markov model's table, or of a joint law over sequences."""

_MOST_SHOWN = 12
"""Number of the last tokens of a context that an error shows."""


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
    """A model evaluated for one context at a time."""

    __repr__ = brief_repr

    @abc.abstractmethod
    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after a context."""

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the distributions `(n, V)` after n contexts, in order."""
        return np.stack([self.next(context) for context in contexts])


class DerivedModel(abc.ABC):
    """A model derived from another model, with calls in batches.

    Attributes:
        model: what it asks.
    """

    model: LanguageModel

    @property
    def num_tokens(self) -> int:
        """V."""
        return self.model.num_tokens

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after a context."""
        return np.asarray(self.next_batch([context])[0])

    @abc.abstractmethod
    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the distributions `(n, V)` after n contexts, in order."""


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class ZerothOrder(OneByOne):
    """A model without memory: every token has the same distribution, whatever came before.

    Args:
        mass: probabilities `(V,)`.

    Raises:
        InvalidDistribution: if `mass` is not one distribution.

    Reference: ERSD, Section 4 (0-th order sources).

    >>> import otm
    >>> otm.sequence.ZerothOrder([0.5, 0.5]).next([1, 0, 1])
    array([0.5, 0.5])
    """

    mass: NDArray[np.float64]

    def __init__(self, mass: ArrayLike) -> None:
        checked = distributions_of(mass, name="mass", form="(V,)", ndim=1)
        object.__setattr__(self, "mass", checked)

    @property
    def num_tokens(self) -> int:
        """V."""
        return len(self.mass)

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution, the same after every context."""
        return self.mass


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
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

    def __init__(self, table: ArrayLike) -> None:
        checked = host_pmf(table, name="table")
        if len(set(checked.shape)) != 1:
            raise InvalidDistribution(
                "A Markov table needs one axis of length V per remembered token and one for the "
                f"next; its shape is {checked.shape}. Pass (V,) * order + (V,)."
            )
        object.__setattr__(self, "table", checked)

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.table.shape[-1])

    @property
    def order(self) -> int:
        """m, the number of tokens that the chain remembers."""
        return self.table.ndim - 1

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution after the last m tokens.

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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TableModel(OneByOne):
    """A model given by a table of next-token distributions by context, for example a capture.

    Args:
        table: probabilities `(V,)` by context, a tuple of tokens; at least one.

    Raises:
        InvalidDistribution: if an entry is not a distribution.
        InvalidParameter: if the table is empty.

    >>> import otm
    >>> otm.sequence.TableModel({(): [0.5, 0.5]}).next([])
    array([0.5, 0.5])
    """

    table: Mapping[Context, object]

    def __post_init__(self) -> None:
        if not check_instance(self.table, Mapping, name="table"):
            raise InvalidParameter(
                "A table model needs at least one context; the table is empty. Capture one."
            )
        rows = [*self.table.values()]
        checked: dict[Context, NDArray[np.float64]] = {}
        # arrays of one kind at once, which is far faster; one by one where one has a fault to name
        if all(type(row) is np.ndarray and row.ndim and row.dtype == np.float64 for row in rows):
            with contextlib.suppress(ValueError):
                laws = host_pmf(np.stack(rows), name="entries")  # type: ignore[arg-type]
                checked = dict(zip(self.table, laws, strict=True))
        if not checked:
            checked = {
                context: host_pmf(mass, name=f"entry {context}")
                for context, mass in self.table.items()
            }
        object.__setattr__(self, "table", checked)

    @property
    def num_tokens(self) -> int:
        """V."""
        return len(np.asarray(next(iter(self.table.values()))))

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution of a context from the table.

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
class Memoised(DerivedModel):
    """A model that caches all answers, since enumerations repeat the same contexts many times.

    Args:
        model: what is asked on the first request of a context.

    Raises:
        InvalidDistribution: on use, if an answer is no distribution.

    >>> import otm
    >>> Memoised(otm.sequence.ZerothOrder([0.5, 0.5])).next_batch([(0,), (1,), (0,)]).shape
    (3, 2)
    """

    model: LanguageModel
    _known: dict[Context, NDArray[np.float64]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_model(self.model, name="wrapped")

    def distributions(
        self, contexts: Sequence[Context], *, name: str
    ) -> dict[Context, NDArray[np.float64]]:
        """Return the answers to contexts, each computed and checked once."""
        new = [context for context in contexts if context not in self._known]
        self._known.update(next_distributions(self.model, new, name=name))
        return {context: self._known[context] for context in contexts}

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Evaluate the model on the new contexts, in one call."""
        keys = [tuple(context) for context in contexts]
        known = self.distributions(keys, name="wrapped")
        return np.stack([known[key] for key in keys])

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()


@dataclasses.dataclass(frozen=True, eq=False)
class Absorbing(DerivedModel):
    """A model that repeats the end-of-sequence token with certainty after the first one.

    With both models wrapped, every lossless scheme stays lossless up to and including the first
    end-of-sequence token, without a line about it in any scheme: past the end drafts are always
    right. The decoder cuts the output there.

    Args:
        model: the model before the end.
        eos: the end-of-sequence token.
        start: contexts are searched for `eos` from here on, so that a prompt may contain it.

    Raises:
        InvalidParameter: if `eos` is no token of the model's, or `start` no integer ≥ 0.

    >>> import otm
    >>> Absorbing(otm.sequence.ZerothOrder([0.5, 0.5]), eos=1).next([0, 1, 1])
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

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Answer `eos` with certainty after the end; call the model for the other contexts."""
        certain = np.arange(self.num_tokens) == self.eos
        answers = np.tile(certain.astype(np.float64), (len(contexts), 1))
        alive = [i for i, context in enumerate(contexts) if self.eos not in context[self.start :]]
        if alive:
            answers[alive] = self.model.next_batch([contexts[i] for i in alive])
        return answers


def markov_pair(
    num_tokens: int,
    *,
    order: int = 1,
    similarity: float = 0.5,
    concentration: float = 1.0,
    rng: RNGLike,
) -> tuple[MarkovModel, MarkovModel]:
    """Return a random draft and target chain, with the agreement set by one number.

    Every context draws two independent Dirichlet(concentration) laws d and q; the target uses q,
    the draft s·q + (1 − s)·d. So TV(p, q) = (1 − s)·TV(d, q): similarity 0 gives unrelated models,
    1 the same model.

    Args:
        num_tokens: V ≥ 1.
        order: m ≥ 0 remembered tokens.
        similarity: s in [0, 1].
        concentration: of the Dirichlet laws, positive; small is peaked.
        rng: a NumPy generator, or a seed of one.

    Returns:
        (draft, target).

    Raises:
        InvalidParameter: on a count or number outside its range.
        TooLarge: if the table would hold more than 2²⁴ probabilities.

    Cost: O(V^{m+1}). Reference: ERSD, Section 4 (m-th order Markov sources).

    >>> import numpy as np
    >>> draft, target = markov_pair(3, order=2, similarity=1.0, rng=np.random.default_rng(0))
    >>> draft.order, bool(np.all(draft.table == target.table))
    (2, True)
    """
    size = check_count(num_tokens, name="num_tokens")
    memory = check_count(order, name="order", minimum=0)
    mixing = check_real(similarity, name="similarity", low=0.0, high=1.0)
    require_affordable_law(size, memory + 1)
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
    """Raise `InvalidParameter` unless an object behaves as a `LanguageModel`."""
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
    """Return a model's answers for several contexts, each computed once, in one batch.

    Raises:
        InvalidDistribution: if an answer is no distribution; it names the first such context.
    """
    wanted = list(dict.fromkeys(contexts))
    if not wanted:
        return {}
    if isinstance(model, Memoised):
        return model.distributions(wanted, name=name)
    answers = np.asarray(model.next_batch(wanted))
    if answers.ndim != 2 or len(answers) != len(wanted):
        raise InvalidDistribution(
            f"The {name} model must return one distribution per context, ({len(wanted)}, V); it "
            f"returned shape {answers.shape}."
        )
    try:
        checked = host_pmf(answers, name=f"the {name} model's next-token distribution")
    except InvalidDistribution:
        for context, row in zip(wanted, answers, strict=True):  # say which context it was
            try:
                host_pmf(row, name=f"the {name} model's next-token distribution")
            except InvalidDistribution as error:
                raise InvalidDistribution(
                    f"After context {_last_tokens(context)}: {error}"
                ) from error
        raise
    return dict(zip(wanted, checked, strict=True))


def sequence_law(model: LanguageModel, context: Sequence[int], length: int) -> NDArray[np.float64]:
    """Return the joint law of a model's next tokens, the product of the conditionals.

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
    require_affordable_law(size, count)
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


def require_affordable_law(num_tokens: int, length: int) -> None:
    """Raise `TooLarge` if a law of `length` tokens has more than `MAX_LAW` entries."""
    # 2^64 is far beyond the limit: larger powers are neither computed nor printed.
    if num_tokens ** min(length, 64) > MAX_LAW:
        raise TooLarge(
            f"A law of several tokens is limited to {MAX_LAW:,} entries; V = {num_tokens} and "
            f"{length} tokens have V^{length}. Take fewer, or sample with otm.sequence.generate."
        )


def distributions_of(values: object, *, name: str, form: str, ndim: int) -> NDArray[np.float64]:
    """Return distributions with `ndim` axes, the last over tokens."""
    rows = host_pmf(values, name=name)
    if rows.ndim != ndim:
        raise InvalidDistribution(
            f"{name} must have the form {form}, V tokens; its shape is {rows.shape}. Reshape it."
        )
    return rows
