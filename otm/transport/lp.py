"""Optimal couplings by a linear program over drafted sets, lifted to draft sequences on request.

The cost sees a sequence x only through its set S(x), so sequences with one set merge, and only
edges y ∈ S can carry accepted mass: maximise the flow along them under the masses of both sides. At
most k·Σ_{j≤k} C(V, j) variables, and the value of the literal program over Ω^k
(`otm.transport.optimum_program`). Its order tells nothing more about the output, so every sequence
takes the share P(x)/P(S) of its set's flow: the optimum of the literal program, too
(docs/theory.md, "Collapse").

HiGHS's interior point method with crossover ends in a vertex, and a vertex of a network is exact up
to rounding. Right-hand sides are multiplied by 2^20, because solver tolerances are absolute and
token masses are small. The answer is not believed: `certify` re-evaluates flow and cut, and a gap
above 1e-9 is an error, not a number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.drafts.base import PAD, SetTable, collapse, enumerate_drafts, readable
from otm.errors import SolverFailure, TooLarge
from otm.pmf import check_choice
from otm.problem import Problem, check_problem
from otm.results import Optimum
from otm.transport.certify import certify
from otm.transport.highs import maximised

Method = Literal["sets", "sequences"]

GAP_TOLERANCE = 1e-9
MAX_VARIABLES = 4_000_000
_SCALE = 2.0**20


def optimum(problem: Problem, *, method: Method = "sets") -> Optimum:
    """Solve the optimal transport problem with membership cost, with certificates from both sides.

    α* = max_π Pr(Y ∈ S(X)) over couplings π of the law of the drafts and the target.

    Args:
        problem: one pair of distributions `(V,)`, any law.
        method: where the certificates are evaluated: "sets" (the default), or "sequences", on the
            literal program of SpecTr over Ω^k, to which the sets' optimum is lifted.

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

    >>> import otm
    >>> round(optimum(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))).value, 12)
    0.9375
    """
    single = check_problem(problem).single(purpose="otm.optimum")
    check_choice(method, name="method", choices=("sets", "sequences"))
    size = single.law.num_sequences(single.num_tokens)
    if method == "sequences":
        size *= single.num_tokens
    if size > MAX_VARIABLES:
        raise TooLarge(
            f"The linear program is limited to {MAX_VARIABLES:,} variables; {single.law!r} over V "
            f"= {single.num_tokens} needs {readable(size)} with method={method!r}. Call "
            "otm.optimal_acceptance for the value at any size; for i.i.d. drafts otm.Optimal() "
            "verifies there too."
        )
    drafts = enumerate_drafts(single.law, single.draft)
    sets = collapse(drafts)
    rows, columns, flow, cut = _propose(sets, single.target)
    # A token without target mass costs nothing in Q(T) and can only raise b(T); it has no edge and
    # hence no price.
    cut |= single.target == 0
    table, set_of_row = sets, np.arange(len(sets.mass))
    if method == "sequences":
        set_of_row = sets.of_sequence
        table = SetTable(drafts.tokens, drafts.mass, of_sequence=np.arange(len(drafts.mass)))
        rows, columns, flow = _lift(rows, columns, flow, sets, drafts.mass)
    checked = certify(table, single.target, rows, columns, flow, cut)
    if not checked.upper - checked.lower <= GAP_TOLERANCE:
        raise SolverFailure(
            f"Flow and cut must agree within {GAP_TOLERANCE:g}; HiGHS's answer gives "
            f"[{checked.lower!r}, {checked.upper!r}]. Call otm.optimal_acceptance for the value "
            "alone."
        )
    shape = (len(sets.mass), single.num_tokens)
    merged = scipy.sparse.coo_array((checked.flow, (set_of_row[rows], columns)), shape=shape)
    return Optimum(
        lower=checked.lower,
        upper=checked.upper,
        cut=cut,
        flow=scipy.sparse.csr_array(merged),
        sets=sets,
        drafts=drafts,
        target=single.target,
        method=method,
    )


_Flow = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def _propose(sets: SetTable, target: NDArray[np.float64]) -> tuple[*_Flow, NDArray[np.bool_]]:
    """Return an optimal flow by edges, from set `rows` to token `columns`, and a minimum cut."""
    num_sets = len(sets.mass)
    # An edge with no mass at one end carries none; leaving it out keeps the basis clean.
    live = (sets.tokens != PAD) & (sets.mass > 0)[:, None]
    live &= target[sets.tokens] > 0
    rows, slots = np.nonzero(live)
    columns = sets.tokens[rows, slots]
    flow, prices = _solve(rows, columns + num_sets, np.concatenate([sets.mass, target]))
    # Dual feasibility reads a_S + b_y ≥ 1 on edges with a, b ≥ 0; y lies in T where its arc is the
    # one that is cut.
    return rows, columns, flow, prices[num_sets:] > 0.5


def _lift(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    flow: NDArray[np.float64],
    sets: SetTable,
    mass: NDArray[np.float64],
) -> _Flow:
    """Split the flow of each set over the set's sequences, in proportion to the masses `(n,)`."""
    edges_of = np.bincount(rows, minlength=len(sets.mass))
    number = edges_of[sets.of_sequence]
    sequence = np.repeat(np.arange(len(mass)), number)
    # The edges of a set are contiguous: each of its sequences runs through them.
    first = (np.cumsum(edges_of) - edges_of)[sets.of_sequence] - (np.cumsum(number) - number)
    edge = np.arange(len(sequence)) + first[sequence]
    # A set that has edges has mass.
    share = mass[sequence] / sets.mass[rows[edge]]
    return sequence, columns[edge], flow[edge] * share


def _solve(
    tails: NDArray[np.int64], heads: NDArray[np.int64], limits: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a largest flow along edges between nodes of limited throughput, and its duals."""
    num_edges = len(tails)
    if num_edges == 0:
        return np.zeros(0), np.zeros(len(limits))
    flow, prices = maximised(
        np.ones(num_edges),
        np.full(num_edges, np.inf),
        limits * _SCALE,
        # The incidence matrix: a column for each edge, with a one at either end.
        starts=np.arange(0, 2 * num_edges, 2),
        rows=np.stack([tails, heads], axis=1).reshape(-1),
        entries=np.ones(2 * num_edges),
        remedy="Call otm.optimal_acceptance for the value alone.",
        solver="ipm" if num_edges > 2000 else "simplex",
        run_crossover="on",
        # The zero flow is feasible: the primal simplex starts there, and presolving small programs
        # takes longer than solving them.
        simplex_strategy=4,
        presolve="choose" if num_edges > 2000 else "off",
        primal_feasibility_tolerance=1e-9,
        dual_feasibility_tolerance=1e-9,
    )
    return flow / _SCALE, prices
