"""A kernel that takes a drafted tree and returns a path, with the arrays of SGLang, EAGLE or
Sequoia: ``otm audit FILE.py``.

Each of the three functions below turns a kernel with that engine's arrays into what is audited,
`verify(tree, rng)` -> the accepted tokens and the one after them. Node 0 is the root, the last
token of the text. `siblings` says how the trees are drafted: "with" replacement, "without", or the
"likeliest" (the draft's top-k, as EAGLE-2 and SGLang draft them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit import TreeCandidate

Verify = Callable[[Any, np.random.Generator], list[int]]


def from_sglang(kernel: Callable[..., None]) -> Verify:
    """Return a kernel that writes where others return: SGLang's
    `tree_speculative_sampling_target_only`, say.

    kernel(predicts (n,), accept_index (1, n), accept_token_num (1,), candidates (1, n),
    retrive_index (1, n), retrive_next_token (1, n), retrive_next_sibling (1, n), uniform_samples
    (1, n), uniform_samples_for_final_sampling (1,), target_probs (1, n, V), draft_probs (1, n, V)),
    with draft_probs zero: such trees are chosen, not drawn. Pass tensors on from here if it needs
    them.
    """

    def verify(tree: Any, rng: np.random.Generator) -> list[int]:
        n = len(tree.tokens)
        predicts, index, number = np.full(n, -1), np.full((1, n), -1), np.zeros(1, dtype=int)
        links = (
            tree.tokens[None],
            np.arange(n)[None],
            tree.first_child[None],
            tree.next_sibling[None],
        )
        coins = rng.random((1, n)), rng.random(1)
        kernel(
            predicts,
            index,
            number,
            *links,
            *coins,
            tree.target[None].copy(),
            np.zeros((1, *tree.draft.shape)),
        )
        return [int(predicts[index[0, i]]) for i in range(int(number[0]) + 1)]

    return verify


def from_eagle(evaluate: Callable[..., tuple[int, int, Any]]) -> Verify:
    """Return a function of EAGLE's kind, by leaves: `retrieve_indices` padded with −1.

    evaluate(target_probs (leaves, depth + 1, V), candidates (leaves, depth + 1), rng) -> best leaf,
    number accepted, law of the token after them; candidates begin with the root. Take the logarithm
    of the laws where it wants logits.
    """

    def verify(tree: Any, rng: np.random.Generator) -> list[int]:
        paths = [[0]]
        for node, parent in enumerate(tree.parents[1:], start=1):
            paths.append([*paths[parent], node])
        paths = [path for path in paths if tree.first_child[path[-1]] == -1]
        indices = np.full((len(paths), max(map(len, paths))), -1)
        for row, path in zip(indices, paths, strict=True):
            row[: len(path)] = path
        candidates = np.where(indices >= 0, tree.tokens[indices], -1)
        best, accepted, law = evaluate(tree.target[indices], candidates, rng)
        return [*map(int, candidates[best, 1 : accepted + 1]), int(rng.choice(len(law), p=law))]

    return verify


def from_sequoia(walk: Callable[..., list[int]]) -> Verify:
    """Return a function of Sequoia's kind: walk(tokens (n,), successors, draft (n, V), target (n,
    V), rng) -> tokens.
    """

    def verify(tree: Any, rng: np.random.Generator) -> list[int]:
        successors = [tree.children(node) for node in range(len(tree.tokens))]
        return walk(tree.tokens, successors, tree.draft.copy(), tree.target.copy(), rng)

    return verify


# Stand-ins, to be replaced by the kernels themselves.


def target_only(
    predicts: Any,
    index: Any,
    number: Any,
    tokens: Any,
    place: Any,
    child: Any,
    sibling: Any,
    *rest: Any,
) -> None:
    """Accept the child into whose share of the target's law the coin falls; what siblings had is
    taken from the final draw.
    """
    coins, last_coin, target, draft = rest
    node, path = 0, [0]
    while True:
        law, mass, following = target[0, node], 0.0, child[0, node]
        while following != -1:
            mass = mass + law[tokens[0, following]]
            if coins[0, node] < mass:
                break
            draft[0, node, tokens[0, following]] = law[tokens[0, following]]
            following = sibling[0, following]
        if following == -1:
            left = np.cumsum(np.maximum(law - draft[0, node], 0.0))
            predicts[node] = int(np.searchsorted(left / left[-1], last_coin[0], side="right"))
            break
        predicts[node] = tokens[0, following]
        node = int(following)
        path.append(node)
    number[0] = len(path) - 1
    index[0, : len(path)] = place[0, path]


def by_leaves(target: Any, candidates: Any, rng: np.random.Generator) -> tuple[int, int, Any]:
    """Try the distinct next tokens of the leaves that share what is accepted, each as if it were
    certain.
    """
    best, accepted = 0, 0
    while True:
        alike = np.flatnonzero(
            (candidates[:, : accepted + 1] == candidates[best, : accepted + 1]).all(axis=1)
        )
        law = target[best, accepted].copy()
        step = (
            candidates[alike, accepted + 1]
            if accepted + 1 < candidates.shape[1]
            else np.zeros(0, dtype=int)
        )
        for leaf, x in zip(alike, step, strict=False):
            if x == -1 or law[x] == 0.0:
                continue
            if rng.random() < law[x]:
                best, accepted = int(leaf), accepted + 1
                break
            law[x] = 0.0
            law /= law.sum()
        else:
            return best, accepted, law


def down_the_tree(
    tokens: Any, successors: Any, draft: Any, target: Any, rng: np.random.Generator
) -> list[int]:
    """Try siblings drawn without replacement, each against the residual of those before."""
    node, path = 0, []
    while True:
        p, rest = draft[node], target[node]
        for child in successors[node]:
            x = int(tokens[child])
            if rng.random() * p[x] < rest[x]:
                path.append(x)
                node = child
                break
            rest = np.maximum(rest - p, 0.0)
            rest = rest / rest.sum()
            p[x] = 0.0
            p = p / p.sum() if p.any() else p
        else:
            return [*path, int(rng.choice(len(rest), p=rest / rest.sum()))]


sglang = TreeCandidate(from_sglang(target_only), name="sglang", siblings="likeliest")
eagle = TreeCandidate(from_eagle(by_leaves), name="eagle", siblings="likeliest")
sequoia = TreeCandidate(from_sequoia(down_the_tree), name="sequoia", siblings="without")
candidate = sequoia
