"""The bins of q/p and the cells of scores that K sequences are verified by."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from otm._machine.arrays import unit_quadrature
from otm.errors import InvalidParameter
from otm.pmf import check_count

from .step import Tensor

_MANTISSA = 23


@dataclasses.dataclass(frozen=True)
class ScoreGrid:
    """Bins and cells for K sequences that no step changes: made once, kept on the device.

    Attributes:
        mass: `(C,)` the cells of the score, as probabilities.
        gain: `(C,)` the mean of K u^{K−1} in each.
        nodes, weights: of Gauss and Legendre on [0, 1], exact for degree K − 1.
        edges: `(bins + 1,)` of q/p, from 0 on; the last bin has no end and is given none.
        lowest, shift: the leading bits of q/p, as a number, less `lowest` are its bin.
        quantiles: of the mass between floor and cap, which divide it into groups on either side
            of the cut.
        place, bounded: `(bins + 1,)` the edges' numbers, and `(bins,)` which bins have an end.
        inside: `(M + 1, M + 1, M + 1)`, which numbers of M marks lie between two.
    """

    mass: Tensor
    gain: Tensor
    nodes: Tensor
    weights: Tensor
    edges: Tensor
    lowest: int
    shift: int
    quantiles: Tensor
    place: Tensor
    bounded: Tensor
    inside: Tensor

    @classmethod
    def of(
        cls,
        num_drafts: int,
        device: torch.device | str,
        *,
        cells: int = 64,
        octaves: int = 8,
        per_octave: int = 8,
        groups: int = 2,
    ) -> ScoreGrid:
        """Return a grid for K sequences; lossless with any numbers.

        Args:
            num_drafts: K ≥ 1.
            device: where steps run.
            cells: about the number of cells of the score.
            octaves: bins reach from 2^−octaves to 2^octaves; one more lies on either side.
            per_octave: bins between a power of 2 and the next, itself a power of 2.
            groups: number of groups of the bins between floor and cap, on either side of the cut.

        Raises:
            InvalidParameter: if a number is no integer of at least 1, `cells` of at least 2, or
                `per_octave` no power of 2.
        """
        check_count(num_drafts, name="num_drafts")
        check_count(cells, name="cells", minimum=2)
        check_count(octaves, name="octaves")
        check_count(groups, name="groups")
        if check_count(per_octave, name="per_octave").bit_count() != 1:
            raise InvalidParameter(
                f"per_octave must be a power of 2; got {per_octave}. Take 8, say."
            )
        half = np.linspace(0.0, 1.0, cells // 2 + 1)
        score = np.unique(np.concatenate([half, half ** (1.0 / max(num_drafts - 1, 1))]))
        width = np.diff(score)
        places, weights = unit_quadrature((num_drafts + 1) // 2)
        shift = _MANTISSA - (per_octave.bit_length() - 1)
        first = int(np.float32(2.0**-octaves).view(np.int32)) >> shift
        keys = first + np.arange(2 * octaves * per_octave + 1, dtype=np.int32)
        ends = (keys << shift).view(np.float32).astype(np.float64)
        made = (
            width,
            np.diff(score**num_drafts) / width,
            places,
            weights,
            np.concatenate([[0.0], ends, ends[-1:]]),
            np.arange(1, groups) / groups,
        )
        mass, gain, at, share, edges, quantiles = (
            torch.tensor(array, dtype=torch.float64, device=device) for array in made
        )
        place, mark = (
            torch.arange(number, device=device) for number in (len(edges), 2 * groups + 3)
        )
        inside = (mark[:, None, None] < mark) & (mark < mark[:, None])
        return cls(
            mass, gain, at, share, edges, first - 1, shift,
            quantiles, place, place[:-1] < len(keys), inside,
        )  # fmt: skip

    def bins(self, target: Tensor, draft: Tensor) -> Tensor:
        """Return the bin of each token, int64; any bin for a token that is never drafted.

        Args:
            target, draft: `(…)` float32 or float64, q and p of the tokens.
        """
        return self.leading_bits(target, draft).sub_(self.lowest).long()

    def leading_bits(self, target: Tensor, draft: Tensor) -> Tensor:
        """Return the bin of each token, int32, counted from the bin that begins at q/p = 0.

        Args:
            target, draft: `(…)` float32 or float64, q and p of the tokens.
        """
        bits = (target / draft).float().view(torch.int32).bitwise_right_shift_(self.shift)
        return bits.clamp_(self.lowest, self.lowest + len(self.edges) - 2)
