"""What ``otm audit`` does: find the callable, carry out its audit, show and write what is found."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otm import audit
from otm.audit import (
    Candidate,
    Errors,
    LogitCandidate,
    Scope,
    TreeCandidate,
    exports,
    standard_problems as standard,
)
from otm.audit.batteries import BatteryAudit, run_battery, with_counterexample
from otm.audit.blocks import ManyBlocksCandidate
from otm.audit.classification import arguments_of, reads_a_request
from otm.audit.one_token import IntegrableCandidate, OneTokenCandidate
from otm.audit.report import PASSED, Audit
from otm.audit.templates import template
from otm.audit.token_log import InvalidRecord
from otm.commands.printing import print_report
from otm.drafts import LAWS, Law
from otm.errors import InvalidParameter, OtmError
from otm.problem import Problem
from otm.tracing.probing import OwnRandomness
from otm.verifiers import Verifier

KINDS: dict[str, type[Any]] = {
    "step": audit.StepCandidate,
    "tree": audit.TreeCandidate,
    "generate": audit.GenerationCandidate,
    "logits": audit.LogitCandidate,
}
"""What the callable of a mode is."""

AUDITED: dict[str, tuple[tuple[type[Candidate], ...], str]] = {
    "exact": ((IntegrableCandidate,), "one token on given uniforms"),
    "sequence": ((audit.BlockCandidate,), "a block on given uniforms"),
    "sampled": ((OneTokenCandidate, ManyBlocksCandidate), "a token or a block"),
}
"""What the modes of one audit take, and in words."""

EXIT_STATUS = {
    "lossless": 0,
    "no difference found": 0,
    "not lossless": 1,
    "undecided": 2,
    "no verdict": 2,
}

_NAMED = "module:function or FILE.py:function"
_ATTRIBUTE = "candidate"
"""What is taken where the function is left out: what a template calls it."""

_SHOWN = 12
"""Names that an error lists."""

_MOST_PRINTED = 1 << 16


def law_name(law: type[Law]) -> str:
    """Return how the command line names a draft law.

    >>> law_name(otm.WithoutReplacement), law_name(otm.IID)
    ('without-replacement', 'iid')
    """
    if law.__name__.isupper():
        return law.__name__.lower()
    spelled = "".join(f"-{c.lower()}" if c.isupper() else c for c in law.__name__)
    return spelled.removeprefix("-")


_LAWS = {law_name(law): law for law in LAWS}


def run(options: argparse.Namespace) -> int:
    """Print a template, or carry out an audit; show what is known as soon as it is known."""
    if options.template is not None:
        return 0 if print_report(template(options.template), command="audit") else 2
    with _captured() as printed:
        result, candidate, scope = _audit(options)
    figures = result.summary() if isinstance(result, BatteryAudit) else result.figures()
    silent = "-" in (options.json, options.junit, options.sarif)
    reads = silent or print_report(f"{result.head()}\n\n{figures}", command="audit")
    if isinstance(result, BatteryAudit) and result.verdict not in PASSED and result.audits:
        with _captured(printed):
            result = with_counterexample(result, scope)
        parts = [result.example()]
        if result.counterexample is not None:
            parts.append(f"```python\n{exports.as_test(result.counterexample, result.name)}\n```")
        reads = reads and (silent or print_report("\n" + "\n\n".join(parts), command="audit"))
    written = [
        _written(options.json, lambda: exports.as_json(result)),
        _written(options.junit, lambda: exports.as_junit(result)),
        _written(options.sarif, lambda: exports.as_sarif(result, candidate)),
    ]
    if said := "".join(printed).strip().splitlines():
        print(
            "otm audit: the callable printed something, which was left out; it begins with: "
            f"{said[0]:.200}",
            file=sys.stderr,
        )
    return EXIT_STATUS[result.verdict] if reads and all(written) else 2


@contextlib.contextmanager
def _captured(printed: list[str] | None = None) -> Iterator[list[str]]:
    """Keep what somebody's code prints out of the report; yield what it printed, at most
    `_MOST_PRINTED` characters.
    """
    found = [] if printed is None else printed
    stream = _Kept(found)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield found


class _Kept(io.TextIOBase):
    """A stream that keeps the beginning of what is written to it."""

    def __init__(self, found: list[str]) -> None:
        self.found, self.left = found, _MOST_PRINTED

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            self.found.append(text[: self.left])
            self.left -= len(text)
        return len(text)


def _written(path: str | None, text: Callable[[], str]) -> bool:
    """Write a result where it was asked for (- for standard output); say whether it arrived."""
    if path is None:
        return True
    if path == "-":
        return print_report(text(), command="audit")
    try:
        Path(path).write_text(text() + "\n", encoding="utf-8")
    except OSError as error:
        print(
            f"otm audit: {path} cannot be written ({error.strerror}). Name another file.",
            file=sys.stderr,
        )
        return False
    return True


def _audit(options: argparse.Namespace) -> tuple[Audit, Candidate | None, Scope]:
    """Carry out the audit that the options ask for, but for the search of a counterexample."""
    errors = Errors(
        detect=options.detect or None, false_alarm=options.false_alarm, missed=options.missed
    )
    if options.log is not None:
        if options.callable is not None:
            raise InvalidParameter(
                "A log is audited without a callable; got both. Drop one of them."
            )
        return _log(options, errors), None, Scope()
    if options.expected is not None:
        raise InvalidParameter(
            "--expected is of a record of acceptance; got none. Name it with --log FILE."
        )
    if options.callable is None:
        raise InvalidParameter(
            f"An audit needs {_NAMED}, or --log FILE; got neither. See otm audit --help."
        )
    candidate = _candidate(options)
    problem = _problem(options)
    _check_mode(options, candidate)
    if problem is not None:
        return _on_problem(candidate, problem, options, errors), candidate, Scope()
    block = isinstance(candidate, ManyBlocksCandidate)
    if isinstance(candidate, LogitCandidate):
        block = candidate.takes_blocks
    laws = None
    if options.law or (options.drafts and not block):
        laws = _laws(options, standard.DRAFTS)
    only, seconds = "", options.seconds
    if options.mode in AUDITED:  # of these no one waits for less than all
        only, seconds = "sampled" if options.mode == "sampled" else "exact", math.inf
    scope = Scope(
        only=only or (),
        laws=laws,
        num_drafts=options.drafts if block else None,
        errors=errors,
        tolerance=options.tolerance,
        seed=options.seed,
        deadline=audit.Deadline(seconds, spare=options.shrink),
    )
    return run_battery(candidate, scope), candidate, scope


def _check_mode(options: argparse.Namespace, candidate: Candidate) -> None:
    """Refuse a mode that does not audit what the callable is."""
    kinds, what = AUDITED.get(options.mode, ((Candidate,), ""))
    if not isinstance(candidate, kinds):
        raise InvalidParameter(
            f"--mode {options.mode} audits {what}; {options.callable!r} is "
            f"{candidate.description}. Drop --mode: what it is is found out."
        )


def _log(options: argparse.Namespace, errors: Errors) -> Audit:
    """Audit a log of outputs, or what an engine counted if it is no such log from its start on."""
    law = None if options.law is None else _laws(options, (1,))[0]
    try:
        if options.expected is None:
            return audit.server_log(options.log, law=law, errors=errors)
        return audit.acceptance_counts(options.log, expected=options.expected, errors=errors)
    except InvalidRecord as error:
        if "Line 1 " not in str(error):
            raise
        try:
            return audit.acceptance_counts(options.log, errors=errors)
        except OtmError:
            raise error from None


def _on_problem(
    candidate: Candidate, problem: Problem, options: argparse.Namespace, errors: Errors
) -> Audit:
    """Audit a callable of one token on one problem, by integration if it can be."""
    if not isinstance(candidate, OneTokenCandidate):
        raise InvalidParameter(
            "--draft and --target are of one token; the callable verifies blocks, or logits, or "
            "more. Drop them."
        )
    reason = ""
    if options.mode != "sampled" and isinstance(candidate, IntegrableCandidate):
        try:
            return audit.exact(candidate, problem, tolerance=options.tolerance)
        except OwnRandomness as error:
            if options.mode == "exact":
                raise
            reason = error.reason
    rng = np.random.default_rng(options.seed)
    found = audit.sampled(candidate, problem, rng=rng, errors=errors)
    return dataclasses.replace(found, reason=reason)


def _laws(options: argparse.Namespace, default: Sequence[int]) -> list[Law]:
    return [_LAWS[options.law or "iid"](k) for k in options.drafts or default]


def _problem(options: argparse.Namespace) -> Problem | None:
    """Return the problem given by --draft and --target, None without them."""
    if options.draft is None and options.target is None:
        return None
    if options.draft is None or options.target is None:
        raise InvalidParameter(
            "--draft and --target go together; got one of them. Give both, or neither."
        )
    laws = _laws(options, (1,))
    if len(laws) > 1:
        raise InvalidParameter(
            f"One problem has one number of drafts; got {options.drafts}. Give one, or drop "
            "--draft and --target."
        )
    return Problem(draft=options.draft, target=options.target, law=laws[0])


def _candidate(options: argparse.Namespace) -> Candidate:
    """Return what module:function names, as the kind of candidate that it is."""
    found, name = _find(options.callable)
    options.callable = name
    if isinstance(found, type) and issubclass(found, Verifier):
        found = found()
    if isinstance(found, Verifier | Candidate):
        candidate = audit.classify(found)
        kind = KINDS.get(options.mode, Candidate)
        fits = isinstance(candidate, kind)
        if not fits:
            raise InvalidParameter(
                f"--mode {options.mode} audits {kind.called}; {name!r} is "
                f"{candidate.description}. Drop --mode."
            )
        return candidate
    takes_logits = (arguments_of(found) or range(0)) == range(5, 6)
    if options.mode in KINDS or options.siblings or _processing(options) or takes_logits:
        return _of_mode(found, options)
    if options.batched:
        return audit.BatchCandidate(found, name)
    if options.uniforms is None:
        return audit.classify(found, name=name)
    try:
        per_draft, beside = (int(part) for part in options.uniforms.split(","))
    except ValueError as error:
        raise InvalidParameter(
            f"--uniforms takes two integers A,B for A·k + B; got {options.uniforms!r}. Pass 1,1, "
            "say."
        ) from error
    return audit.classify(found, name=name, num_uniforms=lambda k, v: per_draft * k + beside)


def _processing(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was said of the processing of logits."""
    asked = {
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "order": options.order,
        "temperatures": options.temperature,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _of_mode(found: Any, options: argparse.Namespace) -> Candidate:
    """Return a callable as what --mode says, or as one of logits, if its arguments fit."""
    mode, name, processing = options.mode, options.callable, _processing(options)
    if mode == "auto":
        mode = "tree" if options.siblings else "logits"
    if options.siblings and mode != "tree":
        raise InvalidParameter(f"--siblings is of --mode tree; got --mode {mode}. Drop it.")
    if mode not in KINDS and not processing:
        raise InvalidParameter(
            f"--mode {mode} audits what is handed its drafts; {name!r} takes 5 arguments, raw "
            "logits. Drop --mode."
        )
    if mode not in KINDS or (processing and mode != "logits"):
        raise InvalidParameter(
            "--temperature, --top-k, --top-p, --min-p and --order are of --mode logits; got "
            f"--mode {mode}. Drop them."
        )
    if options.uniforms is not None or options.batched:
        raise InvalidParameter(
            "--uniforms and --batched are of callables that are handed their drafts; got --mode "
            f"{mode}. Drop them."
        )
    kind, number = KINDS[mode], arguments_of(found)
    if mode == "logits" and number is not None and 5 not in number and 4 in number:
        if len(processing.get("temperatures", ())) != 1:
            raise InvalidParameter(
                f"{name!r} takes four arguments: its temperature is its own. Give it: "
                "--temperature 0.7, say."
            )
        return LogitCandidate(
            lambda p, q, drafts, uniforms, heat: found(p, q, drafts, uniforms), name, **processing
        )
    count = kind.called.count(",") + 1
    if number is not None and count not in number:
        takes = str(number.start) if len(number) == 1 else f"{number.start} to {number.stop - 1}"
        raise InvalidParameter(
            f"--mode {mode} audits {kind.called}; {name!r} takes {takes} arguments. Drop --mode: "
            "what it is is found out."
        )
    if count == 3 and number is not None and reads_a_request(found) != (mode == "generate"):
        what, which = ("does not read", "step") if mode == "generate" else ("reads", "generate")
        raise InvalidParameter(
            f"--mode {mode} audits {kind.called}; {name!r} {what} a request. Drop --mode, or "
            f"write --mode {which}."
        )
    if kind is TreeCandidate:
        return TreeCandidate(found, name, options.siblings or "with")
    candidate: Candidate = kind(found, name, **processing)
    return candidate


def _find(name: str) -> tuple[Any, str]:
    """Import module:attribute or FILE.py:attribute, `candidate` unless given; return it and
    module:attribute.
    """
    module, _, attribute = name.partition(":")
    attribute = attribute or _ATTRIBUTE
    folder = ""
    if module.endswith(".py"):
        file = Path(module).resolve()
        if not file.is_file():
            raise InvalidParameter(
                f"{module!r} is no file. Check the spelling and the working directory."
            )
        folder, module = str(file.parent), file.stem
    if not module:
        raise InvalidParameter(
            f"The callable is named {_NAMED}; got {name!r}. Write mypackage.kernel:verify, say."
        )
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        if folder and Path(getattr(found, "__file__", None) or "").resolve() != file:
            raise InvalidParameter(
                f"{name!r} has the name of another module, {found!r}. Give the file another name."
            )
        thing = found
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except AttributeError as error:
        own = [
            key
            for key, value in vars(found).items()
            if callable(value) and getattr(value, "__module__", None) == module
        ]
        known = f"It has {', '.join(own[:_SHOWN])}" if own else "It has no function of its own"
        raise InvalidParameter(
            f"{name!r} cannot be found: {error}. {known}: write {module}:NAME."
        ) from error
    except ImportError as error:
        raise InvalidParameter(
            f"{name!r} cannot be found: {error}. Check the spelling and the working directory."
        ) from error
    except SystemExit as error:  # its status would pass for a verdict
        raise InvalidParameter(
            f"{module!r} ends the program when it is imported ({error!r}). Guard its script part."
        ) from error
    return thing, f"{module}:{attribute}"
