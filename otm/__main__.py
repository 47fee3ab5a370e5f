"""The command line: ``otm audit module:function``, ``otm plan FILE``, and the commands that an extra adds (``otm measure``, …).

``otm`` is what an installation has; ``python -m otm`` is the same. Further commands are entry points of the group `COMMANDS`,
functions of the arguments that return an exit status; what they need is imported when one is called.

The callable is looked up as ``module:name`` with the working directory on the path: a function
``verify(draft, target, drafts, uniforms)`` of one token or of a block, anything else that `otm.audit.battery` takes, or one of the
library's verifiers. The report goes to standard output in Markdown, the verdict as soon as it is known and a minimal counterexample
after it; what the callable prints is kept out of it.

Exit status: 0 lossless (sampled and log: no difference found); 1 not lossless; 2 undecided, no verdict for want of power, or the
call could not be carried out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from otm import audit, plan_command
from otm.audit import BatchCandidate, BlockKernel, Candidate, LogitCandidate, exports, instances
from otm.audit.batteries import BatteryAudit, with_counterexample
from otm.audit.kinds import Fitting, fitting
from otm.audit.probing import OwnRandomness
from otm.audit.verdicts import PASSED, Audit
from otm.drafts import LAWS, Law
from otm.errors import InvalidParameter, OtmError
from otm.problem import Problem
from otm.verifiers import Verifier

COMMANDS = "otm.commands"
EXTRA = "analysis"

_ON_MODELS = {
    "advise": "speculate or not with two models, with which scheme, how much faster?",
    "capture": "what figures need from models: logits, trees",
    "compare": "every scheme after one prompt: a table and a plot",
    "decode": "run prompts through decoders: tokens per call, speed-up over plain decoding",
    "experiment": "decoding experiments of the papers",
    "fetch": "fetch a public model",
    "finetune": "fine-tune copies of a draft model and compare them",
    "latency": "time passes over length x batch, and over draft trees",
    "measure": "exact acceptance at every position of many prompts, to Parquet",
    "merge": "join shards measured on several machines",
    "report": "a measured run as one page",
    "train": "train a small pair of models",
}
"""What the commands do that the extra adds."""
"""The extra whose packages the further commands need."""

_MOST_PRINTED = 1 << 16

EXIT_STATUS = {"lossless": 0, "no difference found": 0, "not lossless": 1, "undecided": 2, "no verdict": 2}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    >>> main(["audit", "otm:Maximal", "--draft", "3/4,1/4", "--target", "1/2,1/2"]) # doctest: +ELLIPSIS
    ## `Maximal()`: lossless...
    0
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    further = {entry.name: entry for entry in metadata.entry_points(group=COMMANDS)}
    if words and words[0] in further:
        return _run_further(further[words[0]], words)
    options = _parser(sorted(further)).parse_args(words)
    if options.command == "plan":
        return _planned(options)
    try:
        return _audited(options)
    except OtmError as error:
        print(f"otm audit: {error}", file=sys.stderr)
    except Exception:  # a crash must not leave with Python's own status 1, which says "not lossless"
        traceback.print_exc()
    return 2


def _audited(options: argparse.Namespace) -> int:
    """Carry out an audit, show what is known as soon as it is known, and return the exit status."""
    with _captured() as printed:
        result, fit = _audit(options)
    known = [result.head(), result.summary() if isinstance(result, BatteryAudit) else result.figures()]
    reads = _shown("\n\n".join(known)) if "-" not in (options.json, options.junit, options.sarif) else True
    if isinstance(result, BatteryAudit) and fit is not None and result.verdict not in PASSED and result.audits:
        with _captured(printed):
            result = with_counterexample(fit, result, seconds=options.shrink, tolerance=options.tolerance)
        parts = [result.example()]
        if result.counterexample is not None:
            parts.append(f"```python\n{exports.as_test(result.counterexample, result.name)}\n```")
        reads = reads and ("-" in (options.json, options.junit, options.sarif) or _shown("\n" + "\n\n".join(parts)))
    written = [
        _written(options.json, lambda: exports.as_json(result)),
        _written(options.junit, lambda: exports.as_junit(result)),
        _written(options.sarif, lambda: exports.as_sarif(result, None if fit is None else fit.candidate)),
    ]
    if said := "".join(printed).strip().splitlines():
        print(f"otm audit: the callable printed something, which was left out; it begins with: {said[0]:.200}", file=sys.stderr)
    return EXIT_STATUS[result.verdict] if reads and all(written) else 2


@contextlib.contextmanager
def _captured(printed: list[str] | None = None) -> Iterator[list[str]]:
    """Keep what somebody's code prints out of the report; yield what it printed, at most `_MOST_PRINTED` characters."""
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
        return _shown(text())
    try:
        Path(path).write_text(text() + "\n", encoding="utf-8")
    except OSError as error:
        print(f"otm audit: {path} cannot be written ({error.strerror}). Name another file.", file=sys.stderr)
        return False
    return True


def _planned(options: argparse.Namespace) -> int:
    """Answer `otm plan` and return its exit status."""
    try:
        return 0 if _shown(plan_command.run(options), command="plan") else 2
    except OtmError as error:
        print(f"otm plan: {error}", file=sys.stderr)
        return 2


def _shown(text: str, *, command: str = "audit") -> bool:
    """Print a report and return whether it arrived; a reader that has left, such as `head`, takes nothing from the verdict."""
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # an output of few letters shows the others by their numbers
            sys.stdout.reconfigure(errors="backslashreplace")
        print(text, flush=True)
    except OSError as error:
        # Python flushes the stream once more when it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"otm {command}: the report cannot be written ({error.strerror}). Send it elsewhere.", file=sys.stderr)
            return False
    return True


def _run_further(entry: metadata.EntryPoint, words: list[str]) -> int:
    """Run a command of another package, or say what it needs."""
    if missing := [name for name in _required(entry) if not _version(name)]:
        wanted = f"pip install '{entry.dist.name if entry.dist else 'otm-speculative'}[{EXTRA}]'"
        print(f"otm {entry.name} needs {', '.join(missing)}, not installed here: {wanted}", file=sys.stderr)
        return 2
    status: int = entry.load()(words)
    return status


def _required(entry: metadata.EntryPoint) -> list[str]:
    """Return the distributions that the extra installs for a command."""
    lines = (entry.dist.requires if entry.dist else None) or ()
    return [re.split(r"[^\w.-]", line)[0] for line in lines if re.search(rf"extra == ['\"]{EXTRA}['\"]", line)]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _parser(further: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="otm",
        description="Speculative decoding: audits of verifiers, plans from records, advice and measurements on models.",
        epilog=f"otm COMMAND --help says more. Commands on language models need the extra `{EXTRA}`.",
    )
    parser.add_argument("--version", action="version", version=f"otm {_version('otm-speculative') or 'not installed'}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    audit = commands.add_parser(
        "audit",
        help="is a verifier lossless, and if not, by how much?",
        epilog="Exit status: 0 lossless (samples, log: no difference found), 1 not lossless, 2 undecided or no verdict.",
    )
    audit.add_argument(
        "callable",
        metavar="module:function",
        nargs="?",
        help="verify(draft, target, drafts, uniforms); the working directory is searched",
    )
    audit.add_argument(
        "--mode",
        choices=("auto", "exact", "sequence", "sampled"),
        default="auto",
        help="auto (default): what the callable is is found out; integrated where it can be, sampled beside that",
    )
    audit.add_argument("--log", metavar="FILE", help="audit a JSONL log instead of a callable (format: otm.audit.records)")
    audit.add_argument(
        "--draft", type=_law_of, metavar="P", help="0.75,0.25 or 3/4,1/4; with --target, instead of the standard instances"
    )
    audit.add_argument("--target", type=_law_of, metavar="Q", help="as --draft")
    audit.add_argument("--law", choices=sorted(_LAWS), help="how the drafts are drawn (default: iid; for --log: unknown)")
    audit.add_argument(
        "--drafts",
        type=int,
        nargs="+",
        metavar="K",
        help="numbers of drafts, or lengths of blocks (default: what docs/audit.md says)",
    )
    audit.add_argument("--uniforms", metavar="A,B", help="A·k + B uniforms a call (default: k + 1, or found out)")
    audit.add_argument(
        "--batched",
        action="store_true",
        help="the callable is verify(draft, target, drafts (m, k), rng), which is found out, too",
    )
    audit.add_argument("--tolerance", type=float, help="exact, sequence: largest total variation that counts as rounding")
    audit.add_argument(
        "--detect", type=float, default=0.02, help="sampled, log: total variation not to miss (default: %(default)s)"
    )
    audit.add_argument("--false-alarm", type=float, default=1e-9, help="sampled, log: probability (default: %(default)s)")
    audit.add_argument("--missed", type=float, default=1e-3, help="sampled, log: probability (default: %(default)s)")
    audit.add_argument("--seed", type=int, default=0, help="sampled: of the drafts and uniforms (default: %(default)s)")
    audit.add_argument(
        "--seconds", type=float, default=instances.SECONDS, help="auto: time for the audits (default: %(default)s)"
    )
    audit.add_argument(
        "--shrink", type=float, default=instances.SHRINKING, help="seconds for a minimal counterexample (default: %(default)s)"
    )
    for form, reader in (("json", "scripts"), ("junit", "CI servers"), ("sarif", "code scanning")):
        audit.add_argument(
            f"--{form}", metavar="FILE", help=f"write the result for {reader} as well; - for standard output instead"
        )
    plan_command.register(commands)
    for name in further:  # `main` has handed these over already; here they are only listed
        commands.add_parser(name, help=_ON_MODELS.get(name, "on language models"))
    return parser


def _kebab(name: str) -> str:
    return "iid" if name == "IID" else "".join(f"-{c.lower()}" if c.isupper() else c for c in name).removeprefix("-")


_LAWS: dict[str, type[Law]] = {_kebab(law.__name__): law for law in LAWS}


def _law_of(text: str) -> list[float]:
    """Read a distribution given as decimals or fractions; argparse reports what does not convert."""
    try:
        parts = [part.strip() for part in text.split(",")]
        return [float(Fraction(part)) if "/" in part else float(part) for part in parts]
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"probabilities are decimals or fractions with commas between; got {text!r}"
        ) from error


def _audit(options: argparse.Namespace) -> tuple[Audit, Fitting | None]:
    """Carry out the audit that the options ask for, but for the search of a counterexample; with the callable as what it is."""
    errors = {"false_alarm": options.false_alarm, "missed": options.missed}
    if options.log is not None:
        if options.callable is not None:
            raise InvalidParameter("A log is audited without a callable; got both. Drop one of them.")
        law = None if options.law is None else _laws(options, (1,))[0]
        return audit.log(options.log, law=law, detect=options.detect, **errors), None
    if options.callable is None:
        raise InvalidParameter("An audit needs module:function, or --log FILE; got neither. See python -m otm audit --help.")
    candidate = _candidate(options)
    problem = _problem(options)
    fit = fitting(candidate)
    if problem is not None:
        return _on_problem(fit, problem, options), fit
    laws = _laws(options, instances.DRAFTS) if options.law or (options.drafts and not fit.block) else None
    lengths = options.drafts if fit.block else None
    if options.mode == "sampled":
        rng = np.random.default_rng(options.seed)
        found = audit.sampled_battery(candidate, laws=laws, num_drafts=lengths, rng=rng, detect=options.detect, **errors)
    elif options.mode == "exact":
        found = audit.exact_battery(candidate, laws=laws, tolerance=options.tolerance, shrink_for=0)
    elif options.mode == "sequence":
        found = audit.sequence_battery(candidate, num_drafts=lengths, tolerance=options.tolerance, shrink_for=0)
    else:
        asked = {"laws": laws, "num_drafts": lengths, "seed": options.seed, "tolerance": options.tolerance}
        found = audit.battery(candidate, **asked, seconds=options.seconds, shrink_for=0, **errors)
    return found, fit


def _on_problem(fit: Fitting, problem: Problem, options: argparse.Namespace) -> Audit:
    """Audit a callable of one token on one problem, by integration if it can be."""
    if fit.block or isinstance(fit.candidate, BlockKernel | LogitCandidate):
        raise InvalidParameter("--draft and --target are of one token; the callable verifies blocks, or logits. Drop them.")
    reason = ""
    if options.mode != "sampled" and not isinstance(fit.candidate, BatchCandidate):
        try:
            return audit.exact(fit.candidate, problem, tolerance=options.tolerance)
        except OwnRandomness as error:
            if options.mode == "exact":
                raise
            reason = error.reason
    errors = {"detect": options.detect, "false_alarm": options.false_alarm, "missed": options.missed}
    found = audit.sampled(fit.candidate, problem, rng=np.random.default_rng(options.seed), **errors)
    return dataclasses.replace(found, reason=reason)


def _laws(options: argparse.Namespace, default: Sequence[int]) -> list[Law]:
    return [_LAWS[options.law or "iid"](k) for k in options.drafts or default]


def _problem(options: argparse.Namespace) -> Problem | None:
    """Return the problem given by --draft and --target, None without them."""
    if options.draft is None and options.target is None:
        return None
    if options.draft is None or options.target is None:
        raise InvalidParameter("--draft and --target go together; got one of them. Give both, or neither.")
    laws = _laws(options, (1,))
    if len(laws) > 1:
        raise InvalidParameter(
            f"One problem has one number of drafts; got {options.drafts}. Give one, or drop --draft and --target."
        )
    return Problem(draft=options.draft, target=options.target, law=laws[0])


def _candidate(options: argparse.Namespace) -> object:
    """Return what module:function names, as a candidate with the given number of uniforms."""
    found = _find(options.callable)
    if isinstance(found, type) and issubclass(found, Verifier):
        found = found()
    if isinstance(found, Verifier | Candidate | BatchCandidate | BlockKernel | LogitCandidate):
        return found
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
    return Candidate(found, name=options.callable, num_uniforms=lambda num_drafts, num_tokens: per_draft * num_drafts + beside)


def _find(name: str) -> Any:
    """Import module:attribute."""
    module, separator, attribute = name.partition(":")
    if not separator or not module or not attribute:
        raise InvalidParameter(f"The callable is named module:function; got {name!r}. Write mypackage.kernel:verify, say.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        thing: Any = importlib.import_module(module)
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError) as error:
        raise InvalidParameter(f"{name!r} cannot be found: {error}. Check the spelling and the working directory.") from error
    except SystemExit as error:  # its status would pass for a verdict
        raise InvalidParameter(
            f"{module!r} ends the program when it is imported ({error!r}). Guard its script part."
        ) from error
    return thing


if __name__ == "__main__":
    sys.exit(main())
