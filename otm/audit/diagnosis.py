"""Diagnoses that the laws found by an audit give for nothing, a line each."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.blocks import BlockCandidate, sequence
from otm.audit.candidate import Candidate, FunctionCandidate
from otm.audit.end_to_end import EndToEndCandidate
from otm.audit.integration import ExactAudit, IntegratedAudit, SequenceAudit
from otm.audit.report import Audit, format_probability
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.tracing.probing import OwnRandomness
from otm.sequence.models import TableModel

_SAME = 1e-7
"""Difference up to which two laws count as the same, that of float32."""


def diagnose(
    candidate: Candidate, audits: Mapping[str, Audit], failed: Iterable[str]
) -> tuple[str, ...]:
    """Return sentences on the faults of a candidate that audits show.

    Args:
        candidate: what was audited.
        audits: of the candidate, by instance.
        failed: the names of those that failed.
    """
    exact = {name: one for name, one in audits.items() if isinstance(one, IntegratedAudit)}
    failing = [*failed]
    wrong = [exact[name] for name in failing if name in exact]
    of_wrong = (_unverified(wrong), _lost(wrong), _next_row(candidate, wrong)) if wrong else ()
    of_failing = (_swapped(candidate), *of_wrong, _one_law(exact)) if failing else ()
    return tuple(filter(None, (*of_failing, _counted(exact))))


def _swapped(candidate: Candidate) -> str:
    """Tell arguments that are named the other way round."""
    if not isinstance(candidate, FunctionCandidate) or isinstance(candidate, EndToEndCandidate):
        return ""
    names = [*inspect.signature(candidate.verify).parameters][:2]
    if len(names) < 2 or "target" not in names[0].lower() or "draft" not in names[1].lower():
        return ""
    return (
        f"Its first parameter is called {names[0]} and is given the draft: the order is "
        f"{candidate.called}. Swap the first two in a function of your own."
    )


def _unverified(wrong: Sequence[IntegratedAudit]) -> str:
    """Tell a first token that has the draft's law on every instance that fails."""
    pairs = [(_of_token(one.law, 0), one.draft) for one in wrong]
    if any(p is None or np.abs(law - p).max() > _SAME for law, p in pairs):
        return ""
    return "The first token has the draft's law wherever it fails: the draft passes unverified."


def _lost(wrong: Sequence[IntegratedAudit]) -> str:
    """Tell a first token that has the law of the target's second on every instance that fails."""
    if any(one.law.ndim < 2 for one in wrong):
        return ""
    pairs = [(_of_token(one.law, 0), _of_token(one.target_law, 1)) for one in wrong]
    if any(np.abs(law - second).max() > _SAME for law, second in pairs):
        return ""
    return "The first token has the law of the target's second wherever it fails: a token is lost."


def _next_row(candidate: Candidate, wrong: Sequence[IntegratedAudit]) -> str:
    """Tell a verifier of blocks that looks one row too far, by rows that come late."""
    failed = [one for one in wrong if isinstance(one, SequenceAudit) and one.first_position]
    failed = [one for one in failed if (one.first_position or 0) <= one.num_drafts]
    if not failed or not isinstance(candidate, BlockCandidate):
        return ""

    def late(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
        return candidate.verify(draft, np.concatenate([target[:1], target[:-1]]), drafts, uniforms)

    one = min(failed, key=lambda audit: audit.law.size)
    with contextlib.suppress(CandidateFailure, OwnRandomness):
        mended = sequence(
            dataclasses.replace(candidate, verify=late),
            draft=TableModel(one.draft_tables),
            target=TableModel(one.target_tables),
            num_drafts=one.num_drafts,
            context=one.context,
        )
        if mended.first_position is None or mended.first_position > one.num_drafts:
            return (
                "Where every row of the target comes one place later, it is right: it verifies a "
                "draft against the row that follows."
            )
    return ""


def _of_token(law: NDArray[np.float64], place: int) -> NDArray[np.float64]:
    """Return the law of one token of a joint law."""
    return np.asarray(law.sum(axis=tuple(axis for axis in range(law.ndim) if axis != place)))


def _counted(exact: Mapping[str, IntegratedAudit]) -> str:
    """Tell a number of accepted drafts that outputs other than drafts are counted in."""
    for name, one in exact.items():
        if isinstance(one, ExactAudit) and one.rule is not None:
            accepted, drafted = one.rule, one.membership
            if accepted - drafted > max(_SAME, one.tolerance) + one.error:
                return (
                    f"It says that it accepted with probability {format_probability(accepted)} on "
                    f"{name}, where its output is a draft with {format_probability(drafted)}: "
                    "replaced tokens count as accepted."
                )
    return ""


def _one_law(exact: Mapping[str, IntegratedAudit]) -> str:
    """Tell laws of an instance that are one law at all temperatures, where the target's differ."""
    groups: dict[tuple[str, tuple[int, ...]], list[IntegratedAudit]] = collections.defaultdict(list)
    for name, one in exact.items():
        before, heated, _ = name.partition("temperature")
        if heated:
            groups[before, one.law.shape].append(one)
    for group in groups.values():
        laws, targets = [one.law for one in group], [one.target_law for one in group]
        if np.ptp(targets, axis=0).max() > _SAME >= np.ptp(laws, axis=0).max():
            heats = ", ".join(
                map("{:g}".format, sorted(h for one in group for h in one.tested.temperatures))
            )
            greedy = ", and always the same text: it is greedy" * bool(laws[0].max() > 1.0 - _SAME)
            return f"It has the same law at temperatures {heats}{greedy}."
    return ""
