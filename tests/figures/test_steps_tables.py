"""The tables of docs/steps.md, and what its text says of the pairs, are those of the committed
records.
"""

from pathlib import Path

import pytest

from figures.captures import captures
from figures.steps_tables import PAGE, PAGES, SIZES, of_size, written

BOUND = "at most, by level cuts"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_data(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == PAGES[path](text), "run python -m figures.steps_tables"


def test_the_text_says_what_the_records_say() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    shipped, public = captures("steps").values()
    (contexts,) = {table["contexts"] for table in shipped["tables"]}
    assert f"{contexts} contexts of 64 tokens, the same for all rows" in text
    (contexts,) = {table["contexts"] for table in public["tables"]}
    assert f"on the same text; {contexts} contexts," in text
    left = [written(-of_size(shipped, *size)[BOUND]["less"]) for size in SIZES]
    assert f"the bound leaves {left[0]} tokens at K = L = 4 and {left[1]} at K = L = 8" in text
    small = of_size(shipped, 2, 2)
    optimal, greedy = (
        small[name]
        for name in ("optimal, vertex by vertex", "greedy multi-path block verification")
    )
    gains = [f"{written(row['less'])} ± {written(row['less_half'])}" for row in (optimal, greedy)]
    assert (
        f"they gain {gains[0]} over the optimal verifier vertex by vertex and {gains[1]} over "
        "greedy multi-path" in text
    )
    above = f"{written(-small[BOUND]['less'])} ± {written(small[BOUND]['less_half'])}"
    assert f"and {above} is left to the bound" in text
