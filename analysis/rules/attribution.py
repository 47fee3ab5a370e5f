"""Which rules an engine's record is consistent with.

Under a rule a record of n steps has the rule's survivals but for its own luck and that of the
texts that the prediction rests on. Both are normal in the limit, with covariances that are
estimated over independent units: the record's requests, if it tells them apart, else texts as long
as those that were read; the prediction's prompts. Where the record's own texts are known, nothing
but the drafts that led to them is left to luck, and its covariance is computed. At every position,
and for their sum, the difference over its standard error is held against Student's t [degrees of
freedom: Satterthwaite 1946], two-sided; the smallest p-value counts for the rule, times their
number (Bonferroni), and rules are adjusted for theirs (Holm). So the rule that an engine runs is
called inconsistent with probability at most α, if its texts are known, or the prompts are a sample
of its requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy

from otm.engines import AcceptanceRecord
from otm.engines.records.tally import padded

from ..advise.walk import Walk
from ..errors import AnalysisError
from ..statistics import Floats, holm
from .survivals import Survivals

ERROR = 0.01
"""α: how often the rule that an engine runs is called inconsistent."""

_LEAST_REQUESTS = 8
"""Requests from which on a record's own luck is estimated from them."""

FEWEST_TEXTS = 8
"""Texts from which the spread of a prediction is taken; of two it is hardly known."""

_KNOWN = 1e9
"""Degrees of freedom of a variance that is computed, not estimated."""

_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Observed:
    """What a record says of survival, in a form that rules can be held against.

    Attributes:
        values: `(m,)`, what was seen.
        contrasts: `(m, L)`, what it is a mean of: every position and their sum, or the sum alone.
        steps: n.
        covariance: `(L, L)` of the survivals by request, and the number of these; None if the
            record does not tell enough of them apart.
        requests: their number; 0 then.
    """

    values: Floats
    contrasts: Floats
    steps: float
    covariance: Floats | None
    requests: int


def observed(record: AcceptanceRecord, length: int) -> Observed:
    """Return what a record of steps of L drafts says.

    Raises:
        AnalysisError: if it counts no steps, or drafts in a row were not always L.
    """
    if record.steps is None:
        raise AnalysisError(
            f"A rule is told by counts of steps; this {record.form} holds rates alone. Record "
            "counters."
        )
    drafted = record.drafts_per_step
    if drafted is not None and abs(drafted - length) > 0.01 * length:
        raise AnalysisError(
            f"A rule is told from steps of one length; this {record.form} has {drafted:.4g} drafts "
            f"a step, and {length} are asked for. Fix the engine's draft length, or pass --length."
        )
    every = np.ones((1, length))
    if not record.measured:
        return Observed(np.array([record.mean - 1.0]), every, record.steps, None, 0)
    survival = padded(record.survival.survival, max(length, record.measured))[:length]
    contrasts = np.concatenate([np.eye(length), every])
    covariance, requests = None, record.requests or 0
    if requests >= _LEAST_REQUESTS:
        counts = np.array(
            [padded(part.survivors, max(length, record.measured))[:length] for part in record.parts]
        )
        parts = np.array([[part.steps] for part in record.parts])
        errors = (counts - survival * parts) / record.steps
        covariance = errors.T @ errors * (requests / (requests - 1))
    else:
        requests = 0
    return Observed(contrasts @ survival, contrasts, record.steps, covariance, requests)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """What a record of each rule has, but for luck.

    Attributes:
        mean: `(R, L)`, survivals.
        errors: `(R, L, L)`, covariance of what is unknown of them.
        luck: `(R, L, L)`, n times the covariance of the survivals of n steps.
        slack: `(R, L)`, how much more the ends of texts may add.
        freedom: `(R, 2)`, degrees of freedom behind luck and errors.
    """

    mean: Floats
    errors: Floats
    luck: Floats
    slack: Floats
    freedom: Floats


def text_moments(walk: Walk, mean: Floats) -> Floats:
    """Return E[r rᵀ] of a text, r_i = steps that accept at least i drafts − S_i·steps, `(L, L)`.

    Backwards over starts: with x_j the residual of a step that accepts exactly j drafts, and m, V
    the first two moments of what follows, V(t) = Σ_j Pr(j) [x xᵀ + x mᵀ + m xᵀ + V](t + 1 + j).
    """
    length, starts = walk.gained.shape
    exactly = walk.reached - np.append(walk.reached[1:], np.zeros((1, starts)), axis=0)
    levels = np.arange(length + 1)
    residual = (levels[:, None] > np.arange(length)) - mean
    first = np.zeros((starts + length + 1, length))
    second = np.zeros((starts + length + 1, length, length))
    for t in reversed(range(starts)):
        after, crossed = first[t + 1 + levels], residual[:, :, None] * first[t + 1 + levels, None]
        own = residual[:, :, None] * residual[:, None]
        whole = own + crossed + crossed.transpose(0, 2, 1) + second[t + 1 + levels]
        first[t] = exactly[:, t] @ (residual + after)
        second[t] = np.tensordot(exactly[:, t], whole, axes=1)
    return np.asarray(second[0])


def predicted(survivals: Survivals, walks: Sequence[Sequence[Walk]]) -> Prediction:
    """Return what records of other texts of such prompts have.

    Args:
        survivals: of the rules.
        walks: of all rules along each text.
    """
    luck = []
    for rule, mean in enumerate(survivals.mean):
        mine = [row[rule] for row in walks]
        moments = np.mean([text_moments(walk, mean) for walk in mine], axis=0)
        luck.append(moments / np.mean([walk.steps for walk in mine]))
    freedom = np.tile([survivals.texts - 1.0, survivals.clusters - 1.0], (len(luck), 1))
    slack = np.zeros_like(survivals.mean)
    return Prediction(survivals.mean, survivals.blocks, np.array(luck), slack, freedom)


def predicted_given(walks: Sequence[Sequence[Walk]], sampled: Sequence[bool]) -> Prediction:
    """Return what a record has that was counted while these very texts were written.

    Neither prompts nor texts are left to luck then, only which drafts led to them, and what a text
    says of that is exact. One step of luck a text is added for where engines begin. Drafts beyond a
    text's end may have counted or not.

    Args:
        walks: of all rules along each text, to its end.
        sampled: which rules' walks have luck of their own, which is taken from their spread over
            texts.

    Raises:
        AnalysisError: of a single text.
    """
    if len(walks) < 2:
        raise AnalysisError(
            "A record is held against two texts or more, whose spread says what trees on noise may "
            f"do; got {len(walks)}. Log more of them."
        )
    given = [[Walk(one.visits, one.reached, one.reached[1:]) for one in row] for row in walks]
    spread = Survivals.of(given, range(len(given)))
    errors, luck, slack = spread.blocks, [], []
    for rule, mean in enumerate(spread.mean):
        mine = [row[rule] for row in given]
        steps = sum(walk.steps for walk in mine)
        residuals = np.array([walk.accepted - mean * walk.steps for walk in mine])
        whole = np.sum([text_moments(walk, mean) for walk in mine], axis=0)
        once = np.minimum.outer(mean, mean) - np.outer(mean, mean)
        own = (whole - residuals.T @ residuals + len(mine) * once) / steps
        luck.append(own + steps * errors[rule] if sampled[rule] else own)
        slack.append(sum(_beyond(walk) for walk in mine) / steps)
    errors = errors * np.array(sampled)[:, None, None]
    freedom = np.where(np.array(sampled)[:, None], len(given) - 1.0, _KNOWN)
    freedom = np.broadcast_to(freedom, (len(errors), 2))
    return Prediction(spread.mean, errors, np.array(luck), np.array(slack), freedom)


def _beyond(walk: Walk) -> Floats:
    """Return the expected steps that pass their text's end with fewer than i drafts, `(L,)`."""
    levels, starts = walk.reached.shape
    inside = np.minimum(np.arange(levels)[:, None], starts - np.arange(starts))
    whole = np.take_along_axis(walk.reached, inside, axis=0)
    return np.asarray((whole - walk.reached)[1:] @ walk.visits)


def p_values(seen: Observed, prediction: Prediction) -> Floats:
    """Return for every rule the adjusted p-value that a record is its own, `(R,)`.

    Args:
        seen: the record.
        prediction: of the rules.
    """
    found = np.empty(len(prediction.mean))
    for rule, (by_luck, by_mean) in enumerate(prediction.freedom):
        own = prediction.luck[rule] / seen.steps
        if seen.covariance is not None:
            own, by_luck = seen.covariance, seen.requests - 1.0
        errors = [
            np.einsum("ml,lk,mk->m", seen.contrasts, one, seen.contrasts)
            for one in (own, prediction.errors[rule])
        ]
        gap = seen.values - seen.contrasts @ prediction.mean[rule]
        gap = gap - np.clip(gap, 0.0, seen.contrasts @ prediction.slack[rule])
        found[rule] = _smallest(gap, errors, (by_luck, by_mean))
    return holm(found)


def _smallest(gap: Floats, variances: Sequence[Floats], freedom: tuple[float, float]) -> float:
    """Return the smallest two-sided p-value of some gaps, times their number."""
    whole = variances[0] + variances[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = sum(one**2 / n for one, n in zip(variances, freedom, strict=True))
        score = np.abs(gap) / np.sqrt(whole)
        found = 2.0 * scipy.special.stdtr(whole**2 / parts, -score)
    # where nothing is left to luck there is no doubt
    found = np.where(whole > _ROUNDING**2, found, np.abs(gap) <= _ROUNDING)
    return float(min(1.0, len(gap) * found.min()))
