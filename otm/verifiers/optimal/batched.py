"""The binned optimal verifier for a whole batch: tokens stay on the device, and only a few thousand
numbers per row move to the host.

A decoder verifies every step, for many rows at once, with distributions that live on a GPU. The
binned form (`otm.verifiers.optimal.bins`) splits that work by size:

* what is as wide as the vocabulary stays where it is: the bin of each token, the masses of the
  bins, and the residual draw;
* the score pieces depend on the masses of the bins alone, `(rows, bins)`. They are built on the
  host, row by row, by the very code that a single row uses (`otm.verifiers.optimal.scores`),
  self-checks included: a third of a millisecond per row at 4,096 bins;
* what comes back is small: the planned and the true level of each bin, and some 40 atoms and 80
  pieces per row, padded to one table. Selecting is a gather and a binary search in it, for all
  drafts of all rows at once.

**Lossless.** The selected draft has the law s(y) = p(y)·a_b, with a_b what the pieces of bin b
achieve; the accept step min(1, q/s) and the residual (q − s)₊ use the token's own q and this s.
That is exact for any bins, so rounding at the edge of a bin, which differs between devices, costs
no exactness; nor does CUDA's summing the masses of the bins in no fixed order, which lets two runs
differ by rounding.

**float32.** Rows are widened to float64 and rescaled to sum to 1 before anything is computed, so
drafts from the rescaled p give an output with the law of the rescaled q to 1e-12. If the drafts
come from float64 distributions and their float32 copies are what the verifier sees, each entry is
off by a relative δ ≤ 6e-8, each draft is another token with probability δ at most, and the target
has moved by as much: the output misses the float64 target by (k + 1)·δ in total variation at most,
6e-7 at k = 8.

Reference: docs/theory.md, "The binned form".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine import arrays
from otm._machine.arrays import (
    Array,
    as_scalar_or_array,
    gather,
    namespace,
    quiet,
    running_sum,
    search_rows,
    to_numpy,
    total,
    untracked,
)
from otm._machine.compiled import compiled
from otm.drafts.iid import IID
from otm.errors import InvalidParameter, SolverFailure, Unsupported
from otm.overlap.rows import SUM_SECONDS
from otm.problem import Problem, check_problem, require_law
from otm.verifiers.base import Verifier, require_support
from otm.verifiers.optimal.bins import bin_tokens
from otm.verifiers.optimal.scores import Scores, ScoreTable, TokenScores, scores_of_tokens
from otm.verifiers.optimal.verifier import Optimal

_FEWEST_CHUNKS = (
    4  # eight float64 temporaries of a quarter of the rows are twice a float32 input of two arrays
)


def prepare_batch(verifier: Verifier, problem: Problem) -> BatchedOptimalRule:
    """Prepare the binned optimal verifier for every row of a batch, on the arrays' device.

    s = p·a_b, a the levels of `otm.Optimal(bins=bins)` on the row's bins of log(q/p).

    Args:
        verifier: `otm.Optimal(bins=...)`.
        problem: any batch `(..., V)` with an `IID` law, NumPy or torch on any device, float32 or
            float64.

    Returns:
        A rule with `select` and `verify` for drafts of every row, on the same kind of array and
        device. On NumPy each row's tables are those of `otm.prepare(verifier, row)`.

    Raises:
        Unsupported: for other verifiers, for `Optimal()` without bins, and for laws other than
            `IID`.
        SolverFailure: if a row's score pieces fail a self-check; the message names the row.

    Cost: O(V) per row on the device, some fifteen passes and no sort; about 0.3 ms per row on the
        host at 4,096 bins; 32 bytes per bin and row travel. Rows go in four chunks, or in chunks of
        2²⁴ entries if those are smaller; a device is waited for once in each. Peak extra memory:
        below 4 times the input from four rows on. Accuracy: output law and acceptance to 1e-12 of
        the rows as given; float32 as the module's docstring derives.
    Reference: docs/theory.md, "The binned form".

    >>> import numpy as np
    >>> import otm
    >>> draft, target = [[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]
    >>> rows = otm.Problem(draft=draft, target=target, law=otm.IID(2))
    >>> rule = prepare_batch(otm.Optimal(bins=64), rows)
    >>> rule.lower, rule.select(np.array([[0, 1], [1, 1]]), np.array([[0.3, 0.3], [0.5, 0.1]]))
    (array([0.9375, 1.    ]), array([1, 1]))
    """
    require_support(verifier, check_problem(problem).law)
    if not isinstance(verifier, Optimal) or verifier.bins is None:
        raise Unsupported(
            f"prepare_batch prepares the binned optimal verifier; got {verifier!r}. "
            "Pass otm.Optimal(bins=4096), or call otm.prepare row by row."
        )
    law = require_law(
        problem,
        IID,
        message="Batches hold rows of as many drafts; the problem has {law!r}. Call otm.prepare "
        "row by row.",
    )
    plain = [untracked(array) for array in (problem.draft, problem.target)]
    # under torch.no_grad(): the rule keeps no graph alive
    if plain[0] is not problem.draft or plain[1] is not problem.target:
        problem = Problem(draft=plain[0], target=plain[1], law=problem.law)
    rows = _Rows.of(problem)
    xp, bins = namespace(rows.draft), verifier.bins
    index = xp.empty(
        rows.draft.shape, dtype=xp.int16 if bins <= 1 << 15 else xp.int32, device=rows.draft.device
    )
    views = arrays.host_views([rows.draft, rows.target, rows.draft_sum, rows.target_sum, index])
    work, places = (
        (rows, index) if views is None else (_Rows(rows.batch_shape, *views[:4]), views[4])
    )

    def masses(chunk: slice) -> Array:
        cells = bin_tokens(*work.wide(chunk), bins, law.contained.steepest)
        places[chunk, :] = namespace(places).astype(cells.index, places.dtype)
        return namespace(places).concat(
            [cells.draft, cells.target, cells.undrafted[:, None]], axis=-1
        )

    # A GPU bins the later chunks while the host works on the first.
    binned = arrays.share(
        masses, list(work.chunks()), 1 if views is None else arrays.num_threads(index)
    )
    built: list[TokenScores] = []
    for row in (row for chunk in binned for row in to_numpy(chunk)):
        built.append(
            _scores_of_row(row[:bins], row[bins:-1], float(row[-1]), law, problem, row=len(built))
        )
    return BatchedOptimalRule(
        problem=problem,
        scores=tuple(row.scores for row in built),
        upper=as_scalar_or_array(
            rows.unflatten(_send([1.0 - row.gain for row in built], rows.draft))
        ),
        _rows=rows,
        _index=index,
        _level=_send(np.stack([row.level for row in built]), rows.draft),
        _achieved=_send(np.stack([row.achieved for row in built]), rows.draft),
        _table=_stacked([row.scores for row in built], rows.draft),
    )


def _scores_of_row(
    draft: NDArray[Any],
    target: NDArray[Any],
    undrafted: float,
    law: IID,
    problem: Problem,
    *,
    row: int,
) -> TokenScores:
    try:
        return scores_of_tokens(
            draft, target, law.contained, undrafted=undrafted, num_tokens=problem.num_tokens
        )
    except SolverFailure as error:
        raise SolverFailure(f"Row {row} of the batch, leading axes flattened: {error}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class BatchedOptimalRule:
    """The binned optimal verifier, prepared for every row of a batch.

    Attributes:
        problem: the batch `(..., V)`.
        scores: atoms and pieces of each row, leading axes flattened, with their measured residuals
            (`scores[i].residuals`).
        upper: optimum of the row's bins, a float or `(...)`; no verifier of the row's k drafts
            accepts more.
    """

    problem: Problem
    scores: tuple[Scores, ...]
    upper: Array
    _rows: _Rows
    _index: Array
    _level: Array
    _achieved: Array
    _table: ScoreTable

    @property
    def num_uniforms(self) -> int:
        """One for each score, one for the accept step, one for the residual draw."""
        return self.problem.num_drafts + 2

    @property
    def lower(self) -> Array:
        """Σ min(s, q), the acceptance of the rule, a float or `(...)` in float64. Cost: O(V) per
        row at every call.
        """
        xp = namespace(self._index)
        parts = []
        for chunk in self._rows.chunks():
            p, q = self._rows.wide(chunk)
            parts.append(total(xp.minimum(self._selected_law(chunk, p), q)))
        return as_scalar_or_array(self._rows.unflatten(xp.concat(parts, axis=0)))

    @property
    def selection_law(self) -> Array:
        """Law s `(..., V)`, float64, of the selected draft from the actual pieces. Cost: O(V) per
        row at every call.
        """
        xp = namespace(self._index)
        law = xp.concat(
            [self._selected_law(chunk, self._rows.wide(chunk)[0]) for chunk in self._rows.chunks()],
            axis=0,
        )
        return self._rows.unflatten(law)

    def select(self, drafts: Array, uniforms: Array) -> Array:
        """Return the draft with the largest score of each row.

        Args:
            drafts: tokens `(..., k)`, or `(..., n, k)` for n independent draws per row, on the
                problem's device.
            uniforms: as many in [0, 1), float64.

        Returns:
            Tokens `(...)` or `(..., n)`, int64.

        Raises:
            InvalidParameter: on a wrong shape or dtype, or tokens outside the vocabulary.

        Cost: O(k log pieces) per draw. A device is waited for once, to check the tokens.
        """
        tokens, flat, shape = self._flatten(drafts, uniforms, self.problem.num_drafts)
        return namespace(tokens).reshape(self._winners(tokens, flat), shape)

    def verify(self, drafts: Array, uniforms: Array) -> tuple[Array, Array]:
        """Select by scores, accept where η < q/s, otherwise draw from the residual ∝ (q − s)₊.

        Args:
            drafts: tokens `(..., k)`, or `(..., n, k)` for n independent draws per row, on the
                problem's device.
            uniforms: `(..., k + 2)` or `(..., n, k + 2)` in [0, 1), float64.

        Returns:
            Output tokens and accept flags, `(...)` or `(..., n)`.

        Raises:
            InvalidParameter: on a wrong shape or dtype, or tokens outside the vocabulary.

        Cost: O(k log pieces) per draw, and O(V) for each row in which a draw was rejected. A device
            is waited for twice: to check the tokens, and to learn which rows these are.
        """
        tokens, flat, shape = self._flatten(drafts, uniforms, self.num_uniforms)
        xp = namespace(tokens)
        selected = self._winners(tokens, flat[..., :-2])
        target, law = self._at(selected)
        with quiet():
            accepted = flat[..., -2] < xp.where(law > 0, target / law, 0.0)
        output = xp.where(accepted, selected, self._residual_draws(accepted, flat[..., -1]))
        return xp.reshape(output, shape), xp.reshape(accepted, shape)

    def _flatten(
        self, drafts: Array, uniforms: Array, width: int
    ) -> tuple[Array, Array, tuple[int, ...]]:
        """Check the arguments; return tokens `(rows, n, k)`, uniforms `(rows, n, width)` and the
        shape of an answer.
        """
        batch, k = self.problem.batch_shape, self.problem.num_drafts
        try:
            xp = namespace(self._index, drafts, uniforms)
        except TypeError as error:
            raise InvalidParameter(
                "drafts and uniforms must be arrays of the problem's kind, "
                f"{type(self._index).__name__}; got "
                f"{type(drafts).__name__} and {type(uniforms).__name__}. Convert them."
            ) from error
        shape = tuple(int(n) for n in drafts.shape[:-1])
        if (
            shape[: len(batch)] != batch
            or drafts.ndim not in (len(batch) + 1, len(batch) + 2)
            or int(drafts.shape[-1]) != k
            or not xp.isdtype(drafts.dtype, "integral")
        ):
            raise InvalidParameter(
                f"drafts must have shape (..., k) or (..., n, k) with leading axes {batch} and k = "
                f"{k}, and be integers; got {drafts.dtype} of shape {tuple(drafts.shape)}. Pass k "
                "tokens for each row of the problem."
            )
        if tuple(uniforms.shape) != (*shape, width) or uniforms.dtype != xp.float64:
            raise InvalidParameter(
                f"uniforms must be float64 of shape {(*shape, width)}; got {uniforms.dtype} of "
                f"shape {tuple(uniforms.shape)}. "
                "Draw them in float64: 2²⁴ values in float32 are too few to hit rare tokens of a "
                "large vocabulary."
            )
        drafts = xp.astype(drafts, xp.int64)  # V may be more than a narrow integer holds
        if bool(xp.any((drafts < 0) | (drafts >= self.problem.num_tokens))):
            raise InvalidParameter(
                f"Drafted tokens must lie in [0, {self.problem.num_tokens}); got "
                f"{int(xp.min(drafts))} to "
                f"{int(xp.max(drafts))}. Check that both models share the vocabulary."
            )
        num_rows, draws = self._rows.number, int(np.prod(shape[len(batch) :], dtype=np.int64))
        tokens = xp.reshape(drafts, (num_rows, draws, k))
        return tokens, xp.reshape(uniforms, (num_rows, draws, width)), shape

    def _winners(self, tokens: Array, uniforms: Array) -> Array:
        """Return the selected tokens `(rows, n)` for tokens `(rows, n, k)`; the smallest gap below
        1 wins.
        """
        xp = namespace(tokens)
        flat = xp.reshape(tokens, (self._rows.number, -1))
        drafted = gather(self._rows.draft, flat) > 0
        levels = xp.where(
            drafted, gather(self._level, xp.astype(gather(self._index, flat), xp.int64)), -1.0
        )
        gaps = xp.reshape(self._table.gaps(levels, xp.reshape(uniforms, flat.shape)), tokens.shape)
        best = xp.argmin(gaps, axis=-1)
        return gather(tokens, best[..., None])[..., 0]

    def _at(self, tokens: Array) -> tuple[Array, Array]:
        """Return q and s of tokens `(rows, n)`, in float64."""
        xp = namespace(tokens)
        p = xp.astype(gather(self._rows.draft, tokens), xp.float64) / self._rows.draft_sum
        q = xp.astype(gather(self._rows.target, tokens), xp.float64) / self._rows.target_sum
        return q, p * gather(self._achieved, xp.astype(gather(self._index, tokens), xp.int64))

    def _selected_law(self, rows: Any, draft: Array) -> Array:
        """Return s of the chosen rows, given p in float64."""
        xp = namespace(draft)
        return draft * gather(self._achieved[rows, :], xp.astype(self._index[rows, :], xp.int64))

    def _residual_draws(self, accepted: Array, uniforms: Array) -> Array:
        """Draw from ∝ (q − s)₊ by inverse CDF in the rows that reject a draft, `(rows, n)`;
        elsewhere the entries are meaningless.
        """
        xp = namespace(accepted)
        drawn = xp.zeros(accepted.shape, dtype=xp.int64, device=accepted.device)
        rejecting = xp.nonzero(~xp.all(accepted, axis=-1))[0]
        seconds = SUM_SECONDS * self._index.shape[-1] * len(rejecting)
        fast = (
            compiled("otm.verifiers.optimal.draws", seconds=seconds)
            if str(getattr(accepted, "device", "cpu")) == "cpu"
            else None
        )
        if fast is not None:
            masses = (
                self._rows.draft,
                self._rows.target,
                self._rows.draft_sum[:, 0],
                self._rows.target_sum[:, 0],
            )
            arrays = (*masses, self._index, self._achieved, rejecting, uniforms[rejecting, :])
            drawn[rejecting, :] = xp.asarray(
                fast.binned(*(np.ascontiguousarray(to_numpy(a)) for a in arrays))
            )
            return drawn
        for chunk in self._rows.chunks(int(rejecting.shape[0])):
            rows = rejecting[chunk]
            p, q = self._rows.wide(rows)
            excess = xp.clip(q - self._selected_law(rows, p), 0.0, None)
            del p
            # Where s = q nothing is ever rejected but by rounding; the target stands in as a law to
            # draw from.
            excess = xp.where(xp.any(excess > 0, axis=-1)[:, None], excess, q)
            drawn[rows, :] = _draws(excess, uniforms[rows, :])
        return drawn


def _draws(mass: Array, uniforms: Array) -> Array:
    """Map uniforms `(rows, n)` to tokens with probability mass / Σ mass; may overwrite `mass`
    `(rows, V)`.

    A token without mass is never returned. u·total can round up to the total where that is
    subnormal, and a parallel running sum can step back by a unit in the last place, so whatever
    lands on such a token gets the heaviest one instead, an event of probability V·2⁻⁵³ at most
    unless the whole mass is subnormal.
    """
    xp = namespace(mass)
    heaviest, live = xp.argmax(mass, axis=-1)[:, None], mass > 0
    cumulative = running_sum(mass)
    tokens = search_rows(cumulative, uniforms * cumulative[:, -1:])
    tokens = xp.clip(tokens, None, int(cumulative.shape[-1]) - 1)
    return xp.where(gather(live, tokens), tokens, heaviest)


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows:
    """The problem with flattened leading axes, and the float64 sums `(rows, 1)` of float32 rows."""

    batch_shape: tuple[int, ...]
    draft: Array
    target: Array
    draft_sum: Array
    target_sum: Array

    @classmethod
    def of(cls, problem: Problem) -> _Rows:
        """Flatten a problem; float64 rows are exact after the gate, float32 rows are rescaled once
        more.
        """
        xp = namespace(problem.draft, problem.target)
        p, q = (
            xp.reshape(array, (-1, problem.num_tokens)) for array in (problem.draft, problem.target)
        )
        sums = [total(p)[:, None], total(q)[:, None]]
        if p.dtype == xp.float64:
            sums = [xp.ones_like(each) for each in sums]
        return cls(
            batch_shape=problem.batch_shape,
            draft=p,
            target=q,
            draft_sum=sums[0],
            target_sum=sums[1],
        )

    @property
    def number(self) -> int:
        """Number of rows."""
        return int(self.draft.shape[0])

    def chunks(self, number: int | None = None) -> Iterator[slice]:
        """Cut `count` rows, all by default, into slices whose temporaries stay small."""
        count = self.number if number is None else number
        elements = (
            arrays.CHUNK_ELEMENTS if arrays.is_on_host(self.draft) else arrays.CHUNK_ON_DEVICE
        )
        step = min(-(-self.number // _FEWEST_CHUNKS), max(1, elements // int(self.draft.shape[-1])))
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    def wide(self, rows: Any) -> tuple[Array, Array]:
        """Return p and q of the chosen rows in float64, summing to 1."""
        xp = namespace(self.draft)
        if self.draft.dtype == xp.float64:
            return self.draft[rows, :], self.target[rows, :]
        p, q = (xp.astype(array[rows, :], xp.float64) for array in (self.draft, self.target))
        p /= self.draft_sum[rows, :]
        q /= self.target_sum[rows, :]
        return p, q

    def unflatten(self, array: Array) -> Array:
        """Restore the leading axes of an array `(rows, ...)`."""
        return namespace(array).reshape(array, (*self.batch_shape, *tuple(array.shape[1:])))


def _stacked(scores: Sequence[Scores], like: Array) -> ScoreTable:
    """Return the tables of all rows as one, padded, sent together to the device of `like`."""
    tables = [each.table for each in scores]
    widths = [max(map(len, parts)) for parts in zip(*tables, strict=True)]
    columns = np.full((len(widths), len(tables), max(widths)), np.inf)  # what no search finds
    columns[ScoreTable._fields.index("last")] = 0.0
    for row, table in enumerate(tables):
        for column, part in zip(columns, table, strict=True):
            column[row, : len(part)] = part
    sent, xp = _send(columns, like), namespace(like)
    return ScoreTable(
        *(
            xp.astype(sent[n, :, :width], xp.int64)
            if part.dtype.kind == "i"
            else sent[n, :, :width]
            for n, (width, part) in enumerate(zip(widths, tables[0], strict=True))
        )
    )


def _send(values: Any, like: Array) -> Array:
    """Copy float64 numbers from the host to the kind and device of `like`."""
    return namespace(like).asarray(np.asarray(values, dtype=np.float64), device=like.device)
