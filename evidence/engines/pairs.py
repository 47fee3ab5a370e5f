"""Pairs of trained models that engines run: the shipped one, and a public model with a draft.

A pair is a folder with the folders `target` and `draft`, in the form that all engines here load.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from analysis.files import SHIPPED_PAIR
from analysis.models.public import public_folder

DROPPED = range(14, 18)
"""Layers of SmolLM2 that its draft does without: from the middle, so that it overlaps its target as
many real drafts do; without the last ones it hardly would.
"""


@dataclasses.dataclass(frozen=True)
class TrainedPair:
    """A pair of trained models.

    Attributes:
        folder: writes the pair below a folder unless it is somewhere, and returns its place.
        length: tokens of a text.
    """

    folder: Callable[[Path], Path]
    length: int


def public_pair(place: Path) -> Path:
    """Write SmolLM2-135M-Instruct, and itself without four layers as a draft, below a folder."""
    source, pair = public_folder("smollm2"), place / "smollm2"
    if not (pair / "draft" / "config.json").is_file():
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        save(model, source, pair / "target")
        drop_layers(model, DROPPED)
        save(model, source, pair / "draft")
    return pair


def drop_layers(model: Any, numbers: range) -> None:
    """Take layers out of a Llama, in place."""
    kept = [layer for i, layer in enumerate(model.model.layers) if i not in numbers]
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    model.config.layer_types = None


def save(model: Any, source: Path, folder: Path) -> None:
    """Write a model beside the tokenizer of another folder."""
    model.save_pretrained(folder)
    for path in source.glob("tokenizer*"):
        shutil.copy(path, folder)
    path = folder / "config.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    # MLX-LM takes the base of its positions from here alone, and 10,000 where there is none
    told["rope_theta"] = told["rope_parameters"]["rope_theta"]
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


PAIRS = {
    "shipped": TrainedPair(lambda place: SHIPPED_PAIR, length=48),
    "public": TrainedPair(public_pair, length=12),
}
"""Pairs by the names of their folders of results."""
