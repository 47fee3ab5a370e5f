"""Decoders written as text: the library's own constructors, called with literals, and nothing else.

`DraftSelection(4, 8, RecursiveRejection())`, `Gsd(chain(5))`, `Ersd(parents([0, 0, 1]))`: what the
documentation writes is what a command line takes. The text is parsed, never executed, and only the
names listed here mean anything. A report reads the levels of a decoder from the same text, where it
builds no large tree: a results file comes from strangers, and a text may name a tree of any size.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

import otm
from otm._display.tabular import shortened
from otm.sequence import DECODERS, Decoder
from otm.sequence.vertex_decoder import VertexDecoder
from otm.trees import TreeShape

from ..errors import AnalysisError

_MAX_TEXT = 10_000
_MOST_VERTICES = 1 << 20
"""Most vertices of a tree that is built to read its levels."""
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


def levels_of(decoder: str) -> tuple[str, otm.Verifier, tuple[int, ...]] | None:
    """Return (law, verifier, children of a vertex by level) of a decoder's text.

    None if vertices of one level have different numbers of children.

    >>> levels_of("DraftSelection(4, 3, RecursiveRejection())")
    ('IID', RecursiveRejection(), (4, 1, 1))
    >>> levels_of("Gsd(parents([0, 0, 1]))") is None
    True
    """
    names = _names()
    try:
        node = ast.parse(decoder[:_MAX_TEXT].strip(), mode="eval").body
        _require_small(node)
        found = _value(node, names)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, otm.OtmError):
        return None
    if not isinstance(found, VertexDecoder):
        return None
    shape = found.shape
    counts = [set(shape.num_children[shape.levels == i].tolist()) for i in range(shape.depth)]
    if any(len(level) > 1 for level in counts):
        return None
    law = type(found.law(1))
    return law.__name__, found.verifier, tuple(level.pop() for level in counts)


def most_tokens(decoder: str, drafted: int) -> int:
    """Return the most tokens that one target call can yield.

    One more than levels, or than drafted tokens where levels are unknown.

    >>> most_tokens("DraftSelection(4, 2)", 8), most_tokens("Ersd(batch(4))", 4)
    (3, 5)
    """
    plan = levels_of(decoder)
    return 1 + (drafted if plan is None else min(drafted, len(plan[2])))


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


def _require_small(node: ast.expr) -> None:
    """Raise `ValueError` on numbers that could stand for a large tree."""
    numbers = [
        max(1, part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, int)
    ]
    if len(numbers) * math.prod(numbers) > _MOST_VERTICES:
        raise ValueError("it names a large tree")
