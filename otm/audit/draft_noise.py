"""Several steps of a verification, one after the other, on draft noise with a key.

Engines draw drafts with noise that is a function of a seed and a key. Where the key is the absolute
position alone, a step drafts with noise that the step before it may have looked at: a verification
that looks at a later draft and ends before it tells of that noise by its end, and the text is
biased, though it is lossless on drafts that are drawn afresh. Where the key holds the position at
which the step begins as well, or noise is drawn anew, such a verification stays lossless
(docs/theory.md, "Noise by position").
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.blocks import BlockCandidate
from otm.audit.budget import USUAL, Errors
from otm.audit.callables import count_uniforms
from otm.audit.candidate import NOISE, Candidate, Check, Scope, as_kind, read_block
from otm.audit.drafted import BudgetSplit
from otm.audit.end_to_end import WrittenAudit, check_of, joint, seeded_rng, within
from otm.audit.integration import Next, Row
from otm.audit.tracing.branching import MOST_SECONDS
from otm.audit.trees import TreeCandidate, check_parents, drafted_tree, path_of
from otm.errors import Unsupported
from otm.pmf import RNGLike, check_choice, check_count
from otm.sequence.models import LanguageModel, check_model, next_distribution
from otm.trees import TreeShape

_PAIR = np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]])
"""Draft and target of a battery's text of several steps, the same at every position."""

_TOKENS, _DRAFTS = 3, 2
"""Number of tokens of the text, and of drafts per step, or the nearest requested numbers."""


def several_steps(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    shape: int | Sequence[int],
    tokens: int,
    rng: RNGLike,
    noise: str = "position",
    tests: str = "step",
    tolerance: float | None = None,
    errors: Errors = USUAL,
    seconds: float = MOST_SECONDS,
) -> WrittenAudit:
    """Audit the joint law of a text of several steps whose draft noise has a key.

    The noise of a draft is a uniform, at which the draft law's cumulative sum is inverted.

    Args:
        candidate: a verifier of blocks as for `otm.audit.sequence`, or a kernel of trees as for
            `otm.audit.tree_kernel`, on siblings that its `TreeCandidate` names.
        draft, target: toy models that know every context, `otm.sequence.ZerothOrder` say.
        shape: γ of a block; of a kernel of trees the parents of its nodes.
        tokens: how many are written in all, and compared.
        rng: of samples, if there are any: a NumPy generator, or a seed of one.
        noise: the key of the draft noise: "position", the draft's in the text; "step", that and the
            position at which the step begins; "fresh", drawn anew, which has the law of "step".
            Nodes of one level have a number each.
        tests: the same of the uniforms that drafts are tested with. Those beyond one for each draft
            are fresh, and so are all that a kernel of trees draws.
        tolerance, errors, seconds: as for `otm.audit.step`.

    Returns:
        WrittenAudit: exact where the code's draws can be followed, else sampled, with the reason.

    Raises:
        InvalidParameter: if `noise` or `tests` is none of these, or `shape` no tree.
        Unsupported: if `tests` is "position" for a kernel of trees.
        CandidateFailure: if the candidate raises or returns no tokens.
        TooLarge: beyond four million texts.

    Cost: two texts for each outcome of their draws, of which three tokens have some hundred.
    Reference: docs/theory.md, "Noise by position".

    >>> import otm
    >>> def block(p, q, x, u):  # block verification of two drafts
    ...     one = min(1.0, q[0, x[0]] / p[0, x[0]])
    ...     both = min(1.0, one * q[1, x[1]] / p[1, x[1]])
    ...     rest = np.maximum(one * q[1] - p[1], 0.0)
    ...     kept, law = 0, np.maximum(q[0] - p[0], 0.0)
    ...     if u[1] < both:
    ...         kept, law = 2, q[2]
    ...     elif one == 1.0 or u[0] < rest.sum() / (rest.sum() + 1.0 - one):
    ...         kept, law = 1, rest
    ...     below = np.cumsum(law / law.sum())[:-1]
    ...     return [*x[:kept], int(np.searchsorted(below, u[2], side="right"))]
    >>> p, q = otm.sequence.ZerothOrder([0.75, 0.25]), otm.sequence.ZerothOrder([0.25, 0.75])
    >>> given = {"draft": p, "target": q, "shape": 2, "tokens": 3, "rng": 0}
    >>> round(288 * several_steps(block, **given).total_variation, 9)  # 17/288
    17.0
    >>> several_steps(block, noise="step", **given).verdict
    'lossless'
    """
    check_choice(noise, name="noise", choices=NOISE)
    check_choice(tests, name="tests", choices=NOISE)
    check_model(draft, name="draft")
    check_model(target, name="target")
    most, siblings, number = check_count(tokens, name="tokens"), "with", 0
    thing: BlockCandidate | TreeCandidate
    if not isinstance(shape, Sequence | np.ndarray):
        gamma = check_count(shape, name="shape")
        thing, parents = as_kind(candidate, BlockCandidate), list(range(-1, gamma))
        number = count_uniforms(thing.num_uniforms, gamma, target.num_tokens)
        run = f"blocks of {gamma} drafts"
    else:
        thing, parents = as_kind(candidate, TreeCandidate), check_parents(shape)
        siblings, run = thing.siblings, f"trees of {len(parents) - 1} drafts by parents {shape}"
        if tests == "position":
            raise Unsupported(
                "A kernel of trees draws the uniforms of its tests, which have no position here; "
                'got tests="position". Pass "step" or "fresh".'
            )
    levels = TreeShape(parents[1:]).levels.tolist()
    ranks = [levels[:node].count(level) for node, level in enumerate(levels)]
    laws: list[Next] = [
        functools.cache(functools.partial(next_distribution, model, name=name))
        for name, model in (("draft", draft), ("target", target))
    ]

    def step(text: Row, rng: np.random.Generator, known: Callable[..., Any]) -> Row:
        start = len(text)

        def uniform(kind: str, key: str, place: int, rank: int = 0) -> Any:
            return known(kind, place, rank, None if key == "position" else start)

        def draw(node: int, law: NDArray[np.float64]) -> int:
            live = np.flatnonzero(law)
            at = uniform("draft", noise, start + levels[node], ranks[node])
            return int(live[np.searchsorted(np.cumsum(law[live])[:-1], at[0], side="right")])

        p, q = ((lambda row, law=law: law((*text, *row))) for law in laws)
        tree = drafted_tree(
            (p, q), parents, draw, replacement=siblings == "with", sampled=siblings != "likeliest"
        )
        if isinstance(thing, TreeCandidate):
            return path_of(thing.verify(tree, rng))
        given = np.concatenate(
            [uniform("test", tests if i < gamma else "fresh", start + i) for i in range(number)]
        )
        answer = thing.verify(tree.draft[:-1], tree.target, tree.tokens[1:], given)
        return read_block(answer, target.num_tokens, gamma + 1)[0]

    def write() -> list[Row]:
        generator = seeded_rng()
        text: Row = ()
        known = functools.cache(lambda *key: generator.random(1))
        while len(text) < most:
            text += step(text, generator, known)
        return [text[:most]]

    key = f"draft noise by {noise}, tests by {tests}".replace("by fresh", "drawn afresh")
    return joint(
        write,
        [laws[1]],
        most,
        name=thing.name,
        instance=f"toy models on {target.num_tokens} tokens, {run}, {key}",
        covered=(f"several steps of {run}, {key}",),
        not_covered=("other lengths", "processing of logits"),
        rng=rng,
        tolerance=tolerance,
        errors=errors,
        seconds=seconds,
    )


def check_of_steps(candidate: Candidate, scope: Scope, noise: str) -> Check:
    """Return the check of a verifier of blocks on a text of several steps.

    Args:
        candidate: a `BlockCandidate`.
        scope: of its other checks.
        noise: the key of the draft noise.

    Raises:
        InvalidParameter: if the candidate is another.
    """
    thing = as_kind(candidate, BlockCandidate)
    pair = standard.chained_models(scope.pair or _PAIR)[standard.GIVEN]
    gamma = min(scope.num_drafts or (_DRAFTS,), key=lambda number: abs(number - _DRAFTS))
    names = "several steps", f"γ = {gamma}, draft noise by {noise}", "several steps"
    options = {"shape": gamma, "tokens": _TOKENS, "noise": noise}
    check = check_of(several_steps, thing, pair, options, names)
    return within(BudgetSplit(scope, 1), check)
