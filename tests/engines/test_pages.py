"""Pages: only of the server that is named, in time, and no larger than a page is."""

import pytest

from otm.engines.pages import fetch_page, server_of
from otm.errors import InvalidParameter
from tests.served import DEAD, served


def redirect(address):
    return 302, {"Location": address}, ""


def test_a_page_comes_as_text_also_after_a_redirect_within_its_server():
    with served(redirect("/other"), "\ufeffa 1\r\nb 2\n") as url:
        assert fetch_page(url) == "a 1\nb 2\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (redirect("http://localhost/metrics"), "Name that address, if it is meant"),
        (redirect("file:///etc/hostname"), "is not allowed"),
        (DEAD, "answers 503"),
        ("x" * 101, "at most 100 bytes"),
    ],
)
def test_other_servers_and_large_pages_are_refused(answer, said):
    with served(answer) as url, pytest.raises(InvalidParameter, match=said):
        fetch_page(url, most=100)


@pytest.mark.parametrize("delay", [0.05, 0.5])
def test_a_slow_page_ends_in_time_whether_it_drips_or_waits(delay):
    with served("slow page", delay=delay) as url, pytest.raises(InvalidParameter, match="within"):
        fetch_page(url, seconds=0.2)


def test_what_is_no_page_is_refused():
    with served("") as url:
        pass
    with pytest.raises(InvalidParameter, match="Is the server up"):
        fetch_page(url)
    for address in ("ftp://a/b", "http://a:b/", "metrics", "http://"):
        with pytest.raises(InvalidParameter):
            fetch_page(address)
    assert server_of("https://A:8/x") == ("a", 8)
