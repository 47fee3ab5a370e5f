"""The pair of models of a measurement, loaded once per process.

Torch is imported on loading.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from otm._machine.progress import report_phase
from otm.pmf import check_choice

from ..provenance import environment, weights_digest
from .names import SIDES, model_names, model_places


@dataclasses.dataclass(frozen=True)
class PairSource:
    """The names of two models, with the options of loading."""

    draft: str | None = None
    target: str | None = None
    device: str = "auto"
    device_map: str | None = None
    dtype: str = "float32"
    trust_remote_code: bool = False
    draft_revision: str | None = None
    revision: str | None = None
    chat_template: bool = False

    @property
    def memory(self) -> int | None:
        """Bytes that the pair takes on the CPU in float32, with torch; None if not known here."""
        folders = [Path(place) for place in model_places(self.draft, self.target).values()]
        if not all(folder.is_dir() for folder in folders):
            return None
        files = (file for folder in folders for file in folder.glob("*.safetensors"))
        # half-precision files are widened, and torch itself takes about half a gigabyte
        return 2 * sum(file.stat().st_size for file in files) + (1 << 29)

    @property
    def names(self) -> tuple[str, str]:
        """The models' names for readers of results."""
        return model_names(self.draft, self.target)


@functools.lru_cache(maxsize=1)
def load_source(source: PairSource, *, two_tokenizers: bool = False) -> Any:
    """Return the pair, loaded once per process; with tokenizers that differ only if asked."""
    import torch

    from .pair import load_pair

    needed = source.memory
    size = "" if needed is None else f", about {needed / 1e9:.1f} GB of memory"
    report_phase(f"models: loading{size}")

    weights = ("float32", "float16", "bfloat16")
    kinds: dict[str, Any] = {name: getattr(torch, name) for name in weights} | {"auto": "auto"}
    return load_pair(
        draft=source.draft,
        target=source.target,
        device=source.device,
        device_map=source.device_map,
        dtype=kinds[check_choice(source.dtype, name="dtype", choices=list(kinds))],
        trust_remote_code=source.trust_remote_code,
        two_tokenizers=two_tokenizers,
        revisions=(source.draft_revision, source.revision),
        chat=source.chat_template,
    )


def describe_source(source: PairSource) -> dict[str, Any]:
    """Load the pair in this process and describe everything that measurements depend on."""
    pair = load_source(source)
    prompts = {"chat_template": True} if source.chat_template else {}
    return (
        environment()
        | prompts
        | {
            "device": pair.device_name,
            "device_map": source.device_map,
            "num_tokens": pair.num_tokens,
            "notes": list(pair.notes),
            "weights": {side: weights_digest(place) for side, place in pair.places.items()},
            "model_revisions": {
                side: getattr(getattr(pair, side).config, "_commit_hash", None) for side in SIDES
            },
        }
    )
