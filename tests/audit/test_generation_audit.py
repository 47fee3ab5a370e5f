"""Whole generation loops: each feature done right is lossless, each done wrong shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.audit.generation_audit import DRAFT, TARGET
from otm.audit.toy_language import ToyLanguage
from otm.tracing.answers import CandidateFailure


def processed(logits: Any, request: Any, times: int = 1) -> Any:
    heat = request.temperature**times
    return otm.from_logits(logits, temperature=heat, top_k=request.top_k, top_p=request.top_p)


def batched(draft: Any, target: Any, request: Any, *, fault: str = "") -> list[list[int]]:
    """One draft an iteration, a batch of rows of different lengths, ragged by the mask, without a
    cache.
    """
    rng, rows = request.rng, len(request.input_ids)
    ids, mask = request.input_ids.tolist(), request.attention_mask.tolist()
    written: list[list[int]] = [[] for _ in range(rows)]

    def law(model: Any, i: int) -> Any:
        seen = [[1] * len(ids[i])] if fault == "padding attended to" else [mask[i]]
        logits = model([ids[i]], attention_mask=seen, use_cache=False).logits[0]
        return processed(logits[-1], request, 2 if fault == "temperature twice" else 1)

    def put(i: int, token: int) -> None:
        ids[i].append(token)
        mask[i].append(1)

    def undo(i: int) -> None:
        ids[i].pop()
        mask[i].pop()

    done = [False] * rows
    while not all(done):
        for i in range(rows):
            if done[i]:
                continue
            p, q = law(draft, i), law(target, i)
            x = int(rng.choice(len(p), p=p))
            if rng.random() * p[x] < q[x]:
                put(i, x)
                bonus = law(target, i)
                if fault == "unprocessed bonus":
                    bonus = otm.from_logits(
                        target([ids[i]], attention_mask=[mask[i]]).logits[0, -1]
                    )
                new = [x, int(rng.choice(len(bonus), p=bonus))]
                undo(i)
            else:
                rest = np.maximum(q - p, 0.0)
                new = [int(rng.choice(len(q), p=rest / rest.sum()))]
            for token in new:
                if not done[i]:
                    put(i, token)
                    written[i].append(token)
                    done[i] = len(written[i]) >= request.length or (
                        token == request.end and fault != "no end"
                    )
    return written


def cached(draft: Any, target: Any, request: Any, *, fault: str = "") -> list[list[int]]:
    """One row, one draft an iteration, key-value caches cropped after a rejection, the exponential
    race in torch.
    """
    import torch

    ids = torch.as_tensor(request.input_ids)
    written: list[int] = []
    caches = {model: model(ids[:, :-1]).cache for model in (draft, target)}
    last = ids[:, -1:]
    noise = torch.empty(2, dtype=torch.float64).exponential_()
    leaked = None

    def sample(mass: Any) -> int:
        fresh = (
            noise
            if fault == "noise once per text"
            else torch.empty(len(mass), dtype=torch.float64).exponential_()
        )
        return int((mass / fresh).argmax())

    while len(written) < request.length:
        one = draft(last, cache=caches[draft])
        p = torch.softmax(one.logits[0, -1], -1)
        x = int(torch.multinomial(p, 1))
        both = target(torch.cat([last, torch.tensor([[x]])], dim=1), cache=caches[target])
        q, after = torch.softmax(both.logits[0], -1)
        if fault == "state leaks" and leaked is not None:
            q = leaked
        if torch.rand((), dtype=torch.float64) * p[x] < q[x]:
            new = [x, sample(after)]
            caches = {target: both.cache, draft: draft(torch.tensor([[x]]), cache=one.cache).cache}
            leaked = None
        else:
            rest = (q - p).clamp(min=0)
            new = [sample(rest / rest.sum())]
            if fault != "stale row":
                both.cache.crop(both.cache.length - 1)
            caches = {target: both.cache, draft: one.cache}
            leaked = q
        written += new
        last = torch.tensor([new[-1:]])
    return [written]


def verdict(candidate: Any, fault: str = "", **options: Any) -> Any:
    found = audit.generate(
        lambda draft, target, request: candidate(draft, target, request, fault=fault),
        rng=np.random.default_rng(0),
        **options,
    )
    assert isinstance(found, JointAudit), found.reason
    return found.verdict


TWO_ROWS = {"prompts": [(0, 1), (1,)], "length": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5},
        {"temperature": 0.0},
        {"top_k": 1, "length": 4},
        {"top_p": 0.7},
        {"end": 1, "length": 3},
        TWO_ROWS,
        {**TWO_ROWS, "padding": "right"},
    ],
    ids=str,
)
def test_what_is_done_right_is_lossless(options: Any) -> None:
    assert verdict(batched, **options) == "lossless"


def test_caches_done_right_are_lossless() -> None:
    assert verdict(cached) == "lossless"


@pytest.mark.parametrize(
    ("candidate", "fault", "options"),
    [
        (batched, "padding attended to", TWO_ROWS),
        (batched, "temperature twice", {"temperature": 0.5, "length": 1}),
        (batched, "unprocessed bonus", {"temperature": 0.5, "length": 2}),
        (batched, "unprocessed bonus", {"temperature": 0.0, "length": 2, "prompts": [(0, 0)]}),
        (batched, "no end", {"end": 1, "length": 2}),
        (cached, "stale row", {}),
        (cached, "noise once per text", {"length": 4}),
        (cached, "state leaks", {}),
    ],
)
def test_what_is_done_wrong_shows(candidate: Any, fault: str, options: Any) -> None:
    assert verdict(candidate, fault, **options) == "not lossless"


def test_one_token_hides_what_several_show() -> None:
    assert verdict(cached, "stale row", length=1) == "lossless"


def test_the_model_sees_what_is_attended_to() -> None:
    left, right = (
        TARGET(ids, attention_mask=mask).logits[0]
        for ids, mask in (([[7, 0, 1]], [[0, 1, 1]]), ([[0, 1, 7]], [[1, 1, 0]]))
    )
    assert np.exp(left[-1]) == pytest.approx(TARGET.next([0, 1]))
    assert np.exp(right[1]) == pytest.approx(TARGET.next([0, 1]))
    first = TARGET([[0, 1]])
    second = TARGET([[1, 1]], cache=first.cache)
    assert np.exp(second.logits[0, -1]) == pytest.approx(TARGET.next([0, 1, 1, 1]))
    assert first.cache is not None
    assert first.cache.length == 2
    assert TARGET([[0]], use_cache=False).cache is None
    with pytest.raises(otm.errors.InvalidParameter, match="attention_mask"):
        TARGET([[0]], attention_mask=[[1, 1]])


def test_errors_have_types() -> None:
    for prompts in ([()], 3, [[0, 2]], []):
        with pytest.raises(otm.errors.InvalidParameter, match="at least one token"):
            verdict(batched, prompts=prompts)
    with pytest.raises(otm.errors.InvalidParameter, match=r"end must be a token in \[0, 2\)"):
        verdict(batched, end=2)
    with pytest.raises(otm.errors.InvalidParameter, match="padding must be"):
        verdict(batched, padding="middle")
    with pytest.raises(
        otm.errors.InvalidParameter, match="target must be of the class ToyLanguage"
    ):
        verdict(batched, target=otm.sequence.ZerothOrder([0.5, 0.5]))
    with pytest.raises(CandidateFailure, match="must get 3 tokens"):
        verdict(lambda draft, target, request, fault: [[0]])
    assert DRAFT.num_tokens == ToyLanguage([[1.0, 0.0]]).num_tokens == 2
