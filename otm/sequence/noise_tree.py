"""The tree of the likeliest paths in the belief of a drafter who knows the target's noise.

The target's text is Y_d = argmax(log q(· | Y_<d) + g_d), a function of target and noise. So any
tree that is a function of context, draft model and noise is verified without loss by sampling the
target: what is drafted decides how much of Y is read off in one call, never what Y is. If the
logits differ by Gumbel noise of scale s, log q = log p + s·ε + const, then given g and p the next
token is x with probability softmax((log p + g)/s) at x, exactly, and the best N drafts are the N
paths with the largest products (docs/theory.md, "Trees on shared noise").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import Floats
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import (
    check_confidence,
    check_count,
    check_instance,
    check_real,
    check_sequence,
    plain_integers,
    plain_reals,
)
from otm.results.statistics import Estimate, ratio_of_means
from otm.sequence.best_first import WeightedPath, grown_best_first, tree_of_paths
from otm.sequence.decoder import SizedTree
from otm.sequence.decoding import check_step_arguments
from otm.sequence.drafted_tree import DraftTree, Step
from otm.sequence.matching import MatchingDecoder
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.randomness import Randomness
from otm.sequence.shared_noise import NoiseRow, SharedNoise, perturbed

LEAST_SCALE, MOST_SCALE = 2.0**-7, 2.0**7
"""Scales that `fit_scale` looks at."""


@dataclasses.dataclass(frozen=True)
class NoiseTree(SizedTree, MatchingDecoder):
    """Draft the N likeliest paths of the target given the noise, and sample the target.

    The drafter believes in path u with Π_d softmax((log p(· | u_<d) + g_d)/s_d) at u_d. As s → 0
    the tree becomes one chain, the text that p for q would write; a wrong s costs tokens, never the
    law.

    Args:
        size: N ≥ 1 drafted tokens; fewer where fewer have mass.
        length: L ≥ 1 levels at most.
        scale: s > 0, how far the target's logits are from the draft's, from
            `otm.sequence.fit_scale`; or one for each of the first levels, the last for all others.
        cells: how many equally likely cells of the noise the drafter tells apart; None for all of
            it. With few cells `otm.sequence.step_law` enumerates.

    Raises:
        InvalidParameter: if a count is no integer of at least 1 (2 cells), or a scale is no
            positive number.

    Cost: one draft call per level on the contexts that may have descendants, one target call; O(V +
        N log N) per expanded vertex, and V numbers of noise per level.
    Reference: docs/theory.md, "Trees on shared noise"; ERSD [Kobus & Gündüz 2025] for trees of a
        shape of their own.

    >>> import numpy as np
    >>> from otm.sequence import Sampled, SharedNoise, ZerothOrder, step
    >>> model = ZerothOrder([0.25, 0.75])  # a draft equal to the target never errs
    >>> seeded = Sampled(np.random.default_rng(0), SharedNoise(7))
    >>> once = step(NoiseTree(3, 3, 0.1), draft=model, target=model, context=[1], randomness=seeded)
    >>> text = tuple(SharedNoise(7).choose([0.25, 0.75], d) for d in range(1, 5))
    >>> once.accepted, once.tokens == text
    (3, True)
    """

    title = "tree on shared noise"
    carries_noise = True  # whether a path is drafted depends on the noise of deeper levels too

    scale: float | tuple[float, ...] = 1.0
    cells: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.scale if isinstance(self.scale, tuple | list) else (self.scale,)
        scales = tuple(
            check_real(one, name="scale", low=0.0, high=1e300, open_low=True) for one in given
        )
        if not scales:
            raise InvalidParameter(
                "A scale must be a positive number, or one for each level; got none. Pass "
                "scale=1.0, say."
            )
        object.__setattr__(self, "scale", scales[0] if len(scales) == 1 else scales)
        if self.cells is not None:
            object.__setattr__(self, "cells", check_count(self.cells, name="cells", minimum=2))

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Extend the best N paths level by level, with one draft call each."""
        positions = range(len(context), len(context) + self.depth)
        rows = [randomness.noise(at, model.num_tokens, self.cells) for at in positions]
        (paths,), known = self.grown(model, [context], [rows])
        seen = {path.context: len(path.context) - len(context) for path in paths}
        shared = {here: rows[level] for here, level in seen.items() if level < len(rows)}
        return dataclasses.replace(tree_of_paths(paths, known), shared=shared)

    def grown(
        self,
        model: LanguageModel,
        contexts: Sequence[Context],
        rows: Sequence[Sequence[NoiseRow]],
    ) -> tuple[list[list[WeightedPath]], dict[Context, Floats]]:
        """Return the paths of several trees, each on its own noise by level, and the answers of
        p.
        """
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)

        def belief(place: int, context: Context, mass: Floats) -> Floats:
            level = len(context) - len(contexts[place])
            scale, seen = scales[min(level, len(scales) - 1)], rows[place][level].seen
            return np.asarray(scipy.special.softmax(perturbed(mass, seen) / scale))

        return grown_best_first(model, contexts, size=self.size, depth=self.depth, belief=belief)


def noise_tokens(
    decoder: NoiseTree,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    noises: Sequence[SharedNoise],
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the tokens per target call for every number of drafts up to N, over some noises.

    On each noise the target writes L + 1 tokens, a tree of N drafts is grown, and entry n is 1 and
    how many of the tokens the n first drafts hold: one tree answers for all smaller ones.

    Args:
        decoder: the largest tree.
        draft, target: two models, of any vocabulary.
        context: tokens so far.
        noises: two or more of them.
        confidence: of each interval by itself, Student's t over the noises.

    Returns:
        Estimate with `(N + 1,)` values, from 1 without drafts.

    Raises:
        InvalidParameter: if there are fewer than two noises.

    Cost: a draft call per level for all trees together, and L + 1 calls of the target on one
        context per noise: less than on all drafts.

    >>> from otm.sequence import ZerothOrder
    >>> noises = [SharedNoise(seed) for seed in range(400)]
    >>> pair = {"draft": ZerothOrder([0.75, 0.25]), "target": ZerothOrder([0.5, 0.5])}
    >>> found = noise_tokens(NoiseTree(2, 1), **pair, context=[], noises=noises)
    >>> found.value[[0, 2]].tolist(), bool(found.low[1] < 1.75 < found.high[1])  # Σ min(p, q) = ¾
    ([1.0, 2.0], True)
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
    check_instance(decoder, NoiseTree, name="decoder")
    given = [
        check_instance(each, SharedNoise, name="noise")
        for each in check_sequence(noises, name="noises")
    ]
    if len(given) < 2:
        raise InvalidParameter(
            f"An interval needs at least two noises; got {len(given)}. Pass SharedNoise(seed) for "
            "several seeds."
        )
    found = tokens_by_noise(
        decoder, draft=draft, target=target, contexts=[start] * len(given), noises=given
    )
    level = check_confidence(confidence)
    means = ratio_of_means(found, np.ones_like(found), confidence=level)
    return dataclasses.replace(means, samples=len(given), quantity="tokens per target call")


def tokens_by_noise(
    decoder: NoiseTree,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
    texts: Sequence[Context] | None = None,
) -> Floats:
    """Return the tokens of one step from each context on the context's noise, by number of drafts.

    Args:
        decoder: the largest tree.
        draft, target: two models.
        contexts: n of them; they may repeat.
        noises: one for each context.
        texts: what the target writes on them, L tokens after each context, if that is known.

    Returns:
        `(n, N + 1)`.
    """
    if texts is None:
        texts = noise_texts(target, contexts=contexts, noises=noises, num_tokens=decoder.depth)
    size = draft.num_tokens
    rows = [
        [
            NoiseRow.of(noise.row(len(context) + level, size), decoder.cells)
            for level in range(decoder.depth)
        ]
        for context, noise in zip(contexts, noises, strict=True)
    ]
    trees, _ = decoder.grown(draft, contexts, rows)
    return np.array(
        [tokens_held(*each, size=decoder.size) for each in zip(trees, texts, strict=True)]
    )


def tokens_held(paths: Sequence[WeightedPath], text: Context, *, size: int) -> Floats:
    """Return 1 plus the number of tokens of a text within the first n paths, without the root.

    Args:
        paths: of a tree, the root first.
        text: what the target writes after the root.
        size: the largest n.

    Returns:
        `(size + 1,)`, by n from 0.

    >>> paths = [WeightedPath(1.0, ()), WeightedPath(0.5, (4,)), WeightedPath(0.25, (4, 2))]
    >>> tokens_held(paths, (4, 2, 1), size=3).tolist()
    [1.0, 2.0, 3.0, 3.0]
    """
    found, start = np.ones(size + 1), paths[0].context
    number = {path.context: vertex for vertex, path in enumerate(paths)}
    for end in range(1, len(text) + 1):
        vertex = number.get((*start, *text[:end]))
        if vertex is None:
            break
        found[vertex:] += 1.0
    return found


def noise_texts(
    target: LanguageModel,
    *,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
    num_tokens: int,
) -> list[Context]:
    """Return the text that the target alone writes after each context on the context's noise.

    >>> from otm.sequence import ZerothOrder
    >>> model = ZerothOrder([0.5, 0.5])
    >>> noise_texts(model, contexts=[(), (1,)], noises=[SharedNoise(0)] * 2, num_tokens=2)
    [(0, 0), (0, 1)]
    """
    whole = list(contexts)
    for _ in range(num_tokens):
        rows = next_distributions(target, whole, name="target")
        whole = [
            (*text, noise.choose(rows[text], len(text)))
            for text, noise in zip(whole, noises, strict=True)
        ]
    return [text[len(context) :] for text, context in zip(whole, contexts, strict=True)]


def belief_rows(tree: DraftTree, one: Step) -> tuple[Floats, NDArray[np.int64]]:
    """Return the data of a step on shared noise for `fit_scale`, a row for each level reached.

    Args:
        tree: drafted by a `NoiseTree`.
        one: the step that verified it.

    Returns:
        `(n, V)` log p + g, as the drafter saw it, and the tokens `(n,)` that the target drew there:
        arguments of `otm.sequence.fit_scale`. A token without draft, such as the last of a full
        path, tells nothing.

    Raises:
        InvalidParameter: if `tree` or `one` is something else.

    Cost: O(V) for each level.

    >>> import numpy as np
    >>> from otm.sequence import Sampled, ZerothOrder, step
    >>> model, seeded = ZerothOrder([0.5, 0.5]), Sampled(np.random.default_rng(0), SharedNoise(7))
    >>> tree = NoiseTree(2, 2).draft(model, (), seeded)
    >>> one = NoiseTree(2, 2).verify(tree, model.next, seeded)
    >>> [part.shape for part in belief_rows(tree, one)]
    [(2, 2), (2,)]
    """
    rows, tokens, context = [], [], check_instance(tree, DraftTree, name="tree").context
    for token in check_instance(one, Step, name="one").tokens:
        state, mass = tree.shared.get(context), tree.draft.get(context)
        if mass is None or not isinstance(state, NoiseRow):
            break
        rows.append(perturbed(mass, state.seen))
        tokens.append(token)
        context = (*context, token)
    return np.array(rows), np.array(tokens, dtype=np.int64)


def fit_scale(rows: ArrayLike, tokens: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate the scale of a `NoiseTree` by maximum likelihood from decoded steps.

    s maximises Σ_i log softmax(x_i/s) at y_i, concave in 1/s; the interval holds the scales whose
    likelihood falls short of the largest by no more than χ² at `confidence` allows.

    Args:
        rows: `(n, V)` log p + g at n positions, −∞ where p = 0; from `otm.sequence.belief_rows`, or
            the largest entries of each row only, with what is left out at −∞.
        tokens: `(n,)`, which entry of its row the target drew. Where the drafter gave it no mass no
            scale explains it, and the row is left out.
        confidence: coverage of the interval, if positions are as independent as the belief says.

    Returns:
        Estimate, within [2⁻⁷, 2⁷]: the least scale where every token is the likeliest. For a scale
        by level, fit the rows of each level.

    Raises:
        ShapeMismatch: if there is not one token for each row.
        InvalidParameter: if no row has its token, or one is no token.

    Cost: O(nV) for each of some fifty evaluations. Accuracy: 1e-9, relative.
    Reference: multinomial logit [McFadden 1974]; docs/theory.md, "Trees on shared noise".

    >>> import numpy as np
    >>> rows = np.tile([0.0, 1.0], (4, 1))  # three of four decided for the likelier: e^{1/s} = 3
    >>> found = fit_scale(rows, [1, 1, 1, 0])
    >>> round(found.value, 6), round(1 / float(np.log(3)), 6)
    (0.910239, 0.910239)
    """
    values, chosen = plain_reals(rows, "rows").astype(np.float64), plain_integers(tokens, "tokens")
    if values.ndim != 2 or chosen.shape != values.shape[:1]:
        raise ShapeMismatch(
            f"There must be rows (n, V) and a token for each, (n,); got shapes {values.shape} and "
            f"{chosen.shape}. Take both from belief_rows."
        )
    level = check_confidence(confidence)
    if not np.all((chosen >= 0) & (chosen < values.shape[1])):
        raise InvalidParameter(
            f"tokens must be in [0, {values.shape[1]}); others are among them. Pass the "
            "place of each token in its row."
        )
    least = values.max(axis=1, keepdims=True) - values  # ≥ 0: how far behind the first each is
    behind = np.take_along_axis(least, chosen[:, None], axis=1)[:, 0]
    known = np.isfinite(behind)
    if not known.any() or np.isnan(values).any():
        raise InvalidParameter(
            "At least one row must have mass at its token, and no entry may be NaN; log p + g is "
            "−∞ at most. Pass more steps."
        )
    least, behind = least[known], behind[known]

    def loss(log_scale: float) -> float:
        """Return minus the log-likelihood."""
        beta = math.exp(-log_scale)
        return float(np.sum(beta * behind + np.log(np.exp(-beta * least).sum(axis=1))))

    def slope(log_scale: float) -> float:
        """Return the expected distance of tokens to the best minus the observed distance."""
        belief = scipy.special.softmax(-math.exp(-log_scale) * least, axis=1)
        return float(np.sum(belief * np.where(belief > 0, least, 0.0)) - behind.sum())

    def root(function: Callable[[float], float], one: float, other: float) -> float:
        """Return the root of a function between two ends; the other end if there is no root."""
        if function(one) * function(other) >= 0:
            return other
        return float(scipy.optimize.brentq(function, one, other, xtol=1e-12))

    ends = math.log(LEAST_SCALE), math.log(MOST_SCALE)
    best = root(slope, *(ends if slope(ends[0]) < 0 else ends[::-1]))
    allowed = loss(best) + 0.5 * float(scipy.special.chdtri(1, 1.0 - level))
    low, high = (math.exp(root(lambda at: loss(at) - allowed, best, end)) for end in ends)
    return Estimate(math.exp(best), low, high, len(least), level, "scale of the noise tree")
