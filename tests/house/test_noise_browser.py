"""The page of trees on shared noise, in a real headless Chromium: its noise, trees and means are
the library's.

Skipped where Chromium or its driver is missing, except where `CI` is set: there a missing browser
is a failure.
"""

import re

import numpy as np
import pytest

from otm.sequence import (
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    SharedNoise,
    matched_tokens,
    noise_tokens,
    step,
)
from otm.sequence.randomness import Sampled
from tests.browser import (
    DESKTOP,
    FAULTS,
    PHONE,
    check_alone,
    check_links,
    check_schemes,
    opened,
    until,
    window,
)
from tests.paths import ROOT

PAGE = ROOT / "docs" / "noise.html"
START, DEPTH, MOST = 0, 4, 24
SETTINGS = 60


@pytest.fixture(scope="module")
def page(browser):
    with opened(browser, PAGE) as tab:
        yield tab


def test_the_noise_is_that_of_the_library_bit_by_bit(page):
    """Integers by the vectors of docs/howto/matching.md, noise up to the last bits of a log."""
    text = (ROOT / "docs" / "howto" / "matching.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"^\| 7 \| 64 \| \(0, 64, 0, 0\) \| ([0-9a-f ]+) \|", text, re.MULTILINE)
    here = page.execute_script("return otm.philox([0, 64, 0, 0], [7, 0])")
    assert " ".join(f"{word:08x}" for word in here) == words
    asked = [[0, 0, 6], [7, 64, 5], [2**32 - 1, 3, 7]]
    found = page.execute_script("return arguments[0].map((one) => otm.noise(...one))", asked)
    for (seed, position, size), row in zip(asked, found, strict=True):
        assert row == pytest.approx(SharedNoise(seed).row(position, size), abs=1e-13)


GROWN = """
return arguments[0].map(([seed, mismatch, scale, nodes]) => {
  const { p, q } = otm.models(mismatch), g = otm.rows(seed), text = otm.written(q, g);
  const noisy = otm.noiseTree(p, g, scale, nodes), usual = otm.likeliestTree(p, nodes);
  return { p, q, text, noisy, usual, counts: [otm.tokens(noisy, text), otm.tokens(usual, text)] };
});
"""


def test_trees_and_texts_are_those_of_the_library(page):
    """As `step` drafts and accepts on the same noise; the draft is the target and Gumbel noise."""
    rng = np.random.default_rng(3)
    settings = [
        [int(rng.integers(1000)), round(float(rng.uniform(0, 3)), 1), float(scale), int(nodes)]
        for scale, nodes in zip(
            rng.choice([0.2, 0.7, 1.0, 3.0], SETTINGS),
            rng.integers(1, MOST + 1, SETTINGS),
            strict=True,
        )
    ]
    for (seed, mismatch, scale, nodes), found in zip(
        settings, page.execute_script(GROWN, settings), strict=True
    ):
        log_p, log_q = np.array(found["p"]), np.array(found["q"])
        noise = np.array([SharedNoise(2024).row(word, len(log_q)) for word in range(len(log_q))])
        apart = log_q - mismatch * noise - log_p
        assert np.abs(apart - apart[:, :1]).max() < 1e-10
        draft, target = _models(found)
        trees = (
            NoiseTree(nodes, DEPTH, scale),
            LikeliestTree(nodes, DEPTH),
        )
        for tree, paths, count in zip(
            trees, (found["noisy"], found["usual"]), found["counts"], strict=True
        ):
            randomness = Sampled(np.random.default_rng(0), SharedNoise(seed))
            drafted = tree.draft(draft, (START,), randomness)
            assert {context[1:] for context in drafted.contexts() if context and context[1:]} == {
                tuple(path) for path in paths
            }
            pair = {"draft": draft, "target": target, "context": [START]}
            once = step(tree, **pair, randomness=randomness)
            assert list(once.tokens) == found["text"][: once.accepted + 1]
            assert count == len(once.tokens)


def _models(found):
    rows = (np.exp(np.array(found[side])) for side in "pq")
    draft, target = (MarkovModel(row / row.sum(axis=1, keepdims=True)) for row in rows)
    return draft, target


MEANS = """
const { p, q } = otm.models(1.2);
return { p, q, noisy: otm.noiseMeans(p, q, 0.8, 24), usual: otm.likeliestMeans(p, q, 24) };
"""


def test_means_are_those_of_the_library(page):
    """The same 400 noises, so equal up to rounding; the likeliest tree's are exact."""
    found = page.execute_script(MEANS)
    draft, target = _models(found)
    pair = {"draft": draft, "target": target, "context": [START]}
    noises = [SharedNoise(seed) for seed in range(page.execute_script("return otm.NOISES"))]
    noisy = noise_tokens(NoiseTree(MOST, DEPTH, 0.8), **pair, noises=noises)
    assert found["noisy"]["mean"] == pytest.approx(noisy.value, abs=1e-12)
    half = 1.966 * np.array(found["noisy"]["error"])  # Student's t with 399 degrees of freedom
    assert half == pytest.approx(0.5 * (noisy.high - noisy.low), rel=1e-3, abs=1e-12)
    usual = matched_tokens(LikeliestTree(MOST, DEPTH), **pair)
    assert found["usual"] == pytest.approx(usual, abs=1e-12)


def _slide(page, name, value):
    page.execute_script(
        "const slider = document.getElementById(arguments[0]); slider.value = arguments[1];"
        "slider.dispatchEvent(new Event('input'));",
        name,
        value,
    )


DRAGGED = """
window.writes = 0;
const write = history.replaceState.bind(history);
history.replaceState = (...given) => { window.writes += 1; write(...given); };
const slider = document.getElementById("scale");
for (let step = 5; step <= 15; step += 1) { slider.value = step / 10; slider.dispatchEvent(new Event("input")); }
"""  # noqa: E501


def test_keys_move_it_and_the_address_keeps_it(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    shown = "return document.getElementById('headline').textContent"
    _slide(page, "nodes", 8)
    page.find_element(By.ID, "nodes").send_keys(Keys.ARROW_RIGHT)
    page.find_element(By.ID, "again").send_keys(Keys.ENTER)
    page.find_element(By.ID, "right").send_keys(Keys.ENTER)
    headline = page.execute_script(shown)
    assert "with 9 nodes" in headline
    page.execute_script(DRAGGED)
    until(page, "return new URLSearchParams(location.hash.slice(1)).get('scale') === '1.5'")
    assert page.execute_script("return window.writes") == 1
    address, headline = page.current_url, page.execute_script(shown)
    page.get("about:blank")
    page.get(address)
    assert page.execute_script(shown) == headline


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_it_fits(page, size):
    with window(page, *size, mobile=size == PHONE):
        page.get("about:blank")
        page.get(PAGE.as_uri())
        for nodes, mismatch, scale in (
            (1, 0, 0.2),
            (24, 3, 3),
            (24, 0, 3),
            (24, 1, 0.2),
            (13, 1, 1),
        ):
            for name, value in (("nodes", nodes), ("mismatch", mismatch), ("scale", scale)):
                _slide(page, name, value)
            found = page.execute_script(FAULTS + "return faults();")
            assert found["scroll"] <= size[0]
            assert [found[name] for name in ("outside", "crossed", "broken")] == [[], [], []]


def test_it_is_one_file_that_asks_nobody_and_says_where_else_to_go(page):
    check_alone(page, PAGE)
    check_links(page, PAGE, "howto/matching.md", "play.html", "start/install.md", "index.md")
    check_schemes(page)


def test_both_pages_have_one_style():
    """What is not a page's own stands in both, since neither loads a file."""
    styles = [
        re.search(
            r"/\* This page's and its sister's. \*/(.*)/\* This page's own. \*/", text, re.DOTALL
        )
        for text in (
            (PAGE.parent / name).read_text(encoding="utf-8") for name in ("play.html", "noise.html")
        )
    ]
    assert all(styles) and styles[0][1] == styles[1][1]
