"""SpecForge's benchmark of an SGLang server, `--output-json`: means only, of two kinds.

`average_acceptance_length` is the mean over requests of SGLang's `spec_accept_length`;
`output_tokens`/`spec_verify_count` the pooled one. Both count the root.

Source of the form: github.com/sgl-project/SpecForge, specforge/benchmarks/sglang.py at a6b6b023
(`BenchmarkResult`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otm.engines.records.document import number
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.tally import Tally

_KEYS = ("average_acceptance_length", "spec_verify_count", "output_tokens")


def _about(found: Sequence[dict[str, Any]], parts: Sequence[Tally]) -> dict[str, Any]:
    known: dict[str, Any] = {"notes": ("Means only: record meta_info's histogram to plan with.",)}
    if len(found) == 1 and found[0][_KEYS[0]] is not None:
        known["reported_mean"] = number(found[0][_KEYS[0]], _KEYS[0])
    return known


FORM = form_of_objects(
    name="SpecForge benchmark",
    marks='JSON with "average_acceptance_length", "spec_verify_count" and "output_tokens"',
    unit="run",
    convention="lengths count the root",
    # Output tokens include that of each prefill, which no verification emitted.
    fields=Fields(
        steps=("spec_verify_count",),
        emitted=("output_tokens",),
        prefills=("samples",),
        part=("dataset",),
    ),
    find=lambda document: document.objects(*_KEYS),
    about=_about,
)
