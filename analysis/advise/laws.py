"""Exact laws of accepted drafts at one position, given the output token.

The output of a lossless step is the target's, so a text sampled from the target alone is a text of
every lossless decoder. Given the text, what was drafted is all that is random: at a position with m
drafts and output y

    W(j | m, y) = Pr(j of the m drafts equal y | output y),
    a(i | y) = Pr(the i-th child is accepted | output y),

for i.i.d. drafts and for children without replacement. Averages over what is drafted are therefore
exact, and the text alone is sampled: Rao–Blackwell. `alive` and `accepted` are the same without
knowing the output, and not counting the end of the text, after which nothing is decoded.

K-SEQ: the first accepted draft is y, or all are rejected and the residual draws y. With b the
chance to keep y, the generating function of the number of drafts equal to y is Σ_i (p(1 − b)z +
d)^{i−1} p b z (p z + 1 − p)^{m−i} + r(y) (p(1 − b) z + d)^m, d the probability that a draft is
another token and rejected.

Races: each token that the target's winner leaves behind precedes it in the draft race
independently, given the winner's time.

`Optimal`: all scores are uniform together, so those of the other drafts have the distribution
function (u − p F_y(u))/(1 − p), and y wins with j copies with probability ∫ d(F_y^j) ((u − p
F_y)/(1 − p))^{m−j}: a polynomial on every piece.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

import otm
from otm._machine.arrays import Floats, unit_quadrature
from otm.drafts import IID
from otm.overlap import OverlapCurve
from otm.races import matching_probabilities
from otm.verifiers import gamma_star
from otm.verifiers.optimal.scores import Scores
from otm.verifiers.optimal.verifier import OptimalRule, optimal_rule


@dataclasses.dataclass(frozen=True, eq=False)
class SurvivorLaw:
    """The law of the number of i.i.d. drafts equal to the output, at n positions, for up to K.

    Attributes:
        given: `(n, K + 1, K + 1)`, `given[t, m, j]` = Pr(j of m drafts equal the output | the
            output is the text's token).
        alive: `(n, K + 1)`, Pr(some draft equals the output, which does not end the text), whatever
            the output.
    """

    given: Floats
    alive: Floats


@dataclasses.dataclass(frozen=True, eq=False)
class RankLaw:
    """The law of the accepted rank of children drawn without replacement, at n positions.

    Attributes:
        given: `(n, K)`, Pr(the child of this rank is accepted | the output is the text's token).
        accepted: `(n, K)`, Pr(the child is accepted, and does not end the text), whatever the
            output.
    """

    given: Floats
    accepted: Floats


def kseq_survivors(
    p: Floats, q: Floats, tokens: NDArray[np.int64], *, most: int, eos: int | None
) -> SurvivorLaw:
    """Return the law of K-SEQ's survivors at γ*.

    Args:
        p, q: `(n, V)`, the draft's and the target's distributions.
        tokens: `(n,)`, the text's tokens, of positive target mass.
        most: K, the most drafts.
        eos: the token that ends a text.
    """
    given, alive = _empty(len(p), most)
    for m in range(1, most + 1):
        rule = _KSeqRule.of(p, q, m)
        given[:, m, : m + 1] = _conditional(rule.joint(tokens), q[np.arange(len(q)), tokens])
        ending = 0.0 if eos is None else rule.joint(np.full(len(q), eos))[:, 1:].sum(axis=1)
        alive[:, m] = rule.accept - ending
    return SurvivorLaw(given, alive)


def optimal_survivors(
    p: Floats, q: Floats, tokens: NDArray[np.int64], *, most: int, eos: int | None
) -> SurvivorLaw:
    """Return the law of the optimal verifier's survivors; arguments as `kseq_survivors`."""
    given, alive = _empty(len(p), most)
    # of one draft there is one best verifier
    single = kseq_survivors(p, q, tokens, most=1, eos=eos)
    given[:, 1, :2], alive[:, 1] = single.given[:, 1], single.alive[:, 1]
    for t in range(len(p)):
        for m in range(2, most + 1):
            rule = optimal_rule(otm.Problem(draft=p[t], target=q[t], law=IID(m)))
            given[t, m, : m + 1] = _conditional(
                _selected(rule, int(tokens[t]), m)[None], q[t, tokens[t], None]
            )[0]
            ending = (
                0.0 if eos is None or q[t, eos] <= 0 else float(_selected(rule, eos, m)[1:].sum())
            )
            alive[t, m] = rule.lower - ending
    return SurvivorLaw(given, alive)


def single_survivors(
    joint: Floats, q: Floats, tokens: NDArray[np.int64], *, eos: int | None
) -> SurvivorLaw:
    """Return the law of one draft under any verifier, from the joint law of draft and output.

    Args:
        joint: `(n, V)`, Pr(the draft and the output are both this token).
        q, tokens, eos: as `kseq_survivors`.
    """
    given, alive = _empty(len(q), 1)
    at = np.arange(len(q)), tokens
    given[:, 1, 1] = _conditional(joint[at][:, None], q[at])[:, 0]
    given[:, 1, 0] = 1.0 - given[:, 1, 1]
    alive[:, 1] = joint.sum(axis=1) - (0.0 if eos is None else joint[:, eos])
    return SurvivorLaw(given, alive)


def race_agreement(p: Floats, q: Floats) -> Floats:
    """Return Pr(both races are won by this token), 1/Σ_j max(p_j/p_y, q_j/q_y), `(n, V)`."""
    curve = OverlapCurve.of(p, q)
    found = np.zeros_like(q)
    agreed = curve.in_order(q) * matching_probabilities(curve)
    np.put_along_axis(found, curve.tokens, np.asarray(agreed), axis=-1)
    return found


def rejection_ranks(
    p: Floats,
    q: Floats,
    tokens: NDArray[np.int64],
    *,
    most: int,
    eos: int | None,
    rng: np.random.Generator,
    samples: int = 2,
) -> RankLaw:
    """Return the law of recursive rejection without replacement, averaged over sampled rejections.

    Each stage counts with its exact probability given what was rejected before; only the rejected
    children are sampled, so every entry is unbiased, and so are products over positions, which
    share no sample.

    Args:
        p, q, tokens, eos: as `kseq_survivors`.
        most: K, the most children.
        rng: draws the rejected children.
        samples: sequences of them at every position.
    """
    number = len(p)
    at = np.arange(number)
    given, accepted = np.zeros((number, most)), np.zeros((number, most))
    # Only rejected children are drawn; which stage accepts is exact given them: few samples do.
    for _ in range(samples):
        left, wanted, weight = p.copy(), q.copy(), np.ones(number)
        # Without replacement: a rejected child leaves the draft, the overlap leaves the target.
        for stage in range(most):
            total = left.sum(axis=1, keepdims=True)
            law = np.divide(left, total, out=np.zeros_like(left), where=total > 0)
            overlap = np.minimum(law, wanted)
            taken = overlap.sum(axis=1)
            ending = np.zeros(number) if eos is None else overlap[:, eos]
            given[:, stage] += weight * overlap[at, tokens]
            accepted[:, stage] += weight * (taken - ending)
            if stage + 1 == most:
                break
            excess = law - overlap
            missed = excess.sum(axis=1)
            weight = weight * np.where(missed > 1e-12, 1.0 - taken, 0.0)
            running = np.cumsum(excess, axis=1)
            drawn = np.minimum(
                (running <= (rng.random(number) * missed)[:, None]).sum(axis=1), p.shape[1] - 1
            )
            wanted = wanted - overlap
            mass = wanted.sum(axis=1, keepdims=True)
            wanted = np.divide(wanted, mass, out=np.zeros_like(wanted), where=mass > 0)
            left[at, drawn] = 0.0
    given /= samples * q[at, tokens][:, None]
    return RankLaw(given, accepted / samples)


def race_ranks(
    p: Floats, q: Floats, tokens: NDArray[np.int64], *, most: int, eos: int | None
) -> RankLaw:
    """Return the law of the exponential race's rank, exact given the text's tokens.

    `accepted` stays at the text's tokens as well.

    Given the winner y at time t ~ Exp(1), each other token precedes it in the draft race with
    probability 1 − e^{−t λ}, λ = (q_y p/p_y − q)₊, independently: the rank is one more than their
    number. Rates of at most 1/16 at the latest time enter by their first four moments, log E z^N =
    Σ_j log(1 + (e^{tλ_j} − 1)z) − tλ_j, the others one by one.

    Args:
        p, q, tokens, eos: as `kseq_survivors`.
        most: K, the most children.

    Accuracy: about 1e-7.
    """
    given = np.zeros((len(p), most))
    steps = _TIMES * np.exp(-_TIMES) * _STEP
    for t, y in enumerate(tokens.tolist()):
        if p[t, y] <= 0.0:
            continue
        rates = np.clip(p[t] * (q[t, y] / p[t, y]) - q[t], 0.0, _SURE)
        rates[y] = 0.0
        given[t] = (steps / steps.sum()) @ _overtaken(rates[rates > 0.0], most)
    accepted = given if eos is None else np.where((tokens == eos)[:, None], 0.0, given)
    return RankLaw(given, accepted)


_STEP = 0.25
_TIMES = np.exp(np.arange(math.log(1e-8), math.log(18.0), _STEP))
_AT_ONCE = 8  # times that share what counts as a small rate
_FEW = 1.0 / 16.0
_SURE = 1e12  # arrives before the first of the times
_HOPELESS = 80.0  # expected arrivals of which 16 or fewer have probability below 1e-18


def _overtaken(rates: Floats, most: int) -> Floats:
    """Return Pr(N = 0), …, Pr(N = most − 1) at every time, for N arrivals of these rates."""
    rates = np.sort(rates)
    power = np.cumsum(rates[:, None] ** np.arange(1, 5), axis=0)
    pieces = []
    for start in range(0, len(_TIMES), _AT_ONCE):
        times = _TIMES[start : start + _AT_ONCE]
        small = int(np.searchsorted(rates, _FEW / times[-1], side="right"))
        moments = power[small - 1] if small else np.zeros(4)
        large = rates[small:]
        arriving = float(-np.expm1(-times[0] * large).sum() + times[0] * moments[0])
        pieces.append(
            np.zeros((len(times), most))
            if arriving > _HOPELESS + 2 * most
            else _counts(times, moments, large, most)
        )
    return np.concatenate(pieces)


def _counts(times: Floats, moments: Floats, large: Floats, most: int) -> Floats:
    """Return the law of the number of arrivals, from moments of small rates and from large
    rates.
    """
    one, two, three, four = (moments[i - 1] * times**i for i in (1, 2, 3, 4))
    # log(1 + (e^u − 1)z) by powers of u: z, z − z², z − 3z² + 2z³, z − 7z² + 12z³ − 6z⁴; times the
    # power of z, for the recursion.
    slopes = (
        one + two / 2 + three / 6 + four / 24,
        2 * (-two / 2 - 3 * three / 6 - 7 * four / 24),
        3 * (2 * three / 6 + 12 * four / 24),
        4 * (-6 * four / 24),
    )
    counts = np.zeros((len(times), most))
    counts[:, 0] = np.exp(-one)
    for n in range(1, most):
        counts[:, n] = sum(slopes[i] * counts[:, n - 1 - i] for i in range(min(4, n))) / n
    return _product(counts, _binomials(np.exp(-np.outer(times, large)), most), most)


def _binomials(stays: Floats, most: int) -> Floats:
    """Return the first coefficients of Π (s + (1 − s)z) over tokens, at every time."""
    polys = np.stack([stays, 1.0 - stays], axis=2)[..., :most]
    while polys.shape[1] > 1:
        half = polys.shape[1] // 2
        merged = _product(polys[:, :half], polys[:, half : 2 * half], most)
        rest = polys[:, 2 * half :]
        polys = np.concatenate(
            [merged, np.pad(rest, [(0, 0), (0, 0), (0, merged.shape[2] - rest.shape[2])])], axis=1
        )
    return polys[:, 0] if polys.shape[1] else np.eye(1, most).repeat(len(stays), axis=0)


def _product(left: Floats, right: Floats, most: int) -> Floats:
    """Multiply polynomials along the last axis and keep `most` coefficients at most."""
    length = min(most, left.shape[-1] + right.shape[-1] - 1)
    found = np.zeros((*left.shape[:-1], length))
    for i in range(min(length, left.shape[-1])):
        width = min(right.shape[-1], length - i)
        found[..., i : i + width] += left[..., i, None] * right[..., :width]
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _KSeqRule:
    """K-SEQ with m drafts at n positions: γ*, β, acceptance, residual mass, all `(n,)`."""

    p: Floats
    q: Floats
    m: int
    gamma: Floats
    beta: Floats
    accept: Floats
    rest: Floats

    @classmethod
    def of(cls, p: Floats, q: Floats, m: int) -> _KSeqRule:
        gamma = np.asarray(gamma_star(otm.Problem(draft=p, target=q, law=IID(m))))
        stays = np.minimum(p, q / gamma[:, None])
        beta = stays.sum(axis=1)
        accept = 1.0 - np.maximum(1.0 - beta, 0.0) ** m
        scale = np.divide(accept, beta, out=np.full_like(beta, float(m)), where=beta > 0)
        return cls(
            p, q, m, gamma, beta, accept, np.maximum(q - stays * scale[:, None], 0.0).sum(axis=1)
        )

    def joint(self, y: NDArray[np.int64]) -> Floats:
        """Return Pr(output y, and j of the drafts are y), `(n, m + 1)`."""
        at = np.arange(len(y))
        mass, wanted = self.p[at, y], self.q[at, y]
        kept = np.minimum(mass, wanted / self.gamma)  # p·b
        others = np.maximum(1.0 - self.beta - mass + kept, 0.0)  # another token, and rejected
        scale = np.divide(
            self.accept, self.beta, out=np.full_like(mass, float(self.m)), where=self.beta > 0
        )
        excess = np.maximum(wanted - kept * scale, 0.0)
        # A residual of rounding errors is never drawn from.
        residual = np.divide(excess, self.rest, out=np.zeros_like(mass), where=self.rest > 1e-12)
        found = np.zeros((len(y), self.m + 1))
        rejected = np.eye(1, self.m + 1).repeat(len(y), axis=0)
        for i in range(1, self.m + 1):
            found += _times(
                _times(rejected, kept, np.zeros_like(kept)), mass, 1.0 - mass, self.m - i
            )
            rejected = _times(rejected, mass - kept, others)
        joint: Floats = found + residual[:, None] * rejected
        return joint


def _selected(rule: OptimalRule, y: int, m: int) -> Floats:
    """Return Pr(output y, j of the m drafts are y), j = 0..m, by exact integrals over scores."""
    p, q = float(rule.problem.draft[y]), float(rule.problem.target[y])
    found = np.zeros(m + 1)
    if p == 0.0:
        found[0] = q
        return found
    scores, built = rule.scores, rule.built
    ends = np.append(0.0, 1.0 - scores.gap[np.argsort(-scores.gap, kind="stable")])
    score = _distribution(scores, float(rule.level[y]))
    share, weights = unit_quadrature((m + 1) // 2)

    def along(values: Floats) -> tuple[Floats, Floats]:
        rise = np.diff(values)
        return values[:-1, None] + rise[:, None] * share, rise

    own, slope = along(score)
    others = np.maximum(along(ends)[0] - p * own, 0.0)
    keep = float(rule.keep(np.array([y]))[0])
    s = float(np.clip(q, built.low * p, built.high * p))
    excess = max(q - s, 0.0)
    if excess > 0:
        law = rule.selection_law
        excess /= float(np.maximum(rule.problem.target - law, 0.0).sum())
        # What is rejected was selected at the lowest level, which all such tokens share.
        losing = (
            float(np.maximum(rule.problem.draft - rule.problem.target / built.low, 0.0).sum())
            if built.low > 0
            else 0.0
        )
        fall = np.diff(_distribution(scores, built.low)) * losing
    for j in range(m + 1):
        ways = math.comb(m, j) * p**j
        if j:
            found[j] += (
                keep * ways * float((j * own ** (j - 1) * others ** (m - j) @ weights) @ slope)
            )
        if excess > 0 and j < m:
            found[j] += (
                excess * ways * (m - j) * float((own**j * others ** (m - j - 1) @ weights) @ fall)
            )
    return found


def _distribution(scores: Scores, level: float) -> Floats:
    """Return Pr(score ≤ u) of a token of this level at the ends of all pieces."""
    atom, theta = scores.between(np.array([level]))
    pair = np.unique(np.minimum([int(atom[0]), int(atom[0]) + 1], scores.num_atoms))
    table = scores.distributions(pair)
    return np.asarray((1.0 - theta[0]) * table[0] + theta[0] * table[-1])


def _empty(number: int, most: int) -> tuple[Floats, Floats]:
    return np.zeros((number, most + 1, most + 1)), np.zeros((number, most + 1))


def _times(poly: Floats, slope: Floats, constant: Floats, power: int = 1) -> Floats:
    """Multiply polynomials `(n, degree + 1)` by (slope·z + constant), `power` times."""
    for _ in range(power):
        shifted = np.concatenate([np.zeros((len(poly), 1)), poly[:, :-1]], axis=1)
        poly = constant[:, None] * poly + slope[:, None] * shifted
    return poly


def _conditional(joint: Floats, mass: Floats) -> Floats:
    return np.clip(joint / mass[:, None], 0.0, 1.0)
