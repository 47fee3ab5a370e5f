"""A real headless Chromium for the tests of pages: start, window sizes and waiting."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PHONE, DESKTOP = (375, 812), (1280, 800)
"""Sizes at which pages are looked at."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1000",
)


@contextlib.contextmanager
def started(profile: Path) -> Iterator[Any]:
    """Start Chromium; skip if the browser or the driver is missing, or fail where `CI` is set."""
    found = [
        shutil.which("chromium") or shutil.which("google-chrome"),
        shutil.which("chromedriver"),
    ]
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        found = [None]
    if None in found:
        message = (
            "needs Chromium, chromedriver and selenium; Debian: apt-get install chromium "
            "chromium-driver"
        )
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = str(found[0])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(found[1])))
    try:
        yield driver
    finally:
        driver.quit()


@contextlib.contextmanager
def window(browser: Any, width: int, height: int, *, mobile: bool = True) -> Iterator[None]:
    """Give the page a window of this size."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextlib.contextmanager
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """Open a page in a new tab, and check at the end that the console stayed empty."""
    browser.switch_to.new_window("tab")
    try:
        browser.get(page.as_uri())
        until(browser, "return document.documentElement.dataset.drawn === 'yes'")
        yield browser
        said = browser.get_log("browser")
        assert said == [], said
    finally:
        browser.close()
        browser.switch_to.window(browser.window_handles[0])


def until(browser: Any, condition: str, seconds: float = 30.0) -> None:
    """Wait for a condition in JavaScript."""
    end = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.05)


FAULTS = """
const box = (node) => {
  const { left, right, top, bottom } = node.getBoundingClientRect(); return [left, right, top, bottom]; };
const shared = (one, other, from) => Math.min(one[from + 1], other[from + 1]) - Math.max(one[from], other[from]);
const faults = () => ({
  scroll: document.documentElement.scrollWidth,
  outside: Array.from(document.querySelectorAll("svg text"), (node) => [node.textContent, ...box(node)]).filter(
    ([text, left, right]) => text && (left < -1 || right > document.documentElement.clientWidth + 1)).map(([text]) => text),
  crossed: Array.from(document.querySelectorAll("svg"), (svg) => {  // inside its picture, none over another
    const [left, right, top, bottom] = box(svg);
    const names = Array.from(svg.querySelectorAll("text")).filter((node) => node.textContent);
    const over = (one, other) => shared(one, other, 0) > 1 && shared(one, other, 2) > 4;
    return names.filter((node, i) => box(node)[0] < left - 1 || box(node)[1] > right + 1 ||
      box(node)[2] < top - 3 || box(node)[3] > bottom + 3 ||
      names.some((other, j) => j < i && over(box(node), box(other)))).map((node) => node.textContent);
  }).flat(),
  broken: Array.from(document.querySelectorAll("svg *")).filter((node) => Array.from(node.attributes).some(
    (one) => /NaN|undefined|Infinity/.test(one.value))).map((node) => node.outerHTML),
});
"""  # noqa: E501
"""JavaScript: the faults in the pictures of a page at the page's width."""

LUMINANCE = """
const luminance = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255).map(
  (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
const ground = luminance(getComputedStyle(document.body).backgroundColor);
const contrast = (inks) => Math.min(...Array.from(inks, (one) => ratio(luminance(getComputedStyle(one).color), ground)));
"""  # noqa: E501
"""JavaScript: how light the page is, and how far its texts stand out from it, as WCAG counts."""

_CONTRAST = (
    LUMINANCE
    + """
return [ground, contrast(document.querySelectorAll("h1, h2, p, label, footer, a"))];
"""
)


def check_schemes(page: Any) -> None:
    """Check that a page follows the system's colour scheme, with a contrast of 4.5 to 1 at least.

    WCAG asks for this contrast.
    """
    for scheme, dark in (("dark", True), ("light", False)):
        emulate(page, scheme)
        ground, least = page.execute_script(_CONTRAST)
        assert (ground < 0.1) == dark and least >= 4.5


def emulate(browser: Any, scheme: str) -> None:
    """Let the system prefer this colour scheme."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def check_alone(page: Any, source: Path) -> None:
    """Check that a page is one file that fetches nothing, and that all controls have names."""
    text = source.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    loaded = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    assert page.execute_script(loaded) == []
    names = (
        "return Array.from(document.querySelectorAll('select, input, button, [tabindex]'),"
        " (one) => one.getAttribute('aria-label') || (one.labels && one.labels.length ? "
        "one.labels[0] : one).textContent)"
    )
    assert all(page.execute_script(names))


def check_links(page: Any, source: Path, *needed: str) -> None:
    """Check that all links of a page in a checkout lead to files, with the needed links present."""
    found = page.execute_script(
        "return Array.from(document.querySelectorAll('a'), (one) => one.getAttribute('href'))"
    )
    assert set(needed) <= set(found)
    assert all((source.parent / link).is_file() for link in found)
