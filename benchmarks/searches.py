"""Searches for the worst instance of a statement of docs/theory.md that rests on instances tried.

An instance is a list of distributions: drafts, targets, and what else the statement ranges over. A
climb starts from random ones and moves masses within one of them, keeps what makes the loss larger,
and starts afresh when it is stuck.

    python -m benchmarks.searches NAME --minutes 10 --seed 0
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog

import otm
from benchmarks.timing import machine
from otm._machine.arrays import Floats
from otm.continuous import GaussianOptimal
from otm.sequence import (
    BlockVerification,
    GreedyMultipath,
    RefinedScores,
    TableModel,
    expected_step,
)
from otm.sequence.tree_cuts import PathTree, best_of_paths

RESULTS = Path(__file__).parent / "results" / "searches.json"
STUCK = 600
"""Steps without a gain after which a climb starts afresh."""
TRIED = 20
"""Random instances of which a climb takes the worst for its start."""


def start_of(lengths: Sequence[int], rng: np.random.Generator) -> list[Floats]:
    """Return random distributions of these lengths, peaked or flat, some with zeros."""
    found = []
    for length in lengths:
        mass = rng.dirichlet(np.full(length, rng.choice([0.3, 1.0, 3.0])))
        mass *= mass >= min(rng.choice([0.0, 0.1]), mass.max())
        found.append(mass / mass.sum())
    return found


def neighbour(instance: list[Floats], rng: np.random.Generator) -> list[Floats]:
    """Return the instance with one distribution moved: a little, to a face or onto another one."""
    place, size = int(rng.integers(len(instance))), 10.0 ** -rng.uniform(0.0, 5.0)
    mass = instance[place]
    one, other = np.eye(len(mass))[rng.integers(len(mass), size=2)]
    onto = [one, *(each for each in instance if len(each) == len(mass))]
    moves = [
        mass + min(mass @ one, size) * (other - one),
        mass + (mass @ one) * (other - one),
        mass * (1.0 + size * rng.uniform(-0.9, 0.9, len(mass))),
        mass + size * (onto[int(rng.integers(len(onto)))] - mass),
    ]
    moved = np.maximum(moves[int(rng.choice(4, p=[0.5, 0.1, 0.2, 0.2]))], 0.0)
    return [*instance[:place], moved / moved.sum(), *instance[place + 1 :]]


def climb(name: str, rng: np.random.Generator) -> Iterator[tuple[int, float, list[Floats]]]:
    """Yield, step by step and for ever, the number of the start, the loss and the instance."""
    loss, lengths = SEARCHES[name]
    for start in itertools.count(1):
        few = [start_of(lengths, rng) for _ in range(TRIED)]
        value, number = max((loss(*one), number) for number, one in enumerate(few))
        instance, idle = few[number], 0
        while idle < STUCK:
            tried = neighbour(instance, rng)
            found, idle = loss(*tried), idle + 1
            if found >= value:  # on a plateau it wanders
                # a gain of less than a thousandth does not keep a climb alive
                idle *= found <= value + 1e-3 * abs(value) + 1e-12
                instance, value = tried, found
            yield start, value, instance


def _one_of(mass: Floats, values: Sequence[int]) -> int:
    return values[int(mass.argmax())]


def _paths(num_tokens: int, length: int) -> list[tuple[int, ...]]:
    return [u for n in range(length + 1) for u in itertools.product(range(num_tokens), repeat=n)]


def _models(rows: Sequence[Floats], length: int) -> list[TableModel]:
    """Return draft and target by their rows after each context, a half each, over and over."""
    after, half = _paths(len(rows[0]), length), len(rows) // 2
    return [
        TableModel(dict(zip(after, itertools.cycle(part), strict=False)))
        for part in (rows[:half], rows[half:])
    ]


def _tokens(decoder: Any, rows: Sequence[Floats]) -> float:
    draft, target = _models(rows, decoder.depth)
    return expected_step(decoder, draft=draft, target=target, context=[]).block_efficiency


def left_over(weight: float, draft: Floats, target: Floats) -> float:
    """Return what two distinct children, leaves both, leave of its weight to a vertex itself."""
    rejected = np.maximum(draft - weight * target, 0.0)[:, None]
    whole = max(float(rejected.sum()), 1e-300)
    taken = draft * (1.0 + whole / np.maximum(1.0 - draft, 1e-300)[:, None])
    return float((rejected / whole * np.maximum(weight * target - taken, 0.0)).sum())


def traversal(weight: Floats, draft: Floats, target: Floats) -> float:
    """What traversal verification loses below a vertex of weight w with two leaves."""
    lost = left_over((w := float(weight[0])), draft, target) - w * left_over(1.0, draft, target)
    return lost if lost > 0 else lost / max(1.0 - w, 1e-3)  # w = 1 is no way out


def tournament(draft: Floats, target: Floats) -> float:
    """What matches in pairs of three drafts, all tokens in the program, lose to the optimum."""
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(3))
    kept = otm.acceptance(otm.Tournament(len(draft)), problem, by="rule")
    return float(otm.optimal_acceptance(problem)) - float(kept)


def scores(place: Floats, count: Floats) -> float:
    """How far the selected Gaussian draft may be from its planned law, by what the pieces miss."""
    k = _one_of(count, (2, 4, 8, 16))
    missed = GaussianOptimal(k, 0.2 + 4.8 * float(place[0])).plans[0][0].residuals
    return 0.5 * (missed["moment"] + k * missed["length"])


@functools.cache
def _antichains(num_tokens: int, length: int) -> list[tuple[tuple[int, ...], ...]]:
    """Return the antichains of non-empty paths of up to L tokens."""
    if not length:
        return [()]
    each = [((),), *_antichains(num_tokens, length - 1)]
    return [
        tuple((token, *path) for token, part in enumerate(parts) for path in part)
        for parts in itertools.product(each, repeat=num_tokens)
    ]


@functools.cache
def _cuts(num_tokens: int, length: int) -> Floats:
    paths, every = _paths(num_tokens, length)[1:], _antichains(num_tokens, length)
    return np.array([[float(path in cut) for path in paths] for cut in every])


def first_level(length: int, *rows: Floats) -> tuple[float, float]:
    """Return what K sequences can accept at most, and with as many first tokens as can be."""
    num_tokens, half, k = len(rows[0]), len(rows) // 2, _one_of(rows[-1], (2, 3, 4, 5))
    paths, cuts = _paths(num_tokens, length), _cuts(num_tokens, length)
    drawn, below = np.ones(len(paths)), np.eye(len(paths))[1:]
    for number, path in enumerate(paths[1:], start=1):
        before = paths.index(path[:-1])
        drawn[number] = drawn[before] * rows[before][path[-1]]
        below[number - 1, before] = -rows[half + before][path[-1]]  # f(uy) ≤ q(y | u) f(u)
    right = np.append(-below[:, 0], 1.0 - (1.0 - np.minimum(cuts @ drawn[1:], 1.0)) ** k)
    close = {f"{side}_feasibility_tolerance": 1e-10 for side in ("primal", "dual")}
    best, held = (
        float(
            linprog(
                np.repeat([-1.0 - weight, -1.0], [num_tokens, len(paths) - 1 - num_tokens]),
                A_ub=np.vstack([below[:, 1:], cuts]),
                b_ub=right,
                options=close,
            ).x.sum()
        )
        for weight in (0.0, 1e4)  # of first tokens, beside 1
    )
    return best, held


def levels(length: int, *rows: Floats) -> float:
    """What K sequences lose if as many first tokens as can be are accepted."""
    return float(np.subtract(*first_level(length, *rows)))


def refined(*rows: Floats) -> float:
    """What refined scores lose to the best step on sequences of two tokens."""
    scheme = RefinedScores(_one_of(rows[-1], (2, 3, 4, 5)), 2)
    return first_level(2, *rows)[0] - (_tokens(scheme, rows[:-1]) - 1.0)


def gap(*rows: Floats) -> float:
    """How far apart the two sides of the best step's program are."""
    draft, target = _models(rows[:-1], 2)
    tree, k = PathTree.of(draft, target, (), 2), 2 + int(rows[-1].argmax())
    lower, upper = best_of_paths(tree, k, tolerance=1e-14)[1:3] if tree.paths else (0.0, 0.0)
    return upper - lower


def multipath(*rows: Floats) -> float:
    """What greedy multi-path block verification loses to one sequence, models of order one."""
    one, several = BlockVerification(2), GreedyMultipath(_one_of(rows[-1], (2, 3)), 2)
    return _tokens(one, rows[:-1]) - _tokens(several, rows[:-1])


SEARCHES: dict[str, tuple[Callable[..., float], Sequence[int]]] = {
    "tournament": (tournament, [6, 6]),
    "two levels": (functools.partial(levels, 2), [3] * 8 + [4]),
    "three levels": (functools.partial(levels, 3), [2] * 14 + [4]),
    "multipath": (multipath, [4] * 10 + [2]),
    "traversal": (traversal, [2, 5, 5]),
    "refined": (refined, [3] * 8 + [4]),
    "gap": (gap, [3] * 8 + [7]),
    "scores": (scores, [2, 4]),
}
"""Losses, and the lengths of the distributions that they are functions of."""


def main() -> None:
    """Run one search and enter it in the results whenever its worst instance changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SEARCHES)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked, said, begun = parser.parse_args(), machine(), time.monotonic()
    others = json.loads(asked.out.read_text())["rows"] if asked.out.exists() else []
    others, worst, shown = [row for row in others if row["name"] != asked.name], -np.inf, -np.inf
    taken, last = enumerate(climb(asked.name, np.random.default_rng(asked.seed)), start=1), 0.0
    while (spent := time.monotonic() - begun) < 60.0 * asked.minutes:
        steps, (starts, value, instance) = next(taken)
        if value > worst:
            worst, kept = value, [mass.tolist() for mass in instance]
        if worst - shown > 1e-2 * abs(worst) or spent > last + 10.0:
            row = {
                "name": asked.name,
                "seed": asked.seed,
                "seconds": round(spent),
                "starts": starts,
                "steps": steps,
                "worst": worst,
                "instance": kept,
            }
            record = {"machine": said, "rows": sorted([*others, row], key=lambda row: row["name"])}
            asked.out.write_text(json.dumps(record, indent=1) + "\n")
            print(row, flush=True)
            shown, last = worst, spent


if __name__ == "__main__":
    main()
