"""The composition of a lossy rule over many tokens: detectability of the whole text.

The log ratio of two laws of a text is the sum of its tokens' log ratios. Its distribution, all that
a test between the two can use (Neyman & Pearson 1933), is the tokens' own to the T-th convolution
power: doublings on a grid, by Fourier transforms, that grows coarser with the sum. Rounding to a
grid keeps the mean, so that roundings add up like a random walk, and every error, theirs and the
transforms', is bounded and moved outward (docs/theory.md, "Composition"). The accountants of
differential privacy work with such grids [Koskela et al. 2020; Gopi et al. 2021].
"""

from __future__ import annotations

import dataclasses
import math
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from otm._machine.arrays import UNIT_ROUNDOFF, Floats
from otm.errors import ShapeMismatch
from otm.pmf import check_count, check_real, host_pmf, plain_reals
from otm.problem import keyword_only
from otm.results.statistics import Certified

MAX_COMPOSED = 10**7
"""Largest number of composed tokens: errors of transforms grow with the number."""

_CELLS = (2**15, 2**17, 2**19)
_FINE = 0.005  # between the bounds of total variation: a grid is fine enough
_FAR = 40.0  # log ratios beyond are as good as infinite
_DOUBT = 45.0  # minus the logarithm of the probability that one cut or bound gives up
_TILTS = 2.0 ** np.arange(-12, 21)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Composed(Certified):
    """The distinguishability of two laws over T tokens.

    Attributes:
        lower, upper: bounds of the total variation of the two laws of T tokens.
        tokens: T.
        levels, powers: corners `(n,)` of a concave curve of the chance to accuse the output over
            the chance to accuse the target, which the next two correct outward.
        shift: the logarithm of a level is off by at most this.
        error: levels and powers are off by at most this besides.
        sure: the chance that the output writes what the target never does.
    """

    tokens: int
    levels: Floats
    powers: Floats
    shift: float
    error: float
    sure: float

    def power(self, level: ArrayLike) -> tuple[Floats, Floats]:
        """Return bounds of the power of the best test between the two laws.

        max Pr(accused | output) with Pr(accused | target) ≤ level, over all tests of T tokens that
        know both models.

        Args:
            level: chances `(...)` of a false alarm, in [0, 1].

        Returns:
            (lower, upper), `(...)` both.

        Raises:
            InvalidParameter: if a level is no chance.

        Cost: O(log n) per level.

        >>> found = composed(target=[0.5, 0.5], output=[0.75, 0.25], tokens=1)
        >>> [round(float(end), 3) for end in found.power(0.25)]  # 3/4 · 1/2
        [0.375, 0.375]
        """
        asked = np.asarray(plain_reals(level, "level"), dtype=np.float64)
        for end in (asked.min(initial=1.0), asked.max(initial=0.0)):
            check_real(end, name="level", low=0.0, high=1.0)
        least, most = (
            np.interp(asked * math.exp(slip) + loss, self.levels, self.powers, left=self.sure)
            + loss
            for slip, loss in ((-self.shift, -self.error), (self.shift, self.error))
        )
        return np.maximum(least, asked), np.clip(most, asked, 1.0)


@keyword_only("otm.lossy.composed(target=q, output=pi, tokens=1000)")
def composed(*, target: object, output: object, tokens: int) -> Composed:
    """Return the distinguishability of the output's law from the target's over T tokens.

    TV(π^T, q^T) between two bounds, with the power of every test between them: each token is an
    independent draw of a context, which the detector knows, and of a token after it.

    Args:
        target, output: probabilities `(..., V)`, π as of `otm.lossy.output_law`; leading axes are
            contexts, equally likely.
        tokens: T, at most 10^7.

    Returns:
        Composed.

    Raises:
        InvalidDistribution: if a row is no distribution. ShapeMismatch: if the shapes differ.
        InvalidParameter: if `tokens` is not a number of tokens.

    Cost: O(V) per context, then some Fourier transforms for each doubling of T, of 2^16 to 2^20
        numbers as needed; about 0.2 s at T = 10^4.
    Accuracy: certified; the bounds of the total variation are 0.005 apart at most, unless log
        ratios are of so different sizes, or tokens so many, that 2^19 cells are too few.
    Reference: docs/theory.md, "Composition"; Gopi, Lee & Wutschitz 2021.

    >>> found = composed(target=[0.5, 0.5], output=[0.75, 0.25], tokens=2)
    >>> round(float(found.value), 4)  # 9/16 − 1/4
    0.3125
    """
    return _Pair.of(target, output).composed(_count(tokens))


@keyword_only("otm.lossy.tokens_to_detect(target=q, output=pi)")
def tokens_to_detect(
    *, target: object, output: object, power: float = 0.95, level: float = 0.01
) -> tuple[float, float]:
    """Return the number of tokens after which the best test tells the output from the target.

    The least T at which some test accuses the output with probability `power` and the target with
    probability `level` at most.

    Args:
        target, output: as for `composed`.
        power, level: chances in (0, 1].

    Returns:
        (lower, upper): T is neither less nor more; infinite where 10^7 tokens are too few, or a
        chance is nearer to 0 or 1 than the errors of the composition (`Composed.error`).

    Raises:
        As `composed`; InvalidParameter if a chance is out of range.

    Cost: some 40 times that of `composed`. Accuracy: certified; the ends are some 2 % apart.

    >>> tokens_to_detect(target=[0.5, 0.5], output=[0.75, 0.25])
    (58.0, 58.0)
    """
    wanted, alarm = (
        check_real(value, name=name, low=0.0, high=1.0, open_low=True)
        for name, value in (("power", power), ("level", level))
    )
    pair = _Pair.of(target, output)
    known: dict[int, tuple[Floats, Floats]] = {}

    def reached(tokens: int, end: int) -> bool:
        if tokens not in known:
            known[tokens] = pair.composed(tokens).power(alarm)
        return bool(known[tokens][end] >= wanted)

    def search(end: int, few: int) -> tuple[int, float]:
        stride = 1 + few // 64
        while not reached(min(few + stride, MAX_COMPOSED), end):
            few, stride = min(few + stride, MAX_COMPOSED), 2 * stride
            if few == MAX_COMPOSED:
                return few, math.inf
        many = min(few + stride, MAX_COMPOSED)
        while many - few > 1 + few // 1000:
            middle = (few + many) // 2
            few, many = (few, middle) if reached(middle, end) else (middle, many)
        return few, float(many)

    few, _ = search(1, 0)
    return few + 1.0, search(0, few)[1]


@dataclasses.dataclass(frozen=True)
class _Sum:
    """The law of a sum of log ratios on a grid, where both laws of the text have mass.

    Attributes:
        mass: probabilities `(n,)` of step · first, step · (first + 1), …
        spread: Σ r² over the roundings in the sum, each of mean 0 within an interval of length r.
        error: the mass that is missing or in the wrong place, at most.
    """

    mass: Floats
    first: int
    step: float
    spread: float
    error: float

    def plus(self, other: _Sum) -> _Sum:
        """Return the law of the sum of two independent variables on one grid."""
        count = len(self.mass) + len(other.mass) - 1
        length = 1 << (count - 1).bit_length()
        transforms = [np.fft.rfft(one.mass, length) for one in (self, other)]
        mass = np.maximum(np.fft.irfft(transforms[0] * transforms[1], length)[:count], 0.0)
        # A transform is off by a relative 8 units in each of its levels, in the mean square; the
        # product of two by what follows from either Cauchy and Schwarz or |transform| ≤ 1.
        a, b, both = (float(np.sqrt(one @ one)) for one in (self.mass, other.mass, mass))
        root = math.sqrt(length)
        missed = (
            8.0 * math.log2(length) * UNIT_ROUNDOFF * root * (min(2.0 * root * a * b, a + b) + both)
        )
        return _Sum(
            mass,
            self.first + other.first,
            self.step,
            self.spread + other.spread,
            self.error + other.error + self.error * other.error + missed,
        )

    def cut(self, low: float, high: float) -> _Sum:
        """Drop the cells below and above, each with a mass of at most e^−45."""
        start = min(max(math.floor(low / self.step) - self.first, 0), len(self.mass) - 1)
        stop = max(math.ceil(high / self.step) - self.first, start) + 1
        error = self.error + 2.0 * math.exp(-_DOUBT)
        return dataclasses.replace(
            self, mass=self.mass[start:stop], first=self.first + start, error=error
        )

    def coarser(self) -> _Sum:
        """Round to the even cells; the mass of an odd cell goes to both neighbours."""
        cells = np.arange(self.first, self.first + len(self.mass))
        start, count = self.first // 2, (len(cells) + 1) // 2 + 1
        mass = np.add(
            *(
                np.bincount(even // 2 - start, 0.5 * self.mass, minlength=count)
                for even in (cells, cells + 1)
            )
        )
        step = 2.0 * self.step
        return _Sum(
            np.asarray(mass, dtype=np.float64), start, step, self.spread + step**2, self.error
        )


@dataclasses.dataclass(frozen=True)
class _Pair:
    """One token's log ratio log(π/q) under π.

    Attributes:
        mass, ratio: probabilities and values `(n,)`, where both laws have mass.
        proof: probability of a token that the target never writes, or as good as never.
        sure: probability of a token that the target never writes.
        growth: bounds of log E exp(θ ratio) at the tilts, first −θ, then θ, `(2, ...)`.
    """

    mass: Floats
    ratio: Floats
    proof: float
    sure: float
    growth: Floats

    @classmethod
    def of(cls, target: object, output: object) -> _Pair:
        """Check both laws and gather the tokens of all contexts."""
        q, law = host_pmf(target, name="target"), host_pmf(output, name="output")
        if q.shape != law.shape:
            raise ShapeMismatch(
                f"target and output must have one shape; got {q.shape} and {law.shape}. Give a row "
                "of each for every context."
            )
        with np.errstate(divide="ignore"):
            ratio = np.log(law[law > 0]) - np.log(q[law > 0])
        share = law[law > 0] / q[..., 0].size
        near = abs(ratio) <= _FAR
        proof = float(share[ratio > _FAR].sum())
        sure = float(share[np.isinf(ratio)].sum())
        pair = cls(share[near], ratio[near], proof, sure, np.empty(0))
        # Rounding that keeps the mean spreads, and what is spread has the larger exponential mean.
        coarse = pair.gridded(_CELLS[0])
        values = coarse.step * (coarse.first + np.arange(len(coarse.mass)))
        growth = [
            [_growth(coarse.mass, way * tilt * values) for tilt in _TILTS] for way in (-1.0, 1.0)
        ]
        return dataclasses.replace(pair, growth=np.array(growth))

    def gridded(self, cells: int) -> _Sum:
        """Return one token's law on a grid, each value parted between two cells."""
        least, most = self.ratio.min(initial=0.0), self.ratio.max(initial=0.0)
        step = max(float(most - least), 1e-12) / (cells - 3)
        first = math.floor(least / step)
        place = self.ratio / step - first
        cell = np.clip(place.astype(np.int64), 0, cells - 2)
        low, high = (
            np.bincount(at, weights=self.mass * part, minlength=cells)
            for at, part in ((cell, 1.0 - (place - cell)), (cell + 1, place - cell))
        )
        return _Sum(np.asarray(low + high, dtype=np.float64), first, step, step**2, 0.0)

    def composed(self, tokens: int) -> Composed:
        """Return the power curve of T tokens on the first grid that is fine enough."""
        for cells in _CELLS:
            found = self._on_grid(tokens, cells)
            if found.gap <= _FINE:
                break
        return found

    def _on_grid(self, tokens: int, cells: int) -> Composed:
        found = one = self.gridded(cells)
        count = 1
        for odd in f"{tokens:b}"[1:]:
            found, count = found.plus(found), 2 * count
            if odd == "1":
                found, count = found.plus(one), count + 1
            reach = (count * self.growth + _DOUBT) / _TILTS + _TILTS * found.spread / 8.0
            found = found.cut(-float(reach[0].min()), float(reach[1].min()))
            while len(found.mass) > cells:
                found, one = found.coarser(), one.coarser()
        values = found.step * np.arange(found.first, found.first + len(found.mass))[::-1]
        mass = found.mass[::-1]
        proof, sure = (
            -math.expm1(tokens * math.log1p(-min(one, 1.0 - UNIT_ROUNDOFF)))
            for one in (self.proof, self.sure)
        )
        levels = np.append(0.0, np.cumsum(mass * np.exp(np.minimum(-values, 700.0))))
        powers = np.append(proof, proof + np.cumsum(mass))
        rounded = (
            cells + 64.0 * tokens
        ) * UNIT_ROUNDOFF  # of sums of so many terms, of T masses and logs
        error = found.error + rounded + tokens * math.exp(-_FAR)
        shift = math.sqrt(0.5 * _DOUBT * found.spread) + rounded
        lower, upper = (
            float((powers - levels * math.exp(-way * shift)).max())
            + way * error * (1.0 + math.exp(-way * shift))
            for way in (-1.0, 1.0)
        )
        bounds = (max(lower, 0.0), min(upper, 1.0))
        return Composed(*bounds, tokens, levels, powers, shift, error, sure)


def _growth(mass: Floats, exponents: Floats) -> float:
    """Return log Σ mass e^exponent."""
    largest = float(exponents.max(initial=-700.0))
    return largest + float(np.log(mass @ np.exp(exponents - largest) + 1e-300))


def _count(tokens: int) -> int:
    """Check a number of tokens against the limit of a composition."""
    check_real(check_count(tokens, name="tokens"), name="tokens", low=1.0, high=MAX_COMPOSED)
    return int(tokens)
