"""What a drafter that knows the target's noise believes of the next token, and how that is learnt.

If the target's logits differ from the draft's by Gumbel noise of one scale s, the next token is x
with probability softmax((log p + g)/s) at x (docs/theory.md, "Trees on shared noise"). They do not:
a draft is off by more where it is unsure, and deeper. So what log p + g counts, and what log p
counts beside it, may depend on depth and entropy; whatever is believed, the law of the text stays.
"""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from otm._arrays import Floats
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import check_real, host_pmf, plain_integers, plain_reals
from otm.sequence.shared_noise import perturbed
from otm.trees.vector import entropy_bits

_MOST = 1e6
"""Largest weight: scores stay numbers."""
_CANDIDATES = 64
"""Largest entries of a row that a belief is fitted on; the rest has no part in it."""


@final
@dataclasses.dataclass(frozen=True)
class NoiseBelief:
    """The belief softmax((a·f)(log p + g) + (b·f) log p) at the next token: a multinomial logit.

    f = (1, d, h): d tokens since the context, h the entropy of p in nats. A scale s is a = (1/s, 0,
    0) and b = 0.

    Args:
        noisy: a, three weights of log p + g.
        plain: b, three weights of log p.

    Raises:
        InvalidParameter: unless both are three finite numbers, within ±10^6.

    >>> import numpy as np
    >>> belief = NoiseBelief((0.5, 0.0, 0.0))  # scale 2: e^{(log 4)/2} = 2 to 1
    >>> np.round(belief(0, np.array([0.8, 0.2]), np.zeros(2)), 12).tolist()
    [0.666666666667, 0.333333333333]
    """

    noisy: tuple[float, float, float]
    plain: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for name in ("noisy", "plain"):
            given = plain_reals(getattr(self, name), name)
            if given.shape != (3,):
                raise InvalidParameter(
                    f"{name} must be three weights, of 1, the depth and the entropy; got "
                    f"{given.tolist()!r:.60}. Take what fit_belief returns."
                )
            weights = (check_real(one, name=name, low=-_MOST, high=_MOST) for one in given.tolist())
            object.__setattr__(self, name, tuple(weights))

    def __call__(self, depth: int, mass: Floats, noise: Floats) -> Floats:
        """Return what the next token may be, `(V,)`, from p and g after so many tokens."""
        f = _factors(depth, mass)
        scores = (f @ self.noisy) * perturbed(mass, noise)
        scores = np.where(mass > 0.0, scores + (f @ self.plain) * perturbed(mass, 0.0), -np.inf)
        return np.asarray(scipy.special.softmax(scores))


def fit_belief(
    mass: ArrayLike, noise: ArrayLike, depths: ArrayLike, tokens: ArrayLike
) -> NoiseBelief:
    """Estimate a drafter's belief by maximum likelihood from what the target drew.

    The likelihood of the weights is concave; it is taken on the 64 largest log p + g of each row,
    the token drawn among them.

    Args:
        mass: `(n, V)` p, the draft's, at n positions.
        noise: `(n, V)` g there.
        depths: `(n,)`, how many tokens after a step's context each was.
        tokens: `(n,)`, what the target drew there. Where the drafter gave it no mass the row is
            left out.

    Returns:
        NoiseBelief, for `NoiseTree(..., scale=belief)`.

    Raises:
        ShapeMismatch: if the four do not belong together.
        InvalidDistribution: if a row of p is no distribution.
        InvalidParameter: if no row has its token, or one is no token.

    Cost: O(nV), then some hundred evaluations of 64 n scores. Accuracy: the gradient of the mean
        log-likelihood is below 1e-6.
    Reference: multinomial logit [McFadden 1974]; docs/steps.md, "Other beliefs".

    >>> import numpy as np
    >>> p, g = np.tile([0.5, 0.5], (4, 1)), np.tile([0.0, 1.0], (4, 1))
    >>> found = fit_belief(p, g, [0, 0, 0, 0], [1, 1, 1, 0])  # three of four: e^{a·f} = 3
    >>> round(float(found(0, p[0], g[0])[1]), 5)
    0.75
    """
    p, g = host_pmf(mass, name="mass"), plain_reals(noise, "noise").astype(np.float64)
    depth, token = plain_integers(depths, "depths"), plain_integers(tokens, "tokens")
    if p.ndim != 2 or g.shape != p.shape or not depth.shape == token.shape == p.shape[:1]:
        raise ShapeMismatch(
            f"There must be rows (n, V) of p and g, a depth and a token for each; got shapes "
            f"{p.shape}, {g.shape}, {depth.shape} and {token.shape}. Take them from the same steps."
        )
    if not np.all((token >= 0) & (token < p.shape[1])) or not np.isfinite(g).all():
        raise InvalidParameter(
            f"tokens must be in [0, {p.shape[1]}) and noise finite; others are among them. Pass "
            "what was drawn, and the noise that it was drawn on."
        )
    known = p[np.arange(len(p)), token] > 0
    if not known.any():
        raise InvalidParameter(
            "At least one row must have mass at its token; none has. Pass more steps."
        )
    return _fitted(p[known], g[known], depth[known], token[known])


def _fitted(
    p: Floats, g: Floats, depth: NDArray[np.int64], token: NDArray[np.int64]
) -> NoiseBelief:
    """Return the most likely belief, by weights of features as large as 1."""
    scores, most = perturbed(p, g), min(_CANDIDATES, p.shape[1])
    kept = np.argpartition(-scores, most - 1)[:, :most]  # the smallest of these stands last
    left_out = ~(kept == token[:, None]).any(axis=1)
    kept[left_out, -1] = token[left_out]
    there = np.take_along_axis(p, kept, axis=1) > 0
    both = (np.take_along_axis(one, kept, axis=1) for one in (scores, perturbed(p, 0.0)))
    logs = [np.where(there, one, 0.0) for one in both]
    factors = np.stack([_factors(*one) for one in zip(depth.tolist(), p, strict=True)])
    size = np.maximum(abs(factors).max(axis=0), 1e-300)
    given = np.stack([one * f[:, None] for one in logs for f in (factors / size).T], axis=1)
    place = np.argmax(kept == token[:, None], axis=1)
    drawn = given[np.arange(len(p)), :, place]

    def loss(weights: Floats) -> tuple[float, Floats]:
        """Return minus the mean log-likelihood, and its gradient."""
        scores = np.where(there, np.einsum("f,nfx->nx", weights, given), -np.inf)
        value = (scipy.special.logsumexp(scores, axis=1) - drawn @ weights).mean()
        expected = np.einsum("nx,nfx->nf", scipy.special.softmax(scores, axis=1), given)
        return float(value), np.asarray((expected - drawn).mean(axis=0))

    limits = _MOST * np.tile(np.minimum(size, 1.0), 2)
    found = scipy.optimize.minimize(
        loss,
        np.eye(6)[0],  # the belief of scale 1
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(-limits, limits, strict=True)),
        options={"gtol": 1e-6, "ftol": 0.0, "maxiter": 1000},
    )
    weights = (found.x / np.tile(size, 2)).tolist()
    return NoiseBelief(tuple(weights[:3]), tuple(weights[3:]))


def _factors(depth: int, mass: Floats) -> Floats:
    """Return 1, the depth, and the entropy in nats."""
    return np.array([1.0, depth, entropy_bits(mass) * np.log(2.0)])
