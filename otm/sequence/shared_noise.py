"""Noise computed from a seed alone: one number per absolute position and token.

A sampler that draws its token as argmax(log q + g), g standard Gumbel noise, is the race of
`otm.Race`: the first of exponential clocks with rates q. If g is a function of seed and position,
the text is a function of seed and target, and a drafter that knows the seed knows the noise that
the target will be sampled with, without a word between them.

The numbers come from Philox4x32-10, a counter-based generator: no state, any position and token at
once. For token x at position d under a seed, all unsigned and words of 32 bits, low words first:

    key     = (seed mod 2³², seed div 2³²)
    counter = (x div 2, d mod 2³², d div 2³², 0)
    words   = Philox4x32-10(counter, key)
    w       = words[2b] + 2³²·words[2b + 1],  b = x mod 2
    u       = (w div 2¹² + ½)/2⁵²            exact in double precision, never 0 or 1
    g       = −log(−log u)

The number of tokens does not enter: a drafter of a smaller vocabulary, the first tokens of the
target's, sees the same noise. The words are equal on every machine, g to the last bits of log.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm._machine.arrays import Floats, quiet, unit_quadrature
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import check_count, host_pmf

Words = NDArray[np.uint64]

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_DROPPED = np.uint64(12)


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> Words:
    """Return the four words of Philox4x32-10 at counters, `(..., 4)`.

    Args:
        counter: four arrays of words below 2³², low first, which broadcast.
        key: two words.

    Reference: Salmon et al. 2011, Section 3.3; the example is a vector of their library Random123.

    >>> import numpy as np
    >>> zero = np.zeros((), np.uint64)
    >>> [hex(word) for word in philox((zero,) * 4, (0, 0)).tolist()]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # below 2⁶⁴
        c0, c1, c2, c3 = (
            (second >> _HALF) ^ c1 ^ np.uint64(k0),
            second & _LOW,
            (first >> _HALF) ^ c3 ^ np.uint64(k1),
            first & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & int(_LOW), (k1 + _WEYL[1]) & int(_LOW)
    return np.stack([c0, c1, c2, c3], axis=-1)


@dataclasses.dataclass(frozen=True)
class SharedNoise:
    """Standard Gumbel noise by absolute position and token, the same for draft and target.

    Args:
        seed: an integer in [0, 2⁶⁴).

    Raises:
        InvalidParameter: on any other seed.

    Cost: about a microsecond for ten tokens.
    Accuracy: the uniforms are exact multiples of 2⁻⁵³, so a token of probability q is chosen with
        one within some 2⁻⁵² of q.
    Reference: Gumbel-max; Philox4x32-10 [Salmon et al. 2011]; ERSD [Kobus & Gündüz 2025].

    >>> SharedNoise(7).row(0, 3).round(6)
    array([ 1.246605, -0.899102,  1.473789])
    >>> bool(SharedNoise(7).row(0, 9)[2] == SharedNoise(7).row(0, 3)[2])
    True
    """

    seed: int

    def __post_init__(self) -> None:
        whole = isinstance(self.seed, int | np.integer) and not isinstance(self.seed, bool)
        if not whole or not 0 <= self.seed < 1 << 64:
            raise InvalidParameter(
                f"A seed of noise must be an integer in [0, 2^64); got {self.seed!r:.80}. Pass 0, "
                "say."
            )
        object.__setattr__(self, "seed", int(self.seed))

    def uniforms(self, position: int, num_tokens: int) -> Floats:
        """Return the uniforms u `(V,)` of a position, odd multiples of 2⁻⁵³ in (0, 1).

        >>> [value.hex() for value in SharedNoise(1).uniforms(2, 2).tolist()]
        ['0x1.612383fe635d8p-4', '0x1.67304154011dap-2']
        """
        place = check_count(position, name="position", minimum=0)
        pairs = np.arange((check_count(num_tokens, name="num_tokens") + 1) // 2, dtype=np.uint64)
        low, high = (np.array(word, np.uint64) for word in (place & int(_LOW), place >> 32))
        words = philox(
            (pairs, low, high, np.zeros((), np.uint64)), (self.seed & int(_LOW), self.seed >> 32)
        )
        whole = (words[:, 0::2] | (words[:, 1::2] << _HALF)).reshape(-1)[:num_tokens]
        return np.asarray(((whole >> _DROPPED).astype(np.float64) + 0.5) * 2.0**-52)

    def row(self, position: int, num_tokens: int) -> Floats:
        """Return the noise g `(V,)` of a position, counted from the beginning of the text.

        Raises:
            InvalidParameter: if the position is no integer ≥ 0, or there are no tokens.
        """
        return np.asarray(-np.log(-np.log(self.uniforms(position, num_tokens))))

    def choose(self, mass: ArrayLike, position: int) -> int:
        """Return the target's token at a position: argmax(log q + g).

        Args:
            mass: the target's distribution `(V,)`.
            position: of the token, counted from the beginning of the text.

        Raises:
            InvalidDistribution: if `mass` is no distribution. ShapeMismatch: if it is several.

        >>> SharedNoise(7).choose([0.5, 0.2, 0.3], 0), SharedNoise(7).choose([0.0, 0.0, 1.0], 0)
        (0, 2)
        """
        row = host_pmf(mass, name="mass")
        if row.ndim != 1:
            raise ShapeMismatch(
                f"mass must be one distribution (V,); its shape is {row.shape}. Pass one row."
            )
        return int(np.argmax(perturbed(row, self.row(position, len(row)))))


def perturbed(mass: Floats, noise: Floats) -> Floats:
    """Return log mass + noise, −∞ where there is no mass; `(..., V)`."""
    with quiet():
        return np.where(mass > 0, np.log(mass) + noise, -np.inf)


@dataclasses.dataclass(frozen=True, eq=False)
class NoiseRow:
    """The noise of one position, in the view of drafter and target.

    Attributes:
        seen: `(V,)`, what the drafter sees: g, or the median of g's cell.
        exact: g `(V,)`; None in an enumeration.
        cell: `(V,)`, which of `cells` equally likely cells every number is in; None where the
            drafter sees all of g.
        cells: their number.
    """

    seen: Floats
    exact: Floats | None
    cell: NDArray[np.int64] | None = None
    cells: int | None = None

    @classmethod
    def of_cells(cls, cell: NDArray[np.int64], cells: int, exact: Floats | None) -> NoiseRow:
        """Return the row for a drafter that sees only cells of e^{−e^{−g}}, a uniform."""
        return cls(-np.log(-np.log((cell + 0.5) / cells)), exact, cell, cells)

    @classmethod
    def of(cls, exact: Floats, cells: int | None) -> NoiseRow:
        """Return the row of given noise."""
        if cells is None:
            return cls(exact, exact)
        inside = np.floor(cells * np.exp(-np.exp(-exact))).astype(np.int64)
        return cls.of_cells(np.minimum(inside, cells - 1), cells, exact)


_FAR = 42.0  # e^{−42} < 2⁻⁵³/9


def winner_by_cells(target: Floats, row: NoiseRow) -> Floats:
    """Return Pr(argmax(log q + g) = y | the cells of g) for every y, `(V,)`.

    With clocks E = e^{−g}, each in a cell [a, b) that holds it with probability 1/n, the winner is
    y at time t with density n q_y e^{−q_y t} where a_y ≤ q_y t < b_y, and another clock has not
    rung with probability (e^{−q t} − e^{−b})₊ n, at most 1. Between the ends of cells these are
    analytic.

    Accuracy: 1e-14. The chance that nothing has rung at t is at most n^V e^{−t}: beyond 42 + V log
        n it is below rounding, and Gauss–Legendre with 24 nodes on panels of length 1 errs by less.
    """
    assert row.cell is not None
    assert row.cells is not None
    live = np.flatnonzero(target > 0)
    q, cells = target[live][:, None], row.cells
    with quiet():
        # The cell of the largest uniforms, of the largest noise, holds the clocks from 0 on.
        first, last = (-np.log((row.cell[live][:, None] + side) / cells) for side in (1, 0))
    end = _FAR + len(live) * np.log(cells)
    edges = np.unique(np.concatenate([np.arange(end + 1), (first / q).ravel(), (last / q).ravel()]))
    edges = edges[edges <= end]
    width = np.diff(edges)[:, None]
    places, weights = unit_quadrature(24)
    time = (edges[:-1, None] + width * places).ravel()
    weight = (width * weights).ravel()
    clock = q * time
    alive = np.clip(cells * (np.exp(-clock) - np.exp(-last)), 0.0, 1.0)
    ringing = np.where((clock >= first) & (clock < last), cells * q * np.exp(-clock), 0.0)
    found: Floats = np.zeros(len(target))
    for place, token in enumerate(live.tolist()):
        others = np.delete(alive, place, axis=0).prod(axis=0)
        found[token] = float((weight * ringing[place] * others).sum())
    found /= found.sum()
    return found
