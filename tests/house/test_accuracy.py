"""Every public function has a promise that is tried, or a reason why not."""

import dataclasses
import inspect
import re

import numpy as np

import otm
from evidence.torture import page
from evidence.torture.families import registered
from evidence.torture.promises import one_trial, statements
from tests.contracts import calls
from tests.paths import ROOT


def test_every_public_function_is_tried_or_excused():
    spoken, public = page.spoken_for(), calls.public_names()
    for name, thing in public.items():
        is_error = inspect.isclass(thing) and issubclass(thing, BaseException)
        if callable(thing) and not is_error:
            assert name in spoken, (
                f"{name} promises nothing: enter it in a module of evidence/torture/families"
            )
    assert spoken <= set(public), f"there is no {spoken - set(public)}"
    tried = {statement.name for statement in statements()}
    assert len(tried) > 100 and not tried & set(page.NOT_TRIED), "tried and excused"


def test_what_is_registered_is_promised_by_default():
    """A verifier or a bound without an entry is held against its definition, and found if wrong."""
    promises = registered.of_verifier(otm.NaiveTree) + registered.of_bound(otm.bounds.kseq_lower)
    assert {promise.name for promise in promises} == {"otm.NaiveTree", "otm.bounds.kseq_lower"}
    for promise in promises:
        assert not one_trial(promise, np.random.default_rng(0)).failed
        wrong = dataclasses.replace(promise, value=lambda case, of=promise.value: [of(case)[0] + 1])
        assert one_trial(wrong, np.random.default_rng(0)).failed


def test_the_page_names_only_what_there_is():
    """Rows of a committed run may lack a new function, but name none that has gone."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(otm\.[\w.]+)` \|", text, re.MULTILINE))
    assert len(named) > 300 and named <= page.spoken_for()
