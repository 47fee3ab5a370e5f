"""The page in a real headless Chromium: what it draws, says, prints and refuses to run.

Skipped where Chromium or its driver is missing, except where `CI` is set: there a missing browser
is a failure.
"""

import base64
import itertools
import json
import re

import pytest

from analysis.report.advice_record import read_advice
from analysis.report.aggregate import aggregate
from analysis.report.answer import DRAFTING, answer_run, slider_answers, slider_stops
from analysis.report.call_costs import read_latency
from analysis.report.reading import open_run
from analysis.report.write import write_report
from tests.analysis.report import records
from tests.analysis.report.synthetic_run import (
    HOSTILE,
    hostile_manifest,
    write_run,
)
from tests.browser import DESKTOP, LUMINANCE, PHONE, check_schemes, emulate, opened, until, window

CHARTS = {
    "chart-speed",
    "chart-acceptance",
    "chart-spread",
    "chart-entropy",
    "chart-position",
    "chart-lost",
}


DRAWN_WIDE = (
    "return document.querySelector('#chart-speed svg.main-svg').getBoundingClientRect().width > 900"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
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
        losses=True,
    )
    hostile_manifest(folder)
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(browser, folder):
    """The page, loaded once for the tests that do not need a fresh one."""
    browser.get((folder / "report.html").as_uri())
    until(browser, "return document.documentElement.dataset.drawn === 'yes'")
    return browser


@pytest.fixture
def page(loaded):
    """The page with all controls where they were at first."""
    loaded.execute_script(
        "document.getElementById('back').click();"
        "for (const name of ['setting', 'drafts']) {"
        "  const menu = document.getElementById(name);"
        "  menu.value = Array.from(menu.options).find((option) => option.defaultSelected).value;"
        "  menu.dispatchEvent(new Event('change')); }"
    )
    return loaded


def text(page, name):
    return str(page.execute_script(f"return document.getElementById({name!r}).textContent"))


def slide(page, name, value):
    """Set a slider as its user would see it: the value changes and the input event follows."""
    page.execute_script(
        "const slider = document.getElementById(arguments[0]); slider.value = arguments[1];"
        "slider.dispatchEvent(new Event('input', { bubbles: true }));",
        name,
        str(value),
    )


def test_every_chart_is_drawn_and_nothing_complains_or_is_fetched(loaded):
    """Each chart has an SVG with at least one visible path or marker per trace, and the console is
    empty.
    """
    drawn = loaded.execute_script(
        "return Object.fromEntries(Array.from(document.querySelectorAll('.chart')).map((chart) => "
        "[chart.id, {"
        " svg: chart.querySelectorAll('svg.main-svg').length, traces: chart.data.length,"
        " shapes: Array.from(chart.querySelectorAll('.scatterlayer .trace, .barlayer "
        ".trace')).filter((trace) =>"
        "   Array.from(trace.querySelectorAll('path')).some((path) => (path.getAttribute('d') || "
        "'').length > 8)).length,"
        " width: chart.querySelector('svg.main-svg').getBoundingClientRect().width }]))"
    )
    assert set(drawn) == CHARTS
    for name, chart in drawn.items():
        assert chart["svg"] >= 1 and chart["traces"] >= 2 and chart["width"] > 300, name
        # a band and its line may share one group
        assert chart["shapes"] >= chart["traces"] // 2, (
            name,
            chart,
        )
    assert loaded.get_log("browser") == []
    fetched = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    assert loaded.execute_script(fetched) == []


CARD = """
const all = (place) => Array.from(document.querySelectorAll(place), (node) => node.textContent);
return {
  title: all("#card-title")[0], what: all("#card-what")[0], who: all("#card-who")[0], basis:
  all("#card-basis")[0],
  ask: all("#card-ask")[0], tone: document.getElementById("card").className, boxes:
  all("#card-boxes > div > *"),
  head: all("#plans th"), rows: all("#plans td"),
};
"""


def said(card):
    """A card as the page shows it."""
    boxes = [text for box in card["boxes"] for text in (box["value"], box["label"], box["note"])]
    rows = [cell for row in card["rows"] for cell in row]
    return card | {"boxes": boxes, "head": list(card["head"]), "rows": rows}


def answer_of(folder, *, latency=None, advice=None):
    """What the page looks up, by setting and costs, and the stops of its sliders."""
    run = open_run(folder)
    costs, advised = latency and read_latency(latency), advice and read_advice(advice)
    answer = answer_run(run, aggregate(run), costs or None, advised or None)
    return answer, slider_answers(run, answer), slider_stops(answer)


def choose(page, name, value):
    page.execute_script(
        "const menu = document.getElementById(arguments[0]); menu.value = arguments[1]; "
        "menu.dispatchEvent(new Event('change'))",
        name,
        str(value),
    )


def test_the_page_shows_the_answer_at_the_sliders_stops(page, folder):
    answer, answers, stops = answer_of(folder)
    assert page.execute_script(CARD) == said(answer.cards[answer.first].to_json())
    rows = (
        "return Array.from(document.querySelectorAll('#setting-rows tr'), (row) =>"
        " row.cells[1].textContent + row.cells[2].textContent)"
    )
    assert page.execute_script(rows) == [one.title + one.what for one in answer.cards]
    titles = set()
    for setting, budget, drafting, checking in ((0, 2, 0, 0), (1, 6, 6, 4), (3, 4, 3, 2)):
        choose(page, "setting", setting)
        for name, place in (
            ("budget", budget),
            ("draft-cost", drafting),
            ("verify-cost", checking),
        ):
            slide(page, name, place)
        assert text(page, "budget-value") == str(stops["budgets"][budget])
        assert text(page, "draft-cost-value") == str(stops["drafting"][drafting])
        here = answers[setting][1 + drafting * len(stops["checking"]) + checking]
        assert page.execute_script(CARD) == said(here["cards"][budget])
        titles.add(here["cards"][budget]["title"])
        page.execute_script("document.getElementById('back').click()")
        assert page.execute_script(CARD) == said(answer.cards[setting].to_json())
    assert len(titles) >= 2
    assert page.get_log("browser") == []


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of exact and of interval runs, with costs of `latency` and with advice."""
    root = tmp_path_factory.mktemp("reports")
    exact = write_run(
        root / "exact", prompts=8, positions=8, temperatures=(0.7, 1.0), top_ps=(0.9, 1.0)
    )
    loose = write_run(root / "loose", width=0.3, temperatures=(1.0,), prompts=6, positions=8)
    latency = records.written(root / "latency.json", records.latency())
    advice = records.written(root / "advice.json", records.advice())
    made = {}
    for name, run, given in (
        ("latency", exact, {"latency": latency}),
        ("advice", exact, {"advice": advice}),
        ("loose", loose, {}),
    ):
        write_report(run, out=root / name, **given)
        made[name] = (root / name, answer_of(run, **given)[0])
    return made


def test_nothing_of_one_setting_shines_through_in_another(browser, loaded, reports):
    """At every other setting no number of the advice is visible, and every label and table is of
    that setting.
    """
    folder, answer = reports["advice"]
    own = answer.cards[answer.first]
    with opened(browser, folder / "report.html") as tab:
        assert tab.execute_script("return document.getElementById('setting').value") == str(
            answer.first
        )
        labels = tab.execute_script(
            "return Array.from(document.getElementById('setting').options, (option) => "
            "option.textContent)"
        )
        for setting, label in enumerate(labels):
            choose(tab, "setting", setting)
            said_of = tab.execute_script(
                "return Array.from(document.querySelectorAll('[data-say=setting]'), (node) => "
                "node.textContent)"
            )
            assert set(said_of) == {label}
            visible = tab.execute_script(
                "return Array.from(document.querySelectorAll('[data-setting]'))"
                ".filter((node) => !node.hidden).map((node) => node.dataset.setting)"
            )
            assert visible and set(visible) == {str(setting)}
            answered_here = tab.execute_script("return document.getElementById('answer').innerText")
            assert (own.what in answered_here) == (setting == answer.first)
            others = [other for other in labels if other != label and other not in label]
            everything = tab.execute_script(
                "const all = document.querySelector('main').cloneNode(true);"
                "all.querySelectorAll('#sampling, [hidden]').forEach((node) => node.remove());"
                "return all.textContent"
            )
            assert label in everything and not any(other in everything for other in others)


@pytest.mark.parametrize("name", ["latency", "advice", "loose"])
def test_the_answer_is_above_the_fold_and_prints_on_one_page(browser, loaded, name, reports):
    """On a telephone, on a desktop, and on letter paper, which is shorter than A4; charts are
    afterwards drawn for the screen.
    """
    with opened(browser, reports[name][0] / "report.html") as tab:
        for size in (PHONE, DESKTOP):
            with window(tab, *size, mobile=size == PHONE):
                fold(tab, size)
        paper = {"printBackground": True, "paperWidth": 8.5, "paperHeight": 11}
        printed = base64.b64decode(tab.execute_cdp_cmd("Page.printToPDF", paper)["data"])
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        until(tab, DRAWN_WIDE)


def fold(tab, size):
    """Check that the card ends above the fold, and that what warns comes below it."""
    ends = tab.execute_script(
        "return document.getElementById('card').getBoundingClientRect().bottom"
    )
    assert ends <= 0.85 * size[1]
    assert tab.execute_script("return document.documentElement.scrollWidth") <= size[0]
    warnings = tab.execute_script(
        "return Array.from(document.querySelectorAll('.warning'), (node) => "
        "node.getBoundingClientRect().top)"
    )
    assert warnings and min(warnings) > ends


def test_keys_on_a_slider_move_the_answer(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    before = page.execute_script(CARD)
    assert text(page, "draft-cost-value") == "–" and before["ask"], "costs are asked for"
    slider = page.find_element(By.ID, "draft-cost")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert text(page, "draft-cost-value") == str(DRAFTING[len(DRAFTING) // 2 + 1])
    after = page.execute_script(CARD)
    assert after["ask"] == "" and after["basis"].startswith("Costs as set")
    value = after["boxes"][0][:-1]
    until(
        page,
        "return document.getElementById('chart-speed').data.some((t) => t.y.some((y) => "
        f"Math.abs(y - {value}) < 6e-3))",
    )
    page.find_element(By.ID, "back").click()
    assert page.execute_script(CARD) == before


def test_at_most_six_lines_each_labelled_where_it_ends(page):
    """Labels are to the right of the plot, in the order of the lines' ends, or on a phone below it;
    inside the chart, and none on another.
    """
    lines = (
        "const chart = document.getElementById(arguments[0]);"
        "const frame = chart.getBoundingClientRect();"
        "const labels = Array.from(chart.querySelectorAll('.annotation-text, .legendtext'), (node) "
        "=> { const box = node.getBoundingClientRect();"
        "  return { text: node.textContent, top: box.top - frame.top, bottom: box.bottom - "
        "frame.top, left: box.left - frame.left,"
        "    right: box.right - frame.left }; });"
        "const named = chart.data.filter((trace) => trace.name);"
        "return { labels, named: named.length, width: frame.width, height: frame.height,"
        "};"
    )
    for size in (PHONE, DESKTOP):
        with window(page, *size, mobile=size == PHONE):
            until(
                page,
                "return document.querySelector('#chart-speed "
                f"svg.main-svg').getBoundingClientRect().width < {size[0]}",
            )
            for costs in (None, 2):
                if costs is not None:
                    slide(page, "draft-cost", costs)
                for chart in ("chart-speed", "chart-acceptance", "chart-entropy"):
                    found = page.execute_script(lines, chart)
                    labels = sorted(found["labels"], key=lambda label: label["top"])
                    assert 2 <= found["named"] == len(labels) <= 6, chart
                    for label in labels:
                        assert label["top"] >= 0 and label["bottom"] <= found["height"] + 1, (
                            chart,
                            label,
                        )
                        assert label["right"] <= found["width"] + 1, (size, chart, label)
                    for above, below in itertools.combinations(labels, 2):
                        # On a phone two that are short may share a line, by the width of the font.
                        aside = max(above["left"], below["left"]) >= min(
                            above["right"], below["right"]
                        )
                        apart = below["top"] >= above["bottom"] - 3
                        assert apart or (size == PHONE and aside), (chart, above, below)
            page.execute_script("document.getElementById('back').click()")


def test_controls_change_what_is_drawn(page):
    values = (
        "return JSON.stringify(['chart-acceptance', 'chart-spread', 'chart-entropy', "
        "'chart-position', 'chart-speed'].map((name) =>"
        " document.getElementById(name).data.map((t) => t.y)))"
    )
    first = json.loads(page.execute_script(values))
    choose(page, "drafts", 2)
    second = json.loads(page.execute_script(values))
    assert (
        all(a != b for a, b in zip(first[1:4], second[1:4], strict=True)) and first[4] == second[4]
    )
    choose(page, "setting", 0)
    third = json.loads(page.execute_script(values))
    assert all(a != b for a, b in zip(second, third, strict=True))


def test_names_from_the_run_are_shown_and_never_run(page):
    assert "owned" not in page.execute_script("return document.title").replace(
        "document.title='owned'", ""
    )
    assert (
        page.execute_script(
            "return document.querySelectorAll('img, iframe, object, script').length"
        )
        == 5
    )
    labels = page.execute_script(
        "return Array.from(document.querySelectorAll('#chart-acceptance "
        ".annotation-text')).map((node) => node.textContent)"
    )
    # a long name is cut and broken there
    assert labels and all("<i>&lt;</i" in label for label in labels)
    assert HOSTILE.split("\u2028")[0] in page.execute_script(CARD)["rows"][0]


def test_the_policy_stops_what_escaping_might_miss(browser, loaded, folder, tmp_path):
    """The page's own policy with an injected script and handler, as if escaping had failed: neither
    runs, the console says why.
    """
    source = (folder / "report.html").read_text(encoding="utf-8")
    evil = "<script>window.owned = 1</script><img src='data:,' onerror='window.owned = 1'>"
    outcomes = []
    for head in (source[: source.index("<main>")], "<!doctype html><title>no policy</title>"):
        (tmp_path / "page.html").write_text(head + evil, encoding="utf-8")
        browser.switch_to.new_window("tab")
        browser.get((tmp_path / "page.html").as_uri())
        outcomes.append(
            (browser.execute_script("return window.owned"), str(browser.get_log("browser")))
        )
        browser.close()
        browser.switch_to.window(browser.window_handles[0])
    assert outcomes[0][0] is None and "Content Security Policy" in outcomes[0][1]
    assert outcomes[1][0] == 1, "without the policy the attack should have worked"


def test_charts_follow_their_column_and_never_scroll_the_page(page):
    """Narrowed to a telephone's width the page does not scroll sideways even before it is redrawn;
    then every chart fits.

    A column that is narrowed without a resize of the window, as by a scroll bar, is followed as
    well.
    """
    fits = (
        "return Array.from(document.querySelectorAll('.chart')).every((chart) =>"
        " chart.querySelector('svg.main-svg').getBoundingClientRect().width <= "
        "document.querySelector('main').clientWidth)"
    )
    with window(page, 420, 800, mobile=False):
        assert page.execute_script("return document.documentElement.scrollWidth") <= 420
        until(page, fits)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 420
        page.execute_script("document.body.style.width = '360px'")
        assert page.execute_script("return document.querySelector('main').clientWidth") < 360
        until(page, fits)
        page.execute_script("document.body.style.width = ''")
    until(page, DRAWN_WIDE)
    assert page.get_log("browser") == []


def test_page_and_charts_are_dark_where_the_system_is_and_never_on_paper(page):
    """Texts of a chart stand out from its ground by 4.5 to 1, lines by 2 to 1 at least; colours
    follow the system while the page is open.
    """
    chart = (
        LUMINANCE
        + """
const rgb = (node, name) => ratio(luminance(getComputedStyle(node)[name]), floor);
const chart = document.getElementById("chart-speed");
const floor = luminance(getComputedStyle(chart.querySelector("svg.main-svg")).backgroundColor);
const all = (pick) => Array.from(chart.querySelectorAll(pick));
return [floor, Math.min(...all("text").map((one) => rgb(one, "fill"))),
  Math.min(...all("path.js-line").map((one) => rgb(one, "stroke")))];
"""
    )
    try:
        check_schemes(page)
        for scheme in ("dark", "light", "dark"):
            emulate(page, scheme)
            dark = str(scheme == "dark").lower()
            until(
                page, chart.replace("return [floor,", f"return (floor < .1) === {dark} && [floor,")
            )
            _, texts, lines = page.execute_script(chart)
            assert texts >= 4.5 and lines >= 2.0, scheme
        page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        until(page, chart.replace("return [floor,", "return floor > .9 && [floor,"))
        page.execute_script("window.dispatchEvent(new Event('afterprint'))")
    finally:
        emulate(page, "")
    assert page.get_log("browser") == []
