"""Linear programs by HiGHS, called directly: SciPy's front to it takes longer to load."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from otm.errors import SolverFailure

_LOGGER = logging.getLogger(__name__)


def maximised(
    gain: NDArray[np.float64],
    most: NDArray[np.float64],
    limits: NDArray[np.float64],
    *,
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    entries: NDArray[np.float64],
    remedy: str,
    **options: str | float | bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return an x that maximises gain·x over 0 ≤ x ≤ most with A x ≤ limits, and the rows' duals.

    Args:
        gain, most: by variable.
        limits: by row.
        starts, rows, entries: A by columns: where each begins, its rows, and what stands there.
        remedy: what to do where there is no solution, a sentence.
        options: of HiGHS.

    Raises:
        SolverFailure: if the solver ends without an optimal vertex.
    """
    import highspy  # noqa: PLC0415  # a compiled library: not before a program is solved

    solver = highspy.Highs()
    for name, value in ({"output_flag": False} | options).items():
        solver.setOptionValue(name, value)
    solver.passModel(
        len(gain),
        len(limits),
        len(entries),
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMaximize),
        0.0,  # the value of x = 0
        gain,
        np.zeros(len(gain)),
        most,
        np.full(len(limits), -np.inf),
        limits,
        starts.astype(np.int32),
        rows.astype(np.int32),
        entries,
        np.zeros(len(gain), dtype=np.int32),  # no variable is an integer
    )
    solver.run()
    status = solver.getModelStatus()
    _LOGGER.debug(
        "program of %d rows and %d variables solved in %.3f s",
        len(limits),
        len(gain),
        solver.getRunTime(),
    )
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverFailure(
            "HiGHS must reach an optimal vertex; it stopped with "
            f"{solver.modelStatusToString(status)!r} on {len(gain)} variables. {remedy}"
        )
    solution = solver.getSolution()
    return np.asarray(solution.col_value), np.asarray(solution.row_dual)
