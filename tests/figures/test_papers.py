"""The page of claims is written from the committed results."""

from figures.captures import captures
from figures.papers import CLAIMS, PAGE, page


def test_the_page_is_as_new_as_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m figures.papers"


def test_every_claim_has_a_verdict_on_every_pair_with_results() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and "claim | where" not in line]
    assert len(rows) == sum(len(captures(name)) for _, _, name, _ in CLAIMS)
    assert all(row.count(" | yes | ") + row.count(" | **no** | ") == 1 for row in rows)
