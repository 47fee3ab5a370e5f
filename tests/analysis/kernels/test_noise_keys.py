"""Which keys of draft noise each kernel is lossless with: the law of a text of several steps,
exactly, from the kernel's own law of a step on every draft.
"""

import collections
import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from analysis.kernels.chain import block, token_by_token
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm.audit.tracing.branching import trace_each
from tests.analysis.kernels.steps import KERNELS
from tests.paths import ROOT

TOKENS, DEPTH = 3, 2
PAIR = (0.75, 0.25), (0.25, 0.75)
"""Draft and target of what drafts sequences, the same at every position."""

TREE_PAIR = (0.5, 0.25, 0.25), (0.25, 0.25, 0.5)
"""And of trees: two distinct children of the root, and one of the first."""


def on_a_small_tree(kernel):
    """A kernel of trees on two children, of which the first has one."""
    children, siblings = torch.tensor([[[1, 3, -1, -1]], [[-1, 2, -1, -1]]])
    return lambda drafts, *rest: kernel(drafts, children, siblings, *rest, depth=DEPTH)


def sequences(k):
    """Noise of one position: a token for each of K sequences, with its probability."""
    return {
        tokens: float(np.prod([PAIR[0][token] for token in tokens]))
        for tokens in itertools.product(range(2), repeat=k)
    }


def orders():
    """Noise of one position: the order in which a node's children are drawn."""
    mass = np.array(TREE_PAIR[0])
    return {
        (a, b, c): float(mass[a] * mass[b] / (1.0 - mass[a]))
        for a, b, c in itertools.permutations(range(3))
    }


def level_by_level(noise):
    """The tokens of K sequences of two, level by level."""
    return [*noise[0], *noise[1]]


def small_tree(noise):
    """The root's children, and the first one's child."""
    return [*noise[0][:2], noise[1][0]]


SEQUENCES = PAIR, sequences(2), level_by_level
TREES = TREE_PAIR, orders(), small_tree
SETTINGS = {
    "token by token": (token_by_token, PAIR, sequences(1), level_by_level),
    "block": (block, PAIR, sequences(1), level_by_level),
    **{
        name: (KERNELS[name][0], *SEQUENCES)
        for name in ("refined scores", "optimal by vertex", "block K-SEQ")
    },
    "recursive rejection": (on_a_small_tree(recursive_rejection), *TREES),
    "traversal": (on_a_small_tree(traversal), *TREES),
}


def step_laws(name):
    """The exact law of a step's text by the noise of two positions: the kernel's, its uniforms
    integrated.
    """
    kernel, (p, q), noise, drafted = SETTINGS[name]
    drafts = {both: tuple(drafted(both)) for both in itertools.product(noise, repeat=DEPTH)}
    nodes = 1 + len(next(iter(drafts.values())))
    rows = [torch.tensor(law, dtype=torch.float64).expand(1, nodes, -1) for law in (q, p)]

    def step(tokens, _):
        u = torch.rand((1, nodes + 1), dtype=torch.float64)
        found = kernel(torch.tensor([[-1, *tokens]]), *rows, u[:, :-1], u[:, -1])
        return tuple(found.tokens[0, : found.count[0]].tolist())

    different = list(dict.fromkeys(drafts.values()))
    found = trace_each([functools.partial(step, tokens) for tokens in different], checks=2)
    assert not any(law.error for law in found)
    laws = dict(zip(different, (law.mass for law in found), strict=True))
    return {both: laws[tokens] for both, tokens in drafts.items()}


def total_variation(name, laws, key):
    """Of a text's first tokens, drafts drawn on noise with a key, from the target's."""
    _, (_, q), noise, _ = SETTINGS[name]
    going, text = {((), ()): 1.0}, collections.Counter()
    while going:
        longer = collections.Counter()
        for (tokens, known), mass in going.items():
            for fresh in itertools.product(noise, repeat=DEPTH - len(known)):
                both = (*known, *fresh)
                drawn = mass * np.prod([noise[one] for one in fresh])
                for step, share in laws[both].items():
                    kept = both[len(step) :] if key == "position" else ()
                    after = (*tokens, *step)[:TOKENS]
                    if len(after) == TOKENS:
                        text[after] += drawn * share
                    else:
                        longer[after, kept] += drawn * share
        going = longer
    wanted = {
        x: np.prod([q[i] for i in x]) for x in itertools.product(range(len(q)), repeat=TOKENS)
    }
    return 0.5 * sum(abs(text[x] - mass) for x, mass in wanted.items())


BIASED = {
    "block": "17/288",
    "refined scores": ".0481",
    "block K-SEQ": ".0276",
    "traversal": "1/64",
}
"""Total variations with noise by position, as the page has them; of the others 0."""


LONG = ("optimal by vertex", "recursive rejection", "traversal")
"""Kernels whose laws take a while."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in SETTINGS],
)
def test_texts_of_several_steps(name):
    laws = step_laws(name)
    found = total_variation(name, laws, "position")
    wanted = BIASED.get(name, "0")
    assert found == pytest.approx(float(Fraction(wanted)), abs=5e-5 if "." in wanted else 1e-14)
    assert total_variation(name, laws, "step") < 1e-14


def test_the_page_says_so_of_every_kernel():
    page = (ROOT / "docs" / "howto" / "kernels.md").read_text(encoding="utf-8")
    table = page.partition("## Which keys of noise are lossless")[2].partition("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.strip("| ").split("|")]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    assert set(SETTINGS) == set(KERNELS)
    assert [row[:3] for row in rows] == [
        [
            name.lower().replace("-", "").replace(" ", "_"),
            BIASED.get(name, "0, proved"),
            "0, proved",
        ]
        for name in SETTINGS
    ]
