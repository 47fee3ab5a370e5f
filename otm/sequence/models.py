"""What a language model is here: anything that gives the next-token distribution of a context."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import as_pmf


class LanguageModel(Protocol):
    """A model over token contexts."""

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after `context`."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class TableModel:
    """A model given by a table from context to next-token distribution, as captured from a real one.

    Args:
        table: probabilities `(V,)` by context, a tuple of tokens.

    Raises:
        InvalidDistribution: if an entry is not a distribution.

    >>> TableModel({(): [0.5, 0.5]}).next([])
    array([0.5, 0.5])
    """

    table: Mapping[tuple[int, ...], object]

    def __post_init__(self) -> None:
        checked = {context: as_pmf(mass, name=f"entry {context}") for context, mass in self.table.items()}
        object.__setattr__(self, "table", checked)

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Look the context up.

        Raises:
            InvalidParameter: if the table has no entry for it.
        """
        key = tuple(int(token) for token in context)
        if key not in self.table:
            raise InvalidParameter(
                f"The context must be one of the {len(self.table)} in the table; {key} is not. Capture it as well."
            )
        return np.asarray(self.table[key], dtype=np.float64)


def next_distribution(model: LanguageModel, context: Sequence[int], *, name: str) -> NDArray[np.float64]:
    """Ask a model for the next-token distribution and pass the answer through the gate.

    Raises:
        InvalidDistribution: if the answer is not one distribution `(V,)`, naming the model and the context.
    """
    try:
        mass = as_pmf(model.next(tuple(context)), name=f"the {name} model's next-token distribution")
    except InvalidDistribution as error:
        raise InvalidDistribution(f"After context {tuple(context)}: {error}") from error
    if mass.ndim != 1:
        raise InvalidDistribution(
            f"The {name} model must return one distribution (V,) per context; it returned shape {tuple(mass.shape)}."
        )
    return np.asarray(mass, dtype=np.float64)
