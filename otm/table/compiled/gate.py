"""The gate of `Fuzzy`: whether the Jensen–Shannon divergence is at most a threshold, most often
from the masses of groups.
"""

from __future__ import annotations

import math

from otm.table.compiled.parts import BLOCK, FAST, LEAST_NORMAL, Floats, logarithm, part

# far beyond the rounding of a divergence, far below what a row usually leaves between it and the
# threshold
_UNDECIDED = 1e-9
_FEW = 128  # pieces of a row, each of two logarithms
_LARGEST = 1.7976931348623157e308


@part()
def _curvature(x: float) -> float:
    """Return ½ [(1 + x) log(1 + x) + (1 − x) log(1 − x)], which with x = (p − q)/(p + q) and weight
    (p + q)/2 sums to JS(p, q).
    """
    rising = (1.0 + x) * math.log1p(x) if x > -1.0 else 0.0
    return 0.5 * (rising + ((1.0 - x) * math.log1p(-x) if x < 1.0 else 0.0))


@part()
def is_closer(ends: Floats, groups: int, gate: float, tv: float) -> int:
    """Say whether the Jensen–Shannon divergence is at most `gate`, 1, or not, 0; −1 if the groups'
    masses leave it open.

    It is at most TV log 2. In a few groups at once it is at least what their masses have (Jensen)
    and, being convex, at most the chord between their ends (docs/theory.md, "The gate of Fuzzy
    without logarithms").
    """
    if tv * math.log(2.0) < gate - _UNDECIDED:
        return 1
    lower = upper = 0.0
    step = max(groups // _FEW, 1)
    for b in range(0, groups, step):
        last = min(b + step, groups)
        p, q = ends[0, last] - ends[0, b], ends[1, last] - ends[1, b]
        if not p + q > 0:
            continue
        x = min(max((p - q) / (p + q), -1.0), 1.0)
        least = (1.0 - ends[2, b]) / (1.0 + ends[2, b]) if ends[2, b] < _LARGEST else -1.0
        most = (
            (1.0 - ends[3, last - 1]) / (1.0 + ends[3, last - 1])
            if ends[3, last - 1] < _LARGEST
            else -1.0
        )
        here = _curvature(x)
        lower += 0.5 * (p + q) * here
        chord = here
        if least < x < most:
            low, high = _curvature(least), _curvature(most)
            chord = low + (high - low) * ((x - least) / (most - least))
        upper += 0.5 * (p + q) * max(chord, here)
    if lower > gate + _UNDECIDED:
        return 0
    return 1 if upper < gate - _UNDECIDED else -1


@part(FAST)
def is_closer_by_logarithms(p: Floats, q: Floats, gate: float, entropies: float) -> bool:
    """Decide the same from H((p + q)/2) − (H(p) + H(q))/2."""
    entropy = 0.0
    for start in range(0, len(p), BLOCK):
        block = 0.0
        for j in range(start, min(start + BLOCK, len(p))):
            middle = 0.5 * (p[j] + q[j])
            # what is left out is below 10⁻³⁰⁰
            block -= middle * logarithm(middle if middle >= LEAST_NORMAL else 1.0)
        entropy += block
    return bool(entropy - 0.5 * entropies <= gate)
