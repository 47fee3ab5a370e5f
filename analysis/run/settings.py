"""The settings of a run: everything that values depend on besides models, prompts and software."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import otm
from otm.table import table_columns
from otm.table.table import NAMES, RequestedColumns

from ..errors import AnalysisError
from ..models.processing import AS_THEY_ARE, Setting, settings_of
from ..steps.nodes import DEPTH

NOTES = {
    "text": "along the given text: every context of it, whatever the models would have written",
    "target": "along continuations sampled from the target at each row's own temperature and top-p",
    "draft": "along continuations sampled from the draft model at each row's own temperature and "
    "top-p",
    "on-policy": "at the contexts where a verifier compares the models while single-draft "
    "speculative decoding runs at each row's "
    "own temperature and top-p; the token after a fully accepted block is not drafted, so it is "
    "not compared",
    "trace": "at the positions of a recorded trace",
}
"""One sentence per kind of positions, for readers of the results."""

_OF_TRACES = ("k", "positions", "shard_prompts", "threads", "trace")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a measurement: all that values depend on besides models, prompts, software."""

    k: tuple[int, ...] = (1, 2, 4, 8)
    columns: tuple[str, ...] | None = None  # as of `otm.acceptance_table`: all, if None
    temperatures: tuple[float, ...] = (1.0,)
    draft_temperatures: tuple[float, ...] = ()  # the target's, if empty
    top_ps: tuple[float, ...] = (1.0,)
    otherwise: Setting = (
        AS_THEY_ARE  # all other processing, and the draft's top-p if it has one of its own
    )
    positions: str = "text"
    seed: int = 0
    max_tokens: int = 512
    new_tokens: int = 64
    block: int = 4
    shard_prompts: int = 16
    batch_elements: int = 1 << 25
    precision: str = "float64"
    threads: int = 1
    save_logits: int = 0
    bounds: bool = False
    check: int = 0
    losses: bool = False
    trees: tuple[int, ...] = ()  # drafted tokens, ascending

    @property
    def pairs(self) -> tuple[Setting, ...]:
        """Every combination of temperature, top-p and draft temperature."""
        return tuple(
            settings_of(
                self.temperatures, self.top_ps, self.draft_temperatures, otherwise=self.otherwise
            )
        )

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as recorded by a run; with a trace only settings that matter for traces."""
        said = {
            name: value
            for name, value in self.otherwise.recorded.items()
            if name not in ("temperature", "top_p")
        }
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k != "otherwise"} | said
        if self.columns is not None:
            fields["columns"] = tuple(name for name in NAMES if name in self.columns)
        return {k: v for k, v in fields.items() if self.positions != "trace" or k in _OF_TRACES}

    @property
    def wanted(self) -> RequestedColumns:
        """The columns to fill; a scheme comes with the optimum, for the report."""
        if self.columns is None:
            return RequestedColumns.of(self.k, None)
        optima = {column.optimum for column in table_columns(self.k, columns=self.columns)}
        added = {column.stem for column in table_columns(self.k) if column.name in optima}
        return RequestedColumns.of(self.k, (*self.columns, *sorted(added)))


def check_settings(settings: Settings) -> None:
    """Raise on the first invalid setting."""
    if not settings.wanted.columns:
        raise AnalysisError(
            f"A run needs a scheme; {', '.join(settings.columns or ())} name none for these k. Add "
            "optimum_iid."
        )
    for name in (
        "seed",
        "max_tokens",
        "new_tokens",
        "block",
        "shard_prompts",
        "batch_elements",
        "threads",
        "save_logits",
        "check",
    ):
        least = 0 if name in ("seed", "save_logits", "check") else 1
        otm.pmf.check_count(getattr(settings, name), name=name, minimum=least)
    for temperature in (*settings.temperatures, *settings.draft_temperatures):
        if not 0.0 <= temperature < math.inf:  # NaN is not
            raise AnalysisError(
                f"A temperature must be a finite number ≥ 0; got {temperature!r}. 0 stands for the "
                "likeliest token."
            )
    for top_p in settings.top_ps:
        otm.pmf.check_real(top_p, name="top_p", low=0.0, high=1.0, open_low=True)
    if settings.trees and settings.positions not in ("target", "on-policy"):
        raise AnalysisError(
            "Trees are measured along what the target writes; these are the positions of "
            f"{settings.positions!r}. Pass --positions target."
        )
    if settings.trees and settings.new_tokens < DEPTH:
        raise AnalysisError(
            f"Trees are {DEPTH} tokens deep, and what they yield is known where as many follow; "
            f"got new_tokens = {settings.new_tokens}. Pass --num-tokens {2 * DEPTH} or more."
        )
