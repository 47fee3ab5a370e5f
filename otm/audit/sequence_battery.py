"""One call that runs a block verifier on all standard toy models and shrinks what fails."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from otm.audit.candidate import CandidateFailure
from otm.audit.collection import Collection
from otm.audit.sequence import SequenceAudit, audit_sequence
from otm.audit.sequence_instances import standard_models, table_model
from otm.audit.shrinking import BUDGET, rational_laws
from otm.pmf import check_count
from otm.sequence.models import TableModel


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SequenceBatteryAudit(Collection[SequenceAudit]):
    """The audits of a block verifier on the standard toy models, and the smallest failing one; `str` gives the report.

    Attributes:
        name: of the candidate.
        audits: one for each pair of toy models and number of drafts, by label.
        counterexample: the audit of the smallest models found on which it fails; None if it fails nowhere.
    """

    def __repr__(self) -> str:
        return f"SequenceBatteryAudit({self.name!r}, {self.verdict}, {len(self.audits)} pairs of models)"

    def __str__(self) -> str:
        from otm.audit.report import sequence_battery_report  # noqa: PLC0415 - the report knows the results, not the reverse

        return sequence_battery_report(self)


def audit_sequence_battery(
    candidate: object, *, num_drafts: Sequence[int] = (1, 2), tolerance: float | None = None
) -> SequenceBatteryAudit:
    """Audit a block verifier exactly on the standard toy models; the call for whoever has a function and no models.

    Args:
        candidate: as for `audit_sequence`.
        num_drafts: the block lengths γ to audit.
        tolerance: as for `audit_sequence`.

    Returns:
        SequenceBatteryAudit: the verdict over all, and if one fails a minimal counterexample.

    Raises:
        As `audit_sequence`.

    Cost: five exact audits per block length with V ≤ 3, and up to 300 small ones for the counterexample.

    >>> audit_sequence_battery(lambda p, q, drafts, uniforms: [drafts[0]], num_drafts=[1]).verdict  # trusts the draft
    'not lossless'
    """
    lengths = [check_count(gamma, name="num_drafts") for gamma in num_drafts]
    audits = {
        f"{name}, γ = {gamma}": audit_sequence(candidate, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)
        for gamma in lengths
        for name, (p, q) in standard_models(gamma).items()
    }
    battery = SequenceBatteryAudit(name=next(iter(audits.values())).name, audits=audits, counterexample=None)
    if battery.verdict != "not lossless":
        return battery
    found = shrink_sequence(candidate, num_drafts=lengths, tolerance=tolerance)
    smallest = min(battery.failed.values(), key=lambda audit: (audit.num_drafts, audit.law.size, -audit.total_variation))
    return dataclasses.replace(battery, counterexample=smallest if found is None else found)


def shrink_sequence(
    candidate: object, *, num_drafts: Sequence[int] = (1, 2), tolerance: float | None = None, budget: int = BUDGET
) -> SequenceAudit | None:
    """Return the audit of the smallest toy models on which a block verifier is not lossless, or None if none is found.

    Tried in order: fewest drafts, then fewest tokens; the same laws at every position, then laws that depend on the position or on
    the token before; then the denominators of the probabilities.

    Args:
        candidate, tolerance: as for `audit_sequence`.
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
    lengths = sorted(check_count(gamma, name="num_drafts") for gamma in num_drafts)
    for gamma, (p, q) in itertools.islice(_small_models(lengths), check_count(budget, name="budget")):
        try:
            audit = audit_sequence(candidate, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)
        except CandidateFailure:
            continue
        if audit.verdict == "not lossless":
            return audit
    return None


def _small_models(lengths: Sequence[int]) -> Iterator[tuple[int, tuple[TableModel, TableModel]]]:
    """Yield (γ, (draft, target)), smallest first."""
    for gamma, num_tokens in itertools.product(lengths, (2, 3)):
        laws = [law for d in range(1, 5 if num_tokens == 2 else 4) for law, _ in rational_laws(num_tokens, d)]
        for p, q in sorted(itertools.product(laws, laws), key=_denominators):
            same = (table_model(lambda c, law=law: law, num_tokens, gamma) for law in (p, q))  # type: ignore[misc]
            yield gamma, tuple(same)  # type: ignore[misc]
        few = [law for d in range(1, 3) for law, _ in rational_laws(num_tokens, d)]
        if num_tokens == 2:
            for p0, p1, q0, q1 in itertools.product(few, repeat=4):
                yield gamma, (_by_position(p0, p1, gamma), _by_position(q0, q1, gamma))
                yield gamma, (_by_token(p0, p1, gamma), _by_token(q0, q1, gamma))


def _denominators(pair: tuple[NDArray[Any], NDArray[Any]]) -> tuple[float, ...]:
    """Order pairs by their smallest positive probability: the reciprocal of the denominator, near enough."""
    return tuple(sorted(-float(law[law > 0].min()) for law in pair))[::-1]


def _by_position(first: NDArray[Any], later: NDArray[Any], gamma: int) -> TableModel:
    return table_model(lambda context: later if context else first, 2, gamma)


def _by_token(after_zero: NDArray[Any], after_one: NDArray[Any], gamma: int) -> TableModel:
    return table_model(lambda context: after_one if context and context[-1] else after_zero, 2, gamma)
