"""Whole generation loops: each feature done right is lossless, each done wrong shows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.audit.generations import TARGET, ToyCache
from otm.audit.templates.generate import candidate as right

Fault = Callable[[Any, Any, Any], Any]


def altered(**changed):
    """The right loop, asked for something else than it should do."""

    def loop(draft, target, request):
        changes = {name: change(request) for name, change in changed.items()}
        return right(draft, target, dataclasses.replace(request, **changes))

    return loop


class StaleCache(ToyCache):
    """A cache in which the rows of rejected drafts stay, uncounted."""

    rejected = 0

    @property
    def length(self):
        return super().length - self.rejected

    def crop(self, length):
        self.rejected += self.length - length


def stale_row(draft, target, request):
    def model(ids, cache=None):
        found = target(ids, cache=cache)
        kept = StaleCache(found.cache.tokens)
        kept.rejected = 0 if cache is None else cache.rejected
        return dataclasses.replace(found, cache=kept)

    return right(draft, model, request)


def verdict(loop, **options):
    found = audit.generate(loop, rng=np.random.default_rng(0), **options)
    assert isinstance(found, JointAudit), found.reason
    return found.verdict


TWO_ROWS = {"prompts": [(0, 1), (1,)], "length": 2}


@pytest.mark.parametrize(
    ("loop", "options"),
    [
        (right, {"top_k": 1, "length": 4}),
        (right, {**TWO_ROWS, "padding": "right"}),
    ],
)
def test_what_is_done_right_is_lossless(loop, options):
    """Temperatures, top-p, an end and padding on the left: the battery of the template."""
    assert verdict(loop, **options) == "lossless"


@pytest.mark.parametrize(
    ("loop", "options"),
    [
        (altered(attention_mask=lambda r: np.ones_like(r.input_ids)), TWO_ROWS),
        (altered(temperature=lambda r: r.temperature**2), {"temperature": 0.5, "length": 1}),
        (altered(end=lambda r: None), {"end": 1, "length": 2}),
        (altered(top_p=lambda r: None), {"top_p": 0.7, "length": 2}),
        (altered(top_k=lambda r: None), {"top_k": 1, "length": 2}),
        (altered(min_p=lambda r: None), {"min_p": 0.9, "length": 2}),
        (altered(temperature=lambda r: 1.0), {"temperature": 0.0, "length": 1}),
        (stale_row, {}),
    ],
)
def test_what_is_done_wrong_shows(loop, options):
    assert verdict(loop, **options) == "not lossless"


def test_the_model_sees_what_is_attended_to():
    left, right = (
        TARGET(ids, attention_mask=mask).logits[0]
        for ids, mask in (([[7, 0, 1]], [[0, 1, 1]]), ([[0, 1, 7]], [[1, 1, 0]]))
    )
    assert np.exp(left[-1]) == pytest.approx(TARGET.next([0, 1]))
    assert np.exp(right[1]) == pytest.approx(TARGET.next([0, 1]))
    first = TARGET([[0, 1]])
    second = TARGET([[1, 1]], cache=first.cache)
    assert np.exp(second.logits[0, -1]) == pytest.approx(TARGET.next([0, 1, 1, 1]))
    assert (first.cache.length, TARGET([[0]], use_cache=False).cache) == (2, None)
    with pytest.raises(otm.errors.InvalidParameter, match="attention_mask"):
        TARGET([[0]], attention_mask=[[1, 1]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"prompts": prompts}, "at least one token") for prompts in ([()], 3, [[0, 2]], [])),
        ({"end": 2}, r"end must be a token in \[0, 2\)"),
        ({"padding": "middle"}, "padding must be"),
        ({"loop": lambda draft, target, request: [[0]]}, "must get 3 tokens"),
    ],
)
def test_what_is_no_request_or_ends_early_is_refused(options, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        verdict(**{"loop": right} | options)
