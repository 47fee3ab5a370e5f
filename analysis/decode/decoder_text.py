"""Decoders written as text: the library's own constructors, called with literals, and nothing else.

`DraftSelection(4, 8, RecursiveRejection())`, `Gsd(chain(5))`, `Ersd(parents([0, 0, 1]))`: what the
documentation writes is what a command line takes. The text is parsed, never executed, and only the
names listed here mean anything.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable
from typing import Any

import otm
from otm._display.tabular import shortened
from otm.sequence import DECODERS, Decoder
from otm.trees import TreeShape

from ..errors import AnalysisError

_MAX_TEXT = 10_000
_EXAMPLE = "'DraftSelection(4, 8)' or 'Gsd(chain(5))'"


def decoder_from_text(text: str) -> Decoder:
    """Return the decoder that a text names.

    Args:
        text: one constructor call of `otm.sequence.DECODERS`; its arguments are numbers, tuples,
            and further calls: verifiers (`otm.verifiers.VERIFIERS`), draft laws
            (`otm.drafts.LAWS`), shapes (`chain(5)`, `batch(8)`, `sequences(4, 8)`, `prefix_tree((4,
            2))`, `specinfer(6)`, `parents([0, 0, 1])`).

    Raises:
        AnalysisError: if the text is anything else.
    """
    names, said = _names(), repr(shortened(text, 60))
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError(f"it has {len(text)} characters")
        found = _value(ast.parse(text.strip(), mode="eval").body, names)
    except SyntaxError as error:
        raise AnalysisError(
            f"{said} names no decoder: {error.msg}. Write one like {_EXAMPLE}."
        ) from error
    except (ValueError, TypeError, RecursionError, MemoryError, otm.OtmError) as error:
        raise AnalysisError(
            f"{said} names no decoder: {error} Write one like {_EXAMPLE}."
        ) from error
    if not isinstance(found, Decoder):
        raise AnalysisError(
            f"{said} is a {type(found).__name__}, not a decoder. Write one of "
            f"{', '.join(d.__name__ for d in DECODERS)}."
        )
    return found


def most_tokens(decoder: str, drafted: int) -> int:
    """Return the most tokens that one target call can yield.

    One more than the decoder's levels; than drafted tokens where a name is no decoder's text.

    >>> most_tokens("DraftSelection(4, 2)", 8), most_tokens("an experiment's label", 4)
    (3, 5)
    """
    try:
        depth = decoder_from_text(decoder).depth
    except AnalysisError:
        depth = drafted
    return 1 + min(drafted, depth)


def _names() -> dict[str, Callable[..., Any]]:
    shapes: dict[str, Callable[..., Any]] = {
        "chain": TreeShape.chain,
        "batch": TreeShape.batch,
        "sequences": TreeShape.sequences,
        "prefix_tree": TreeShape.prefix_tree,
        "specinfer": TreeShape.specinfer,
        "parents": TreeShape,
    }
    classes: tuple[type, ...] = (*DECODERS, *otm.verifiers.VERIFIERS, *otm.drafts.LAWS)
    return {cls.__name__: cls for cls in classes} | shapes


def _value(node: ast.expr, names: dict[str, Callable[..., Any]]) -> Any:
    """Evaluate a literal or a call of a known name; `TreeShape.chain(5)` is `chain(5)`."""
    match node:
        case ast.Constant(int() | float() | str() | None as value):
            return value
        case ast.Tuple(items) | ast.List(items):
            return tuple(_value(item, names) for item in items)
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return -value  # type: ignore[operator]
        case ast.Call(ast.Name(name), given, named) | ast.Call(
            ast.Attribute(ast.Name("TreeShape"), name), given, named
        ):
            return _called(name, given, named, names)
    raise ValueError(f"{ast.unparse(node)!r} is neither a literal nor a call of a known name.")


def _called(
    name: str,
    given: list[ast.expr],
    named: list[ast.keyword],
    names: dict[str, Callable[..., Any]],
) -> Any:
    """Call the constructor of a name, or raise `ValueError` for a wrong name or wrong arguments."""
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"decoders are {', '.join(d.__name__ for d in DECODERS)}."
        )
        raise ValueError(f"{name!r} is unknown; {hint}")
    keywords = {item.arg: _value(item.value, names) for item in named if item.arg is not None}
    if len(keywords) < len(named):
        raise ValueError("** is not allowed.")
    arguments = [_value(item, names) for item in given]
    try:
        inspect.signature(names[name]).bind(*arguments, **keywords)
    except TypeError as error:
        raise ValueError(f"{name} was given the wrong arguments: {error}.") from error
    return names[name](*arguments, **keywords)
