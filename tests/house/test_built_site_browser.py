"""The built site, where `make docs` has left it: links lead somewhere, and its pages fit a phone
and a desk, light and dark, in a real headless Chromium.
"""

import re
from html import unescape
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import DESKTOP, LUMINANCE, PHONE, emulate, window
from tests.paths import ROOT

SITE = ROOT / "build" / "site"
PAGES = (
    "index",
    "start/install",
    "start/distributions",
    "start/kernel",
    "guide/which",
    "guide/table",
    "howto/matching",
    "steps",
)
"""Pages that are looked at: the first, the doors, the widest tables, code of each kind."""

pytestmark = [
    pytest.mark.job(name="site"),
    pytest.mark.skipif(not SITE.is_dir(), reason="make docs builds the site that is looked at"),
]


def test_links_of_the_site_lead_somewhere():
    """Pages, anchors and pictures; no link lies in another, no page names the machine's folders."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in SITE.rglob("*.html")
        if "_static" not in path.parts
    }
    names = {
        path: set(re.findall(r'\s(?:id|name)="([^"]+)"', text)) for path, text in texts.items()
    }
    lost, seen = [], 0
    for path, text in texts.items():
        assert str(ROOT) not in text, path
        assert not re.search(r"<a\b[^>]*>(?:(?!</a>).)*<a\b", text, re.DOTALL), path
        for link in re.findall(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"', text):
            parts = urlsplit(unescape(link))
            if parts.scheme or parts.netloc:
                continue
            seen += 1
            end = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            end = end / "index.html" if end.is_dir() else end
            # viewcode's way back from a source names an object by its module, its page by its room
            anchor = "" if "_modules" in path.parts else unquote(parts.fragment)
            if not end.is_file() or (anchor and anchor not in names.get(end, {anchor})):
                lost.append((str(path.relative_to(SITE)), link))
    assert seen > 10_000
    assert lost == []


@pytest.fixture(scope="module")
def tab(browser):
    browser.switch_to.new_window("tab")
    yield browser
    emulate(browser, "")
    browser.close()
    browser.switch_to.window(browser.window_handles[0])


LOOKED_AT = (
    LUMINANCE
    + """
const article = document.querySelector("article");
const scrolled = (node) => { for (let up = node.parentElement; up && up !== article; up = up.parentElement)
  if (["auto", "scroll"].includes(getComputedStyle(up).overflowX)) return true; return false; };
return {
  ground,
  contrast: contrast(article.querySelectorAll("h1, h2, p, li")),
  page: document.documentElement.scrollWidth,
  tables: Array.from(article.querySelectorAll("table")).filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !scrolled(one)).length,
  code: Array.from(article.querySelectorAll("pre")).filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 90)),
};
"""  # noqa: E501
)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_pages_fit_light_and_dark(tab, size):
    with window(tab, *size, mobile=size == PHONE):
        for name in PAGES:
            for scheme in ("light", "dark"):
                emulate(tab, scheme)
                if scheme == "light":
                    tab.get((SITE / f"{name}.html").as_uri())
                found = tab.execute_script(LOOKED_AT)
                assert found["page"] <= size[0], name
                assert found["tables"] == 0, name  # a wide one scrolls by itself
                assert (found["ground"] < 0.1) == (scheme == "dark"), (name, scheme)
                assert found["contrast"] >= 4.5, (name, scheme)
                assert size == PHONE or found["code"] == [], name
    # the site has its own files, and no other; a page that looks for one says so here
    assert [one for one in tab.get_log("browser") if one["level"] == "SEVERE"] == []
