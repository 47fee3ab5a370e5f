"""Strict JSON: no key twice in an object, and finite numbers only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from otm.errors import InvalidParameter


def plain_json(text: bytes | str, *, constant: Callable[[str], float] | None = None) -> Any:
    """Parse JSON, text or UTF-8.

    Args:
        text: the JSON.
        constant: what NaN, Infinity and -Infinity stand for, which some write; a number that is too
            large is one of the last two, and so is an integer of more digits than Python reads.
            Without, they are refused.

    Raises:
        ValueError: if it is no JSON (`json.JSONDecodeError`), no UTF-8, or not such JSON
            (`InvalidParameter`).
        RecursionError: if it is nested too deeply.

    >>> plain_json('{"rate": [0.5, NaN]}', constant=lambda name: -1.0)
    {'rate': [0.5, -1.0]}
    """
    content = text.decode("utf-8") if isinstance(text, bytes) else text
    return json_decoder(constant=constant).decode(content)


def json_decoder(*, constant: Callable[[str], float] | None = None) -> json.JSONDecoder:
    """Return the decoder of `plain_json`, which also reads JSON that other text follows."""
    meant = _refused if constant is None else constant

    def real(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else meant("Infinity" if value > 0 else "-Infinity")

    def whole(digits: str) -> float:
        try:
            return int(digits)
        except ValueError:
            return real(digits)

    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=meant,
        parse_float=real,
        parse_int=whole,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:  # readers would differ on which counts
            raise InvalidParameter(
                f"JSON must name every key of an object once; {key[:40]!r} is there twice. Remove "
                "one of them."
            )
        found[key] = value
    return found


def _refused(name: str) -> float:
    raise InvalidParameter(
        f"JSON must hold finite numbers; {name} is no number. Check what wrote it."
    )
