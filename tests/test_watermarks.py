"""Watermarks with two keys: output law, acceptance, evidence, scores and tokens until detection,
each against enumeration, quadrature or many simulated keys.
"""

import math

import mpmath
import numpy as np
import pytest
import scipy

import otm
from otm.audit.end_to_end import JointAudit
from otm.sequence import ZerothOrder
from otm.watermarks import (
    DualKey,
    _gain,
    _Parts,
    _tail,
    _winner_mean,
    evidence_laws,
    mean_score,
    strength,
    tokens_to_flag,
)

P, Q = np.array([0.5, 0.1, 0.3, 0.1]), np.array([0.1, 0.3, 0.25, 0.35])
PAIR = {"draft": P, "target": Q}
KEYS = 200_000


def simulated(seed):
    """Many keys at once, by uniforms and logarithms: the coin and the scores of both keys."""
    rng = np.random.default_rng(seed)
    first, second, coin = rng.random((KEYS, 4)), rng.random((KEYS, 4)), rng.random(KEYS)
    rest = np.maximum(Q - P, 0.0)
    drafted = (np.log(first) / P).argmax(axis=1)
    with np.errstate(divide="ignore"):
        other = (np.log(second) / rest).argmax(axis=1)
    accepted = coin < (Q / P)[drafted]
    token = np.where(accepted, drafted, other)
    rows = np.arange(KEYS)
    scores = [-np.log1p(-uniforms[rows, token]) for uniforms in (first, second)]
    return coin, *scores


COIN, *SCORES = simulated(7)


def score(scheme):
    """What the detector counts, key by key."""
    if scheme.keyed_coin:
        return np.where(1 - scheme.weight >= COIN, *SCORES)
    return (1 - scheme.weight) * SCORES[0] + scheme.weight * SCORES[1]


SCHEMES = [DualKey(keyed, weight) for keyed in (False, True) for weight in (0.0, 0.1, 0.6, 1.0)]


# --- the output


def test_a_token_of_equal_laws_is_the_draft():
    assert DualKey().token(draft=P, target=P, rng=0)[1]


def two_keys(p, q, rng):
    return DualKey().token(draft=p, target=q, rng=rng)[0]


def replaced(p, q, clocks):
    """The winner of the residual's race."""
    return int(1 + np.argmin(clocks[1:] / (q - p)[1:]))


def one_key(p, q, rng):
    """The clocks that drafted a token replace it, too."""
    clocks = rng.exponential(size=3)
    x = int(np.argmin(clocks / p))
    return x if rng.random() * p[x] < q[x] else replaced(p, q, clocks)


def coin_of_the_draft(p, q, rng):
    """The coin is a uniform that the draft was drawn with."""
    clocks = rng.exponential(size=3)
    x = int(np.argmin(clocks / p))
    return x if np.exp(-clocks[0]) * p[x] < q[x] else replaced(p, q, rng.exponential(size=3))


@pytest.mark.parametrize(
    ("draw", "distance"),
    [
        (two_keys, 0.0),
        # Draft 0 wins at T ~ Exp(1) and leaves E_j = p_j T + E_j'. Its replacement is 1 if
        # (.3 T + E_1')/.05 < (.2 T + E_2')/.25, with 1/6 · 1/2.3, not 1/6; it is replaced with .3.
        (one_key, 13 / 460),
        # Draft 0 wins with the coin e^{−T/2}, below 2/5 with .16, not .4; it is drawn with 1/2.
        (coin_of_the_draft, 0.12),
    ],
)
def test_the_audit_finds_shared_randomness(draw, distance):
    """Of a step that drafts by itself; its draws are integrated: the law is the mean over keys."""
    found = otm.audit.step(
        lambda draft, target, rng: [draw(np.array(draft.next([])), np.array(target.next([])), rng)],
        draft=ZerothOrder([0.5, 0.3, 0.2]),
        target=ZerothOrder([0.2, 0.35, 0.45]),
        length=1,
        rng=0,
    )
    assert (found.verdict == "lossless", type(found)) == (distance == 0.0, JointAudit)
    assert found.total_variation == pytest.approx(distance, abs=1e-12)


# --- what a detector that knows both models can find


@pytest.mark.parametrize("keyed", [False, True])
def test_evidence_has_the_likelihood_ratios_of_the_joint_law(keyed):
    """The strength is the divergence, and the power of every level is that of the whole joint law:
    of draft, replacement and output, or, where the key decides for a token, of that and whether the
    text has it.
    """
    rest = np.maximum(Q - P, 0.0) / np.maximum(Q - P, 0.0).sum()
    keep = np.minimum(1.0, Q / P)
    whole = np.array(
        [(Q[x] * Q[y], Q[x] * (x == y)) for x, y in np.ndindex(4, 4)]
        if keyed
        else [
            np.array([Q[y], keep[x] * (y == x) + (1 - keep[x]) * (y == z)]) * P[x] * rest[z]
            for x, z, y in np.ndindex(4, 4, 4)
        ]
    ).T
    found = np.array(evidence_laws(DualKey(keyed), **PAIR))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    for laws in (found, whole):
        null, marked = laws[:, laws[1] > 0]
        told = float((marked * np.log(marked / null)).sum())
        assert strength(DualKey(keyed), **PAIR) == pytest.approx(told, rel=1e-12)
    for factor in (0.0, 0.5, 1.5, 2.0, 3.0, 5.0):
        power, wanted = (np.maximum(one - factor * null, 0.0).sum() for null, one in (found, whole))
        assert power == pytest.approx(wanted, abs=1e-14)


def test_contexts_in_a_batch_are_contexts_by_themselves():
    both = {"draft": np.stack([P, Q]), "target": np.stack([Q, Q])}
    for scheme in (DualKey(), DualKey(keyed_coin=True)):
        for function in (strength, mean_score):
            alone = [function(scheme, draft=p, target=Q) for p in (P, Q)]
            np.testing.assert_allclose(function(scheme, **both), alone, rtol=1e-14)
        null, marked = evidence_laws(scheme, **both)
        told = np.where(
            marked > 0,
            marked * np.log(np.where(marked > 0, marked, 1.0) / np.maximum(null, 1e-300)),
            0.0,
        )
        np.testing.assert_allclose(told.sum(axis=-1), strength(scheme, **both), rtol=1e-12)


# --- the score of a detector that knows none


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_mean_scores_are_those_of_many_keys(scheme):
    """Within five standard errors; by the derivative of the characteristic function, closely."""
    found = score(scheme)
    wanted = mean_score(scheme, **PAIR)
    assert found.mean() - 1 == pytest.approx(wanted, abs=5 * found.std() / math.sqrt(KEYS))
    growth = _Parts.of(scheme, P, Q).growth
    assert (growth(1e-6j) / 1e-6j).real - 1 == pytest.approx(wanted, abs=1e-9)
    for at in (0.4, 0.3 + 1j, -2.0, 0.1 - 7j):
        terms = np.exp(at * found)
        if np.real(at) < 0.4 or scheme.weight in (0.1, 0.6):
            assert abs(np.exp(growth(at)) - terms.mean()) < 6 * terms.std() / math.sqrt(KEYS)


@pytest.mark.parametrize("mass", [0.999, 0.3, 1e-3, 0.99e-4, 1e-6])
def test_the_winners_score_by_quadrature(mass):
    """u of a token that wins with probability p has distribution function u^{1/p}."""
    with mpmath.workdps(30):
        rate = 1 / mpmath.mpf(mass)
        mean = mpmath.digamma(1 + rate) - mpmath.digamma(2)
        # with v = 1 − u: ∫ v^{−s} rate (1 − v)^{rate−1} dv
        at = mpmath.mpc(0.25, 1.5)
        wanted = rate * mpmath.beta(1 - at, rate)
        whole = mpmath.quad(
            lambda x: x ** (-at) * (1 - x / rate) ** (rate - 1),
            [0, 1e-6, 1e-3, 0.1, 1, 10, rate if rate < 50 else 60],
        )
        assert abs(whole * rate**at - wanted) < 1e-5 * abs(wanted)
    assert _gain(np.array(mass)) == pytest.approx(float(mean), abs=1e-13)
    assert abs(_winner_mean(np.array(mass), 0.25 + 1.5j) - complex(wanted)) < 1e-11 * abs(wanted)


# --- how many tokens


@pytest.mark.parametrize("tokens", [8, 10, 100, 1000])
@pytest.mark.parametrize("chance", [1e-12, 1e-9, 1e-6, 1e-2, 0.5, 0.95, 1 - 1e-6])
def test_tails_are_those_of_gamma_laws(tokens, chance):
    """To 1e-8 of the chance, or of what it lacks to 1: of one gamma law, and of two equal ones."""
    for law, part in ((tokens, 1.0), (2 * tokens, 0.5)):
        threshold = (
            scipy.special.gammainccinv(law, chance)
            if chance < 0.5
            else scipy.special.gammaincinv(law, 1 - chance)
        )
        found = _tail(
            lambda s, part=part: complex(-np.log(1 - part * s) / part),
            tokens,
            part * threshold,
            limit=1 / part,
            near=chance,
        )
        assert found == pytest.approx(chance, rel=0, abs=1e-8 * min(chance, 1 - chance) + 1e-15)


def test_tails_of_a_million_tokens():
    """P(T, x) = e^{−x} xᵀ/T! (1 + x/(T + 1) + …) in 40 digits; SciPy's is off by 7e-6 here."""
    tokens, threshold = 10**6, 995_253.75
    with mpmath.workdps(40):
        x = mpmath.mpf(threshold)
        term = total = mpmath.exp(tokens * mpmath.log(x) - x - mpmath.loggamma(tokens + 1))
        for more in range(1, 20_000):
            term *= x / (tokens + more)
            total += term
    assert term < 1e-20 * total < 1e-26
    found = _tail(lambda s: complex(-np.log(1 - s)), tokens, threshold, limit=1.0, near=1 - 1e-6)
    assert 1 - found == pytest.approx(float(total), rel=1e-8, abs=0)


def test_tails_of_laws_whose_transform_nearly_vanishes():
    """A token of .7 scores little and 1000 rare ones score much:
    their terms cancel at a node before others that count. Another line has all of its nodes.
    """
    tokens, masses = 8, np.array([0.7, 0.3])
    law = masses / [1, 1000]
    threshold = 0.6 * tokens * (1 + float(masses @ _gain(law)))
    found = _tail(
        lambda s: complex(np.log(masses @ _winner_mean(law, s))),
        tokens,
        threshold,
        limit=1.0,
        near=0.5,
    )
    step = 0.002
    line = (0.05 + 1j * step * np.arange(20_000))[:, None]
    gamma = scipy.special.loggamma
    means = np.exp(gamma(1 - line) + gamma(1 / law + 1) - gamma(1 / law + 1 - line)) @ masses
    terms = (means**tokens * np.exp(-line[:, 0] * threshold) / line[:, 0]).real
    assert found == pytest.approx(step / math.pi * (terms.sum() - terms[0] / 2), abs=1e-8)


@pytest.mark.parametrize("scheme", SCHEMES[:3] + SCHEMES[4:7], ids=str)
def test_the_power_is_that_of_many_texts(scheme):
    """Texts of ten tokens, 20,000 of them, marked and not; five standard errors."""
    tokens, level = 10, 0.05
    texts = score(scheme).reshape(-1, tokens).sum(axis=1)
    clear = np.random.default_rng(3).exponential(size=(2, *texts.shape, tokens))
    weights = (1.0, 0.0) if scheme.keyed_coin else (1 - scheme.weight, scheme.weight)
    others = np.tensordot(weights, clear, axes=1).sum(axis=1)
    threshold = np.quantile(others, 1 - level)
    power, error = (texts > threshold).mean(), 5 * 0.5 / math.sqrt(len(texts))
    parts = _Parts.of(scheme, P, Q)
    limit = 1 / max(parts.weights)
    found = _tail(parts.growth, tokens, threshold, limit=limit, near=0.5)
    assert found == pytest.approx(power, abs=error)
    # a threshold that is off by 5 standard errors of its level moves the power by more than these
    assert parts.power(tokens, level, 0.5) == pytest.approx(power, abs=4 * error)


def test_the_power_at_a_tiny_level_is_that_of_many_texts():
    """Sure of each token with 1/100, key A alone: its winner scores the largest of 100 clocks. A
    threshold that belongs to 1.09 times the level has a power of .627.
    """
    uniform, runs, level = np.full(100, 0.01), 200_000, 1e-12
    largest = -np.log(-np.expm1(np.log(np.random.default_rng(4).random((runs, 10))) / 100))
    texts = largest.sum(axis=1) > scipy.special.gammainccinv(10, level)
    found = _Parts.of(DualKey(True, 0.0), uniform, uniform).power(10, level, 0.5)
    assert found == pytest.approx(texts.mean(), abs=5 * 0.5 / math.sqrt(runs))


@pytest.mark.parametrize("scheme", [DualKey(), DualKey(keyed_coin=True)])
def test_tokens_to_flag_is_the_first_number_that_suffices(scheme):
    found = tokens_to_flag(scheme, **PAIR, power=0.9, level=1e-3)
    parts = _Parts.of(scheme, P, Q)
    assert parts.power(int(found), 1e-3, 0.9) >= 0.9 > parts.power(int(found) - 1, 1e-3, 0.9)
    target, output = evidence_laws(scheme, **PAIR)
    few, _ = otm.lossy.tokens_to_detect(target=target, output=output, power=0.9, level=1e-3)
    assert few < found


def test_tokens_to_flag_at_the_ends():
    sure, flat = [1.0, 0.0], np.full(100, 0.01)
    assert tokens_to_flag(DualKey(), draft=sure, target=sure) == math.inf
    assert tokens_to_flag(DualKey(), draft=flat, target=flat) == 8


def test_a_detector_weighs_its_keys_by_what_they_tell():
    """Numbers of docs/theory.md."""
    p, q = np.array([0.75, 0.125, 0.125]), np.array([0.25, 0.375, 0.375])
    first, second = (mean_score(DualKey(weight=w), draft=p, target=q) for w in (0.0, 1.0))
    best = second / (first + second)
    assert best == pytest.approx(0.413, abs=5e-4)
    tokens = [tokens_to_flag(DualKey(weight=w), draft=p, target=q) for w in (0.1, best, 1.0)]
    assert tokens == [135, 96, 279]


def test_the_gamma_law_that_has_two_moments_right_is_too_short_in_its_tail():
    """Scores of two keys add up to no gamma variable; numbers of docs/theory.md."""
    tokens, weight = 200, 0.1

    def two_gammas(s):
        return complex(-np.log((1 - 0.9 * s) * (1 - 0.1 * s)))

    spread = (1 - weight) ** 2 + weight**2
    for level, factor in ((1e-2, 1.019), (1e-6, 1.183)):
        threshold = spread * scipy.special.gammainccinv(tokens / spread, level)
        found = _tail(two_gammas, tokens, threshold, limit=1 / (1 - weight), near=level)
        assert found / level == pytest.approx(factor, abs=5e-4)


# --- input


WIDE = {"draft": otm.examples.zipf(10_000), "target": otm.examples.zipf(10_000)[::-1]}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: DualKey("yes"), "keyed_coin must be of the class bool"),
        (lambda: DualKey(1), "keyed_coin must be of the class bool"),
        (lambda: DualKey(weight=1.5), r"weight must lie in \[0, 1\]"),
        (lambda: strength(DualKey(), draft=P, target=[0.5, 0.5]), "share one vocabulary"),
        (lambda: DualKey().token(draft=[P], target=[Q], rng=0), r"one pair of laws \(V,\)"),
        (lambda: evidence_laws(DualKey(), **WIDE), "5000 tokens may be rejected"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        call()


def test_one_key_has_a_wide_vocabulary():
    assert evidence_laws(DualKey(keyed_coin=True), **WIDE)[0].shape == (10_001,)
