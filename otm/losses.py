"""Losses of acceptance by cause: vocabulary, filters, ranking, temperature, scheme, rounding."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm._display.tabular import OneTable, Table
from otm._machine.arrays import Array, brief_repr, normalised_excess, to_numpy, unit_rows
from otm.drafts import IID, Law
from otm.drafts.curve_cut import CurveLaw, check_curve_law, curve_values_and_levels
from otm.errors import InvalidParameter, ShapeMismatch, Unsupported
from otm.logits import Processing
from otm.pmf import (
    check_choice,
    check_count,
    check_instance,
    check_real,
    host_pmf,
    plain_array,
)
from otm.problem import Problem, keyword_only, refuse_gradients
from otm.results.statistics import Certified
from otm.verbs import acceptance, optimal_acceptance
from otm.verifiers.base import Verifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BestTemperature",
    "Losses",
    "Rounding",
    "acceptance_losses",
    "best_ranked_acceptance",
    "best_temperature",
    "draft_rounding",
    "top_mass",
]


def __dir__() -> list[str]:
    return __all__


_PLAIN: Final = Processing()

_TEMPERATURES: Final = np.geomspace(0.05, 20.0, 41)
"""The grid for the best temperature of one row, before refinement."""

_HALF: Final = ("bfloat16", "float16")

ROUNDED_MOST: Final = 2.0**-8 / (2.0 * (1.0 - 2.0**-8))
"""Largest total variation from rounding a distribution to bfloat16's 8 bits (docs/theory.md)."""

_HALVINGS: Final = 16
"""Steps to either side of the best temperature, from half a distance of the grid on: to a relative
error of 1.5e-5, which at a maximum changes the acceptance by the square.
"""

_ROUNDED: Final = 1e-12
"""More than an acceptance is off by rounding."""

_TAIL: Final = 1e-13
"""Target mass at the end of the draft's ranking that may count as accepted: below the rounding of
sums over a vocabulary.
"""

_MOST_TANGENTS: Final = 200


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Losses(OneTable):
    """The parts of 1 − α by cause, position by position; see `acceptance_losses`.

    All but `acceptance` and `drafts` add up to 1 − α.

    Attributes:
        drafts: k, the number of drafts, or c of a threshold race.
        acceptance: α of the scheme, or of the optimum, `(...)`.
        vocabulary: 1 − Q(S), S the tokens that the draft model scores.
        truncation: target mass of S that the draft's top-k, top-p, min-p or a temperature of 0
            leaves out.
        ranking: what no draft can win that ranks the tokens left as this one does; None for k > 1.
        shape: what the best temperature does not win of that.
        temperature: what the draft's own temperature loses against the best one.
        excluded: draft mass on tokens that the target's filters exclude.
        verifier: the optimum less the scheme; 0 without one.
    """

    drafts: float
    acceptance: NDArray[np.float64]
    vocabulary: NDArray[np.float64]
    truncation: NDArray[np.float64]
    ranking: NDArray[np.float64] | None
    shape: NDArray[np.float64]
    temperature: NDArray[np.float64]
    excluded: NDArray[np.float64]
    verifier: NDArray[np.float64]

    def __repr__(self) -> str:
        return (
            f"Losses(k={self.drafts:g}, positions={np.size(self.acceptance)}, "
            f"acceptance={float(np.mean(self.acceptance)):.6g})"
        )

    def __str__(self) -> str:
        return self.data().text()

    def data(self) -> Table:
        """Return the average over positions of the acceptance and of each loss."""
        rows = tuple(
            ("acceptance" if name == "acceptance" else f"lost to {name}", value)
            for name, value in self.mean().items()
        )
        title = f"k = {self.drafts:g}, mean of {np.size(self.acceptance):,} positions"
        return Table(columns=("", "probability"), rows=rows, title=title, ruled=frozenset({0}))

    def _draw(self, ax: Axes) -> None:
        table = self.data()
        drawing.draw_bars(
            ax, [row[0] for row in table.rows], [row[1] for row in table.rows], xlabel="probability"
        )
        ax.set_title(table.title, fontsize=10)

    def mean(self) -> dict[str, float]:
        """Return the averages over positions of the computed losses, by name, in order."""
        fields = [field.name for field in dataclasses.fields(self) if field.name != "drafts"]
        return {
            name: float(np.mean(getattr(self, name)))
            for name in fields
            if getattr(self, name) is not None
        }


def acceptance_losses(
    draft_logits: object,
    target_logits: object,
    *,
    k: float = 1,
    law: type[CurveLaw] = IID,
    draft: Processing = _PLAIN,
    target: Processing = _PLAIN,
    verifier: Verifier | None = None,
) -> Losses:
    """Split 1 − α into losses by cause, as differences of suprema over ever smaller sets of drafts.

    With q the processed target, p the processed draft, S the tokens whose draft logit is finite, A
    those of them that p can draw and A' those of A that q can:

        1 ≥ Q(S) ≥ Q(A) ≥ best with p's ranking on A' ≥ best temperature on A' ≥ α*(p given A') ≥
        α*(p) ≥ α

    Each is the best acceptance over a set of drafts that holds the next (first any draft on S, then
    any on A), so that no loss is negative, but by rounding, and together they make 1 − α. The draft
    q(·|S) attains Q(S) for every k. Filters on one side only show in `truncation` (the draft's) and
    `excluded` (the target's): call it with and without to see what each side does.

    Args:
        draft_logits: `(..., V)`; −∞ for tokens that the draft model does not know.
        target_logits: `(..., V)`, the same shape.
        k: number of drafts; c of a threshold race.
        law: what draws them, `otm.IID` or `otm.ThresholdRace`.
        draft, target: what is done with each side's logits, such as `Processing(temperature=0.7,
            top_p=0.9, order="vllm")`.
        verifier: a lossless scheme for i.i.d. drafts; the optimum without one.

    Returns:
        `Losses`, each part `(...)` in float64.

    Raises:
        InvalidDistribution: as `otm.from_logits`. ShapeMismatch: if the shapes differ.
            InvalidParameter: as `check_count` of k.
        Unsupported: if the verifier is lossy, or does not apply to these drafts.

    Cost: 73 optimal acceptances a row for the temperature, and `best_ranked_acceptance` for k = 1.
        Accuracy: the sum to rounding, 1e-12 at V = 128,256; each difference as far as each row's
        best temperature is found, by a search.
    Source: docs/theory.md, "What acceptance is lost to".

    >>> import numpy as np
    >>> draft, target = np.log([0.6, 0.4, 1e-300]), np.log([0.5, 0.25, 0.25])
    >>> found = acceptance_losses(draft, target, draft=Processing(top_k=2))
    >>> {name: round(value, 12) for name, value in found.mean().items() if abs(value) > 1e-9}
    {'acceptance': 0.75, 'truncation': 0.25}
    """
    drafts = check_curve_law(law).of_size(k)
    check_instance(draft, Processing, name="draft")
    check_instance(target, Processing, name="target")
    logits = plain_array(draft_logits, "draft_logits")
    others = plain_array(target_logits, "target_logits")
    p, q = _host(draft(logits)), _host(target(others))
    if p.shape != q.shape:
        raise ShapeMismatch(
            f"Both sides need logits of one shape; they have {p.shape} and {q.shape}. Align the "
            "vocabularies."
        )
    shape, width = p.shape[:-1], p.shape[-1]
    p, q, logits = (
        rows.reshape(-1, width) for rows in (p, q, np.asarray(to_numpy(logits), np.float64))
    )
    known, drawn = np.isfinite(logits), p > 0
    in_vocabulary, in_reach = (np.where(tokens, q, 0.0).sum(-1) for tokens in (known, drawn))
    optimum = _optimum(p, q, drafts)
    allowed = np.where(q > 0, p, 0.0)
    inside = np.where(allowed.any(-1), _optimum(normalised_excess(allowed, p), q, drafts), 0.0)
    best = np.maximum(_best_by_row(np.where(drawn & (q > 0), logits, -np.inf), q, drafts), inside)
    ranked = None
    if drafts.size == 1:
        alive = np.where(allowed.any(-1, keepdims=True), allowed, p)
        ranked = np.array([_best_ranked(one, other) for one, other in zip(alive, q, strict=True)])
        ranked = np.maximum(np.where(allowed.any(-1), ranked, 0.0), best)
    scheme = optimum
    if verifier is not None:
        check_instance(verifier, Verifier, name="verifier")
        if not verifier.lossless:
            raise Unsupported(
                "A lossy verifier wins acceptance that the optimum does not have, and "
                f"{verifier!r} is one. Pass a lossless one, or none; otm.lossy.distortion says "
                "what it gives up."
            )
        problem = Problem(draft=p, target=q, law=drafts)
        scheme = np.asarray(acceptance(verifier, problem), np.float64)
    top = in_reach if ranked is None else ranked
    steps = {
        "acceptance": scheme,
        "vocabulary": 1.0 - in_vocabulary,
        "truncation": in_vocabulary - in_reach,
        "shape": top - best,
        "temperature": best - inside,
        "excluded": inside - optimum,
        "verifier": optimum - scheme,
    }
    return Losses(
        drafts=drafts.size,
        ranking=None if ranked is None else (in_reach - ranked).reshape(shape),
        **{name: values.reshape(shape) for name, values in steps.items()},
    )


def _host(array: Array) -> NDArray[np.float64]:
    return np.asarray(to_numpy(unit_rows(array)))


def _optimum(p: Array, q: Array, law: Law) -> NDArray[np.float64]:
    values = optimal_acceptance(Problem(draft=p, target=q, law=law))
    return np.atleast_1d(np.asarray(values, np.float64))


@final
@dataclasses.dataclass(frozen=True, repr=False)
class BestTemperature(Certified):
    """The draft temperature with the largest average acceptance, certified from both sides.

    Attributes:
        temperature: T, at which `lower` is attained.
        lower, upper: no temperature of the range has an acceptance above `upper`.
    """

    temperature: float
    lower: float
    upper: float


def best_temperature(
    draft_logits: object,
    target: object,
    *,
    k: float = 1,
    law: type[CurveLaw] = IID,
    matched: bool = False,
    draft: Processing = _PLAIN,
    tolerance: float = 1e-6,
) -> BestTemperature:
    """Return the draft temperature with the largest average acceptance, by branch and bound.

    max over T from .05 to 20 of the mean over positions of α*_k(draft at T, q), for one draft of
    rejection's Σ min(p, q): one temperature for all positions, as in an engine.

    Args:
        draft_logits: `(..., V)`.
        target: q `(..., V)`, probabilities after the target's own temperature.
        k: number of drafts; c of a threshold race.
        law: what draws them, `otm.IID` or `otm.ThresholdRace`.
        matched: whether one draft is compared with a sample of the target that is drawn
            independently, Σ p q, instead of the optimum.
        draft: the draft's filters and their order; its own temperature is left aside.
        tolerance: largest `upper - lower`, at least 1e-9.

    Returns:
        `BestTemperature`. The mean may have several maxima; all are searched.

    Raises:
        InvalidDistribution: on bad logits or a bad target. InvalidParameter: if k or the tolerance
            is out of range, or k > 1 is matched.
        Unsupported: if top-p or min-p come after the temperature, on which the tokens that they
            keep then depend.

    Cost: some 20 to 150 passes over all rows, each an optimal acceptance and three exponentials.
        Accuracy: both ends are moved outward by 1e-12 for rounding.
    Source: docs/theory.md, "The draft's temperature".

    >>> import numpy as np
    >>> found = best_temperature(np.log([0.8, 0.2]), [2 / 3, 1 / 3], tolerance=1e-9)
    >>> round(found.temperature, 3), round(found.lower, 6)
    (2.0, 1.0)
    """
    drafts = check_curve_law(law).of_size(k)
    check_instance(draft, Processing, name="draft")
    check_real(tolerance, name="tolerance", low=1e-9)
    if matched and drafts.size != 1:
        raise InvalidParameter(
            f"k must be 1 for drafts that are matched with a sample; got {k!r}. Leave one of them "
            "out."
        )
    after = draft.steps[draft.steps.index("temperature") :]
    if ("top_p" in after and (draft.top_p or 1.0) < 1.0) or ("min_p" in after and draft.min_p):
        raise Unsupported(
            "Which tokens top-p and min-p keep depends on a temperature that comes before them; "
            f"got {draft!r}. Take the order 'llama.cpp', or mask tokens by logits of -inf."
        )
    logits, q = plain_array(draft_logits, "draft_logits"), host_pmf(target, name="target")
    coldest, hottest = float(_TEMPERATURES[0]), float(_TEMPERATURES[-1])
    kept = _host(dataclasses.replace(draft, temperature=hottest)(logits)) > 0
    scores = np.where(kept, np.asarray(to_numpy(logits), np.float64), -np.inf)
    scores, q = np.broadcast_arrays(scores - scores.max(-1, keepdims=True), q)
    best, attained = 1.0, -np.inf
    left = [(-np.inf, 1 / hottest, 1 / coldest)]
    while -left[0][0] > attained + tolerance - 2 * _ROUNDED:
        bound, low, high = heapq.heappop(left)
        middle = math.sqrt(low * high)
        value, below, above = _around(
            scores, q, middle, (low - middle, high - middle), None if matched else drafts
        )
        if value > attained:
            best, attained = 1 / middle, value
        heapq.heappush(left, (max(bound, -below), low, middle))
        heapq.heappush(left, (max(bound, -above), middle, high))
    return BestTemperature(
        lower=attained - _ROUNDED,
        upper=max(-left[0][0], attained) + _ROUNDED,
        temperature=best,
    )


def _around(
    scores: NDArray[np.float64],
    q: NDArray[np.float64],
    coldness: float,
    reach: tuple[float, float],
    law: CurveLaw | None,
) -> tuple[float, float, float]:
    """Return the mean acceptance at T = 1/coldness, and bounds on it up to either end.

    The acceptance is at most linear in p with the weights w of a minimising cut, w = q where drafts
    are matched, and Σ w p has a bounded second derivative (docs/theory.md, "The draft's
    temperature").
    """
    warm = coldness * scores
    logarithms = warm - np.log(np.exp(warm).sum(-1, keepdims=True))
    p = np.exp(logarithms)
    if law is None:
        values, steepest, weights = (p * q).sum(-1), q.max(-1), q
    else:
        found, levels = curve_values_and_levels(p, q, [law.contained])
        values, steepest = found[0], levels[0]
        weights = np.where(q >= steepest[..., None] * p, steepest[..., None], 0.0)
        # tokens that are never drafted do not bend it
        steepest = np.where(np.isneginf(scores), 0.0, weights).max(-1)
    known = np.where(np.isneginf(scores), 0.0, scores)
    away = known - (p * known).sum(-1, keepdims=True)
    slope, bounds = (weights * p * away).sum(-1), list[float]()
    for step in reach:
        with np.errstate(over="ignore"):
            mass = np.exp(logarithms + np.maximum(step * away, 0.0))
            bend = steepest * (mass * away**2).sum(-1)
        end = values + step * slope + 0.5 * step**2 * bend
        loose = ~(end <= 1.0)
        start = np.where(loose, 1.0, values)
        bounds.append(max(float(start.mean()), float(np.where(loose, 1.0, end).mean())))
    return float(values.mean()), bounds[0], bounds[1]


def _search(
    value: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each row's best temperature and the value there, by a grid and ever smaller steps."""
    grid = np.log(_TEMPERATURES)
    tried = np.stack([value(np.full(rows, temperature)) for temperature in _TEMPERATURES])
    best, attained, step = grid[tried.argmax(0)], tried.max(0), grid[1] - grid[0]
    for _ in range(_HALVINGS):
        step = 0.5 * step
        for point in (best - step, best + step):
            inside = np.clip(point, grid[0], grid[-1])
            found = value(np.exp(inside))
            better = found > attained
            best, attained = np.where(better, inside, best), np.where(better, found, attained)
    return np.exp(best), attained


def _best_by_row(
    logits: NDArray[np.float64], q: NDArray[np.float64], law: Law
) -> NDArray[np.float64]:
    """Return each row's best acceptance over temperatures of the finite logits; 0 without any."""
    found, some = np.zeros(len(q)), np.isfinite(logits).any(-1)
    if some.any():
        # Below the largest by more than there are numbers: −∞, without mass either way.
        with np.errstate(over="ignore"):
            rows, targets = logits[some] - logits[some].max(-1, keepdims=True), q[some]
            found[some] = _search(
                lambda heat: _optimum(_PLAIN(rows / heat[:, None]), targets, law), rows=len(rows)
            )[1]
    return found


@keyword_only("otm.losses.best_ranked_acceptance(draft=p, target=q)")
def best_ranked_acceptance(*, draft: object, target: object) -> float:
    """Return the largest acceptance of one draft distribution that ranks the tokens like `draft`.

    max Σ min(g, q) over distributions g on the tokens that p can draw, with g(x) ≥ g(y) wherever
    p(x) > p(y): what calibration alone could reach. By linear duality, tokens in descending order
    of p, the better of equals first,

        min over s in [0, 1] of c(s) + 1 − s,
        c(s) = min Σ y q  with 0 ≤ y ≤ 1 and Σ_{i ≤ j} y_i ≥ s j for every j,

    and c is found greedily: at each token buy s, always of the cheapest left. c is convex, so
    tangents find the minimum.

    Args:
        draft: p `(V,)`, probabilities; only their order counts, and where they are 0.
        target: q `(V,)`.

    Returns:
        The acceptance, at least that of p itself.

    Raises:
        InvalidDistribution: if one is no distribution. ShapeMismatch: if they differ in length or
            are no single rows.

    Cost: O(n log n) for each of some 10 to 30 tangents, n the tokens in the ranking until the
        target's mass is used up; in Python, about 1 µs n log n in all. Accuracy: 1e-11 at V =
        128,256, where sums over the order round.
    Source: docs/theory.md, "What acceptance is lost to".

    >>> round(best_ranked_acceptance(draft=[0.9, 0.06, 0.04], target=[0.5, 0.2, 0.3]), 12)
    0.95
    """
    p, q = host_pmf(draft, name="draft"), host_pmf(target, name="target")
    if p.ndim != 1 or p.shape != q.shape:
        raise ShapeMismatch(
            f"draft and target must be single rows of one length; they have shapes {p.shape} and "
            f"{q.shape}."
        )
    return _best_ranked(p, q)


def _best_ranked(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    order = np.lexsort((-q, -p))[: int(np.count_nonzero(p))]
    prices = q[order]
    left = prices[::-1].cumsum()[::-1]
    prices = prices[: max(int(np.count_nonzero(left > _TAIL)), 1)]
    return min(_lowest(prices.tolist()), float(prices.sum()))


def _lowest(prices: list[float]) -> float:
    """Return the minimum of c(s) + 1 − s, by intersecting tangents on both sides of the minimum."""
    left, right = (0.0, *_cost(prices, 0.0)), (1.0, sum(prices), np.inf)
    best = min(left[1] + 1.0, right[1])
    for _ in range(_MOST_TANGENTS):
        (a, at_a, slope_a), (b, at_b, slope_b) = left, right
        if slope_a >= 1.0:
            break  # the least lies at a
        if np.isinf(slope_b):
            s = 0.5 * (a + b)
            # No piece is as short as this: the last one begins at or before a and ends at 1.
            if b - a < 0.25 / len(prices):
                break
        else:
            s = (at_a - at_b + slope_b * b - slope_a * a) / (slope_b - slope_a)
            if not a < s < b or at_a + slope_a * (s - a) + 1.0 - s >= best - 1e-15:
                break
        found = (s, *_cost(prices, s))
        best = min(best, found[1] + 1.0 - s)
        left, right = (found, right) if found[2] < 1.0 else (left, found)
    return best


def _cost(prices: list[float], share: float) -> tuple[float, float]:
    """Return c(s) and the slope to the right.

    The heap holds each token's price; `left` is the amount of the token that is left, and `more`
    the increase of the purchase per unit of s. A token that runs out passes its increase on to the
    token bought next.
    """
    offered: list[tuple[float, int]] = []
    left, more = [1.0] * len(prices), [0.0] * len(prices)
    cost = 0.0
    for index, price in enumerate(prices):
        heapq.heappush(offered, (price, index))
        need, growth = share, 1.0
        while offered:
            cheapest, token = offered[0]
            if left[token] > need:
                left[token] -= need
                more[token] += growth
                cost += need * cheapest
                break
            need -= left[token]
            cost += left[token] * cheapest
            growth += more[token]
            heapq.heappop(offered)
    return cost, sum(more[token] * price for price, token in offered)


def top_mass(target: object, *, k: int) -> NDArray[np.float64]:
    """Return the mass of the target's k likeliest tokens.

    This mass is the best acceptance of k drafts that are a function of the context.

    Top-k trees and argmax drafters draw nothing, so that their acceptance is Q of k tokens. It
    bounds no drafter that *samples*: one draft from q itself is always accepted.

    Args:
        target: q `(..., V)`.
        k: number of distinct drafts.

    Returns:
        Q of them, `(...)` in float64.

    Raises:
        InvalidDistribution: if q is no distribution. InvalidParameter: if k is no positive integer.

    Cost: O(V).

    >>> top_mass([0.5, 0.1, 0.4], k=2)
    array(0.9)
    """
    count = check_count(k, name="k")
    q = host_pmf(target, name="target")
    if count >= q.shape[-1]:
        return np.ones(q.shape[:-1])
    return np.asarray(np.minimum(np.partition(q, -count, axis=-1)[..., -count:].sum(-1), 1.0))


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Rounding:
    """The effect of drawing drafts from rounded probabilities.

    Attributes:
        draft_tv: TV(p̃, p) of the rounded draft p̃, divided by its sum as samplers do.
        output_tv: TV of the output law to the target, at most `draft_tv`.
        acceptance: α with p̃.
        gain: α with p̃ less α with p; of either sign, at most `draft_tv` in size.
    """

    draft_tv: NDArray[np.float64]
    output_tv: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    gain: NDArray[np.float64]

    __repr__ = brief_repr


@keyword_only("otm.losses.draft_rounding(draft=p, target=q)")
def draft_rounding(
    *, draft: object, target: object, dtype: Literal["bfloat16", "float16"] = "bfloat16"
) -> Rounding:
    """Return the effect of sampling one draft from probabilities rounded to half precision.

    π = p̃ min(1, q/p) + (1 − Σ p̃ min(1, q/p)) res, res ∝ (q − p)₊. The verifier is a kernel that
    takes p to q, so it takes p̃ to within TV(p̃, p) of q; and rounding to t bits moves p by at most
    u / (2(1 − u)), u = 2^−t, in total variation: 1/510 for bfloat16 (t = 8). k drafts move k times
    as far at most.

    Args:
        draft, target: `(..., V)`.
        dtype: "bfloat16" or "float16".

    Returns:
        `Rounding`, each part `(...)` in float64.

    Raises:
        InvalidDistribution, ShapeMismatch: as `otm.Problem`. InvalidParameter: if the dtype is
            another, or rounds all of p to 0.

    Cost: O(V). Accuracy: 1e-15. Source: docs/theory.md, "What acceptance is lost to".

    >>> found = draft_rounding(draft=[1 / 3, 2 / 3], target=[0.5, 0.5])
    >>> bool(found.output_tv <= found.draft_tv <= 1 / 510)
    True
    """
    check_choice(dtype, name="dtype", choices=_HALF)
    problem = Problem(draft=draft, target=target, law=IID(1))
    refuse_gradients(problem, "otm.losses.draft_rounding")
    p, q = _host(problem.draft), _host(problem.target)
    rounded = _rounded(p, dtype)
    sums = rounded.sum(-1, keepdims=True)
    if np.any(sums == 0):
        raise InvalidParameter(
            f"Some mass must be left in {dtype}; a draft of {p.shape[-1]} tokens is all 0 there. "
            "Take bfloat16."
        )
    rounded = rounded / sums
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        kept = np.where(p > 0, np.minimum(1.0, q / p), 0.0)
    accepted = (rounded * kept).sum(-1)
    residual = normalised_excess(np.maximum(q - p, 0.0), q)
    law = rounded * kept + (1.0 - accepted)[..., None] * residual
    return Rounding(
        draft_tv=0.5 * np.abs(rounded - p).sum(-1),
        output_tv=0.5 * np.abs(law - q).sum(-1),
        acceptance=accepted,
        gain=accepted - np.minimum(p, q).sum(-1),
    )


def _rounded(masses: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round to the nearest, ties to even, by way of float32 as models do."""
    single = masses.astype(np.float32)
    if dtype == "float16":
        return single.astype(np.float16).astype(np.float64)
    bits = single.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
