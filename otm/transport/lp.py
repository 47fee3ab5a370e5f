"""Optimal couplings by linear programming, in the paper's form and in a collapsed one that must
agree with it.

*sequences*: SpecTr's (4) to the letter. Variables π(x, y) for every x ∈ Ω^k and y ∈ Ω; minimise Σ
             π(x, y)·1{y ∉ S(x)} subject to
both marginals: V^{k+1} variables, V^k + V equalities.

*sets*: the cost sees x only through S(x), so sequences with one set merge, and only edges y ∈ S can
        carry accepted mass: maximise
the flow along them under the masses of both sides. At most k·Σ_{j≤k} C(V, j) variables, and the
same value.

Both go to HiGHS's interior point method with crossover, which ends in a vertex: the constraint
matrix is a network, so a vertex is exact up to rounding. Right-hand sides are multiplied by 2^20,
because solver tolerances are absolute and token masses are small.

Neither answer is believed: `certify` re-evaluates flow and cut, and a gap above 1e-9 is an error,
not a number.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.drafts.base import PAD, DraftTable, SetTable, collapse, enumerate_drafts, readable
from otm.errors import InvalidParameter, SolverFailure, TooLarge
from otm.problem import Problem, check_problem
from otm.results import Optimum
from otm.transport.certify import certify

Method = Literal["sets", "sequences"]

GAP_TOLERANCE = 1e-9
MAX_VARIABLES = 4_000_000
_LOGGER = logging.getLogger(__name__)
_SCALE = 2.0**20


@dataclasses.dataclass(frozen=True, eq=False)
class _Program:
    """min cost·x subject to lower ≤ A x ≤ upper, x ≥ 0, with A in column-compressed form."""

    cost: NDArray[np.float64]
    matrix: scipy.sparse.csc_array
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def optimum(problem: Problem, *, method: Method = "sets") -> Optimum:
    """Solve the optimal transport problem with membership cost, with certificates from both sides.

    α* = max_π Pr(Y ∈ S(X)) over couplings π of the law of the drafts and the target.

    Args:
        problem: one pair of distributions `(V,)`, any law.
        method: "sets" (collapsed, the default) or "sequences" (the literal program of SpecTr over
            Ω^k).

    Returns:
        Optimum with lower ≤ α* ≤ upper, upper − lower ≤ 1e-9, a cut, and the coupling over Ω^k on
        request.

    Raises:
        TooLarge: beyond four million variables; `otm.optimal_acceptance` gives the value at any
            size.
        SolverFailure: if HiGHS stops early or its answer fails the check.
        ShapeMismatch: if the problem has leading axes.

    Cost: one linear program; V = 60, k = 3 has 36,050 sets and 106,260 edges and takes about half a
        second.
    Reference: SpecTr, (3), (4), Lemma 2.

    >>> round(optimum(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))).value, 12)
    0.9375
    """
    single = check_problem(problem).single(purpose="otm.optimum")
    if not isinstance(method, str) or method not in ("sets", "sequences"):
        raise InvalidParameter(f"method must be 'sets' or 'sequences'; got {method!r}. Choose one.")
    size = single.law.num_sequences(single.num_tokens) * (
        single.num_tokens if method == "sequences" else 1
    )
    if size > MAX_VARIABLES:
        raise TooLarge(
            f"The linear program is limited to {MAX_VARIABLES:,} variables; {single.law!r} over V "
            f"= {single.num_tokens} needs "
            f"{readable(size)} with method={method!r}. Call otm.optimal_acceptance for the value "
            "at any size; for i.i.d. drafts "
            "otm.Optimal() verifies there too."
        )
    drafts = enumerate_drafts(single.law, single.draft)
    sets = collapse(drafts)
    propose = _propose_by_sets if method == "sets" else _propose_by_sequences
    rows, columns, flow, cut = propose(drafts, sets, single.target)
    cut |= (
        single.target == 0
    )  # costs nothing in Q(T) and can only raise b(T); such tokens have no edge and hence no price
    checked = certify(sets, single.target, rows, columns, flow, cut)
    if not checked.upper - checked.lower <= GAP_TOLERANCE:
        raise SolverFailure(
            f"Flow and cut must agree within {GAP_TOLERANCE:g}; HiGHS's answer gives "
            f"[{checked.lower!r}, {checked.upper!r}]. "
            f"Try the other method, or otm.optimal_acceptance for the value alone."
        )
    matrix = scipy.sparse.csr_array(
        scipy.sparse.coo_array(
            (checked.flow, (rows, columns)), shape=(len(sets.mass), single.num_tokens)
        )
    )
    return Optimum(
        lower=checked.lower,
        upper=checked.upper,
        cut=cut,
        flow=matrix,
        sets=sets,
        drafts=drafts,
        target=single.target,
        method=method,
    )


_Proposal = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]


def _propose_by_sets(drafts: DraftTable, sets: SetTable, target: NDArray[np.float64]) -> _Proposal:
    num_sets, num_tokens = len(sets.mass), len(target)
    # An edge with no mass at one end carries none; leaving it out keeps the basis clean.
    live = (sets.tokens != PAD) & (sets.mass > 0)[:, None]
    live &= target[sets.tokens] > 0
    rows, slots = np.nonzero(live)
    columns = sets.tokens[rows, slots]
    matrix = _incidence(rows, columns + num_sets, num_sets + num_tokens)
    limits = np.concatenate([sets.mass, target])
    program = _Program(
        cost=-np.ones(len(rows)), matrix=matrix, lower=np.full(len(limits), -np.inf), upper=limits
    )
    flow, prices = _solve(program)
    # Dual feasibility reads a_S + b_y ≥ 1 on edges with a, b ≥ 0; y lies in T where its arc is the
    # one that is cut.
    return rows, columns, flow, -prices[num_sets:] > 0.5


def _propose_by_sequences(
    drafts: DraftTable, sets: SetTable, target: NDArray[np.float64]
) -> _Proposal:
    num_sequences, num_tokens = len(drafts.mass), len(target)
    x = np.repeat(np.arange(num_sequences), num_tokens)
    y = np.tile(np.arange(num_tokens), num_sequences)
    hit = (drafts.tokens[x] == y[:, None]).any(axis=1)
    matrix = _incidence(x, y + num_sequences, num_sequences + num_tokens)
    marginals = np.concatenate([drafts.mass, target])
    # One equality is redundant; totals differ by rounding, which HiGHS calls infeasible, so the
    # heaviest token's goes.
    lower = marginals.copy()
    heaviest = num_sequences + int(np.argmax(target))
    upper = marginals.copy()
    lower[heaviest], upper[heaviest] = -np.inf, np.inf
    plan, prices = _solve(
        _Program(cost=(~hit).astype(np.float64), matrix=matrix, lower=lower, upper=upper)
    )
    price = -prices[num_sequences:]
    flow = scipy.sparse.coo_array(
        (plan[hit], (sets.of_sequence[x[hit]], y[hit])), shape=(len(sets.mass), num_tokens)
    )
    entries = scipy.sparse.coo_array(scipy.sparse.csr_array(flow))
    return (
        entries.row.astype(np.int64),
        entries.col.astype(np.int64),
        entries.data,
        price - price[target > 0].min() > 0.5,
    )


def _incidence(
    rows: NDArray[np.int64], columns: NDArray[np.int64], size: int
) -> scipy.sparse.csc_array:
    """Return the node–edge incidence matrix: two ones per column."""
    indices = np.stack([rows, columns], axis=1).reshape(-1)
    starts = np.arange(0, len(indices) + 1, 2)
    return scipy.sparse.csc_array((np.ones(len(indices)), indices, starts), shape=(size, len(rows)))


def _solve(program: _Program) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (x, row duals) at an optimal vertex."""
    import highspy  # noqa: PLC0415  # a compiled library: not before a program is solved

    num_rows, num_columns = program.matrix.shape
    if num_columns == 0:
        return np.zeros(0), np.zeros(num_rows)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = num_columns, num_rows
    lp.col_cost_ = program.cost
    lp.col_lower_, lp.col_upper_ = np.zeros(num_columns), np.full(num_columns, np.inf)
    lp.row_lower_, lp.row_upper_ = program.lower * _SCALE, program.upper * _SCALE
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = program.matrix.indptr
    lp.a_matrix_.index_ = program.matrix.indices
    lp.a_matrix_.value_ = program.matrix.data
    solver = highspy.Highs()
    options: dict[str, Any] = {
        "output_flag": False,
        "solver": "ipm" if num_columns > 2000 else "simplex",
        "run_crossover": "on",
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    _LOGGER.debug(
        "program of %d rows and %d variables solved in %.3f s",
        num_rows,
        num_columns,
        solver.getRunTime(),
    )
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverFailure(
            "HiGHS must reach an optimal vertex; it stopped with "
            f"{solver.modelStatusToString(status)!r} on {num_columns} "
            "variables. Call otm.optimal_acceptance for the value alone."
        )
    solution = solver.getSolution()
    return np.asarray(solution.col_value) / _SCALE, np.asarray(solution.row_dual)
