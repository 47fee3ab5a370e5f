"""The page in a real headless Chromium: what it draws, says, prints and refuses to run.

Skipped where Chromium or its driver is missing, except where `CI` is set: there a missing browser is a failure.
"""

import base64
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.report.aggregate import aggregate
from analysis.report.cost import Costs, speed_up
from analysis.report.findings import choices, verdict
from analysis.report.reading import open_run
from analysis.report.text import ends
from analysis.report.view import view
from analysis.report.write import write_report
from tests.analysis.report.synthetic_run import HOSTILE, RECORDS, decode_file, hostile_manifest, whole_record, write_run

pytestmark = pytest.mark.xdist_group("browser")  # one browser for all of them

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
CHARTS = {
    "chart-speed",
    "chart-acceptance",
    "chart-gap",
    "chart-spread",
    "chart-entropy",
    "chart-position",
    "chart-temperature",
    "chart-draft-temperature",
    "chart-top-p",
    "chart-decode",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = [shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")]
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        found = [None]
    if None in found:
        message = "needs Chromium, chromedriver and selenium; Debian: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = str(found[0])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(found[1])))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has every chart, with hostile names wherever a name can be."""
    folder = write_run(
        tmp_path_factory.mktemp("browser") / "run",
        prompts=6,
        positions=12,
        ks=(1, 2, 3),
        temperatures=(0.7, 1.0),
        draft_temperatures=(0.7, 1.0),
        top_ps=(0.9, 1.0),
        name=HOSTILE,
    )
    hostile_manifest(folder)
    decode = decode_file(folder / "decode.jsonl", [record | {"decoder": record["decoder"]} for record in RECORDS[:3]])
    with decode.open("a") as file:
        file.write(json.dumps(whole_record(RECORDS[4] | {"decoder": HOSTILE})) + "\n")
    write_report(folder, decode=decode)
    return folder


@pytest.fixture(scope="module")
def opened(browser: Any, folder: Path) -> Any:
    """The page, loaded once for the tests that do not need a fresh one."""
    open_page(browser, folder)
    return browser


@pytest.fixture
def page(opened: Any) -> Any:
    """The page with all controls where they were at first."""
    opened.execute_script(
        "const moved = Array.from(document.querySelectorAll('input[type=range]')).filter((s) => s.value !== s.defaultValue);"
        "document.getElementById('controls').reset();"
        "moved.forEach((slider) => { slider.value = slider.defaultValue; slider.dispatchEvent(new Event('input')); });"
        "if (window.touched) { document.getElementById('setting').dispatchEvent(new Event('change')); window.touched = false; }"
    )
    return opened


def open_page(browser: Any, folder: Path) -> None:
    browser.get((folder / "report.html").as_uri())
    until(browser, "return document.documentElement.dataset.drawn === 'yes'")


def until(browser: Any, condition: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.05)


def text(page: Any, name: str) -> str:
    return str(page.execute_script(f"return document.getElementById({name!r}).textContent"))


def slide(page: Any, name: str, value: float) -> None:
    """Set a slider as its user would see it: the value changes and the input event follows."""
    page.execute_script(
        "const slider = document.getElementById(arguments[0]); slider.value = arguments[1];"
        "slider.dispatchEvent(new Event('input', { bubbles: true }));",
        name,
        str(value),
    )


def test_every_chart_is_drawn_and_nothing_complains(opened: Any) -> None:
    """Each chart has an SVG with at least one visible path or marker per trace, and the console is empty."""
    drawn = opened.execute_script(
        "return Object.fromEntries(Array.from(document.querySelectorAll('.chart')).map((chart) => [chart.id, {"
        " svg: chart.querySelectorAll('svg.main-svg').length, traces: chart.data.length,"
        " shapes: Array.from(chart.querySelectorAll('.scatterlayer .trace')).filter((trace) =>"
        "   Array.from(trace.querySelectorAll('path')).some((path) => (path.getAttribute('d') || '').length > 8)).length,"
        " width: chart.querySelector('svg.main-svg').getBoundingClientRect().width }]))"
    )
    assert set(drawn) == CHARTS
    for name, chart in drawn.items():
        assert chart["svg"] >= 1 and chart["traces"] >= 2 and chart["width"] > 300, name
        assert chart["shapes"] >= chart["traces"] // 2, (name, chart)  # a band and its line may share one group
    assert opened.get_log("browser") == []


def test_nothing_is_fetched(opened: Any) -> None:
    assert opened.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_the_first_recommendation_is_the_one_python_makes(page: Any, folder: Path) -> None:
    run = open_run(folder)
    found = aggregate(run)
    best = choices(run, found, view(run, found, None)["first"], Costs())[0]
    assert text(page, "best-scheme").replace("\u00a0", " ") == f"{best.scheme.label}, k = {best.k}"
    assert text(page, "best-speed") == f"{best.speed:.3f}×"


def test_keys_on_a_slider_move_the_number(page: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    before = text(page, "best-speed")
    slider = page.find_element(By.ID, "draft-cost")
    slider.send_keys(Keys.ARROW_RIGHT * 5)
    assert text(page, "draft-cost-value") == "0.15"
    after = text(page, "best-speed")
    assert float(after[:-1]) < float(before[:-1])
    until(
        page,
        f"return document.getElementById('chart-speed').data.some((t) => t.y.some((y) => Math.abs(y - {after[:-1]}) < 6e-4))",
    )


@pytest.mark.parametrize("costs", [Costs(0.0, 0.0, 1), Costs(0.35, 0.004, 3), Costs(0.02, 0.2, 8), Costs(1.0, 0.2, 2)])
def test_the_calculator_agrees_with_python(page: Any, folder: Path, costs: Costs) -> None:
    slide(page, "draft-cost", costs.draft)
    slide(page, "verify-cost", costs.verify)
    slide(page, "levels", costs.levels)
    run = open_run(folder)
    found = aggregate(run)
    ranked = choices(run, found, view(run, found, None)["first"], costs)
    rows = page.execute_script(
        "return Array.from(document.querySelectorAll('#recommendation-rows tr')).map((row) =>"
        " Array.from(row.cells).map((cell) => cell.textContent))"
    )
    assert len(rows) == 8
    # the page has acceptance to six digits, so speeds agree to 1e-6 times at most 8 · 9 / 2 tokens
    for row, choice in zip(rows, ranked, strict=False):
        assert float(row[-1][:-1]) == pytest.approx(choice.speed, abs=6e-4)
        k, acceptance = int(row[1]), float(row[2])
        assert float(row[-1][:-1]) == pytest.approx(speed_up(acceptance, k, costs), abs=3e-3)
    by_setting = page.execute_script(
        "return Array.from(document.querySelectorAll('#setting-rows tr')).map((row) => row.cells[5].textContent)"
    )
    fastest = [choices(run, found, s, costs)[0].speed for s in range(len(found.survey.settings))]
    assert [float(speed[:-1]) for speed in by_setting] == pytest.approx(fastest, abs=6e-4)
    assert ("do not speculate" in text(page, "best-notes")) == (ranked[0].speed <= 1)


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of wide intervals."""
    folder = write_run(tmp_path_factory.mktemp("loose") / "run", width=0.9, temperatures=(1.0,), prompts=6, positions=12)
    write_report(folder)
    return folder


def test_intervals_and_optima_are_said_as_python_says_them(browser: Any, opened: Any, loose: Path) -> None:
    """Beaten, undecided and not beaten, by the draft's cost; then the recommendation with and without the optimal verifier."""
    run = open_run(loose)
    found = aggregate(run)
    browser.switch_to.new_window("tab")
    try:
        open_page(browser, loose)
        told = []
        for costs in (Costs(), Costs(draft=0.6), Costs(draft=1.0, verify=0.2)):
            slide(browser, "draft-cost", costs.draft)
            slide(browser, "verify-cost", costs.verify)
            ranked, notes = choices(run, found, 0, costs), text(browser, "best-notes")
            best, words = ranked[0], verdict(ranked, costs)
            assert text(browser, "best-speed") == ends(best.speed, best.speed_upper, 3, "×")
            assert text(browser, "best-tokens") == ends(1 + best.acceptance, 1 + best.acceptance_upper, 3)
            assert ("do not speculate" in notes) == ("no verifier measured" in words)
            told.append(re.findall(r"undecided: (between \S+ and \S+; log more tokens \(larger m\))", notes))
            assert told[-1] == re.findall(r"undecided: (.*)", words)
        assert [len(lines) for lines in told] == [0, 1, 0]

        slide(browser, "verify-cost", 0.01)
        labels = [scheme["label"] for scheme in view(run, found, None)["schemes"]]
        click = "document.getElementById(arguments[0]).click()"
        browser.execute_script(click, f"scheme-{labels.index('optimum, greedy drafts (otm.GreedyOptimal)')}")
        assert text(browser, "best-scheme").startswith("optimum, i.i.d. drafts (otm.Optimal)")
        assert "It attains the optimum of its drafts. Best other verifier: " in text(browser, "best-notes")
        browser.execute_script(click, "consider-optimum")
        k = int(text(browser, "best-scheme").rsplit("\u00a0", 1)[1])
        assert not text(browser, "best-scheme").startswith("optimum")
        iid = [
            c for c in choices(run, found, 0, Costs(draft=1.0)) if (c.scheme.kind, c.scheme.law, c.k) == ("optimum", "IID", k)
        ]
        reach = ends(iid[0].speed, iid[0].speed_upper, 3, "×")
        assert f"An optimal verifier on the same drafts would reach {reach}." in text(browser, "best-notes")
        assert browser.get_log("browser") == []
    finally:
        browser.close()
        browser.switch_to.window(browser.window_handles[0])


def test_controls_change_what_is_drawn(page: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    page.execute_script("window.touched = true")  # the next test wants every chart redrawn
    names = "return document.getElementById('chart-entropy').data.filter((t) => t.showlegend !== false).map((t) => t.name)"
    values = "return JSON.stringify(document.getElementById('chart-entropy').data.map((t) => t.y))"
    first_names, first_values = page.execute_script(names), page.execute_script(values)
    Select(page.find_element(By.ID, "drafts")).select_by_value("2")
    assert page.execute_script(values) != first_values
    second = page.execute_script(values)
    Select(page.find_element(By.ID, "setting")).select_by_index(0)
    assert page.execute_script(values) != second
    visible = (
        "return Array.from(document.querySelectorAll('[data-setting]')).filter((t) => !t.hidden).map((t) => t.dataset.setting)"
    )
    assert page.execute_script(visible) == ["0"]
    page.execute_script("const box = document.getElementById('scheme-1'); box.click();")
    assert len(page.execute_script(names)) == len(first_names) - 1


def test_names_from_the_run_are_shown_and_never_run(page: Any) -> None:
    assert "owned" not in page.execute_script("return document.title").replace("document.title='owned'", "")
    assert page.execute_script("return document.querySelectorAll('img, iframe, object, script').length") == 3
    legends = page.execute_script(
        "return Array.from(document.querySelectorAll('#chart-acceptance .legendtext')).map((node) => node.textContent)"
    )
    assert legends and all("<i>&lt;</i></scrip" in legend for legend in legends)  # a long name is cut there
    assert HOSTILE.split("\u2028")[0] in text(page, "best-scheme")


def test_the_policy_stops_what_escaping_might_miss(browser: Any, opened: Any, folder: Path, tmp_path: Path) -> None:
    """The page's own policy with an injected script and handler, as if escaping had failed: neither runs, the console says why."""
    source = (folder / "report.html").read_text(encoding="utf-8")
    evil = "<script>window.owned = 1</script><img src='data:,' onerror='window.owned = 1'>"
    outcomes = []
    for head in (source[: source.index("<main>")], "<!doctype html><title>no policy</title>"):
        (tmp_path / "page.html").write_text(head + evil, encoding="utf-8")
        browser.switch_to.new_window("tab")
        browser.get((tmp_path / "page.html").as_uri())
        outcomes.append((browser.execute_script("return window.owned"), str(browser.get_log("browser"))))
        browser.close()
        browser.switch_to.window(browser.window_handles[0])
    assert outcomes[0][0] is None and "Content Security Policy" in outcomes[0][1]
    assert outcomes[1][0] == 1, "without the policy the attack should have worked"


def test_print_and_a_narrow_window(page: Any) -> None:
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 6
    until(
        page, "return document.querySelector('#chart-speed svg.main-svg').getBoundingClientRect().width > 900"
    )  # on screen again
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        until(page, "return document.querySelector('#chart-speed svg.main-svg').getBoundingClientRect().width < 390")
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.get_log("browser") == []


def test_charts_follow_their_column_and_never_scroll_the_page(page: Any) -> None:
    """Narrowed to a telephone's width the page does not scroll sideways even before it is redrawn; then every chart fits.

    A column that is narrowed without a resize of the window, as by a scroll bar, is followed as well.
    """
    fits = (
        "return Array.from(document.querySelectorAll('.chart')).every((chart) =>"
        " chart.querySelector('svg.main-svg').getBoundingClientRect().width <= document.querySelector('main').clientWidth)"
    )
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 420
        until(page, fits)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 420
        page.execute_script("document.body.style.width = '360px'")
        assert page.execute_script("return document.querySelector('main').clientWidth") < 360
        until(page, fits)
    finally:
        page.execute_script("document.body.style.width = ''")
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    until(page, "return document.querySelector('#chart-speed svg.main-svg').getBoundingClientRect().width > 900")
    assert page.get_log("browser") == []
