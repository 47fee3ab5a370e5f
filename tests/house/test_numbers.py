"""The headline figures of the first pages are those that the code computes."""

import re

import numpy as np
import pytest

from figures import front
from figures.work import Work
from tests.paths import ROOT

PAGES = ("README.md", "docs/index.md")


@pytest.fixture(scope="module")
def points():
    """Percentage points between the optimum and the best scheme in use, by number of drafts."""
    work = Work(samples=0, rng=np.random.default_rng(0), fast=True, tick=lambda: None)
    data = front.compute(work)
    return 100 * (np.array(data["optimum"]) - np.max(list(data["in_use"].values()), axis=0))


@pytest.mark.parametrize("page", PAGES)
def test_the_front_picture_s_words_name_its_largest_gap(page, points):
    text = (ROOT / page).read_text(encoding="utf-8")
    (alternative,) = re.findall(r"!\[([^]]*)\]\([^)]*front\.png\)", text)
    assert f"{points.max():.1f} points" in alternative
