"""Kernels whose generators cannot be followed, audited: false alarms, and biased kernels missed.

Each kernel draws a seed from what it is given and all its numbers from a generator of its own:
written in Python, of torch, or of NumPy from a child seed. ``python -m evidence.hidden_generators``
audits every kind of kernel with every generator, lossless and biased, and prints the counts.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from otm import audit
from otm._display.tabular import markdown, with_section
from otm.audit.sampled_audit import SampledAudit
from otm.audit.standard_problems import SECONDS

_MASK = 2**64 - 1
_ALARM = "not lossless"
_NAMED = 3
"""Instances that a row of the table of power names."""

_MORE = 4.0
"""Times the seconds for biased kernels, which samples are to find."""

Generator = Callable[[np.random.Generator], Iterator[float]]


def _seed(rng: Any) -> int:
    return int(rng.integers(2**31))


def splitmix64(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of splitmix64."""
    state = _seed(rng)
    while True:
        state = state + 0x9E3779B97F4A7C15 & _MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        yield ((z ^ z >> 31) >> 11) / 2**53


def xorshift(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of xorshift64*, begun with a hash of the seed."""
    state = int(next(splitmix64(rng)) * 2**53) | 1
    while True:
        state ^= state >> 12
        state ^= state << 25 & _MASK
        state ^= state >> 27
        yield (state * 0x2545F4914F6CDD1D & _MASK) / 2**64


def pcg32(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of PCG-XSH-RR."""
    increment = 1442695040888963407
    state = (_seed(rng) + increment) * 6364136223846793005 + increment & _MASK
    while True:
        mixed, turn = (state >> 18 ^ state) >> 27 & 0xFFFFFFFF, state >> 59
        state = state * 6364136223846793005 + increment & _MASK
        yield (mixed >> turn | mixed << (-turn & 31) & 0xFFFFFFFF) / 2**32


def philox(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of Philox 4x32-10, a block for each count."""
    seed = _seed(rng)
    for count in itertools.count():
        block, keys = [count, 0, 0, 0], [seed, 0x1BD11BDA]
        for _ in range(10):
            a, b = block[0] * 0xD2511F53, block[2] * 0xCD9E8D57
            block = [
                b >> 32 ^ block[1] ^ keys[0],
                b & 0xFFFFFFFF,
                a >> 32 ^ block[3] ^ keys[1],
                a & 0xFFFFFFFF,
            ]
            keys = [keys[0] + 0x9E3779B9 & 0xFFFFFFFF, keys[1] + 0xBB67AE85 & 0xFFFFFFFF]
        yield from (word / 2**32 for word in block)


def of_torch(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of a generator of torch."""
    generator = torch.Generator().manual_seed(_seed(rng))
    while True:
        yield torch.rand((), generator=generator, dtype=torch.float64).item()


def of_child(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniforms of a generator of NumPy with a child seed."""
    child = np.random.default_rng(np.random.SeedSequence(_seed(rng)).spawn(1)[0])
    while True:
        yield child.random()


GENERATORS: tuple[Generator, ...] = (splitmix64, xorshift, pcg32, philox, of_torch, of_child)


def _drawn(mass: Any, u: Iterator[float]) -> int:
    cumulative = np.cumsum(mass)
    return int(np.searchsorted(cumulative, next(u) * cumulative[-1], side="right"))


def _tried(p: Any, q: Any, x: int, u: Iterator[float], biased: bool) -> tuple[bool, Any]:
    """Try a drafted token; return whether it is accepted, and what is to be drawn from if not.

    The biased rule draws from the target where the residual belongs.
    """
    if next(u) * p[x] < q[x]:
        return True, q
    rest = np.maximum(q - p, 0.0)
    return False, rest / rest.sum() if rest.sum() > 0 and not biased else q


def _block(p: Any, q: Any, drafts: Any, u: Iterator[float], biased: bool) -> list[int]:
    path: list[int] = []
    for i, x in enumerate(map(int, drafts)):
        kept, rest = _tried(p[i], q[i], x, u, biased)
        if not kept:
            return [*path, _drawn(rest, u)]
        path.append(x)
    return [*path, _drawn(q[len(drafts)], u)]


class _Common:
    """The common generator of NumPy as a source of seeds, for kernels that are handed none."""

    @staticmethod
    def integers(high: int) -> int:
        """Draw an integer below `high`."""
        return int(np.random.randint(high))  # noqa: NPY002 (it is the generator in question)


def token(generator: Generator, biased: bool, p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
    """Verify drafts of one token."""
    u, rest = generator(_Common()), q  # type: ignore[arg-type]
    for x in map(int, drafts):
        kept, rest = _tried(p, rest, x, u, biased)
        if kept:
            return x
    return _drawn(rest, u)


def tokens(generator: Generator, biased: bool, p: Any, q: Any, drafts: Any, rng: Any) -> Any:
    """Verify rows of one token."""
    u, found = generator(rng), []
    for row in drafts:
        rest = q
        for x in map(int, row):
            kept, rest = _tried(p, rest, x, u, biased)
            if kept:
                found.append(x)
                break
        else:
            found.append(_drawn(rest, u))
    return np.asarray(found)


def block(generator: Generator, biased: bool, p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    """Verify a block."""
    return _block(p, q, drafts, generator(_Common()), biased)  # type: ignore[arg-type]


def step(generator: Generator, biased: bool, draft: Any, target: Any, rng: Any) -> list[int]:
    """Draft two tokens and verify them."""
    u, path, p = generator(rng), list[int](), []
    for _ in range(2):
        p.append(draft.next(path))
        path.append(_drawn(p[-1], u))
    return _block(p, [target.next(path[:i]) for i in range(3)], path, u, biased)


def tree(generator: Generator, biased: bool, tree: Any, rng: Any) -> list[int]:
    """Walk over the siblings of a tree by recursive rejection."""
    u, node, path = generator(rng), 0, list[int]()
    while True:
        rest = tree.target[node]
        for child in tree.children(node):
            x = int(tree.tokens[child])
            kept, rest = _tried(tree.draft[node], rest, x, u, biased)
            if kept:
                path.append(x)
                node = child
                break
        else:
            return [*path, _drawn(rest, u)]


KINDS: dict[Callable[..., Any], Callable[..., Any]] = {
    token: audit.TokenCandidate,
    tokens: audit.BatchCandidate,
    block: audit.BlockCandidate,
    step: audit.StepCandidate,
    tree: audit.TreeCandidate,
}


def audited(
    kind: Callable[..., Any], generator: Generator, *, biased: bool, seed: int, seconds: float
) -> audit.BatteryAudit:
    """Audit a kernel of one kind with one generator."""
    kernel = functools.partial(kind, generator, biased)
    name = f"{kind.__name__} of {generator.__name__}{', biased' * biased}"
    return audit.battery(KINDS[kind](kernel, name), seed=seed, seconds=seconds, shrink_for=0.0)


def power_table() -> str:
    """Return what samples find of lossless kernels in a battery's usual time, by instance."""
    rows = []
    for kind in (tokens, block, step, tree):
        found = audited(kind, splitmix64, biased=False, seed=0, seconds=SECONDS)
        sampled = [(n, a) for n, a in found.audits.items() if isinstance(a, SampledAudit)]
        for detect, group in itertools.groupby(sorted(sampled, key=_detected), key=_detected):
            names = [name.removesuffix(", samples") for name, _ in group]
            shown = "; ".join(names[:_NAMED]) + f"; {len(names) - _NAMED} more" * (
                len(names) > _NAMED
            )
            rows.append((KINDS[kind].description, shown, f"{detect:.2g}"))
    return markdown(("kernel", "instances", "found if TV ≥"), rows)


def _detected(entry: tuple[str, SampledAudit]) -> float:
    return round(entry[1].detect, 2)


def main() -> None:
    """Print how often each verdict was given on lossless and on biased kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--power", type=Path, metavar="PAGE", help="write what samples find")
    options = parser.parse_args()
    if options.power is not None:
        text = options.power.read_text(encoding="utf-8")
        options.power.write_text(with_section(text, "power", power_table()), encoding="utf-8")
        return
    counts: collections.Counter[tuple[str, bool, str]] = collections.Counter()
    for seed, kind, generator in itertools.product(range(options.seeds), KINDS, GENERATORS):
        for biased in (False, True)[: 2 if seed == 0 else 1]:
            seconds = options.seconds * (_MORE if biased else 1.0)
            found = audited(kind, generator, biased=biased, seed=seed, seconds=seconds)
            counts[kind.__name__, biased, found.verdict] += 1
            if (found.verdict == _ALARM) != biased:
                print(f"{found.name}, seed {seed}: {found.headline}", flush=True)
    for (name, biased, verdict), count in sorted(counts.items()):
        print(f"{name}, {'biased' if biased else 'lossless'}: {verdict} {count}")
    runs = {key: count for key, count in counts.items() if not key[1]}
    alarms = sum(count for (_, _, verdict), count in runs.items() if verdict == _ALARM)
    print(f"{alarms} false alarms of {sum(runs.values())} runs")


if __name__ == "__main__":
    main()
