"""An answer that is not one number: certified ends, and whether they are reached."""

from __future__ import annotations

import dataclasses
from typing import Any

from otm._arrays import Array
from otm.statistics import Certified


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Interval(Certified):
    """Certified bounds of a quantity over every completion of partly known distributions; floats or
    arrays of one shape.

    Attributes:
        lower, upper: no completion lies outside [lower, upper].
        lower_is_attained, upper_is_attained: whether some completion comes within `slack` of that
            end. With an unknown vocabulary size that completion may use as many tokens as it needs.
        slack: how far each end was moved outwards for the stated rounding of the input and for
            floating point; 0 on an end that is infinite or a natural limit of the quantity.
    """

    lower_is_attained: Array
    upper_is_attained: Array
    slack: Array

    def __repr__(self) -> str:
        return f"Interval(lower={self.lower!s}, upper={self.upper!s}, is_tight={self.is_tight!s})"

    @property
    def width(self) -> Array:
        """Upper − lower; infinite where the upper end is."""
        return self.upper - self.lower

    @property
    def is_tight(self) -> Array:
        """Whether both ends are attained: no narrower interval is true of every completion (up to
        `slack`).
        """
        return self.lower_is_attained & self.upper_is_attained

    def contains(self, value: Any) -> Array:
        """Return whether lower ≤ value ≤ upper."""
        return (self.lower <= value) & (value <= self.upper)
