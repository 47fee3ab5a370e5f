"""Pages of counters, fetched from the address that a user names."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from otm.errors import InvalidParameter

MOST_BYTES = 64 * 2**20
"""Largest page that is fetched."""

_PORTS = {"http": 80, "https": 443}
_CHUNK = 2**16  # bytes between two looks at the clock
_SAID = 400  # bytes of a refusal that are shown


def fetch_page(
    url: str, *, seconds: float = 10.0, most: int = MOST_BYTES, request: Any = None
) -> str:
    """Fetch the text of a page.

    Args:
        url: an address of http or https. Redirects are followed to the same host and port only.
        seconds: time for the whole page.
        most: largest page, in bytes.
        request: what is posted, as JSON; nothing is where it is None.

    Returns:
        The text.

    Raises:
        InvalidParameter: if there is no such page in time, or it is too large, or no UTF-8.
    """
    server_of(url)
    ends = time.monotonic() + seconds
    content = bytearray()
    try:
        opener = urllib.request.build_opener(_SameServer)
        body = None if request is None else json.dumps(request).encode()
        posted = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with opener.open(posted, timeout=seconds) as answer:
            while len(content) <= most and (chunk := answer.read1(_CHUNK)):
                content += chunk
                if time.monotonic() > ends:
                    raise TimeoutError
        if len(content) > most:
            raise InvalidParameter(
                f"A page has at most {most:,} bytes; {url:.80} has more. Name the page of counters."
            )
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_SAID).decode("utf-8", "replace").strip()
        remedy = "Name the page of counters, often /metrics."
        if request is not None:
            remedy = f"It says: {said}" if said else "Name the server's own address."
        raise InvalidParameter(
            f"{url:.80} must be a page; the server answers {error.code} {error.reason}. {remedy}"
        ) from error
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", error)
        said = f"must be a page of UTF-8 text; it cannot be read ({reason!s:.80})"
        if isinstance(reason, TimeoutError):
            said = f"must be there within {seconds:g} s; it is not. Is the server busy?"
        elif isinstance(reason, ConnectionRefusedError):
            said = "must be served; the connection is refused. Is the server up?"
        raise InvalidParameter(f"{url:.80} {said}") from error


def server_of(url: str) -> tuple[str | None, int]:
    """Return the host and the port of an address.

    Raises:
        InvalidParameter: unless the address is one of http or https.

    >>> server_of("http://example.com/metrics")
    ('example.com', 80)
    """
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        raise InvalidParameter(
            f"A page has an address of http or https; got {url!r:.80}. Write http://HOST:PORT/"
            "metrics."
        ) from error


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Redirects within one host and port."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if server_of(newurl) != server_of(req.full_url):
            raise InvalidParameter(
                f"A page comes from the server that is named; {req.full_url:.80} sends on to "
                f"{newurl:.80}. Name that address, if it is meant."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)
