"""What a decoder drafts level by level, read from its text: parsed, never executed."""

from __future__ import annotations

import ast

_MOST_LEVELS = 1_000
_MOST_TEXT = 10_000


def levels_of(decoder: str) -> tuple[str, str, tuple[int, ...]] | None:
    """Return (law, verifier, children of a vertex by level) of a decoder's text, None where levels do not look alike.

    The text is parsed, not executed, and no tree is built from it.

    >>> levels_of("DraftSelection(4, 3, RecursiveRejection())")
    ('IID', 'RecursiveRejection', (4, 1, 1))
    >>> levels_of("Gsd(specinfer(6))") is None
    True
    """
    try:
        call = ast.parse(decoder[:_MOST_TEXT].strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return None
    arguments = list(call.args)
    match call.func.id, len(arguments):
        case "SpeculativeSampling", 1 | 2:
            return _plan("IID", _name(arguments[1:], "Maximal"), _chain(arguments[0]))
        case "DraftSelection", 2 | 3:
            first, rest = _count(arguments[0]), _chain(arguments[1])
            return _plan("IID", _name(arguments[2:], "KSeq"), (first, *rest[1:]) if first and rest else ())
        case "PrefixTree", 1 | 2:
            return _plan("IID", _name(arguments[1:], "KSeq"), _counts(arguments[0]))
        case "Gsd", 1:
            return _plan("WithoutReplacement", "RecursiveRejection", _shape(arguments[0]))
        case "TreeVerification", 3:
            law = arguments[1].func.id if isinstance(arguments[1], ast.Call) and isinstance(arguments[1].func, ast.Name) else ""
            return _plan(law, _name(arguments[2:], ""), _shape(arguments[0]))
    return None


def most_tokens(decoder: str, drafted: int) -> int:
    """Return the most tokens that one target call can yield: one more than levels, than drafted tokens where levels are unknown.

    >>> most_tokens("DraftSelection(4, 2)", 8), most_tokens("Ersd(batch(4))", 4)
    (3, 5)
    """
    plan = levels_of(decoder)
    return 1 + (drafted if plan is None else min(drafted, len(plan[2])))


def _plan(law: str, verifier: str, counts: tuple[int, ...]) -> tuple[str, str, tuple[int, ...]] | None:
    return (law, verifier, counts) if law and verifier and counts else None


def _name(arguments: list[ast.expr], default: str) -> str:
    """Return the name of a verifier written without parameters; nothing for one with, which the run did not measure."""
    if not arguments:
        return default
    call = arguments[0]
    plain = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args and not call.keywords
    return call.func.id if plain else ""  # type: ignore[attr-defined]


def _count(node: ast.expr) -> int:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int and 1 <= value <= _MOST_LEVELS else 0


def _chain(node: ast.expr) -> tuple[int, ...]:
    return (1,) * _count(node)


def _counts(node: ast.expr) -> tuple[int, ...]:
    found = [_count(item) for item in node.elts] if isinstance(node, ast.Tuple | ast.List) else []
    return tuple(found) if all(found) else ()


def _shape(node: ast.expr) -> tuple[int, ...]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) != 1 or node.keywords:
        return ()
    match node.func.id:
        case "chain":
            return _chain(node.args[0])
        case "batch":
            return (_count(node.args[0]),) if _count(node.args[0]) else ()
        case "prefix_tree":
            return _counts(node.args[0])
    return ()
