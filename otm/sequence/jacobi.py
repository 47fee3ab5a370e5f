"""Speculative Jacobi decoding: a window of drafts made by the target's own last pass.

One pass gives the target's laws at all positions of a window, each after the drafts before it. A
draft is then coupled to its new law: where all before it stands this is verification, and the first
draft that changes ends the step; beyond it is a redraw for the next pass. How a redraw is coupled
is free, as long as a position never looks at those to its right (docs/theory.md, "Jacobi
decoding").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np

from otm._machine.arrays import Floats
from otm._machine.patience import Pace
from otm.drafts.iid import IID
from otm.errors import Unsupported
from otm.pmf import RNGLike, check_choice, check_count, check_instance
from otm.scheme import Scheme, parameter
from otm.sequence.decoding import Generation
from otm.sequence.drafted_tree import Step
from otm.sequence.models import (
    Context,
    LanguageModel,
    Memoised,
    check_context,
    check_model,
    next_distributions,
    require_affordable_law,
)
from otm.sequence.randomness import RaceState, Randomness, Sampled, outcomes
from otm.verifiers.maximal import Maximal


class JacobiDraft(NamedTuple):
    """A position of the window: the token, the law that drew the token, and the noise."""

    token: int
    law: Floats
    noise: RaceState | tuple[float, float] | None = None


class JacobiState(NamedTuple):
    """The state between two steps: the text so far, and the window of drafts after the text."""

    context: Context
    window: tuple[JacobiDraft, ...]


@final
@dataclasses.dataclass(frozen=True)
class Jacobi(Scheme):
    """Speculative Jacobi decoding, which drafts without a draft model.

    Couplings of a position's draft with its law in the next pass, all lossless:

    * "independent": drawn afresh, but verified by rejection where the text before it stands (SJD).
    * "maximal": rejection everywhere, so that a draft stays with probability Σ min of the two laws.
    * "race": the first arrival of one exponential race per position, for all passes.
    * "inversion": the quantile of one uniform per position; of two tokens the same as "race".

    Args:
        window: W ≥ 1 drafts; positions that enter it have a uniform draft.
        coupling: one of the above.

    Raises:
        InvalidParameter: if either is out of range.

    Cost: a target call per step, on W + 1 positions.
    Reference: Teng et al. 2024 (SJD); So et al. 2025 (couplings between passes).

    >>> import otm
    >>> model = otm.sequence.ZerothOrder([0.0, 1.0])
    >>> text = jacobi_generate(Jacobi(2), model=model, context=[], num_tokens=6, rng=0)
    >>> text.tokens
    (1, 1, 1, 1, 1, 1)
    """

    title = "speculative Jacobi"
    display_fields = ("coupling",)

    window: int = parameter(check_count, default=4)
    coupling: Literal["independent", "maximal", "race", "inversion"] = parameter(
        check_choice, default="maximal", choices=("independent", "maximal", "race", "inversion")
    )

    def start(
        self, *, model: LanguageModel, context: Sequence[int], randomness: Randomness
    ) -> JacobiState:
        """Return the state before the first step."""
        check_model(model, name="target")
        check_instance(randomness, Randomness, name="randomness")
        return self._filled(check_context(context), (), model.num_tokens, randomness)

    def step(
        self, state: JacobiState, *, model: LanguageModel, randomness: Randomness
    ) -> tuple[Step, JacobiState]:
        """Decode at least one token by one call of the model, and return the next state."""
        context, window = state
        tokens = [draft.token for draft in window]
        contexts = [(*context, *tokens[:place]) for place in range(len(window) + 1)]
        laws = next_distributions(model, contexts, name="target")
        decoded: list[int] = []
        rest: list[JacobiDraft] = []
        stands = True
        for draft, before in zip(window, contexts, strict=False):
            new = self._coupled(draft, laws[before], stands, randomness)
            if stands:
                decoded.append(new.token)
                stands = new.token == draft.token
            else:
                rest.append(new)
        accepted = len(decoded) if stands else len(decoded) - 1
        if stands:
            decoded.append(randomness.choose(laws[contexts[-1]]))
        one = Step(tuple(decoded), accepted, "end_of_draft" if stands else "rejected")
        text = (*context, *decoded)
        return one, self._filled(text, tuple(rest), model.num_tokens, randomness)

    def _filled(
        self,
        context: Context,
        window: tuple[JacobiDraft, ...],
        num_tokens: int,
        randomness: Randomness,
    ) -> JacobiState:
        """Fill the window with uniform drafts."""
        flat = np.full(num_tokens, 1.0 / num_tokens)
        for position in range(len(context) + len(window), len(context) + self.window):
            if self.coupling == "race":
                race = randomness.race(flat, 1, position)
                draft = JacobiDraft(int(race.drafts[0]), flat, race)
            elif self.coupling == "inversion":
                draft = _inverted((0.0, 1.0), flat, randomness)
            else:
                draft = JacobiDraft(randomness.choose(flat), flat)
            window = (*window, draft)
        return JacobiState(context, window)

    def _coupled(
        self, draft: JacobiDraft, law: Floats, stands: bool, randomness: Randomness
    ) -> JacobiDraft:
        """Return the draft after a pass that gives the position the law `law`."""
        if isinstance(draft.noise, RaceState):
            if draft.noise.exact is None:
                raise Unsupported(
                    "A race that several laws are run on has a continuous state, which no "
                    'enumeration goes through. Take coupling="inversion", which is the same for '
                    "two tokens, or sample with otm.sequence.jacobi_generate."
                )
            return JacobiDraft(randomness.winner(law, draft.noise), law, draft.noise)
        if draft.noise is not None:
            return _inverted(draft.noise, law, randomness)
        if stands or self.coupling == "maximal":
            drawn = np.array([draft.token])
            return JacobiDraft(randomness.verify(Maximal(), IID(1), draft.law, law, drawn), law)
        return JacobiDraft(randomness.choose(law), law)


def jacobi_generate(
    scheme: Jacobi, *, model: LanguageModel, context: Sequence[int], num_tokens: int, rng: RNGLike
) -> Generation:
    """Decode a text of `num_tokens` tokens by speculative Jacobi decoding.

    Args:
        scheme: window and coupling.
        model: the target.
        context: tokens so far.
        num_tokens: tokens wanted, at least 1; the last step is cut there.
        rng: a NumPy generator, or a seed of one.

    Returns:
        Generation; its tokens have the model's law.

    Raises:
        InvalidParameter: on a wrong argument. InvalidDistribution: if the model returns none.

    Cost: one target call per step.

    >>> from otm.sequence import markov_pair
    >>> _, model = markov_pair(3, order=1, similarity=0.5, rng=0)
    >>> text = jacobi_generate(Jacobi(4), model=model, context=[0], num_tokens=300, rng=1)
    >>> 1 < text.tokens_per_call < 5
    True
    """
    check_instance(scheme, Jacobi, name="scheme")
    wanted, randomness = check_count(num_tokens, name="num_tokens"), Sampled(rng)
    state = scheme.start(model=model, context=context, randomness=randomness)
    begin, done = len(state.context), list[Step]()
    while len(state.context) < begin + wanted:
        one, state = scheme.step(state, model=model, randomness=randomness)
        done.append(one)
    return Generation(state.context[begin : begin + wanted], tuple(done), ended=False)


class JacobiLaw(NamedTuple):
    """The law of the first L tokens `(V,) * L`, and the expected number of steps for L tokens."""

    distribution: Floats
    steps: float


def jacobi_law(
    scheme: Jacobi, *, model: LanguageModel, context: Sequence[int], length: int
) -> JacobiLaw:
    """Return the exact law of the text of speculative Jacobi decoding, and the expected steps.

    Every outcome of every pass is followed, and equal states are followed as one.

    Args:
        scheme, model, context: as for `jacobi_generate`; not the coupling "race".
        length: L ≥ 1 tokens.

    Returns:
        JacobiLaw(distribution, steps).

    Raises:
        TooLarge: where all outcomes would take more than 60 seconds, or beyond 2²⁴ sequences.
        Unsupported: for races, whose noise is continuous.

    Cost: V^{W+1} outcomes for each of some V^{L+W} states: toys. Accuracy: exact up to rounding.

    >>> from otm.sequence import ZerothOrder
    >>> found = jacobi_law(Jacobi(1), model=ZerothOrder([0.75, 0.25]), context=[], length=1)
    >>> found.distribution.round(12).tolist(), found.steps
    ([0.75, 0.25], 1.0)
    """
    check_instance(scheme, Jacobi, name="scheme")
    check_model(model, name="target")
    wanted = check_count(length, name="length")
    require_affordable_law(model.num_tokens, max(wanted, scheme.window))
    begin, judge = len(check_context(context)), Memoised(model)
    memory: dict[object, Any] = {}
    law, steps = np.zeros((model.num_tokens,) * wanted), 0.0
    states = _merged(
        outcomes(lambda r: scheme.start(model=judge, context=context, randomness=r), memory=memory),
        1.0,
        {},
    )
    pace = Pace("An enumeration of passes", "Take a smaller window, vocabulary or length.")
    passes = 0
    while states:
        going: _States = {}
        done = 0.0
        for state, mass in states.values():
            done += mass
            pace.check(max((passes + done) / (wanted + 1), 1e-300))  # a pass adds a token at least
            text = state.context[begin : begin + wanted]
            if len(text) == wanted:
                law[text] += mass
                continue
            steps += mass

            def follow(randomness: Randomness, state: JacobiState = state) -> JacobiState:
                return scheme.step(state, model=judge, randomness=randomness)[1]

            _merged(outcomes(follow, memory=memory), mass, going)
        states, passes = going, passes + 1
    return JacobiLaw(law, steps)


_States = dict[tuple[object, ...], tuple[JacobiState, float]]


def _merged(found: Iterable[tuple[JacobiState, float]], mass: float, states: _States) -> _States:
    """Add weighted states to a table, summing the masses of equal states."""
    for state, chance in found:
        window = tuple((each.token, each.law.tobytes(), each.noise) for each in state.window)
        _, before = states.get((state.context, window), (state, 0.0))
        states[state.context, window] = (state, before + mass * chance)
    return states


def _inverted(within: tuple[float, float], law: Floats, randomness: Randomness) -> JacobiDraft:
    """Draw from a law at a uniform known up to an interval; return token and narrower interval."""
    ends = np.append(0.0, np.cumsum(law) / law.sum())
    low, high = np.maximum(ends[:-1], within[0]), np.minimum(ends[1:], within[1])
    token = randomness.choose(np.maximum(high - low, 0.0))
    return JacobiDraft(token, law, (float(low[token]), float(high[token])))
