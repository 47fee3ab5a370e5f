"""Steps of training that a kill does not lose: one loop for every trajectory.

A checkpoint holds the trained weights, both AdamW moments and the step. Where the batch is a
function of the step alone, a run killed at any point continues on the trajectory of an
uninterrupted one. Checkpoints are safetensors: nothing here reads a pickle.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from otm._machine.progress import report_phase

from ..errors import AnalysisError
from ..files import content_digest, has_content, make_folder, write_atomically

SAVE_EVERY = 60.0
"""Seconds between checkpoints."""


@dataclasses.dataclass(frozen=True, eq=False)
class Learner:
    """A model in training, with the optimiser and the learning rate of every step."""

    model: Any
    optimiser: torch.optim.AdamW
    rate: Callable[[int], float]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the trained weights and both moments of each by name, on the host."""
        found = {}
        for name, parameter in self._trained():
            state = self.optimiser.state[parameter]
            found[f"weight/{name}"] = parameter.detach()
            found[f"first/{name}"] = state["exp_avg"]
            found[f"second/{name}"] = state["exp_avg_sq"]
        return {key: value.contiguous().cpu() for key, value in found.items()}

    def restore(self, tensors: Mapping[str, torch.Tensor], step: int) -> None:
        """Restore the state that `tensors` returned after `step` steps."""
        for name, parameter in self._trained():
            parameter.data.copy_(tensors[f"weight/{name}"])
            self.optimiser.state[parameter] = {
                "step": torch.tensor(float(step)),
                "exp_avg": tensors[f"first/{name}"].to(parameter.device),
                "exp_avg_sq": tensors[f"second/{name}"].to(parameter.device),
            }

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        named = self.model.named_parameters()
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """A training run: the learner, the number of steps, and the identity that tells runs apart."""

    learner: Learner
    steps: int
    identity: str
    name: str

    def resume(self, folder: Path) -> int:
        """Restore the checkpoint of a folder and return the steps behind, 0 without one."""
        tensors, first = read_checkpoint(folder, identity=self.identity)
        if first:
            self.learner.restore(tensors, first)
        return first

    def run(
        self,
        gradients: Callable[[int], float],
        *,
        first: int,
        folder: Callable[[int], Path],
        figure: str = "loss",
        kept: Collection[int] = (),
    ) -> None:
        """Take the remaining steps.

        Args:
            gradients: fills the gradients of a step into the models and returns the shown figure.
            first: steps behind.
            folder: of the checkpoint after a number of steps.
            figure: the figure's name.
            kept: numbers of steps after which there is a checkpoint whatever the time.
        """
        optimiser, recent = self.learner.optimiser, []
        saved = time.monotonic()
        for step in range(first, self.steps):
            optimiser.zero_grad(set_to_none=True)
            for group in optimiser.param_groups:
                group["lr"] = self.learner.rate(step)
            recent.append(gradients(step))
            torch.nn.utils.clip_grad_norm_(self.learner.model.parameters(), 1.0)
            optimiser.step()
            shown = f"{figure} {np.mean(recent[-100:]):.4f}"
            report_phase(f"steps of {self.name}", f"{step + 1:,} of {self.steps:,}, {shown}")
            if step + 1 in (*kept, self.steps) or time.monotonic() - saved > SAVE_EVERY:
                write_checkpoint(
                    make_folder(folder(step + 1)),
                    self.learner.tensors(),
                    step=step + 1,
                    identity=self.identity,
                )
                saved = time.monotonic()


def make_optimiser(model: torch.nn.Module, learning_rate: float) -> torch.optim.AdamW:
    """Return AdamW with decay on matrices only."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), eps=1e-9)


def learning_rate_at(peak: float, step: int, steps: int) -> float:
    """Return the learning rate of a step: 5 % of the steps rise, then a cosine falls to .1 %."""
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * (0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * progress)))


def _digest(tensors: Mapping[str, torch.Tensor], step: str, identity: str) -> str:
    arrays = {name: tensors[name].numpy() for name in sorted(tensors)}
    return content_digest(json.dumps([step, identity]).encode(), arrays, [arrays])


def write_checkpoint(
    folder: Path, tensors: dict[str, torch.Tensor], *, step: int, identity: str
) -> None:
    """Replace the checkpoint of a folder atomically."""
    about = {
        "step": str(step),
        "identity": identity,
        "sha256": _digest(tensors, str(step), identity),
    }
    write_atomically(folder / "checkpoint.safetensors", save(tensors, about))


def read_checkpoint(folder: Path, *, identity: str) -> tuple[dict[str, torch.Tensor], int]:
    """Return the tensors of a folder's checkpoint and the steps behind; nothing and 0 without one.

    Raises:
        AnalysisError: if the checkpoint belongs to another recipe or text, or is not what was
            written.
    """
    path = folder / "checkpoint.safetensors"
    if not path.exists() and not path.is_symlink():
        return {}, 0
    if not has_content(path):
        raise AnalysisError(
            f"{path} must be a checkpoint; it is empty or no regular file. Delete it to begin anew."
        )
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            about = {"step": "", **(file.metadata() or {})}
    except (SafetensorError, OSError) as error:
        raise AnalysisError(
            f"{path} must be a checkpoint; it cannot be read ({error}). Delete it to begin anew."
        ) from error
    if about.get("identity") != identity:
        raise AnalysisError(
            f"A run resumes only from a checkpoint of the same recipe and text; {path} was written "
            f"with {about.get('identity')}, "
            f"this run asks for {identity}. Choose another work folder or delete the checkpoint."
        )
    if about.get("sha256") != _digest(tensors, about["step"], identity):
        raise AnalysisError(
            f"{path} is not what was written: its content has another digest. Delete it to begin "
            "anew."
        )
    return tensors, int(about["step"])
