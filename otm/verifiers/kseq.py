"""K-SEQ: SpecTr's sequential selection, within a factor 1 − 1/e of the optimum in time almost
linear in the vocabulary.

The drafts are tried in turn; draft x is accepted with probability min(1, q(x)/(γ p(x))). Dividing
by γ keeps any one token from being accepted more often than q allows. With

    β(γ) = Σ_x min(p(x), q(x)/γ),      p_acc(γ) = 1 − (1 − β)^k,

a token is accepted with total probability min(p, q/γ)·p_acc/β, and the residual ∝ q − min(p,
q/γ)·p_acc/β is a distribution exactly when γ ≥ γ*, the root of p_acc(γ) = γ β(γ) in [1, min(k, max
q/p)]. f(γ) = p_acc − γβ is decreasing (SpecTr's main text says increasing, its appendix proves
decreasing).

γ* to machine precision: γβ(γ) is the overlap curve H(γ) (`otm.overlap`), so a search along it finds
the linear piece on which H(γ) = p_acc(γ), and a bracketed iteration on scalars the root inside. One
curve serves every k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from otm._machine.arrays import (
    Array,
    as_scalar_or_array,
    at_least_one,
    by_rows,
    clip,
    is_on_host,
    namespace,
    normalised_excess,
    quiet,
    total,
    tracks_gradient,
    unit_rows,
    untracked,
)
from otm.drafts.iid import IID
from otm.errors import InvalidParameter
from otm.overlap import Curve, Piece, arrays
from otm.overlap.curve import BISECTIONS, NEWTON_STEPS, SETTLED
from otm.overlap.gradient import attach_curve_gradient, height_and_slope
from otm.overlap.rows import dispatch_by_length
from otm.pmf import check_real
from otm.problem import Problem, keyword_only, refuse_gradients, require_law
from otm.results import Definition
from otm.verifiers.base import CurvedVerifier
from otm.verifiers.rules import AcceptInTurn

_BESIDE = 2.0**-40  # relative: between a ratio and the next, and more than its rounding
_SECTIONS, _ROUNDS = 256, 8  # 2⁵² log k for every k up to 2⁵³


@dataclasses.dataclass(frozen=True, init=False)
class KSeq(CurvedVerifier):
    """Sequential selection among k i.i.d. drafts with division factor γ.

    Rule acceptance 1 − (1 − β(γ))^k, β(γ) = Σ min(p, q/γ). By membership a residual draw may also
    hit a draft: + Σ_y p_res(y) [(1−β)^k − (1 − β − p(y) + min(p(y), q(y)/γ))^k], which is zero at
    γ*.

    Args:
        gamma: division factor γ ≥ γ*, a number ≥ 1; None takes γ*, which maximises the rule
            acceptance on [γ*, ∞). Membership acceptance can be larger at some γ > γ*.

    Raises:
        InvalidParameter: for γ < 1, and on use for γ < γ*, where clipping the negative residual
            would make the scheme lossy (unless every token with q > 0 has q/p ≥ p_acc/β, where
            nothing is clipped).

    Lossless. Law: IID(k). Cost: O(V), for γ* below 1,024 tokens O(V log V); a device is waited for
    once, and once more to check a γ that is given. Accuracy: γ* to a few units in the last place.
    Gradients: at γ*, by the implicit function theorem (docs/theory.md, "Gradients"). Guarantee: at
        γ*, acceptance ≥ (1 − (1 − 1/k)^k) α* ≥ (1 − 1/e) α*.
    Reference: SpecTr, Algorithm 2, (5), (6), Theorem 2.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(otm.acceptance(otm.KSeq(), problem), 6), round(gamma_star(problem), 6)
    (0.847597, 1.390388)
    """

    title = "K-SEQ"
    summary = (
        "tries the drafts in turn with acceptance min(1, q/(γp)) for the best γ (SpecTr, "
        "Algorithm 2)"
    )
    lossless = True
    laws = (IID,)
    differentiable = True
    proven_lower = "kseq_lower"
    table_columns = ("kseq_iid",)

    gamma: float | None = None

    @keyword_only(
        "otm.KSeq(gamma=2.0), or otm.KSeq() for γ*",
        reason="gamma is keyword-only, because the number of drafts is the law's, as in otm.IID(2)",
    )
    def __init__(self, *, gamma: float | None = None) -> None:
        value = None if gamma is None else check_real(gamma, name="gamma", low=1.0)
        object.__setattr__(self, "gamma", value)

    def prepare(self, problem: Problem) -> AcceptInTurn:
        """Compute γ, the acceptance probabilities and the residual."""
        p, q, k = problem.draft, problem.target, problem.num_drafts
        gamma = self.gamma
        if gamma is None:
            gamma = float(gamma_star(problem))
        else:
            _require_lossless(gamma, problem, [k])
        with quiet():
            keep = np.where(p > 0, np.minimum(1.0, q / (gamma * p)), 0.0)
        # Rounding leaves dust of size 1e-16 where the residual is zero; if nothing else is left, it
        # is never drawn from.
        excess = np.maximum(_tried(p, q, gamma, k).excess, 0.0)
        return AcceptInTurn(
            problem=problem,
            keep=np.broadcast_to(keep, (k, len(keep))),
            residual=normalised_excess(excess, q),
        )

    def curve(self, problem: Problem, ks: Sequence[int], by: Definition) -> Array:
        """Evaluate the closed form, batched; at γ* one sort, or the bins, serves every k."""
        if self.gamma is None:
            # At γ* the rule's acceptance is all: a residual draw cannot hit a rejected draft
            # (docs/theory.md, "K-SEQ").
            return _at_root(problem, ks, _acceptance_at_root, _slopes_of_acceptance)
        refuse_gradients(problem, f"The acceptance of {self!r}, whose γ is given,")
        gamma, p, q = self.gamma, problem.draft, problem.target
        _require_lossless(gamma, problem, ks)
        pieces = [
            by_rows(lambda p, q, k=k: _closed_form(p, q, gamma, k, by)[None], p, q) for k in ks
        ]
        return namespace(*pieces).concat(pieces, axis=0)


@keyword_only(
    "otm.verifiers.gamma_star(otm.Problem(draft=p, target=q, law=otm.IID(k)))",
    reason="γ* takes one problem, which holds draft, target and law",
)
def gamma_star(problem: Problem) -> Array:
    """Solve 1 − (1 − β(γ))^k = γ β(γ) for the smallest lossless division factor of K-SEQ.

    Args:
        problem: a problem with an `IID` law; batches `(..., V)` allowed.

    Returns:
        γ*, a float or `(...)` in float64, in [1, min(k, max q/p)], with gradients for tensors that
        require them. With disjoint supports every γ solves it and γ* = 1.

    Raises:
        Unsupported: for a law other than IID.

    Cost: O(V) from 1,024 tokens on, O(V log V) below, and some 80 steps on scalars; a device is
        waited for once. Accuracy: a few units in the last place times the root's condition number
        1/(γ*|f′(γ*)|): near 1, but large where p and q differ by hardly anything, or where H is
        flat around the root because nearly all of q lies at ratios below it. Acceptances are
        accurate all the same.
    Reference: SpecTr, (6), Lemma 3.

    >>> import otm
    >>> p, q = otm.examples.uniform(120), otm.examples.uniform(60, vocabulary=120)
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(2))
    >>> round(gamma_star(problem), 12)  # r (1 − (1 − 1/r)^k) with r = 2
    1.5
    """
    return as_scalar_or_array(gamma_star_curve(problem, [_iid(problem).k])[0])


def _iid(problem: object) -> IID:
    return require_law(
        problem,
        IID,
        message=(
            "K-SEQ's division factor is defined for i.i.d. drafts; the problem has {law!r}. Use "
            "law=otm.IID({k})."
        ),
        gradients=True,
    )


def gamma_star_curve(problem: Problem, ks: Sequence[int]) -> Array:
    """Return γ* for each k, shape `(len(ks), ...)`, all from one curve (see `gamma_star`)."""
    _iid(problem)
    return _at_root(problem, ks, lambda roots, _: roots[0, ...], _slopes_of_root)


def _at_root(
    problem: Problem,
    ks: Sequence[int],
    answer: Callable[[Array, Sequence[int]], Array],
    slopes: Callable[[Array, Array, Array, Array], Array],
) -> Array:
    """Return an answer at γ*_k for each k, `(len(ks), ...)`; `slopes` are its derivatives by H at
    fixed γ*, for gradients.
    """
    draft, target = problem.draft, problem.target
    roots = kseq_roots(untracked(draft), untracked(target), ks)
    values = answer(roots, ks)
    if not tracks_gradient(draft, target):
        return values
    xp, (gamma, slope, offset) = namespace(roots), (roots[i, ...] for i in range(3))
    k, beta = _exponents(ks, gamma[0, ...]), _beta(roots)
    # Where (1 − β)^k is lost in rounding the root is found at the largest ratio, with nothing
    # beyond. It lies below, on the last piece of the curve.
    lost, below = (slope == 0) & (offset > 0) & (gamma > 1.0), gamma * (1.0 - _BESIDE)
    beyond = [
        height_and_slope(untracked(draft), untracked(target), below[i, ...])[1]
        for i in range(len(ks))
    ]
    slope, level = xp.where(lost, xp.stack(beyond, axis=0), slope), xp.where(lost, below, gamma)
    # s = ∂p_acc/∂β, and H − p_acc rises along γ by this much.
    s = k * clip(1.0 - beta, 0.0, 1.0) ** (k - 1.0)
    steepness = slope + s * offset / gamma**2
    return attach_curve_gradient(
        values, draft, target, levels=level, weights=slopes(beta, gamma, s, steepness)
    )


class TryResult(NamedTuple):
    """The result of k tries with min(1, q/(γp)).

    Attributes:
        stays: min(p, q/γ), the mass that one try accepts, `(..., V)`.
        accepted: 1 − (1 − β)^k, β = Σ stays, `(...)`.
        excess: q less what all tries accept of each token, `(..., V)`.
    """

    stays: Array
    accepted: Array
    excess: Array


def _tried(draft: Array, target: Array, gamma: float, k: int) -> TryResult:
    xp = namespace(draft, target)
    stays = xp.minimum(draft, target / gamma)
    beta = total(stays)
    with quiet():
        accepted = at_least_one(beta, k)
        scale = xp.where(beta > 0, accepted / beta, xp.full_like(beta, float(k)))
    return TryResult(stays, accepted, target - stays * scale[..., None])


def _closed_form(draft: Array, target: Array, gamma: float, k: int, by: Definition) -> Array:
    stays, rule, excess = _tried(draft, target, gamma, k)
    if by == "rule":
        return rule
    xp = namespace(draft, target)
    residual = xp.clip(excess, 0.0, None)
    mass = total(residual)
    # all k rejected, none of them y
    missed = xp.clip(1.0 - total(stays)[..., None] - draft + stays, 0.0, None) ** k
    with quiet():
        luck = total(residual * ((1.0 - rule)[..., None] - missed)) / mass
    return xp.where(mass > 0, rule + xp.clip(luck, 0.0, None), rule)


def _require_lossless(gamma: float, problem: Problem, ks: Sequence[int]) -> None:
    """Raise `InvalidParameter` where γ lies below γ* and would clip the residual."""
    xp = namespace(problem.draft, problem.target)
    p, q = unit_rows(problem.draft), unit_rows(problem.target)
    for k, smallest in zip(ks, gamma_star_curve(problem, ks), strict=True):
        # Equality up to the rounding of γ* itself: γ* passed back as a number must be accepted.
        below = smallest > gamma * (1 + 1e-12)
        if not bool(xp.any(below)):
            continue
        clipped = total(xp.clip(-_tried(p, q, gamma, k).excess, 0.0, None))
        if bool(xp.any(below & (clipped > 1e-15 * problem.num_tokens))):
            raise InvalidParameter(
                f"gamma must be at least gamma* = {float(xp.max(smallest)):.9g} for K-SEQ to be "
                f"lossless here; got {gamma:g}. Use KSeq() for gamma* itself, or a larger gamma."
            )


def kseq_on_curve(curve: Curve, ks: Sequence[int]) -> Array:
    """Return the acceptance at γ* for each k, `(len(ks), ...)`."""
    return _acceptance_at_root(roots_along(curve, ks), ks)


def kseq_roots(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return γ*_k with slope and offset of the piece of H at γ*_k, `(3, len(ks), ...)`.

    Without a sort where that can be had (`otm.overlap.rows`).
    """

    def in_bins(engine: Any, p: Array, q: Array) -> tuple[Array, Array]:
        if engine is not arrays:
            answers: tuple[Array, Array] = engine.kseq_roots(p, q, ks)
            return answers
        beyond, like = _question(ks, p[..., 0])
        piece, left = arrays.piece(p, q, beyond, like=like)
        return flat(_roots_on(piece, ks)), left

    def flat(roots: Array) -> Array:
        return namespace(roots).reshape(roots, (3 * len(ks), *tuple(roots.shape[2:])))

    found = dispatch_by_length(in_bins, lambda curve: flat(roots_along(curve, ks)), draft, target)
    return namespace(found).reshape(found, (3, len(ks), *tuple(found.shape[1:])))


def roots_along(curve: Curve, ks: Sequence[int]) -> Array:
    """Return γ*_k and the slope and offset of the curve there, `(3, len(ks), ...)`."""
    beyond, like = _question(ks, curve.total_target[...])  # no scalar
    return _roots_on(curve.piece(beyond, like=like), ks)


def _question(
    ks: Sequence[int], like: Array
) -> tuple[Callable[[Array, Array, Array], Array], Array]:
    """Return the condition that γ > γ*, which lies in [1, k]: H(γ) > p_acc(γ); and an array of the
    answer's shape.
    """
    k = _exponents(ks, like)

    def beyond(gamma: Array, slope: Array, offset: Array) -> Array:
        return (gamma > k) | (
            (gamma > 1.0) & (gamma * slope + offset > at_least_one(slope + offset / gamma, k))
        )

    return beyond, k + namespace(like).zeros_like(like)


def _exponents(ks: Sequence[int], like: Array) -> Array:
    """Return the numbers of drafts `(len(ks), 1, ...)` in float64, for rows `(...)`."""
    xp = namespace(like)
    column = xp.asarray(list(ks), dtype=xp.float64, device=like.device)
    return xp.reshape(column, (len(ks), *(1,) * like.ndim))


def _roots_on(piece: Piece, ks: Sequence[int]) -> Array:
    """Solve for γ* on the piece around γ*; see `kseq_roots`."""
    xp, k = namespace(piece.slope), _exponents(ks, piece.slope[0, ...])
    # Where no ratio exceeds γ*, p = q: γ* = 1 and every draft is accepted.
    equal, left = piece.num_beyond == 0, clip(piece.low, 1.0, np.inf)
    right = xp.maximum(left, xp.minimum(piece.high, k + xp.zeros_like(left)))
    right = xp.where(equal, left, right)
    offset = xp.where(equal, xp.ones_like(left), piece.offset)
    # With disjoint supports every γ solves it: 1, not the edge of an empty bin.
    left = xp.where(piece.slope + offset > 0, left, xp.ones_like(left))
    solve = _solve_between if is_on_host(left) else _solve_in_sections
    with quiet():
        gamma = solve(left, right, piece.slope, offset, k)
    return xp.stack([gamma, piece.slope, offset], axis=0)


def _beta(roots: Array) -> Array:
    """Return β(γ*) = A + B/γ*, `(len(ks), ...)`."""
    return clip(roots[1, ...] + roots[2, ...] / roots[0, ...], 0.0, 1.0)


def _acceptance_at_root(roots: Array, ks: Sequence[int]) -> Array:
    with quiet():
        return at_least_one(_beta(roots), _exponents(ks, roots[0, 0, ...]))


def _slopes_of_acceptance(beta: Array, gamma: Array, s: Array, steepness: Array) -> Array:
    """Return the slope of the acceptance in H(γ*) at fixed γ*, `(len(ks), ...)`: (s β/γ)/(A + s
    B/γ²), see `_slopes_of_root`.

    Where p = q, at its largest value, 0; with disjoint supports 1.
    """
    with quiet():
        slopes = s * beta / gamma / steepness
    return namespace(beta).where(steepness > 0, slopes, 1.0 - clip(beta, 0.0, 1.0))


def _slopes_of_root(beta: Array, gamma: Array, s: Array, steepness: Array) -> Array:
    """Return the slope of γ* in H(γ*) at fixed γ*, `(len(ks), ...)`: −(1 − s/γ)/(A + s B/γ²), s = k
    (1 − β)^{k−1}.

    By the implicit function theorem on H(γ) = p_acc(H(γ)/γ), where H = A γ + B; 0 where p = q or
    supports are disjoint.
    """
    with quiet():
        slopes = (s / gamma - 1.0) / steepness
    return namespace(beta).where(steepness > 0, slopes, 0.0 * gamma)


def _solve_between(left: Array, right: Array, inside: Array, outside: Array, k: Array) -> Array:
    """Return the root of γβ − p_acc, β = A + B/γ, which increases in γ, between two bounds.

    Newton's steps, kept inside the bracket, take five or six; where the root is nearly multiple (p
    close to q) they creep, and bisection settles it.
    """
    xp = namespace(left)
    gamma = 0.5 * (left + right)
    settled, smallest = gamma != gamma, left
    for step in range(NEWTON_STEPS + BISECTIONS):
        beta = inside + outside / gamma
        value = gamma * inside + outside - at_least_one(beta, k)
        left, right = xp.where(value < 0, gamma, left), xp.where(value < 0, right, gamma)
        middle = 0.5 * (left + right)
        # p_acc(γ) lies between p_acc(γ*) and γβ(γ) = p_acc(γ) + value: it is that close.
        settled = settled | (xp.abs(value) <= SETTLED)
        if step < NEWTON_STEPS:
            slope = inside + k * clip(1.0 - beta, 0.0, 1.0) ** (k - 1.0) * outside / gamma**2
            guess = gamma - value / slope
            # NaN where the slope is 0: the middle
            middle = xp.where((guess >= left) & (guess <= right), guess, middle)
        # Each root stops where it is settled, so that a row does not depend on those beside it.
        middle = xp.where(settled, gamma, middle)
        settled = settled | (xp.abs(middle - gamma) <= SETTLED * gamma)
        gamma = middle
        if bool(xp.all(settled)):
            break
    # disjoint supports: every γ solves it
    return xp.where((inside == 0) & (outside == 0), smallest, gamma)


def _solve_in_sections(left: Array, right: Array, inside: Array, outside: Array, k: Array) -> Array:
    """Return the root of `_solve_between` in a fixed number of rounds of 8 bits, for devices.

    A bracket within [1, k] is cut into `_SECTIONS` parts of one ratio; log k parts by
    _SECTIONS^rounds are below 2⁻⁵².
    """
    xp, smallest = namespace(left), left
    parts = xp.reshape(
        xp.arange(1, _SECTIONS, dtype=left.dtype, device=left.device) / _SECTIONS,
        (-1, *(1,) * left.ndim),
    )
    for _ in range(_ROUNDS):
        ratio = right / left
        gamma = left * ratio**parts
        below = gamma * inside + outside < at_least_one(inside + outside / gamma, k)
        count = xp.sum(xp.astype(below, left.dtype), axis=0)
        left, right = (
            left * ratio ** (count / _SECTIONS),
            left * ratio ** ((count + 1.0) / _SECTIONS),
        )
    return xp.where((inside == 0) & (outside == 0), smallest, right)
