"""``otm audit``: is a verifier lossless, and if not, by how much?

The callable is looked up as ``module:name`` with the working directory on the path, or as
``FILE.py:name``: a function ``verify(draft, target, drafts, uniforms)`` of one token or of a block,
anything else that `otm.audit.battery` takes, or one of the library's verifiers. The report goes to
standard output in Markdown, the verdict as soon as it is known and a minimal counterexample after
it; what the callable prints is kept out of it.

Exit status: 0 lossless (sampled and log: no difference found); 1 not lossless; 2 undecided, no
verdict for want of power, or the call could not be carried out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from otm import audit
from otm.audit import (
    BatchCandidate,
    BlockKernel,
    Candidate,
    LogitCandidate,
    WholeCandidate,
    exports,
    instances,
)
from otm.audit.batteries import BatteryAudit, unshrunk, with_counterexample
from otm.audit.candidate import SIBLINGS
from otm.audit.kinds import Fitting, arguments_of, described, fitting, reads_a_request
from otm.audit.records import InvalidRecord
from otm.audit.templates import TEMPLATES, template
from otm.audit.verdicts import PASSED, Audit
from otm.commands.printing import print_report
from otm.drafts import LAWS, Law
from otm.errors import InvalidParameter, OtmError
from otm.logits import ORDERS
from otm.problem import Problem
from otm.tracing.probing import OwnRandomness
from otm.verifiers import Verifier

MODES = ("auto", "exact", "sequence", "sampled", "step", "tree", "generate", "logits")
"""What --mode may be."""

_WHOLES: dict[Any, tuple[int, str]] = {
    "step": (3, "step(draft_model, target_model, rng)"),
    "tree": (2, "verify(tree, rng)"),
    "generate": (3, "generate(draft_model, target_model, request)"),
    "logits": (5, "verify(draft_logits, target_logits, drafts, uniforms, temperature)"),
}
"""What the callable of a mode takes."""

EXIT_STATUS = {
    "lossless": 0,
    "no difference found": 0,
    "not lossless": 1,
    "undecided": 2,
    "no verdict": 2,
}

_DETECT = 0.02
"""Total variation that samples alone are planned to find unless another is given."""

_NAMED = "module:function or FILE.py:function"
_ATTRIBUTE = "candidate"
"""How the callable is named, and what is taken where the function is left out: what a template
calls it.
"""

_SHOWN = 12
"""Names that an error lists."""

_MOST_PRINTED = 1 << 16


def run(options: argparse.Namespace) -> int:
    """Carry out what the options ask for and return the exit status."""
    if options.template is not None:
        return 0 if print_report(template(options.template), command="audit") else 2
    try:
        return _audited(options)
    except OtmError as error:
        print(f"otm audit: {error}", file=sys.stderr)
    except (
        Exception
    ):  # a crash must not leave with Python's own status 1, which says "not lossless"
        traceback.print_exc()
    return 2


def register(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "audit",
        help="is a verifier lossless, and if not, by how much?",
        epilog="Exit status: 0 lossless (samples, log: no difference found), 1 not lossless, 2 undecided or no verdict.",
    )
    parser.add_argument(
        "callable",
        metavar="module:function",
        nargs="?",
        help="verify(draft, target, drafts, uniforms); the working directory is searched. FILE.py:function is taken, too; the "
        f"function is {_ATTRIBUTE} where it is left out",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="auto (default): what the callable is is found out; integrated where it can be, sampled beside that. exact (one "
        "token), sequence (a block), sampled: that audit only. step, tree, generate, logits: what the callable is",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="audit a JSONL log (format: otm.audit.records), or an engine's record of acceptance, instead of a callable",
    )
    parser.add_argument(
        "--expected",
        type=probabilities,
        metavar="A,B",
        help="of a record of acceptance: how often a lossless scheme accepts at least 1, 2, … drafts at most",
    )
    parser.add_argument(
        "--template",
        choices=TEMPLATES,
        help="print a file to start from, for a callable of this kind, and audit nothing",
    )
    parser.add_argument(
        "--draft",
        type=probabilities,
        metavar="P",
        help="0.75,0.25 or 3/4,1/4; with --target, instead of the standard instances",
    )
    parser.add_argument("--target", type=probabilities, metavar="Q", help="as --draft")
    parser.add_argument(
        "--law",
        choices=sorted(_LAWS),
        help="how the drafts are drawn (default: iid; for --log: unknown)",
    )
    parser.add_argument(
        "--drafts",
        type=int,
        nargs="+",
        metavar="K",
        help="numbers of drafts, or lengths of blocks (default: what docs/audit.md says)",
    )
    parser.add_argument(
        "--uniforms", metavar="A,B", help="A·k + B uniforms a call (default: k + 1, or found out)"
    )
    parser.add_argument(
        "--batched",
        action="store_true",
        help="the callable is verify(draft, target, drafts (m, k), rng), which is found out, too",
    )
    parser.add_argument(
        "--siblings",
        choices=SIBLINGS,
        help="tree: drawn with (default) or without replacement, or the likeliest",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        nargs="+",
        metavar="T",
        help="logits: what it is called with (default: 1 0.6 0); 0 is greedy",
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="logits: what the callable applies")
    parser.add_argument("--top-p", type=float, metavar="P", help="logits: as --top-k")
    parser.add_argument("--min-p", type=float, metavar="P", help="logits: as --top-k")
    parser.add_argument(
        "--order", choices=sorted(ORDERS), help="logits: in which order (default: transformers)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="exact, sequence: largest total variation that counts as rounding",
    )
    parser.add_argument(
        "--detect",
        type=float,
        help=f"total variation that samples are not to miss (default: sampled, log {_DETECT}; auto what the time allows)",
    )
    parser.add_argument(
        "--false-alarm",
        type=float,
        default=1e-9,
        help="sampled, log: probability (default: %(default)s)",
    )
    parser.add_argument(
        "--missed",
        type=float,
        default=1e-3,
        help="sampled, log: probability (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="sampled: of the drafts and uniforms (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=instances.SECONDS,
        help="auto: time for the audits (default: %(default)s)",
    )
    parser.add_argument(
        "--shrink",
        type=float,
        default=instances.SHRINKING,
        help="seconds for a minimal counterexample (default: %(default)s)",
    )
    for form, reader in (("json", "scripts"), ("junit", "CI servers"), ("sarif", "code scanning")):
        parser.add_argument(
            f"--{form}",
            metavar="FILE",
            help=f"write the result for {reader} as well; - for standard output instead",
        )


def _audited(options: argparse.Namespace) -> int:
    """Carry out an audit, show what is known as soon as it is known, and return the exit status."""
    with _captured() as printed:
        result, fit = _audit(options)
    known = [
        result.head(),
        result.summary() if isinstance(result, BatteryAudit) else result.figures(),
    ]
    silent = "-" in (options.json, options.junit, options.sarif)
    reads = silent or print_report("\n\n".join(known), command="audit")
    if (
        isinstance(result, BatteryAudit)
        and fit is not None
        and result.verdict not in PASSED
        and result.audits
    ):
        with _captured(printed):
            result = with_counterexample(
                fit, result, seconds=options.shrink, tolerance=options.tolerance
            )
        parts = [result.example()]
        if result.counterexample is not None:
            parts.append(f"```python\n{exports.as_test(result.counterexample, result.name)}\n```")
        reads = reads and (silent or print_report("\n" + "\n\n".join(parts), command="audit"))
    written = [
        _written(options.json, lambda: exports.as_json(result)),
        _written(options.junit, lambda: exports.as_junit(result)),
        _written(
            options.sarif, lambda: exports.as_sarif(result, None if fit is None else fit.candidate)
        ),
    ]
    if said := "".join(printed).strip().splitlines():
        print(
            f"otm audit: the callable printed something, which was left out; it begins with: {said[0]:.200}",
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
    """Write a result where it was asked for, - for standard output, and return whether it arrived."""
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


def _kebab(name: str) -> str:
    return (
        "iid"
        if name == "IID"
        else "".join(f"-{c.lower()}" if c.isupper() else c for c in name).removeprefix("-")
    )


_LAWS: dict[str, type[Law]] = {_kebab(law.__name__): law for law in LAWS}


def probabilities(text: str) -> list[float]:
    """Read a distribution given as decimals or fractions; argparse reports what does not convert."""
    try:
        parts = [part.strip() for part in text.split(",")]
        return [float(Fraction(part)) if "/" in part else float(part) for part in parts]
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"probabilities are decimals or fractions with commas between; got {text!r}"
        ) from error


def _audit(options: argparse.Namespace) -> tuple[Audit, Fitting | None]:
    """Carry out the audit that the options ask for, but for the search of a counterexample; with
    the callable as what it is.
    """
    errors = {"false_alarm": options.false_alarm, "missed": options.missed}
    if options.log is not None:
        if options.callable is not None:
            raise InvalidParameter(
                "A log is audited without a callable; got both. Drop one of them."
            )
        return _log(options, errors), None
    if options.expected is not None:
        raise InvalidParameter(
            "--expected is of a record of acceptance; got none. Name it with --log FILE."
        )
    if options.callable is None:
        raise InvalidParameter(
            f"An audit needs {_NAMED}, or --log FILE; got neither. See python -m otm audit --help."
        )
    candidate = _candidate(options)
    problem = _problem(options)
    fit = fitting(candidate)
    _check_mode(options, fit)
    if problem is not None:
        return _on_problem(fit, problem, options), fit
    laws = (
        _laws(options, instances.DRAFTS)
        if options.law or (options.drafts and not fit.block)
        else None
    )
    lengths = options.drafts if fit.block else None
    if options.mode == "sampled":
        rng = np.random.default_rng(options.seed)
        found = audit.sampled_battery(
            candidate,
            laws=laws,
            num_drafts=lengths,
            rng=rng,
            detect=options.detect or _DETECT,
            **errors,
        )
    elif options.mode == "exact":
        found = audit.exact_battery(candidate, laws=laws, tolerance=options.tolerance, shrink_for=0)
    elif options.mode == "sequence":
        found = audit.sequence_battery(
            candidate, num_drafts=lengths, tolerance=options.tolerance, shrink_for=0
        )
    else:
        asked: dict[str, Any] = {
            "laws": laws,
            "num_drafts": lengths,
            "seed": options.seed,
            "tolerance": options.tolerance,
        }
        asked |= {"detect": options.detect, "seconds": options.seconds, "spare": options.shrink}
        fit, found = unshrunk(candidate, **asked, **errors)
    return found, fit


def _check_mode(options: argparse.Namespace, fit: Fitting) -> None:
    """Refuse a mode that does not audit what the callable is."""
    takes: dict[str, tuple[type[Any], ...]] = {
        "exact": (Candidate, Verifier),
        "sequence": (Candidate,),
        "sampled": (Candidate, Verifier, BatchCandidate, BlockKernel),
    }
    if options.mode not in takes:
        return
    right = options.mode == "sampled" or fit.block == (options.mode == "sequence")
    if right and isinstance(fit.candidate, takes[options.mode]):
        return
    what = {
        "exact": "one token on given uniforms",
        "sequence": "a block on given uniforms",
        "sampled": "a token or a block",
    }
    raise InvalidParameter(
        f"--mode {options.mode} audits {what[options.mode]}; {options.callable!r} is {described(fit.candidate, fit.block)}. Drop "
        "--mode: what it is is found out."
    )


def _log(options: argparse.Namespace, errors: dict[str, Any]) -> Audit:
    """Audit a log of outputs, or what an engine counted if the file is no such log from its first
    line on.
    """
    law = None if options.law is None else _laws(options, (1,))[0]
    try:
        if options.expected is None:
            return audit.log(options.log, law=law, detect=options.detect or _DETECT, **errors)
        return audit.acceptance(options.log, expected=options.expected, **errors)
    except InvalidRecord as error:
        if "Line 1 " not in str(error):
            raise
        try:
            return audit.acceptance(options.log, **errors)
        except OtmError:
            raise error from None


def _on_problem(fit: Fitting, problem: Problem, options: argparse.Namespace) -> Audit:
    """Audit a callable of one token on one problem, by integration if it can be."""
    if fit.block or isinstance(fit.candidate, BlockKernel | LogitCandidate | WholeCandidate):
        raise InvalidParameter(
            "--draft and --target are of one token; the callable verifies blocks, or logits, or more. Drop them."
        )
    reason = ""
    if options.mode != "sampled" and not isinstance(fit.candidate, BatchCandidate):
        try:
            return audit.exact(fit.candidate, problem, tolerance=options.tolerance)
        except OwnRandomness as error:
            if options.mode == "exact":
                raise
            reason = error.reason
    errors = {
        "detect": options.detect or _DETECT,
        "false_alarm": options.false_alarm,
        "missed": options.missed,
    }
    found = audit.sampled(fit.candidate, problem, rng=np.random.default_rng(options.seed), **errors)
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
            f"One problem has one number of drafts; got {options.drafts}. Give one, or drop --draft and --target."
        )
    return Problem(draft=options.draft, target=options.target, law=laws[0])


def _candidate(options: argparse.Namespace) -> object:
    """Return what module:function names, as a candidate with the given number of uniforms."""
    found, options.callable = _find(options.callable)
    if isinstance(found, type) and issubclass(found, Verifier):
        found = found()
    if isinstance(
        found, Verifier | Candidate | BatchCandidate | BlockKernel | LogitCandidate | WholeCandidate
    ):
        kind = (
            found.kind
            if isinstance(found, WholeCandidate)
            else "logits"
            if isinstance(found, LogitCandidate)
            else None
        )
        if options.mode in _WHOLES and options.mode != kind:
            raise InvalidParameter(
                f"--mode {options.mode} audits {_WHOLES[options.mode][1]}; {options.callable!r} is {described(found)}. Drop --mode."
            )
        return found
    if (
        options.mode in _WHOLES
        or options.siblings
        or _processing(options)
        or (arguments_of(found) or range(0)) == range(5, 6)
    ):
        return _whole(found, options)
    if options.batched:
        return BatchCandidate(found, name=options.callable)
    if options.uniforms is None:
        return Candidate(found, name=options.callable)
    try:
        per_draft, beside = (int(part) for part in options.uniforms.split(","))
    except ValueError as error:
        raise InvalidParameter(
            f"--uniforms takes two integers A,B for A·k + B; got {options.uniforms!r}. Pass 1,1, say."
        ) from error
    return Candidate(
        found,
        name=options.callable,
        num_uniforms=lambda num_drafts, num_tokens: per_draft * num_drafts + beside,
    )


def _processing(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was said of the processing of logits."""
    asked = {
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "order": options.order,
    }
    asked["temperatures"] = options.temperature
    return {name: value for name, value in asked.items() if value is not None}


def _whole(found: Any, options: argparse.Namespace) -> object:
    """Return a callable as what --mode says, or as one of logits; refuse it if it takes another
    number of arguments.
    """
    mode: Any = options.mode
    if mode == "auto":
        mode = "tree" if options.siblings else "logits"
    if options.siblings and mode != "tree":
        raise InvalidParameter(f"--siblings is of --mode tree; got --mode {mode}. Drop it.")
    processing = _processing(options)
    if mode not in _WHOLES and not processing:
        raise InvalidParameter(
            f"--mode {mode} audits what is handed its drafts; {options.callable!r} takes 5 arguments, raw logits. Drop --mode."
        )
    if mode not in _WHOLES or (processing and mode != "logits"):
        raise InvalidParameter(
            f"--temperature, --top-k, --top-p, --min-p and --order are of --mode logits; got --mode {mode}. Drop them."
        )
    if options.uniforms is not None or options.batched:
        raise InvalidParameter(
            f"--uniforms and --batched are of callables that are handed their drafts; got --mode {mode}. Drop them."
        )
    count, signature = _WHOLES[mode]
    number = arguments_of(found)
    if (
        mode in ("step", "generate")
        and number is not None
        and count in number
        and reads_a_request(found) != (mode == "generate")
    ):
        what, which = ("does not read", "step") if mode == "generate" else ("reads", "generate")
        raise InvalidParameter(
            f"--mode {mode} audits {signature}; {options.callable!r} {what} a request. Drop --mode, or write --mode {which}."
        )
    if mode == "logits" and number is not None and count not in number and 4 in number:
        if len(processing.get("temperatures", ())) != 1:
            raise InvalidParameter(
                f"{options.callable!r} takes four arguments: its temperature is its own. Give it: --temperature 0.7, say."
            )
        return LogitCandidate(
            lambda p, q, drafts, uniforms, heat: found(p, q, drafts, uniforms),
            name=options.callable,
            **processing,
        )
    if number is not None and count not in number:
        takes = str(number.start) if len(number) == 1 else f"{number.start} to {number.stop - 1}"
        raise InvalidParameter(
            f"--mode {mode} audits {signature}; {options.callable!r} takes {takes} arguments. Drop --mode: what it is is found out."
        )
    if mode == "logits":
        return LogitCandidate(found, name=options.callable, **processing)
    return WholeCandidate(
        found, kind=mode, name=options.callable, siblings=options.siblings or "with"
    )


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
