"""Decoders written as text: the library's own constructors, called with literals, and nothing else.

`DraftSelection(4, 8, RecursiveRejection())`, `Gsd(chain(5))`, `Ersd(tree('tree.json'))`: what the documentation writes is what a
command line takes. The text is parsed, never executed, and only the names listed here mean anything.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import otm
from otm.sequence import DECODERS, Decoder
from otm.trees import TreeShape, tree_from_json

from ..errors import AnalysisError

_MAX_TEXT = 10_000
_MAX_FILE = 1 << 26


def decoder_from_text(text: str, *, folder: Path = Path()) -> Decoder:
    """Return the decoder that a text names.

    Args:
        text: one constructor call of `otm.sequence.DECODERS`; its arguments are numbers, tuples, and further calls: verifiers
            (`otm.verifiers.VERIFIERS`), draft laws (`otm.drafts.LAWS`), shapes (`chain(5)`, `batch(8)`, `sequences(4, 8)`,
            `prefix_tree((4, 2))`, `specinfer(6)`, `parents([0, 0, 1])`, `tree('tree.json')`).
        folder: where the files named by `tree` are; they may not lie outside it.

    Raises:
        AnalysisError: if the text is anything else.
    """
    names = _names(folder)
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError(f"it has {len(text)} characters")
        found = _value(ast.parse(text.strip(), mode="eval").body, names)
    except SyntaxError as error:
        raise AnalysisError(f"{_short(text)} names no decoder: {error.msg}. Write one like {_example()}.") from error
    except (ValueError, TypeError, RecursionError, MemoryError, otm.OtmError) as error:
        raise AnalysisError(f"{_short(text)} names no decoder: {error} Write one like {_example()}.") from error
    if not isinstance(found, Decoder):
        raise AnalysisError(
            f"{_short(text)} is a {type(found).__name__}, not a decoder. Write one of {', '.join(d.__name__ for d in DECODERS)}."
        )
    return found


def _names(folder: Path) -> dict[str, Callable[..., Any]]:
    shapes = {
        "chain": TreeShape.chain,
        "batch": TreeShape.batch,
        "sequences": TreeShape.sequences,
        "prefix_tree": TreeShape.prefix_tree,
        "specinfer": TreeShape.specinfer,
        "parents": TreeShape.from_parents,
        "tree": lambda name: _read_tree(_inside(folder, name)),
    }
    return {cls.__name__: cls for cls in (*DECODERS, *otm.verifiers.VERIFIERS, *otm.drafts.LAWS)} | shapes


def _value(node: ast.expr, names: dict[str, Callable[..., Any]]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(item, names) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value  # type: ignore[operator]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "TreeShape":
        node = ast.Call(ast.Name(node.func.attr.removeprefix("from_")), node.args, node.keywords)  # as in Python
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"decoders are {', '.join(d.__name__ for d in DECODERS)}."
            raise ValueError(f"{name!r} is unknown; {hint}")
        keywords = {item.arg: _value(item.value, names) for item in node.keywords if item.arg is not None}
        if len(keywords) < len(node.keywords):
            raise ValueError("** is not allowed.")
        arguments = [_value(item, names) for item in node.args]
        try:
            inspect.signature(names[name]).bind(*arguments, **keywords)
        except TypeError as error:
            raise ValueError(f"{name} was given the wrong arguments: {error}.") from error
        return names[name](*arguments, **keywords)
    raise ValueError(f"{ast.unparse(node)!r} is neither a literal nor a call of a known name.")


def _read_tree(path: Path) -> TreeShape:
    if not path.is_file() or path.stat().st_size > _MAX_FILE:
        raise ValueError(f"{path.name!r} is no file of at most {_MAX_FILE:,} bytes.")
    shape = tree_from_json(path.read_text(encoding="utf-8")).shape
    if shape is None:
        raise ValueError(f"{path.name!r} holds no tree, only an acceptance vector.")
    return shape


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} lies outside {folder}.")
    return path


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _example() -> str:
    return "'DraftSelection(4, 8)' or 'Gsd(chain(5))'"
