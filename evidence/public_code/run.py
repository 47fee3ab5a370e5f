"""Carry out the audit of one subject, on instances from small to large, and confirm what fails on
the real generators.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import otm
from evidence.public_code.registry import Subject
from evidence.public_code.report import UNSEEN
from evidence.public_code.toys import drafting
from otm import audit
from otm.audit import BlockBatchCandidate, standard_problems
from otm.audit.report import FAILED, format_probabilities, format_probability
from otm.audit.sampled_audit import SampledAudit
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.tracing.probing import OwnRandomness
from otm.sequence import MarkovModel, ZerothOrder

PAIRS: dict[str, tuple[Any, Any]] = {
    "equal": (ZerothOrder([0.5, 0.5]), ZerothOrder([0.5, 0.5])),
    "two tokens": (ZerothOrder([0.5, 0.5]), ZerothOrder([0.25, 0.75])),
    "two tokens, turned": (ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])),
    "three tokens": (ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.3, 0.5])),
    "zeros": (
        MarkovModel([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]),
        MarkovModel([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]),
    ),
    "after the token before": (
        MarkovModel([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]),
        MarkovModel([[0.2, 0.3, 0.5], [0.4, 0.2, 0.4], [0.3, 0.6, 0.1]]),
    ),
}
"""Toy models (draft, target) for steps, trees and batches, smallest first."""

ODD_PAIRS: dict[str, tuple[Any, Any]] = {
    "draft without the last token": (
        ZerothOrder([0.5, 0.5, 0.0]),
        ZerothOrder([0.25, 0.5, 0.25]),
    ),
    "another argmax": (ZerothOrder([1.0, 0.0]), ZerothOrder([0.0, 1.0])),
    "certain chains": (
        MarkovModel([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        MarkovModel([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
    ),
    "argmax of three": (ZerothOrder([0.0, 1.0, 0.0]), ZerothOrder([1.0, 0.0, 0.0])),
    "filtered": (
        ZerothOrder([0.25, 0.5, 0.25]),
        ZerothOrder(otm.from_logits(np.log([0.6, 0.3, 0.1]), temperature=2.0, top_p=0.55)),
    ),
}
"""Pairs for the subjects that name them."""

TOKENS = ("two tokens", "three tokens", "zeros", "equal", "truncated target", "tiny masses")
"""Instances for kernels of one token."""

SHAPES = ((-1, 0), (-1, 0, 0), (-1, 0, 0, 1))
"""Trees: a draft, two siblings, and two with a child of the first (on two tokens)."""

SHRINKING = 60
"""Problems that are tried at most for a minimal counterexample."""

DETECT = 0.1
"""Total variation that batches are sampled for, unless a subject says otherwise."""

ENOUGH = 0.02
"""Total variation from which a failure is confirmed by samples."""

_WORST_FIRST = (*FAILED, "undecided", "no verdict", "little power", UNSEEN, "lossless", "–")

_WHERE = re.compile(r" \([^()]*:\d+ in [^()]*\)")
"""The files in the message of what was raised, which lie elsewhere on another machine."""


def run(subject: Subject, candidate: Any) -> dict[str, Any]:
    """Return the row of a subject and its callable: what was found, on which instances, how long it
    took, and whether samples confirm it.
    """
    _warm()
    begin, wall = time.process_time(), time.perf_counter()
    found: list[tuple[str, Any]] = []
    raised = ""
    for label, job in _jobs(subject, candidate):
        print(f"  {label}", file=sys.stderr, flush=True)
        try:
            found.append((label, job()))
        except (CandidateFailure, OwnRandomness) as error:
            raised = raised or f"{label}: {_WHERE.sub('', str(error))}"
    seconds = time.process_time() - begin, time.perf_counter() - wall
    failed = [(label, result) for label, result in found if result.verdict in FAILED]
    worst = max(failed or found, key=lambda pair: pair[1].severity, default=None)
    # the total variation says what rounding it is
    verdicts = {result.verdict.replace("rounding", "lossless") for _, result in found} or {"–"}
    verdicts |= {"no verdict"} if raised and found else set()
    verdict = next(word for word in _WORST_FIRST if word in verdicts)
    severity = worst[1].severity if worst else None
    if verdict == UNSEEN:
        severity = max(r.detect for _, r in found if isinstance(r, SampledAudit))
    return {
        "subject": subject.key,
        "repository": subject.repository,
        "revision": subject.revision,
        "code": subject.code,
        "meant": subject.meant,
        "verdict": verdict,
        "total_variation": severity,
        "instance": worst[0] if worst else "",
        "instances": len(found),
        "sampled": sum(getattr(result, "samples", None) is not None for _, result in found),
        "counterexample": _smallest(subject, candidate, failed) if failed else "",
        "confirmed": _confirmed(subject, candidate, *worst) if failed and worst else "",
        "raised": raised,
        "seconds": round(seconds[0], 1),
        "wall": round(seconds[1], 1),
        "reason": next((result.reason for _, result in found if getattr(result, "reason", "")), ""),
    }


def _warm() -> None:
    """Have the interceptors imported, so that the first audit is not the one that pays for it."""
    draft, target = PAIRS["equal"]
    rng = np.random.default_rng(0)
    audit.step(
        lambda p, q, _: [int(torch.multinomial(torch.tensor(p.next([])), 1))],
        draft=draft,
        target=target,
        length=1,
        rng=rng,
    )


def _jobs(subject: Subject, candidate: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the audits of a subject with their labels, smallest first."""
    options = subject.options
    if subject.kind == "token":
        for name in TOKENS:
            draft, target = standard_problems.instance(name)
            yield (
                name,
                lambda p=draft, q=target: audit.exact(
                    candidate, otm.Problem(draft=p, target=q, law=otm.IID(1))
                ),
            )
    elif subject.kind == "block":
        for gamma in (1, 2):
            for name, (draft, target) in standard_problems.standard_models(gamma).items():
                label = f"{name}, γ = {gamma}"
                yield (
                    label,
                    lambda p=draft, q=target, n=gamma: audit.sequence(
                        candidate, draft=p, target=q, num_drafts=n
                    ),
                )
    elif subject.kind == "batch":
        for gamma in options.get("gammas", (1, 2)):
            for name in options.get("only", PAIRS):
                label = f"{name}, γ = {gamma}"
                yield label, lambda n=name, g=gamma: _of_batches(subject, candidate, n, g)
    elif subject.kind == "tree":
        for shape in SHAPES:
            for name in options.get("only", PAIRS):
                target = PAIRS[name][1]
                live = options.get("replacement", True) or name != "zeros"
                if live and (len(shape) < 4 or target.num_tokens == 2):
                    yield (
                        f"{name}, tree {shape}",
                        lambda n=name, s=shape: _of_models(subject, candidate, n, s),
                    )
    else:
        for name in options.get("only", PAIRS):
            if name not in options.get("skip", ()):
                yield name, lambda n=name: _of_models(subject, candidate, n)


def _pair(name: str) -> tuple[Any, Any]:
    """Return toy models by name."""
    return {**PAIRS, **ODD_PAIRS}[name]


def _of_batches(subject: Subject, candidate: Any, name: str, gamma: int) -> Any:
    """Audit batches of blocks on a pair of toy models, by samples."""
    draft, target = _pair(name)
    return audit.sampled_blocks(
        BlockBatchCandidate(candidate, name=subject.key),
        draft=draft,
        target=target,
        num_drafts=gamma,
        rng=np.random.default_rng(0),
        errors=audit.Errors(detect=subject.options.get("detect", DETECT)),
    )


def _of_models(
    subject: Subject, candidate: Any, name: str, shape: tuple[int, ...] = (), **errors: Any
) -> Any:
    """Audit a tree or step on a pair of toy models."""
    draft, target = _pair(name)
    common = {"draft": draft, "target": target, "rng": np.random.default_rng(0)}
    if "detect" in subject.options:
        common["errors"] = audit.Errors(detect=subject.options["detect"])
    common |= errors
    if subject.kind == "tree":
        return audit.tree_kernel(
            candidate, parents=shape, replacement=subject.options.get("replacement", True), **common
        )
    return audit.step(candidate, length=subject.options.get("length", 2), **common)


def _smallest(subject: Subject, candidate: Any, failed: list[tuple[str, Any]]) -> str:
    """Describe the smallest problem on which it fails: shrunk where the drafts are given, else the
    first of the list.
    """
    label, found = failed[0]
    if subject.kind == "token":
        found = audit.shrink(candidate, budget=SHRINKING) or found
        laws = _laws(found.problem.draft, found.problem.target)
    elif subject.kind == "block":
        found = audit.shrink_sequence(candidate, num_drafts=(1, 2), budget=SHRINKING) or found
        p, q = found.draft_tables[()], found.target_tables[()]
        same = (
            len(found.draft_tables) == 1
            or len({tuple(law) for law in found.target_tables.values()}) == 1
        )
        laws = (
            f"γ = {found.num_drafts}, p = {format_probabilities(p)}, q = "
            f"{format_probabilities(q)}{'' if same else ' at first'}"
        )
    else:
        draft, target = _pair(label.split(", tree")[0].split(", γ")[0])
        shape = f", tree{label.split(', tree')[1]}" if ", tree" in label else ""
        laws = f"{_laws(draft.next([]), target.next([]))}{shape}"
        if isinstance(found, SampledAudit):
            return f"{laws}: TV ≥ {found.severity:.3g}, by samples"
    worst = found.worst
    odds = [
        format_probability(float(one))
        for one in (found.law[worst], found.target_law[worst], found.total_variation)
    ]
    what = worst[0] if subject.kind == "token" else worst
    return f"{laws}: {what} comes out with {odds[0]}, should with {odds[1]}; TV {odds[2]}"


def _laws(draft: Any, target: Any) -> str:
    return f"p = {format_probabilities(draft)}, q = {format_probabilities(target)}"


def _confirmed(subject: Subject, candidate: Any, label: str, found: Any) -> str:
    """Run the code on the real generators, not branched on, and say what its samples say."""
    if found.severity < ENOUGH or isinstance(found, SampledAudit):
        return ""
    stopped = _untraced
    errors = {"errors": audit.Errors(detect=max(0.8 * found.severity, ENOUGH))}
    if subject.kind in ("tree", "step"):
        shape = (
            tuple(int(x) for x in label.split("tree (")[1].rstrip(")").split(",") if x.strip())
            if "tree (" in label
            else ()
        )
        result = _of_models(subject, stopped(candidate), label.split(", tree")[0], shape, **errors)
    else:
        if subject.kind == "token":
            draft, target = map(ZerothOrder, standard_problems.instance(label))
            gamma, step = 0, drafting(lambda p, q, x, u: candidate(p[0], q[0], x, u), 1)
        else:
            name, gamma = label.split(", γ = ")[0], int(label.split(", γ = ")[1])
            draft, target = standard_problems.standard_models(gamma)[name]
            step = drafting(candidate, gamma)
        rng = np.random.default_rng(0)
        result = audit.step(
            stopped(step), draft=draft, target=target, length=gamma + 1, rng=rng, **errors
        )
    assert isinstance(result, SampledAudit)
    interval = result.total_variation
    return (
        f"{result.verdict}, TV {interval.low:.3f} to {interval.high:.3f} "
        f"({result.planned:,} planned)"
    )


def _untraced(candidate: Any) -> Any:
    """Return it with a draw that has no branches in front, so that its executions are real ones."""

    def untraced(*args: Any) -> Any:
        args[-1].poisson(1.0)
        return candidate(*args)

    return untraced
