"""The work of ``otm audit``: find the callable, carry out the audit, show and write the result."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import io
import math
import operator
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from otm import audit
from otm._machine.progress import INTERRUPTED, clock
from otm.audit import (
    Candidate,
    Errors,
    LogitCandidate,
    Scope,
    exports,
    standard_problems as standard,
)
from otm.audit.batteries import BatteryAudit, run_battery, with_counterexample
from otm.audit.blocks import ManyBlocksCandidate
from otm.audit.candidate import FunctionCandidate
from otm.audit.classification import arguments_of
from otm.audit.drafted import DraftedCandidate
from otm.audit.engine_audit import write_pair
from otm.audit.report import PASSED, Audit
from otm.audit.sampled_audit import Interrupted
from otm.audit.templates import template
from otm.audit.token_log import InvalidRecord
from otm.audit.tracing.answers import frames_of
from otm.commands.printing import deliver, print_report
from otm.drafts import LAWS, Law
from otm.errors import InvalidParameter, OtmError
from otm.verifiers import Verifier

KINDS: dict[str, type[Any]] = {
    "step": audit.StepCandidate,
    "tree": audit.TreeCandidate,
    "generate": audit.GenerationCandidate,
    "logits": audit.LogitCandidate,
}
"""Kind of callable by mode."""

AUDITED: dict[str, tuple[Any, str]] = {
    "exact": ((audit.TokenCandidate, audit.VerifierCandidate), "one token on given uniforms"),
    "sequence": (audit.BlockCandidate, "a block on given uniforms"),
    "sampled": (DraftedCandidate, "a token or a block"),
}
"""Kind of callable by mode of one audit, and the kind in words."""

EXIT_STATUS = {
    "lossless": 0,
    "no difference found": 0,
    "identical": 0,
    "rounding": 0,
    "not lossless": 1,
    "fault": 1,
    "not exact": 1,
    "raised": 2,
    "undecided": 2,
    "no verdict": 2,
    "little power": 3,
}

_NAMED = "module:function or FILE.py:function"
_ATTRIBUTE = "candidate"
"""Function that is taken where none is named, as templates name theirs."""

_SHOWN = 12
"""Names that an error lists."""

_MOST_PRINTED = 1 << 16


def law_name(law: type[Law]) -> str:
    """Return the name of a draft law on the command line.

    >>> import otm
    >>> law_name(otm.WithoutReplacement), law_name(otm.IID)
    ('without-replacement', 'iid')
    """
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", law.__name__).lower()


_LAWS = {law_name(law): law for law in LAWS}


def run(options: SimpleNamespace) -> int:
    """Print a template, or carry out an audit and show each result as soon as possible."""
    if options.template is not None:
        return 0 if print_report(template(options.template), command="audit") else 2
    if options.write_pair is not None:
        paths = [*map(str, write_pair(options.write_pair))]
        if not any(path.endswith(".gguf") for path in paths):
            paths.append("no GGUF files; for llama.cpp pip install gguf, and write it again")
        return 0 if print_report("\n".join(paths), command="audit") else 2
    printed = _Kept()
    status = 0
    with clock("auditing"), printed.in_place_of_the_streams():
        try:
            result, candidate, scope = _audit(options)
        except Interrupted as interruption:
            result, candidate, scope = interruption.found, None, Scope()
            status = INTERRUPTED
    figures = result.summary() if isinstance(result, BatteryAudit) else result.figures()
    silent = options.json == "-"
    arrived = [silent or print_report(f"{result.head()}\n\n{figures}", command="audit")]
    failed, path = isinstance(result, BatteryAudit) and result.verdict not in PASSED, result.name
    if isinstance(result, BatteryAudit) and failed and result.audits and not status:
        with clock("smallest counterexample"), printed.in_place_of_the_streams():
            try:
                result = with_counterexample(result, scope)
            except KeyboardInterrupt:  # the verdict stands
                status = INTERRUPTED
        if ":" not in path and isinstance(candidate, FunctionCandidate):  # it has a name of its own
            path = find(options.callable)[1] + ".verify" * isinstance(candidate, LogitCandidate)
        example = f"\n{result.example()}{exports.test_to_keep(result, path)}"
        arrived.append(silent or print_report(example, command="audit"))
    arrived.append(
        options.json is None
        or deliver(options.json, exports.as_json(result, path, options.given), command="audit")
    )
    if said := printed.getvalue().strip().splitlines():
        print(
            "otm audit: the callable printed something, which was left out; it begins with: "
            f"{said[0]:.200}",
            file=sys.stderr,
        )
    return status or (EXIT_STATUS[result.verdict] if all(arrived) else 2)


class _Kept(io.StringIO):
    """A stream that keeps the beginning of another's prints, out of the report."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, _MOST_PRINTED - self.tell())])
        return len(text)

    @contextlib.contextmanager
    def in_place_of_the_streams(self) -> Iterator[None]:
        with contextlib.redirect_stdout(self), contextlib.redirect_stderr(self):
            yield


def _audit(options: SimpleNamespace) -> tuple[Audit, Candidate | None, Scope]:
    """Carry out the audit that the options ask for, but for the search of a counterexample."""
    errors = Errors(
        detect=options.detect or None, false_alarm=options.false_alarm, missed=options.missed
    )
    log, texts = options.log is not None, options.same_text is not None
    served = options.engine is not None
    none, called = not (log or texts or served), options.callable is not None
    _refuse_if(
        (
            "--log, --same-text and --engine are an audit each; got several. Keep one of them.",
            log + texts + served > 1,
        ),
        (
            "A log or an engine is audited without a callable; got both. Drop one of them.",
            called and not none,
        ),
        (
            "--same-seed is of two runs; got none. Name them: --same-text A B.",
            none and options.same_seed,
        ),
        (
            "--expected is of a record of acceptance; got none. Name it with --log FILE.",
            none and options.expected is not None,
        ),
        (
            f"An audit needs {_NAMED}, --engine URL or --log FILE; got none. See otm audit --help.",
            none and not called,
        ),
    )
    if served:
        return _engine(options, errors), None, Scope()
    if log:
        return _log(options, errors), None, Scope()
    if texts:
        compared = audit.same_text(
            *options.same_text,
            same_seed=options.same_seed,
            tolerance=options.tolerance,
            errors=errors,
        )
        return compared, None, Scope()
    candidate = _candidate(options)
    pair = _pair(options)
    block = (
        candidate.takes_blocks
        if isinstance(candidate, LogitCandidate)
        else isinstance(candidate, ManyBlocksCandidate)
    )
    laws = None
    if options.law or (options.drafts and not block):
        laws = _laws(options, (1,) if pair else standard.DRAFTS)
    one_audit = options.mode in AUDITED
    scope = Scope(
        only=("sampled" if options.mode == "sampled" else "exact") if one_audit else (),
        laws=laws,
        num_drafts=options.drafts if block else None,
        errors=errors,
        tolerance=options.tolerance,
        seed=options.seed,
        # of one kind of audit no one waits for less than all
        deadline=audit.Deadline(math.inf if one_audit else options.seconds, spare=options.shrink),
        pair=pair,
        noise=options.noise,
        vocabulary=options.vocabulary,
    )
    found = run_battery(candidate, scope)
    if pair is not None and len(found.audits) == 1 and not found.raised and not found.left_out:
        (only,) = found.audits.values()
        return dataclasses.replace(only, reason=found.reason), candidate, scope
    return found, candidate, scope


_OF_ENGINES = {"engine", "temperatures", "detect", "false-alarm", "missed"}
"""Options of an audit of an engine, beside those that say where its report goes."""


def _engine(options: SimpleNamespace, errors: Errors) -> Audit:
    """Audit the texts of an engine, a server or a function."""
    heats = options.temperatures or (1.0,)
    given = sorted(set(options.given) - _OF_ENGINES)
    _refuse_if(
        (
            f"An engine is asked as a whole, without filters; got --{' and --'.join(given)}. Drop "
            "what is of other audits.",
            bool(given),
        )
    )
    if len(heats) > 1:
        raise InvalidParameter(
            f"An engine is audited at one temperature; got {len(heats)}. Call it for each."
        )
    writes = options.engine
    if re.match(r"[\w.-]+:\d+(/|$)", writes):
        raise InvalidParameter(
            f"A server has an address of http or https; got {writes!r}. Write http://{writes}."
        )
    if "://" not in writes:
        writes, _ = find(writes)
    return audit.engine(writes, temperature=heats[0], name=options.engine, errors=errors)


def _log(options: SimpleNamespace, errors: Errors) -> Audit:
    """Audit a log of outputs, or an engine's counters if the first line is no log."""
    if options.expected is not None:
        return audit.acceptance_counts(options.log, expected=options.expected, errors=errors)
    law = None if options.law is None else _laws(options, (1,))[0]
    try:
        return audit.server_log(options.log, law=law, errors=errors)
    except InvalidRecord as error:
        if "Line 1 " not in str(error):
            raise
        try:
            return audit.acceptance_counts(options.log, errors=errors)
        except OtmError:
            raise error from None


def _laws(options: SimpleNamespace, default: Sequence[int]) -> list[Law]:
    return [_LAWS[options.law or "iid"].of_size(k) for k in options.drafts or default]


def _pair(options: SimpleNamespace) -> Any:
    """Return the laws given by --draft-probs and --target-probs, None without these options."""
    pair = options.draft_probs, options.target_probs
    _refuse_if(
        (
            "--draft-probs and --target-probs go together; got one of them. Give both, or neither.",
            pair.count(None) == 1,
        )
    )
    return None if None in pair else pair


def _refuse_if(*rules: tuple[str, bool]) -> None:
    """Raise `InvalidParameter` with the first message whose condition holds."""
    for said, broken in rules:
        if broken:
            raise InvalidParameter(said)


def _candidate(options: SimpleNamespace) -> Candidate:
    """Return the candidate that module:function names, of the right kind."""
    found: Any
    found, name = find(options.callable)
    mode, settings = _settings(options)
    if isinstance(found, type) and issubclass(found, Verifier):
        found = found()
    arguments = arguments_of(found)
    if mode == "logits" and arguments is not None and 5 not in arguments and 4 in arguments:
        if len(settings.get("temperatures", ())) != 1:
            raise InvalidParameter(
                f"{name!r} takes four arguments: its temperature is its own. Give it: "
                "--temperatures 0.7, say."
            )
        return LogitCandidate(
            lambda p, q, x, uniforms, heat: found(p, q, x, uniforms), name, **settings
        )
    candidate: Any
    if options.batched:
        candidate = audit.BatchCandidate(found, name)
    elif (
        mode in KINDS
        and (arguments is None or "temperatures" in settings)
        and not isinstance(found, Candidate | Verifier)
    ):
        candidate = KINDS[mode](found, name)  # which cannot be found out
    else:
        candidate = audit.classify(found, name=name, num_uniforms=_uniforms(options))
    kinds = AUDITED | {kind: (KINDS[kind], KINDS[kind].called) for kind in KINDS}
    if mode in kinds and not isinstance(candidate, kinds[mode][0]):
        raise InvalidParameter(
            f"--mode {mode} audits {kinds[mode][1]}; {name!r} is {candidate.description}. Drop "
            "--mode: what it is is found out."
        )
    made: Candidate = dataclasses.replace(candidate, **settings) if settings else candidate
    return made


def _settings(options: SimpleNamespace) -> tuple[str, dict[str, Any]]:
    """Return the mode, given or implied by other options, and the settings of the callable."""
    processing = {
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "order": options.order,
        "temperatures": options.temperatures,
    }
    logits = {name: value for name, value in processing.items() if value is not None}
    tree = {} if options.siblings is None else {"siblings": options.siblings}
    step: dict[str, Any] = {"first_iteration": True} if options.first_iteration else {}
    mode = options.mode
    if mode == "step" and "temperatures" in logits:
        step["temperatures"] = logits.pop("temperatures")
    if mode == "auto" and (tree or logits):
        mode = "tree" if tree else "logits"
    _refuse_if(
        (
            f"--siblings is of --mode tree; got --mode {mode}. Drop it.",
            bool(tree) and mode != "tree",
        ),
        (
            "--top-k, --top-p, --min-p and --order are of --mode logits, --temperatures of --mode "
            f"step as well; got --mode {mode}. Drop them.",
            bool(logits) and mode != "logits",
        ),
        (
            f"--first-iteration is of --mode step; got --mode {mode}. Add --mode step, or drop it.",
            options.first_iteration and mode != "step",
        ),
        (
            "--uniforms and --batched are of callables that are handed their drafts; got --mode "
            f"{mode}. Drop them.",
            mode in KINDS and (options.uniforms is not None or options.batched),
        ),
    )
    return mode, tree | logits | step


def _uniforms(options: SimpleNamespace) -> Any:
    """Return the number of uniforms that a call may use, from --uniforms; None if not given."""
    if options.uniforms is None:
        return None
    if not (found := re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", options.uniforms)):
        raise InvalidParameter(
            f"--uniforms takes two integers A,B for A·k + B; got {options.uniforms!r}. Pass 1,1, "
            "say."
        )
    return lambda k, v: int(found[1]) * k + int(found[2])


def find(name: str) -> tuple[Any, str]:
    """Import module:attribute or FILE.py:attribute and return the object and module:attribute.

    The attribute is `candidate` unless given.
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
        thing = operator.attrgetter(attribute)(found)
    except AttributeError as error:
        own = [
            key
            for key, value in vars(found).items()
            if getattr(value, "__module__", None) == module
        ]
        meant = difflib.get_close_matches(attribute.lower(), map(str.lower, dir(found)), 1)
        near = [key for key in dir(found) if [key.lower()] == meant] or own[:_SHOWN]
        known = f"It has {', '.join(near)}" if near else "It has no function of its own"
        raise InvalidParameter(
            f"{name!r} cannot be found: {error}. {known}: write {module}:NAME."
        ) from error
    except Exception as error:
        if isinstance(error, ImportError) and error.name in (module, module.partition(".")[0]):
            raise InvalidParameter(
                f"{name!r} cannot be found: {error}. Check the spelling and the working directory."
            ) from error
        raise InvalidParameter(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}{frames_of(error)}."
        ) from error
    except SystemExit as error:  # its status would pass for a verdict
        raise InvalidParameter(
            f"{module!r} ends the program when it is imported ({error!r}). Guard its script part."
        ) from error
    return thing, f"{module}:{attribute}"
