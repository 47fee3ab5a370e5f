"""The base of verifiers: rules that pick the output token after the drafts.

A verifier is configuration; `prepare` turns it into a `Rule` for one problem, with everything
computed that does not depend on the drafts. A rule knows itself twice, by independent code: `split`
is its conditional law, from which coupling, losslessness and generic acceptance follow by
enumeration, and `verify` executes the published accept/reject steps on uniforms, from which Monte
Carlo follows. A closed form for the acceptance is a third account, array-agnostic and batched.
Tests compare all three.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Array, brief_repr
from otm.drafts.base import (
    CountedLaw,
    Law,
    all_subsets,
    enumerate_drafts,
    live_drafts,
    members,
    rows_of_members,
)
from otm.errors import InvalidParameter, TooLarge, Unsupported
from otm.pmf import any_array
from otm.problem import Problem
from otm.results import Coupling, Definition
from otm.scheme import Scheme

MOST_SETS_OF = 14
"""Largest number of tokens for a coupling over all token sets, each from the set's subsets."""

_ENTRIES_AT_ONCE = 1 << 22
_CANCELLED = 1e-12  # a probability that differences of probabilities do not tell


@dataclasses.dataclass(frozen=True)
class Verifier(Scheme):
    """A verification scheme: a frozen, hashable object with the parameters as fields.

    Class attributes hold all that the rest of the library needs to know of a scheme; the first
    three have no default.

    Attributes:
        title: the field's name for the scheme.
        lossless: whether the output has exactly the target's law on every supported problem.
        laws: the draft laws that it applies to: a class for any number of drafts, or one law where
            the number matters.
        summary: what the scheme does, in one clause, for the glossary of a report; empty for none.
        equivariant: whether nothing depends on how tokens are numbered; not where their numbers are
            places on a line, at the default parameters.
        differentiable: whether `acceptance` passes gradients on to tensors that require them.
        nested_in_k: whether where the rule stops among the first i drafts is independent of how
            many more were drafted, so that the i-th is accepted with probability α_i − α_{i−1}.
        is_plan: whether the rule is by default a linear program's plan over the enumerated drafts:
            its value is the optimum, and beyond the enumeration it has neither value nor sample.
        proven_lower: name in `otm.bounds` of a lower bound on the acceptance that is proven for
            the default parameters under every supported law; empty for none.
        table_columns: columns of `otm.acceptance_table`, without their k, that hold the acceptance;
            empty where the table leaves the scheme out.
    """

    lossless: ClassVar[bool]
    laws: ClassVar[tuple[type[Law] | Law, ...]]
    summary: ClassVar[str] = ""
    equivariant: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    nested_in_k: ClassVar[bool] = False
    is_plan: ClassVar[bool] = False
    proven_lower: ClassVar[str] = ""
    table_columns: ClassVar[tuple[str, ...]] = ()

    def supports(self, law: Law) -> bool:
        """True if this verifier applies to drafts drawn by `law`."""
        return any(
            isinstance(law, each) if isinstance(each, type) else law == each for each in self.laws
        )

    @abc.abstractmethod
    def prepare(self, problem: Problem) -> Rule:
        """Return the rule for a problem of one row, float64 NumPy."""

    @abc.abstractmethod
    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the exact acceptance, `(...)` in float64, of the problem's array kind."""


@dataclasses.dataclass(frozen=True)
class CurvedVerifier(Verifier):
    """A verifier that computes the acceptance for several numbers of drafts at once.

    All values of k share one sort or one recursion.
    """

    @abc.abstractmethod
    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Return the exact acceptance `(len(ks), ...)` in float64, of the problem's array kind."""

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the one value of the curve at the problem's own k."""
        return self.curve(problem, [problem.law.size], by)[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Rule(abc.ABC):
    """A verifier prepared for one problem; either `Conditional` or `Shared`.

    Drawing and verifying are pure functions of uniforms. `draw` sees the draft distribution only,
    as a drafter does; what it leaves behind for the verifier besides the drafts, shared randomness
    in a race, is the state (None if there is none).
    """

    problem: Problem

    __repr__ = brief_repr

    @property
    @abc.abstractmethod
    def num_draft_uniforms(self) -> int:
        """Number of uniforms of one draw of the drafts."""

    @abc.abstractmethod
    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
        """Draw drafts `(n, k)` and the shared state from uniforms `(n, num_draft_uniforms)`."""

    @property
    @abc.abstractmethod
    def num_uniforms(self) -> int:
        """Number of uniforms of one verification."""

    @abc.abstractmethod
    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Execute the published steps: output `(n,)` and the rule's accept flags `(n,)`."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Conditional(Rule):
    """A rule defined by the law of the output given the drafts."""

    @property
    def num_draft_uniforms(self) -> int:
        """Number of uniforms of the draft law."""
        return self.problem.law.num_uniforms(self.problem.num_tokens)

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], None]:
        """Draw from the draft law."""
        return self.problem.law.draw(self.problem.draft, uniforms), None

    @abc.abstractmethod
    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the law of the output given drafts `(n, k)`, in two parts `(n, V)` each.

        The mass of accepted drafts and the mass of residual draws.
        """


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Shared(Rule):
    """A rule that shares randomness with the drafter, as races and hashing do.

    The joint law is computed first, and the kernel follows from it.
    """

    @abc.abstractmethod
    def joint(self) -> Coupling:
        """Return the joint law of (drafts, output) over every draft sequence; small V."""


def coupling_of_sets(
    problem: Problem, inside: Callable[[NDArray[np.bool_]], NDArray[np.float64]]
) -> Coupling:
    """Return the coupling of drafted sets and output from Pr(every draft lies in T, output = y).

    Inclusion and exclusion: sets of smaller probability than rounding can leave are left out.

    Args:
        problem: one whose law drafts sets, few enough to enumerate.
        inside: given the mask of T `(V,)` returns the masses of the outputs, `(V,)`.

    Raises:
        TooLarge: beyond `MOST_SETS_OF` tokens with draft mass.
    """
    support = np.flatnonzero(problem.draft > 0)
    if len(support) > MOST_SETS_OF:
        raise TooLarge(
            f"A coupling of drafted sets is limited to {MOST_SETS_OF} tokens with draft mass; "
            f"{problem.law!r} has {len(support)}. Call otm.acceptance for how often a draft is "
            "accepted, or otm.sample to draw from it."
        )
    table = enumerate_drafts(problem.law, problem.draft)
    subsets = np.zeros((len(table.mass) + 1, problem.num_tokens), dtype=bool)
    subsets[:, support] = all_subsets(len(support))
    joint = np.stack([inside(members) for members in subsets])
    for place in range(len(support)):
        pairs = joint.reshape(-1, 2, 1 << place, problem.num_tokens)
        pairs[:, 1] -= pairs[:, 0]
    kept = table.mass >= _CANCELLED
    masses = np.maximum(joint[1:][kept], 0.0)
    return Coupling(drafts=table.tokens[kept], joint=scipy.sparse.csr_array(masses))


def require_support(verifier: Verifier, law: Law) -> None:
    """Raise unless a verifier applies to a law.

    `InvalidParameter` if either is none, `Unsupported`, naming both, if they do not fit.
    """
    if not isinstance(verifier, Verifier) or not isinstance(law, Law):
        raise InvalidParameter(
            "The arguments are (verifier, problem), a verifier being an instance such as "
            f"otm.KSeq(); got {verifier!r}. "
            "Check their order, and call the class."
        )
    if not verifier.supports(law):
        raise Unsupported(
            f"{verifier!r} does not verify drafts drawn by {law!r}. Choose a verifier whose "
            "supports(law) holds; "
            "otm.compare without verifiers= lists those that do."
        )


def require_state(state: NDArray[Any] | None) -> NDArray[Any]:
    """Return the randomness shared by the drafter, or raise `TypeError` without any."""
    if state is None:
        raise TypeError(
            "Shared randomness is verified as it drew the drafts; state is None. Pass the state "
            "that draw() returned."
        )
    return state


def check_definition(by: str) -> Definition:
    """Return `by` if this is a definition of acceptance, else raise `InvalidParameter`."""
    if isinstance(by, str) and by in ("membership", "rule"):
        return "membership" if by == "membership" else "rule"
    raise InvalidParameter(
        "by must be 'membership' (the output is among the drafts) or 'rule' (the rule accepted); "
        f"got {by!r}. Choose one."
    )


def check_drafts(drafts: object, problem: Problem) -> NDArray[np.int64]:
    """Return drafts as int64 `(n, k)`, or raise `InvalidParameter` on a wrong shape or token."""
    array, most = any_array(drafts), problem.num_drafts
    widths = (most,) if isinstance(problem.law, CountedLaw) else range(1, most + 1)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or array.shape[-1] not in widths:
        raise InvalidParameter(
            f"drafts must be integer tokens of shape (k,) or (n, k) with k = {most}"
            f"{' or less' if len(widths) > 1 else ''}; got {array.dtype} of shape {array.shape}. "
            "Pass one token per draft."
        )
    smallest = problem.law.least_token
    if array.size and (array.min() < smallest or array.max() >= problem.num_tokens):
        raise InvalidParameter(
            "Drafted tokens must lie in [0, "
            f"{problem.num_tokens}){'' if smallest == 0 else ', or be −1 for no draft'}; got "
            f"{array.min()} to {array.max()}. Check that both models share the vocabulary."
        )
    tokens = np.atleast_2d(array.astype(np.int64))
    if isinstance(problem.law, CountedLaw):
        return tokens
    return rows_of_members(members(tokens, problem.num_tokens))


def enumerated_acceptance(rule: Conditional, by: Definition) -> float:
    """Sum the acceptance over every draft sequence.

    The oracle of closed forms, and the value of schemes without one.

    Cost: O(sequences × V); raises `TooLarge` beyond four million sequences.
    """
    total = 0.0
    for tokens, mass in live_blocks(rule):
        accepted, residual = rule.split(tokens)
        if by == "rule":
            total += float(mass @ accepted.sum(axis=1))
        else:
            total += float(
                mass
                @ ((accepted + residual) * members(tokens, rule.problem.num_tokens)).sum(axis=1)
            )
    return total


def live_blocks(rule: Rule) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield the possible draft sequences `(n, k)`, with masses `(n,)`, in blocks.

    A block is so long that a table of `(n, V)` stays small.

    Raises `TooLarge` beyond four million sequences.
    """
    table = live_drafts(rule.problem.law, rule.problem.draft)
    step = max(1, _ENTRIES_AT_ONCE // rule.problem.num_tokens)
    for start in range(0, len(table.mass), step):
        yield table.tokens[start : start + step], table.mass[start : start + step]
