"""Rules, lengths and draft laws of engines that were run.

A rule that is not named is none of the engine's. Versions and records: docs/engines_run.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from otm import Processing


@dataclasses.dataclass(frozen=True)
class Engine:
    """The sampled speculation of an engine by default.

    Attributes:
        name: as its users write it.
        rules: names of its rules.
        length: drafts in a row.
        draft: the processing of its drafts where the target has this one.
        words: about them.
    """

    name: str
    rules: tuple[str, ...]
    length: int
    draft: Callable[[Processing], Processing]
    words: str


def _alike(target: Processing) -> Processing:
    return target


def _twice(target: Processing) -> Processing:
    return dataclasses.replace(target, temperature=target.temperature**2)


def _ten_likeliest(target: Processing) -> Processing:
    return Processing(temperature=target.temperature, top_k=10)


_KNOWN = (
    Engine(
        "llama.cpp",
        ("match-argmax", "rejection"),
        3,
        _ten_likeliest,
        "argmax drafts that are matched; --spec-draft-sampling probabilistic is rejection of the "
        "draft's ten likeliest tokens at the target's temperature (xllamacpp 2026.10.11549)",
    ),
    Engine(
        "mlx-lm",
        ("match-independent",),
        2,
        _alike,
        "sampled drafts matched with a sample (mlx-lm 0.32.2)",
    ),
    Engine(
        "onnxruntime-genai",
        ("rejection",),
        4,
        _alike,
        "rejection (onnxruntime-genai 0.18); its n-grams are matched",
    ),
    Engine(
        "transformers",
        ("rejection", "string-match"),
        20,
        _twice,
        "rejection of drafts at the square of the temperature, its warpers being applied twice, "
        "filters here once (transformers 5.23.0); drafting also stops after an unsure token "
        "(assistant_confidence_threshold 0.4), which is left out here",
    ),
    Engine(
        "vllm",
        ("match-argmax", "rejection"),
        4,
        _alike,
        "argmax drafts that are matched, or rejection where draft probabilities are asked for "
        "(vLLM 0.32.0; on a CPU its sampled text was not the target's)",
    ),
)
ENGINES = {engine.name: engine for engine in _KNOWN}
"""Engines by name; `otm rules --engine` has the same names."""
