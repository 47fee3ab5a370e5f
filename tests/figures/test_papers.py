"""The page of claims is written from the committed results."""

import pytest

from figures.captures import captures
from figures.papers import CLAIMS, PAGE, _decided, little_loss, page


def test_the_page_is_as_new_as_the_data():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m figures.papers"


def test_every_claim_has_a_verdict_on_every_pair_with_results():
    rows = [
        line
        for line in page().splitlines()
        if line.startswith("| ") and "claim | where" not in line
    ]
    assert len(rows) == sum(len(captures(name)) for _, _, name, _ in CLAIMS)
    assert all(
        sum(row.count(f" | {verdict} | ") for verdict in ("yes", "**no**", "open")) == 1
        for row in rows
    )


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([(0.1, 0.05), (0.0, 0.0)], True),
        ([(0.1, 0.05), (0.1, 0.2)], None),
        ([(0.1, 0.05), (-0.1, 0.2)], None),
        ([(-0.1, 0.2), (-0.3, 0.2)], False),
    ],
)
def test_what_may_be_chance_is_open(pairs, verdict):
    assert _decided(pairs) is verdict


def _mentored(speedup, perplexity):
    """Return a record: (ratio to lossless, factor that each interval reaches up and down) of both
    measures.
    """

    def row(label, *measures):
        fast, strange = (
            {"mean": mean, "low": mean / factor, "high": mean * factor} for mean, factor in measures
        )
        return {
            "label": label,
            "mean": 2.0,
            "low": 1.9,
            "high": 2.1,
            "kl": 0.1,
            "speedup": fast,
            "perplexity": strange,
        }

    lossless = row("speculative", (1.0, speedup[1]), (1.0, perplexity[1]))
    return {
        "rows": [lossless, row("Mentored(0.1)", speedup, perplexity)],
        "manifest": {"load average before": [0.5]},
    }


@pytest.mark.parametrize(
    ("speedup", "perplexity", "verdict"),
    [
        ((1.25, 1.01), (1.0, 1.01), True),
        ((1.25, 1.3), (1.0, 1.01), None),
        ((1.25, 1.01), (1.2, 1.2), None),
        ((1.25, 1.3), (1.5, 1.1), False),
        ((0.8, 1.01), (1.0, 1.01), False),
    ],
)
def test_mentored_decoding_is_judged_by_intervals(speedup, perplexity, verdict):
    found, said = little_loss(_mentored(speedup, perplexity))
    assert found is verdict
    told = "× 1.25 [1.23, 1.27] in tokens per second (CPU, load 0.5)"
    assert told in said or speedup != (1.25, 1.01)
