"""Texts with log-probabilities from servers' responses: the forms of a text, and the reader.

The plain form is one JSON object a line, for whatever writes none of the others::

    {
        "tokens": [5, 9],
        "top": [[[5, -0.1], [7, -2.5]], [[9, -0.7], [3, -0.7]]],
        "prompt": [1, 4],
        "finish": "stop",
    }

`top` lists, for each token, the likeliest tokens at its place with their log-probabilities; of text
that was sampled, with the noise added by which it was chosen. `prompt` (anything that can be
compared), `finish` ("stop" or "length") and `forced` may be left out; `forced` says that the tokens
were given, and that only the log-probabilities are the run's own.

Read as well, a response a line, a list of them, or one:

* OpenAI's, as vLLM, SGLang, llama.cpp and others write them: `choices[].logprobs`, of a chat
  (`content[].top_logprobs`) or of a completion (`tokens`, `top_logprobs`);
* SGLang's own, `meta_info.output_token_logprobs` and `output_top_logprobs`, triples of
  log-probability, token and text;
* llama.cpp's own, `completion_probabilities[].top_logprobs`, or `top_probs` after its samplers.

llama.cpp writes no list for a token that it accepted from a draft.

Sources of the forms: github.com/vllm-project/vllm, vllm/entrypoints/openai/chat_completion/
serving.py at 5e918640; github.com/sgl-project/sglang, python/sglang/srt/managers/
tokenizer_manager_components/logprob_ops.py at 229224a3; github.com/ggml-org/llama.cpp,
tools/server/server-task.cpp at 17f5f8a8.

A token is its number where that is told ("token_id:5" is one, vLLM's return_tokens_as_token_ids),
else its text, or its bytes where the text is part of a character and `bytes` are told.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from otm.audit.token_log import InvalidRecord
from otm.engines.records.document import read_document

Token = int | str
Object = dict[str, Any]

_NUMBERED = re.compile(r"token_id:(\d{1,9})")

_MASKED = -1000.0
"""Engines write minus infinity as a number below this: −9999 (vLLM), −3.4e38 (llama.cpp)."""

_ENDS = {"length": "length", "limit": "length", None: "", "": "", "none": ""}
"""Engines' names for the ends of a text; any other name is a stop."""

_OWN = frozenset({"tokens", "top", "prompt", "finish", "forced"})


@dataclasses.dataclass(frozen=True, eq=False)
class LoggedText:
    """One text of a run.

    Attributes:
        tokens: numbers, or texts where numbers are not told.
        top: for each token, the log-probabilities of the likeliest at its place; empty where they
            were not logged.
        prompt: what it continues; None if that is not told.
        finish: "stop", "length", or "" if that is not told.
        forced: whether the tokens were given, and the log-probabilities alone are the run's own.
    """

    tokens: tuple[Token, ...]
    top: tuple[dict[Token, float], ...]
    prompt: Any = None
    finish: str = ""
    forced: bool = False


def read_texts(path: str | os.PathLike[str]) -> list[LoggedText]:
    r"""Read the texts of a run in any known form, in order.

    Args:
        path: JSON or JSON lines, in one of the forms above; "-" for standard input.

    Raises:
        InvalidParameter: if it cannot be read as UTF-8 text.
        InvalidRecord: on the first object that is of no known form, with its number.
        TooLarge: beyond 256 Mi characters.

    Cost: O(length of the file).

    >>> import pathlib, tempfile
    >>> line = '{"completion_probabilities": [{"id": 5, "token": " a", "logprob": -0.5,'
    >>> line += ' "top_logprobs": [{"id": 5, "logprob": -0.5}, {"id": 7, "logprob": -1.5}]}]}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "run.jsonl")
    ...     _ = file.write_text(line + "\n")
    ...     [(text.tokens, text.top) for text in read_texts(file)]
    [((5,), ({5: -0.5, 7: -1.5},))]
    """
    values = read_document(path).values
    objects = [one for value in values for one in (value if isinstance(value, list) else [value])]
    found: list[LoggedText] = []
    for number, one in enumerate(objects, start=1):
        try:
            found += _texts(one)
        except (InvalidRecord, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InvalidRecord(
                f"Object {number} of {os.fspath(path)!r:.80} holds no text with its "
                f"log-probabilities ({type(error).__name__}: {error!s:.200}). See "
                "otm.audit.text_log for the forms."
            ) from error
    return found


def _texts(found: Object) -> Iterator[LoggedText]:
    """Yield the texts of one response."""
    for key, read in _FORMS.items():
        if key in found:
            yield from read(found)
            return
    raise InvalidRecord(f"it has none of the keys {', '.join(_FORMS)}")


def _of_choices(found: Object) -> Iterator[LoggedText]:
    """Read OpenAI's form, with a prompt for the whole response or for each choice."""
    for choice in found["choices"]:
        logged = choice.get("logprobs") or {}
        prompt = choice.get("prompt_token_ids", found.get("prompt_token_ids"))
        finish = choice.get("finish_reason")
        if logged.get("content") is not None:
            yield _of_entries(logged["content"], prompt, finish)
        elif logged.get("tokens") is not None:
            tops = logged.get("top_logprobs") or [None] * len(logged["tokens"])
            yield _text(logged["tokens"], [(top or {}).items() for top in tops], prompt, finish)
        else:
            yield _text(choice["token_ids"], [()] * len(choice["token_ids"]), prompt, finish)


def _of_entries(entries: list[Object], prompt: Any, finish: Any) -> LoggedText:
    """Read a list of tokens, each an object with a list of the likeliest tokens."""

    def name(entry: Object) -> Token:
        found: Token = entry["id"] if "id" in entry else entry["token"]
        return str(bytes(entry["bytes"])) if nameless(found) and entry.get("bytes") else found

    def value(entry: Object) -> float:
        if "logprob" in entry:
            return float(entry["logprob"])
        return math.log(entry["prob"]) if entry["prob"] > 0 else -math.inf

    tops = [entry.get("top_logprobs") or entry.get("top_probs") or () for entry in entries]
    listed = [[(name(one), value(one)) for one in top] for top in tops]
    return _text([name(entry) for entry in entries], listed, prompt, finish)


def _of_meta(found: Object) -> Iterator[LoggedText]:
    """Read SGLang's own form."""
    meta = found["meta_info"]
    chosen = meta["output_token_logprobs"]
    tops = meta.get("output_top_logprobs") or [None] * len(chosen)
    finish = meta.get("finish_reason")
    yield _text(
        [token for _, token, *_ in chosen],
        [[(token, value) for value, token, *_ in top or ()] for top in tops],
        None,
        finish.get("type") if isinstance(finish, dict) else finish,
    )


def _of_tokens(found: Object) -> Iterator[LoggedText]:
    """Read the plain form."""
    if unknown := set(found) - _OWN:  # a misspelt "top" would pass for none
        raise InvalidRecord(f"keys are {', '.join(sorted(_OWN))}; got {sorted(unknown)!r:.100}")
    tokens, tops = found["tokens"], found.get("top") or [()] * len(found["tokens"])
    yield _text(tokens, tops, found.get("prompt"), found.get("finish"), found.get("forced", False))


_FORMS: dict[str, Callable[[Object], Iterable[LoggedText]]] = {
    "choices": _of_choices,
    "meta_info": _of_meta,
    "completion_probabilities": lambda found: [
        _of_entries(found["completion_probabilities"], found.get("prompt"), found.get("stop_type"))
    ],
    "tokens": _of_tokens,
}
"""The forms by a key of the object; llama.cpp's own form has `tokens` beside the key."""


def _text(
    tokens: list[Any], tops: list[Any], prompt: Any, finish: Any, forced: bool = False
) -> LoggedText:
    """Check the parts of a text, and return the text."""
    if len(tokens) != len(tops) or type(forced) is not bool:
        raise InvalidRecord(f"{len(tokens)} tokens need as many lists; got {len(tops)}")
    listed = tuple(_listed(top) for top in tops)
    return LoggedText(tuple(map(_token, tokens)), listed, prompt, _ENDS.get(finish, "stop"), forced)


def _listed(top: Iterable[Any]) -> dict[Token, float]:
    """Return a list of tokens without masked or nameless entries, and without repetitions.

    >>> _listed([(5, -0.5), ("token_id:7", -9999.0), (" a", -2.0), (" a", -1.0)])
    {5: -0.5, ' a': -1.0}
    """
    found: dict[Token, float] = {}
    for name, value in top:
        number = float(value)
        if _MASKED < number < math.inf and not nameless(name):
            found[_token(name)] = max(number, found.get(_token(name), -math.inf))
    return found


def nameless(token: Any) -> bool:
    """True if a text may stand for several tokens: parts of a character all read U+FFFD.

    >>> nameless(" a"), nameless("\ufffd"), nameless(65533)
    (False, True, False)
    """
    return isinstance(token, str) and "\ufffd" in token


def _token(name: Any) -> Token:
    """Return the number of a token, or the text where there is no number."""
    if isinstance(name, str):
        numbered = _NUMBERED.fullmatch(name)
        return int(numbered[1]) if numbered else name
    if type(name) is not int or not 0 <= name < 2**31:
        raise InvalidRecord(f"tokens are integers ≥ 0 or texts; got {name!r:.40}")
    return name
