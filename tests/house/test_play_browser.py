"""The page to play with, in a real headless Chromium: it computes what the library computes, and
everybody can use it.

Skipped where Chromium or its driver is missing, except where `CI` is set: there a missing browser
is a failure.
"""

import itertools
import math
import re

import numpy as np
import pytest

import otm
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
from tests.sequence.toys import random_pair_of_rows

PAGE = ROOT / "docs" / "play.html"
VERIFIERS = {cls.title: cls for cls in otm.verifiers.VERIFIERS}
PLAYED = ("optimal", "K-SEQ", "recursive rejection", "naive tree", "naive", "race", "list race")
LAWS = {cls.title: cls for cls in otm.drafts.LAWS}
SETTINGS = 1_000
PATHS = 60
"""Settings of which the coupling is compared as well."""

TRIES = 20_000


@pytest.fixture(scope="module")
def page(browser):
    with opened(browser, PAGE) as tab:
        yield tab


def random_settings(rng):
    """Pairs of every size and kind; both laws, 1 to 5 drafts, several temperatures."""
    found = []
    while len(found) < SETTINGS:
        p, q = random_pair_of_rows(int(rng.integers(2, 9)), rng)
        law = str(rng.choice(["i.i.d.", "without replacement"]))
        most = 5 if law == "i.i.d." else min(5, int((p > 0).sum()))
        k, heat = int(rng.integers(1, most + 1)), float(rng.choice([1.0, 0.5, 1.7]))
        found.append({"p": p.tolist(), "q": q.tolist(), "k": k, "law": law, "heat": heat})
    return found


def problem_of(*settings):
    """Return settings of one law, size and number of drafts as the library has them, one a row."""
    (law,) = {(LAWS[one["law"]], one["k"]) for one in settings}
    with np.errstate(divide="ignore"):
        p, q = (
            np.stack(
                [otm.from_logits(np.log(one[name]), temperature=one["heat"]) for one in settings]
            )
            for name in "pq"
        )
    return otm.Problem(draft=p, target=q, law=law[0](law[1]))


def row_of(problem, row):
    return otm.Problem(draft=problem.draft[row], target=problem.target[row], law=problem.law)


def acceptances(title, problem):
    """Return the library's, row by row where it takes one pair at a time."""
    if title not in ("optimal", "recursive rejection") or isinstance(problem.law, otm.IID):
        return otm.acceptance(VERIFIERS[title](), problem)
    rows = [row_of(problem, row) for row in range(len(problem.draft))]
    if title == "optimal":
        return [float(otm.optimum(one).value) for one in rows]
    return [float(otm.acceptance(VERIFIERS[title](), one)) for one in rows]


def test_a_thousand_settings_are_computed_as_by_the_library(page):
    settings = random_settings(np.random.default_rng(5))
    answers = page.execute_script("return arguments[0].map(otm.evaluate)", settings)
    assert page.execute_script("return [otm.VERIFIERS, otm.LAWS]") == [
        list(PLAYED),
        ["i.i.d.", "without replacement"],
    ]
    alike = {}
    for number, one in enumerate(settings):
        alike.setdefault((len(one["p"]), one["law"], one["k"]), []).append(number)
    compared = 0
    for numbers in alike.values():
        problem, here = problem_of(*(settings[i] for i in numbers)), [answers[i] for i in numbers]
        p, q, k = problem.draft, problem.target, problem.law.k
        iid = isinstance(problem.law, otm.IID)

        def of(*names, here=here):
            """The page's numbers under these names, one row for each setting."""
            found = here
            for name in names:
                found = [one[name] for one in found]
            return np.asarray(found)

        assert np.abs(of("p") - p).max() <= 1e-12 and np.abs(of("q") - q).max() <= 1e-12
        cut = of("optimum", "cut")[:, None] >> np.arange(p.shape[1]) & 1
        assert np.abs(of("optimum", "target") - (cut * q).sum(axis=1)).max() <= 1e-12
        if iid:
            assert np.abs(of("optimum", "drafts") - (cut * p).sum(axis=1) ** k).max() <= 1e-12
        assert (
            np.abs(
                of("optimum", "value") - (1 + of("optimum", "target") - of("optimum", "drafts"))
            ).max()
            <= 1e-15
        )
        assert np.abs(of("optimum", "value") - acceptances("optimal", problem)).max() <= 1e-9
        heights = np.stack([np.minimum(q, t * p).sum(axis=1) for t in (0.5, 1, 1.5, k)], axis=1)
        assert np.abs(of("overlap") - heights).max() <= 1e-12
        titles = set(here[0]["acceptance"])
        assert {"optimal", "naive", "recursive rejection"} <= titles
        assert titles - {"optimal"} == {
            t
            for t in VERIFIERS
            if t in PLAYED
            and VERIFIERS[t]().supports(problem.law)
            # the page's race drafts different words
            and (t != "race" or k == 1 or not iid)
        } - {"optimal"}
        for title in titles:
            values = of("acceptance", title)
            assert np.abs(values - acceptances(title, problem)).max() <= 1e-9, (title, problem.law)
            assert np.abs(of("accepted", title).sum(axis=1) - values).max() <= 1e-12
            assert np.abs(of("texts", title) - (1 + values + values**2 + values**3)).max() <= 1e-12
            compared += len(values)
        if iid and k > 1:
            inner = (of("overlap")[:, 1] > 1e-6) & (of("overlap")[:, 1] < 1 - 1e-6)
            assert (
                np.abs(of("gamma") / otm.verifiers.gamma_star(problem) - 1)[inner].max(initial=0)
                <= 1e-6
            )
    assert compared > 3 * SETTINGS


COUPLINGS = """
return arguments[0].map((one) => {
  const p = otm.tempered(one.p, one.heat), q = otm.tempered(one.q, one.heat), sets = otm.drafted(p, one.k, one.law);
  const named = otm.VERIFIERS.filter((name) => !name.endsWith("race") && otm.supports(name, one.law, one.k));
  return Object.fromEntries(named.map((verifier) => [verifier,
    otm.coupling({ p, q, k: one.k, law: one.law, verifier }, sets).map((row) => [row.set, row.mass, ...row.output])]));
});
"""  # noqa: E501


def test_the_coupling_is_that_of_the_library(page):
    """Rows are the drafted sets: their sums the law's, the columns' the target's, each entry the
    verifier's, but for the plan.
    """
    settings = [
        one
        for one in random_settings(np.random.default_rng(6))
        if len(one["p"]) <= 5 and one["k"] <= 3
    ][:PATHS]
    for setting, found in zip(settings, page.execute_script(COUPLINGS, settings), strict=True):
        problem = row_of(problem_of(setting), 0)
        for title, rows in found.items():
            here = {int(row[0]): np.asarray(row[2:]) for row in rows}
            assert sum(here.values()) == pytest.approx(problem.target, abs=1e-12), title
            for row in rows:
                assert sum(row[2:]) == pytest.approx(row[1], abs=1e-12), title
            if title == "optimal":
                continue  # optimal plans are many; the acceptance is compared above
            coupling = otm.coupling(VERIFIERS[title](), problem)
            library = {}
            for drafts, mass in zip(
                coupling.drafts, np.asarray(coupling.joint.todense()), strict=True
            ):
                drawn = sum(1 << int(x) for x in set(drafts.tolist()) if x >= 0)
                library[drawn] = library.get(drawn, 0.0) + mass
            for drawn in library.keys() | here.keys():
                assert here.get(drawn, np.zeros(1)) == pytest.approx(
                    library.get(drawn, np.zeros(1)), abs=1e-9
                ), (
                    title,
                    setting,
                )


DRAWN = """
let seed = 1;  // mulberry32
const random = () => { seed = (seed + 0x6d2b79f5) | 0; let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
  t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t; return ((t ^ t >>> 14) >>> 0) / 4294967296; };
const [p, q, k, law, tries] = arguments, sets = otm.drafted(p, k, law);
return Object.fromEntries(otm.VERIFIERS.filter((name) => otm.supports(name, law, k)).map((verifier) => {
  const setting = { p, q, k, law, verifier }, words = q.map(() => 0);
  const plan = otm.coupling(setting, sets);
  let kept = 0;
  for (let i = 0; i < tries; i += 1) {
    const one = otm.drawn(setting, plan, random);
    words[one.output] += 1 / tries;
    kept += one.kept / tries;
  }
  return [verifier, { words, kept, exact: otm.sum(otm.accepted(setting, sets)) }];
}));
"""  # noqa: E501


@pytest.mark.parametrize("law", ["i.i.d.", "without replacement"])
def test_what_it_draws_step_by_step_has_the_law_that_it_shows(page, law):
    """By a fixed seed; Hoeffding's bound at 1e-9 on either side, over 12 frequencies."""
    q = [0.05, 0.35, 0.2, 0.4]
    near = math.sqrt(math.log(24 / 1e-9) / (2 * TRIES))
    for title, found in page.execute_script(
        DRAWN, [0.5, 0.25, 0.15, 0.1], q, 2, law, TRIES
    ).items():
        assert found["kept"] == pytest.approx(found["exact"], abs=near), title
        assert found["words"] == pytest.approx(q, abs=near), title


def shown(page, name):
    return str(page.execute_script(f"return document.getElementById({name!r}).textContent"))


def test_everything_is_reached_by_keys(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page.find_element(By.ID, "k").send_keys("1")
    bar = page.find_element(By.CSS_SELECTOR, "[data-bar=q0]")
    before = float(bar.get_attribute("aria-valuenow"))
    bar.send_keys(Keys.ARROW_UP)
    for _ in range(2):  # each change draws the bars anew, and the focus stays
        page.switch_to.active_element.send_keys(Keys.ARROW_UP)
    moved = page.switch_to.active_element
    assert moved.get_attribute("data-bar") == "q0"
    assert float(moved.get_attribute("aria-valuenow")) == pytest.approx(before + 0.03, abs=1e-3)
    laws = {
        name: [
            float(one.get_attribute("aria-valuenow"))
            for one in page.find_elements(By.CSS_SELECTOR, f"[data-bar^={name}]")
        ]
        for name in "pq"
    }
    best = np.minimum(laws["p"], laws["q"]).sum()
    (said,) = re.findall(r"keeps one ([\d.]+) %", shown(page, "headline"))
    assert float(said) == pytest.approx(100 * best, abs=0.3)  # from bars of three digits
    for name in ("step", "whole", "many", "grow"):
        page.find_element(By.ID, name).send_keys(Keys.ENTER)
    assert "of 1,00" in shown(page, "tally")
    page.find_element(By.ID, "heat").send_keys(Keys.ARROW_RIGHT)
    assert shown(page, "heat-value") == "1.05"


def test_a_bar_follows_the_pointer_and_the_address_keeps_the_setting(page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    hash_before = page.execute_script("return location.hash")
    bar = page.find_element(By.CSS_SELECTOR, "[data-bar=p1] .ring")
    before = float(
        page.find_element(By.CSS_SELECTOR, "[data-bar=p1]").get_attribute("aria-valuenow")
    )
    ActionChains(page).click_and_hold(bar).move_by_offset(0, -40).move_by_offset(
        0, -20
    ).release().perform()
    after = float(
        page.find_element(By.CSS_SELECTOR, "[data-bar=p1]").get_attribute("aria-valuenow")
    )
    assert after > before + 0.05
    until(page, f"return location.hash !== {hash_before!r}")
    headline, address = shown(page, "headline"), page.current_url
    assert address.count("#p=") == 1
    page.get("about:blank")
    page.get(address)
    assert shown(page, "headline") == headline


DRAGGED = """
const heat = document.getElementById("heat");
for (let step = 0; step <= 205; step += 1) {
  heat.value = .3 + step % 35 * .05; heat.dispatchEvent(new Event("input")); }
"""


def test_a_long_drag_writes_the_address_once(page):
    """Chromium stops a page after 200 writes in ten seconds, and the link is then a stale one."""
    page.execute_script(DRAGGED)
    until(page, "return new URLSearchParams(location.hash.slice(1)).get('t') === '1.8'", 5.0)
    assert page.get_log("browser") == []


WORKED = (
    FAULTS
    + """
for (const [name, value] of arguments[0]) {
  const menu = document.getElementById(name); menu.value = value; menu.dispatchEvent(new Event("change")); }
return {
  ...faults(),
  marks: (() => {  // names on the overlap curve: beside the axis, on no line to a name and not on the curve
    const [left, , top] = box(document.querySelector("#curve svg"));
    const lines = Array.from(document.querySelectorAll("#curve path[stroke-dasharray='2 2']"), box);
    const path = document.querySelector("#curve path[stroke-width='3']");
    const points = Array.from({ length: 400 }, (_, i) => path.getPointAtLength(path.getTotalLength() * i / 399));
    return Array.from(document.querySelectorAll("#curve .mark")).filter((node) => {
      const [from, to, high, low] = box(node);
      return from < left + 34 || lines.some(([x, , y, end]) => x > from && x < to && y < low - 4 && end > high + 4) ||
        points.some(({ x, y }) => left + x > from && left + x < to && top + y > high + 4 && top + y < low - 4);
    }).map((node) => node.textContent);
  })(),
  headline: document.getElementById("headline").textContent,
  meter: document.getElementById("meter").textContent,
  patterns: document.querySelectorAll("#pair [fill^='url(#h'], #meter [fill^='url(#h']").length,
  empty:
    ["meter", "pair", "cut", "curve", "coupling", "tree"].filter((name) => !document.getElementById(name).textContent),
};
"""  # noqa: E501
)


SHOWN = [
    *itertools.product(
        ("i.i.d.", "without replacement"),
        ("a fair draft", "a poor draft", "two words"),
        (None,),
        (2,),
        ("optimal", "recursive rejection", "naive"),
    ),
    *(
        ("i.i.d.", preset, num_words, k, "K-SEQ")
        for preset in ("a fair draft", "a poor draft", "a sure target")
        for k, num_words in ((1, 5), (3, 5), (4, 3), (3, 8), (4, 7), (4, 8), (5, 7), (5, 8))
    ),
]
"""Laws, presets, numbers of words (the preset's if None) and of drafts, verifiers."""


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_it_fits_and_needs_no_colours(page, size):
    """Parts are told apart by labels and hatches; nothing is cut off at any width, law, verifier or
    number of words.
    """
    with window(page, *size, mobile=size == PHONE):
        page.get("about:blank")
        page.get(PAGE.as_uri())
        for law, preset, num_words, k, verifier in SHOWN:
            size_of = [["size", str(num_words)]] if num_words else []
            others = [["law", law], ["k", str(k)], ["verifier", verifier]]
            chosen = [["preset", preset], *size_of, *others]
            found = page.execute_script(WORKED, chosen)
            assert found["scroll"] <= size[0], chosen
            faults = [found[name] for name in ("outside", "empty", "broken", "crossed", "marks")]
            assert faults == [[], [], [], [], []], chosen
            assert "optimum" in found["meter"] and found["patterns"] >= 2
            assert ("gap" in found["meter"]) <= (verifier != "optimal")
            given = re.search(r"([\d.]+) points", found["headline"])
            assert not given or f"gap {given[1]} %" in found["meter"], chosen


CHOSEN = """
for (const [name, value] of arguments[0]) {
  const menu = document.getElementById(name); menu.value = value; menu.dispatchEvent(new Event("change")); }
return [document.getElementById("headline").textContent, document.getElementById("swapped").textContent,
  document.getElementById("preset").value, document.getElementById("verifier").value];
"""  # noqa: E501


def test_menus_keep_the_bars_and_say_what_they_change(page):
    def choose(*values):
        return list(page.execute_script(CHOSEN, values))

    first = choose(("preset", "a poor draft"), ("law", "i.i.d."), ("k", "3"), ("verifier", "K-SEQ"))
    assert first[1:] == ["", "…", "K-SEQ"]
    assert choose(("preset", "a poor draft"))[2] == "a poor draft"
    assert choose(("size", "2"))[0] != first[0]
    assert choose(("size", "5"))[0] == choose(("size", "8"), ("size", "5"))[0] == first[0]
    _, said, _, verifier = choose(("law", "without replacement"))
    assert verifier == "recursive rejection"
    assert said.startswith("The verifier is now recursive rejection: K-SEQ does not verify these")
    assert choose(("law", "i.i.d."))[1:] == ["", "…", "K-SEQ"], "the reader's choice comes back"
    assert choose(("law", "without replacement"), ("verifier", "optimal"))[1] == ""


def test_it_is_one_file_with_links_and_dark_where_the_system_is(page):
    check_alone(page, PAGE)
    check_links(page, PAGE, "start/install.md", "index.md")
    check_schemes(page)
