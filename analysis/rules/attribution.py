"""Tests of rules against an engine's record.

Under a rule a record of n steps has the rule's survivals but for its own luck and that of the
texts that the prediction rests on. Both are normal in the limit, with covariances that are
estimated over independent units: the record's requests, if it tells them apart, else texts as long
as those that were read; the prediction's prompts. Where the record's own texts are known, nothing
but the drafts that led to them is left to luck, and its covariance C is computed. At every
position, for their sum, and, where C is computed, in the direction C⁻¹ d in which another rule that
differs by d is told best, the difference over its standard error is held against Student's t
[degrees of freedom: Satterthwaite 1946], two-sided; the smallest p-value counts for the rule, times
their number (Bonferroni). One rule runs, so that of the hypotheses one at most is true, and no
factor for the number of rules is due [Shaffer 1986]: the rule that runs is called inconsistent with
probability at most α, if its texts are known, or the prompts are a sample of its requests.

The limits of every test are computed as well. The texts have one law under all lossless rules, so
that the Kullback-Leibler divergence between all that n steps do under two rules is n D, with D that
of a step given the text. A test errs, with both kinds of error added, with probability ½ e^{−nD} at
least [Bretagnolle, Huber 1979]: below log(1/(4α))/D steps it errs by more than α on one side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy

from otm._machine.arrays import Floats
from otm.engines import AcceptanceRecord
from otm.engines.records.tally import padded

from ..advise.walk import Walk
from ..errors import AnalysisError
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
class RecordStatistics:
    """Accepted drafts, survivals and covariance of a record, for tests of rules.

    Attributes:
        accepted: drafts of a step.
        survival: `(L,)`; None if only the mean is known.
        steps: n.
        covariance: `(L, L)` of the survivals, estimated over requests; None if the record tells
            too few requests apart.
        requests: their number; 0 then.
        over: tokens of a step beyond the ends of texts, at most.
    """

    accepted: float
    survival: Floats | None
    steps: float
    covariance: Floats | None = None
    requests: int = 0
    over: float = np.inf


def statistics_of(record: AcceptanceRecord, length: int) -> RecordStatistics:
    """Return accepted drafts, survivals and covariance of a record with steps of L drafts.

    Raises:
        AnalysisError: if the record counts no steps, or drafts in a row were not always L.
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
    accepted = record.drafting_mean - 1.0
    if not record.measured:
        return RecordStatistics(accepted, None, record.steps)
    survival = padded(record.survival.survival, max(length, record.measured))[:length]
    if (requests := record.requests or 0) < _LEAST_REQUESTS:
        return RecordStatistics(accepted, survival, record.steps)
    counts = np.array(
        [padded(part.survivors, max(length, record.measured))[:length] for part in record.parts]
    )
    parts = np.array([[part.steps] for part in record.parts])
    errors = (counts - survival * parts) / record.steps
    covariance = errors.T @ errors * (requests / (requests - 1))
    return RecordStatistics(accepted, survival, record.steps, covariance, requests)


def of_texts(seen: RecordStatistics, tokens: int, texts: int) -> RecordStatistics:
    """Return the observation of a record that was counted while given texts were written.

    Nothing but drafts is left to luck. What was counted beyond the texts' ends shows in the sum of
    tokens, but for each text's first one, which may be of the prompt's own pass, and for luck: four
    deviations of whether a text's last step adds a token beyond.
    """
    over = seen.accepted + 1.0 + (texts + 2.0 * np.sqrt(texts) - tokens) / seen.steps
    return dataclasses.replace(seen, covariance=None, requests=0, over=over)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Expected survivals in a record of each rule, with covariances.

    Attributes:
        mean: `(R, L)`, survivals.
        errors: `(R, L, L)`, covariance of the errors of these means.
        luck: `(R, L, L)`, n times the covariance of the survivals of n steps.
        slack: `(R, L)`, the most that drafts beyond the ends of texts add, if they are counted.
        bonus: `(R,)`, tokens of a step that a target adds beyond ends.
        freedom: `(R, 2)`, degrees of freedom behind luck and errors.
    """

    mean: Floats
    errors: Floats
    luck: Floats
    slack: Floats
    bonus: Floats
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
    """Predict mean and covariance of a record over new texts of these prompts, for every rule.

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
    return Prediction(survivals.mean, survivals.blocks, np.array(luck), slack, slack[:, 0], freedom)


def predicted_given(walks: Sequence[Sequence[Walk]], sampled: Sequence[bool]) -> Prediction:
    """Predict a record that was counted while these very texts were written, for every rule.

    Neither prompts nor texts are left to luck then, only the drafts that led to them, and their law
    given a text is exact. The covariance of one step per text is added, as engines begin at
    different places. Drafts beyond a text's end may have counted or not.

    Args:
        walks: of all rules along each text, to its end.
        sampled: which rules' walks are sampled; the variance of these is estimated from the spread
            over texts.

    Raises:
        AnalysisError: for a single text.
    """
    if len(walks) < 2:
        raise AnalysisError(
            "A record is held against two texts or more, whose spread says what trees on noise may "
            f"do; got {len(walks)}. Log more of them."
        )
    given = [[Walk(one.visits, one.reached, one.reached[1:]) for one in row] for row in walks]
    spread = Survivals.of(given, range(len(given)))
    errors, luck, ends = spread.blocks, [], []
    for rule, mean in enumerate(spread.mean):
        mine = [row[rule] for row in given]
        steps = sum(walk.steps for walk in mine)
        residuals = np.array([walk.accepted - mean * walk.steps for walk in mine])
        whole = np.sum([text_moments(walk, mean) for walk in mine], axis=0)
        once = np.minimum.outer(mean, mean) - np.outer(mean, mean)
        own = (whole - residuals.T @ residuals + len(mine) * once) / steps
        luck.append(own + steps * errors[rule] if sampled[rule] else own)
        ends.append(sum(_beyond(walk) for walk in mine) / steps)
    errors = errors * np.array(sampled)[:, None, None]
    freedom = np.where(np.array(sampled)[:, None], len(given) - 1.0, _KNOWN)
    freedom = np.broadcast_to(freedom, (len(errors), 2))
    bonus, slack = np.split(np.array(ends), [1], axis=1)
    return Prediction(spread.mean, errors, np.array(luck), slack, bonus[:, 0], freedom)


def _beyond(walk: Walk) -> Floats:
    """Return expected bonus tokens, and drafts by position, beyond a text's end, `(L + 1,)`."""
    levels, starts = walk.reached.shape
    left = starts - np.arange(starts)
    whole = np.take_along_axis(walk.reached, np.minimum(np.arange(levels)[:, None], left), axis=0)
    return (
        np.append(whole[-1] * (left < levels), (whole - walk.reached)[1:]).reshape(levels, starts)
        @ walk.visits
    )


def p_values(seen: RecordStatistics, prediction: Prediction) -> Floats:
    """Compute the p-value of every rule for a record, `(R,)`.

    Args:
        seen: the record.
        prediction: of the rules.
    """
    found = np.empty(len(prediction.mean))
    for rule, mean in enumerate(prediction.mean):
        tests = _Contrasts.of(seen, prediction, rule)
        found[rule] = tests.smallest(tests.gap(seen, mean))
    return found


def log_likelihoods(seen: RecordStatistics, prediction: Prediction) -> Floats:
    """Compute the log-likelihood of a record under every rule, up to a common constant, `(R,)`.

    The vector of survivals, or the mean, is taken as normal. Counts of n steps are whole, so that
    1/(12 n²) is added to every variance.

    Args:
        seen: the record.
        prediction: of the rules.
    """
    found = np.empty(len(prediction.mean))
    for rule, mean in enumerate(prediction.mean):
        tests, size = (
            _Contrasts.of(seen, prediction, rule),
            1 if seen.survival is None else len(mean),
        )
        gap, contrasts = tests.gap(seen, mean)[:size], tests.contrasts[:size]
        whole = contrasts @ tests.covariance @ contrasts.T + np.eye(size) / (12.0 * seen.steps**2)
        found[rule] = -0.5 * (gap @ np.linalg.solve(whole, gap) + np.linalg.slogdet(whole)[1])
    return found


def steps_to_tell(seen: RecordStatistics, prediction: Prediction, own: int, other: int) -> float:
    """Estimate the number of steps of one rule that refute another, but for one record in 1/α.

    Args:
        seen: a record, whose form later ones have.
        prediction: of the rules.
        own, other: their numbers.
    """
    tests = _Contrasts.of(seen, prediction, other)
    luck, errors = tests.variances
    apart = np.abs(tests.contrasts @ (prediction.mean[own] - prediction.mean[other]))
    apart = np.maximum(apart - np.abs(tests.ends), 0.0)
    score = scipy.special.ndtri(ERROR / (2 * len(apart))) + scipy.special.ndtri(ERROR)
    spare = apart**2 / score**2 - errors
    told = spare > _ROUNDING**2
    return float(np.min(seen.steps * luck[told] / spare[told], initial=np.inf))


def fewest_steps(walks: Sequence[Sequence[Walk]], sampled: Sequence[bool]) -> Floats:
    """Return the steps that a test of two rules needs to err by at most α either way, `(R, R)`.

    log(1/(4α))/D, whatever is tested; 0 where D is not known.

    Args:
        walks: of all rules along each text.
        sampled: which rules' walks have luck of their own.
    """
    exact = [rule for rule, luck in enumerate(sampled) if not luck]
    whole, steps = np.zeros((len(exact), len(exact))), np.zeros((len(exact), 1))
    for row in walks:
        reached = np.array([row[rule].reached for rule in exact])
        visits = np.array([row[rule].visits for rule in exact])
        mass = np.maximum(-np.diff(reached, axis=1, append=0.0), 0.0)
        logs = np.log(np.maximum(mass, np.finfo(float).tiny))
        own, others = np.einsum("ajt,ajt->at", mass, logs), np.einsum("ajt,bjt->abt", mass, logs)
        whole += np.einsum("abt,at->ab", own[:, None] - others, visits)
        steps[:, 0] += visits.sum(axis=1)
    found = np.zeros((len(sampled), len(sampled)))
    with np.errstate(divide="ignore"):
        needed = -np.log(4.0 * ERROR) / np.maximum(whole / steps, 0.0)
    found[np.ix_(exact, exact)] = np.maximum(needed, needed.T)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Contrasts:
    """Contrasts between a record and a rule, with variances.

    Attributes:
        contrasts: `(m, L)`, of survivals.
        variances: `(m,)` each, of the record's luck and of the prediction.
        freedom: degrees of freedom of these.
        ends: `(m,)`, the most that the ends of texts add to a contrast.
        covariance: `(L, L)`, of the survivals, record and prediction together.
    """

    contrasts: Floats
    variances: tuple[Floats, Floats]
    freedom: tuple[float, float]
    ends: Floats
    covariance: Floats

    @classmethod
    def of(cls, seen: RecordStatistics, prediction: Prediction, rule: int) -> _Contrasts:
        own, (by_luck, by_mean) = prediction.luck[rule] / seen.steps, prediction.freedom[rule]
        if seen.covariance is not None:
            own, by_luck = seen.covariance, seen.requests - 1.0
        slack = prediction.slack[rule]
        beyond = (seen.over - prediction.bonus[rule]) / max(slack.sum(), _ROUNDING)
        ends = slack * np.clip(beyond, 0.0, 1.0)
        contrasts = np.ones((1, len(own)))
        if seen.survival is not None:
            contrasts = np.concatenate([np.eye(len(own)), contrasts])
            if by_luck == _KNOWN:  # an estimate would choose the direction that it errs in
                apart = np.delete(prediction.mean, rule, axis=0) - prediction.mean[rule]
                best = apart @ np.linalg.pinv(own + np.outer(ends, ends))
                best /= np.maximum(np.abs(best).max(axis=1, keepdims=True), _ROUNDING)
                contrasts = np.concatenate([contrasts, best])
        luck, errors = (
            np.einsum("ml,lk,mk->m", contrasts, one, contrasts)
            for one in (own, prediction.errors[rule])
        )
        whole = own + prediction.errors[rule]
        return cls(contrasts, (luck, errors), (by_luck, by_mean), contrasts @ ends, whole)

    def gap(self, seen: RecordStatistics, mean: Floats) -> Floats:
        """Return the record's excess over a rule by contrast, beyond the effect of ends, `(m,)`."""
        values = np.array([seen.accepted])
        if seen.survival is not None:
            values = self.contrasts @ seen.survival
        gap = values - self.contrasts @ mean
        return np.asarray(gap - np.clip(gap, *np.sort([self.ends, 0.0 * gap], axis=0)))

    def smallest(self, gap: Floats) -> float:
        """Return the smallest two-sided p-value of the gaps, times the number of gaps."""
        whole = self.variances[0] + self.variances[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = sum(one**2 / n for one, n in zip(self.variances, self.freedom, strict=True))
            found = 2.0 * scipy.special.stdtr(whole**2 / parts, -np.abs(gap) / np.sqrt(whole))
        # where nothing is left to luck there is no doubt
        found = np.where(whole > _ROUNDING**2, found, np.abs(gap) <= _ROUNDING)
        return float(min(1.0, len(gap) * found.min()))
