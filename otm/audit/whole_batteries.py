"""What is tested by default of code that drafts by itself, reads drafted trees, or writes whole
texts.

Jobs for `otm.audit.batteries`: one for every pair of toy models, shape of a tree or request, each
by branching on draws where it can be and by samples where not. What a callable does not take (a
batch, an end of sequence) is left out, and said so.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit import instances
from otm.audit.candidate import WholeCandidate
from otm.audit.generation_audit import generate
from otm.audit.joint_audit import Affordable, JointAudit
from otm.audit.step_audit import step
from otm.audit.tree_audit import tree
from otm.errors import TooLarge

_LOOKS = 64
_SHARE, _BRANCHING = 0.2, 0.3
"""Of the time: branching of one audit, and of all that it comes to nothing in."""

_USED = 0.8
"""Of the time for samples, what is planned: their pace varies."""


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
    detect: float | None,
    false_alarm: float,
    missed: float,
    until: float,
) -> list[WholeJob]:
    """Return the audits of a step, a kernel of trees or a generation.

    Args:
        candidate: which of them it is.
        rng: of samples, if it comes to that.
        tolerance: as for `otm.audit.step`.
        detect, false_alarm, missed: of samples, `detect` as time allows unless given; the false
            alarms are shared.
        until: when time is up, a reading of `time.monotonic`: half of what is left goes to
            branching, where that comes to no end, and what is left then to the samples of the
            audits that are left.
    """
    found = {
        "step": lambda: _steps(candidate),
        "tree": lambda: _trees(candidate.siblings),
        "generate": _generations,
    }[candidate.kind]()
    options: dict[str, Any] = {
        "rng": rng,
        "tolerance": tolerance,
        "missed": missed,
        "false_alarm": false_alarm / len(found),
    }
    seconds = until - time.monotonic()
    waiting = _Waiting(_BRANCHING * seconds, len(found))

    def job(
        label: str, group: str, audit: Callable[..., JointAudit], given: dict[str, Any], again: str
    ) -> WholeJob:
        def run(limited: Any) -> JointAudit:
            begun = time.monotonic()
            branching = max(0.0, min(_SHARE * seconds, waiting.branching))
            asked = detect or Affordable(
                (instances.DETECT_ROWS, *instances.COARSER),
                _USED * (until - begun - branching) / waiting.audits,
            )
            waiting.audits -= 1
            result = audit(limited, **given, **options, detect=asked, seconds=branching)
            if result.samples is not None:
                waiting.branching -= min(branching, time.monotonic() - begun)
            return dataclasses.replace(result, again=again)

        return WholeJob(label, group, run)

    return [job(*entry) for entry in found]


@dataclasses.dataclass
class _Waiting:
    """What is left of the time for branching that comes to nothing, and of the audits."""

    branching: float
    audits: int


_Plan = list[tuple[str, str, Callable[..., JointAudit], dict[str, Any], str]]
"""Label, group, audit, its arguments, and Python that repeats it with {} for the code's name."""

_DRAWS = "rng=np.random.default_rng(0)"
_STEP_MODELS = "draft, target = instances.step_models({})[{!r}]\n"
_MODELS = "draft, target = instances.chained_models()[{!r}]\n"


def _steps(candidate: WholeCandidate) -> _Plan:
    """Return audits of a step on every pair of models, of as many tokens as it writes."""
    length = max(instances.STEP_LENGTH, _longest(candidate))
    models = instances.step_models(length)
    if not models:
        raise TooLarge(
            f"The step writes up to {length} tokens, more than joint laws are kept of. Let it "
            "draft fewer, or call otm.audit.step."
        )
    again = f"result = otm.audit.step({{}}, draft=draft, target=target, length={length}, {_DRAWS})"
    return [
        (
            name,
            "steps",
            step,
            {"draft": p, "target": q, "length": length},
            _STEP_MODELS.format(length, name) + again,
        )
        for name, (p, q) in models.items()
    ]


def _longest(candidate: WholeCandidate) -> int:
    """Return how many tokens a step was seen to write; what fails here fails again where it is
    counted.
    """
    draft, target = instances.chained_models()["after the token before"]
    seen = [0]
    for seed in range(_LOOKS):
        drafter = (
            target if seed % 2 else draft
        )  # that of the target itself has all its drafts accepted
        try:
            seen.append(
                int(np.asarray(candidate.verify(drafter, target, np.random.default_rng(seed))).size)
            )
        except (Exception, SystemExit):
            break
    return max(seen)


def _trees(siblings: str) -> _Plan:
    """Return audits of a kernel on every shape, and on every pair of models with as many live
    tokens as it has siblings.
    """
    found: _Plan = []
    for shape, parents in instances.SHAPES.items():
        most = max(collections.Counter(parents[1:]).values())
        for name, (p, q) in instances.chained_models().items():
            if p.num_tokens ** (len(parents) - 1) > instances.MOST_TREES:
                continue
            if siblings == "with" or int((p.table > 0.0).sum(axis=-1).min()) >= most:
                given = {
                    "parents": parents,
                    "replacement": siblings == "with",
                    "sampled": siblings != "likeliest",
                }
                told = "".join(f", {key}={value!r}" for key, value in given.items())
                again = (
                    f"{_MODELS.format(name)}result = otm.audit.tree({{}}, draft=draft, "
                    f"target=target{told}, {_DRAWS})"
                )
                found.append(
                    (f"{shape}, {name}", shape, tree, {"draft": p, "target": q, **given}, again)
                )
    return found


def _generations() -> _Plan:
    again = f"result = otm.audit.generate({{{{}}}}, **instances.GENERATIONS[{{!r}}], {_DRAWS})"
    return [
        (name, name, generate, dict(request), again.format(name))
        for name, request in instances.GENERATIONS.items()
    ]
