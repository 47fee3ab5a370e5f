"""Pictures of a user's problems; each function draws into `ax` if given and returns the axes.

Colours are safe for colour-blind readers, lines are told apart by dashes and markers, too, and
labelled where they end. matplotlib is loaded when one of these is called. Results have a `plot()`
of their own, made of the same parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from otm._display import drawing
from otm.comparison import Comparison, compare
from otm.comparison.comparing import check_verifiers
from otm.divergences import kl_divergence
from otm.drafts import IID
from otm.errors import InvalidParameter, TooLarge
from otm.lossy import distortion, kl_frontier, tv_frontier
from otm.overlap import OverlapCurve
from otm.pmf import check_choice, check_counts
from otm.problem import Problem, check_problem, keyword_only, require_law
from otm.results import Coupling, Optimum
from otm.sequence import DraftTree
from otm.trees import OptimalTree, TreeShape
from otm.verbs import acceptance, optimal_acceptance
from otm.verifiers import VERIFIERS, Verifier, gamma_star

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["coupling", "curves", "frontier", "overlap", "pair", "tree"]


def __dir__() -> list[str]:
    return __all__


_MOST_NODES: Final = 400
_MOST_POINTS: Final = 8
_FRONTIER: Final = 33


def curves(
    problem: Problem | Comparison,
    *,
    verifiers: Sequence[Verifier] | None = None,
    k: int | Iterable[int] = range(1, 9),
    samples: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw acceptance against the number of drafts: the optimum and at most five schemes.

    Exact values have full markers; where a scheme has none, a hollow one and a bar show the
    estimate and its interval.

    Args:
        problem: one pair of distributions `(V,)` with any law of one drafter, whose own k is of no
            account; or what `otm.compare` returned.
        verifiers: which ones; None takes those of the largest acceptances among the lossless ones,
            equal curves as one.
        k: numbers of drafts.
        samples: as of `otm.compare`.
        ax: where to draw; new axes if None.

    Returns:
        The axes.

    Raises:
        InvalidParameter: for more than five verifiers. Unsupported: as `otm.compare`.
            MissingPackage: without matplotlib.

    Cost: as `otm.compare` of these.

    >>> import otm
    >>> from matplotlib.figure import Figure
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> ax = curves(problem, verifiers=[otm.KSeq()], k=[1, 2, 4], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts], ax.lines[0].get_ydata().round(4).tolist()
    (['optimum', 'K-SEQ'], [0.75, 0.9375, 1.0])
    """
    if isinstance(problem, Comparison):
        return problem.plot(ax)
    single = check_problem(problem).single(purpose="otm.plot.curves")
    law = type(single.law)
    ks = check_counts(k, name="k")
    if verifiers is None:
        verifiers = [
            make()
            for make in VERIFIERS
            if make.lossless
            and not make.is_plan
            and any(make().supports(law.of_size(count)) for count in ks)
        ]
    elif len(check_verifiers(verifiers)) >= drawing.MOST_LINES:
        raise InvalidParameter(
            f"Beside the optimum there is room for {drawing.MOST_LINES - 1} verifiers; got "
            f"{len(verifiers)}."
        )
    found = compare(
        draft=single.draft,
        target=single.target,
        verifiers=verifiers,
        laws=[law],
        k=ks,
        samples=samples,
    )
    return found.plot(ax)


@keyword_only("otm.plot.pair(draft=p, target=q)")
def pair(
    *, draft: object, target: object, tokens: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw two distributions side by side with Σ min(p, q), the acceptance of one draft.

    Args:
        draft, target: probabilities `(V,)`; beyond twelve tokens those with the most mass are shown
            and the rest as one.
        tokens: their names; numbers if None.
        ax: where to draw; new axes if None.

    Returns:
        The axes.

    Raises:
        InvalidDistribution, ShapeMismatch: on bad input. InvalidParameter: if there are not V
            names.
        MissingPackage: without matplotlib.

    Cost: O(V log V).

    >>> from matplotlib.figure import Figure
    >>> pair(draft=[0.75, 0.25], target=[0.5, 0.5], ax=Figure().subplots()).get_title()
    'Σ min(p, q) = 0.7500'
    """
    single = Problem(draft=draft, target=target, law=IID(1)).single(purpose="otm.plot.pair")
    p, q = single.draft, single.target
    names = _names(tokens, len(p))
    common = float(np.minimum(p, q).sum())
    axes = drawing.axes_or_new(ax)
    drawing.draw_pair(axes, p, q, names=names, labels=("draft p", "target q"))
    axes.set_title(f"Σ min(p, q) = {common:.4f}", fontsize=10)
    return axes


def coupling(
    joint: Coupling | Optimum, *, tokens: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the joint law of drafts and output between the marginals.

    Blue cells are accepted, orange ones rejected.

    Args:
        joint: from `otm.coupling` or `otm.optimum`; beyond 32 draft sequences the likeliest are
            shown and the rest as one.
        tokens: names of the tokens; numbers if None.
        ax: where to draw; new axes if None. The marginals stand above and to the right of it.

    Returns:
        The axes.

    Raises:
        InvalidParameter: if it is neither, or there are not V names. MissingPackage: without
            matplotlib.

    Cost: O(n·V).

    >>> import otm
    >>> from matplotlib.figure import Figure
    >>> best = otm.optimum(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2)))
    >>> coupling(best, ax=Figure().subplots()).get_title(loc="left")
    'accepted 0.9375 (blue)'
    """
    if not isinstance(joint, Coupling | Optimum):
        raise InvalidParameter(
            f"A coupling comes from otm.coupling or otm.optimum; got {joint!r:.80}. Pass what "
            "these return."
        )
    axes = joint.plot(ax)
    if tokens is not None:
        axes.set_xticklabels(_names(tokens, len(axes.get_xticks())))
    return axes


def tree(
    drafted: TreeShape | OptimalTree | DraftTree,
    *,
    tokens: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a tree of drafts with the root on the left.

    Vertices show ranks, drafted tokens, or acceptances where they are known.

    Args:
        drafted: a shape, an optimal tree (a vertex is the darker the likelier it is accepted), or
            drafted tokens; up to 400 vertices.
        tokens: names of the tokens of a `DraftTree`; numbers if None.
        ax: where to draw; new axes if None.

    Returns:
        The axes.

    Raises:
        InvalidParameter: if it is no tree. TooLarge: beyond 400 vertices. MissingPackage: without
            matplotlib.

    Cost: O(n).

    >>> import otm
    >>> from matplotlib.figure import Figure
    >>> best = otm.trees.optimal_tree([0.6, 0.25], num_nodes=3)
    >>> [text.get_text() for text in tree(best, ax=Figure().subplots()).texts]
    ['.60', '.36', '.25']
    """
    if not isinstance(drafted, TreeShape | OptimalTree | DraftTree):
        raise InvalidParameter(
            f"A tree is a TreeShape, OptimalTree or DraftTree; got {drafted!r:.80}. Pass one of "
            "these."
        )
    shape = drafted if isinstance(drafted, TreeShape) else drafted.shape
    size = shape.num_nodes
    if size > _MOST_NODES:
        raise TooLarge(
            f"A picture holds up to {_MOST_NODES} vertices; this tree has {size:,}. Draw its first "
            "ones."
        )
    if isinstance(drafted, OptimalTree):
        texts = ["", *(f"{value:.2f}".lstrip("0") for value in drafted.acceptance[1:])]
        weights = np.asarray(drafted.acceptance, dtype=float)
    elif isinstance(drafted, DraftTree):
        names = _names(tokens, int(drafted.tokens.max(initial=0)) + 1, at_least=True)
        texts = ["" if token < 0 else names[token] for token in drafted.tokens.tolist()]
        weights = np.full(size + 1, 0.15)
    else:
        texts, weights = (
            ["", *(str(path[-1]) for path in shape.paths()[1:])],
            np.full(size + 1, 0.15),
        )
    axes = drawing.axes_or_new(ax, height=min(9.0, 1.4 + 0.3 * size))
    drawing.draw_tree(axes, shape.parents.tolist(), texts, weights)
    return axes


def overlap(problem: Problem, *, ax: Axes | None = None) -> Axes:
    """Draw the overlap curve H(t) = Σ min(q, t p) with the points of the schemes.

    One draft sits at t = 1, recursive rejection at t_k of its recursion t ← t + 1 − H(t), K-SEQ at
    γ*, the optimum at the level above which the optimal verifier cuts q off; the height of each is
    its acceptance by the rule.

    Args:
        problem: one pair of distributions `(V,)` with law `IID(k)`.
        ax: where to draw; new axes if None.

    Returns:
        The axes.

    Raises:
        Unsupported: for another law. MissingPackage: without matplotlib.

    Cost: a sort.
    Reference: docs/theory.md, "The overlap curve".

    >>> import otm
    >>> from matplotlib.figure import Figure
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> ax = overlap(problem, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['one draft 0.7500', 'recursive rejection 0.8125', 'K-SEQ 0.8476', 'optimum 0.9375']
    """
    law = require_law(
        problem,
        IID,
        message=("The overlap curve answers for i.i.d. drafts; got {law!r}. Use law=otm.IID({k})."),
    )
    single = problem.single(purpose="otm.plot.overlap")
    curve = OverlapCurve.of(single.draft, single.target)
    level = 1.0
    for _ in range(law.k - 1):
        level = level + 1.0 - float(curve.at(level))
    best = float(optimal_acceptance(single))
    points = [
        ("one draft", 1.0),
        ("recursive rejection", level),
        ("K-SEQ", float(gamma_star(single))),
        ("optimum", _level(curve, best)),
    ]
    if law.k == 1:
        points = [("one draft: the optimum", 1.0)]
    far = 1.35 * max(t for _, t in points)
    levels = np.linspace(0.0, far, 400)
    axes = drawing.axes_or_new(ax)
    axes.plot(levels, np.minimum(levels, 1.0), color=drawing.QUIET, lw=1.0, ls=drawing.LINES[1])
    axes.plot(levels, np.asarray(curve.at(levels)), color=drawing.INK, lw=1.8)
    axes.fill_between(
        levels,
        np.asarray(curve.at(levels)),
        np.minimum(levels, 1.0),
        color=drawing.SHADE,
        alpha=0.45,
        lw=0,
    )
    labels = []
    for number, (name, t) in enumerate(points):
        height = float(curve.at(t))
        colour = drawing.INK if name == points[-1][0] else drawing.SERIES[number]
        axes.plot(
            [t], [height], marker=drawing.MARKERS[number], color=colour, ms=7, ls="none", zorder=4
        )
        labels.append((t, height, f"{name} {height:.4f}", colour))
    axes.set_xlabel("t")
    axes.set_ylabel("H(t) = Σ min(q, t p)")
    axes.set_title(f"k = {law.k}; above the curve lies what is rejected", fontsize=10)
    axes.set_ylim(0.0, 1.05)
    drawing.label_points(axes, labels)
    return axes


def frontier(
    problem: Problem,
    *,
    by: Literal["tv", "kl"] = "tv",
    verifiers: Sequence[Verifier] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the best acceptance within a distance of the target, and lossy schemes for comparison.

    Args:
        problem: one pair of distributions `(V,)`; by "kl" of law `IID(k)` or
            `WithoutReplacement(k)`.
        by: "tv" for total variation, min(1, α* + TV); "kl" for KL(target‖output) in nats.
        verifiers: up to eight; None takes of the library's lossy ones that support the law those
            that are cheapest for what they accept: the eight nearest to the frontier.
        ax: where to draw; new axes if None.

    Returns:
        The axes. A scheme whose KL is infinite is named in the title.

    Raises:
        InvalidParameter: if `by` is neither, or for more than eight verifiers. Unsupported: as the
            frontiers.
        MissingPackage: without matplotlib.

    Cost: 33 points of the frontier, and each scheme's output law.
    Reference: docs/theory.md, "Lossy frontiers".

    >>> import otm
    >>> from matplotlib.figure import Figure
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> ax = frontier(problem, verifiers=[otm.Lenience(0.8)], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['optimum 0.7500', 'lenience']
    """
    check_choice(by, name="by", choices=("tv", "kl"))
    single = check_problem(problem).single(purpose="otm.plot.frontier")
    best = float(optimal_acceptance(single))
    chosen = [make() for make in VERIFIERS if not make.lossless and make().supports(single.law)]
    if verifiers is not None and len(chosen := check_verifiers(verifiers)) > _MOST_POINTS:
        raise InvalidParameter(
            f"A frontier holds up to {_MOST_POINTS} labelled schemes; got {len(verifiers)}. Name "
            "fewer."
        )
    points = [
        (verifier, distortion(verifier, single), float(acceptance(verifier, single)))
        for verifier in chosen
    ]
    if verifiers is None:
        # How much more its own total variation allows; to nine digits, so that equal ones keep
        # their order.
        points.sort(key=lambda one: round(min(1.0, best + one[1].total_variation) - one[2], 9))
    placed = [
        (verifier, distances.total_variation if by == "tv" else distances.kl, height)
        for verifier, distances, height in points[:_MOST_POINTS]
    ]
    found = [(verifier, x, height) for verifier, x, height in placed if np.isfinite(x)]
    beyond = [verifier for verifier, x, _ in placed if not np.isfinite(x)]
    furthest = max((x for _, x, _ in found), default=0.0)
    if by == "tv":
        most = min(1.0, max(1.1 * furthest, min(1.0 - best, 0.5), 0.02))
        places = np.unique([0.0, min(most, 1.0 - best), most])
        heights = [float(tv_frontier(single, tv=float(x))) for x in places]
    else:
        whole = (
            float(kl_divergence(draft=single.draft, target=single.target))
            if single.num_drafts == 1
            else 0.5
        )
        most = max(1.1 * furthest, min(whole, 0.5), 1e-3)
        places = most * np.linspace(0.0, 1.0, _FRONTIER) ** 2  # it rises steeply at 0
        heights = [float(kl_frontier(single, kl=float(x)).value) for x in places]
    axes = drawing.axes_or_new(ax)
    axes.plot(places, heights, color=drawing.INK, lw=2.4)
    axes.fill_between(places, heights, 1.0, color=drawing.PALE, lw=0)
    axes.plot([0.0], [best], marker="o", color=drawing.INK, ms=6, ls="none")
    labels = [(0.0, best, f"optimum {best:.4f}", drawing.INK)]
    short = [verifier.title for verifier, _, _ in found]
    for number, (verifier, x, height) in enumerate(found):
        colour = drawing.SERIES[number % len(drawing.SERIES)]
        axes.plot(
            [x],
            [height],
            marker=drawing.MARKERS[(number + 1) % len(drawing.MARKERS)],
            color=colour,
            mfc="white",
            ms=6,
            ls="none",
        )
        labels.append(
            (
                x,
                height,
                str(verifier) if short.count(verifier.title) > 1 else verifier.title,
                colour,
            )
        )
    axes.set_xlabel("total variation to the target" if by == "tv" else "KL(target ‖ output), nats")
    axes.set_ylabel("acceptance")
    out = "" if not beyond else f"; KL = ∞: {', '.join(map(str, beyond))}"
    axes.set_title(
        f"best acceptance within a distance, {single.law}{out}", fontsize=9 if out else 10
    )
    drawing.label_points(axes, labels)
    return axes


def _level(curve: OverlapCurve, height: float) -> float:
    """Return the smallest t with H(t) ≥ height: H is linear between the ratios q/p."""
    kinks = np.append(0.0, curve.ratio[np.isfinite(curve.ratio)][::-1])
    return float(np.interp(height, np.asarray(curve.at(kinks)), kinks))


def _names(tokens: Sequence[str] | None, count: int, *, at_least: bool = False) -> list[str]:
    if tokens is None:
        return [str(i) for i in range(count)]
    if (
        isinstance(tokens, str)
        or not isinstance(tokens, Sequence)
        or len(tokens) < count
        or (len(tokens) > count and not at_least)
    ):
        raise InvalidParameter(
            f"tokens must be {'at least ' if at_least else ''}{count} names, one for each token; "
            f"got {tokens!r:.80}."
        )
    return [drawing.plain(str(name)) for name in tokens]
