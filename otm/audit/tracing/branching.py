"""The law of a function of uniforms, from runs on boxes of uniforms that branch on every draw.

A sampler uses its uniforms by comparing them: with an acceptance probability, with a cumulative
sum, with each other. Inside a box of uniforms on which every comparison comes out the same way the
output is constant, and the volume of the box is its probability. So the code is run on numbers that
know only which box they are in (`tracing.traced_numbers`), whether it was handed them or draws
them itself (`tracing.intercept`). A comparison that the box does not decide divides the
execution, a race or the draw of a token divides it by outcomes, and the run goes on in one part
while the others wait, each with its exact probability. When nothing waits, the parts add up to 1
and the law of the output is a sum of probabilities.

Where a boundary is slanted and no race, boxes are halved, the likeliest first, until the budget is
spent, and what is then left undecided is an error bound that needs no assumption. Code that
converts the numbers to plain floats, or draws what has no branches, is stopped (`TraceAborted`),
and the attempt is void: see `tracing.probing` for what is done then. Three more checks void it:
every part is executed a second time on plain numbers from its middle, and must give the same
output; decisions must come up again where they were made; and executions on real randomness must
not contradict the law that was found (`contradicts_samples`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.patience import Stopwatch
from otm.audit.evidence import log_evidence, log_interval_evidence, log_mean
from otm.audit.tracing.conversions import Conversions
from otm.audit.tracing.execution import Decision, Execution, TraceAborted, TraceUnbounded
from otm.audit.tracing.intercept.draws import ReplayedDraws, TracingDraws
from otm.audit.tracing.intercept.interception import Interception, intercepted, preserved, seed_all
from otm.audit.tracing.traced_numbers import TracedArray
from otm.errors import InvalidParameter
from otm.pmf import check_count, check_instance, check_real

MOST_SLANTED = 1_500
"""Number of boxes halved along slanted boundaries before the rest stays undecided."""

MOST_WORK = 40_000
"""Number of boxes visited or set aside: ``int(u * 2**32)`` has no end."""

MOST_SECONDS = 20.0
"""CPU seconds for runs of functions before the rest counts as undecided."""

SURPRISE = 1e9
"""Evidence of executions on real randomness that makes the traced law void."""

CHECKS = 64
"""Number of executions on real randomness that are compared with the law."""

_NO_VOLUME = 1e-30
"""Boxes of less volume are not executed a second time."""

_NOTHING = 1e-300
"""Parts of less probability are left out: a uniform that is exactly 0 has this little."""

_LEAST_SIDE, _LEAST_SIDE_FLOAT32 = 2.0**-50, 2.0**-20
"""A side that is shorter may have no point inside once 1 − u is rounded, or u is a float32."""

UniformFunction = Callable[[NDArray[Any]], Hashable]
"""A function of uniforms `(n,)`, an array of traced numbers or of float64, to a hashable value."""


@dataclasses.dataclass(frozen=True, eq=False)
class TracedLaw:
    """The law of a function of n uniforms, and of the function's own draws.

    Attributes:
        mass: probability of each value.
        error: bound on the error of each probability, and of the law in total variation: the
            volume of the boxes on which the value is not known.
        cells: number of boxes.
        drew: whether the function drew randomness of its own.
        surprise: log-evidence of executions on real randomness against the law.
        coarsest: largest unit roundoff, up to that of float32, of the numbers that the random
            numbers were computed with.
    """

    mass: dict[Hashable, float]
    error: float
    cells: int
    drew: bool = False
    surprise: float = 0.0
    coarsest: float = 2.0**-53


def trace(
    function: UniformFunction,
    num_uniforms: int = 0,
    *,
    most_slanted: int = MOST_SLANTED,
    most_work: int = MOST_WORK,
    most_seconds: float = MOST_SECONDS,
) -> TracedLaw:
    """Return the law of `function(uniforms)`, exact where all comparisons can be followed.

    Args:
        function: takes uniforms `(num_uniforms,)`, independent on [0, 1), and returns a hashable
            value; it may draw from torch, NumPy and `random` itself.
        num_uniforms: n ≥ 0.
        most_slanted: after how many runs that compare uniforms with each other, where that is no
            race, what is left stays undecided.
        most_work: how many boxes may be visited or set aside.
        most_seconds: after which what is left stays undecided.

    Returns:
        The law; its `error` is 0 where all was decided.

    Raises:
        TraceAborted: if the function converted a uniform to a plain number, drew what cannot be
            followed, or gave another value on plain numbers from the same box; the message says
            which. It is no `Exception`, so that the code cannot catch it.
        InvalidParameter: if `function` is no function, or a number is out of its range.

    Cost: two runs of the function for each box, and some more. Accuracy: each boundary is exact to
        the last bit of the float that the code compares, 2⁻⁵³ a box; races to some 1e-15.

    >>> law = trace(lambda u: "low" if u[0] * 0.8 < 0.2 else "high", 1)
    >>> law.mass, law.error
    ({'high': 0.75, 'low': 0.25}, 0.0)
    """
    if not callable(function):
        raise InvalidParameter(
            f"What is traced must be a function of uniforms; got {function!r:.80}. Pass it itself."
        )
    (law,) = trace_each(
        [function],
        check_count(num_uniforms, name="num_uniforms", minimum=0),
        most_slanted=check_count(most_slanted, name="most_slanted"),
        most_work=check_count(most_work, name="most_work"),
        most_seconds=check_real(most_seconds, name="most_seconds", low=0.0),
    )
    return law


def trace_each(
    functions: Sequence[UniformFunction],
    num_uniforms: int = 0,
    *,
    most_slanted: int = MOST_SLANTED,
    most_work: int = MOST_WORK,
    most_seconds: float = MOST_SECONDS,
    checks: int = CHECKS,
    seeds: int = 0,
    replay: UniformFunction | None = None,
) -> list[TracedLaw]:
    """Return the law of each function, as `trace` does, with one interception of draws for all.

    Args:
        functions, num_uniforms: as of `trace`.
        most_slanted, most_work: budgets of each function.
        most_seconds: for all functions; what is then left stays undecided.
        checks: how often each is executed on real randomness, of a seed of its own.
        seeds: how many seeds are drawn for the code, not by it.
        replay: the second execution, from plain numbers, where it is another than the function
            itself.

    Raises:
        TraceAborted: if the trace of one of them is void.
    """
    with preserved():
        _plainly(functions[0], num_uniforms, 1, 0)  # the first execution also loads what it needs
    watch = Stopwatch()

    def in_time() -> bool:
        return not watch.reaches(most_seconds)

    with intercepted() as interception, Conversions() as conversions:

        def explored(function: UniformFunction) -> TracedLaw:
            try:
                return _explored(
                    functools.partial(
                        _execute, function, num_uniforms, interception, conversions, seeds, replay
                    ),
                    most_slanted,
                    most_work,
                    in_time,
                )
            except TraceAborted as aborted:
                if not conversions.follows(aborted):
                    raise
                return explored(function)

        found = [*map(explored, functions)]
    with preserved():
        answers = [
            _plainly(function, num_uniforms, checks, seed)
            for seed, function in enumerate(functions)
        ]
    return [
        dataclasses.replace(law, surprise=_surprise(seen, law))
        for law, seen in zip(found, answers, strict=True)
    ]


def _explored(
    execute: Callable[[TracingDraws], Hashable],
    most_slanted: int,
    most_work: int,
    in_time: Callable[[], bool],
) -> TracedLaw:
    """Branch until no part waits or a budget is spent; without time nothing is known."""
    tie = itertools.count()
    waiting: list[tuple[float, int, tuple[Decision, ...]]] = [(-1.0, next(tie), ())]
    masses: dict[Hashable, list[float]] = {}
    undecided: list[float] = []
    cells = slanted = work = 0
    drew, coarsest = False, 2.0**-53
    # The largest part first: where a budget cuts the search, the least mass is left undecided.
    while waiting and slanted < most_slanted and work < most_work and in_time():
        run = Execution(prescribed=heapq.heappop(waiting)[2])
        draws = TracingDraws(run)
        value = execute(draws)
        cells += 1
        work += 1 + len(run.pending)
        slanted += run.slanted
        drew, coarsest = drew or bool(draws.events[1:]), max(coarsest, run.coarsest)
        for size, decisions in run.pending:
            if size > _NOTHING:
                heapq.heappush(waiting, (-size, next(tie), decisions))
        if run.undecided:
            undecided.append(run.volume)
        else:
            masses.setdefault(value, []).append(volume := run.volume)
            undecided.append(volume * min(1.0, math.fsum(run.slack.values())))
    undecided += [-size for size, _, _ in waiting]
    law = {value: math.fsum(parts) for value, parts in masses.items()}
    return TracedLaw(
        mass=law, error=math.fsum(undecided), cells=cells, drew=drew, coarsest=coarsest
    )


def _execute(
    function: UniformFunction,
    num_uniforms: int,
    interception: Interception,
    conversions: Conversions,
    seeds: int,
    replay: UniformFunction | None,
    draws: TracingDraws,
) -> Hashable:
    """Run the code on a box, then on plain numbers from the middle of the box, which must agree."""
    run = draws.run
    numbers: NDArray[Any] = np.empty(num_uniforms, dtype=object)
    numbers[:] = draws.uniforms("the argument", num_uniforms)
    value: Hashable = None
    failure = ""
    try:
        with np.errstate(all="ignore"), interception.into(draws):
            value = function(numbers.view(TracedArray))
    except TraceUnbounded:
        return None
    except Exception as error:  # whatever the code does with objects it was not written for
        failure = f"on symbols it raised {type(error).__name__}: {error}"
    if run.aborted or failure:
        raise run.abort(failure)
    if draws.seeds > seeds and not draws.drew:
        raise run.abort("it drew a seed, and nothing that is followed")
    # Boxes of no volume, where a uniform is exactly 0, may hold a 0/0 that objects and floats treat
    # differently; the middle of a side that rounding cannot tell from its ends is no point inside.
    sides = [b - a for a, b in zip(run.low, run.high, strict=True)]
    least = _LEAST_SIDE_FLOAT32 if run.coarsest > 2.0**-53 else _LEAST_SIDE
    if run.undecided or run.volume < _NO_VOLUME or min(sides, default=1.0) < least:
        return value
    values = draws.recorded()
    again: Hashable = Raised
    with (
        np.errstate(all="ignore"),
        contextlib.suppress(Exception),
        conversions.left_out(),
        interception.into(ReplayedDraws(values[1:])),
    ):
        again = (replay or function)(np.asarray(values[0], dtype=np.float64))
    if again != value:
        raise run.abort(_otherwise(again, value, values, run.volume))
    return value


OTHERWISE = "on plain numbers it gave another answer"
"""Beginning of the reason why a law is void: the code contradicts it."""

_ROUNDED = 1e-6
"""Probability of a part up to which another answer may come of float32."""


def _otherwise(
    again: Hashable, value: Hashable, drawn: Sequence[Sequence[float | int]], volume: float
) -> str:
    """Name two answers to the same random numbers, these numbers, and what may be the reason."""
    told = ["an exception" if answer is Raised else f"{answer!r:.80}" for answer in (again, value)]
    numbers = ", ".join(f"{number:.10g}" for number in itertools.islice(itertools.chain(*drawn), 8))
    where = f"{told[0]} in place of {told[1]}{f' where it drew {numbers}' if numbers else ''}"
    if volume > _ROUNDED:
        return f"{OTHERWISE}, {where}: hidden state, or randomness from elsewhere"
    return f"in a part of probability {volume:.1g} it gave another answer, {where}: it rounds"


class Raised:
    """A placeholder for an answer: the code raised an exception."""


def _plainly(
    function: UniformFunction, num_uniforms: int, checks: int, seed: int
) -> collections.Counter[Hashable]:
    """Run the code on real randomness, and count the answers."""
    rng = np.random.default_rng(seed)
    answers: collections.Counter[Hashable] = collections.Counter()
    seed_all(seed)
    with np.errstate(all="ignore"):
        for _ in range(checks):
            try:
                answers[function(rng.random(num_uniforms))] += 1
            except Exception:
                answers[Raised] += 1
    return answers


def _surprise(answers: collections.Counter[Hashable], law: TracedLaw) -> float:
    """Return the log-evidence of answers against every law within the error of the traced law.

    Jointly, and of the interval of each answer: what is known of it, up to that and the error.
    """
    seen = [answers[value] for value in law.mass]
    counts = np.asarray([*seen, answers.total() - sum(seen)])
    least = np.minimum([*law.mass.values(), 0.0], 1.0)
    most = np.minimum(least + law.error, 1.0)
    # at most: a larger likelihood is a smaller evidence
    jointly = float(log_evidence(counts, most))
    return log_mean(jointly, log_interval_evidence(counts, least, most))


def contradicts_samples(laws: Sequence[TracedLaw]) -> bool:
    """Return True if executions on real randomness contradict the traced laws, taken together.

    Independent e-values multiply, so that the evidence against each adds up in logarithms.

    Args:
        laws: from `trace` or `trace_each`.

    Returns:
        True if the evidence reaches 10⁹, which true laws do with probability at most 10⁻⁹.

    Raises:
        InvalidParameter: if one is no `TracedLaw`.

    Cost: O(number of laws); the executions were made by `trace`.

    >>> import numpy as np
    >>> fixed = trace(lambda u: bool(np.random.default_rng(7).random() < 0.5))  # a seed in the code
    >>> fixed.mass, contradicts_samples([fixed])
    ({True: 0.5, False: 0.5}, True)
    """
    check_instance(laws, Sequence, name="laws")
    found = [check_instance(law, TracedLaw, name="A traced law") for law in laws]
    return math.fsum(law.surprise for law in found) >= math.log(SURPRISE)
