"""Audits of a running engine, which writes texts with a tiny pair of models whose laws are known.

An engine is more than its verifier: temperatures and filters, caches, batches and the order of
random numbers are its own. What it writes with a known pair has a known law, so that texts alone
tell whether it is lossless, whatever it is written in.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import multiprocessing.pool
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.progress import report_phase
from otm.audit import tiny_pair
from otm.audit.budget import USUAL, Errors
from otm.audit.report import STATE, Coverage
from otm.audit.sampled_audit import Drawing, Drawn, SampledAudit, audit_of_draws
from otm.audit.tracing.answers import naming_failures
from otm.engines.pages import fetch_page
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import check_instance, check_real

Write = Callable[[list[list[int]], int, float], Sequence[Sequence[int]]]
"""Writes a text of so many tokens after each prompt, at a temperature."""

LENGTH = 8
"""Tokens of a text, of which two neighbours are compared jointly."""

DETECT = 0.15
"""Total variation that texts are planned to find."""

_MOST, _FIRST_LOOK = 200_000, 1_024
_AT_ONCE = 16
"""Requests that a server has at a time, which it may verify in one batch."""

_UNKNOWN = [0] * LENGTH
_BATCH = 64
"""Texts that a function is asked for at a time."""

_PATIENCE = 120.0
"""Seconds for one answer of a server: the first request may compile."""


def engine(
    write: str | Write, *, temperature: float = 1.0, name: str = "", errors: Errors = USUAL
) -> SampledAudit:
    """Audit the texts that an engine writes with the tiny pair, against the target's law.

    `write_pair` writes the pair; start the engine on it with its drafts on.

    Args:
        write: the address of a server that completes prompts as OpenAI's does, or
            `write(prompts, length, temperature)` → a text for each prompt, tokens in lists. Every
            text needs randomness of its own.
        temperature: that texts are asked for; 0 is greedy.
        name: what to call the engine in the report; its address or name if empty.
        errors: as of `otm.audit.sampled`; `DETECT` is to be found unless they say otherwise.

    Returns:
        SampledAudit of two neighbouring tokens at a random place of each text jointly, with an
        interval of the total variation.

    Raises:
        InvalidParameter: if it is neither, the server refuses, or a text is not of the pair.
        CandidateFailure: if the function raises.
        KeyboardInterrupt: after Ctrl-C, with the audit of the texts so far as `found`, if there are
            any.

    Cost: some thousand texts of `LENGTH` tokens; fewer where the law is far away.

    >>> from otm.audit import tiny_pair
    >>> rows, rng = target_rows(1.0), np.random.default_rng(0)
    >>> def plain(prompts, length, temperature):
    ...     texts = []
    ...     for text in map(list, prompts):
    ...         for _ in range(length):
    ...             text.append(int(rng.choice(16, p=rows[text[-1]])))
    ...         texts.append(text[-length:])
    ...     return texts
    >>> engine(plain).verdict
    'no difference found'
    """
    heat = check_real(temperature, name="temperature", low=0.0)
    check_instance(name, str, name="name")
    if isinstance(write, str):
        writes: Write = functools.partial(_served, *_server(write))
    elif callable(write):
        writes = naming_failures()(write)
    else:
        raise InvalidParameter(
            "An engine must be a server's address or a function write(prompts, length, "
            f"temperature); got {write!r:.80}. Pass one."
        )
    target, draft = (_law_of_pairs(_rows(name, heat)) for name in ("target", "draft"))
    places = np.random.default_rng(0)
    tested = Coverage(
        instances=(f"the tiny pair after the prompt {tiny_pair.PROMPT}",),
        subjects=("texts of an engine",),
        tokens=(2,),
        vocabulary=(tiny_pair.VOCABULARY,),
        temperatures=(heat,),
        untested=(
            "whether it drafted, which its own counters tell",
            "other models, prompts and filters",
            STATE,
        ),
    )

    written = itertools.count(step=_BATCH)

    def draw(size: int) -> Drawn:
        report_phase("writing", f"{next(written):,} texts so far")
        prompts = [[*tiny_pair.PROMPT] for _ in range(size)]
        texts = _checked(writes(prompts, LENGTH, heat), prompts, repeats=heat == 0.0)
        at = places.integers(LENGTH - 1, size=size)
        pairs = tuple(texts[range(size), at + i] for i in range(2))
        return Drawn(np.ravel_multi_index(pairs, _SHAPE))

    return audit_of_draws(
        Drawing(draw, target, draft, None, tested, _SHAPE, batch=_BATCH),
        name=name or (write if isinstance(write, str) else str(getattr(write, "__name__", write))),
        errors=errors,
        detect=DETECT,
        most_samples=_MOST,
        first_look=_FIRST_LOOK,
    )


def write_pair(folder: str | Path) -> list[Path]:
    """Write the tiny pair, `target` and `draft`, as Hugging Face folders, and as GGUF files where
    the package gguf is installed.

    Args:
        folder: where; it is made if it is not there.

    Returns:
        The paths written.

    Raises:
        InvalidParameter: if it is no path, or cannot be written to.

    Cost: less than a megabyte.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_pair(folder)][:2]
    ['target', 'draft']
    """
    models = tiny_pair.SEEDS.items()
    place = folder if isinstance(folder, Path) else Path(check_instance(folder, str, name="folder"))
    if not str(folder):
        raise InvalidParameter("The pair is written to a folder; got no name. Name one.")
    try:
        paths = [tiny_pair.write_folder(place / name, seed, 0.0) for name, seed in models]
        with contextlib.suppress(ModuleNotFoundError):
            paths += [
                tiny_pair.write_gguf(place / f"{name}.gguf", seed, 0.0) for name, seed in models
            ]
    except OSError as error:
        raise InvalidParameter(
            f"The pair is written to a folder; {str(place)!r:.80} is none ({error.strerror}). "
            "Name one that can be made."
        ) from error
    return paths


def target_rows(temperature: float) -> NDArray[np.float64]:
    """Return the target's law after each token `(V, V)`, at a temperature."""
    return _rows("target", temperature)


def _rows(model: str, temperature: float) -> NDArray[np.float64]:
    logits = tiny_pair.logits(tiny_pair.SEEDS[model])
    return np.asarray(Processing(temperature=temperature)(logits))


_SHAPE = (tiny_pair.VOCABULARY,) * 2


def _law_of_pairs(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the law of two neighbouring tokens at a uniformly random place of a text."""
    first, law = rows[tiny_pair.PROMPT[-1]], np.zeros_like(rows)
    for _ in range(LENGTH - 1):
        law += first[:, None] * rows / (LENGTH - 1)
        first = first @ rows
    return np.asarray(law.reshape(-1))


def _checked(given: Any, prompts: list[list[int]], *, repeats: bool) -> NDArray[np.int64]:
    """Return a text for each prompt `(n, LENGTH)`.

    A text that is not all letters has a probability of 1e-42 or less; it counts as unknown tokens.

    Raises:
        InvalidParameter: if there are other texts, none of letters, or one only where a text is not
            certain (unless `repeats`).
    """
    try:
        texts = [[operator.index(token) for token in text] for text in given]
    except (TypeError, ValueError):
        texts = []
    letters = range(tiny_pair.SPECIAL, tiny_pair.VOCABULARY)
    good = [len(text) == LENGTH and all(token in letters for token in text) for text in texts]
    if len(texts) != len(prompts) or not any(good):
        raise InvalidParameter(
            f"An engine must write {LENGTH} letters of the tiny pair, tokens {letters.start} to "
            f"{letters.stop - 1}, after each of {len(prompts)} prompts; got {given!r:.120}. Serve "
            "the pair that write_pair writes, let it draw without filters, and echo no prompt."
        )
    found = np.asarray([text if fine else _UNKNOWN for text, fine in zip(texts, good, strict=True)])
    if not repeats and len(found) > 1 and (found == found[0]).all():
        raise InvalidParameter(
            "Every text needs randomness of its own; the engine repeats itself: "
            f"{found[0].tolist()} {len(found)} times. Give it no fixed seed; if it has none, it is "
            "greedy at this temperature."
        )
    return found


def _server(url: str) -> tuple[str, str]:
    """Return the address of completions and the model's name, "" where none is told."""
    if not re.match(r"https?://", url, re.IGNORECASE):
        raise InvalidParameter(
            f"A server has an address of http or https; got {url!r:.80}. Write http://HOST:PORT."
        )
    base = re.sub(r"(/v1)?((/chat)?/completions)?/*$", "", url)
    try:
        name = json.loads(fetch_page(f"{base}/v1/models"))["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        name = ""
    return f"{base}/v1/completions", str(name)


def _served(
    url: str, model: str, prompts: list[list[int]], length: int, temperature: float
) -> list[list[int]]:
    """Ask a server for a text after each prompt, several at a time."""
    pieces = tiny_pair.pieces()

    def ask(prompt: list[int]) -> list[int]:
        request = {
            "model": model,
            "prompt": prompt,
            "max_tokens": length,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
        }
        try:
            answer = fetch_page(url, seconds=_PATIENCE, request=request)
        except InvalidParameter:  # of thousands of requests one may be lost
            answer = fetch_page(url, seconds=_PATIENCE, request=request)
        try:
            text = json.loads(answer)["choices"][0]["text"]
            return [pieces.index(x) if x in pieces else 0 for x in text.strip()]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidParameter(
                f"{url:.80} must answer with the text of letters of the tiny pair; it answers "
                f"{answer:.200}. Serve the pair that write_pair writes."
            ) from error

    with multiprocessing.pool.ThreadPool(_AT_ONCE) as threads:  # an end waits for no answer
        return threads.map(ask, prompts, chunksize=1)
