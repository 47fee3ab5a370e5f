"""Counts of drafts in responses that are no vLLM's or SGLang's: llama-server, mlx-vlm, LM Studio.

* llama-server, "timings" of every response and of a stream's last chunk: "predicted_n" tokens,
  "draft_n" drafted, "draft_n_accepted" of them accepted; the last two are absent where nothing was
  drafted. The first token comes from the prompt's pass, so predicted − 1 − accepted tokens are the
  target calls, those that drafted nothing among them.
* mlx-vlm, the same names and "draft_rounds", which are the steps: its accepted drafts run beyond
  the end of the reply, so that nothing follows from predicted tokens.
* LM Studio, "usage": "completion_tokens", "total_draft_tokens_count" and
  "accepted_draft_tokens_count".

Source of the form: github.com/ggml-org/llama.cpp, tools/server/server-task.cpp at 001d906a
(`result_timings::to_json`); run with xllamacpp 2026.10.11549. mlx-vlm's and LM Studio's names are
of public responses of 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from otm.engines.records.document import Document
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST
from otm.engines.records.tally import Tally

_DRAFTED = ("draft_n", "draft_n_accepted")


def _timings(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the timings of each response, if some response drafted."""
    found = list(document.objects("predicted_n", "predicted_ms"))
    if any(_DRAFTED[0] in one for one in found):
        for one in found:
            yield dict.fromkeys(_DRAFTED, 0) | one


def _about(found: Sequence[dict[str, Any]], parts: Sequence[Tally]) -> dict[str, Any]:
    idle = sum(not one.get(_DRAFTED[0], 1) for one in found)
    told = f" In {idle} of {len(found)} requests nothing was drafted." if idle else ""
    return {"notes": (f"Calls that drafted nothing are among the steps.{told}",)}


TIMINGS = form_of_objects(
    name="llama.cpp responses",
    marks='JSON with "predicted_n", "draft_n" and "draft_n_accepted"',
    unit=REQUEST,
    convention="predicted tokens count the target's",
    fields=Fields(
        steps=("draft_rounds",),
        accepted=_DRAFTED[1:],
        drafted=_DRAFTED[:1],
        emitted=("predicted_n",),
    ),
    find=_timings,
    about=_about,
)
USAGE = form_of_objects(
    name="LM Studio usage",
    marks='JSON with "completion_tokens" and "accepted_draft_tokens_count"',
    unit=REQUEST,
    convention="completion tokens count the target's",
    fields=Fields(
        accepted=("accepted_draft_tokens_count",),
        drafted=("total_draft_tokens_count",),
        emitted=("completion_tokens",),
    ),
    find=lambda document: document.objects("completion_tokens", "accepted_draft_tokens_count"),
    about=_about,
)
