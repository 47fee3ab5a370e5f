"""Blocks by samples: all γ + 1 tokens of a kernel that verifies a batch of drafted blocks, as one
token of a larger vocabulary.

An output, completed by samples of the target, is one of V^(γ+1) blocks, and of a lossless kernel it
has the target's law (SpecTr, Theorem 3). So a block is one token of that vocabulary, and the audit
is the sampled audit of one token, with its proofs: joint laws, positions, early stops and the bonus
token all show. The rows of a batch have different drafts and laws, and stop at different places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.candidate import (
    BatchCandidate,
    BlockKernel,
    Candidate,
    as_candidate,
    read_block,
)
from otm.audit.coverage import Coverage
from otm.audit.sampled_audit import SampledAudit, sampled
from otm.audit.sequence_audit import Tables, completions, tables_of
from otm.drafts import IID
from otm.errors import ShapeMismatch
from otm.pmf import check_count
from otm.problem import Problem
from otm.sequence.models import LanguageModel, check_context, check_model
from otm.tracing.answers import CandidateFailure, naming_failures


def sampled_blocks(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    num_drafts: int,
    rng: np.random.Generator,
    context: Sequence[int] = (),
    detect: float = 0.02,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
) -> SampledAudit:
    """Test whether the output of a block verifier has the target's joint law over γ + 1 tokens, by
    samples.

    Args:
        candidate: a `BlockKernel`, or a function or `Candidate` as for `otm.audit.sequence`, which
            may ignore its uniforms.
        draft, target, num_drafts, context: as for `otm.audit.sequence`.
        rng, detect, false_alarm, missed: as for `otm.audit.sampled`, of the joint law.

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
    >>> trusting = BlockKernel(
    ...     lambda p, q, drafts, rng: np.pad(drafts, ((0, 0), (0, 1)), constant_values=-1)
    ... )
    >>> sampled_blocks(
    ...     trusting, draft=pair[0], target=pair[1], num_drafts=1, rng=np.random.default_rng(0)
    ... ).verdict
    'not lossless'
    """
    kernel = (
        candidate if isinstance(candidate, BlockKernel) else _row_by_row(as_candidate(candidate))
    )
    gamma = check_count(num_drafts, name="num_drafts")
    check_model(draft, name="draft")
    check_model(target, name="target")
    start = check_context(context)
    laws = tables_of(draft, start, gamma - 1, "draft"), tables_of(target, start, gamma, "target")
    num_tokens = len(laws[1][()])
    if len(laws[0][()]) != num_tokens:
        raise ShapeMismatch(
            f"draft and target must share one vocabulary; they have {len(laws[0][()])} and "
            f"{num_tokens} tokens."
            " Pad the shorter one with zeros."
        )
    whole, problem = _as_one_token(kernel, *laws, gamma)
    result = sampled(whole, problem, rng=rng, detect=detect, false_alarm=false_alarm, missed=missed)
    masses = np.concatenate([np.stack([*law.values()]) for law in laws])
    tested = Coverage(
        instances=("the models given",),
        drafts=(gamma,),
        tokens=(gamma + 1,),
        vocabulary=(num_tokens,),
        least=float(masses[masses > 0].min()),
        untested=("several drafts a position",),
    )
    return dataclasses.replace(result, tested=tested, membership=None, optimum=None)


def _as_one_token(
    kernel: BlockKernel, draft: Tables, target: Tables, gamma: int
) -> tuple[BatchCandidate, Problem]:
    """Return the kernel as a verifier of one token that is a block of γ + 1; a draft is a block
    whose last token is 0.
    """
    num_tokens = len(target[()])
    shape = (num_tokens,) * (gamma + 1)
    p, q = (_by_length(tables, num_tokens) for tables in (draft, target))
    drafted = np.zeros(shape)
    drafted[..., 0] = completions(draft, (), gamma)

    def verify(
        _draft: Any, _target: Any, numbers: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Any, Any]:
        drafts = np.stack(np.unravel_index(numbers[:, 0], shape), axis=-1)[:, :gamma]
        along_p, along_q = _along(p, drafts, gamma), _along(q, drafts, gamma + 1)
        with naming_failures():
            answer = kernel.verify(along_p, along_q, drafts.copy(), rng)
            blocks, lengths = _read_blocks(answer, len(drafts), gamma + 1, num_tokens)
        for position in range(1, gamma + 1):
            short = lengths <= position
            after = _number(blocks[short, :position], num_tokens)
            blocks[short, position] = _draw(q[position][after], rng.random(int(short.sum())))
        return np.ravel_multi_index(tuple(blocks.T), shape), lengths == gamma + 1

    problem = Problem(
        draft=drafted.reshape(-1), target=completions(target, (), gamma + 1).reshape(-1), law=IID(1)
    )
    return BatchCandidate(verify, name=kernel.name), problem


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


def _read_blocks(
    answer: Any, size: int, longest: int, num_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return blocks `(m, γ+1)` and how many tokens of each are there, from ids that are −1 after
    the end of a row.

    Raises:
        CandidateFailure: unless each row has 1 to γ + 1 tokens of the vocabulary, and nothing after
            the first −1.
    """
    given = answer[0] if isinstance(answer, tuple) else answer
    ids = np.asarray(given)
    if (
        ids.dtype.kind not in "iu"
        or ids.ndim != 2
        or len(ids) != size
        or not 1 <= ids.shape[1] <= longest
    ):
        raise CandidateFailure(
            f"The kernel must return integer tokens ({size}, {longest}), −1 after the end of a "
            f"row; it returned {ids.dtype} of "
            f"shape {ids.shape}."
        )
    blocks = np.full((size, longest), -1, dtype=np.int64)
    blocks[:, : ids.shape[1]] = ids
    there = blocks >= 0
    lengths = there.sum(axis=1)
    wrong = (
        (lengths == 0)
        | (blocks >= num_tokens).any(axis=1)
        | (there[:, 1:] & ~there[:, :-1]).any(axis=1)
        | (blocks < -1).any(axis=1)
    )
    if wrong.any():
        raise CandidateFailure(
            f"The kernel must return 1 to {longest} tokens in [0, {num_tokens}) a row, then −1; "
            "one row is "
            f"{blocks[int(wrong.argmax())].tolist()}."
        )
    return blocks, lengths


def _row_by_row(candidate: Candidate) -> BlockKernel:
    """Return a verifier of one block as a kernel of many, with uniforms from the generator."""

    def verify(draft: Any, target: Any, drafts: Any, rng: np.random.Generator) -> NDArray[np.int64]:
        size, gamma, num_tokens = draft.shape
        found = np.full((size, gamma + 1), -1, dtype=np.int64)
        uniforms = rng.random((size, candidate.count(gamma, num_tokens)))
        for row, (p, q, x, u) in enumerate(zip(draft, target, drafts, uniforms, strict=True)):
            with naming_failures(f" Drafts: {x.tolist()}."):
                tokens, _ = read_block(
                    candidate.verify(p.copy(), q.copy(), x.copy(), u), num_tokens, gamma + 1
                )
            found[row, : len(tokens)] = tokens
        return found

    return BlockKernel(verify, name=candidate.name)
