"""The page of claims is written from the committed results."""

from figures.captures import captures
from figures.papers import CLAIMS, PAGE, _decided, page


def test_the_page_is_as_new_as_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m figures.papers"


def test_every_claim_has_a_verdict_on_every_pair_with_results() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and "claim | where" not in line]
    assert len(rows) == sum(len(captures(name)) for _, _, name, _ in CLAIMS)
    assert all(sum(row.count(f" | {verdict} | ") for verdict in ("yes", "**no**", "open")) == 1 for row in rows)


def test_what_may_be_chance_is_open() -> None:
    assert _decided([(0.1, 0.05), (0.0, 0.0)]) is True
    assert _decided([(0.1, 0.05), (0.1, 0.2)]) is None
    assert _decided([(0.1, 0.05), (-0.1, 0.2)]) is None
    assert _decided([(-0.1, 0.2), (-0.3, 0.2)]) is False
