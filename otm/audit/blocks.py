"""Candidates that verify a block of positions: functions of uniforms and kernels of batches.

A function is integrated over its uniforms and every drafted block (`otm.audit.integration`); a
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
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.audit import shrinking, standard_problems as standard
from otm.audit.budget import USUAL, Errors
from otm.audit.callables import count_uniforms
from otm.audit.candidate import Scope, UniformsCandidate, as_kind, read_block
from otm.audit.drafted import (
    DraftedCandidate,
    Instance,
    IntegrableCandidate,
    KernelCandidate,
    Selection,
)
from otm.audit.integration import (
    SequenceAudit,
    Tables,
    completions,
    coverage_of_models,
    enumerate_models,
    integrate_blocks,
)
from otm.audit.sampled_audit import Drawing, Drawn, SampledAudit
from otm.audit.tracing.answers import CandidateFailure, naming_failures
from otm.pmf import RNGLike, check_count, check_counts, check_rng
from otm.sequence.models import LanguageModel, TableModel

Tokens = NDArray[np.int64]

_FEW_ROWS = 5
"""Rows of a batch that is looked at for rows that are mixed up."""


class Models(NamedTuple):
    """An instance for verifiers of blocks: γ drafts of one model, γ + 1 laws of the other.

    Attributes:
        draft, target: the models.
        num_drafts: γ.
        context: what the block continues.
    """

    draft: LanguageModel
    target: LanguageModel
    num_drafts: int
    context: Sequence[int] = ()


class ManyBlocksCandidate(DraftedCandidate):
    """A candidate that verifies drafted blocks of γ positions."""

    @abc.abstractmethod
    def verify_rows(self, draft: Floats, target: Floats, drafts: Tokens, rng: Generator) -> Tokens:
        """Return tokens `(m, γ+1)`, −1 after the end of a row, for laws `(m, γ, V)` and
        `(m, γ+1, V)` and drafts `(m, γ)`.
        """

    def instances(self, selection: Selection, scope: Scope) -> list[list[Instance]]:
        """Return the pairs of models of a selection for each length."""
        lengths: Sequence[int] = standard.BLOCKS
        if selection == "integrable" and scope.pair is None:
            lengths = (*lengths, *standard.MANY_POSITIONS)
        return [
            [
                Instance(
                    name,
                    f"γ = {gamma}",
                    f"γ = {gamma}",
                    standard.is_needed(
                        name,
                        draft.num_tokens**gamma,
                        usual=scope.num_drafts is not None or gamma in standard.BLOCKS,
                    ),
                    draft.num_tokens**gamma,
                    Models(draft, target, gamma),
                )
                for name, (draft, target) in standard.models_of(
                    selection, gamma, scope.pair
                ).items()
            ]
            for gamma in scope.num_drafts or lengths
        ]

    def drawing(self, given: Models, rng: Generator) -> Drawing:
        """Return the sampler of blocks of γ + 1 tokens, completed by the target, as numbers in base
        V.
        """
        gamma = given.num_drafts
        draft, target = enumerate_models(*given)
        num_tokens = len(target[()])
        drafted = np.zeros((num_tokens,) * (gamma + 1))
        drafted[..., 0] = completions(draft.__getitem__, (), gamma)
        p, q = _by_length(draft, num_tokens), _by_length(target, num_tokens)
        return Drawing(
            functools.partial(self._draw, p, q, rng),
            completions(target.__getitem__, (), gamma + 1).reshape(-1),
            drafted.reshape(-1),
            None,
            coverage_of_models(draft, target, gamma),
            (num_tokens,) * (gamma + 1),
        )

    def drawing_at(self, draft: Floats, target: Floats, rng: Generator) -> Drawing:
        """Return the sampler of the first token of a block of one draft."""
        laws, cumulative = (draft[None, None], np.stack([target, target])[None]), draft.cumsum()

        def draw(size: int) -> Drawn:
            p, q = (np.repeat(law, size, axis=0) for law in laws)
            drafts = np.searchsorted(cumulative, rng.random((size, 1)) * cumulative[-1], "right")
            return Drawn(self.verify_rows(p, q, drafts, rng)[:, 0])

        tested = coverage_of_models({(): draft}, {(): target}, 1)
        return Drawing(draw, target, draft, None, dataclasses.replace(tested, tokens=(1,)))

    def _draw(self, p: list[Floats], q: list[Floats], rng: Generator, size: int) -> Drawn:
        """Draft blocks from laws by length, verify each, and complete the outputs by the target."""
        gamma, num_tokens = len(p), p[0].shape[-1]
        drafts = _continued(np.full((size, gamma), -1), p, rng)
        blocks = self.verify_rows(_along(p, drafts), _along(q, drafts), drafts, rng)
        whole = np.asarray((blocks >= 0).all(axis=1))
        return Drawn(_number(_continued(blocks, q, rng), num_tokens), flags=whole)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockCandidate(UniformsCandidate, ManyBlocksCandidate, IntegrableCandidate):
    """A verifier of one block, given the uniforms as an argument.

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

    def verify_rows(self, draft: Floats, target: Floats, drafts: Tokens, rng: Generator) -> Tokens:
        """Call the function row by row."""
        size, gamma, num_tokens = draft.shape
        found = np.full((size, gamma + 1), -1, dtype=np.int64)
        uniforms = rng.random((size, count_uniforms(self.num_uniforms, gamma, num_tokens)))
        with naming_failures(lambda: f" Drafts: {x.tolist()}."):
            for row, (p, q, x, u) in enumerate(zip(draft, target, drafts, uniforms, strict=True)):
                answer = self.verify(p.copy(), q.copy(), x.copy(), u)
                tokens, _ = read_block(answer, num_tokens, gamma + 1)
                found[row, : len(tokens)] = tokens
        return found

    def integrated(self, given: Models, tolerance: float | None) -> SequenceAudit:
        """Return the exact audit on one pair of models."""
        return integrate_blocks(self, *given, tolerance=tolerance)

    def smallest(self, given: Models, tolerance: float | None) -> SequenceAudit | None:
        """Return the audit of the smallest failing models found, of up to γ drafts."""
        return shrink_sequence(self, num_drafts=range(1, given.num_drafts + 1), tolerance=tolerance)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockBatchCandidate(KernelCandidate, ManyBlocksCandidate):
    """A kernel that verifies a batch of drafted blocks with internal randomness, as in engines.

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

    def verify_rows(self, draft: Floats, target: Floats, drafts: Tokens, rng: Generator) -> Tokens:
        """Call the kernel once, and check the answer."""
        with naming_failures():
            answer = self.verify(draft, target, drafts.copy(), rng)
            return _read_blocks(answer, len(drafts), draft.shape[1] + 1, draft.shape[2])

    def in_batches(self, rows: int) -> BlockBatchCandidate:
        """Return the kernel called on `rows` rows at a time.

        The tokens of each row are renamed by the number of the row, and back: rows that have laws
        of their own are given different laws.
        """

        def called(draft: Any, target: Any, drafts: Any, rng: Any) -> Tokens:
            by, num_tokens = np.arange(len(drafts))[:, None] % rows, draft.shape[-1]
            before = ((np.arange(num_tokens) - by) % num_tokens)[:, None]
            p, q = (np.take_along_axis(laws, before, axis=-1) for laws in (draft, target))
            parts = [slice(start, start + rows) for start in range(0, len(drafts), rows)]
            x = (drafts + by) % num_tokens
            blocks = np.concatenate([self.verify_rows(p[i], q[i], x[i], rng) for i in parts])
            return np.where(blocks < 0, -1, (blocks - by) % num_tokens)

        return dataclasses.replace(self, verify=called)

    def mixed_up(self, rng: Generator) -> str:
        """Name the rows that are answered for each other where each is certain of its own token."""
        own = list(range(_FEW_ROWS))
        laws = np.repeat(np.eye(_FEW_ROWS)[:, None], 2, axis=1)
        found = self.verify_rows(laws[:, :1], laws, np.asarray(own)[:, None], rng)[:, 0].tolist()
        if own == found or own != sorted(found):
            return ""
        return f"rows mixed up, rows {own} of a batch have the answers to rows {found}"


def sequence(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_drafts: int,
    context: Sequence[int] = (),
    tolerance: float | None = None,
) -> SequenceAudit:
    """Integrate a block verifier over the uniforms and every drafted block; compare the joint laws.

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

    >>> import otm
    >>> draft, target = (
    ...     otm.sequence.TableModel({c: mass for c in [(), (0,), (1,)]})
    ...     for mass in ([0.75, 0.25], [0.5, 0.5])
    ... )
    >>> def always(p, q, drafts, uniforms):  # keeps the draft and adds a token of the target
    ...     return [drafts[0], int(uniforms[0] >= q[1, 0])]
    >>> audit = sequence(always, draft=draft, target=target, num_drafts=1)
    >>> audit.verdict, audit.total_variation, audit.first_position
    ('not lossless', 0.25, 1)
    """
    thing = as_kind(candidate, BlockCandidate)
    return thing.integrated(Models(draft, target, num_drafts, context), tolerance)


def shrink_sequence(
    candidate: object,
    *,
    num_drafts: Sequence[int] = (1, 2),
    tolerance: float | None = None,
    budget: int = shrinking.BUDGET,
) -> SequenceAudit | None:
    """Return the audit of the smallest toy models on which a block verifier fails, or None.

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
    rng: RNGLike,
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

    >>> import numpy as np
    >>> import otm
    >>> pair = [
    ...     otm.sequence.TableModel({c: mass for c in [(), (0,), (1,)]})
    ...     for mass in ([0.75, 0.25], [0.5, 0.5])
    ... ]
    >>> trusting = BlockBatchCandidate(
    ...     lambda p, q, drafts, rng: np.pad(drafts, ((0, 0), (0, 1)), constant_values=-1)
    ... )
    >>> rng = np.random.default_rng(0)
    >>> sampled_blocks(trusting, draft=pair[0], target=pair[1], num_drafts=1, rng=rng).verdict
    'not lossless'
    """
    generator = check_rng(rng)
    if not isinstance(candidate, ManyBlocksCandidate):
        candidate = as_kind(candidate, BlockCandidate)
    return candidate.sampled(Models(draft, target, num_drafts, context), generator, errors)


def _by_length(tables: Tables, num_tokens: int) -> list[Floats]:
    """Return the laws after contexts of 0, 1, … tokens, `(V^length, V)`, contexts numbered in base
    V.
    """
    rows = np.stack(
        [law for _, law in sorted(tables.items(), key=lambda item: (len(item[0]), item[0]))]
    )
    ends = np.cumsum([num_tokens**length for length in range(max(map(len, tables)) + 1)])
    return np.split(rows, ends[:-1])


def _along(laws: list[Floats], drafts: Tokens) -> Floats:
    """Return the laws along the drafts of each row, `(m, depth, V)`."""
    num_tokens = laws[0].shape[-1]
    along = [law[_number(drafts[:, :i], num_tokens)] for i, law in enumerate(laws)]
    return np.stack(along, axis=1)


def _continued(rows: Tokens, laws: list[Floats], rng: Generator) -> Tokens:
    """Replace each −1 in rows of tokens by a draw from the law after the earlier tokens."""
    for position, after in enumerate(laws):
        open_rows = rows[:, position] < 0
        context = _number(rows[open_rows, :position], after.shape[-1])
        cumulative = np.cumsum(after[context], axis=-1)
        reached = rng.random((len(context), 1)) * cumulative[:, -1:] >= cumulative
        rows[open_rows, position] = reached.sum(axis=-1)
    return rows


def _number(tokens: Tokens, num_tokens: int) -> Tokens:
    """Return the contexts `(m, length)` numbered in base V."""
    places = num_tokens ** np.arange(tokens.shape[1])[::-1]
    return np.asarray(tokens @ places.astype(np.int64), dtype=np.int64)


def _read_blocks(answer: Any, size: int, longest: int, num_tokens: int) -> Tokens:
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
