"""Logs: the level over many contexts, what is found, and a reader that trusts nothing; counts of
accepted drafts: an alarm where more is accepted than can be, and no all-clear ever.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm import audit
from otm.audit import log_audit
from otm.audit.token_log import InvalidRecord, LogRecord, parse_record, read_log
from otm.engines import AcceptanceRecord
from otm.engines.records.tally import Tally


def seen(output, target, draft=None, drafts=()):
    """A record with complete laws."""
    return LogRecord(
        "",
        np.asarray(drafts, dtype=np.int64),
        np.append(target, 0.0),
        None if draft is None else np.append(draft, 0.0),
        np.arange(len(target)),
        output,
    )


@pytest.mark.parametrize(
    ("verifier", "verdict"),
    [(otm.Maximal(), "no difference found"), (otm.Lenience(0.5), "not lossless")],
)
def test_a_server_that_drafts_is_told_by_its_log(verifier, verdict):
    """Every context is new."""
    rng, log = np.random.default_rng(0), []
    for p, r in rng.dirichlet(np.full(12, 0.4), (500, 2)):
        problem = otm.Problem(draft=p, target=0.5 * p + 0.5 * r, law=otm.IID(1))
        drawn = otm.sample(verifier, problem, size=1, rng=rng)
        log.append(seen(int(drawn.output[0]), problem.target, p, drawn.drafts[0]))
    result = audit.server_log(log, law=otm.IID(1), errors=audit.Errors(detect=0.3))
    assert (result.verdict, result.records) == (verdict, 500)
    allowed = result.membership.low <= result.optimum <= result.membership.high
    assert allowed == (verdict == "no difference found")
    assert str(result).startswith(f"## `log`: {verdict}")


def test_found_without_the_draft_law_too():
    """Only targets and outputs are logged; the output is the target's favourite too often."""
    rng = np.random.default_rng(1)
    laws = rng.dirichlet(np.full(8, 0.5), 800)
    found = audit.server_log(seen(int(rng.choice(8, p=q**2 / (q**2).sum())), q) for q in laws)
    assert (found.verdict, found.membership) == ("not lossless", None)


def test_the_level_is_what_it_says():
    """Outputs drawn from the logged target over changing contexts; a correct test breaks a bound
    with probability 1e-9.
    """
    rng, runs, length, highest = np.random.default_rng(2), 150, 40, []
    for _ in range(runs):
        laws = rng.dirichlet(np.ones(4), (length, 2))
        run = (seen(int(rng.choice(4, p=q)), q, p, [0]) for p, q in laws)
        highest.append(audit.server_log(run).log_e_value)
    for level in (0.1, 1e-2, 1e-3):
        assert sum(value >= math.log(1 / level) for value in highest) <= binom.isf(
            1e-9, runs, level
        )
    assert max(highest) > 0.5  # the evidence moves at all


def test_the_bound_on_the_variation_holds():
    """The outputs come from the draft: the mean variation is known exactly from the contexts."""
    rng = np.random.default_rng(3)
    pairs = rng.dirichlet(np.ones(5), (800, 2))
    result = audit.server_log(seen(int(rng.choice(5, p=p)), q, p) for p, q in pairs)
    truth = float(0.5 * np.abs(pairs[:, 0] - pairs[:, 1]).sum(axis=1).mean())
    assert 0.5 * truth < result.variation_above <= truth


@pytest.mark.parametrize("impossible", [False, True])
def test_an_alarm_comes_with_a_distance_where_q_over_p_shows_none(impossible):
    """Mass .3 moves to the target's favourite, or to a token that the target never writes."""
    rng, logged = np.random.default_rng(4), []
    for _ in range(2_000):
        q = np.append(rng.dirichlet(np.ones(4)), 0.0)
        moved = 4 if impossible else int(q.argmax())
        output = moved if rng.random() < 0.3 else int(rng.choice(5, p=q))
        logged.append(seen(output, q))
    result = audit.server_log(logged)
    # to a favourite of mass q goes .3 (1 − q); the mean of the largest of four is 25/48
    truth = 0.3 if impossible else 0.3 * 23 / 48
    assert result.verdict == "not lossless"
    assert 0.4 * truth < result.variation_above <= truth


def test_the_bound_is_wrong_as_rarely_as_it_says():
    rng, runs = np.random.default_rng(5), 200
    wrong = 0
    for _ in range(runs):
        laws = rng.dirichlet(np.ones(4), (50, 2))
        run = (seen(int(rng.choice(4, p=q)), q, p, [0]) for p, q in laws)
        wrong += audit.server_log(run).variation_above > 0.0
    assert wrong <= binom.isf(1e-9, runs, 0.05)


class TestPower:
    def test_one_context_is_no_verdict_however_often_it_is_seen(self):
        rng = np.random.default_rng(5)
        for laws, verdict in (
            (np.full((500, 2), 0.5), "no verdict"),
            (rng.dirichlet([1.0, 1.0], 500), "no difference found"),
        ):
            log = (seen(int(rng.random() >= q[0]), q) for q in laws)
            assert audit.server_log(log, errors=audit.Errors(detect=0.3)).verdict == verdict

    def test_a_drift_is_found_as_often_as_promised(self):
        """Mass .3 moves to the draft's favourite, in contexts none of which comes twice; β = .1:
        above 7 misses of 20 have 4e-4.

        """
        rng = np.random.default_rng(6)
        errors = audit.Errors(detect=0.3, missed=0.1)

        def log():
            for _ in range(audit.records_needed(errors)):
                p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.full(5, 9.0))
                favourite = int(p.argmax())
                moved = (1.0 - 0.3 / (1.0 - q[favourite])) * q
                moved[favourite] += 1.0 - moved.sum()
                yield seen(int(rng.choice(5, p=moved)), q, p)

        verdicts = [audit.server_log(log(), errors=errors).verdict for _ in range(20)]
        assert verdicts.count("not lossless") >= 13

    def test_the_fixed_bets_are_the_mean_over_all_sets_of_cells(self):
        sorting = log_audit._Sorting(np.array([30.0, 5.0, 15.0]), np.array([20.5, 13.0, 16.5]))
        surplus = sorting.seen - sorting.expected
        terms = [
            math.exp(stake * sum(surplus[list(chosen)]) - 50 * stake**2 / 8)
            for stake in log_audit._FIXED_STAKES
            for size in range(4)
            for chosen in itertools.combinations(range(3), size)
        ]
        assert math.isclose(sorting.log_fixed(50), math.log(sum(terms) / len(terms)), abs_tol=1e-12)

    @pytest.mark.parametrize(
        ("detect", "missed"), [(0.02, 1e-3), (0.1, 0.5), (1e-3, 1e-9), (1.0, 1e-3)]
    )
    def test_records_and_drift_are_inverse(self, detect, missed):
        errors = audit.Errors(detect=detect, missed=missed)
        needed = audit.records_needed(errors=errors)
        assert log_audit._drift_found(needed, errors) <= detect
        assert needed == 1 or log_audit._drift_found(needed - 1, errors) > detect

    def test_the_fixed_bets_alone_reach_the_alarm(self):
        """At the number promised, with the outputs short of their mean by what has probability β:
        the surplus spread over half of the cells, so that few other sets have as much.
        """
        needed, missed = audit.records_needed(), 1e-3
        surplus = 0.02 * needed - math.sqrt(0.5 * needed * math.log(1 / missed))
        cells = np.zeros(max(log_audit._SIZES))
        sorting = log_audit._Sorting(cells.copy(), cells.copy())
        sorting.seen[::2], sorting.expected[1::2] = surplus / 6, surplus / 5
        assert sorting.log_fixed(needed) - math.log(log_audit._MOST_PARTS) >= math.log(1e9)


def test_an_impossible_token_is_an_alarm_by_itself():
    result = audit.server_log([parse_record('{"output": 1, "target": [1.0, 0.0]}', 1)])
    assert (result.verdict, result.alarm_at, result.log_e_value) == ("not lossless", 1, math.inf)


def test_what_is_no_log_is_refused(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for path in (tmp_path / "absent", tmp_path, Path("/dev/zero"), empty):
        with pytest.raises(otm.errors.InvalidParameter):
            audit.server_log(path)


class TestUnlistedTokens:
    """The tail is many tokens: it must neither be taken for 0 nor for one likely token."""

    @pytest.mark.parametrize("law", [otm.TopK(1), otm.TopK(2), otm.Greedy(2)])
    def test_a_heavy_tail_is_not_the_likeliest_token(self, law):
        # p = (.35, .25, 8 tokens of .05): token 0 is always drafted, and q = (1, 0, …) always
        # accepts it.
        part = {"tokens": [0, 1], "tail": 0.4, "probabilities": [0.35, 0.25]}
        target = {"tokens": [0, 1], "tail": 0.0, "probabilities": [1.0, 0.0]}
        line = json.dumps({"drafts": [0, 7][: law.k], "draft": part, "target": target, "output": 0})
        result = audit.server_log((parse_record(line, i) for i in range(1, 301)), law=law)
        assert (result.verdict, result.alarm_at, result.contexts) == ("no verdict", None, 1)

    def test_more_or_fewer_drafts_than_there_could_be(self):
        part = {"tokens": [0], "probabilities": [0.2], "tail": 0.8}
        for drafts, optimum in (([0, 7, 3], 1.0), ([0, 7], None)):  # the latter are too few
            line = json.dumps({"drafts": drafts, "draft": part, "target": part, "output": 7})
            found = audit.server_log([parse_record(line, 1)], law=otm.WithoutReplacement(3))
            assert found.optimum == optimum

    def test_different_drafters_have_no_place_in_a_record(self):
        with pytest.raises(otm.errors.InvalidParameter, match="one draft distribution"):
            audit.server_log(
                [parse_record('{"output": 0, "target": [0.5, 0.5]}', 1)], law=otm.Product(2)
            )


def test_laws_in_part_are_brought_together():
    line = {
        "target": {"tokens": [3, 8, 1], "probabilities": [0.6, 0.3, 0.05], "tail": 0.05},
        "draft": {"tokens": [8, 3, 7], "probabilities": [0.5, 0.25, 0.125], "tail": 0.125},
        "output": 7,
        "drafts": [7],
    }
    record = parse_record(json.dumps(line), 1)
    assert (record.tokens.tolist(), record.cell) == ([3, 8], 2)
    laws = np.stack([record.target, record.draft])
    np.testing.assert_allclose(laws, [[0.6, 0.3, 0.1], [0.25, 0.5, 0.25]])
    # A complete law knows the other's tokens: their probability is 0, not unknown.
    full = parse_record(json.dumps({**line, "draft": [0.0, 0.5, 0.0, 0.25, 0, 0, 0, 0, 0.25]}), 1)
    assert full.tokens.tolist() == [3, 8, 1]
    np.testing.assert_allclose(full.draft, [0.25, 0.25, 0.5, 0.0], atol=1e-15)


GOOD = {"output": 0, "target": [0.5, 0.5]}
BAD = [
    "",
    "{",
    "[]",
    "7",
    '{"output": 0}',
    '{"target": [1.0]}',
    '{"output": 0, "target": [NaN, 1.0]}',
    '{"output": 0, "target": [Infinity, 1.0]}',
    '{"output": 0, "target": [1e999, 1.0]}',
    '{"output": 0, "target": [0.5, 0.4]}',
    '{"output": 0, "target": [1.5, -0.5]}',
    '{"output": 0, "target": []}',
    '{"output": 0, "target": "/etc/passwd"}',
    '{"output": 0, "target": [[1.0]]}',
    '{"output": 0, "target": [true, 0.0]}',
    '{"output": 0.5, "target": [1.0]}',
    '{"output": -1, "target": [1.0]}',
    '{"output": true, "target": [0.5, 0.5]}',
    '{"output": 99999999999, "target": [1.0]}',
    '{"output": 0, "target": [1.0], "drafts": [-1]}',
    '{"output": 0, "target": [1.0], "drafts": 3}',
    '{"output": 0, "target": [1.0], "file": "x"}',
    '{"output": 0, "target": {"tokens": [1, 1], "probabilities": [0.5, 0.5]}}',
    '{"output": 0, "target": {"tokens": [1], "probabilities": [0.5, 0.5]}}',
    '{"output": 0, "target": {"probabilities": [1.0]}}',
    '{"output": 0, "target": ' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"output": 0, "target": [' + "1" * 5_000 + "]}",
    "\xff\xfe",
    '{"output": 0, "target": {"tokens": null, "probabilities": [1.0], "tail": 0.0}}',
    '{"output": 0, "target": {"tokens": [1, 1], "probabilities": [0.5, 0.5], "tail": 0.0}}',
    # a tail left out, and a key twice
    '{"output": 5, "target": {"tokens": [0, 1], "probabilities": [0.6, 0.39998]}}',
    '{"output": 0, "output": 1, "target": [0.5, 0.5]}',
    # outside a law that names every token
    '{"output": 2, "target": [0.5, 0.5]}',
    '{"output": 0, "drafts": [2], "target": {"tokens": [0], "probabilities": [0.5], "tail": 0.5}, '
    '"draft": [0.5, 0.5]}',
]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_what_is_no_record_is_refused_with_its_number(line):
    with pytest.raises(InvalidRecord, match="Line 41 is no record"):
        parse_record(line, 41)


def test_the_reader_streams_and_bounds_what_it_reads(tmp_path, monkeypatch):
    file = tmp_path / "log.jsonl"
    monkeypatch.setattr("otm.audit.token_log.LONGEST_LINE", 200)
    file.write_text(json.dumps(GOOD) + "\n" + "x" * 500, encoding="utf-8")
    stream = read_log(file)
    assert next(stream).output == 0  # the first record is there before the second is read
    with pytest.raises(InvalidRecord, match="Line 2: lines must be at most 200 bytes"):
        next(stream)


def test_the_error_names_the_file_and_what_is_empty_is_not_waited_for(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"output": 0, "target": [1.0]}\n{}\n')
    with pytest.raises(InvalidRecord, match=r"outputs\.jsonl: Line 2 is no record"):
        list(read_log(path))
    assert list(read_log("/proc/self/status")) == []  # a regular file by its mode, of size 0


def record_of(histogram, unit="request"):
    return AcceptanceRecord(
        form="counts", unit=unit, parts=(Tally.of_histogram(histogram, name="a"),), convention=""
    )


def test_more_than_possible_is_an_alarm_and_bounds_the_total_variation():
    """10,000 steps accept .9 and .7 of two drafts; .8 and .7 are possible; √(log(40)/20,000) =
    .0136 at 95 %.
    """
    found = audit.acceptance_counts(record_of([1_000, 2_000, 7_000]), expected=(0.8, 0.7))
    assert found.verdict == "not lossless"
    assert found.excess == pytest.approx(0.1)
    assert found.severity == pytest.approx(0.1 - math.sqrt(math.log(2 / 0.05) / 2 / 10_000))
    assert "at most 4/5 is possible" in str(found)


@pytest.mark.parametrize(
    ("histogram", "expected", "said"),
    [
        ([1_000, 9_000], (0.9,), "no higher than a lossless scheme can have it"),
        ([1_000, 9_000], (), "say how much is possible"),
        (
            [1, 9],
            (0.1,),
            "0.8 higher than expected; these are too few steps",
        ),  # ten steps show nothing
    ],
)
def test_otherwise_there_is_no_verdict_and_it_says_what_is_missing(histogram, expected, said):
    found = audit.acceptance_counts(record_of(histogram), expected=expected)
    assert found.verdict == "no verdict"
    assert said in str(found)


@pytest.mark.parametrize(
    ("part", "excess", "severity", "said"),
    [
        (Tally(name="a", steps=100.0, accepted=150.0), -1.0, 0.0, "means only"),
        # rounded rates are taken at their lower end
        (
            Tally.of_survivors([8_003.5], steps=10_000, name="a"),
            0.80035 * 0.995 - 0.1,
            0.80035 * 0.995 - 0.1 - math.sqrt(math.log(1 / 0.05) / 2 / 10_000),
            "at most 1/10 is possible",
        ),
    ],
)
def test_means_have_no_position_and_rates_are_rounded(part, excess, severity, said):
    record = AcceptanceRecord(form="means", unit="run", parts=(part,), convention="")
    found = audit.acceptance_counts(record, expected=(0.1,))
    assert [found.excess, found.severity] == pytest.approx([excess, severity], abs=1e-12)
    assert found.verdict == ("not lossless" if severity else "no verdict")
    assert said in str(found)


def test_false_alarms_and_power():
    """At level .05 over two positions, in 2,000 records of a lossless engine: 145 alarms or more
    have probability 1e-5.

    An excess of `found` is missed with at most .1: 260 misses of 2,000 have probability 1e-5.
    """
    rng = np.random.default_rng(0)
    steps, most = 400, np.array([0.7, 0.5])
    errors = audit.Errors(false_alarm=0.05, missed=0.1)

    def alarms(rates):
        exactly = [1.0 - rates[0], rates[0] - rates[1], rates[1]]
        drawn = rng.multinomial(steps, exactly, size=2_000)
        seen = [
            audit.acceptance_counts(record_of(row.tolist()), expected=most.tolist(), errors=errors)
            for row in drawn
        ]
        return sum(one.verdict == "not lossless" for one in seen)

    assert alarms(most) < 145
    found = audit.acceptance_counts(
        record_of([120, 80, 200]), expected=most.tolist(), errors=errors
    ).found
    assert alarms(most + np.array([found, 0.0])) > 2_000 - 260


@pytest.mark.parametrize("expected", [(0.5, 0.8), (1.2,), ("x",)])
def test_what_is_refused(expected):
    with pytest.raises(otm.errors.OtmError):
        audit.acceptance_counts(record_of([1, 1]), expected=expected)
