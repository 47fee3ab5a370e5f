"""Randomness of decoding algorithms: all random steps, sampled or enumerated.

An algorithm asks a `Randomness` for its random steps: choose a token, accept with a probability,
draw drafts, run a verifier's rule, run a race. There are two. `Sampled` executes: drafts are drawn
and rules verified by their published steps on uniforms. `Enumerated` follows every sequence of
outcomes in turn and knows the probability of each, from the laws of the steps (a rule's conditional
law, a race's coupling), never from their samplers. The exact law of any algorithm that is written
against a `Randomness` follows, and the two accounts of a rule stay independent witnesses.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import inverse_cdf
from otm._machine.patience import Pace
from otm.drafts.base import Law, live_drafts
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import InvalidParameter, Unsupported
from otm.pmf import RNGLike, check_instance, check_rng
from otm.problem import Problem
from otm.races import log_exponentials
from otm.sequence.shared_noise import NoiseRow, SharedNoise, perturbed, winner_by_cells
from otm.verifiers.base import Conditional, Verifier, check_drafts, require_support
from otm.verifiers.race import Race, first_arrivals

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, eq=False)
class RaceState:
    """A draft race, stored for the target's race on the same noise.

    Attributes:
        drafts: its first arrivals `(k,)`.
        draft: the draft distribution `(V,)`, the tokens' rates.
        exact: the noise g `(V,)`, minus the logarithms of the clocks; None in an enumeration.
    """

    drafts: NDArray[np.int64]
    draft: NDArray[np.float64]
    exact: NDArray[np.float64] | None


class Randomness(abc.ABC):
    """An executor of the random steps of a decoding algorithm."""

    @abc.abstractmethod
    def choose(self, mass: NDArray[np.float64]) -> int:
        """Choose a token with probability mass / Σ mass; `(V,)`."""

    @abc.abstractmethod
    def accept(self, probability: float) -> bool:
        """Return True with the given probability."""

    @abc.abstractmethod
    def draw(self, law: Law, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw drafts `(k,)` from a draft law on the draft distribution `(V,)`."""

    @abc.abstractmethod
    def verify(
        self,
        verifier: Verifier,
        law: Law,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
    ) -> int:
        """Return a verifier's output token for drafts `(k,)` of one pair of distributions."""

    @abc.abstractmethod
    def sample(self, target: NDArray[np.float64], position: int) -> int:
        """Sample the target's token at an absolute position, on the position's noise if any."""

    @abc.abstractmethod
    def race(self, mass: NDArray[np.float64], k: int, position: int) -> RaceState:
        """Run a draft race on a position's noise; the first k arrivals are the drafts."""

    @abc.abstractmethod
    def noise(self, position: int, num_tokens: int, cells: int | None) -> NoiseRow:
        """Return a position's noise, with the drafter's view in `cells` cells, exact for None."""

    @abc.abstractmethod
    def winner(self, target: NDArray[np.float64], state: RaceState | NoiseRow) -> int:
        """Sample the target's token on the noise seen by the drafter."""

    @abc.abstractmethod
    def without_noise(self) -> Randomness:
        """Return the randomness without noise by position, for texts other than the target's."""


class Sampled(Randomness):
    """Executes every step of one text on uniforms from a generator.

    Args:
        rng: a NumPy generator, or a seed of one.
        noise: by position, on which a `MatchingDecoder` samples the target: what it writes is then
            a function of noise and target. Without, drafters that look at noise ahead of the text
            (`NoiseTree`) draw a seed from `rng`, once: one `Sampled` is one text.

    Attributes:
        rng: the generator.

    Raises:
        InvalidParameter: if `rng` is not a generator, or `noise` no `SharedNoise`.

    >>> import numpy as np
    >>> Sampled(np.random.default_rng(0)).choose(np.array([0.0, 1.0]))
    1
    """

    def __init__(self, rng: RNGLike, noise: SharedNoise | None = None) -> None:
        self.rng = check_rng(rng)
        self._noise = noise if noise is None else check_instance(noise, SharedNoise, name="noise")

    def choose(self, mass: NDArray[np.float64]) -> int:
        """Invert the distribution function at one uniform."""
        return int(inverse_cdf(mass, self.rng.random(1))[0])

    def accept(self, probability: float) -> bool:
        """Compare one uniform with the probability."""
        return bool(self.rng.random() < probability)

    def draw(self, law: Law, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw by the law's sampler."""
        return np.asarray(law.draw(mass, self.rng.random((1, law.num_uniforms(len(mass)))))[0])

    def verify(
        self,
        verifier: Verifier,
        law: Law,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
    ) -> int:
        """Execute the published steps of the rule."""
        rule = prepare_conditional(verifier, law, draft, target)
        rows = check_drafts(drafts, rule.problem)
        output, _ = rule.verify(rows, self.rng.random((1, rule.num_uniforms)), None)
        return int(output[0])

    def sample(self, target: NDArray[np.float64], position: int) -> int:
        """Take the first arrival on the position's noise; without any, invert at a uniform."""
        if self._noise is None:
            return self.choose(target)
        return _first(target, self._gumbels(position, len(target)))

    def race(self, mass: NDArray[np.float64], k: int, position: int) -> RaceState:
        """Start one exponential clock per token."""
        noise = self._gumbels(position, len(mass))
        drafts = first_arrivals(-perturbed(mass, noise)[None], k)[0]
        return RaceState(drafts=drafts, draft=mass, exact=noise)

    def noise(self, position: int, num_tokens: int, cells: int | None) -> NoiseRow:
        """Return the position's noise, of a seed that stays for the whole text."""
        if self._noise is None:
            self._noise = SharedNoise(int(self.rng.random() * 2.0**53))
        return NoiseRow.of(self._noise.row(position, num_tokens), cells)

    def winner(self, target: NDArray[np.float64], state: RaceState | NoiseRow) -> int:
        """Return argmax(log q + g)."""
        if state.exact is None:
            raise InvalidParameter(
                "The target samples on the noise that the drafter has seen; this state holds none. "
                "Use the Randomness that drew it."
            )
        return _first(target, state.exact)

    def without_noise(self) -> Sampled:
        """Return the generator's."""
        return Sampled(self.rng)

    def _gumbels(self, position: int, num_tokens: int) -> NDArray[np.float64]:
        if self._noise is not None:
            return self._noise.row(position, num_tokens)
        return -log_exponentials(self.rng.random(num_tokens))


class Enumerated(Randomness):
    """Follows one sequence of outcomes after another; `outcomes` leads it through all of them.

    Attributes:
        mass: probability of the outcomes followed so far in this run.
    """

    def __init__(self, memory: dict[object, Any]) -> None:
        self.mass = 1.0
        self._trail: list[_Fork] = []
        self._position = 0
        self._memory = memory
        self._rows: dict[int, NoiseRow] = {}

    def choose(self, mass: NDArray[np.float64]) -> int:
        """Fork over the tokens of positive mass."""
        return self._choose(("choose", mass.tobytes()), lambda: mass / mass.sum())

    def accept(self, probability: float) -> bool:
        """Fork over yes and no, where both are possible."""
        if probability >= 1.0 or probability <= 0.0:
            return probability >= 1.0
        return bool(self._fork((True, False), (probability, 1.0 - probability)))

    def draw(self, law: Law, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """Fork over every draft sequence of positive mass."""
        key = ("draw", law, mass.tobytes())
        drafts: NDArray[np.int64] = self._fork(*self._remember(key, lambda: _sequences(law, mass)))
        return drafts

    def verify(
        self,
        verifier: Verifier,
        law: Law,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
    ) -> int:
        """Fork over the output, by the rule's conditional law."""
        pair = (verifier, law, draft.tobytes(), target.tobytes())

        def output_law() -> NDArray[np.float64]:
            rule = self._remember(
                ("rule", *pair), lambda: prepare_conditional(verifier, law, draft, target)
            )
            accepted, residual = rule.split(check_drafts(drafts, rule.problem))
            return np.asarray(accepted[0] + residual[0])

        return self._choose(("verify", *pair, drafts.tobytes()), output_law)

    def sample(self, target: NDArray[np.float64], position: int) -> int:
        """Fork over the tokens of positive mass, or over the winner given the cells."""
        known = self._rows.get(position)
        return self.choose(target) if known is None else self.winner(target, known)

    def race(self, mass: NDArray[np.float64], k: int, position: int) -> RaceState:
        """Fork over the first k arrivals, tokens without replacement.

        Races of one position count as independent: the output reaches one of them only.
        """
        return RaceState(drafts=self.draw(WithoutReplacement(k), mass), draft=mass, exact=None)

    def noise(self, position: int, num_tokens: int, cells: int | None) -> NoiseRow:
        """Fork over the cell of each token's noise, once for every position.

        Raises:
            Unsupported: if the drafter sees all of it.
        """
        if cells is None:
            raise Unsupported(
                "Noise has a continuous law, which no enumeration goes through. Let the drafter "
                "see some cells of it, NoiseTree(..., cells=2), or estimate with "
                "otm.sequence.noise_tokens."
            )
        if position not in self._rows:
            every = list(itertools.product(range(cells), repeat=num_tokens))
            cell = self._fork(every, [1.0 / len(every)] * len(every))
            row = NoiseRow.of_cells(np.array(cell, dtype=np.int64), cells, None)
            self._rows[position] = row
        return self._rows[position]

    def winner(self, target: NDArray[np.float64], state: RaceState | NoiseRow) -> int:
        """Fork over the winner given the arrivals, by the coupling of the two races, or given the
        cells.
        """
        if isinstance(state, NoiseRow):
            assert state.cell is not None  # as `noise` made it
            key = ("cells", state.cells, state.cell.tobytes(), target.tobytes())
            return self._choose(key, lambda: winner_by_cells(target, state))
        pair = (state.draft.tobytes(), target.tobytes())
        drafts = tuple(state.drafts.tolist())

        def winner_law() -> NDArray[np.float64]:
            rows = self._remember(
                ("coupling", len(drafts), *pair),
                lambda: _race_rows(state.draft, target, len(drafts)),
            )
            # Drafts too unlikely for the coupling's quadrature (masses like 1e-300) have no row;
            # the winner's own law is a law.
            return np.asarray(rows.get(drafts, target))

        return self._choose(("winner", drafts, *pair), winner_law)

    def without_noise(self) -> Enumerated:
        """Return the object itself: here no draft is made on the noise of the target's own text."""
        return self

    @property
    def share(self) -> float:
        """Return the enumerated share of all outcomes, as if every fork continued alike."""
        found, width = 0.0, 1.0
        for fork in self._trail:
            width /= fork.num_options
            found += fork.taken * width
        return found

    def advance(self) -> bool:
        """Move to the next sequence of outcomes; False when all have been followed."""
        while self._trail and self._trail[-1].taken + 1 == self._trail[-1].num_options:
            self._trail.pop()
        if not self._trail:
            return False
        self._trail[-1].taken += 1
        self.mass, self._position = 1.0, 0
        self._rows.clear()
        return True

    def _choose(self, key: object, law: Callable[[], NDArray[np.float64]]) -> int:
        """Fork over the tokens of positive mass in a law, and cache the forks."""
        return int(self._fork(*self._remember(key, lambda: _positive(law()))))

    def _remember(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]

    def _fork(self, options: Sequence[Any], masses: Sequence[float]) -> Any:
        if self._position == len(self._trail):
            self._trail.append(_Fork(num_options=len(options)))
        taken = self._trail[self._position].taken
        self._position += 1
        self.mass *= masses[taken]
        return options[taken]


@dataclasses.dataclass
class _Fork:
    num_options: int
    taken: int = 0


def outcomes(
    run: Callable[[Randomness], Result], *, memory: dict[object, Any] | None = None
) -> Iterator[tuple[Result, float]]:
    """Run an algorithm through every sequence of outcomes and give each result's probability.

    Args:
        run: the algorithm, whose result is a function of the outcomes alone.
        memory: laws computed before, kept for further enumerations over the same models.

    Yields:
        (result, probability); the probabilities sum to 1.

    Raises:
        TooLarge: where all outcomes would take more than 60 seconds.

    Cost: one run per outcome.

    >>> sum(mass for heads, mass in outcomes(lambda s: s.accept(0.25) and s.accept(0.5)) if heads)
    0.125
    """
    if not callable(run):
        raise InvalidParameter(
            f"run must be a function of a Randomness; got {run!r:.80}. Pass the function itself."
        )
    randomness = Enumerated({} if memory is None else memory)
    pace = Pace(
        "An enumeration of outcomes",
        "Take a smaller vocabulary, tree or length, or sample with otm.sequence.generate.",
    )
    yield run(randomness), randomness.mass
    while randomness.advance():
        pace.check(randomness.share)
        yield run(randomness), randomness.mass


def prepare_conditional(
    verifier: Verifier, law: Law, draft: NDArray[np.float64], target: NDArray[np.float64]
) -> Conditional:
    """Prepare a verifier that needs only the drafts.

    Raises:
        Unsupported: if it does not verify this law, or shares randomness with the drafter.
    """
    require_support(verifier, law)
    rule = verifier.prepare(Problem(draft=draft, target=target, law=law))
    if not isinstance(rule, Conditional):
        raise Unsupported(
            f"Drafts of {law!r} carry no shared randomness here; {verifier!r} needs it. Use "
            "otm.sequence.Ersd for exponential races, or choose another verifier."
        )
    return rule


def _first(target: NDArray[np.float64], noise: NDArray[np.float64]) -> int:
    """Return the first arrival, argmax(log q + g)."""
    return int(np.argmax(perturbed(target, noise)))


def _positive(mass: NDArray[np.float64]) -> tuple[list[int], list[float]]:
    live = np.flatnonzero(mass > 0)
    return live.tolist(), mass[live].tolist()


def _sequences(law: Law, mass: NDArray[np.float64]) -> tuple[list[NDArray[np.int64]], list[float]]:
    table = live_drafts(law, mass)
    return list(table.tokens), table.mass.tolist()


def _race_rows(
    draft: NDArray[np.float64], target: NDArray[np.float64], k: int
) -> dict[tuple[int, ...], NDArray[np.float64]]:
    joint = Race().prepare(Problem(draft=draft, target=target, law=WithoutReplacement(k))).joint()
    dense = joint.joint.toarray()
    return {
        tuple(row): mass / mass.sum()
        for row, mass in zip(joint.drafts.tolist(), dense, strict=True)
        if mass.sum() > 0
    }
