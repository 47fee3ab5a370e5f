"""Tests of a verifier: the default battery as one assertion, or each check as a test of pytest.

`parametrize_with_checks` is for a pytest file of one's own::

    @otm.audit.parametrize_with_checks(verify, expected_failures={"zeros": "divides by zero"})
    def test_verify(check):
        check()
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from otm.audit import exports, standard_problems as standard
from otm.audit.batteries import BatteryAudit, battery, candidate_of
from otm.audit.budget import USUAL, Deadline, Errors, OutOfTime
from otm.audit.candidate import Check, Scope, check_names
from otm.audit.report import PASSED, Audit
from otm.audit.tracing.intercept.interception import preserved
from otm.drafts import Law
from otm.errors import InvalidParameter, MissingPackage
from otm.pmf import check_instance, check_real


def assert_lossless(candidate: object, **options: Any) -> BatteryAudit:
    """Fail unless the default battery finds nothing: `otm.audit.battery` as an assertion.

    Args:
        candidate, options: as for `otm.audit.battery`; the seed is fixed unless given, so that the
            same code has the same verdict.

    Returns:
        BatteryAudit of a candidate that passed.

    Raises:
        AssertionError: if the verdict is "not lossless", "undecided" or "no verdict"; its message
            is the report for a pull request, and below it the minimal counterexample as a test to
            keep.

    Cost: as `otm.audit.battery`, under 30 seconds. A lossless candidate fails with probability at
        most `false_alarm` of the result.

    >>> import otm
    >>> otm.audit.assert_lossless(otm.KSeq()).verdict
    'lossless'
    """
    __tracebackhide__ = True
    result = battery(candidate, **options)
    if result.verdict not in PASSED:
        kept = exports.test_to_keep(result, import_path_of(candidate, result.name))
        raise AssertionError(f"{result}{kept}")
    return result


def import_path_of(candidate: object, name: str) -> str:
    """Return the import path "module:function" of a callable, or the name if there is none."""
    function: Any = getattr(candidate, "verify", candidate)
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    return name if ":" in name or not module or "<" in path else f"{module}:{path}"


def parametrize_with_checks(
    candidates: object,
    *,
    only: str | Sequence[str] = (),
    skip: Iterable[str] | Mapping[str, str] = (),
    expected_failures: Mapping[str, str] | None = None,
    laws: Iterable[Law] | None = None,
    num_drafts: Sequence[int] | None = None,
    seed: int = 0,
    errors: Errors = USUAL,
    tolerance: float | None = None,
    seconds: float = standard.SECONDS,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a test of pytest so that one test runs for each check of a candidate.

    The test takes one argument, `check`, and calls it. The id of each test is the candidate's name
    and the check's, such as ``verify-zeros, IID(k=2)``. What a callable does not take fails here,
    where a battery leaves it out: say with `laws` or `num_drafts` what it takes.

    Args:
        candidates: one that `otm.audit.battery` takes, or a list of these.
        only: which checks, all unless given, as for `otm.audit.battery`.
        skip: names of checks that are not to run, or parts of names; with a reason each in a
            mapping.
        expected_failures: reasons by names of checks, or parts of names, that are known to fail;
            one that passes all the same is a failure.
        laws, num_drafts, seed, errors, tolerance: as for `otm.audit.battery`.
        seconds: time for the code in each check, after which it fails.

    Returns:
        A decorator: `pytest.mark.parametrize` with the checks.

    Raises:
        InvalidParameter: if a candidate is of no kind, or a name in `skip` or `expected_failures`
            is of no check.
        MissingPackage: without pytest.

    Cost: as for `otm.audit.battery`, a part for each test; making the list calls each candidate
        some dozens of times.

    >>> import otm
    >>> @parametrize_with_checks(otm.KSeq(), only="zeros", laws=[otm.IID(1), otm.IID(2)])
    ... def test_kseq(check):
    ...     check()
    >>> [case.id for case in test_kseq.pytestmark[0].args[1]]
    ['KSeq(gamma=None)-zeros, IID(k=1)', 'KSeq(gamma=None)-zeros, IID(k=2)']
    """
    try:
        pytest: Any = importlib.import_module("pytest")
    except ImportError as error:
        raise MissingPackage(
            "parametrize_with_checks makes tests of pytest, which is not installed. Install it: "
            "pip install pytest"
        ) from error
    limit = check_real(seconds, name="seconds", low=0.0)
    scope = Scope(
        only=only, laws=laws, num_drafts=num_drafts, errors=errors, tolerance=tolerance, seed=seed
    )
    found: list[tuple[str, Check]] = []
    things = candidates if isinstance(candidates, list | tuple) else [candidates]
    if not things:
        raise InvalidParameter("candidates must hold at least one; it is empty. Pass a function.")
    for thing in things:
        timed = dataclasses.replace(scope, deadline=Deadline(limit))
        candidate = candidate_of(thing, timed)
        for check in timed.checks(candidate.limited(timed.deadline)):
            found.append((candidate.name, _timed(check, timed)))
    skipped = dict.fromkeys(check_names(skip, name="skip"), "skipped by name")
    skipped |= skip if isinstance(skip, Mapping) else {}
    known = {} if expected_failures is None else expected_failures
    check_instance(known, Mapping, name="expected_failures")
    check_names(known, name="expected_failures")
    marks = [(word, pytest.mark.skip(reason=why)) for word, why in skipped.items()]
    marks += [(word, pytest.mark.xfail(reason=why, strict=True)) for word, why in known.items()]
    for word, _ in marks:
        if not any(check.is_named([word]) for _, check in found):
            raise InvalidParameter(
                f"No check is named {word!r}; there are {found[0][1].name!r} and "
                f"{len(found) - 1} more (pytest --collect-only lists them). Mend the name."
            )
    cases = [
        pytest.param(
            check,
            id=f"{name}-{check.name}",
            marks=[mark for word, mark in marks if check.is_named([word])],
        )
        for name, check in found
    ]
    decorator: Callable[[Callable[..., Any]], Callable[..., Any]] = pytest.mark.parametrize(
        "check", cases
    )
    return decorator


def _timed(check: Check, scope: Scope) -> Check:
    """Return a check with the full deadline and a fixed seed, for any order of the tests."""
    deadline = scope.deadline

    def run() -> Audit:
        deadline.restart(deadline.seconds)
        with preserved(seed=scope.seed % 2**32):
            try:
                return check.run()
            except OutOfTime:
                raise TimeoutError(
                    f"{check.name} takes more than {deadline.seconds:g} seconds. Pass seconds=."
                ) from None

    return dataclasses.replace(check, run=run)
