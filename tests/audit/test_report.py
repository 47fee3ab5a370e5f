"""The lines that stand over every report; the namespace that the audits stand in."""

from __future__ import annotations

import dataclasses
import pkgutil
from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.corpus.blocks import chain
from otm import audit
from otm.audit.report import LONGER_STATE, STATE, Coverage, merged
from otm.audit.standard_problems import standard_models
from tests.audit.callables import as_floats, maximal

PROBLEM = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
MODELS = standard_models(1)["after the token before"]
EXAMPLES = {
    "exact": (
        lambda: audit.exact(maximal, PROBLEM),
        ["1 draft, 1 token, V = 2", "by exact integration", "V > 2", "later tokens"],
    ),
    "kernel": (lambda: audit.exact(otm.Maximal(), PROBLEM), ["by summing the kernel"]),
    "probed": (
        lambda: audit.exact(as_floats(maximal), PROBLEM),
        ["by probing", "narrower than 1/64", "state kept between calls"],
    ),
    "sequence": (
        lambda: audit.sequence(chain, draft=MODELS[0], target=MODELS[1], num_drafts=1),
        ["1 draft, 2 tokens, V = 3", "more than 1 draft", "several drafts a position"],
    ),
    "sampled": (
        lambda: audit.sampled(
            otm.Maximal(), PROBLEM, rng=np.random.default_rng(0), errors=audit.Errors(detect=0.2)
        ),
        ["by up to 793 samples", "total variations below 0.2 where sampled", "state kept between"],
    ),
    "outputs": (
        lambda: audit.outputs([0, 1], target=[0.5, 0.5]),
        ["by up to 2 samples", "other contexts"],
    ),
    "log": (
        lambda: audit.server_log(
            [
                audit.log_audit.LogRecord(
                    "", np.array([]), np.array([0.5, 0.5, 0.0]), None, np.arange(2), 1
                )
            ]
        ),
        ["a log of 1 records, fewer than 346 distinct contexts", "contexts that are not in it"],
    ),
}


@pytest.mark.parametrize(("carry_out", "said"), EXAMPLES.values(), ids=EXAMPLES)
def test_every_report_begins_with_what_was_tested_by_what_and_what_was_not(
    carry_out: Any, said: list[str]
) -> None:
    result = carry_out()
    line = str(result.coverage)
    assert str(result).split("\n", 1)[1].startswith(line)
    assert line.startswith("Tested: ")
    for words in ("Not tested: ", *said):
        assert words in line


def test_the_first_line_says_what_stands_behind_lossless() -> None:
    """Probed cells are no proof; of noise kept from 0 by ε up to ε a draw is neglected."""

    def clamped(epsilon: float) -> Any:
        def verify(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
            return int(np.argmax(q / (-np.log(np.random.random(2) + epsilon))))  # noqa: NPY002

        return audit.exact(verify, PROBLEM)

    assert audit.exact(maximal, PROBLEM).headline == "lossless"
    assert audit.exact(as_floats(maximal), PROBLEM).headline == "lossless (probed)"
    near = clamped(1e-10)
    assert near.headline == "lossless but for 2e-10 of the draws, which were not followed"
    assert near.total_variation <= near.error == pytest.approx(2e-10)
    assert clamped(1e-6).verdict == "undecided"


def test_coverages_of_several_audits_are_put_together() -> None:
    """The largest batch of samples, the coarsest and the finest of what they find; of two notes on
    state the one that says more.
    """
    exactly = {"laws": ("IID",), "by": (("exact integration", 1),), "false_alarm": 0.25}
    one = Coverage(instances=("x",), drafts=(1,), vocabulary=(2,), least=0.25, **exactly)
    drawn = dataclasses.replace(
        one,
        drafts=(8,),
        vocabulary=(2_000,),
        least=1e-5,
        by=(("samples", 1),),
        samples=500,
        detect=0.1,
        untested=(STATE,),
    )
    finer = dataclasses.replace(drawn, detect=0.05, samples=400, untested=(LONGER_STATE,))
    both = merged([("a", one), ("b", drawn), ("c", one), ("d", finer)], ["9 drafts (time was up)"])
    assert (both.by, both.false_alarm) == ((("exact integration", 2), ("samples", 2)), 1.0)
    assert str(both) == (
        "Tested: 1, 8 drafts, 1 token, V = 2, 2,000, drafts by IID, 4 instances; 2 by exact "
        "integration, 2 by up to 500 samples each.\n"
        "Not tested: 2..7 drafts; V > 2,000; more than 8 drafts; probabilities below 1e-05; total "
        "variations below 0.05 to 0.1 where sampled; state kept over more than two calls; 9 drafts "
        "(time was up)."
    )


def test_no_function_hides_a_module() -> None:
    modules = {found.name for found in pkgutil.iter_modules(audit.__path__)}
    assert not modules & {*audit.__all__}
