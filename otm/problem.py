"""Problems: a draft distribution, a target distribution, and the law of the drafts."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from otm._machine.arrays import Array, brief_repr, to_numpy, tracks_gradient, unit_rows
from otm.drafts.base import Law
from otm.errors import InvalidParameter, ShapeMismatch, Unsupported
from otm.pmf import as_pmfs, keyword_only as keyword_only

_Law = TypeVar("_Law", bound=Law)


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem:
    """Draft law, draft distribution and target distribution, validated once.

    The optimum depends on these three alone; the acceptance of a scheme on these and its verifier.

    Args:
        draft: p, probabilities `(..., V)` of the draft model.
        target: q, probabilities `(..., V)` of the target model, of the same kind of array; leading
            axes broadcast.
        law: how the k drafts are drawn from p, for example `otm.IID(4)`.

    Raises:
        InvalidDistribution: if either is not a distribution (see `otm.pmf`).
        ShapeMismatch: if the vocabularies differ, leading axes do not broadcast, or the array kinds
            differ.
        InvalidParameter: if `law` is not a draft law, or asks for more drafts than it can give.

    A tensor that requires a gradient stays part of its graph, divided by its sum; what cannot pass
    the gradient on refuses it.

    Cost: O(V) per row; a device is waited for once. An array whose rows sum to exactly 1 is kept,
        not copied: do not overwrite it while the problem is in use.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> problem.num_tokens, problem.law
    (2, IID(k=2))
    """

    draft: Array
    target: Array
    law: Law

    __repr__ = brief_repr

    @keyword_only("otm.Problem(draft=p, target=q, law=otm.IID(k))")
    def __init__(self, *, draft: object, target: object, law: Law) -> None:
        if not isinstance(law, Law):
            raise InvalidParameter(
                f"law must be a draft law such as otm.IID(4); got {law!r}. Choose one of "
                "otm.drafts.LAWS."
            )
        p, q = law.align(*as_pmfs({"draft": draft, "target": target}, gradients=True))
        vars(self).update(draft=p, target=q, law=law)

    @property
    def num_tokens(self) -> int:
        """V, the size of the vocabulary."""
        return int(self.target.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; `()` for one pair of distributions."""
        return tuple(int(n) for n in self.target.shape[:-1])

    @property
    def num_drafts(self) -> int:
        """The largest number of drafts in a row: k, or V where the number is random."""
        return self.law.row_length(self.num_tokens)

    def __getitem__(self, row: int) -> Problem:
        """Return the problem of one row of a batch, without a second validation.

        Args:
            row: number along the first leading axis, from the end if negative.

        Raises:
            ShapeMismatch: if the problem is one pair of distributions.
            IndexError: if there is no such row; so a batch can be gone through by `for`.

        >>> import otm
        >>> problem = otm.Problem(draft=[[1, 0], [0.5, 0.5]], target=[0.5, 0.5], law=otm.IID(2))
        >>> float(otm.optimal_acceptance(problem[1])), problem[1].batch_shape
        (1.0, ())
        """
        if not self.batch_shape:
            raise ShapeMismatch(
                f"A row is taken from a batch; this problem is one pair, indexed by {row!r:.40}. "
                "Use it as it is."
            )
        other = object.__new__(Problem)
        vars(other).update(draft=self.draft[row], target=self.target[row], law=self.law)
        return other

    def with_law(self, law: Law) -> Problem:
        """Return the same two distributions under another draft law, without a second validation.

        >>> import otm
        >>> otm.Problem(draft=[1.0], target=[1.0], law=otm.IID(2)).with_law(otm.IID(3)).law
        IID(k=3)
        """
        p, q = law.align(self.draft, self.target)
        other = object.__new__(Problem)
        vars(other).update(draft=p, target=q, law=law)
        return other

    def single(self, *, purpose: str) -> Problem:
        """Return this problem with float64 NumPy arrays, or raise for a batch of rows.

        Raises:
            ShapeMismatch: if the problem has leading axes; `purpose` names what needs a single row.
        """
        if self.batch_shape:
            raise ShapeMismatch(
                f"{purpose} needs one pair of distributions (V,); this problem has leading axes "
                f"{self.batch_shape}. "
                "Index the row you want: problem[0]."
            )
        refuse_gradients(self, purpose)
        draft, target = to_numpy(self.draft), to_numpy(self.target)
        if draft is self.draft and draft.dtype == "float64" and target.dtype == "float64":
            return self
        return Problem(draft=unit_rows(draft), target=unit_rows(target), law=self.law)


def check_problem(problem: object, *, gradients: bool = False) -> Problem:
    """Return `problem` if this is an `otm.Problem`, or raise `InvalidParameter`.

    Raises `Unsupported` on tensors that require gradients, unless the caller passes them on.

    >>> check_problem(0.75)
    Traceback (most recent call last):
    otm.errors.InvalidParameter: A problem must be an otm.Problem; got 0.75. Build one from draft=,
    target=, law=; it comes after the verifier, where there is one.
    """
    if isinstance(problem, Problem):
        if not gradients:
            refuse_gradients(problem, "What is asked for here")
        return problem
    raise InvalidParameter(
        f"A problem must be an otm.Problem; got {problem!r}. Build one from draft=, target=, law=; "
        "it comes after the verifier, where there is one."
    )


def refuse_gradients(problem: Problem, what: str) -> None:
    """Raise `Unsupported`, in the name of `what`, if tensors require gradients."""
    if tracks_gradient(problem.draft, problem.target):
        raise Unsupported(
            f"{what} passes no gradient on, and a tensor of this problem requires one. Call "
            ".detach() on draft and target; laws and verifiers whose `differentiable` is true "
            "pass gradients on through otm.optimal_acceptance and otm.acceptance."
        )


def require_law(problem: object, *laws: type[_Law], message: str, gradients: bool = False) -> _Law:
    """Return the problem's law if this is one of `laws`, or raise.

    Args:
        problem: any argument that should be an `otm.Problem`.
        laws: the draft laws that will do.
        message: what is wrong with another law and what to use instead; `{law}` in it stands for
            that law, `{k}` for its number of drafts.
        gradients: whether the caller passes gradients on.

    Raises:
        InvalidParameter: if `problem` is no problem.
        Unsupported: for another law.
    """
    law = check_problem(problem, gradients=gradients).law
    if isinstance(law, laws):
        return law
    raise Unsupported(message.format(law=law, k=round(law.size)))
