"""A record by itself: what passed between two scrapes, several put together, how one prints."""

import numpy as np
import pytest

import otm
from otm.engines.records import AcceptanceRecord, Tally
from otm.engines.records.record import Times


def server(
    steps,
    accepted,
    drafted=None,
    survivors=None,
    **known,
):
    listed = None if survivors is None else np.array(survivors, dtype=np.float64)
    part = Tally("", float(steps), float(accepted), drafted, listed)
    return AcceptanceRecord(
        **{"form": "counters", "unit": "server", "parts": (part,), "convention": ""} | known
    )


def test_what_passed_between_two_scrapes():
    """Counters that began with a list shorter by one position."""
    early, late = server(10, 14, 20.0, [8, 6]), server(30, 44, 70.0, [24, 15, 5])
    passed = late.since(early)
    (part,) = passed.parts
    assert (part.steps, part.accepted, part.drafted) == (20, 30, 50)
    assert part.survivors is not None and part.survivors.tolist() == [16, 9, 5]
    assert (passed.form, passed.pooled_mean, passed.drafts_per_step) == ("counters", 2.5, 2.5)
    assert passed.notes == ("The time between two scrapes.",)


@pytest.mark.parametrize(
    ("old", "new", "drafted"),
    [(0.0, 20.0, 20), (0.0, 0.0, 0), (5.0, 20.0, 15), (None, 20.0, None), (5.0, None, None)],
)
def test_drafts_between_two_scrapes(old, new, drafted):
    passed = server(30, 0, new).since(server(10, 0, old))
    assert (passed.drafted, passed.parts[0].survivors) == (drafted, None)


@pytest.mark.parametrize(
    ("late", "early", "said"),
    [
        (server(30, 44), server(10, 14, form="page"), "a counters and a page"),
        (server(30, 44, unit="run"), server(10, 14), "one server's counters"),
        (server(30, 44), server(10, 14, unit="run"), "one server's counters"),
        (
            server(30, 44, parts=(Tally("", 10.0, 14.0), Tally("", 20.0, 30.0))),
            server(10, 14),
            "one server's counters",
        ),
        (server(1, 1.4, parts=(Tally.of_mean(2.4, name=""),)), server(10, 14), "one server's"),
        (server(30, 13), server(10, 14), "Counters only rise"),
        (server(9, 14), server(10, 14), "Counters only rise"),
        (server(30, 44, 19.0), server(10, 14, 20.0), "Counters only rise"),
        (server(30, 44, None, [25, 5]), server(10, 14, None, [8, 6]), "Counters only rise"),
    ],
)
def test_what_are_no_two_scrapes(late, early, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        late.since(early)


def test_records_put_together_keep_what_they_share():
    times = Times({1: 0.01}, 1)
    one = server(10, 14, length=2, reported_mean=2.5, notes=("a", "b"), times=times)
    other = server(30, 4, length=2, notes=("b", "c"))
    both = AcceptanceRecord.together([one, other])
    assert (both.steps, both.pooled_mean, len(both.parts)) == (40, 1 + 18 / 40, 2)
    assert (both.length, both.reported_mean, both.times) == (2, None, None)
    assert both.notes == ("a", "b", "c")
    assert AcceptanceRecord.together([one, server(30, 4, length=3)]).length is None
    assert AcceptanceRecord.together([one]) is one  # with its times and the mean that it reports


@pytest.mark.parametrize(
    "records",
    [[], [server(1, 1), server(1, 1, form="page")], [server(1, 1), server(1, 1, unit="run")]],
)
def test_records_of_several_forms_stay_apart(records):
    with pytest.raises(otm.errors.InvalidParameter, match="are of one form"):
        AcceptanceRecord.together(records)


@pytest.mark.parametrize(
    ("record", "printed"),
    [
        (
            server(12_000, 18_000, None, [10_000, 8_000]),
            "counters: 1 server, 12,000 steps, 2.5 tokens a step, 2 positions",
        ),
        (
            server(1, 1, unit="run", parts=(Tally.of_rates([0.8, 0.6, 0], name=""),)),
            "counters: 1 run, rates only, 2.4 tokens a step, 3 positions",
        ),
        (
            server(1, 1, unit="run", parts=(Tally.of_mean(2.5, name=""),) * 2),
            "counters: 2 runs, rates only, 0 positions",
        ),
    ],
)
def test_how_a_record_prints(record, printed):
    assert repr(record) == f"AcceptanceRecord({printed})"


@pytest.mark.parametrize(
    ("survivors", "drafted", "censoring"),
    [
        ([8, 6], 20.0, "none"),
        ([8, 6], 19.94, "hidden"),  # whole counts are exact
        ([8.04, 6], 20.06, "none"),  # rates of three decimals are right to half a per cent
        ([8.04, 6], 19.94, "none"),
        ([8.04, 6], 20.12, "hidden"),
        ([8.04, 6], 19.88, "hidden"),
        ([8.04, 6], None, "unknown"),
        (None, 20.0, "unknown"),
    ],
)
def test_drafts_that_differ_show_in_their_sum(survivors, drafted, censoring):
    assert server(10, sum(survivors or [14]), drafted, survivors).censoring == censoring
