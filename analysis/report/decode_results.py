"""Records of a decode run: measured block efficiency beside the prediction from acceptance."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

import otm
from otm.results.statistics import Estimate

from ..decode.decoder_text import levels_of, most_tokens
from ..decode.efficiency import block_efficiency
from ..decode.results import bad_line, open_results
from ..statistics import limits
from .aggregate import Aggregates
from .reading import Run

_MOST_DECODERS = 200


@dataclasses.dataclass(frozen=True)
class DecodeRow:
    """One decoder's block efficiency, in tokens per target call.

    Attributes:
        decoder: its text.
        measured: Σ tokens / Σ target calls with its interval over prompts.
        predicted: 1 + α₁ + α₁α₂ + … from the measured run's acceptances, None where it holds none
            that fit.
        target_calls, prompts: how much was measured.
    """

    decoder: str
    measured: Estimate
    predicted: float | None
    target_calls: int
    prompts: int

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        told = limits(self.measured)
        return {
            "decoder": self.decoder,
            "predicted": self.predicted,
            "measured": told["mean"],
            "measured_low": told["low"],
            "measured_high": told["high"],
        }


@dataclasses.dataclass(frozen=True)
class DecodeRun:
    """A decode run as read: rows without predictions, and the settings of the decoding."""

    rows: tuple[DecodeRow, ...]
    settings: dict[str, Any]

    def predicted(self, run: Run, found: Aggregates) -> tuple[DecodeRow, ...]:
        """Return the rows with the measured run's predictions at the same sampling setting."""
        setting = self.setting(run, found)
        if setting is None:
            return self.rows
        acceptance = found.lower[setting].value
        return tuple(
            dataclasses.replace(row, predicted=_predict(row.decoder, run, acceptance))
            for row in self.rows
        )

    def notes(self, run: Run, found: Aggregates) -> list[str]:
        """List the differences that make the two runs hard to compare."""
        told = []
        theirs, ours = self.settings.get("weights"), run.section("provenance").get("weights")
        if theirs != ours and isinstance(theirs, dict) and isinstance(ours, dict):
            told.append(
                "The decode run used other model weights than the measured run: predictions are "
                "for other models."
            )
        if self.setting(run, found) is None:
            told.append(
                "The measured run has no sampling setting equal to the decode run's: there are no "
                "predictions."
            )
        decoded, measured = (
            max((row.prompts for row in self.rows), default=0),
            found.strata.num_prompts,
        )
        if decoded < measured:
            told.append(
                f"{decoded} prompt{'s' * (decoded != 1)} decoded; the predictions are for all "
                f"{measured} of the measured run."
            )
        return told

    def setting(self, run: Run, found: Aggregates) -> int | None:
        """Return the index of the measured run's setting that was decoded at, or None."""
        return run.setting_of(self.settings, found.strata.settings)


def read_decode(path: Path) -> DecodeRun:
    """Average a results file of `decode` by decoder, with the intervals that `decode` prints.

    Memory: two numbers per decoder and prompt, and the name of every text.

    Raises:
        AnalysisError: if the file is missing or not such a file. A torn last line, left by a killed
            run, is no error.
    """
    header, records = open_results(path)
    totals: dict[str, dict[int, list[float]]] = {}
    most: dict[str, int] = {}  # drafted tokens per call
    for number, record in enumerate(records, start=2):
        # named by digits of a digest
        decoder, prompt = (
            record.task.decoder,
            int(record.task.prompt, 16),
        )
        if decoder not in totals and len(totals) == _MOST_DECODERS:
            raise bad_line(path, number, f"it brings more than {_MOST_DECODERS} decoders")
        entry = totals.setdefault(decoder, {}).setdefault(prompt, [0.0, 0.0])
        entry[0] += sum(record.lengths)
        entry[1] += len(record.lengths)
        most[decoder] = max(most.get(decoder, 0), record.drafted)
    called = {
        decoder: prompts
        for decoder, prompts in totals.items()
        if any(calls for _, calls in prompts.values())
    }
    rows = tuple(
        _row(decoder, prompts, most_tokens(decoder, most[decoder]))
        for decoder, prompts in called.items()
    )
    return DecodeRun(rows, header["settings"])


_SINGLE_REJECTION = [
    repr(verifier())
    for verifier in (otm.Maximal, otm.KSeq, otm.RecursiveRejection, otm.NaiveTree, otm.Optimal)
]
"""With one draft all of these are the maximal coupling, whatever the law."""
_OPTIMAL = [repr(otm.Optimal()), repr(otm.GreedyOptimal())]


def _predict(decoder: str, run: Run, acceptance: Any) -> float | None:
    """Return 1 + Σ_i Π_{j ≤ i} α_{k_j}, levels taken as independent, one vertex surviving each."""
    plan = levels_of(decoder)
    if plan is None:
        return None
    law, verifier, counts = plan
    total = product = 1.0
    for k in counts:
        column = _find(run, law, repr(verifier), k)
        if column is None or not np.isfinite(acceptance[column]):
            return None
        product *= float(acceptance[column])
        total += product
    return total


def _find(run: Run, law: str, verifier: str, k: int) -> int | None:
    if k == 1 and verifier in _SINGLE_REJECTION:
        law, verifier = "IID", _OPTIMAL[0]
    for i, column in enumerate(run.schemes):
        if (column.law, column.k) != (law, k) or column.definition == "bound":
            continue
        best = verifier in _OPTIMAL or (law, verifier) == ("TopK", repr(otm.Naive()))
        if best and column.optimum == column.name:
            return i
        if column.scheme == verifier and column.definition == "membership":
            return i
    return None


def _row(decoder: str, prompts: dict[int, list[float]], most: int) -> DecodeRow:
    tokens, calls = np.array(list(prompts.values())).T
    return DecodeRow(
        decoder=decoder,
        measured=block_efficiency(tokens, calls, most=most),
        predicted=None,
        target_calls=int(calls.sum()),
        prompts=len(calls),
    )
