"""Optima and acceptances of laws on a line, from the overlap curve."""

from __future__ import annotations

import numpy as np

from otm._machine.arrays import Array, as_scalar_or_array
from otm.continuous.gaussian_curve import GaussianCurve, GaussianSteps
from otm.drafts.curve_cut import CurveLaw
from otm.drafts.iid import IID
from otm.drafts.threshold_race import ThresholdRace
from otm.errors import Unsupported
from otm.pmf import check_instance
from otm.verifiers.base import Verifier
from otm.verifiers.kseq import KSeq, kseq_on_curve
from otm.verifiers.maximal import Maximal
from otm.verifiers.optimal.scores import optimal_selection
from otm.verifiers.optimal.verifier import Optimal
from otm.verifiers.race import Race
from otm.verifiers.recursive_rejection import RecursiveRejection, rejection_levels


def optimal_acceptance(curve: GaussianCurve, law: CurveLaw) -> Array:
    """Return the largest acceptance that any lossless verifier can reach.

    α* = 1 + min_x [Φ(x − δ) − b(Φ(x))]; for k i.i.d. drafts b(t) = t^k.

    Args:
        curve: of a shift `(...)`.
        law: `otm.IID(k)` or `otm.ThresholdRace(c)`.

    Returns:
        A float, or `(...)`.

    Raises:
        Unsupported: for other laws.

    Cost: some ten milliseconds a shift: every local minimum is looked at. Accuracy: 1e-14.
    Reference: docs/theory.md, "The curve of other laws".

    >>> import otm
    >>> curve = GaussianCurve(1.0)
    >>> [round(optimal_acceptance(curve, otm.IID(k)), 3) for k in (1, 2, 4, 8)]
    [0.617, 0.792, 0.924, 0.982]
    """
    size = _checked(curve, law).contained
    if size.steepest == 1.0:
        return as_scalar_or_array(curve.at(1.0))
    shifts = np.reshape(curve.shift, (-1,)).tolist()
    gains = [
        optimal_selection(GaussianSteps.of(shift, size), 0.0, size)[1].gain for shift in shifts
    ]
    return as_scalar_or_array(np.reshape(1.0 - np.clip(gains, 0.0, 1.0), curve.shift.shape))


def acceptance(verifier: Verifier, curve: GaussianCurve, law: CurveLaw) -> Array:
    """Return the probability that a verifier accepts a draft from a Gaussian.

    The functionals of H that it has on tokens: H(1) for one draft, H(t_k) for recursive rejection,
    H(γ*) for K-SEQ, ∫ q/(1 + t − H(t)) at t = q/(c p) for a race.

    Args:
        verifier: `otm.Maximal`, `otm.RecursiveRejection`, `otm.KSeq` at γ*, `otm.Race` or
            `otm.Optimal` without bins.
        curve: of a shift `(...)`.
        law: `otm.IID(k)` or `otm.ThresholdRace(c)`, as the verifier takes it.

    Returns:
        A float, or `(...)`.

    Raises:
        Unsupported: for other verifiers and laws.

    Cost: vectorised over shifts but for races and optima. Accuracy: 1e-13.
    Reference: docs/theory.md, "The curve of other laws".

    >>> import otm
    >>> curve = GaussianCurve(1.0)
    >>> verifiers = [otm.RecursiveRejection(), otm.KSeq(), otm.Optimal()]
    >>> [round(acceptance(each, curve, otm.IID(4)), 4) for each in verifiers]
    [0.7978, 0.8392, 0.9242]
    """
    check_instance(verifier, Verifier, name="verifier")
    size = _checked(curve, law).contained
    if isinstance(verifier, Race) and (isinstance(law, ThresholdRace) or size.k == 1):
        found = curve.matched(size.c)
    elif isinstance(verifier, Maximal) and law == IID(1):
        found = curve.at(1.0)
    elif isinstance(verifier, RecursiveRejection) and isinstance(law, IID):
        found = rejection_levels(curve.at, curve.total_target, [size.k])[0]
    elif isinstance(verifier, KSeq) and verifier.gamma is None and isinstance(law, IID):
        found = kseq_on_curve(curve, [size.k])[0]
    elif verifier == Optimal():
        return optimal_acceptance(curve, law)
    else:
        raise Unsupported(
            f"{verifier!r} under {law!r} has no functional of the overlap curve here. Choose "
            "Maximal, RecursiveRejection, KSeq, Optimal with otm.IID, or Race with "
            "otm.ThresholdRace."
        )
    return as_scalar_or_array(found)


def _checked(curve: GaussianCurve, law: CurveLaw) -> CurveLaw:
    """Check the kinds of both, and return the law."""
    check_instance(curve, GaussianCurve, name="curve")
    if not isinstance(law, CurveLaw):
        raise Unsupported(
            f"law must depend on the overlap curve alone; got {law!r}. Choose otm.IID or "
            "otm.ThresholdRace."
        )
    return law
