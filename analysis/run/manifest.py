"""The manifest of a run: the measurement, the models, the software and the columns.

It is written before the first shard and never again; parts of one run, and a run that goes on, must
agree with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from otm.table import TableColumn
from otm.table.table import DESCRIPTIONS

from ..errors import AnalysisError
from ..files import MANIFEST, SHARDS, is_file, make_folder, read_json, shortened, write_json
from ..provenance import INCIDENTAL, differences, origin
from .bound_columns import bound_statistics
from .loss_columns import loss_statistics
from .shards import finished_shards
from .tree_names import tree_statistics

SCHEMA = 2
_MOST_BYTES = 16 << 20

Manifest = dict[str, Any]

_OF_COLUMNS = ("scheme", "label", "law", "k", "lossless", "definition")

_STATISTICS = (
    ("draft_entropy", "entropy of the draft", "nats"),
    ("target_entropy", "entropy of the target", "nats"),
    ("tv", "total variation", "probability"),
    ("kl_target_draft", "KL(target‖draft)", "nats"),
    ("kl_draft_target", "KL(draft‖target)", "nats"),
)


def manifest_of(
    settings: dict[str, Any],
    note: str,
    described: dict[str, Any],
    plan: dict[str, int],
    columns: Sequence[TableColumn],
    statistics: Collection[str] = DESCRIPTIONS,
) -> Manifest:
    """Return the manifest of a new run.

    Args:
        settings: of the measurement, models or trace included.
        note: one sentence on the positions that are compared.
        described: the origin of the values: models or trace, software, machine.
        plan: how many prompts or positions there are, and how they are cut into shards.
        columns: what the shards hold besides the statistics.
        statistics: which of these they hold.
    """
    bounds = bound_statistics(settings["k"]) if settings.get("bounds") else []
    lost = loss_statistics(settings["k"]) if settings.get("losses") else []
    return {
        "schema_version": SCHEMA,
        "settings": settings,
        "position_note": note,
        "provenance": described | origin() | {"threads": settings["threads"]},
        "schemes": [
            {
                "column": column.name,
                "scheme": column.scheme,
                "label": column.label,
                "law": column.law,
                "k": column.k,
                "lossless": column.lossless,
                "optimum_column": column.optimum,
                "definition": column.definition,
            }
            for column in columns
        ],
        "statistics": [
            {"column": name, "name": shown, "unit": unit}
            for name, shown, unit in (
                *(row for row in _STATISTICS if row[0] in statistics),
                *bounds,
                *lost,
                *tree_statistics(settings.get("trees", ())),
            )
        ],
        "plan": plan,
    }


def table_column(entry: Mapping[str, Any]) -> TableColumn:
    """Return the column that an entry of a manifest's schemes describes."""
    said = {name: entry.get(name) for name in _OF_COLUMNS}
    return TableColumn(name=entry["column"], optimum=entry.get("optimum_column"), **said)  # type: ignore[arg-type]


def as_intervals(manifest: Manifest) -> Manifest:
    """Name two columns per scheme and statistic; entropies have no certified interval."""
    statistics = [
        entry for entry in manifest["statistics"] if not entry["column"].endswith("entropy")
    ]
    ends = [
        [
            entry | {f"{end}_column": f"{entry['column']}_{end}" for end in ("lower", "upper")}
            for entry in entries
        ]
        for entries in (manifest["schemes"], statistics)
    ]
    return manifest | {"schemes": ends[0], "statistics": ends[1]}


def read_manifest(run: Path) -> Manifest:
    """Return a run's manifest, or raise `AnalysisError` if there is none."""
    path = run / MANIFEST
    if not is_file(path):
        raise AnalysisError(
            f"A run is a folder with {MANIFEST} and shards; {shortened(run)!r} has no manifest. "
            "Pass the folder that "
            "`measure --out` wrote."
        )
    try:
        record = read_json(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise damaged_manifest(f"it is not JSON ({error})") from error
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA:
        raise damaged_manifest(f"its schema_version is {version!r}, this version reads {SCHEMA}")
    for name in ("schemes", "statistics"):
        entries = record.setdefault(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise damaged_manifest(f"{name!r} is not a list of objects")
    return record  # type: ignore[no-any-return]


def damaged_manifest(why: str) -> AnalysisError:
    """Return the error that gives the reason why a manifest cannot be used."""
    return AnalysisError(
        f"{MANIFEST} must describe a measured run of this version: {why}. Measure again, or "
        "restore the file."
    )


def compare_manifests(mine: Manifest, theirs: Manifest, allow: Collection[str] = ()) -> list[str]:
    """List the differences of two manifests in anything that values depend on, one per line."""
    found = differences(comparable(mine), comparable(theirs))
    found = [line for line in found if not any(_within(_place(line), place) for place in allow)]
    if any(_within(_place(line), "settings") for line in found):
        # Other settings make other columns, at a length that hides what was asked for.
        return [line for line in found if _place(line) not in ("schemes", "statistics")]
    return found


def section(manifest: Manifest, name: str) -> dict[str, Any]:
    """Return an object of a manifest, empty if missing or of another type."""
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


def comparable(manifest: Manifest) -> Manifest:
    """Return the fields that parts of one run must agree in, as read from a file.

    Labels, which are for readers, are left out.
    """
    provenance = section(manifest, "provenance")
    kept: Manifest = {
        "settings": section(manifest, "settings"),
        "provenance": {k: v for k, v in provenance.items() if k not in INCIDENTAL},
        "plan": manifest.get("plan"),
        "schemes": [
            {k: v for k, v in entry.items() if k != "label"}
            for entry in manifest.get("schemes") or []
        ],
        "statistics": manifest.get("statistics"),
    }
    found: Manifest = json.loads(json.dumps(kept))
    return found


def _place(line: str) -> str:
    return line.split(":", 1)[0]


def _within(place: str, allowed: str) -> bool:
    return place == allowed or place.startswith(allowed + ".")


def write_or_check_manifest(out: Path, manifest: Manifest, allow: Collection[str]) -> Manifest:
    """Write the manifest of a new run, or return an existing one that is the same."""
    if not (out / MANIFEST).is_file():
        if finished_shards(out):
            raise AnalysisError(
                f"A new run needs a folder without shards; {out} has some but no {MANIFEST}. "
                "Choose another --out."
            )
        make_folder(out / SHARDS)
        write_json(out / MANIFEST, manifest)
        return manifest
    existing = read_manifest(out)
    if found := compare_manifests(manifest, existing, allow):
        raise AnalysisError(
            f"A run goes on with the settings and the software it began with; {out} differs (asked "
            "now against there): "
            f"{'; '.join(found)}. Choose another --out, or restore these. Nothing was changed."
        )
    make_folder(out / SHARDS)
    return existing


def class_of(identity: str) -> str:
    """Return the class of a scheme, without parameters.

    >>> class_of("KSeq(gamma=None)"), class_of("optimum")
    ('KSeq', 'optimum')
    """
    return identity.partition("(")[0]
