"""The lines that stand over every report, the namespace that the audits stand in, and results for
machines, each read back by what it is for.
"""

import dataclasses
import json
import pkgutil

import numpy as np
import pytest

import otm
from evidence.corpus import blocks, gaps, one_token, steps, trees
from evidence.corpus.blocks import chain
from otm import audit
from otm.audit import exports
from otm.audit.report import LONGER_STATE, STATE, Coverage, merged
from otm.audit.standard_problems import standard_models
from otm.audit.templates import generate
from tests.audit.callables import as_floats, carry_out, maximal

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
def test_every_report_begins_with_what_was_tested_by_what_and_what_was_not(carry_out, said):
    result = carry_out()
    line = str(result.coverage)
    assert str(result).split("\n", 1)[1].startswith(line)
    assert line.startswith("Tested: ")
    for words in ("Not tested: ", *said):
        assert words in line


def test_the_first_line_says_what_stands_behind_lossless():
    """Probed cells are no proof; of noise kept from 0 by ε up to ε a draw is neglected."""

    def clamped(epsilon):
        def verify(p, q, drafts, uniforms):
            return int(np.argmax(q / (-np.log(np.random.random(2) + epsilon))))  # noqa: NPY002

        return audit.exact(verify, PROBLEM)

    assert audit.exact(maximal, PROBLEM).headline == "lossless"
    assert audit.exact(as_floats(maximal), PROBLEM).headline == "lossless (probed)"
    near = clamped(1e-10)
    assert near.headline == "lossless but for 2e-10 of the draws, which were not followed"
    assert near.total_variation <= near.error == pytest.approx(2e-10)
    assert clamped(1e-6).verdict == "undecided"


def test_coverages_of_several_audits_are_put_together():
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


def test_no_function_hides_a_module():
    modules = {found.name for found in pkgutil.iter_modules(audit.__path__)}
    assert not modules & {*audit.__all__}


def test_json(failing):
    found = json.loads(exports.as_json(failing, "kernels:verify"))
    assert (found["name"], found["verdict"]) == ("resample_target", "not lossless")
    assert found["coverage"]["line"] == str(failing.coverage)
    assert found["total_variation"] == failing.severity
    rows = found["instances"]
    verdicts = {entry["instance"]: entry["verdict"] == "not lossless" for entry in rows}
    assert verdicts == {name: name in failing.failed for name in failing.audits}
    assert found["counterexample"]["total_variation"] == failing.counterexample.severity
    assert "from kernels import verify" in found["counterexample"]["test"]


def test_the_counterexample_is_a_test_that_fails_until_it_is_mended(failing):
    """One of a token, and one of blocks, which fails from its second position on."""
    shared = audit.shrink_sequence(blocks.one_uniform_for_all_positions, num_drafts=[2])
    assert shared is not None
    assert (shared.num_drafts, shared.law.shape[0], shared.first_position) == (2, 2, 2)
    for found, fault, right in (
        (failing.counterexample, one_token.resample_target, one_token.speculative_sampling),
        (shared, blocks.one_uniform_for_all_positions, blocks.chain),
    ):
        path = f"{fault.__module__}:{fault.__name__}"
        with pytest.raises(AssertionError, match="not lossless"):
            carry_out(found, path)
        carry_out(found, path, **{fault.__name__: right})


def at_temperature_one(draft, target, request):
    return generate.candidate(draft, target, dataclasses.replace(request, temperature=1.0))


@pytest.mark.parametrize(
    ("candidate", "only"),
    [
        (audit.LogitCandidate(gaps.residual_before_temperature), "k=1), temperature 0.6"),
        (steps.stale_row, "after the token before"),
        (
            audit.TreeCandidate(trees.youngest_first, siblings="without"),
            "two siblings, after the token before",
        ),
        (audit.GenerationCandidate(at_temperature_one), "temperature 0.6"),
    ],
    ids=["logits", "step", "tree", "generation"],
)
def test_the_counterexample_of_every_kind_runs_as_it_stands(candidate, only):
    found = audit.battery(candidate, only=only).counterexample
    function = getattr(candidate, "verify", candidate)
    path = f"{function.__module__}:{function.__name__}"
    assert found is not None
    assert "standard_problems" not in exports.as_test(found, path)  # laws in numbers
    with pytest.raises(AssertionError, match="not lossless"):
        carry_out(found, path)


def test_what_is_not_integrated_has_no_test():
    assert exports.as_test(audit.outputs(np.zeros(50, dtype=int), target=[0.5, 0.5]), "x") == ""
