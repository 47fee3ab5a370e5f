"""The law of a scheme's output, and the distance to the target."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm.divergences import divergence_term
from otm.problem import Problem, check_problem
from otm.verbs import output_marginal
from otm.verifiers.base import Verifier, require_support
from otm.verifiers.lossy_rule import Lossy


@dataclasses.dataclass(frozen=True)
class Distortion:
    """Distances between the target q and the output law π.

    Attributes:
        total_variation: ½ Σ |π − q|, in [0, 1].
        kl: KL(q‖π) in nats, the direction of mentored decoding's budget; ∞ where a token of the
            target never comes out.
    """

    total_variation: float
    kl: float


def output_law(verifier: Verifier, problem: Problem) -> NDArray[np.float64]:
    """Return the exact law of the output token.

    π(y) = Σ_x Pr(x) Pr(y | x): the rule's closed form where there is one, else summed over every
    draft sequence. Nothing is taken from the verifier's claim to be lossless.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: one pair of distributions `(V,)`.

    Returns:
        Probabilities `(V,)`.

    Raises:
        TooLarge: if the drafts must be enumerated and are too many; of races beyond 2^27 entries,
            sequences × V.
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: at most a sort for lossy verifiers, as `otm.prepare` for `TvOptimal`; else O(V^k · V), in
        little memory.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> output_law(otm.Maximal(), problem), output_law(otm.Lenience(0.8), problem)
    (array([0.5, 0.5]), array([0.625, 0.375]))
    """
    if not isinstance(verifier, Lossy):
        return output_marginal(verifier, problem)
    require_support(verifier, check_problem(problem).law)
    return verifier.output_law(problem.single(purpose="otm.lossy.output_law"))


def distortion(verifier: Verifier, problem: Problem) -> Distortion:
    """Return the total variation and the divergence of a scheme's output law from the target.

    Args:
        verifier, problem: as for `output_law`.

    Returns:
        Distortion(total_variation, kl); both are 0 up to rounding for a lossless verifier.

    Raises:
        As `output_law`.

    Cost: as `output_law`. Accuracy: KL is summed from terms q log(q/π) − q + π ≥ 0.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0, 0.5, 0.5], law=otm.IID(1))
    >>> round(distortion(otm.Mentored(0.3), problem).kl, 12)
    0.3
    """
    single = check_problem(problem).single(purpose="otm.lossy.distortion")
    law = output_law(verifier, single)
    return Distortion(
        total_variation=float(0.5 * np.abs(law - single.target).sum()),
        kl=float(divergence_term(single.target, law).sum()),
    )
