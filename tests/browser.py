"""A real headless Chromium for the tests of pages: how it is started, resized and waited for."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PHONE, DESKTOP = (390, 844), (1200, 800)
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
    """Start Chromium; skip where it or its driver is missing, except where `CI` is set: there that
    is a failure.
    """
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
    """Open a page in a tab of its own, and check in the end that the console stayed empty."""
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
