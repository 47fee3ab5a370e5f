"""What is tested by default of code that drafts by itself, reads drafted trees, or writes whole texts.

Jobs for `otm.audit.batteries`: one for every pair of toy models, shape of a tree or request, each by branching on draws where it
can be and by samples where not. What a callable does not take (a batch, an end of sequence) is left out, and said so.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit import instances
from otm.audit.candidate import WholeCandidate
from otm.audit.generation_audit import generate
from otm.audit.joint_audit import JointAudit
from otm.audit.step_audit import step
from otm.audit.tree_audit import tree

_LOOKS = 64
_SHARE = 0.2


@dataclasses.dataclass(frozen=True)
class WholeJob:
    """One audit to carry out.

    Attributes:
        label: of the instance.
        group: what is left out together if the code does not take it.
        run: the audit of a candidate.
    """

    label: str
    group: str
    run: Callable[[Any], JointAudit]


def whole_jobs(
    candidate: WholeCandidate,
    *,
    rng: np.random.Generator,
    tolerance: float | None,
    detect: float,
    false_alarm: float,
    missed: float,
    seconds: float,
) -> list[WholeJob]:
    """Return the audits of a step, a kernel of trees or a generation.

    Args:
        candidate: which of them it is.
        rng: of samples, if it comes to that.
        tolerance: as for `otm.audit.step`.
        detect, false_alarm, missed: of samples; the false alarms are shared.
        seconds: of the battery; each audit branches for a share of it.
    """
    found = {"step": lambda: _steps(candidate), "tree": lambda: _trees(candidate.siblings), "generate": _generations}[
        candidate.kind
    ]()
    options: dict[str, Any] = {"rng": rng, "tolerance": tolerance, "detect": detect, "missed": missed}
    options |= {"false_alarm": false_alarm / len(found), "seconds": _SHARE * seconds}

    def job(label: str, group: str, audit: Callable[..., JointAudit], given: dict[str, Any], again: str) -> WholeJob:
        return WholeJob(label, group, lambda limited: dataclasses.replace(audit(limited, **given, **options), again=again))

    return [job(*entry) for entry in found]


_Plan = list[tuple[str, str, Callable[..., JointAudit], dict[str, Any], str]]
"""Label, group, audit, its arguments, and Python that repeats it with {} for the code's name."""

_DRAWS = "rng=np.random.default_rng(0)"
_MODELS = "draft, target = instances.chained_models()[{!r}]\n"


def _steps(candidate: WholeCandidate) -> _Plan:
    """Return audits of a step on every pair of models, of as many tokens as it writes."""
    models = instances.chained_models()
    length = max(instances.STEP_LENGTH, _longest(candidate, *models["after the token before"]))
    again = f"result = otm.audit.step({{}}, draft=draft, target=target, length={length}, {_DRAWS})"
    return [
        (name, "steps", step, {"draft": p, "target": q, "length": length}, _MODELS.format(name) + again)
        for name, (p, q) in models.items()
    ]


def _longest(candidate: WholeCandidate, draft: Any, target: Any) -> int:
    """Return how many tokens a step was seen to write; what fails here fails again where it is counted."""
    seen = [0]
    for seed in range(_LOOKS):
        try:
            seen.append(int(np.asarray(candidate.verify(draft, target, np.random.default_rng(seed))).size))
        except (Exception, SystemExit):
            break
    return max(seen)


def _trees(siblings: str) -> _Plan:
    """Return audits of a kernel on every shape, and on every pair of models with as many live tokens as it has siblings."""
    found: _Plan = []
    for shape, parents in instances.SHAPES.items():
        most = max(collections.Counter(parents[1:]).values())
        for name, (p, q) in instances.chained_models().items():
            if p.num_tokens ** (len(parents) - 1) > instances.MOST_TREES:
                continue
            if siblings == "with" or int((p.table > 0.0).sum(axis=-1).min()) >= most:
                given = {"parents": parents, "replacement": siblings == "with", "sampled": siblings != "likeliest"}
                told = "".join(f", {key}={value!r}" for key, value in given.items())
                again = f"{_MODELS.format(name)}result = otm.audit.tree({{}}, draft=draft, target=target{told}, {_DRAWS})"
                found.append((f"{shape}, {name}", shape, tree, {"draft": p, "target": q, **given}, again))
    return found


def _generations() -> _Plan:
    again = f"result = otm.audit.generate({{{{}}}}, **instances.GENERATIONS[{{!r}}], {_DRAWS})"
    return [(name, name, generate, dict(request), again.format(name)) for name, request in instances.GENERATIONS.items()]
