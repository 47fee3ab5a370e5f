"""Results of the library's functions: frozen, with cheap quantities as properties."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._display import drawing
from otm._display.tabular import OneTable, Table
from otm.drafts.base import PAD, DraftTable, SetTable, members
from otm.results.statistics import Certified

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_ROWS: Final = 32
_MOST_COLUMNS: Final = 16

Definition = Literal["membership", "rule"]
"""A definition of acceptance: the output is among the drafts (SpecTr's definition), or the rule
said "accept".
"""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Coupling(OneTable):
    """A joint law of drafts and output, a row for each draft sequence, a column for each token.

    Attributes:
        drafts: `(n, k)` int64, −1 where a law could draft no further token.
        joint: `(n, V)` sparse array of probabilities.
    """

    drafts: NDArray[np.int64]
    joint: scipy.sparse.csr_array

    def __repr__(self) -> str:
        rows, columns = self.joint.shape
        return (
            f"Coupling({rows} draft sequences × {columns} tokens, acceptance={self.acceptance:.6g})"
        )

    @property
    def draft_marginal(self) -> NDArray[np.float64]:
        """The law of the drafts, `(n,)`."""
        return np.asarray(self.joint.sum(axis=1)).reshape(-1)

    @property
    def output_marginal(self) -> NDArray[np.float64]:
        """The law of the output `(V,)`; the target's exactly if the coupling is lossless."""
        return np.asarray(self.joint.sum(axis=0)).reshape(-1)

    @property
    def acceptance(self) -> float:
        """Pr(output ∈ drafts)."""
        entries = self.joint.tocoo()
        hits = (self.drafts[entries.row] == entries.col[:, None]).any(axis=1)
        return float(np.sum(entries.data[hits]))

    def data(self) -> Table:
        """Return the joint law as a table; the rest of many rows or columns as one."""
        names, joint, _ = self._likeliest()
        width = min(joint.shape[1], _MOST_COLUMNS)
        head = (
            "drafts",
            *(str(token) for token in range(width)),
            *(["other tokens"] * (width < joint.shape[1])),
            "Pr(drafts)",
        )
        rows = [
            (
                name,
                *map(float, row[:width]),
                *([float(row[width:].sum())] * (width < joint.shape[1])),
                float(row.sum()),
            )
            for name, row in zip(names, joint, strict=True)
        ]
        return Table(
            columns=head,
            rows=tuple(rows),
            title=f"Pr(drafts, output); accepted {self.acceptance:.6f}",
        )

    def _draw(self, ax: Axes) -> None:
        names, joint, member = self._likeliest()
        drawing.draw_matrix(
            ax, joint, member, rows=names, columns=[str(token) for token in range(joint.shape[1])]
        )
        ax.set_title(f"accepted {self.acceptance:.4f} (blue)", fontsize=10, loc="left", y=1.19)

    def _likeliest(self) -> tuple[list[str], NDArray[np.float64], NDArray[np.bool_]]:
        """Return names, masses and memberships of the likeliest draft sequences and of the rest."""
        mass = self.draft_marginal
        kept = np.sort(np.argsort(-mass, kind="stable")[:_MOST_ROWS])
        joint = self.joint.tocsr()[kept].toarray()
        member = members(self.drafts[kept], joint.shape[1])
        names = [
            "∅" if not len(row) else " ".join(str(token) for token in row if token != PAD)
            for row in self.drafts[kept]
        ]
        if len(kept) < len(mass):
            rest = np.maximum(self.output_marginal - joint.sum(axis=0), 0.0)
            joint, member = (
                np.vstack([joint, rest]),
                np.vstack([member, np.zeros(joint.shape[1], dtype=bool)]),
            )
            names.append("rest")
        return names, joint, member


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Optimum(Certified, OneTable):
    """The optimal acceptance between two certificates, each evaluated without the solver.

    The gap between the certificates is at most 1e-9: a wider one is raised as a solver failure.

    Attributes:
        lower: value of a feasible flow, rounded down; some coupling accepts at least this much.
        upper: value of a cut, rounded up; no coupling accepts more.
        cut: mask `(V,)` of the set T with upper = 1 + Q(T) − b(T).
        flow: `(m, V)` sparse masses from drafted set to output token: the accepted part of the
            plan.
        sets: the m drafted sets and their masses.
        drafts: every draft sequence and its mass.
        target: q `(V,)`.
        method: where both sides were evaluated, on "sets" or on "sequences".
    """

    cut: NDArray[np.bool_]
    flow: scipy.sparse.csr_array
    sets: SetTable
    drafts: DraftTable
    target: NDArray[np.float64]
    method: str

    def __repr__(self) -> str:
        return (
            f"Optimum(value={self.value:.12g}, gap={self.gap:.2g}, sets={len(self.sets.mass)}, "
            f"method={self.method!r})"
        )

    @functools.cached_property
    def plan(self) -> scipy.sparse.csr_array:
        """The law of an accepted output given each drafted set `(m, V)`, flow over mass."""
        mass = np.repeat(self.sets.mass, np.diff(self.flow.indptr))
        share = np.divide(self.flow.data, mass, out=np.zeros(len(mass)), where=mass > 0)
        return scipy.sparse.csr_array(
            (share, self.flow.indices, self.flow.indptr), shape=self.flow.shape
        )

    @functools.cached_property
    def coupling(self) -> Coupling:
        """The optimal joint law of (drafts, output) over all draft sequences.

        A sequence takes its share P(x)/P(S) of its set's flow; mass left over on both sides, where
        nothing can be accepted, is matched in order (north-west corner), which adds at most n + V
        entries. Cost: O(n·k + m·V).
        """
        share = np.zeros(len(self.drafts.mass))
        set_mass = self.sets.mass[self.sets.of_sequence]
        np.divide(self.drafts.mass, set_mass, out=share, where=set_mass > 0)
        accepted = scipy.sparse.diags_array(share).tocsr() @ self.flow[self.sets.of_sequence]
        left_rows = np.maximum(self.drafts.mass - accepted.sum(axis=1), 0.0)
        left_columns = np.maximum(self.target - accepted.sum(axis=0), 0.0)
        joint = accepted + _north_west_corner(left_rows, left_columns)
        return Coupling(drafts=self.drafts.tokens, joint=scipy.sparse.csr_array(joint))

    def data(self) -> Table:
        """Return the two certificates, the gap, the cut's set, and the size of the program."""
        cut = np.flatnonzero(self.cut)
        tokens = ", ".join(map(str, cut[:_MOST_COLUMNS])) + (
            ", …" if len(cut) > _MOST_COLUMNS else ""
        )
        rows = (
            ("a coupling accepts at least", self.lower),
            ("no coupling accepts more than", self.upper),
            ("gap", self.gap),
            ("by the cut T", f"{{{tokens}}}"),
            ("draft sequences", len(self.drafts.mass)),
            ("drafted sets", len(self.sets.mass)),
        )
        return Table(
            columns=("", "value"), rows=rows, title="Optimal acceptance, certified from both sides"
        )

    def _draw(self, ax: Axes) -> None:
        self.coupling.plot(ax)


def _north_west_corner(
    rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> scipy.sparse.csr_array:
    """Match two mass vectors of equal total in order, along both cumulative sums."""
    ends_of_rows, ends_of_columns = np.cumsum(rows), np.cumsum(columns)
    shape = (len(rows), len(columns))
    if ends_of_rows[-1] <= 0 or ends_of_columns[-1] <= 0:
        return scipy.sparse.csr_array(shape)
    # The totals agree up to rounding; the column side carries the difference, spread in proportion.
    ends_of_rows *= ends_of_columns[-1] / ends_of_rows[-1]
    ends = np.unique(np.concatenate([ends_of_rows, ends_of_columns]))
    lengths = np.diff(ends, prepend=0.0)
    middles = ends - 0.5 * lengths
    row = np.minimum(np.searchsorted(ends_of_rows, middles), shape[0] - 1)
    column = np.minimum(np.searchsorted(ends_of_columns, middles), shape[1] - 1)
    return scipy.sparse.csr_array(scipy.sparse.coo_array((lengths, (row, column)), shape=shape))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Draws of a scheme: drafts, output, and acceptance by the rule."""

    drafts: NDArray[np.int64]
    output: NDArray[np.int64]
    accepted: NDArray[np.bool_]

    def __repr__(self) -> str:
        n, k = self.drafts.shape
        return (
            f"Samples(size={n}, k={k}, accepted={self.accepted.mean():.4g}, "
            f"member={self.member.mean():.4g})"
        )

    @property
    def member(self) -> NDArray[np.bool_]:
        """True where the output is among the drafts `(n,)`, as a residual draw can be by chance."""
        return is_member(self.output, self.drafts)


def is_member(output: NDArray[Any], drafts: NDArray[Any]) -> NDArray[np.bool_]:
    """Return True where `output[i]` is one of `drafts[i]`; padding is never a member."""
    hits: NDArray[np.bool_] = ((drafts == output[:, None]) & (drafts != PAD)).any(axis=1)
    return hits
