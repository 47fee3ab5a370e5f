"""JSON that readers would differ on is refused."""

import math

import pytest

from otm._machine.strict_json import plain_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": [-Infinity]}',
        '{"a": 1e400}',
        b"\xff{}",
        b"\xef\xbb\xbf{}",
        "[" * 10**5,
    ],
)
def test_json_that_readers_would_differ_on_is_refused(text):
    with pytest.raises((ValueError, RecursionError)):
        plain_json(text)


def test_numbers_that_json_does_not_have_mean_what_the_reader_says():
    missing = plain_json(
        "[NaN, 1e400, -1e400, 1.5]", constant=lambda name: {"NaN": 0.0}.get(name, math.nan)
    )
    assert (
        missing[0] == 0.0
        and math.isnan(missing[1])
        and math.isnan(missing[2])
        and missing[3] == 1.5
    )
