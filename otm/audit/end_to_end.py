"""Audits of code that drafts, verifies and goes on by itself: the joint law of the written tokens,
exact where all draws can be branched on, else by samples.

The code is a function without arguments that returns rows of tokens; all randomness is its own.
Where every draw can be followed (`otm.audit.tracing.branching`) its law is known exactly. Where one
cannot, the verdict is that of samples with proved error rates, and the report says what stood in
the way. A row that is shorter than the length looked at is followed by samples of the target, as it
would be: a lossless step leaves the law of the text untouched (SpecTr, Theorem 3).

A battery checks such code on pairs of toy models, shapes of a tree or requests. What a callable
does not take (a batch, an end of sequence) is left out, and said so.

The simplest such code is a decoding step (`StepCandidate`), where the faults between drafter and
verifier are. A verifier that is lossless for given drafts may be handed drafts that are not what it
takes them for: drawn with the noise that it uses again, cut short after a look at them, taken from
a stale cache. A step drafts and verifies in one call.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm._machine.patience import Stopwatch
from otm.audit import standard_problems as standard
from otm.audit.budget import DETECT_END_TO_END, USUAL, Errors, check_errors
from otm.audit.candidate import Check, FunctionCandidate, Scope, as_kind
from otm.audit.drafted import BudgetSplit
from otm.audit.integration import (
    Facts,
    IntegratedAudit,
    Next,
    Row,
    check_tolerance,
    completions,
    decided,
)
from otm.audit.report import STATE, Audit, Coverage
from otm.audit.sampled_audit import Drawing, Drawn, SampledAudit, audit_of_draws
from otm.audit.tracing.answers import CandidateFailure, Failed, outcome_of
from otm.audit.tracing.branching import CHECKS, MOST_SECONDS
from otm.audit.tracing.execution import TraceAborted
from otm.audit.tracing.intercept.interception import preserved
from otm.audit.tracing.output_law import OutputLaw, contradicts, traced_law_of
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, TooLarge, Unsupported
from otm.logits import Processing
from otm.pmf import RNGLike, check_count, check_real, check_rng
from otm.sequence.models import (
    Absorbing,
    DerivedModel,
    LanguageModel,
    Memoised,
    check_context,
    check_model,
)

MOST_SAMPLES = 200_000
"""Largest plan of samples: code that decodes is slow."""

_FIRST_LOOK = 250

DRAWS = "rng=np.random.default_rng(0)"
"""The generator in the Python that repeats an audit."""

NOT_PROCESSED = ("processing of logits",)
"""What is not covered where laws are handed over."""

FLOOR = 0.1
"""The smallest total variation that samples of a battery are planned to find: each is a run."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JointAudit(IntegratedAudit):
    """The exact law of the tokens written on one instance; `str` gives the report in Markdown.

    `law` is the law of the rows' tokens, an axis for each token of each row.
    """

    drafts: ClassVar[str] = "draw"
    outcome: ClassVar[str] = "tokens"

    def picture(self, ax: Any) -> None:
        """Draw the total variation as a bar."""
        drawing.draw_bars(
            ax,
            names=self.tested.instances,
            values=[self.total_variation],
            xlabel="total variation to the target",
        )

    def footnote(self) -> str:
        """Return the tokens with the largest deviation."""
        return f"worst {self.worst}"

    def around(self, distance: Facts) -> Facts:
        """Return the instance and the distance."""
        return [("instance", self.tested.instances[0]), *distance]


WrittenAudit = JointAudit | SampledAudit
"""Exact where the code's draws can be followed, else by samples."""


def joint(
    write: Callable[[], Sequence[Row]],
    targets: Sequence[Next],
    length: int,
    *,
    name: str,
    instance: str,
    covered: tuple[str, ...],
    not_covered: tuple[str, ...],
    rng: RNGLike,
    tolerance: float | None,
    errors: Errors,
    seconds: float,
    draft: NDArray[np.float64] | None = None,
) -> WrittenAudit:
    """Return the audit of code that writes rows, against the target of each row.

    Args:
        write: writes a row for each target, 1 to `length` tokens each.
        targets: the distribution of the next token after what a row has so far, for each row.
        length: how many tokens of each row are compared jointly.
        name: of the code.
        instance: what it is run on, in words.
        covered, not_covered: what the verdict is about, beside numbers of tokens, and what not.
        rng, tolerance, errors, seconds: as of `otm.audit.step`.
        draft: the draft's law of the first token, if there is one.
    """
    branching = check_real(seconds, name="seconds", low=0.0)
    check_errors(errors)
    generator = check_rng(rng)
    num_tokens, size = len(targets[0](())), len(targets) * length
    if num_tokens ** min(size, MAX_SEQUENCES.bit_length()) > MAX_SEQUENCES:
        raise TooLarge(
            f"The joint law of {size} tokens has {num_tokens}^{size} entries, at most "
            f"{MAX_SEQUENCES:,} are enumerated. Use a "
            "smaller toy model, fewer rows or a shorter length."
        )
    laws = [functools.cache(target) for target in targets]
    target_law = _law_after(laws, [()] * len(laws), length)
    tested = Coverage(
        instances=(instance,),
        subjects=covered,
        tokens=(length,),
        vocabulary=(num_tokens,),
        untested=(f"more than {length:,} tokens of a text", *not_covered, "laws in float32"),
    )
    allowed = check_tolerance(tolerance, num_tokens * size, length)

    def value(uniforms: Any) -> Any:
        return outcome_of(lambda: _checked(write(), len(targets), num_tokens, length))

    try:
        if not branching:
            raise TraceAborted("no time was left to follow its draws")
        found = traced_law_of(
            [value],
            [1.0],
            0,
            tolerance=allowed,
            described=instance,
            most_seconds=branching,
            seeds=1,  # `seeded_rng`
        )
        exact = decided(
            JointAudit(
                name=name,
                law=_law_of(found, laws, target_law.shape, length),
                target_law=target_law,
                tested=tested,
                tolerance=allowed,
                draft=draft,
            ),
            dataclasses.replace(found, method="branched"),
            tolerance,
        )
        # few parts of a law that is not known may agree with the code by chance
        by_chance = exact.verdict != "lossless" and found.error > allowed and found.cells < CHECKS
        if exact.verdict != "undecided" and not by_chance:
            return exact
        reason = f"the law is known to ± {found.error:.2g} only"
    except TraceAborted as error:
        reason = str(error)

    def draw(size: int) -> Drawn:
        with preserved(seed=int(generator.integers(2**31))):
            texts = [_text(value(np.empty(0)), laws, length, generator) for _ in range(size)]
        columns: tuple[NDArray[np.int64], ...] = tuple(np.transpose(texts))
        return Drawn(np.ravel_multi_index(columns, target_law.shape))

    mass = target_law.reshape(-1) / target_law.sum()
    tested = dataclasses.replace(tested, untested=(*tested.untested, STATE))
    audit = audit_of_draws(
        Drawing(draw, mass, mass, None, tested, target_law.shape),
        name=name,
        errors=errors,
        detect=DETECT_END_TO_END,
        most_samples=MOST_SAMPLES,
        first_look=_FIRST_LOOK,
    )
    return dataclasses.replace(audit, reason=reason)


def _law_of(
    found: OutputLaw, laws: Sequence[Next], shape: tuple[int, ...], length: int
) -> NDArray[np.float64]:
    """Return the joint law of the rows' tokens, each row continued by samples from the target."""
    law = np.zeros(shape)
    for rows, mass in found.totals:
        places = [[*row, *[slice(None)] * (length - len(row))] for row in rows]
        law[tuple(itertools.chain(*places))] += mass * _law_after(laws, rows, length)
    return law


def _law_after(laws: Sequence[Next], rows: Sequence[Row], length: int) -> NDArray[np.float64]:
    """Return the joint law of samples from each row's target after the row."""
    after = [completions(law, row, length) for law, row in zip(laws, rows, strict=True)]
    return functools.reduce(np.multiply.outer, after)


def _checked(rows: Any, size: int, num_tokens: int, length: int) -> tuple[Row, ...]:
    found = tuple(tuple(int(token) for token in row) for row in rows)
    if len(found) != size or any(
        not 0 < len(row) <= length or not all(0 <= x < num_tokens for x in row) for row in found
    ):
        raise CandidateFailure(
            f"The callable must return 1 to {length} tokens in [0, {num_tokens}) for each of "
            f"{size} rows; it returned {rows!r}. Pass a larger length where it may write more."
        )
    return found


def _text(rows: Any, laws: Sequence[Next], length: int, rng: np.random.Generator) -> list[int]:
    """Return the tokens of all rows in one list, each row completed by samples from the target."""
    if isinstance(rows, Failed):
        raise CandidateFailure(rows.message)
    text: list[int] = []
    for law, row in zip(laws, rows, strict=True):
        while len(row) < length:
            mass = law(row)
            row = (*row, int(rng.choice(len(mass), p=mass / mass.sum())))
        text += row
    return text


def _row(tokens: Any) -> Row:
    """Return the tokens that a call wrote."""
    return tuple(np.asarray(tokens).reshape(-1).tolist())


def seeded_rng() -> np.random.Generator:
    """Return a generator with a drawn seed: followed under trace, new on every real execution."""
    return np.random.default_rng(int(np.random.randint(2**31)))  # noqa: NPY002 (it is seeded and intercepted with the rest)


def check_end(end: int | None, num_tokens: int) -> None:
    """Raise `InvalidParameter` unless the end of sequence is a token or None."""
    if end is not None and check_count(end, name="end", minimum=0) >= num_tokens:
        raise InvalidParameter(
            f"end must be a token in [0, {num_tokens}), the models' vocabulary, or None; got "
            f"{end}. Choose one that they can write."
        )


def ending(model: LanguageModel, end: int | None, start: int) -> LanguageModel:
    """Return a model that repeats the end-of-sequence token, if any, after the first from `start`
    on.
    """
    return model if end is None else Absorbing(model, end, start)


@dataclasses.dataclass(frozen=True, eq=False)
class EndToEndCandidate(FunctionCandidate):
    """A candidate that draws the drafts by itself, or within the same call."""

    share: ClassVar[float] = 1.0

    @abc.abstractmethod
    def instances(self, scope: Scope) -> list[Check]:
        """Return a check for each standard instance, or on the scope's pair of laws.

        The checks run with a generator, a tolerance, errors and seconds; what no verdict needs is
        branched on, and not sampled.
        """

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield one check for each instance.

        Raises:
            InvalidParameter: if laws or lengths are given, or samples only are asked for.
        """
        if not scope.default:
            raise InvalidParameter(
                "laws and num_drafts are of verifiers that are handed their drafts; "
                f"{self.name!r} drafts by itself, or reads trees. Drop them."
            )
        if scope.sampled:
            raise InvalidParameter(
                f"{self.name!r} is {self.description}: its draws are branched on, and sampled "
                "where that is impossible. Drop only='sampled'."
            )
        found = sorted(self.instances(scope), key=lambda check: not check.needed)
        shares = BudgetSplit(scope, sum(check.needed for check in found))
        for check in found:
            yield within(shares, check)


def check_of(
    audit: Callable[..., WrittenAudit],
    candidate: FunctionCandidate,
    models: tuple[LanguageModel, LanguageModel],
    options: Mapping[str, Any],
    names: tuple[str, str, str],
    *,
    needed: bool = True,
) -> Check:
    """Return a check that runs an audit with options on toy models.

    Args:
        audit: `step`, or another function of `otm.audit` that takes the same.
        candidate: the code under audit.
        models: draft and target.
        options: of the audit, beside the models.
        names: instance, setting and group of the check.
        needed: whether a verdict needs it.
    """
    draft, target = models
    asked = "".join(f"{name}={value!r}, " for name, value in options.items())
    call = f"otm.audit.{audit.__name__}({{}}, draft=draft, target=target, {asked}{DRAWS})"
    run = functools.partial(audit, candidate, draft=draft, target=target, **options)
    again = f"{standard.written(draft, target)}result = {call}"
    return Check(*names, "exact", run, needed=needed, again=again)


def within(shares: BudgetSplit, check: Check) -> Check:
    """Return a check of code that drafts by itself within a share of the time."""
    return dataclasses.replace(check, run=functools.partial(_carry_out, shares, check))


def _carry_out(shares: BudgetSplit, check: Check) -> Audit:
    """Carry out one audit within a share of the time."""
    if shares.reason and not check.needed:
        raise Unsupported("Windows are for code whose draws can be followed")
    scope, watch, branching = shares.scope, Stopwatch(), shares.branching_of_one
    result = check.run(
        rng=scope.rng(check.name),
        tolerance=scope.tolerance,
        errors=shares.next(FLOOR, without=branching),
        seconds=branching,
    )
    if isinstance(result, SampledAudit):
        shares.branching -= min(branching, watch.seconds)
        shares.reason = shares.reason or result.reason
        if contradicts(result.reason):
            shares.distrust(result.reason)
    shares.followed |= not isinstance(result, SampledAudit)
    return dataclasses.replace(result, again=check.again)


@dataclasses.dataclass(frozen=True, eq=False)
class _After(DerivedModel):
    """A model after a context, seen by the step as the beginning."""

    model: LanguageModel
    context: tuple[int, ...]

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the distributions after the tokens so far."""
        return self.model.next_batch([(*self.context, *map(int, row)) for row in contexts])


@dataclasses.dataclass(eq=False)
class _Loop:
    """The contexts of the questions of one loop to two models, up to the second iteration.

    Attributes:
        catches_up: whether the draft model is also asked about the last draft, after the target.
        drafted: the longest context that the target model was asked about.
        asked: the longest context of the draft model's first question after that.
        text: the context of the question that begins the second iteration; from there on both
            models are certain of a token, so that the loop has one way to its end.
    """

    catches_up: bool
    drafted: tuple[int, ...] = ()
    asked: tuple[int, ...] | None = None
    text: tuple[int, ...] | None = None

    def draft(self, context: tuple[int, ...]) -> bool:
        """Note a question to the draft model; True if the first iteration is over."""
        if self.drafted and self.text is None:
            is_first = self.asked is None
            if is_first:
                self.asked = context
            if not (is_first and self.catches_up):
                self.text = context
        return self.text is not None

    def target(self, context: tuple[int, ...]) -> bool:
        """Note a question to the target model; True if the first iteration is over."""
        if self.text is None and len(context) > len(self.drafted):
            self.drafted = context
        return self.text is not None

    def models(self, draft: LanguageModel, target: LanguageModel) -> tuple[_Noting, _Noting]:
        """Return models that note all questions."""
        return _Noting(draft, self.draft), _Noting(target, self.target)

    def first(self, text: Row) -> Row:
        """Return the tokens that a returned text has from the first iteration.

        Raises:
            CandidateFailure: if it does not begin with what the draft model was asked about then.
        """
        end = text if self.text is None else self.text
        undecided = len(end) < len(self.drafted) and self.drafted[: len(end)] == end
        if text[: len(end)] != end or (self.text is not None and undecided):
            raise CandidateFailure(
                f"The callable returned {text}, and its draft model was asked again about {end} "
                f"after its target model was about {self.drafted}: the first iteration is told by "
                "a question about all that was written, when it is decided. Audit all it writes, "
                "without first_iteration."
            )
        return end


@dataclasses.dataclass(frozen=True, eq=False)
class _Noting(DerivedModel):
    """A model that notes the longest context of each question, certain of token 0 once a loop's
    first iteration is over.
    """

    model: LanguageModel
    is_over: Callable[[tuple[int, ...]], bool]

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the distributions."""
        if self.is_over(tuple(sorted(contexts, key=len)[-1])):
            return np.tile(np.eye(1, self.num_tokens), (len(contexts), 1))
        return self.model.next_batch(contexts)


@dataclasses.dataclass(frozen=True, eq=False)
class ProcessedModel(DerivedModel):
    """A model with processed laws: temperature and filters, as of logits that are logarithms."""

    model: LanguageModel
    processing: Processing

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the processed distributions."""
        with np.errstate(divide="ignore"):
            logits = np.log(self.model.next_batch(contexts))
        return np.asarray(self.processing(logits))


def _has_ties(model: LanguageModel) -> bool:
    """True if two tokens are the likeliest at the beginning, or after one token."""
    laws = model.next_batch([(), *((token,) for token in range(model.num_tokens))])
    return bool((np.sort(laws)[:, -1] == np.sort(laws)[:, -2]).any())


HEATS = (1.0, 0.5, 0.0)
"""Temperatures of a step that is told one."""

_HEATED = 2
"""Pairs of models for temperatures after the first."""

_TRIES, _OFTEN_REFUSED = 24, "after the token before"
"""Trial calls of a loop, and the models whose drafts are refused in some of them."""

_LOOKS = 152
"""Runs of a step in the search for the number of tokens per step."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepCandidate(EndToEndCandidate):
    """A decoding step that drafts by itself.

    Args:
        verify: the function, `step(draft_model, target_model, rng)`, as `otm.audit.step` takes it.
        name: what to call it in reports; the function's own name if empty.
        temperatures: for a function that takes one as fourth argument and applies it to the
            models' laws itself; every pair of models is audited at the first, some at the others.
        first_iteration: of a function that drafts and verifies again and again, audit the text of
            the first time alone: up to where the draft model is asked again after the target model
            was asked about a text with drafts (the second time, where every call asks it about its
            own last draft first). From there on both models are certain of one token.

    Raises:
        InvalidParameter: if `verify` cannot be called, or a temperature is no number ≥ 0.

    >>> StepCandidate(lambda draft, target, rng: [0], "zero").name
    'zero'
    """

    description: ClassVar[str] = "a step that drafts by itself"
    called: ClassVar[str] = "step(draft_model, target_model, rng)"

    temperatures: Sequence[float] = ()
    first_iteration: bool = False
    _known: dict[tuple[float, ...], bool] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        heats = [check_real(heat, name="temperature", low=0.0) for heat in self.temperatures]
        object.__setattr__(self, "temperatures", tuple(heats))
        if heats:
            object.__setattr__(self, "called", self.called.replace("rng)", "rng, temperature)"))

    def write(
        self, draft: LanguageModel, target: LanguageModel, rng: Any, temperature: float | None
    ) -> Row:
        """Return the tokens of one call, or of the first iteration."""
        heat = () if temperature is None else (temperature,)
        if not self.first_iteration:
            return _row(self.verify(draft, target, rng, *heat))
        loop = _Loop(self._catches_up(heat))
        return loop.first(_row(self.verify(*loop.models(draft, target), rng, *heat)))

    def _catches_up(self, heat: tuple[float, ...]) -> bool:
        """True if trial calls ask the draft model about the last draft after each verification."""
        if heat not in self._known:
            pair = standard.chained_models()[_OFTEN_REFUSED]
            loops = [_Loop(catches_up=False) for _ in range(_TRIES)]
            for seed, loop in enumerate(loops):
                with contextlib.suppress(Exception), preserved(seed=seed):
                    self.verify(*loop.models(*pair), np.random.default_rng(seed), *heat)
            self._known[heat] = all(loop.asked == loop.drafted for loop in loops)
        return self._known[heat]

    def instances(self, scope: Scope) -> list[Check]:
        """Return a check for every pair of models, over the length that the step writes."""
        length = max(standard.STEP_LENGTH, self._longest())
        models = standard.step_models(length, standard.chained_models(scope.pair))
        if not models:
            raise TooLarge(
                f"The step writes up to {length} tokens, more than joint laws are kept of. Let it "
                "draft fewer, or call otm.audit.step."
            )
        found = []
        # of two likeliest tokens greedy code may take either
        decided = [name for name, pair in models.items() if not any(map(_has_ties, pair))]
        for name, pair in models.items():
            needed = name not in standard.WINDOW_MODELS
            group = "steps" if needed else "windows"
            heats: Sequence[float | None] = self.temperatures or (None,)
            for heat in heats[: None if name in decided[:_HEATED] else 1]:
                if heat == 0.0 and name not in decided:
                    continue
                options: dict[str, Any] = {"length": length}
                setting = ""
                if heat is not None:
                    options["temperature"], setting = heat, f"temperature {heat:g}"
                names = name, setting, ", ".join(filter(None, (setting, group)))
                check = check_of(step, self, pair, options, names, needed=needed)
                if self.first_iteration:
                    candidate = "otm.audit.StepCandidate({}, first_iteration=True)"
                    check = dataclasses.replace(check, again=check.again.replace("{}", candidate))
                found.append(check)
        return found

    def _longest(self) -> int:
        """Return the largest number of tokens written in trial calls; failures are counted
        later.
        """
        longest = 0
        pairs = itertools.cycle(standard.chained_models().values())
        for seed, (draft, target) in enumerate(itertools.islice(pairs, _LOOKS)):
            # a drafter that is the target has all its drafts accepted
            drafter = target if seed % 2 else draft
            try:
                rng, heat = np.random.default_rng(seed), next(iter(self.temperatures), None)
                longest = max(longest, len(self.write(drafter, target, rng, heat)))
            except (Exception, SystemExit):
                break
        return longest


def step(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    length: int,
    rng: RNGLike,
    context: Sequence[int] = (),
    end: int | None = None,
    temperature: float | None = None,
    tolerance: float | None = None,
    errors: Errors = USUAL,
    seconds: float = MOST_SECONDS,
) -> WrittenAudit:
    """Audit a step that drafts by itself: compare the joint law of the tokens with the target's.

    Its tokens are followed by samples of the target.

    Args:
        candidate: a `StepCandidate`, or `step(draft_model, target_model, rng)` → 1 to `length`
            tokens. The models have `next(tokens)`, the distribution `(V,)` after the tokens that
            follow the context; randomness may come from `rng`, NumPy, `random` or torch.
        draft, target: toy models, `otm.sequence.TableModel` say.
        length: the most tokens that a step writes, γ + 1 as a rule; the law of so many is compared.
        rng: of samples, if there are any: a NumPy generator, or a seed of one.
        context: what the step continues.
        end: the token after which nothing else may come.
        temperature: the step takes it as fourth argument and applies it to the models' laws, as to
            logits that are their logarithms; 0 is the likeliest token.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless
            given.
        errors: of samples, if it comes to that; .05 is to be found unless they say otherwise.
        seconds: time for branching; where it is up before all is known, samples decide.

    Returns:
        WrittenAudit: exact where the code's draws can be followed, else sampled, with the reason.

    Raises:
        CandidateFailure: if the step raises or returns no tokens. TooLarge: beyond four million
            blocks.

    Cost: two runs of the step for each outcome of its draws.

    >>> import numpy as np
    >>> import otm
    >>> p, q = otm.sequence.ZerothOrder([0.5, 0.5]), otm.sequence.ZerothOrder([0.25, 0.75])
    >>> trusting = lambda draft, target, rng: [int(rng.choice(2, p=draft.next([])))]
    >>> found = step(trusting, draft=p, target=q, length=1, rng=np.random.default_rng(0))
    >>> found.verdict, found.total_variation
    ('not lossless', 0.25)
    """
    check_model(draft, name="draft")
    check_model(target, name="target")
    start = check_context(context)
    most = check_count(length, name="length")
    check_end(end, target.num_tokens)
    p, q = (_After(Memoised(ending(m, end, len(start))), start) for m in (draft, target))
    thing = as_kind(candidate, StepCandidate)
    laws: tuple[LanguageModel, LanguageModel] = p, q
    heats: tuple[float, ...] = ()
    if temperature is not None:
        heats = (check_real(temperature, name="temperature", low=0.0),)
        processing = Processing(temperature=temperature)
        laws = ProcessedModel(p, processing), ProcessedModel(q, processing)
    said = "".join(f", temperature {heat:g}" for heat in heats)
    later = (
        "what it writes after the first iteration"
        if thing.first_iteration
        else "state that passes to the next step"
    )
    audit = joint(
        lambda: [thing.write(p, q, seeded_rng(), temperature)],
        [laws[1].next],
        most,
        name=thing.name,
        instance=f"toy models on {q.num_tokens} tokens after context {start}{said}",
        covered=("a step that drafts by itself",),
        not_covered=(later, *NOT_PROCESSED * (not heats)),
        draft=laws[0].next([]),
        rng=rng,
        tolerance=tolerance,
        errors=errors,
        seconds=seconds,
    )
    return dataclasses.replace(audit, tested=dataclasses.replace(audit.tested, temperatures=heats))
