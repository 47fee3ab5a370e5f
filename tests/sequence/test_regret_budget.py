"""Regret budgets: steps against the law, the published loop, and the ends of each budget."""

from __future__ import annotations

import numpy as np
import pytest

from otm.sequence import RegretBudget, ZerothOrder, expected_step, step_law
from tests.sequence.toys import distance, random_models


def published(regrets: list[float], mismatched: list[bool], decoder: RegretBudget) -> int:
    """The loop of the reference code: gate, budget before and after, and the cap, in this order."""
    total, relaxed = 0.0, 0
    remaining = decoder.budget - decoder.spent
    for index, regret in enumerate(regrets):
        if mismatched[index]:
            before = total
            total += regret
            relaxed += 1
            worthwhile = regret / ((len(regrets) - index) / len(regrets)) <= decoder.gate
            if not (
                worthwhile
                and before < remaining
                and total <= remaining
                and relaxed <= decoder.mismatches
            ):
                return index
    return len(regrets)


@pytest.mark.parametrize("seed", range(40))
def test_the_loop_and_the_law(seed: int) -> None:
    random = np.random.default_rng([77, seed])
    length = int(random.integers(1, 5))
    budget = float(random.choice([0.0, 0.3, 1.0, 3.0]))
    gate, most = float(random.choice([0.0, 0.5, 2.0])), int(random.integers(0, 4))
    decoder = RegretBudget(
        length, budget, gate, most, spent=float(random.uniform(0, budget)) if seed % 2 else 0.0
    )
    draft, target = random_models(3, length + 1, random)
    models = {"draft": draft, "target": target, "context": []}
    found = expected_step(decoder, **models).law
    assert distance(found, step_law(decoder, **models)) == 0.0
    context: list[int] = []
    regrets, mismatched = [], []
    for _ in range(length):
        token = int(np.argmax(draft.next(context)))
        row = target.next(context)
        with np.errstate(divide="ignore"):
            regrets.append(float(np.log(row.max()) - np.log(row[token])))
        mismatched.append(token != int(np.argmax(row)))
        context.append(token)
    kept = published(regrets, mismatched, decoder)
    assert found.accepted.tolist() == [kept]
    assert found.tokens[0].tolist() == [
        *context[:kept],
        int(np.argmax(target.next(context[:kept]))),
    ]


def test_no_budget_is_greedy_decoding() -> None:
    draft, target = ZerothOrder([0.6, 0.4]), ZerothOrder([0.45, 0.55])
    for exact in (
        RegretBudget(3, budget=0.0),
        RegretBudget(3, mismatches=0),
        RegretBudget(3, budget=1.0, spent=1.0),
    ):
        law = step_law(exact, draft=draft, target=target, context=[])
        assert law.tokens.tolist() == [[1]]
    # What is spent to the last bit is not too much.
    regret = float(np.log(0.55) - np.log(0.45))
    law = step_law(RegretBudget(1, regret, gate=regret), draft=draft, target=target, context=[])
    assert law.tokens.tolist() == [[0, 1]]
    # A mismatch and a half pay for one of three.
    short = RegretBudget(3, 1.5 * regret, gate=4 * regret, mismatches=3)
    assert step_law(short, draft=draft, target=target, context=[]).accepted.tolist() == [1]
