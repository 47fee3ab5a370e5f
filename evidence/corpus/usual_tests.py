"""What the tests that engines run on their verifiers notice of the corpus.

Six kinds of test, written down from what the public ones check:

* *greedy*: at temperature 0 the text equals that of the target alone (most end-to-end tests of
  engines);
* *valid*: every output is a token of the vocabulary (FlashInfer's test of its chain kernel);
* *order*: on one instance likelier tokens come out more often in 10,000 samples
  (transformers#34553);
* *distance ratio*: from 10 to 100,000 samples the L2 distance to the target falls at least 20 times
  as much as the root mean square distance to 100 random laws (vLLM's test of its rejection sampler:
  softmax of uniforms, here V = 10);
* *noise floor*: on one instance the total variation of 10,000 samples to the target is at most
  twice the mean of samples of the target (vLLM's test of the distribution);
* *chi-square*: at level 0.01 with 10,000 samples on one instance, which a correct verifier fails
  once in a hundred runs.

A test sees independent outputs, so what it sees is drawn here from the mutant's exact output law on
the test's instance. The mutant is met as such a test meets it: at temperature 1 without truncation
or padding, drafts sampled, and the first token of a block.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from evidence.corpus.mutant import Mutant, ToyModels
from otm.audit import Errors, exact, sampled, sequence
from otm.audit.candidate import UniformsCandidate
from otm.audit.sampled_audit import SampledAudit, outputs
from otm.audit.standard_problems import table_model
from otm.audit.tracing.answers import CandidateFailure
from otm.problem import Problem
from otm.sequence.models import TableModel, sequence_law

USUAL = ("greedy", "valid", "order", "distance ratio", "noise floor", "chi-square")
"""Names of the tests, in the order of the fields of `Noticed`."""

REPETITIONS = 100
_PAIRS, _TOKENS = 2, 10
_SAMPLES = 10_000
_ORDERED = ((0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1))
_BLOCKS = 12_000
_BLOCKS_DETECT = 1 / 16
"""What so many blocks of up to 16 kinds find."""


@dataclasses.dataclass(frozen=True)
class Noticed:
    """How often each kind of test fails on a verifier, as a share of runs.

    Attributes:
        greedy, valid, order, distance_ratio, noise_floor, chi_square: shares in [0, 1]; the first
            two tests involve no chance.
    """

    greedy: float
    valid: float
    order: float
    distance_ratio: float
    noise_floor: float
    chi_square: float


def run_usual_tests(mutant: Mutant, *, rng: np.random.Generator) -> Noticed:
    """Run every kind of test on a mutant, the random ones `REPETITIONS` times.

    Args:
        mutant: an entry of `BROKEN` or `CONTROLS`.
        rng: the source of the samples.

    Returns:
        Noticed.

    Cost: a few exact audits at V = 10.

    >>> from evidence.corpus import CONTROLS
    >>> run_usual_tests(CONTROLS[0], rng=np.random.default_rng(0)).greedy
    0.0
    """
    return noticed_by(functools.partial(output_law, mutant), fails_greedy_equality(mutant), rng=rng)


LawOf = Callable[[tuple[float, ...], tuple[float, ...]], NDArray[np.float64]]
"""The exact law of an output token `(V,)` from draft and target."""


def noticed_by(
    law_of: LawOf, differs: bool, *, rng: np.random.Generator, num_tokens: int = _TOKENS
) -> Noticed:
    """Return how often each kind of test fails on what has these output laws.

    Args:
        law_of: the law of the token that a test looks at.
        differs: whether its text at temperature 0 is another than the target's.
        rng: the source of the samples.
        num_tokens: V of the random laws.
    """
    chosen = random_pairs(_PAIRS, num_tokens)
    laws = [law_of(*pair) for pair in chosen]
    each = REPETITIONS // _PAIRS
    ratios = [
        fails_distance_ratio(law, q, rng)
        for law, (_, q) in zip(laws, chosen, strict=True)
        for _ in range(each)
    ]
    ordered = law_of(*_ORDERED)
    return Noticed(
        greedy=float(differs),
        valid=float(any(law.sum() < 1.0 - 1e-9 for law in laws)),
        order=float(np.mean([fails_order(ordered, rng) for _ in range(REPETITIONS)])),
        distance_ratio=float(np.mean(ratios)),
        noise_floor=float(
            np.mean([exceeds_noise_floor(laws[0], chosen[0][1], rng) for _ in range(REPETITIONS)])
        ),
        chi_square=float(
            np.mean([fails_chi_square(laws[0], chosen[0][1], rng) for _ in range(REPETITIONS)])
        ),
    )


@functools.cache
def random_pairs(
    count: int, num_tokens: int = _TOKENS
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]:
    """Return pairs (draft, target) of softmaxes of uniforms, on ten tokens unless told, the same on
    every call.
    """
    weights = np.exp(np.random.default_rng(2302).random((count, 2, num_tokens)))
    mass = weights / weights.sum(axis=-1, keepdims=True)
    return tuple((tuple(p), tuple(q)) for p, q in mass.tolist())


def output_law(
    mutant: Mutant, draft: tuple[float, ...], target: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the exact law of the (first) output token as a test of the kernel meets the mutant,
    `(V,)`.
    """
    if isinstance(mutant.instance, Problem):
        problem = Problem(draft=draft, target=target, law=mutant.law_in_tests)
        return exact(mutant.in_tests, problem).law
    p, q = (table_model(lambda context, row=row: row, len(row), 1) for row in (draft, target))  # type: ignore[misc]
    law = sequence(mutant.in_tests, draft=p, target=q, num_drafts=1).law
    return np.asarray(law.sum(axis=1), dtype=np.float64)


def fails_greedy_equality(mutant: Mutant) -> bool:
    """Whether the output differs from the target's argmax where both laws are certain."""
    if isinstance(mutant.instance, Problem):
        certain = np.eye(3)
        problems = [
            Problem(draft=p, target=q, law=mutant.law_in_tests)
            for p, q in itertools.product(certain, repeat=2)
        ]
        return any(_differs(mutant.in_tests, problem) for problem in problems)
    rng = np.random.default_rng(0)
    gamma = mutant.instance.num_drafts
    models = [
        ToyModels(_certain_model(gamma, rng), _certain_model(gamma, rng), gamma) for _ in range(10)
    ]
    return any(_differs(mutant.in_tests, pair) for pair in models)


def _certain_model(gamma: int, rng: np.random.Generator) -> TableModel:
    return table_model(lambda context: np.eye(3)[rng.integers(3)], 3, gamma)


def _differs(candidate: UniformsCandidate, instance: Problem | ToyModels) -> bool:
    try:
        if isinstance(instance, Problem):
            return exact(candidate, instance).total_variation > 0.5
        found = sequence(
            candidate, draft=instance.draft, target=instance.target, num_drafts=instance.num_drafts
        )
    except CandidateFailure:
        return True
    return found.total_variation > 0.5


def fails_order(law: NDArray[np.float64], rng: np.random.Generator) -> bool:
    """Whether likelier tokens fail to come out more often; `law` is over tokens sorted by the
    target.
    """
    counts = rng.multinomial(_SAMPLES, law / law.sum())
    return bool(np.any(np.diff(counts) >= 0))


def fails_distance_ratio(
    law: NDArray[np.float64], target: tuple[float, ...], rng: np.random.Generator
) -> bool:
    """Whether the distance to the target falls less than twenty times as fast as to random laws."""
    weights = np.exp(rng.random((100, len(law))))
    others = weights / weights.sum(axis=-1, keepdims=True)
    to_target, to_others = [], []
    for samples in (10, 100_000):
        frequencies = rng.multinomial(samples, law / law.sum()) / samples
        to_target.append(float(np.linalg.norm(frequencies - target)))
        to_others.append(float(np.linalg.norm(frequencies - others)))
    return not to_target[0] / to_target[1] > 20.0 * to_others[0] / to_others[1]


def exceeds_noise_floor(
    law: NDArray[np.float64], target: tuple[float, ...], rng: np.random.Generator
) -> bool:
    """Whether samples are more than twice as far from the target as samples of the target are in
    the mean (normal noise).
    """
    q = np.asarray(target)
    noise = 0.5 * float(np.sqrt(2.0 * q * (1.0 - q) / (np.pi * _SAMPLES)).sum())
    return (
        0.5 * float(np.abs(rng.multinomial(_SAMPLES, law / law.sum()) / _SAMPLES - q).sum())
        > 2.0 * noise
    )


def fails_chi_square(
    law: NDArray[np.float64], target: tuple[float, ...], rng: np.random.Generator
) -> bool:
    """Whether Pearson's statistic is beyond its 99 % quantile."""
    expected = _SAMPLES * np.asarray(target)
    counts = rng.multinomial(_SAMPLES, law / law.sum())
    return float(((counts - expected) ** 2 / expected).sum()) > float(
        scipy.stats.chi2.ppf(0.99, len(law) - 1)
    )


def sampled_of(mutant: Mutant, *, rng: np.random.Generator) -> SampledAudit:
    """Audit a mutant on its instance by samples: sequentially for one token, on 12,000 blocks
    otherwise.

    Args:
        mutant: an entry of `BROKEN` or `CONTROLS`.
        rng: the source of drafts, uniforms and completions.

    Returns:
        SampledAudit; of a block verifier, over blocks of γ + 1 tokens numbered in base V.
    """
    if isinstance(mutant.instance, Problem):
        return sampled(mutant.candidate, mutant.sampled_on or mutant.instance, rng=rng)
    law = sequence_law(mutant.instance.target, (), mutant.instance.num_drafts + 1)
    blocks = np.asarray(_sample_blocks(mutant.candidate, mutant.instance, rng), dtype=np.int64)
    return outputs(
        np.ravel_multi_index(tuple(blocks.T), law.shape),
        target=law.reshape(-1),
        name=mutant.name,
        errors=Errors(detect=_BLOCKS_DETECT),
    )


def _sample_blocks(
    candidate: UniformsCandidate, models: ToyModels, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Draft, verify, and let the target complete, `_BLOCKS` times."""
    gamma = models.num_drafts
    drafts = _sample_continuations(models.draft, (), gamma, _BLOCKS, rng)
    outputs: dict[tuple[int, ...], int] = {}
    for row, count in drafts.items():
        p = np.stack([models.draft.next(row[:i]) for i in range(gamma)])
        q = np.stack([models.target.next(row[:i]) for i in range(gamma + 1)])
        for uniforms in rng.random((count, candidate.num_uniforms(gamma, p.shape[1]))):
            tokens = tuple(
                int(token) for token in candidate.verify(p, q, np.asarray(row), uniforms)[0]
            )
            outputs[tokens] = outputs.get(tokens, 0) + 1
    blocks: list[tuple[int, ...]] = []
    for tokens, count in outputs.items():
        for rest, times in _sample_continuations(
            models.target, tokens, gamma + 1 - len(tokens), count, rng
        ).items():
            blocks += [(*tokens, *rest)] * times
    return blocks


def _sample_continuations(
    model: TableModel, context: tuple[int, ...], length: int, count: int, rng: np.random.Generator
) -> dict[tuple[int, ...], int]:
    """Return how often each continuation comes out in `count` independent samples."""
    if length == 0:
        return {(): count}
    law = sequence_law(model, context, length)
    counts = rng.multinomial(count, law.reshape(-1) / law.sum()).reshape(law.shape)
    return {
        tuple(int(token) for token in index): int(counts[tuple(index)])
        for index in np.argwhere(counts)
    }
