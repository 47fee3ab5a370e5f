"""The library's main functions: optima of a problem, and acceptance, law and samples of a
verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Array, as_scalar_or_array, clip, namespace, tracks_gradient
from otm.drafts.base import CountedLaw, Law, padded, readable
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import RNGLike, check_count, check_rng
from otm.problem import Problem, check_problem, keyword_only, refuse_gradients
from otm.results import Coupling, Definition, Samples
from otm.verifiers.base import (
    Conditional,
    CurvedVerifier,
    Rule,
    Shared,
    Verifier,
    check_definition,
    check_drafts,
    live_blocks,
    require_support,
)

MAX_ENTRIES = 1 << 27
"""Entries of the largest coupling; beyond, `TooLarge` names an alternative."""

_UNIFORMS_AT_ONCE = 1 << 21


@keyword_only("otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(k)))")
def optimal_acceptance(problem: Problem) -> Array:
    """Return the largest acceptance that any lossless verifier can reach on a problem.

    α* = max_π Pr(Y ∈ S(X)) = 1 + min_{T⊆Ω} [Q(T) − b(T)], b(T) = Pr(all drafts in T).

    Args:
        problem: any batch `(..., V)`, NumPy or torch.

    Returns:
        A float, or `(...)` in float64 of the problem's array kind. Tensors that require gradients
        get them, a subgradient at ties: `(1 - otm.optimal_acceptance(problem)).mean().backward()`
        trains a drafter on the acceptance that k drafts will have.

    Raises:
        TooLarge: for laws whose minimising set must be searched, when it cannot be.
        Unsupported: if gradients are required under a law that has none, such as drafts without
            replacement.

    Cost: O(V) for i.i.d. drafts from 1,024 tokens on, below it one sort and one scan; on the host
        most of it compiled where numba is installed, and rows of torch on torch's threads. A device
        is waited for once. A gradient costs one more pass, forwards and backwards each.
    Accuracy: about 1e-14 at V = 128,256; proved bounds in docs/theory.md, "Accuracy".
    Reference: Hu et al. 2025 (cut formula); SpecTr, (3); docs/theory.md, "The cut formula",
        "Gradients".

    >>> import otm
    >>> optimal_acceptance(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2)))
    0.9375
    >>> import torch
    >>> p = torch.tensor([0.75, 0.25], dtype=torch.float64, requires_grad=True)
    >>> tracked = otm.Problem(draft=p, target=torch.tensor([0.5, 0.5]), law=otm.IID(2))
    >>> optimal_acceptance(tracked).backward()
    >>> p.grad.tolist()  # λ = 2·(3/4) on the second token, less its mean under p
    [-0.375, 1.125]
    """
    law = _law_with_optimum(problem)
    return as_scalar_or_array(law.optimal_value(problem.draft, problem.target))


@keyword_only(
    "otm.optimal_acceptance_curve(otm.Problem(draft=p, target=q, law=otm.IID(1)), k=[1, 2])"
)
def optimal_acceptance_curve(problem: Problem, *, k: float | Iterable[float]) -> Array:
    """Return the optimal acceptance for each number of drafts, from shared work.

    Args:
        problem: any batch `(..., V)`; its law gives the kind of drafts, `k` their number.
        k: numbers of drafts, each an integer ≥ 1; of a threshold race c, real numbers ≥ 1.

    Returns:
        `(len(k), ...)` in float64, non-decreasing in k; with gradients as `optimal_acceptance`.

    Raises:
        InvalidParameter: on an empty list or a k below 1.

    Cost: O(V) for i.i.d. drafts, as above, and O(4,096·len(k)).
    Reference: as `optimal_acceptance`; monotone by SpecTr, Lemma 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> optimal_acceptance_curve(problem, k=[1, 2]).tolist()
    [0.75, 0.9375]
    """
    law = _law_with_optimum(problem)
    return law.optimal_values(problem.draft, problem.target, [each.size for each in law.family(k)])


def _law_with_optimum(problem: Problem) -> Law:
    """Return the problem's law, or raise `Unsupported` where the optimum passes no gradient on."""
    law = check_problem(problem, gradients=True).law
    if not law.differentiable:
        refuse_gradients(problem, f"The optimum of {law!r}")
    return law


def optimal_cut(problem: Problem) -> NDArray[np.bool_]:
    """Return a token set T that attains the cut formula's minimum, a certificate of the optimum.

    Args:
        problem: one pair of distributions `(V,)`.

    Returns:
        Mask `(V,)` with 1 + Q(T) − b(T) = α*.

    Raises:
        ShapeMismatch: if the problem has leading axes.

    Cost: O(V log V) for i.i.d. drafts.
    Reference: Hu et al. 2025.

    >>> import otm
    >>> optimal_cut(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2)))
    array([ True, False])
    """
    single = check_problem(problem).single(purpose="otm.optimal_cut")
    return single.law.worst_set(single.draft, single.target)


def prepare(verifier: Verifier, problem: Problem) -> Rule:
    """Precompute the parts of a verifier on one problem that do not depend on the drafts.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`, or your own subclass of `otm.Verifier`.
        problem: one pair of distributions `(V,)`.

    Returns:
        A `Rule`: γ*, thresholds, residuals, and the functions `split` and `verify`; reusable for
        any number of draws.

    Raises:
        Unsupported: if the verifier does not apply to the problem's law.
        ShapeMismatch: if the problem has leading axes.

    Cost: see the verifier.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    >>> prepare(otm.KSeq(), problem).keep[0]  # γ* = 1
    array([1., 1.])
    """
    require_support(verifier, check_problem(problem).law)
    return verifier.prepare(problem.single(purpose=f"Preparing {verifier!r}"))


@keyword_only("otm.acceptance(otm.KSeq(), otm.Problem(draft=p, target=q, law=otm.IID(k)))")
def acceptance(verifier: Verifier, problem: Problem, *, by: Definition = "membership") -> Array:
    """Return the exact acceptance of a verifier.

    by="membership": Pr(Y ∈ S(X)), SpecTr's definition. by="rule": Pr(the rule accepted a draft). A
    residual draw may land among the drafts by luck, so membership ≥ rule.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: any batch `(..., V)` where the verifier has a closed form; one row where it is
            enumerated.
        by: which definition.

    Returns:
        A float, or `(...)` in float64. Tensors that require gradients get them from verifiers whose
        `differentiable` is true: `-otm.acceptance(otm.KSeq(), problem).log().mean()` is a loss.

    Raises:
        Unsupported: if the verifier does not apply to the problem's law, or gradients are required
            that it does not pass on.
        InvalidParameter: if `by` is neither.
        TooLarge: where the value needs an enumeration that is too large; `otm.estimate` gives an
            interval.

    Cost and accuracy: see the verifier.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> acceptance(otm.RecursiveRejection(), problem)
    0.8125
    """
    require_support(verifier, check_problem(problem, gradients=True).law)
    if not verifier.differentiable:
        refuse_gradients(problem, f"The acceptance of {verifier!r}")
    return as_scalar_or_array(clip(verifier.acceptance(problem, check_definition(by)), 0.0, 1.0))


@keyword_only(
    "otm.acceptance_curve(otm.KSeq(), otm.Problem(draft=p, target=q, law=otm.IID(1)), k=[1, 2])"
)
def acceptance_curve(
    verifier: Verifier,
    problem: Problem,
    *,
    k: float | Iterable[float],
    by: Definition = "membership",
) -> Array:
    """Return the exact acceptance of a verifier for each number of drafts, from shared work.

    Args:
        verifier, problem, by: as for `acceptance`; the problem's law gives the kind of drafts.
        k: numbers of drafts, each an integer ≥ 1 that the verifier supports; of a threshold race c,
            real numbers ≥ 1.

    Returns:
        `(len(k), ...)` in float64; with gradients as `acceptance`.

    Cost: for a `CurvedVerifier` that of its `curve` (K-SEQ at γ*: one search for all k; recursive
        rejection of i.i.d. drafts: one recursion to max(k)); others: one call per k.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> acceptance_curve(otm.KSeq(), problem, k=[1, 2]).round(6).tolist()
    [0.75, 0.847597]
    """
    definition = check_definition(by)
    laws = check_problem(problem, gradients=True).law.family(k)
    for law in laws:
        require_support(verifier, law)
    if not verifier.differentiable:
        refuse_gradients(problem, f"The acceptance of {verifier!r}")
    if isinstance(verifier, CurvedVerifier):
        return clip(verifier.curve(problem, [law.size for law in laws], definition), 0.0, 1.0)
    xp = namespace(problem.draft, problem.target)
    rows = [verifier.acceptance(problem.with_law(law), definition) for law in laws]
    rows = [row if tracks_gradient(row) else xp.asarray(row, dtype=xp.float64) for row in rows]
    return clip(xp.stack(rows, axis=0), 0.0, 1.0)


def kernel(verifier: Verifier, problem: Problem, drafts: object) -> NDArray[np.float64]:
    """Return the law of the output token given the drafts.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: one pair of distributions `(V,)`.
        drafts: tokens `(k,)` or `(n, k)`.

    Returns:
        Probabilities `(V,)` or `(n, V)`.

    Raises:
        InvalidParameter: if drafts have a wrong shape or tokens outside the vocabulary.

    Cost: O(k + V) per draft sequence after `prepare`.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> kernel(otm.RecursiveRejection(), problem, [0]).round(4)
    array([0.6667, 0.3333])
    """
    rule = prepare(verifier, problem)
    tokens = check_drafts(drafts, rule.problem)
    law = _kernel(rule, tokens)
    return law[0] if np.ndim(drafts) == 1 else law  # type: ignore[arg-type]


def _kernel(rule: Rule, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    if isinstance(rule, Conditional):
        accepted, residual = rule.split(tokens)
        return accepted + residual
    assert isinstance(rule, Shared)
    joint = _joint(rule)
    rows = {tuple(row): i for i, row in enumerate(joint.drafts.tolist())}
    missing = [tuple(row) for row in tokens.tolist() if tuple(row) not in rows]
    if missing:
        raise InvalidParameter(
            f"The kernel exists for drafts of positive probability; {missing[0]} has none, or too "
            f"little to condition on, under {rule.problem.law!r}. "
            "Pass drafts that the law can draw."
        )
    picked = joint.joint[[rows[tuple(row)] for row in tokens.tolist()]].toarray()
    return np.asarray(picked / picked.sum(axis=1, keepdims=True))


def coupling(verifier: Verifier, problem: Problem) -> Coupling:
    """Return the joint law of (drafts, output) that a verifier induces, over every draft sequence.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: one pair of distributions `(V,)`, small enough to enumerate.

    Returns:
        Coupling; its draft marginal is the law of the drafts, its output marginal the target's if
        the verifier is lossless.

    Raises:
        TooLarge: beyond 2^27 entries, sequences × V: a table of 1.6 GB.

    Cost: O(V^k · V).
    Reference: SpecTr, Definition 1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> coupling(otm.KSeq(), problem).output_marginal
    array([0.5, 0.5])
    """
    rule = prepare(verifier, problem)
    if isinstance(rule, Shared):
        return _joint(rule)
    _require_room(rule, ", or otm.lossy.output_law for the law of the output alone")
    blocks = [
        (tokens, scipy.sparse.csr_array(mass[:, None] * _kernel(rule, tokens)))
        for tokens, mass in live_blocks(rule)
    ]
    drafts, joint = zip(*blocks, strict=True)
    return Coupling(
        drafts=np.concatenate(drafts),
        joint=scipy.sparse.csr_array(scipy.sparse.vstack(joint, format="csr")),
    )


def _joint(rule: Shared) -> Coupling:
    _require_room(rule, "")
    return rule.joint()


def _require_room(rule: Rule, remedy: str) -> None:
    law, width = rule.problem.law, rule.problem.num_tokens
    entries = law.num_sequences(width) * width
    if entries > MAX_ENTRIES:
        raise TooLarge(
            f"A coupling is limited to {MAX_ENTRIES:,} entries (draft sequences × V); {law!r} over "
            f"V = {width} tokens has "
            f"{readable(entries)}. Call otm.acceptance for how often a draft is accepted, or "
            f"otm.sample to draw from it{remedy}."
        )


def output_marginal(verifier: Verifier, problem: Problem) -> NDArray[np.float64]:
    """Sum the law of the output token `(V,)` over every draft sequence, block by block.

    Raises `TooLarge` where the sequences are too many to enumerate.
    Cost: O(V^k · V), memory of a few million entries.
    """
    rule = prepare(verifier, problem)
    if isinstance(rule, Shared):
        return _joint(rule).output_marginal
    law = np.zeros(rule.problem.num_tokens)
    for tokens, mass in live_blocks(rule):
        law += mass @ _kernel(rule, tokens)
    return law


@keyword_only(
    "otm.sample(verifier, problem, size=1_000, rng=0)",
    reason="size and rng are keyword-only",
)
def sample(verifier: Verifier, problem: Problem, *, size: int, rng: RNGLike) -> Samples:
    """Draw drafts and outputs by the verifier's published steps.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: one pair of distributions `(V,)`.
        size: number of independent draws ≥ 1.
        rng: a NumPy generator, or a seed of one.

    Returns:
        Samples(drafts `(size, k)`, output `(size,)`, accepted `(size,)`); where the number of
        drafts is random, k is the most that came.

    Raises:
        InvalidParameter: if `size` < 1.

    Cost: O(size · k log V) for most verifiers.

    >>> import numpy as np
    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    >>> draws = sample(otm.KSeq(), problem, size=3, rng=np.random.default_rng(0))
    >>> bool(draws.accepted.all())
    True
    """
    rule, count = prepare(verifier, problem), check_count(size, name="size")
    is_counted, drawn = isinstance(rule.problem.law, CountedLaw), []
    for one in runs(rule, size=count, rng=check_rng(rng)):
        # a row as long as the vocabulary is kept as long as the most drafts of its batch
        width = one.drafts.shape[1] if is_counted else int((one.drafts >= 0).sum(axis=1).max())
        drawn.append((one.drafts[:, :width].copy(), one.output, one.accepted))
    drafts, output, accepted = zip(*drawn, strict=True)
    widest = max(rows.shape[1] for rows in drafts)
    return Samples(
        drafts=np.concatenate([padded(rows, widest) for rows in drafts]),
        output=np.concatenate(output),
        accepted=np.concatenate(accepted),
    )


def runs(rule: Rule, *, size: int, rng: np.random.Generator) -> Iterator[Samples]:
    """Draw from a prepared rule in batches small enough in memory."""
    step = max(1, _UNIFORMS_AT_ONCE // max(1, rule.num_draft_uniforms + rule.num_uniforms))
    for start in range(0, size, step):
        yield run(rule, size=min(step, size - start), rng=rng)


def run(rule: Rule, *, size: int, rng: np.random.Generator) -> Samples:
    """Draw from a prepared rule in one batch; `sample` without the preparation."""
    drafts, state = rule.draw(rng.random((size, rule.num_draft_uniforms)))
    output, accepted = rule.verify(drafts, rng.random((size, rule.num_uniforms)), state)
    return Samples(drafts=drafts, output=output, accepted=accepted)
