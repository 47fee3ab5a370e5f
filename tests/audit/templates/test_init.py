"""The templates: printed, importable, running as they are, and honest about what they need."""

import ast
import importlib
import importlib.util

import pytest

from otm import audit
from otm.audit.templates import TEMPLATES, template, tree
from otm.audit.tracing.answers import CandidateFailure
from otm.errors import InvalidParameter

SECONDS = 120.0
"""Enough on a busy machine; a few are used."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_a_file_with_a_candidate(name):
    source = ast.parse(template(name))
    assert ast.get_docstring(source)
    assert hasattr(importlib.import_module(f"otm.audit.templates.{name}"), "candidate")


@pytest.mark.parametrize(
    ("path", "options", "covered"),
    [
        ("generate.candidate", {}, "a generation of 1 row"),
        ("logits.candidate", {}, "temperature 0, 0.7, 1"),
        ("step.candidate", {}, "a step that drafts by itself"),
        ("vllm.candidate", {"num_drafts": [2]}, "batches of up to 20,000 rows"),
        *((f"tree.{engine}", {}, "a tree of") for engine in ("sglang", "eagle", "sequoia")),
    ],
)
def test_it_runs_and_its_stand_in_passes(path, options, covered):
    module, candidate = path.split(".")
    given = getattr(importlib.import_module(f"otm.audit.templates.{module}"), candidate)
    found = audit.battery(given, seconds=SECONDS, **options)
    assert found.verdict == ("no difference found" if options else "lossless"), str(found)
    assert covered in str(found.coverage)


@pytest.mark.parametrize("engine", ["sglang", "eagle"])
def test_arrays_in_another_order_show(engine):
    """Siblings are linked to the wrong node: the arrays that the adapter hands over are the ones
    that are read.
    """
    right = getattr(tree, engine)

    def wrong(drafted, rng):
        return right.verify(type(drafted)(**{**vars(drafted), "target": drafted.target[::-1]}), rng)

    candidate = audit.TreeCandidate(wrong, siblings="likeliest")
    assert audit.battery(candidate, only="siblings", shrink_for=0).verdict == "not lossless"


def test_triton_interpreted_or_what_to_install():
    from otm.audit.templates.triton import candidate

    if importlib.util.find_spec("triton") is None:
        with pytest.raises(CandidateFailure, match="pip install triton"):
            audit.battery(candidate)
        pytest.skip("triton is not installed: its template was not run")
    assert audit.battery(candidate, num_drafts=[1], seconds=120.0).verdict == "no difference found"


def test_there_is_no_other():
    with pytest.raises(InvalidParameter, match="must be 'generate'"):
        template("flash")
