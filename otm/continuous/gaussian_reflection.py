"""Reflection coupling of one Gaussian draft."""

from __future__ import annotations

import dataclasses
from typing import final

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Floats
from otm.continuous.gaussian_curve import ratio
from otm.continuous.gaussian_rule import GaussianRule, first_kept
from otm.errors import InvalidParameter


@final
@dataclasses.dataclass(frozen=True)
class GaussianReflection(GaussianRule):
    """Accept the one draft with probability min(1, q/p), else reflect it midway of the means.

    As likely to accept as any verifier of one draft, 2Φ(−δ/2), and without a draw from a residual:
    the reflection x → δ − x maps what p has above q onto what q has above p.

    Args:
        num_drafts: 1.

    Raises:
        InvalidParameter: unless it is 1.

    Cost: O(n) a row.
    Reference: Bou-Rabee, Eberle & Zimmer 2020; of diffusion steps: De Bortoli et al. 2025.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 1, 3))
    >>> found = GaussianReflection(1).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.617) < 0.02)  # nearly six standard errors
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_drafts != 1:
            raise InvalidParameter(
                f"num_drafts must be 1 for a reflection; got {self.num_drafts!r}. Choose "
                "GaussianOptimal for more."
            )

    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Try the draft."""
        return first_kept(ratio(x, shift[:, None]), rng)

    def _replace(self, x: Floats, shift: Floats, rng: np.random.Generator) -> Floats:
        """Reflect."""
        return shift - x
