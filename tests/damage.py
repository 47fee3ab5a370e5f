"""Hypothesis strategies of files as they arrive: torn, flipped, edited, converted."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from hypothesis import strategies as st

PIECES = (
    *(b"\0", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\x1a", b"\xed\xa0\x80", b"\\ud800", b"NaN"),
    *(b",", b"}", b"]", b'"', b"9" * 400, b" " * 400, b"null", b"-1", b"1e400", b"true", b"0.5"),
    b"[" * 2_000,
)
"""Bytes that mean something to some reader."""

CONVERSIONS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    lambda data: data.decode("utf-8", "replace").encode("utf-16"),
    lambda data: b"\xef\xbb\xbf" + data,
    lambda data: data.replace(b"\n", b"\r\n"),
    lambda data: data + b"\0" * 64,
    lambda data: data + data,
    bytes.swapcase,
    lambda data: b"",
    lambda data: b"{}",
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes after one accident."""
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 200)))
    head, middle, tail = data[:start], data[start:end], data[end:]
    piece = draw(st.sampled_from(PIECES))
    flip, lines = 1 << draw(st.integers(0, 7)), data.splitlines(keepends=True)
    accidents = [
        head,
        head + tail,
        head + middle + middle + tail,
        head + piece + middle + tail,
        head + piece + tail,
        head + bytes(byte ^ flip for byte in middle[:1]) + data[start + 1 :],
        draw(st.sampled_from(CONVERSIONS))(data),
        b"".join(draw(st.permutations(lines)) if len(lines) < 50 else lines[1:]),
    ]
    return draw(st.sampled_from(accidents))
