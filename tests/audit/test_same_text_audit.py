"""Same text or not: rounding is called rounding, planted faults are found, obstacles are named."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm import audit
from otm.audit.text_log import LoggedText
from otm.errors import InvalidParameter

Noise = Callable[[np.random.Generator, Any], Any]


def normal(rng, shape):
    return 0.002 * rng.standard_normal(shape)


def laplace(rng, shape):
    return 0.002 * rng.laplace(size=shape)


def of_many_scales(rng, shape):
    """Positions with up to ten times the noise of others."""
    return 0.001 * np.exp(rng.uniform(0.0, 2.3, (*shape[:2], 1))) * rng.standard_normal(shape)


def on_a_grid(rng, shape):
    """As bfloat16 has it, most values where they were."""
    return np.round(rng.standard_normal(shape) * 0.6) / 16


def nothing(rng, shape):
    return np.zeros(shape)


def that_grows(rng, shape):
    """None at the first token, which a common prefill makes, and full noise from the fifth on."""
    return np.minimum(1.0, np.arange(shape[1]) / 5)[None, :, None] * normal(rng, shape)


def beside(places):
    """Normal noise, and values that are off by about 2 at some places."""

    def noise(rng, shape):
        found = normal(rng, shape)
        found[:, places] += 2.0 * rng.standard_normal(found[:, places].shape)
        return found

    return noise


def rare(rng, shape):
    return 0.3 * (rng.random((*shape[:2], 1)) < 0.001) * rng.standard_normal(shape)


def runs(rng, noise=normal, *, texts=8, length=200):
    """Return two greedy runs that differ by noise: five tokens a position, margins of mean 1,
    on a grid as the noise, independent of the context; after a flip other tokens.
    """
    gaps = rng.exponential(1.0, (texts, length, 5))
    if noise in (on_a_grid, nothing):
        gaps = np.round(16.0 * gaps) / 16.0
    gaps[..., 0] = 0.0
    values = -9.0 - np.cumsum(gaps, axis=-1)
    names = rng.permuted(np.tile(np.arange(60), (texts, length, 1)), axis=-1)[..., :5]
    return of_values(names, values), of_values(names, values + noise(rng, values.shape), 60)


def of_values(names, values, flipped=0):
    """Return the texts of the likeliest tokens; one that is not the first of its list is followed
    by other tokens.
    """
    found = []
    for rows, lists in zip(names, values, strict=True):
        best = lists.argmax(axis=-1)
        parted = np.cumsum(best != 0) - (best != 0)
        rows = rows + flipped * (parted > 0)[:, None]
        tokens = tuple(rows[np.arange(len(rows)), best].tolist())
        tops = [
            dict(zip(*pair, strict=True))
            for pair in zip(rows.tolist(), lists.tolist(), strict=True)
        ]
        found.append(LoggedText(tokens, tuple(tops), finish="length"))
    return found


def with_tokens(text, choose):
    """Return a text in which each token is chosen by place, from the likeliest and their values."""
    ranked = [sorted(top, key=top.__getitem__, reverse=True) for top in text.top]
    tokens = map(choose, range(len(ranked)), ranked, text.top)
    return dataclasses.replace(text, tokens=tuple(tokens))


@pytest.mark.parametrize("noise", [normal, laplace, of_many_scales, on_a_grid, that_grows])
@pytest.mark.parametrize("texts", [16, pytest.param(1_000, marks=pytest.mark.long)])
def test_rounding_is_called_rounding(noise, texts):
    found = audit.same_text(*runs(np.random.default_rng(5), noise, texts=texts))
    assert (found.verdict, found.obstacle) == ("rounding", ""), str(found)
    mean, spread = found.expected
    assert len(found.differences) <= mean + 5 * spread + 3
    # on a grid many are tied, and these runs take the first of equal tokens both times
    assert len(found.differences) >= mean - 5 * spread - 3 or noise is on_a_grid
    # the certificate: what is beyond the limit did not flip
    assert found.limit is not None
    assert all(one.margin <= found.limit for one in found.differences)


FAULTY = 100
"""Where faults begin."""


def shifted(text, by):
    tokens, top = (part[:FAULTY] + part[FAULTY + by :] for part in (text.tokens, text.top))
    return LoggedText(tokens, top, finish="length")


@pytest.mark.parametrize(
    ("fault", "noise", "token", "words"),
    [
        (lambda text: shifted(text, 1), normal, FAULTY, "1 token missing"),
        (lambda text: shifted(text, -1), normal, FAULTY, "1 token doubled"),
        # as after a stale row of the cache or a wrong position
        (lambda text: text, beside(slice(FAULTY, None)), FAULTY, ""),
        (
            lambda text: with_tokens(text, lambda j, ranked, top: ranked[2 * (j == FAULTY)]),
            normal,
            FAULTY,
            "behind the likeliest of its own list",
        ),
        (
            lambda text: LoggedText((*text.tokens, 1, 2), text.top + text.top[:2], finish="length"),
            normal,
            200,
            "goes on for 2 tokens",
        ),
    ],
)
def test_planted_faults_are_found_where_they_are(fault, noise, token, words):
    """At their first token, or, where they spoil values at random, within 20 of it."""
    plain, speculative = runs(np.random.default_rng(1), noise)
    found = audit.same_text(plain, [fault(text) for text in speculative])
    assert found.verdict == "fault"
    assert token <= found.faults[0].token <= token + 20 * (noise is not normal)
    assert words in str(found)
    assert found.headline.startswith(f"fault: at token {found.faults[0].token} of text ")


def test_a_lenient_choice_within_the_noise_is_found_by_its_number():
    """The runner-up is written wherever it is within .03: less than this noise may change."""
    plain, speculative = runs(np.random.default_rng(2), of_many_scales, texts=16)
    lenient = [
        with_tokens(text, lambda j, ranked, top: ranked[top[ranked[1]] > top[ranked[0]] - 0.03])
        for text in speculative
    ]
    found = audit.same_text(plain, lenient)
    assert found.verdict == "fault"
    assert "behind the likeliest of its own list" in found.headline


def test_the_last_of_equal_tokens_is_a_fault_where_nothing_is_rounded():
    pair = runs(np.random.default_rng(3), nothing)
    assert audit.same_text(*pair).verdict == "identical"
    first, last = (
        [
            with_tokens(
                text,
                lambda j, ranked, top, of=of: of(x for x in ranked if top[x] == top[ranked[0]]),
            )
            for text in texts
        ]
        for texts, of in zip(pair, (min, max), strict=True)
    )
    found = audit.same_text(first, last)
    assert found.verdict == "fault"
    assert "a tie, of which the speculative run takes the last token" in found.headline


def test_a_forced_run_is_compared_behind_the_first_difference():
    """The plain model along the speculative text: every flip counts, and a fault behind one."""
    plain, _ = runs(np.random.default_rng(4))
    written = with_tokens(plain[0], lambda j, ranked, top: ranked[4 * (j in (50, 150))])
    given = dataclasses.replace(written, forced=True)
    found = audit.same_text([given, *plain[1:]], [written, *plain[1:]], tolerance=0.1)
    assert [one.token for one in found.differences] == [50, 150]
    assert found.verdict == "fault"


FEW = LoggedText((5, 9), ({5: -0.1, 7: -2.5}, {9: -0.7, 3: -0.75}))
OTHER = dataclasses.replace(FEW, tokens=(5, 3), top=(FEW.top[0], {3: -0.7, 9: -0.75}))


def test_by_hand():
    """The second list has moved by .1 to flip a margin of .05; a tolerance of that explains it."""
    assert audit.same_text([FEW], [FEW]).verdict == "identical"
    found = audit.same_text([FEW], [OTHER], tolerance=0.1001)
    assert "changes up to the given tolerance of 0.1001" in found.coverage.untested
    assert found.verdict == "rounding"
    assert found.differences[0].change == pytest.approx(0.1)
    assert audit.same_text([FEW], [OTHER], tolerance=0.0999).verdict == "fault"


@pytest.mark.parametrize(
    ("plain", "speculative", "why"),
    [
        ([FEW], [OTHER], "values in both runs at 1 of the 32"),
        ([FEW], [OTHER, OTHER], "the runs hold 1 and 2 texts"),
        ([], [], "the runs hold 0 and 0 texts"),
        (
            [dataclasses.replace(FEW, prompt=[1])],
            [dataclasses.replace(OTHER, prompt=[2])],
            "other prompts in 1 text, first in text 0",
        ),
        (
            [dataclasses.replace(FEW, top=({}, {}))],
            [dataclasses.replace(OTHER, top=({}, {}))],
            "token 1 of text 0 has no log-probabilities",
        ),
        (
            [dataclasses.replace(FEW, tokens=(7, 9))],
            [FEW],
            "the plain run's tokens are up to 2.4 behind the likeliest",
        ),
    ],
)
def test_where_there_is_no_verdict_it_says_why(plain, speculative, why):
    found = audit.same_text(plain, speculative)
    assert found.verdict == "no verdict"
    assert why in found.headline


@pytest.mark.parametrize(
    ("noise", "why"),
    [(rare, "too few to measure"), (beside(slice(0, None, 4)), "a fault from the start")],
)
def test_noise_that_is_too_rare_or_too_large_is_no_measure(noise, why):
    """Wrong rows from token 0 on would teach that such changes are rounding."""
    found = audit.same_text(*runs(np.random.default_rng(6), noise, texts=100))
    assert found.verdict == "no verdict"
    assert why in found.headline


def test_nearly_equal_values_are_no_tie():
    """Changes of 3e-7 everywhere, one of which flips a margin of 2e-7: float32's rounding."""
    names = np.tile(np.arange(3), (4, 100, 1))
    values = np.tile([-1.0, -2.0, -3.0], (4, 100, 1))
    values[3, 50, 1] = -1.0 - 2e-7
    moved = values + np.array([-3e-7, 0.0, 0.0])
    found = audit.same_text(of_values(names, values), of_values(names, moved, 60))
    assert found.verdict != "fault"


def test_parts_of_a_character_are_not_compared():
    """U+FFFD may stand for two tokens, after which texts differ."""
    part, top = "\ufffd", {" a": -0.1, " b": -2.0}
    plain = LoggedText((" a",) * 40 + (part, " a"), (top,) * 42)
    other = LoggedText((" a",) * 40 + (part, " b"), (*(top,) * 41, {" b": -0.1, " a": -9.0}))
    assert audit.same_text([plain], [other]).verdict == "identical"


def test_scores_with_noise_are_read_when_it_is_said_so():
    scored = dataclasses.replace(FEW, top=({5: 1.5, 7: 0.5}, {9: 2.0, 3: 0.0}))
    with pytest.raises(InvalidParameter, match="--same-seed"):
        audit.same_text([scored], [scored])
    assert audit.same_text([scored], [scored], same_seed=True).verdict == "identical"
    with pytest.raises(InvalidParameter, match="a file's path or its texts"):
        audit.same_text(3, [scored])


@pytest.mark.parametrize(
    ("top", "why"),
    [
        ({5: 0.0, 7: 0.0}, "all values are 0"),
        ({5: -0.1}, "have one entry"),
        ({}, "no likeliest tokens are logged"),
    ],
)
@pytest.mark.parametrize("tolerance", [None, 0.1])
def test_nothing_compared_is_no_verdict(top, why, tolerance):
    """llama.cpp wrote 0.0 for every token while it drafted (a thread of August 2026)."""
    text = LoggedText((5, 5), (top, top))
    found = audit.same_text([text] * 3, [text] * 3, tolerance=tolerance)
    assert found.verdict == "no verdict"
    assert why in found.obstacle
