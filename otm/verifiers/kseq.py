"""K-SEQ: SpecTr's sequential selection, within a factor 1 − 1/e of the optimum in time almost linear in the vocabulary.

The drafts are tried in turn; draft x is accepted with probability min(1, q(x)/(γ p(x))). Dividing by γ keeps any one token from
being accepted more often than q allows. With

    β(γ) = Σ_x min(p(x), q(x)/γ),      p_acc(γ) = 1 − (1 − β)^k,

a token is accepted with total probability min(p, q/γ)·p_acc/β, and the residual ∝ q − min(p, q/γ)·p_acc/β is a distribution exactly
when γ ≥ γ*, the root of p_acc(γ) = γ β(γ) in [1, min(k, max q/p)]. f(γ) = p_acc − γβ is decreasing (SpecTr's main text says
increasing, its appendix proves decreasing).

γ* to machine precision: in descending order of q/p, γβ(γ) is linear between two neighbouring ratios, so one sort and one binary
search over tokens find the segment, and a bracketed iteration on scalars finds the root inside. One sort serves every k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from otm._arrays import Array, by_rows, clip, gather, namespace, quiet, running_sum, total
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.optimum.cut import descending_ratio_order
from otm.pmf import check_real
from otm.problem import Problem, require_law
from otm.results import Definition
from otm.verifiers.base import CurvedVerifier
from otm.verifiers.rules import AcceptInTurn

_NEWTON_STEPS = 16
_FANOUT = 16
_BISECTIONS = 60
_SETTLED = 2.0**-52


@dataclasses.dataclass(frozen=True)
class KSeq(CurvedVerifier):
    """Sequential selection among k i.i.d. drafts with division factor γ.

    Rule acceptance 1 − (1 − β(γ))^k, β(γ) = Σ min(p, q/γ). By membership a residual draw may also hit a draft:
    + Σ_y p_res(y) [(1−β)^k − (1 − β − p(y) + min(p(y), q(y)/γ))^k], which is zero at γ*.

    Args:
        gamma: division factor γ ≥ γ*, a number ≥ 1; None takes γ*, which maximises the rule acceptance on [γ*, ∞). Membership
            acceptance can be larger at some γ > γ*.

    Raises:
        InvalidParameter: for γ < 1, and on use for γ < γ*, where clipping the negative residual would make the scheme lossy (unless
            every token with q > 0 has q/p ≥ p_acc/β, where nothing is clipped).

    Lossless. Law: IID(k). Cost: O(V log V) for γ*, O(V) with γ given. Accuracy: γ* to a few units in the last place.
    Guarantee: at γ*, acceptance ≥ (1 − (1 − 1/k)^k) α* ≥ (1 − 1/e) α*.
    Reference: SpecTr, Algorithm 2, (5), (6), Theorem 2.

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(otm.acceptance(KSeq(), problem), 6), round(float(gamma_star(problem)), 6)
    (0.847597, 1.390388)
    """

    lossless = True
    laws = (IID,)

    gamma: float | None = None

    def __post_init__(self) -> None:
        if self.gamma is not None:
            object.__setattr__(self, "gamma", check_real(self.gamma, name="gamma", low=1.0))

    def prepare(self, problem: Problem) -> AcceptInTurn:
        """Compute γ, the acceptance probabilities and the residual."""
        p, q, k = problem.draft, problem.target, problem.law.k
        gamma = float(_gamma(self, problem))
        with quiet():
            keep = np.where(p > 0, np.minimum(1.0, q / (gamma * p)), 0.0)
        stays = np.minimum(p, q / gamma)
        residual = np.maximum(q - stays * _acceptances_per_token(stays.sum(), k), 0.0)
        mass = residual.sum()
        # Rounding leaves dust of size 1e-16 where the residual is zero; if nothing else is left, it is never drawn from.
        normalised = residual / mass if mass > 0 else q
        return AcceptInTurn(problem=problem, keep=np.broadcast_to(keep, (k, len(keep))), residual=normalised)

    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Evaluate the closed form, batched; at γ* one sort serves every k."""
        if self.gamma is None:
            # At γ* the rule's acceptance is all: a residual draw cannot hit a rejected draft (docs/theory.md, "K-SEQ").
            return by_rows(lambda p, q: _accept_each(_solve_gamma(p, q, ks)[1], ks), problem.draft, problem.target)
        gamma = self.gamma
        pieces = []
        for k in ks:
            _gamma(self, problem.with_law(problem.law.with_k(k)))
            pieces.append(by_rows(lambda p, q, k=k: _closed_form(p, q, gamma, k, by)[None], problem.draft, problem.target)[0])
        return namespace(*pieces).stack(pieces, axis=0)


def gamma_star(problem: Problem) -> Array:
    """Solve 1 − (1 − β(γ))^k = γ β(γ) for the smallest lossless division factor of K-SEQ.

    Args:
        problem: a problem with an `IID` law; batches `(..., V)` allowed.

    Returns:
        γ* `(...)` in float64, in [1, min(k, max q/p)]. With disjoint supports every γ solves it and γ* = 1.

    Raises:
        Unsupported: for a law other than IID.

    Cost: O(V log V) and some 80 steps on scalars. Accuracy: a few units in the last place times the root's condition number
    1/(γ*|f′(γ*)|), which is near 1 except where p and q differ by hardly anything; acceptances are accurate regardless.
    Reference: SpecTr, (6), Lemma 3.

    >>> problem = otm.Problem(draft=otm.uniform(120), target=otm.uniform(60, vocabulary=120), law=otm.IID(2))
    >>> round(float(gamma_star(problem)), 12)  # r (1 − (1 − 1/r)^k) with r = 2
    1.5
    """
    return gamma_star_curve(problem, [_iid(problem).k])[0]


def _iid(problem: object) -> Law:
    return require_law(
        problem,
        IID,
        message="K-SEQ's division factor is defined for i.i.d. drafts; the problem has {law!r}. Use law=otm.IID({law.k}).",
    )


def gamma_star_curve(problem: Problem, ks: Sequence[int]) -> Array:
    """Return γ* for each k, shape `(len(ks), ...)`, from one sort (see `gamma_star`)."""
    _iid(problem)
    return by_rows(lambda p, q: _solve_gamma(p, q, ks)[0], problem.draft, problem.target)


def _closed_form(draft: Array, target: Array, gamma: float, k: int, by: Definition) -> Array:
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    stays = xp.minimum(p, q / gamma)
    beta = total(stays)
    with quiet():
        rule = _accept(beta, k)
        if by == "rule":
            return rule
        scale = xp.where(beta > 0, rule / beta, xp.asarray(float(k), dtype=xp.float64, device=beta.device))
        residual = xp.clip(q - stays * scale[..., None], 0.0, None)
        mass = total(residual)
        missed = xp.clip(1.0 - beta[..., None] - p + stays, 0.0, None) ** k  # all k rejected, none of them y
        luck = total(residual * ((1.0 - rule)[..., None] - missed)) / mass
        return xp.where(mass > 0, rule + xp.clip(luck, 0.0, None), rule)


def _accept(beta: Array, k: int | Array) -> Array:
    """Return 1 − (1 − β)^k with full relative accuracy for small β; k broadcasts."""
    xp = namespace(beta)
    return -xp.expm1(k * xp.log1p(-clip(beta, 0.0, 1.0)))


def _acceptances_per_token(beta: float, k: int) -> float:
    """Return p_acc/β, the factor by which k tries multiply a token's acceptance; k where β = 0."""
    if beta <= 0:
        return float(k)
    return float(-np.expm1(k * np.log1p(-beta)) / beta) if beta < 1 else 1.0 / beta


def _gamma(verifier: KSeq, problem: Problem) -> Array:
    """Return the γ in use, or raise `InvalidParameter` where it lies below γ* and would clip the residual."""
    if verifier.gamma is None:
        return gamma_star(problem)
    xp = namespace(problem.draft, problem.target)
    smallest = gamma_star(problem)
    # Equality up to the rounding of γ* itself: γ* passed back as a number must be accepted.
    below = smallest > verifier.gamma * (1 + 1e-12)
    if bool(xp.any(below)):
        p, q = xp.astype(problem.draft, xp.float64), xp.astype(problem.target, xp.float64)
        stays = xp.minimum(p, q / verifier.gamma)
        beta = total(stays)
        with quiet():
            scale = xp.where(beta > 0, _accept(beta, problem.law.k) / beta, xp.full_like(beta, float(problem.law.k)))
            clipped = total(xp.clip(stays * scale[..., None] - q, 0.0, None))
        if bool(xp.any(below & (clipped > 1e-15 * problem.num_tokens))):
            raise InvalidParameter(
                f"gamma must be at least gamma* = {float(xp.max(smallest)):.9g} for K-SEQ to be lossless here; got "
                f"{verifier.gamma:g}. Use KSeq() for gamma* itself, or a larger gamma."
            )
    return xp.full_like(smallest, float(verifier.gamma))


def values_in_order(ratio: Array, above_p: Array, below_q: Array, ks: Sequence[int]) -> Array:
    """Return the acceptance at γ* for each k, `(len(ks), ...)`, from what one sort gives, all `(..., V)` in float64.

    Args:
        ratio: q/p in descending order, ∞ where p = 0 < q, 0 where both are 0.
        above_p: P(first j+1 tokens of the order); below_q: Q(tokens after j).
        ks: numbers of drafts.
    """
    return _accept_each(_root_in_segment(ratio, above_p, below_q, ks)[1], ks)


def _accept_each(beta: Array, ks: Sequence[int]) -> Array:
    with quiet():
        return namespace(beta).stack([_accept(beta[i, ...], k) for i, k in enumerate(ks)], axis=0)


def _solve_gamma(draft: Array, target: Array, ks: Sequence[int]) -> tuple[Array, Array]:
    """Return γ* and β(γ*), each `(len(ks), ...)`."""
    xp = namespace(draft, target)
    with quiet():
        order = descending_ratio_order(draft, target)
        sorted_p, sorted_q = gather(draft, order), gather(target, order)
        ratio = xp.astype(sorted_q, xp.float64) / xp.astype(sorted_p, xp.float64)  # descending; NaN (0/0) last
        ratio = xp.where(sorted_p > 0, ratio, xp.where(sorted_q > 0, xp.asarray(xp.inf, dtype=xp.float64), 0.0))
        above_p = running_sum(sorted_p)  # P(first j+1 tokens)
        below_q = _reverse_running_sum(target, order)  # Q(tokens after j)
        return _root_in_segment(ratio, above_p, below_q, ks)


def _reverse_running_sum(target: Array, order: Array) -> Array:
    """Return Q of the tokens strictly after each position, accumulated from the small end."""
    xp = namespace(target)
    backwards = running_sum(gather(target, xp.flip(order, axis=-1)))
    inclusive = xp.flip(backwards, axis=-1)
    return xp.concat([inclusive[..., 1:], xp.zeros_like(inclusive[..., :1])], axis=-1)


def _root_in_segment(ratio: Array, above_p: Array, below_q: Array, ks: Sequence[int]) -> tuple[Array, Array]:
    """Find j with r_{j+1} ≤ γ* ≤ r_j by binary search, then solve with β = A + B/γ inside.

    A = P(first j+1 tokens), whose ratio is at least γ, and B = Q of the others. f is decreasing in γ and ratios descend, so
    f(r_j) < 0 exactly for the first tokens: count them.
    """
    xp = namespace(ratio)
    num_tokens = int(ratio.shape[-1])
    shape = (len(ks), *tuple(ratio.shape[:-1]))
    exponent = xp.reshape(xp.asarray(list(ks), dtype=xp.float64, device=ratio.device), (len(ks), *(1,) * (ratio.ndim - 1)))
    flat = [xp.reshape(a, (-1,)) for a in (ratio, above_p, below_q)]
    num_rows = int(flat[0].shape[0]) // num_tokens
    rows = xp.reshape(xp.arange(num_rows, dtype=xp.int64, device=ratio.device) * num_tokens, (1, *shape[1:]))

    def at(position: Array) -> tuple[Array, Array, Array]:
        index = xp.reshape(position + rows, (-1,))
        return tuple(xp.reshape(xp.take(a, index, axis=0), tuple(position.shape)) for a in flat)

    def excess(gamma: Array, inside: Array, outside: Array) -> Array:
        """γβ − p_acc: negative below γ*."""
        beta = inside + outside / gamma
        return gamma * inside + outside - _accept(beta, exponent)

    def before_root(last: Array) -> Array:
        r, inside, outside = at(_at_most(last, num_tokens - 1))
        # At r < 1 the root, which is at least 1, lies above: those tokens do not count.
        return (last < num_tokens) & ~((r <= 1.0) | (excess(r, inside, outside) <= 0))  # NaN (∞·0) counts

    low = _num_leading(before_root, xp.zeros(shape, dtype=xp.int64, device=ratio.device), num_tokens)
    # Tokens before `low` have ratio above the root: A = P of those, B = Q of the rest.
    previous = xp.maximum(low - 1, xp.zeros_like(low))
    r_above, inside, outside = at(previous)
    none_above = low == 0
    inside = xp.where(none_above, xp.zeros_like(inside), inside)
    outside = xp.where(none_above, xp.ones_like(outside), outside)  # all of Q
    r_below = at(_at_most(low, num_tokens - 1))[0]
    left = xp.maximum(xp.where(low < num_tokens, r_below, xp.ones_like(r_below)), xp.ones_like(r_below))
    right = xp.where(none_above, left, xp.minimum(r_above, exponent + xp.zeros_like(left)))
    right = xp.maximum(left, xp.where(xp.isfinite(right), right, exponent + xp.zeros_like(left)))
    gamma = _solve_between(left, right, inside, outside, exponent)
    return gamma, clip(inside + outside / gamma, 0.0, 1.0)


def _num_leading(holds: Callable[[Array], Array], low: Array, num_tokens: int) -> Array:
    """Count the tokens before `holds` first fails, `low` (all 0) giving the shape of the answer.

    By digits: `_FANOUT` − 1 positions of every stretch at once instead of halving it, because on scalars a call costs more than its
    arithmetic.
    """
    xp = namespace(low)
    steps = xp.reshape(xp.arange(1, _FANOUT, dtype=xp.int64, device=low.device), (-1, *(1,) * low.ndim))
    stretch = 1
    while stretch <= num_tokens:
        stretch *= _FANOUT
    while stretch > 1:
        stretch //= _FANOUT
        last = low[None, ...] + stretch * steps - 1  # the last token of each stretch
        low = low + stretch * xp.sum(xp.astype(holds(last), xp.int64), axis=0)
    return low


def _at_most(index: Array, largest: int) -> Array:
    return namespace(index).where(index < largest, index, namespace(index).full_like(index, largest))


def _solve_between(left: Array, right: Array, inside: Array, outside: Array, k: Array) -> Array:
    """Return the root of γβ − p_acc, β = A + B/γ, which increases in γ, between two bounds.

    Newton's steps, kept inside the bracket, take five or six; where the root is nearly multiple (p close to q) they creep, and
    bisection settles it.
    """
    xp = namespace(left)
    gamma = 0.5 * (left + right)
    settled, smallest = gamma != gamma, left
    for step in range(_NEWTON_STEPS + _BISECTIONS):
        beta = inside + outside / gamma
        value = gamma * inside + outside - _accept(beta, k)
        left, right = xp.where(value < 0, gamma, left), xp.where(value < 0, right, gamma)
        middle = 0.5 * (left + right)
        # p_acc(γ) lies between p_acc(γ*) and γβ(γ) = p_acc(γ) + value: it is that close.
        settled = settled | (xp.abs(value) <= _SETTLED)
        if step < _NEWTON_STEPS:
            slope = inside + k * clip(1.0 - beta, 0.0, 1.0) ** (k - 1.0) * outside / gamma**2
            guess = gamma - value / slope
            middle = xp.where((guess >= left) & (guess <= right), guess, middle)  # NaN where the slope is 0: the middle
        # Each root stops where it is settled, so that a row does not depend on those beside it.
        middle = xp.where(settled, gamma, middle)
        settled = settled | (xp.abs(middle - gamma) <= _SETTLED * gamma)
        gamma = middle
        if bool(xp.all(settled)):
            break
    return xp.where((inside == 0) & (outside == 0), smallest, gamma)  # disjoint supports: every γ solves it
