"""Exact races: sums of independent exponential variables, compared without boxes.

−log u of a uniform u is exponential, and a great deal of sampling code is a race of such variables:
argmin E/w draws with probabilities proportional to w, and so do argmax w/E, argmax(log w − log E)
(Gumbel noise) and argmax u^(1/w). No box of uniforms is on one side of such a comparison, but
memoryless variables need none: where c_j F_j race, j wins with probability (1/c_j)/Λ, Λ = Σ 1/c_j,
and *given* that i wins,

    F_i = G/(Λ c_i),   F_j = G/(Λ c_j) + F_j'   (j ≠ i)

with G and F_j' fresh, independent, exponential. So after every race all variables are again sums of
independent exponentials, and noise that is used a second time is known as exactly as fresh noise.
The sign of Σ d_k F_k is found by racing a positive against a negative term: the loser's lead is all
that is left of the two. A number beside them is compared with one term first: F > t leaves t + F'.
What F < t leaves has a memory, and where more than its interval matters this gives up (`None`) and
boxes are halved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

# by name, since `math` itself is patched while code is traced
from math import exp, fsum, inf, isfinite, log, nextafter
from typing import Any

from otm.audit.tracing.execution import Execution

_CANCELS = 2.0**-46
"""Relative difference below which terms count as equal: the rounding of a difference."""

_NEGLIGIBLE = 2.0**-16
"""A uniform known to exceed less than this still counts as memoryless, at the price of that much
total variation.
"""


_BELOW_ONE = nextafter(1.0, 0.0)


class UniformSource:
    """A uniform: along an axis of the box, or exp(−form) of exponentials along several."""

    __slots__ = ("_axis", "_mirror", "form", "run")

    def __init__(self, run: Execution) -> None:
        self.run = run
        self._axis: int | None = None
        self._mirror: UniformSource | None = None
        self.form: LinearForm | None = None

    @property
    def axis(self) -> int:
        """The variable's own axis, created on first use."""
        if self._axis is None:
            self._axis = self.run.axis()
        return self._axis

    @property
    def axes(self) -> frozenset[int]:
        """The axes on which the uniform depends."""
        if self._mirror is not None:
            return self._mirror.axes
        return frozenset([self.axis]) if self.form is None else frozenset(self.form.terms)

    @property
    def known(self) -> bool:
        """True if anything has depended on the uniform."""
        return self._axis is not None or (self._mirror is not None and self._mirror.known)

    def mirrored(self) -> UniformSource | None:
        """Return 1 − u as a source of which u becomes a function; None if u was used before."""
        if self._mirror is None and not self.known:
            self._mirror = UniformSource(self.run)
        return self._mirror

    def value(self, point: Sequence[float]) -> float:
        """Return the value of the uniform at a point of the box."""
        if self._mirror is not None:
            return 1.0 - self._mirror.value(point)
        if self.form is None:
            return point[self.axis]
        terms = (c * _exponential(point[k]) for k, c in self.form.terms.items())
        return min(exp(-self.form.constant - fsum(terms)), _BELOW_ONE)

    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the uniform on the box, which is half-open."""
        if self._mirror is not None:
            bottom, top = self._mirror.bounds()
            return 1.0 - top, 1.0 - bottom
        low, high, axis = self.run.low, self.run.high, self.axis
        if self.form is None:
            return low[axis], nextafter(high[axis], 0.0)
        return self.value(low), self.value([nextafter(end, 0.0) for end in high])

    def exponential(self) -> LinearForm | None:
        """Return −log u as a form over axes; None where 1 − u is the known variable."""
        if self._mirror is None and self.form is None:
            self.form = LinearForm({self.axis: 1.0}, 0.0)
            self.run.exponentials.append(self)
        return self.form


def _exponential(uniform: float) -> float:
    return -log(uniform) if uniform > 0.0 else inf


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class LinearForm:
    """Σ c_k F_k + c over exponentials, of sources or along axes.

    Attributes:
        terms: coefficients by source or axis.
        constant: c.
        slack: what was neglected for it, by reason.
    """

    terms: Mapping[Any, float]
    constant: float
    slack: frozenset[tuple[Any, float]] = frozenset()

    def scaled(self, by: float) -> LinearForm:
        """Multiply the form by a constant."""
        return LinearForm(
            {k: c * by for k, c in self.terms.items()}, self.constant * by, self.slack
        )

    def shifted(self, by: float) -> LinearForm:
        """Add a constant to the form.

        A tiny number beside a single fresh variable is neglected: 1 − e^{−|by|} of total variation.
        """
        if 0.0 < abs(by) < _NEGLIGIBLE and len(self.terms) == 1 and self.constant == 0.0:
            ((source, coefficient),) = self.terms.items()
            if coefficient == 1.0:
                return LinearForm(self.terms, 0.0, self.slack | {((id(source), by), abs(by))})
        return LinearForm(self.terms, self.constant + by, self.slack)

    def plus(self, other: LinearForm) -> LinearForm:
        """Return the sum, without the terms that cancel."""
        terms = dict(self.terms)
        for k, c in other.terms.items():
            terms[k] = _sum(terms[k], c) if k in terms else c
        constant = _sum(self.constant, other.constant)
        return LinearForm({k: c for k, c in terms.items() if c}, constant, self.slack | other.slack)

    def replaced(self, axis: int, by: LinearForm) -> LinearForm:
        """Return the form with the variable along an axis replaced by another form."""
        if axis not in self.terms:
            return self
        rest = LinearForm(
            {k: c for k, c in self.terms.items() if k != axis}, self.constant, self.slack
        )
        return rest.plus(by.scaled(self.terms[axis]))

    def over_axes(self) -> LinearForm:
        """Convert a form over sources, none of which is mirrored, to a form over axes."""
        found = LinearForm({}, self.constant, self.slack)
        for source, coefficient in self.terms.items():
            found = found.plus(source.exponential().scaled(coefficient))
        return found

    @property
    def plain(self) -> bool:
        """True if all sources are known directly, not through 1 − u."""
        return all(source.exponential() is not None for source in self.terms)


def _sum(a: float, b: float) -> float:
    total = a + b
    return 0.0 if abs(total) <= _CANCELS * max(abs(a), abs(b)) else total


def sign(run: Execution, form: LinearForm) -> int | None:
    """Return the sign of a form over sources, or None if that takes more than races."""
    if not form.plain:
        return None
    # Each round splits one axis or forgets what a memoryless one has spent, until the range that is
    # left lies on one side of 0.
    while True:
        found = form.over_axes()
        run.slack.update(found.slack)
        low, high = _range(run, found)
        if low >= 0.0:
            return 1 if high > 0.0 else 0
        if high <= 0.0:
            return -1
        if found.constant and len(found.terms) == 1:
            ((axis, c),) = found.terms.items()
            _split_at(run, axis, -found.constant / c)
            continue
        if not all(_memoryless(run, axis) for axis in found.terms):
            return None
        if _forget(run, found.terms):
            continue
        positive = {k: c for k, c in found.terms.items() if c > 0.0}
        negative = {k: -c for k, c in found.terms.items() if c < 0.0}
        if found.constant:
            against = negative if found.constant > 0.0 else positive
            axis = max(against, key=against.__getitem__)
            _split_at(run, axis, abs(found.constant) / against[axis])
        else:
            one, other = (max(part, key=part.__getitem__) for part in (positive, negative))
            _run(run, [(one, positive[one]), (other, negative[other])])


def least(run: Execution, forms: Sequence[LinearForm]) -> int | None:
    """Return the index of the least of several forms, or None if that takes more than races."""
    if not all(form.plain for form in forms):
        return None
    found = [form.over_axes() for form in forms]
    axes = set().union(*(form.terms for form in found))
    if all(_memoryless(run, axis) for axis in axes):
        if _forget(run, axes):
            found = [form.over_axes() for form in forms]
        runners = _simple(found)
        if runners is not None:
            for form in found:
                run.slack.update(form.slack)
            return _run(run, runners)
    best = 0
    for j in range(1, len(forms)):
        answer = sign(run, forms[j].plus(forms[best].scaled(-1.0)))
        if answer is None:
            return None
        best = j if answer < 0 else best
    return best


def _simple(forms: Sequence[LinearForm]) -> list[tuple[int, float]] | None:
    """Return (axis, coefficient) of forms that differ in one term each, else None."""
    first = forms[0]
    shared = {
        k: c
        for k, c in first.terms.items()
        if all(_sum(form.terms.get(k, 0.0), -c) == 0.0 for form in forms[1:])
    }
    if any(_sum(form.constant, -first.constant) for form in forms[1:]):
        return None
    rest = [{k: c for k, c in form.terms.items() if k not in shared} for form in forms]
    if len(forms) < 2 or any(len(terms) != 1 for terms in rest):
        return None
    runners = [next(iter(terms.items())) for terms in rest]
    if len({axis for axis, _ in runners}) < len(runners) or any(c <= 0.0 for _, c in runners):
        return None
    return runners


def _run(run: Execution, runners: Sequence[tuple[int, float]]) -> int:
    """Race c_j F_j, and express the variables anew given the winner."""
    rates = [1.0 / c for _, c in runners]
    winner = run.choose(rates)
    total = fsum(rates)
    first = run.axis()
    replaced: dict[int, LinearForm] = {}
    for j, ((axis, _), rate) in enumerate(zip(runners, rates, strict=True)):
        run.retire(axis)
        fresh = {} if j == winner else {run.axis(): 1.0}
        replaced[axis] = LinearForm({first: rate / total, **fresh}, 0.0)
    _replace(run, replaced)
    return winner


def _replace(run: Execution, replaced: Mapping[int, LinearForm]) -> None:
    for source in run.exponentials:
        for axis in replaced.keys() & source.form.terms.keys():
            source.form = source.form.replaced(axis, replaced[axis])


def _memoryless(run: Execution, axis: int) -> bool:
    return run.low[axis] < _NEGLIGIBLE * run.high[axis]


def _forget(run: Execution, axes: Any) -> bool:
    """Replace exponentials F known to exceed a number t by t + F'; return True if there are any."""
    known = [axis for axis in axes if run.low[axis] > 0.0 or run.high[axis] < 1.0]
    for axis in sorted(known):
        low, high = run.low[axis], run.high[axis]
        if low > 0.0:
            run.slack["a bounded exponential", axis] = low / high
        run.retire(axis)
        _replace(run, {axis: LinearForm({run.axis(): 1.0}, -log(high))})
    return bool(known)


def _range(run: Execution, form: LinearForm) -> tuple[float, float]:
    """Return the bounds of a form over axes on the box; rounding at an end counts as none."""
    ends: list[list[float]] = [[form.constant], [form.constant]]
    for axis, c in form.terms.items():
        bottom, top = -log(run.high[axis]), _exponential(run.low[axis])
        ends[0].append(c * (bottom if c > 0.0 else top))
        ends[1].append(c * (top if c > 0.0 else bottom))
    return _total(ends[0]), _total(ends[1])


def _total(parts: Sequence[float]) -> float:
    total = sum(parts)
    if not isfinite(total):
        return total
    return 0.0 if abs(total) <= _CANCELS * max(map(abs, parts)) else total


def _split_at(run: Execution, axis: int, exponential: float) -> None:
    """Divide the box where the exponential along an axis takes a value."""
    if run.follow_split():
        return
    at = exp(-exponential)
    low, high = run.low[axis], run.high[axis]
    at = min(max(at, nextafter(low, 1.0)), nextafter(high, 0.0))
    run.split(axis, at, keep_low=at - low >= high - at)
