"""Delayed expansion: some drafts in a row, then several branches; the best such shape, exactly.

Branches from the root share nothing and pay for the first tokens several times over, though there
the models may agree anyway. With L₁ drafts in a row, then K branches of L₂, a budget of n drafted
tokens allows L₁ + K·L₂ ≤ n: few enough shapes to try them all.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence

from otm.errors import InvalidParameter
from otm.pmf import check_count, check_real
from otm.sequence.decoder import Decoder, check_step_arguments
from otm.sequence.deferred import expected_step
from otm.sequence.models import LanguageModel, Memoised

MakeDelayed = Callable[[int, int, int], Decoder]
"""A decoder for (stem L₁, branches K, length L₂)."""


@dataclasses.dataclass(frozen=True)
class DelayedExpansion:
    """A stem with branches, its expected tokens and its speed.

    Attributes:
        stem, num_branches, length: L₁ ≥ 0 tokens in a row, then K ≥ 1 branches of L₂ ≥ 1 tokens.
        tokens: exact expected tokens per target call.
        speed: tokens per unit of time, a target call being one: tokens/(1 + c·(L₁ + L₂)).
    """

    stem: int
    num_branches: int
    length: int
    tokens: float
    speed: float


def delayed_expansions(
    make: MakeDelayed,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    num_nodes: int,
    draft_cost: float = 0.0,
) -> list[DelayedExpansion]:
    """Return every delayed expansion within a budget of drafted tokens, the fastest first.

    Args:
        make: (L₁, K, L₂) → a decoder, of `otm.trees.TreeShape.delayed(L₁, K, L₂)`, say.
        draft, target: two models; a small vocabulary.
        context: tokens so far.
        num_nodes: the budget n ≥ 1, L₁ + K·L₂ ≤ n.
        draft_cost: c ≥ 0, the time of a draft call in target calls; 0 ranks by tokens per call.

    Returns:
        A DelayedExpansion for each shape, by falling speed, of equals the one with fewer tokens
        drafted; chains as K = 1, L₁ = 0.

    Raises:
        InvalidParameter: if the budget is no integer of at least 1, or the cost is negative.

    Cost: one `expected_step` per shape; n² of them, in round numbers.
    Reference: Thomas et al. 2026 (2602.16994).

    >>> from otm.sequence import GreedyMultipath, MarkovModel
    >>> draft = MarkovModel([[0.0, 1.0], [0.75, 0.25]])
    >>> target = MarkovModel([[0.0, 1.0], [0.25, 0.75]])  # agrees after 0, not after 1
    >>> make = lambda stem, branches, length: GreedyMultipath(branches, length, stem)
    >>> best = delayed_expansions(
    ...     make, draft=draft, target=target, context=[0], num_nodes=4, draft_cost=0.1
    ... )[0]
    >>> best.stem, best.num_branches, best.length
    (1, 3, 1)
    >>> round(best.tokens, 6)  # 1 + 1 + (1 − (3/4)³) + 1/4
    2.828125
    """
    try:
        inspect.signature(make).bind(0, 1, 1)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"make must be a function of (stem, branches, length) to a decoder; got {make!r:.80}. "
            "Pass the function itself."
        ) from error
    budget = check_count(num_nodes, name="num_nodes")
    check_step_arguments(make(0, 1, 1), draft=draft, target=target, context=context)
    cost = check_real(draft_cost, name="draft_cost", low=0.0)
    drafter, judge = Memoised(draft), Memoised(target)
    found = []
    for stem, branches, length in _shapes(budget):
        decoder = make(stem, branches, length)
        step = expected_step(decoder, draft=drafter, target=judge, context=context)
        tokens = step.block_efficiency
        speed = tokens / (1.0 + cost * (stem + length))
        found.append(DelayedExpansion(stem, branches, length, tokens, speed))
    return sorted(found, key=lambda one: (-one.speed, one.stem + one.num_branches * one.length))


def _shapes(budget: int) -> Iterator[tuple[int, int, int]]:
    """List (L₁, K, L₂) with L₁ + K·L₂ ≤ n: chains once, then every branching."""
    yield from ((0, 1, length) for length in range(1, budget + 1))
    for branches in range(2, budget + 1):
        for length in range(1, budget // branches + 1):
            yield from ((stem, branches, length) for stem in range(budget - branches * length + 1))
