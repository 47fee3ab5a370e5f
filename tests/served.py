"""A server on this machine that gives recorded pages, one after another."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

Answer = str | tuple[int, dict[str, str], str]
"""A text, or status, headers and text."""

DEAD: Answer = (503, {}, "")
"""The answer of a server that has ended."""


@contextlib.contextmanager
def served(
    *answers: Answer, delay: float = 0.0, posted: Callable[[Any], Answer] | None = None
) -> Iterator[str]:
    """Serve pages in order, the last one again and again, and yield the address of them all.

    Args:
        answers: texts, or status, headers and text.
        delay: seconds between two bytes.
        posted: answers what is posted, as JSON.
    """
    left, pause = list(answers), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.give(left.pop(0) if len(left) > 1 else left[0])

        def do_POST(self) -> None:
            assert posted is not None
            self.give(posted(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def give(self, answer: Answer) -> None:
            """Send an answer."""
            status, headers, text = (200, {}, answer) if isinstance(answer, str) else answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in text if delay else [text]:
                pause.wait(delay)
                with contextlib.suppress(OSError):  # the other end may have left
                    self.wfile.write(piece.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
