"""Traces in the form of engines: a JSON object per line and prompt, a file for each model.

Three shapes are understood (docs/traces.md): vLLM's `prompt_logprobs`, chat completions
(`choices[0].logprobs.content`, OpenAI and most servers) and completions
(`choices[0].logprobs.top_logprobs`). What an engine leaves open is taken at its worst, so that the
bounds stay true: the sampled token, which engines add to the list, does not count as one of the
most likely, and names of tokens that may hide others widen the cap.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from otm._machine.strict_json import plain_json
from otm.errors import OtmError
from otm.partial import PartialPair, TopTokens

from ..errors import AnalysisError
from ..files import has_content, read_lines
from .base import LARGEST_LIST, Trace, TraceBatch, check_entries, check_reading

_LONGEST_LINE = 1 << 26
_MOST_NAMES = 1 << 23
_UNLIKELY = -9999.0  # what engines write for "less likely than anything listed", or for −∞


@dataclasses.dataclass(frozen=True)
class Listed:
    """One position of one model: log-probabilities by token, the log of the cap, the actual token.

    Tokens are numbers, or names.

    The cap is None where nothing bounds the tokens not listed but the mass left for them. `actual`
    is None if not told.
    """

    logs: dict[int | str, float]
    log_cap: float | None
    actual: int | str | None


@dataclasses.dataclass(frozen=True, eq=False)
class JsonLinesTrace(Trace):
    """Two JSON-lines files read side by side, one line of each in memory."""

    draft: Path
    target: Path
    rounding: float

    @property
    def files(self) -> tuple[Path, ...]:
        """The draft's answers and the target's."""
        return self.draft, self.target

    @property
    def num_positions(self) -> None:
        """None, as the number is unknown until read."""
        return

    def batches(self, *, rows: int = 512, start: int = 0) -> Iterator[TraceBatch]:
        """Parse both files from the top; positions before `start` are parsed and left out."""
        check_reading(rows, start)
        names: dict[str, int] = {}
        positions = itertools.islice(self._positions(), start, None)
        group: list[tuple[int, int, Listed, Listed]] = []
        entries = 0
        for row in positions:
            group.append(row)
            entries += len(row[2].logs) + len(row[3].logs)
            check_entries(entries)
            if len(group) == rows:
                yield self._batch(group, names)
                group, entries = [], 0
        if group:
            yield self._batch(group, names)

    def _positions(self) -> Iterator[tuple[int, int, Listed, Listed]]:
        pairs = itertools.zip_longest(_lines(self.draft), _lines(self.target))
        for prompt, (one, two) in enumerate(pairs):
            if one is None or two is None:
                short, long = (
                    (self.draft, self.target) if one is None else (self.target, self.draft)
                )
                count = "1 line" if prompt == 1 else f"{prompt} lines"
                raise AnalysisError(
                    f"{short.name} ends after {count}, {long.name} goes on. Give a line per "
                    "prompt in both."
                )
            where = [f"{path.name}, line {prompt + 1}" for path in (self.draft, self.target)]
            for position, p, q in _aligned(
                _positions_of(one, where[0]), _positions_of(two, where[1]), where
            ):
                yield prompt, position, p, q

    def _batch(
        self, group: list[tuple[int, int, Listed, Listed]], names: dict[str, int]
    ) -> TraceBatch:
        try:
            draft, target = (
                _tops(list(column), names, self.rounding)
                for column in zip(*(row[2:] for row in group), strict=True)
            )
            pair = PartialPair(draft=draft, target=target, num_tokens=self.num_tokens)
        except OtmError as error:
            first, last = group[0][:2], group[-1][:2]
            raise AnalysisError(
                f"{self.draft.name} and {self.target.name}, line {first[0] + 1} position "
                f"{first[1]} to line {last[0] + 1} position "
                f"{last[1]}, describe no distributions: {error}"
            ) from error
        prompt, position = (np.asarray([row[i] for row in group], dtype=np.int64) for i in (0, 1))
        return TraceBatch(pair=pair, prompt=prompt, position=position)


def _lines(path: Path) -> Iterator[Any]:
    if not has_content(path):
        raise AnalysisError(
            f"{path.name} must be a regular file with a line per prompt; it is none, or empty. "
            "Write it again."
        )
    for number, line in read_lines(path, _LONGEST_LINE):
        if line.isspace():
            continue
        try:
            yield plain_json(line, constant=_log_of_zero)
        except (ValueError, RecursionError) as error:
            raise AnalysisError(
                f"Line {number} of {path.name} must be JSON in UTF-8; it is not ({error}). Write "
                "it again."
            ) from error


def _aligned(
    draft: list[Listed | None], target: list[Listed | None], where: list[str]
) -> Iterator[tuple[int, Listed, Listed]]:
    """Yield the positions whose contexts agree, up to the first where the texts differ."""
    if all(one is None or one.actual is None for one in (*draft, *target)) and len(draft) != len(
        target
    ):
        raise AnalysisError(
            f"Both models must be asked at the same positions; {where[0]} has {len(draft)} and "
            f"{where[1]} {len(target)}. "
            "Send the same prompt to both."
        )
    for position, (p, q) in enumerate(zip(draft, target, strict=False)):
        if (p is None) != (q is None):
            raise AnalysisError(
                f"Position {position} has a list in one of {where[0]} and {where[1]} only. Ask "
                "both alike."
            )
        if p is None or q is None:
            continue
        if type(next(iter(p.logs), 0)) is not type(next(iter(q.logs), 0)) and p.logs and q.logs:
            raise AnalysisError(
                f"{where[0]} and {where[1]} must both name tokens by number or both by text; they "
                "differ. "
                "vLLM writes numbers with return_tokens_as_token_ids."
            )
        yield position, p, q
        if p.actual is not None and q.actual is not None and p.actual != q.actual:
            return


def _positions_of(line: Any, where: str) -> list[Listed | None]:
    """Return the lists of one line in any of the three shapes."""
    body = line
    for key in ("response", "body"):  # a line of a batch answer wraps the response
        if isinstance(body, dict) and isinstance(body.get(key), dict):
            body = body[key]
    choices = body.get("choices") if isinstance(body, dict) else None
    if isinstance(choices, list) and len(choices) > 1:
        raise AnalysisError(
            f"{where} must hold one answer (n = 1); it holds {len(choices)}. Write one line per "
            "answer."
        )
    choice = choices[0] if isinstance(choices, list) and choices else body
    for holder in (choice, body):
        if isinstance(holder, dict) and isinstance(holder.get("prompt_logprobs"), list):
            ids = holder.get("prompt_token_ids") or body.get("prompt_token_ids")
            return _prompt_positions(
                holder["prompt_logprobs"], ids if isinstance(ids, list) else [], where
            )
    logs = choice.get("logprobs", choice) if isinstance(choice, dict) else None
    if isinstance(logs, dict) and isinstance(logs.get("content"), list):
        return [
            _chat_position(entry, f"{where}, position {i}")
            for i, entry in enumerate(logs["content"])
        ]
    if isinstance(logs, dict) and isinstance(logs.get("top_logprobs"), list):
        return _completion_positions(logs, where)
    raise AnalysisError(
        f"{where} must hold prompt_logprobs, logprobs.content or logprobs.top_logprobs; it holds "
        "none. Ask the engine for them."
    )


def _prompt_positions(entries: list[Any], ids: list[Any], where: str) -> list[Listed | None]:
    """Read vLLM's lists: per position null or {token number: {logprob, rank, decoded_token}}."""
    found: list[Listed | None] = []
    for i, entry in enumerate(entries):
        place = f"{where}, position {i}"
        if entry is None:
            found.append(None)
            continue
        if not isinstance(entry, dict):
            raise AnalysisError(
                f"{place} must map token numbers to log-probabilities; got {entry!r:.80}."
            )
        logs: dict[int | str, float] = {}
        ranks: dict[int | str, int] = {}
        for key, value in entry.items():
            token = _number(key, place)
            logs[token] = _log(value.get("logprob") if isinstance(value, dict) else value, place)
            rank = value.get("rank") if isinstance(value, dict) else None
            if rank is not None and (
                isinstance(rank, bool) or not isinstance(rank, int) or rank < 1
            ):
                raise AnalysisError(
                    f"{place} must rank tokens from 1 on, or not at all; got {rank!r:.40}. Write "
                    "it again."
                )
            if rank is not None:
                ranks[token] = rank
        actual = ids[i] if i < len(ids) and isinstance(ids[i], int) else None
        # An entry ranked within the length of the list is one of the most likely; without a rank it
        # may be the added one.
        least = min(logs, key=logs.__getitem__, default=0)
        surely_top = ranks.get(least, len(logs) + 1) <= len(logs)
        cap = min(
            (value for token, value in logs.items() if surely_top or token != least), default=None
        )
        found.append(_listed(logs, cap, actual, place))
    return found


def _chat_position(entry: Any, place: str) -> Listed:
    """Read chat completions: {token, bytes, logprob, top_logprobs: [{token, logprob, …}, …]}."""
    if not isinstance(entry, dict) or not isinstance(entry.get("top_logprobs"), list):
        raise AnalysisError(
            f"{place} must have top_logprobs; ask for them with logprobs=true, top_logprobs=m."
        )
    items = [
        (_name(item, place), _log(item.get("logprob"), place)) for item in entry["top_logprobs"]
    ]
    own = _name(entry, place), _log(entry.get("logprob"), place)
    seen = collections.Counter(name for name, _ in items)
    # The least likely entry may be the sampled token, which some servers put in the list whatever
    # its rank.
    least = min((value for _, value in items), default=0.0)
    certain = [value for name, value in items if not (name == own[0] and value == least)]
    # Two tokens of one spelling cannot be told apart: they count as not listed, and the cap must
    # admit them.
    hidden = [value for name, value in items if seen[name] > 1]
    logs = {name: value for name, value in items if seen[name] == 1}
    if own[0] not in seen:
        logs[own[0]] = own[1]
    cap = max([min(certain), *hidden]) if certain else None
    return _listed(logs, cap, own[0], place)


def _completion_positions(logs: Mapping[str, Any], where: str) -> list[Listed | None]:
    """Read completions: tokens, token_logprobs, top_logprobs [null or {token: logprob}, …]."""
    found: list[Listed | None] = []
    tokens, own = logs.get("tokens"), logs.get("token_logprobs")
    for i, entry in enumerate(logs["top_logprobs"]):
        place = f"{where}, position {i}"
        if entry is None:
            found.append(None)
            continue
        if not isinstance(entry, dict):
            raise AnalysisError(f"{place} must map tokens to log-probabilities; got {entry!r:.80}.")
        listed = {_name({"token": key}, place): _log(value, place) for key, value in entry.items()}
        actual = (
            _name({"token": tokens[i]}, place)
            if isinstance(tokens, list) and i < len(tokens)
            else None
        )
        if actual is not None and isinstance(own, list) and i < len(own) and own[i] is not None:
            listed.setdefault(actual, _log(own[i], place))
        least = min(listed, key=listed.__getitem__, default="")
        doubtful = least if actual is None or least == actual else None
        cap = min((value for token, value in listed.items() if token != doubtful), default=None)
        # Keys that are texts can coincide for two tokens, and then one of any likelihood is
        # missing.
        by_number = all(isinstance(token, int) for token in listed)
        found.append(_listed(listed, cap if by_number else None, actual, place))
    return found


def _listed(
    logs: dict[int | str, float], log_cap: float | None, actual: int | str | None, place: str
) -> Listed:
    """Check a list and drop entries without probability."""
    if len(logs) > LARGEST_LIST or len({type(token) for token in logs}) > 1:
        raise AnalysisError(
            f"{place} must list at most {LARGEST_LIST} tokens, all by number or all by text; it "
            "does not."
        )
    return Listed(
        {token: value for token, value in logs.items() if value > _UNLIKELY}, log_cap, actual
    )


def _number(key: str, place: str) -> int:
    if key.isascii() and key.isdigit() and len(key) < 10:
        return int(key)
    raise AnalysisError(f"{place} must name tokens by number; got {key!r:.40}.")


def _name(item: Any, place: str) -> int | str:
    """Return a token's number if written `token_id:N`, else the bytes or the text."""
    if not isinstance(item, dict) or not isinstance(item.get("token"), str):
        raise AnalysisError(f"{place} must name each token; got {item!r:.80}.")
    token: str = item["token"]
    spelled = item.get("bytes")
    if token.startswith("token_id:"):
        return _number(token.removeprefix("token_id:"), place)
    if spelled is not None:
        if not isinstance(spelled, list) or not all(
            type(b) is int and 0 <= b < 256 for b in spelled
        ):
            raise AnalysisError(
                f"{place} must spell tokens as bytes from 0 to 255, or null; got {spelled!r:.80}."
            )
        return "b:" + bytes(spelled).hex()
    return "b:" + token.encode("utf-8", "surrogatepass").hex()


def _log(value: Any, place: str) -> float:
    # NaN is not
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0.1:
        return max(value, _UNLIKELY) + 0.0  # as a float, and what is below counts the same
    raise AnalysisError(f"{place} must give log-probabilities, numbers ≤ 0; got {value!r:.40}.")


def _tops(column: list[Listed], names: dict[str, int], rounding: float) -> TopTokens:
    """Pad the lists of one model to an array, numbering names in order of appearance."""
    width = max(1, *(len(listed.logs) for listed in column))
    tokens = np.full((len(column), width), -1, dtype=np.int64)
    mass = np.zeros((len(column), width))
    cap = np.ones(len(column))
    for row, listed in enumerate(column):
        for place, (token, value) in enumerate(listed.logs.items()):
            tokens[row, place] = (
                token if isinstance(token, int) else names.setdefault(token, len(names))
            )
            mass[row, place] = math.exp(value)
        if listed.log_cap is not None:
            cap[row] = min(1.0, math.exp(listed.log_cap))
    if len(names) > _MOST_NAMES:
        raise AnalysisError(
            f"A trace may name {_MOST_NAMES} tokens; this one names more. Check that the texts are "
            "tokens."
        )
    tail = np.maximum(1.0 - mass.sum(axis=1), 0.0)
    return TopTokens(
        tokens=tokens,
        probabilities=mass,
        tail=tail,
        cap=np.minimum(cap, np.maximum(tail, 0.0)),
        rounding=rounding,
    )


def _log_of_zero(name: str) -> float:
    """Take -Infinity, which engines write for the logarithm of 0."""
    if name != "-Infinity":
        raise ValueError(f"{name} is no number")
    return -math.inf
