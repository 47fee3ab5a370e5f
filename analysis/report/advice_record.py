"""A record of `advise`: the answer at the measured setting, and costs for every other setting."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from otm._display.tabular import shortened

from ..errors import AnalysisError
from .aggregate import Aggregates
from .call_costs import Costs, measured_costs, read_object, whole_record
from .reading import PROCESSING, Run
from .text import printable
from .verdict_card import (
    HEAD,
    ITSELF,
    PROBABLY,
    SPECULATE,
    STOP,
    Box,
    Card,
    Speed,
    drafts,
    recommendation,
    with_interval,
)

FORMAT, VERSION = "otm.advice", 1
"""Format of the records that are read; the module that writes them needs torch."""

_KINDS = {
    "chain": "chain",
    "levels": "K sequences, optimal",
    "K-SEQ": "K sequences, K-SEQ",
    "ranks": "static tree",
}
"""The family of `advise` whose steps a kind of plan resembles."""

_LONGEST_DECODER = 48
_VERDICTS = {"speculate": SPECULATE, "do not speculate": STOP}


@dataclasses.dataclass(frozen=True)
class AdviceRecord:
    """The answer and the costs in a record of `advise`.

    Attributes:
        card: the answer.
        costs: the measured costs.
        processing: of the logits, by side.
    """

    card: Card
    costs: Costs
    processing: dict[str, dict[str, Any]]

    def setting(self, run: Run, found: Aggregates) -> int | None:
        """Return the index of the run's setting at which `advise` measured, or None."""
        draft = {f"draft_{name}": value for name, value in self.processing["draft"].items()}
        return run.setting_of(self.processing["target"] | draft, found.strata.settings)


def read_advice(path: Path) -> AdviceRecord:
    """Read a record of `advise`.

    Raises:
        AnalysisError: if the file is no such record.
    """
    record = read_object(path, "a record of advise")
    if (record.get("format"), record.get("version")) != (FORMAT, VERSION):
        raise AnalysisError(
            f'A record of advise has "format": "{FORMAT}" and "version": {VERSION}; {path.name} '
            "has "
            f"{str(record.get('format'))[:40]!r} and {str(record.get('version'))[:20]!r}. Run "
            "advise with --out."
        )
    with whole_record(path, "advise"):
        sides = record["manifest"]["processing"]
        processing = {
            side: {name: sides[side].get(name) for name in PROCESSING}
            for side in ("draft", "target")
        }
        return AdviceRecord(_card(record), _costs(record), processing)


def _costs(record: dict[str, Any]) -> Costs:
    plain, model = float(record["plain"]["seconds_per_token"]), record["step_model"]
    (per_call, per_vertex), (nodes, seconds) = model["draft"], model["target"]
    rest = {}
    for kind, family in _KINDS.items():
        fixed, level, node = model["rest"].get(family, (0.0, 0.0, 0.0))
        rest[kind] = (fixed / plain, level / plain, node / plain)
    most = int(nodes[-1])
    return measured_costs(
        {width: (per_call + per_vertex * width) / plain for width in {1, max(2, most)}},
        {int(count): time / plain for count, time in zip(nodes, seconds, strict=True)},
        source=f"otm advise on {record['manifest']['device']}",
        rest=rest,
        models=record["manifest"]["models"],
    )


def _card(record: dict[str, Any]) -> Card:
    best, chain, told = record["best"], record["chain"], record["measured"]
    plain, beside = _speed(best["over_plain"]), _speed(best["over_chain"])
    title = _VERDICTS.get(record["verdict"], (SPECULATE if plain.value > 1 else STOP) + PROBABLY)
    name = printable(str(best["name"]))
    same = best["decoder"] == chain["decoder"]
    boxes = (
        Box(plain.text, "the speed of plain decoding", plain.sure),
        Box("1.00×", ITSELF)
        if same
        else Box(
            beside.text,
            f"the speed of today’s best chain, {drafts(int(chain['depth']))}",
            beside.sure,
        ),
        Box(
            f"{float(best['tokens_per_call']):.2f}",
            "tokens per target call",
            f"{int(best['nodes'])} drafted",
        ),
    )
    basis = (
        f"otm advise on {record['manifest']['device']}: real steps timed, {int(told['texts'])} "
        f"texts of {int(told['prompts'])} "
        f"prompts, {int(told['plans'])} plans compared."
    )
    rows = tuple(
        (
            printable(str(row["family"])),
            with_interval(_speed(row["over_plain"])),
            _speed(row["over_chain"]).text,
            printable(str(row["name"])),
            f"{float(row['tokens_per_call']):.2f}",
        )
        for row in record["rows"]
    )
    return Card(
        title,
        *recommendation(
            name,
            f"decoder {shortened(printable(str(best['decoder'])), _LONGEST_DECODER)}",
            stop=title.startswith(STOP),
        ),
        boxes,
        printable(basis),
        "",
        HEAD,
        rows,
    )


def _speed(limits: dict[str, Any]) -> Speed:
    value = float(limits["value"])
    low, high = (None if limits[end] is None else float(limits[end]) for end in ("low", "high"))
    return Speed(value, value, low, high)
