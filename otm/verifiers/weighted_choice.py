"""The law of a draft chosen by weights among drafts without replacement, by two quadratures.

Draft i is selected with probability w(x_i)/w(S), w(S) the sum over the drafts. The selected token
has the law

    s(y) = w(y) E[1{y ∈ S}/w(S)] = w(y) Σ_{A∋y} Pr(S = A) ∫₀^∞ e^{−u w(A)} du,

u the time of a second race, in which the drafts run with their weights. In the first race every
token runs with its draft mass, and S is who has arrived when the k-th does, at t, a token l:

    Pr(S = A) = ∫₀^∞ Σ_{l∈A} p(l) e^{−p(l)t} Π_{j∈A∖l} (1 − e^{−p(j)t}) Π_{j∉A} e^{−p(j)t} dt.

So for fixed t and u the sum over all A is a coefficient of a product over tokens: [v^k] of one
factor e^{−pt} + v (1 − e^{−pt}) e^{−wu} for each, with a mark on the one that arrives last. The few
tokens that are likely to have arrived at t, *heads*, are multiplied in one by one, from both ends,
so that each finds the product of the others. All other tokens have x = (e^{pt} − 1) e^{−wu} ≤ δ and
enter through the power sums Σ x^m, m ≤ k: products of matrices for all nodes together, and so are
the products that leave one of them out.

*The quadratures* are trapezoid rules in log t and log u, in which the integrands are analytic for
|Im| < π/2. At an angle θ every factor |1 − e^{−pt}| is at most (1 − e^{−p|t|cos θ})/cos θ
(`otm.drafts.successive_cut`), so the integrands of all A together have an integral of at most (cos
θ)^{−k}, and ∫ |x e^{−xu}| du/u = 1/cos θ for every x = w(A). The nodes u < 1/max w(A) are replaced
by a few with the same moments: the first m, those of the polynomial through the value at m Legendre
nodes, which errs by at most m!/(2m)! there. The tails of the gamma law place the ends of both
ranges. All errors are relative to Pr(S = A) and to 1/w(A), whatever the masses and weights: summed
over tokens the law errs by three times what each may err by.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Floats, quiet
from otm.drafts.successive_cut import trapezoid_step
from otm.overlap.curve import ROOM

_HEAD = 0.1  # a token is a head at t if p·t is larger
_SURELY = 1e4  # e^{−1e4} = 0
_NODES_AT_ONCE = 16
_ELEMENTS_AT_ONCE = 1 << 22
_IMAGINARY = 1e-30


def chosen_law(
    draft: Floats, weights: Floats, k: int, *, outside: float = 0.0, error: float = 1e-15
) -> tuple[Floats, Floats]:
    """Return the law of the draft chosen by weights, and the diagonal part, `(V,)` each.

    s(y) = Pr(y is chosen) and Σ_{A∋y} Pr(S = A) (w(y)/w(A))², for k drafts without replacement.

    Only drafts that lie wholly in the given tokens count, and drafts all of weight 0 choose nobody:
    s need not sum to 1.

    Args:
        draft: positive masses p `(V,)`, more than k of them or `outside` > 0.
        weights: w ≥ 0 `(V,)`.
        k: number of drafts, at least 1.
        outside: mass of further tokens.
        error: what each quadrature may err by.

    Cost: O((V + heads·k)·k·nodes²), 30 to 100 nodes each; at most about 10 (k + 40) heads.
    Accuracy: 3·error summed over tokens, and rounding, 1e-14.
    """
    sums = _sums(draft, weights, np.ones(len(draft)), k, outside, error)
    return np.maximum(sums[0], 0.0), np.maximum(sums[1], 0.0)


def chosen_beside(
    draft: Floats,
    weights: Floats,
    k: int,
    *,
    chosen: Floats,
    beside: Floats,
    outside: float = 0.0,
) -> float:
    """Return E[a(y) Σ_{z∈S} b(z)], y the chosen draft, a = `chosen` and b = `beside` `(V,)`.

    b(y) must be 0 where a(y) > 0.

    The expectation is the derivative at ε = 0 of Σ_y a(y) Σ_{A∋y} Pr(S = A) w(y)/w(A) Π_{z∈A} (1 +
    ε b(z)), a product over tokens again, and is taken at an imaginary ε, which cancels nothing.

    Cost: some four times `chosen_law`. Accuracy: as there.
    """
    tilt = 1.0 + 1j * _IMAGINARY * beside
    return float(chosen @ _sums(draft, weights, tilt, k, outside, 1e-15)[0].imag / _IMAGINARY)


def _sums(
    draft: Floats, weights: Floats, tilt: NDArray[Any], k: int, outside: float, error: float
) -> NDArray[Any]:
    """Return the sums of `chosen_law`, each Pr(S = A) times the tilts of A, `(2, V)`."""
    order = np.argsort(-draft, kind="stable")
    tokens = p, w, _ = draft[order], weights[order], tilt[order]
    sums = np.zeros((2, len(p)), dtype=tilt.dtype)
    if not w.any():
        return sums
    step, times = _arrival_times(p, k, outside, error)
    choices = _choice_times(w, k, error)
    with quiet():
        heads = np.searchsorted(-p, -_HEAD / times / ROOM)
    start = 0
    while start < len(heads):
        stop = min(start + _NODES_AT_ONCE, len(heads))
        room = _ELEMENTS_AT_ONCE // (2 * (k + 1) * len(choices[0]) * (int(heads[stop - 1]) + 1))
        stop = min(stop, start + max(1, room))
        here = times[start:stop]
        _add_block(sums, (step, here), choices, tokens, (k, int(heads[stop - 1])), outside)
        start = stop
    result = np.empty_like(sums)
    result[:, order] = sums
    return result


def _arrival_times(p: Floats, k: int, outside: float, error: float) -> tuple[float, Floats]:
    """Return the step h of log t, and possible times t of the k-th arrival, in units of `ROOM`.

    p is in descending order; in these parts every t is a float.
    """
    step = trapezoid_step(k, error)
    start = (math.lgamma(k + 1) + math.log(1e-3 * error)) / k  # t^k/k! = Pr(N ≥ k) at most
    # Before the k-th arrival at least this rate is left, so that its time is below that of a
    # gamma law.
    rate = float(p[k - 1 :][::-1].sum()) + outside
    end = math.log(scipy.special.gammainccinv(k, 1e-3 * error)) - math.log(rate)
    logs = start + step * np.arange(math.ceil((end - start) / step) + 1)
    return step, np.exp(logs - math.log(ROOM))


def _exponents(times: Floats, rates: Floats) -> Floats:
    """Return rate·t `(T, n)` for times in parts of `ROOM`."""
    with quiet():
        return np.minimum(times[:, None] * (ROOM * rates), _SURELY)


def _choice_times(w: Floats, k: int, error: float) -> tuple[Floats, Floats]:
    """Return nodes u and weights c with Σ c e^{−xu} = 1/x for every sum x of up to k weights."""
    largest = float(np.sort(w)[-k:].sum())
    theta = np.linspace(0.01, 1.56, 400)
    step = float(np.max(2 * np.pi * theta / np.log1p(2.0 / (np.cos(theta) * error))))
    tail = math.log(scipy.special.gammainccinv(1, 1e-3 * error))
    span = tail + math.log(largest) - math.log(w[w > 0].min())
    times = np.exp(step * np.arange(math.ceil(span / step) + 1))
    # The nodes below 1 as few: weights of Legendre's nodes that keep the moments.
    below = np.exp(-step * np.arange(1, math.ceil(-math.log(1e-3 * error) / step) + 1))
    number = next(m for m in range(1, 20) if math.factorial(m) <= error * math.factorial(2 * m))
    few = np.polynomial.legendre.leggauss(number)[0]
    moments = step * below @ np.polynomial.legendre.legvander(2.0 * below - 1.0, number - 1)
    masses = np.linalg.solve(np.polynomial.legendre.legvander(few, number - 1).T, moments)
    nodes = np.concatenate([0.5 * (few + 1.0), times])
    return nodes / largest, np.concatenate([masses, step * times], dtype=np.float64) / largest


def _add_block(
    result: NDArray[Any],
    arrivals: tuple[float, Floats],
    choices: tuple[Floats, Floats],
    tokens: tuple[Floats, Floats, NDArray[Any]],
    sizes: tuple[int, int],
    outside: float,
) -> None:
    """Add some nodes of t to the sums, in place.

    A state is `(2, k + 1, T, U)`: coefficients of v without and with the mark of the last arrival.
    """
    (step, times), (u, cost), (p, w, tilt), (k, heads) = arrivals, choices, tokens, sizes
    law, own = result
    tail = p[heads:]
    exponent = _exponents(times, p[:heads])
    stay, arrive, last = np.exp(-exponent), -np.expm1(-exponent), exponent * np.exp(-exponent)
    running = tilt[:heads, None] * np.exp(-np.outer(w[:heads], u))
    factors = [
        (stay[:, j, None], arrive[:, j, None] * running[j], last[:, j, None] * running[j])
        for j in range(heads)
    ]

    time = _exponents(times, tail)
    grown, faded = np.expm1(time), tilt[heads:, None] * np.exp(-np.outer(w[heads:], u))
    left = np.exp(-_exponents(times, np.array([tail.sum() + outside])))
    after = [_tail_state(time, grown, faded, left, k)]
    for factor in reversed(factors):
        after.append(_times(after[-1], factor))
    everyone = after[-1]
    before = np.zeros_like(everyone)
    before[0, 0] = 1.0
    for j, factor in enumerate(factors):
        others = after[heads - 1 - j][:, :k][:, ::-1]
        unmarked = (before[0, :k] * others[0]).sum(axis=0)
        marked = (before[0, :k] * others[1] + before[1, :k] * others[0]).sum(axis=0)
        chosen = (factor[1] * marked + factor[2] * unmarked).sum(axis=0) * cost
        law[j] += step * w[j] * chosen.sum()
        own[j] += step * w[j] ** 2 * (chosen @ u)
        before = _times(before, factor)

    # Without a token of the tail its factor 1 + vx is divided out, a series in x.
    measures = np.stack([cost, cost * u], axis=1)
    power, fade = np.ones_like(grown), faded.copy()
    for m in range(k):
        chosen = (m + 1) * (time * power).T @ everyone[0, k - 1 - m]
        power *= grown
        chosen += power.T @ everyone[1, k - 1 - m]
        chosen *= fade
        sums = (-1) ** m * step * (chosen @ measures)
        law[heads:] += w[heads:] * sums[:, 0]
        own[heads:] += w[heads:] ** 2 * sums[:, 1]
        fade *= faded


def _tail_state(
    time: Floats, grown: Floats, faded: NDArray[Any], left: Floats, k: int
) -> NDArray[Any]:
    """Return e^{−(P + outside)t} Π (1 + vx), without and with a last arrival, by power sums."""
    sums, marks = [], []
    power, fade = np.ones_like(grown), faded.copy()
    for _ in range(k):
        marks.append((time * power) @ fade)
        power *= grown
        sums.append(power @ fade)
        fade *= faded
    state = np.zeros((2, k + 1, *sums[0].shape), dtype=faded.dtype)
    state[0, 0] = left
    for j in range(1, k + 1):
        for m in range(1, j + 1):
            state[0, j] += (-1) ** (m - 1) * sums[m - 1] * state[0, j - m]
        state[0, j] /= j
    for j in range(1, k + 1):
        for m in range(j):
            state[1, j] += (-1) ** m * marks[m] * state[0, j - 1 - m]
    return state


def _times(
    state: NDArray[Any], factor: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
) -> NDArray[Any]:
    """Multiply by the factor of one token: not arrived, arrived, or the last arrival."""
    stay, arrive, last = factor
    product = stay * state
    product[:, 1:] += arrive * state[:, :-1]
    product[1, 1:] += last * state[0, :-1]
    return np.asarray(product)
