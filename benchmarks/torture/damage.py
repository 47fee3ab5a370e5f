"""What can happen to a file between its writer and its reader: torn, flipped, edited, converted,
swapped for what is none.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Random = np.random.Generator
Damage = Callable[[bytes, Random], bytes]

NASTY: tuple[str, ...] = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "-1", "-0.0", "1e-320", "1.5", "2", "true",
    "false", "null", '""', '"x"',
    "0", '"1"', "[]", "{}", "[[]]", "[null]", '{"a": 1}', "9" * 25, "-" + "9" * 25, "9" * 5_000,
    "2147483648", (
        "4294967296"
    ),
    "9223372036854775808", "1e308", "0.1", '"\\ud800"', '"\\u0000"', '"../../etc/passwd"',
    '"/dev/zero"', '"' + "n" * 5_000 + '"',
    "NaN0", "0x10", "1_000", "+1", "01", ".5", "'a'",
)  # fmt: skip
"""What may stand where a JSON value should."""


def truncated(data: bytes, random: Random) -> bytes:
    """Cut at any byte."""
    return data[: int(random.integers(len(data) + 1))]


def flipped(data: bytes, random: Random) -> bytes:
    """Flip one bit, or a few."""
    found = bytearray(data)
    for _ in range(int(random.choice([1, 1, 1, 2, 8]))):
        if found:
            found[int(random.integers(len(found)))] ^= 1 << int(random.integers(8))
    return bytes(found)


def written_over(data: bytes, random: Random) -> bytes:
    """Overwrite a stretch with zeros, ones, spaces or noise."""
    start, length = _stretch(data, random)
    filling = (b"\0", b"\xff", b" ", b"9", b"[", b'"')
    which = int(random.integers(len(filling) + 1))
    new = random.bytes(length) if which == len(filling) else filling[which] * length
    return data[:start] + new + data[start + length :]


def moved(data: bytes, random: Random) -> bytes:
    """Leave a stretch out, repeat it, or put it elsewhere."""
    start, length = _stretch(data, random)
    piece, rest = data[start : start + length], data[:start] + data[start + length :]
    match int(random.integers(3)):
        case 0:
            return rest
        case 1:
            return data[:start] + piece + data[start:]
    place = int(random.integers(len(rest) + 1))
    return rest[:place] + piece + rest[place:]


def inserted(data: bytes, random: Random) -> bytes:
    """Insert bytes that mean something to somebody."""
    pieces = (
        b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\n", b"\n\n", b"\x1a", b"\xed\xa0\x80",
        b"\\ud800", b"NaN", b"[" * 100_000,
        b'{"a":' * 50_000, b"\xc0\x80", b",", b"}", b"]", b'"', b"//", b"9" * 10_000, b" " * 1_000,
        b"\x85", "\u2028".encode(),
    )  # fmt: skip
    place = int(random.choice([0, len(data), int(random.integers(len(data) + 1))]))
    return data[:place] + pieces[int(random.integers(len(pieces)))] + data[place:]


def converted(data: bytes, random: Random) -> bytes:
    """Give the whole file another form, as editors, downloads and compressions do."""
    text = data.decode("utf-8", "surrogateescape")
    forms: tuple[Callable[[], bytes], ...] = (
        lambda: gzip.compress(data),
        lambda: text.encode("utf-16", "replace"),
        lambda: text.encode("utf-16-le", "replace"),
        lambda: text.encode("utf-32", "replace"),
        lambda: text.encode("cp1252", "replace"),
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.replace(b"\n", b"\r"),
        lambda: data + b"\0" * 4096,
        lambda: data + b"\n\n",
        lambda: data + data,
        lambda: data[::-1],
        data.swapcase,
        data.rstrip,
        lambda: b"",
        lambda: b"\n",
        lambda: b"\0",
        lambda: b"null",
        lambda: b"[]",
        lambda: b"{}",
        lambda: b"[" * 200_000,
        lambda: b'{"a":' * 200_000,
        lambda: random.bytes(len(data)),
    )
    return forms[int(random.integers(len(forms)))]()


def inflated(data: bytes, random: Random) -> bytes:
    """Give the file another content of its form, little on the disk and much when it is read."""
    file = io.BytesIO()
    if data[:2] == b"PK":
        np.savez_compressed(file, tokens=np.zeros(1 << 28, np.uint8))
        return file.getvalue()
    if data[:4] != b"PAR1":
        return gzip.compress(bytes(1 << 28))
    with contextlib.suppress(pa.ArrowException, OSError):
        schema = pq.read_schema(io.BytesIO(data))
        rows = pa.table([pa.nulls(1 << 16, kind.type) for kind in schema], schema=schema)
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for _ in range(int(random.choice([1, 16, 64]))):
                writer.write_table(rows)
        return file.getvalue()
    return data


def lines_edited(data: bytes, random: Random) -> bytes:
    """Drop, repeat, swap, cut or join lines."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    i, j = (int(x) for x in random.integers(len(lines), size=2))
    match int(random.integers(7)):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            lines[i] = lines[i][: int(random.integers(len(lines[i]) + 1))]
        case 4:
            lines[i] = lines[i].rstrip(b"\r\n")
        case 5:
            lines = lines[:i]
        case 6:
            random.shuffle(lines)
    return b"".join(lines)


def json_edited(data: bytes, random: Random) -> bytes:
    """Change one place of one JSON document, the file's or a line's: its value, its name, whether
    it is there, or how often.
    """
    whole = [data]
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(data)
        return _document_edited(data, random)
    whole = data.split(b"\n")
    i = int(random.integers(len(whole)))
    whole[i] = _document_edited(whole[i], random)
    return b"\n".join(whole)


def _document_edited(data: bytes, random: Random) -> bytes:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return flipped(data, random)
    holders = list(_holders(document))
    if not holders:
        return NASTY[int(random.integers(len(NASTY)))].encode()
    holder = holders[int(random.integers(len(holders)))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[int(random.integers(len(keys)))]
    marker = "\ue000 here \ue000"
    nasty = NASTY[int(random.integers(len(NASTY)))]
    match int(random.integers(8)):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}s"] = holder.pop(key)
        case 2 if isinstance(holder, dict):  # twice, the second time with another value
            marked = json.dumps(document | {marker: None}) if document is holder else None
            if marked is not None:
                return marked.replace(
                    json.dumps(marker) + ": null", f"{json.dumps(key)}: {nasty}"
                ).encode()
            holder[marker] = None
            return (
                json.dumps(document)
                .replace(json.dumps(marker) + ": null", f"{json.dumps(key)}: {nasty}")
                .encode()
            )
        case 3 if isinstance(holder, list):
            holder.insert(int(random.integers(len(holder) + 1)), holder[key])
        case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = [
                -holder[key],
                holder[key] + 1,
                holder[key] * 2,
                holder[key] / 2,
                float(holder[key]),
            ][int(random.integers(5))]
        case _:
            holder[key] = marker
    return json.dumps(document).replace(json.dumps(marker), nasty).encode()


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _stretch(data: bytes, random: Random) -> tuple[int, int]:
    start = int(random.integers(len(data) + 1))
    return start, int(min(len(data) - start, random.choice([1, 2, 4, 8, 16, 100, 1000])))


ANY: tuple[Damage, ...] = (
    truncated,
    flipped,
    written_over,
    moved,
    inserted,
    converted,
    inflated,
)
TEXT: tuple[Damage, ...] = (
    truncated,
    flipped,
    written_over,
    moved,
    inserted,
    converted,
    lines_edited,
    lines_edited,
)
JSON: tuple[Damage, ...] = (
    *TEXT,
    json_edited,
    json_edited,
    json_edited,
    json_edited,
    json_edited,
    json_edited,
)


def _with_a_socket(path: Path) -> None:
    place = os.open(path.parent, os.O_RDONLY)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as held:
            held.bind(f"/proc/self/fd/{place}/{path.name}")
    finally:
        os.close(place)


def _with_a_chain(path: Path) -> None:
    other = path.with_name(path.name + ".kept")
    path.symlink_to(other.name)
    other.symlink_to(path.name)


def _with_a_link_outside(path: Path) -> None:
    outside = path.parent.parent / "outside"
    shutil.move(path, outside)
    path.symlink_to(outside)


STAND_INS: dict[str, Callable[[Path], object]] = {
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "kernel": lambda path: path.symlink_to("/proc/kmsg"),
    "loop": lambda path: path.symlink_to(path.name),
    "outside": _with_a_link_outside,
    "nowhere": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": _with_a_socket,
    "gone": lambda path: None,
    "chain": _with_a_chain,
}
"""What may be where a file was."""


def replaced(path: Path, random: Random) -> str:
    """Put something that is no ordinary file where one was, or forbid to read it; return what."""
    kinds = ["forbidden", *STAND_INS]
    kind = kinds[int(random.integers(len(kinds)))]
    if kind == "forbidden":
        path.chmod(0)
    else:
        if kind != "outside":
            path.unlink()
        STAND_INS[kind](path)
    return kind
