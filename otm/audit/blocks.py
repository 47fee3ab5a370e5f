"""Candidates that verify a block of positions: functions of uniforms and kernels of batches.

A function is integrated over its uniforms and every drafted block (`otm.audit.sequence_audit`); a
kernel is sampled: an output, completed by samples of the target, is one of V^(γ+1) blocks, and of a
lossless verifier it has the target's law (SpecTr, Theorem 3). So a block is one token of that
vocabulary, and its audit by samples is that of one token, with its proofs: joint laws, positions,
early stops and the bonus token all show. The rows of a batch have different drafts and laws, and
stop at different places.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import shrinking, standard_problems as standard
from otm.audit.candidate import (
    Candidate,
    Check,
    FunctionCandidate,
    Scope,
    UniformsCandidate,
    as_kind,
    in_turn,
    is_slow,
    read_block,
)
from otm.audit.error_budget import USUAL, Errors
from otm.audit.sampled_audit import Drawn, SampledAudit, audit_of_draws
from otm.audit.sequence_audit import (
    SequenceAudit,
    Tables,
    completions,
    coverage_of_models,
    enumerate_models,
    integrate_blocks,
)
from otm.drafts import IID
from otm.pmf import check_count, check_counts, check_rng
from otm.problem import Problem
from otm.sequence.models import LanguageModel, TableModel
from otm.tracing.answers import CandidateFailure, naming_failures

_ROWS = 128
"""Rows that tell how fast a kernel of batches is."""

Pairs = Callable[[int], Mapping[str, tuple[TableModel, TableModel]]]
"""Models (draft, target) for blocks of γ drafts, by name."""


class ManyBlocksCandidate(Candidate):
    """A candidate that verifies drafted blocks of γ positions."""

    @abc.abstractmethod
    def verify_rows(
        self,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return tokens `(m, γ+1)`, −1 after the end of a row, for these laws and drafts."""


@dataclasses.dataclass(frozen=True, eq=False)
class BlockCandidate(UniformsCandidate, ManyBlocksCandidate):
    """A verifier of one block that takes its randomness as an argument.

    Args:
        verify: the function, `verify(draft, target, drafts, uniforms)` with `draft` `(γ, V)`,
            `target` `(γ+1, V)`, `drafts` `(γ,)`; it returns 1 to γ + 1 tokens, or (tokens, number
            accepted); trailing −1 is padding.
        name: what to call it in reports; the function's own name if empty.
        num_uniforms: how many uniforms it may use, from (γ, V); γ + 1 unless given.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> BlockCandidate(lambda draft, target, drafts, uniforms: drafts, "trusting").name
    'trusting'
    """

    description: ClassVar[str] = "a verifier of blocks"
    called: ClassVar[str] = "verify(draft (γ, V), target (γ+1, V), drafts (γ,), uniforms)"

    def verify_rows(
        self,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Call the function row by row."""
        size, gamma, num_tokens = draft.shape
        found = np.full((size, gamma + 1), -1, dtype=np.int64)
        uniforms = rng.random((size, self.count(gamma, num_tokens)))
        for row, (p, q, x, u) in enumerate(zip(draft, target, drafts, uniforms, strict=True)):
            with naming_failures(f" Drafts: {x.tolist()}."):
                answer = self.verify(p.copy(), q.copy(), x.copy(), u)
                tokens, _ = read_block(answer, num_tokens, gamma + 1)
            found[row, : len(tokens)] = tokens
        return found

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield samples of models too large to integrate, and integrations of all else."""
        lengths = scope.num_drafts or standard.BLOCKS
        if scope.sampled:
            yield from _sampled(self, scope, standard.standard_models, None)
        elif scope.own_randomness:
            yield from _sampled(self, scope, standard.few_models, standard.DETECT_ROWS)
        else:
            yield from _sampled(self, scope, standard.tail_models, standard.DETECT)
            lengths = scope.num_drafts or (*standard.BLOCKS, standard.MANY_POSITIONS)
            yield from in_turn([list(self._integrated(gamma, scope)) for gamma in lengths])

    def _integrated(self, gamma: int, scope: Scope) -> Iterator[Check]:
        """Yield the exact audits of blocks of one length, model by model."""
        for name, (p, q) in standard.standard_models(gamma).items():
            yield _check(
                name,
                gamma,
                "exact",
                functools.partial(
                    sequence,
                    self,
                    draft=p,
                    target=q,
                    num_drafts=gamma,
                    tolerance=scope.tolerance,
                ),
                shrink=functools.partial(
                    shrink_sequence,
                    self,
                    num_drafts=range(1, gamma + 1),
                    tolerance=scope.tolerance,
                ),
            )


@dataclasses.dataclass(frozen=True, eq=False)
class BlockBatchCandidate(FunctionCandidate, ManyBlocksCandidate):
    """A kernel that verifies a batch of drafted blocks with randomness of its own, as engines' do.

    Args:
        verify: the function, `verify(draft, target, drafts, rng)` with `draft` `(m, γ, V)`,
            `target` `(m, γ+1, V)`, `drafts` `(m, γ)` and a NumPy generator; it returns tokens `(m,
            γ+1)`, −1 after the end of a row's output.
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> BlockBatchCandidate(lambda draft, target, drafts, rng: drafts, "trusting").name
    'trusting'
    """

    description: ClassVar[str] = "a kernel of batches of blocks with randomness of its own"
    called: ClassVar[str] = "verify(draft (m, γ, V), target (m, γ+1, V), drafts (m, γ), rng)"

    def verify_rows(
        self,
        draft: NDArray[np.float64],
        target: NDArray[np.float64],
        drafts: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Call the kernel once, and check its answer."""
        with naming_failures():
            answer = self.verify(draft, target, drafts.copy(), rng)
            return _read_blocks(answer, len(drafts), draft.shape[1] + 1, draft.shape[2])

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield samples on all models, of a slow kernel on a few."""
        if scope.sampled:
            yield from _sampled(self, scope, standard.standard_models, None)
        elif self._is_slow(scope.deadline.seconds):
            yield from _sampled(self, scope, standard.few_models, standard.DETECT_SLOW)
        else:
            yield from _sampled(self, scope, standard.standard_models, standard.DETECT_ALONE)

    def _is_slow(self, seconds: float) -> bool:
        p, q = (np.tile(law, (_ROWS, 1)) for law in standard.instance("three tokens"))
        drafts = np.zeros((_ROWS, 1), dtype=np.int64)

        def call() -> Any:
            both = np.stack([q, q], axis=1)
            return self.verify(p[:, None].copy(), both, drafts.copy(), np.random.default_rng(0))

        return is_slow(call, _ROWS, seconds)


def _check(
    name: str, gamma: int, kind: Any, run: Callable[[], Any], shrink: Callable[[], Any] | None
) -> Check:
    """Return the check of blocks of one length on one pair of models."""
    many = gamma == standard.MANY_POSITIONS
    return Check(name, f"γ = {gamma}", kind, f"γ = {gamma}", run, needed=not many, shrink=shrink)


def _sampled(
    candidate: ManyBlocksCandidate, scope: Scope, models: Pairs, detect: float | None
) -> list[Check]:
    """Return the sampled audits of blocks of each length, which share the false alarms."""
    lengths = scope.num_drafts or standard.BLOCKS
    by_length = [[(gamma, name, pair) for name, pair in models(gamma).items()] for gamma in lengths]
    errors = scope.errors.shared(sum(map(len, by_length)), detect)

    def check(gamma: int, name: str, pair: tuple[TableModel, TableModel]) -> Check:
        def run() -> SampledAudit:
            rng = scope.rng(f"{name}, γ = {gamma}, samples")
            asked: dict[str, Any] = {"draft": pair[0], "target": pair[1], "num_drafts": gamma}
            return sampled_blocks(candidate, **asked, rng=rng, errors=errors)

        return _check(name, gamma, "sampled", run, None)

    return in_turn([[check(*entry) for entry in entries] for entries in by_length])


def sequence(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_drafts: int,
    context: Sequence[int] = (),
    tolerance: float | None = None,
) -> SequenceAudit:
    """Integrate a block verifier over its uniforms and every drafted block; compare the joint laws.

    Args:
        candidate: a function `verify(draft, target, drafts, uniforms)` or a `BlockCandidate`, with
            `draft` `(γ, V)`, `target` `(γ+1, V)`, `drafts` `(γ,)`, that returns 1 to γ + 1 tokens,
            or (tokens, number accepted); trailing −1 is padding. It has γ + 1 uniforms unless the
            `BlockCandidate` says otherwise.
        draft, target: toy models, `(V,)` after any context (`otm.sequence.TableModel`). A target
            that ends a text repeats its end-of-sequence token with certainty.
        num_drafts: γ.
        context: what the block continues.
        tolerance: largest total variation that counts as rounding.

    Returns:
        SequenceAudit: verdict, joint law, TV, KL, the first position that fails, mean tokens per
        call.

    Raises:
        CandidateFailure: if the callable raises or returns no block. InvalidDistribution: if a
            model's answer is no distribution.
        ShapeMismatch: if vocabularies differ. TooLarge: beyond four million blocks.

    Cost: V^γ drafted blocks, each two calls for each box of uniforms; V^(γ+1) output blocks.
    Reference: SpecTr, Theorem 3; docs/theory.md, "Audits".

    >>> draft, target = (
    ...     TableModel({c: mass for c in [(), (0,), (1,)]}) for mass in ([0.75, 0.25], [0.5, 0.5])
    ... )
    >>> def always(p, q, drafts, uniforms):  # keeps the draft and adds a token of the target
    ...     return [drafts[0], int(uniforms[0] >= q[1, 0])]
    >>> audit = sequence(always, draft=draft, target=target, num_drafts=1)
    >>> audit.verdict, audit.total_variation, audit.first_position
    ('not lossless', 0.25, 1)
    """
    thing = as_kind(candidate, BlockCandidate)
    tables = enumerate_models(draft, target, num_drafts, context)
    return integrate_blocks(
        thing, *tables, num_drafts=num_drafts, context=context, tolerance=tolerance
    )


def shrink_sequence(
    candidate: object,
    *,
    num_drafts: Sequence[int] = (1, 2),
    tolerance: float | None = None,
    budget: int = shrinking.BUDGET,
) -> SequenceAudit | None:
    """Return the audit of the smallest toy models on which a block verifier fails, None without.

    Tried in order: fewest drafts, then fewest tokens; the same laws at every position, then laws
    that depend on the position or on the token before; then the denominators of the probabilities.

    Args:
        candidate, tolerance: as for `sequence`.
        num_drafts: the block lengths γ to try.
        budget: how many pairs of models are tried at most.

    Returns:
        SequenceAudit or None.

    Raises:
        InvalidParameter: if the candidate is no callable, a length is below 1, or budget < 1.

    Cost: at most `budget` audits on two or three tokens.

    >>> found = shrink_sequence(lambda p, q, drafts, uniforms: [drafts[0]], num_drafts=[1])
    >>> found.num_drafts, found.total_variation
    (1, 1.0)
    """
    thing = as_kind(candidate, BlockCandidate)
    lengths = check_counts(num_drafts, name="num_drafts")

    def integrated(gamma: int, p: TableModel, q: TableModel) -> SequenceAudit:
        return sequence(thing, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)

    return shrinking.smallest_models(integrated, lengths, check_count(budget, name="budget"))


def sampled_blocks(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_drafts: int,
    rng: np.random.Generator,
    context: Sequence[int] = (),
    errors: Errors = USUAL,
) -> SampledAudit:
    """Test by samples whether a block verifier's output has the target's law over γ + 1 tokens.

    Args:
        candidate: a `BlockBatchCandidate`, or a function or `BlockCandidate` as for
            `otm.audit.sequence`, which may ignore its uniforms.
        draft, target, num_drafts, context: as for `otm.audit.sequence`.
        rng, errors: as for `otm.audit.sampled`, of the joint law.

    Returns:
        SampledAudit over blocks of γ + 1 tokens numbered in base V, without membership; `rule` is
        of whole blocks.

    Raises:
        As `otm.audit.sequence` and `otm.audit.sampled`; CandidateFailure if a row of the answer is
        no block.

    Cost: n rows at most, as of `otm.audit.sampled` at V^(γ+1) tokens, and drawing and completing
        them.
    Reference: SpecTr, Theorem 3; docs/theory.md, "Audits".

    >>> pair = [
    ...     TableModel({c: mass for c in [(), (0,), (1,)]}) for mass in ([0.75, 0.25], [0.5, 0.5])
    ... ]
    >>> trusting = BlockBatchCandidate(
    ...     lambda p, q, drafts, rng: np.pad(drafts, ((0, 0), (0, 1)), constant_values=-1)
    ... )
    >>> sampled_blocks(
    ...     trusting, draft=pair[0], target=pair[1], num_drafts=1, rng=np.random.default_rng(0)
    ... ).verdict
    'not lossless'
    """
    if not isinstance(candidate, ManyBlocksCandidate):
        candidate = as_kind(candidate, BlockCandidate)
    tables = enumerate_models(draft, target, num_drafts, context)
    draw, problem = _as_one_token(candidate, *tables, num_drafts, check_rng(rng))
    tested = coverage_of_models(*tables, num_drafts)
    result = audit_of_draws(draw, problem, name=candidate.name, tested=tested, errors=errors)
    return dataclasses.replace(result, membership=None, optimum=None)


def _as_one_token(
    candidate: ManyBlocksCandidate,
    draft: Tables,
    target: Tables,
    gamma: int,
    rng: np.random.Generator,
) -> tuple[Callable[[int], Drawn], Problem]:
    """Return what draws outputs, and the problem, of one token that is a block of γ + 1 tokens.

    A draft is a block whose last token is 0.
    """
    num_tokens = len(target[()])
    shape = (num_tokens,) * (gamma + 1)
    p, q = (_by_length(tables, num_tokens) for tables in (draft, target))
    drafted = np.zeros(shape)
    drafted[..., 0] = completions(draft, (), gamma)
    problem = Problem(
        draft=drafted.reshape(-1), target=completions(target, (), gamma + 1).reshape(-1), law=IID(1)
    )
    width = problem.law.num_uniforms(problem.num_tokens)

    def draw(size: int) -> Drawn:
        numbers = problem.law.draw(problem.draft, rng.random((size, width)))
        drafts = np.stack(np.unravel_index(numbers[:, 0], shape), axis=-1)[:, :gamma]
        along_p, along_q = _along(p, drafts, gamma), _along(q, drafts, gamma + 1)
        blocks = candidate.verify_rows(along_p, along_q, drafts, rng)
        lengths = (blocks >= 0).sum(axis=1)
        for position in range(1, gamma + 1):  # the target goes on where a row ended
            short = lengths <= position
            after = _number(blocks[short, :position], num_tokens)
            blocks[short, position] = _draw(q[position][after], rng.random(int(short.sum())))
        return np.ravel_multi_index(tuple(blocks.T), shape), numbers, lengths == gamma + 1

    return draw, problem


def _by_length(tables: Tables, num_tokens: int) -> list[NDArray[np.float64]]:
    """Return the laws after contexts of 0, 1, … tokens, `(V^length, V)`, contexts numbered in base
    V.
    """
    longest = max(map(len, tables))
    found: list[NDArray[np.float64]] = []
    for length in range(longest + 1):
        laws = [law for context, law in sorted(tables.items()) if len(context) == length]
        found.append(np.stack(laws).reshape(num_tokens**length, num_tokens))
    return found


def _along(
    laws: list[NDArray[np.float64]], drafts: NDArray[np.int64], depth: int
) -> NDArray[np.float64]:
    """Return the laws along each row's drafts, `(m, depth, V)`."""
    num_tokens = laws[0].shape[-1]
    return np.stack([laws[i][_number(drafts[:, :i], num_tokens)] for i in range(depth)], axis=1)


def _number(tokens: NDArray[np.int64], num_tokens: int) -> NDArray[np.int64]:
    """Return the contexts `(m, length)` numbered in base V."""
    places = num_tokens ** np.arange(tokens.shape[1])[::-1]
    return np.asarray(tokens @ places.astype(np.int64), dtype=np.int64)


def _draw(laws: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw one token from each row of laws, by inversion."""
    cumulative = np.cumsum(laws, axis=-1)
    below = uniforms[:, None] * cumulative[:, -1:] >= cumulative
    return np.asarray(below.sum(axis=-1), dtype=np.int64)


def _read_blocks(answer: Any, size: int, longest: int, num_tokens: int) -> NDArray[np.int64]:
    """Return blocks `(m, γ+1)` with −1 after the end of each row.

    Raises:
        CandidateFailure: unless each row has 1 to γ + 1 tokens of the vocabulary, and nothing after
            the first −1.
    """
    ids = np.asarray(answer[0] if isinstance(answer, tuple) else answer)
    fits = ids.ndim == 2 and len(ids) == size and 1 <= ids.shape[1] <= longest
    if ids.dtype.kind not in "iu" or not fits:
        raise CandidateFailure(
            f"The kernel must return integer tokens ({size}, {longest}), −1 after the end of a "
            f"row; it returned {ids.dtype} of shape {ids.shape}."
        )
    blocks = np.full((size, longest), -1, dtype=np.int64)
    blocks[:, : ids.shape[1]] = ids
    there = blocks >= 0
    outside = (blocks >= num_tokens) | (blocks < -1)
    after_the_end = there[:, 1:] & ~there[:, :-1]
    wrong = ~there.any(axis=1) | outside.any(axis=1) | after_the_end.any(axis=1)
    if wrong.any():
        raise CandidateFailure(
            f"The kernel must return 1 to {longest} tokens in [0, {num_tokens}) a row, then −1; "
            f"one row is {blocks[int(wrong.argmax())].tolist()}."
        )
    return blocks
