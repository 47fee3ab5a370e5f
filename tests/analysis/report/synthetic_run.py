"""Runs in the layout of `measure`, made from random pairs of distributions without any model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy

import otm
from analysis.models.processing import Setting, settings_of
from analysis.run.identity import run_identity
from analysis.run.loss_columns import loss_columns, loss_statistics
from analysis.run.shards import encode_shard, shard_files

V = 12
HOSTILE = (
    "<i>&lt;</i></script><script>document.title='owned'</script><!--\u2028\u2029"
    "<img src=x onerror=\"document.title='owned'\">&lt;b&gt;\u202e|`*"
)


@dataclasses.dataclass(frozen=True)
class Scheme:
    """One column of the run under a draft law: a verifier, an optimum or a bound."""

    stem: str
    scheme: otm.Verifier | str
    law: Any
    optimum: str | None = None
    definition: str = "membership"

    def values(self, draft: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the column for batched `(n, V)` distributions."""
        problem = otm.Problem(draft=draft, target=target, law=self.law)
        if isinstance(self.scheme, otm.Verifier):
            return np.asarray(otm.acceptance(self.scheme, problem))
        bound = self.definition == "bound"
        return np.asarray(
            otm.bounds.poisson_matching_lower(problem) if bound else otm.optimal_acceptance(problem)
        )


def schemes(ks: tuple[int, ...]) -> list[Scheme]:
    """Return every kind of column: optima, verifiers of several laws, a lossy verifier, a bound.

    One verifier exists for k = 1 only.
    """
    found: list[Scheme] = []
    for k in ks:
        best, top = f"optimum_iid_k{k}", f"greedy_optimal_greedy_k{k}"
        found += [
            Scheme(best, "optimum", otm.IID(k), best),
            Scheme(f"kseq_iid_k{k}", otm.KSeq(), otm.IID(k), best),
            Scheme(f"recursive_rejection_iid_k{k}", otm.RecursiveRejection(), otm.IID(k), best),
            Scheme(f"naive_iid_k{k}", otm.Naive(), otm.IID(k), best),
            Scheme(top, otm.GreedyOptimal(), otm.Greedy(k), top),
        ]
    single = otm.IID(1)
    return [
        *found,
        Scheme("race_iid_k1", otm.Race(), single, f"optimum_iid_k{ks[0]}" if ks[0] == 1 else None),
        Scheme("lenience_iid_k1", otm.Lenience(), single),
        Scheme("poisson_matching_lower_iid_k1", "Poisson matching", single, definition="bound"),
    ]


STATISTICS = [
    ("draft_entropy", "Draft entropy", "nats"),
    ("target_entropy", "Target entropy", "nats"),
    ("tv", "Total variation", "probability"),
    ("kl_target_draft", "KL(target ‖ draft)", "nats"),
]


def write_run(
    folder: Path,
    *,
    prompts: int = 12,
    positions: int = 20,
    ks: tuple[int, ...] = (1, 2, 4),
    temperatures: tuple[float, ...] = (0.7, 1.0),
    top_ps: tuple[float, ...] = (1.0,),
    draft_temperatures: tuple[float, ...] | None = None,
    prompts_per_shard: int = 4,
    shards: int | None = None,
    width: float | None = None,
    name: str = "prompt",
    seed: int = 0,
    losses: bool = False,
    bounds: bool = False,
) -> Path:
    """Write a run; prompts differ in how well the draft fits, so that positions of one prompt
    resemble each other.

    Args:
        draft_temperatures: also vary the draft's own temperature.
        shards: how many shards are finished; all of them unless given.
        width: write intervals of at most this width instead of values.
        name: goes into every name that a run carries.
        losses: also add the losses of acceptance by cause.
        bounds: ask for the bounds, too; only those that need no column of their own are there.
    """
    columns = schemes(ks)
    settings = settings_of(temperatures, top_ps, draft_temperatures or ())
    planned = -(-prompts // prompts_per_shard)
    (folder / "shards").mkdir(parents=True)
    manifest = _manifest(columns, name, planned, width, loss_statistics(ks) if losses else [])
    manifest["settings"]["bounds"] = bounds
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    named = {
        "prompt": np.arange(prompts),
        "name": [f"{name} {i}" for i in range(prompts)],
        "text": [f"Text {i} of {name}" for i in range(prompts)],
        "characters": np.full(prompts, 20),
    }
    pq.write_table(pa.table(named), folder / "prompts.parquet")
    for shard in range(planned if shards is None else shards):
        first = shard * prompts_per_shard
        parts: list[dict[str, np.ndarray]] = []
        for prompt in range(first, min(prompts, first + prompts_per_shard)):
            rng = np.random.default_rng([seed, prompt])
            fit, target = rng.uniform(0.3, 2.5), 2.5 * rng.normal(size=(positions, V))
            draft = target + fit * rng.normal(size=(positions, V))
            for setting in settings:
                part = _rows(columns, prompt, draft, target, setting)
                if draft_temperatures is None:
                    del part["draft_temperature"]
                if losses:
                    part |= loss_columns(draft, target, [setting], ks)
                parts.append(part)
        table = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        pq.write_table(
            pa.table(table if width is None else _widened(columns, table, width)),
            folder / "shards" / f"shard-{shard:05d}.parquet",
        )
    return sealed(folder)


def sealed(folder: Path) -> Path:
    """Write the run's identity and the content's digest into the shards of a run."""
    run = run_identity(json.loads((folder / "manifest.json").read_text(encoding="utf-8")))
    for number, path in shard_files(folder).items():
        table = pq.read_table(path)
        columns = {name: table[name].to_numpy() for name in table.column_names}
        path.write_bytes(encode_shard(columns, {"shard": number, "run": run}))
    return folder


def replaced(folder: Path, column: str, values: Any, *, shard: int = 1) -> None:
    """Put a value, or a function of the column's, into a column of one shard."""
    path = folder / "shards" / f"shard-{shard:05d}.parquet"
    table = pq.read_table(path)
    new = values(table[column].to_numpy()) if callable(values) else [values] * len(table)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(new)), path)
    sealed(folder)


def _rows(
    columns: list[Scheme],
    prompt: int,
    draft_logits: np.ndarray,
    target_logits: np.ndarray,
    setting: Setting,
) -> dict[str, np.ndarray]:
    """One prompt's rows at one setting."""
    draft, target = setting.draft(draft_logits), setting.target(target_logits)
    positions = len(target)
    return {
        "prompt": np.full(positions, prompt),
        "position": np.arange(1, positions + 1, dtype=np.int32),
        "temperature": np.full(positions, setting.target.temperature),
        "top_p": np.full(positions, setting.target.top_p),
        "draft_temperature": np.full(positions, setting.draft.temperature),
        "draft_entropy": scipy.stats.entropy(draft, axis=-1),
        "target_entropy": scipy.stats.entropy(target, axis=-1),
        "tv": np.asarray(otm.divergences.total_variation(draft=draft, target=target)),
        "kl_target_draft": np.asarray(otm.divergences.kl_divergence(draft=draft, target=target)),
        **{column.stem: column.values(draft, target) for column in columns},
    }


_KEYS = ("prompt", "position", "temperature", "top_p", "draft_temperature")


def _widened(
    columns: list[Scheme], table: dict[str, np.ndarray], width: float
) -> dict[str, np.ndarray]:
    most = {column.stem: 1.0 for column in columns}
    kept = {key: table[key] for key in _KEYS if key in table}
    for key in [key for key in table if key not in kept]:
        kept[f"{key}_lower"] = np.maximum(0.0, table[key] - width / 2)
        kept[f"{key}_upper"] = np.minimum(most.get(key, np.inf), table[key] + width / 2)
    return kept


def _manifest(
    columns: list[Scheme],
    name: str,
    planned: int,
    width: float | None,
    losses: list[tuple[str, str, str]],
) -> dict[str, Any]:
    def named(stem: str) -> dict[str, str]:
        ends = () if width is None else ("lower", "upper")
        return {"column": stem, **{f"{end}_column": f"{stem}_{end}" for end in ends}}

    return {
        "schema_version": 2,
        "settings": {
            "draft": f"small {name}",
            "target": f"large {name}",
            "positions": "text",
            "k": [1, 2, 4],
        },
        "position_note": f"along the given text of {name}",
        "provenance": {
            "versions": {"numpy": np.__version__},
            "notes": [],
            "num_tokens": V,
            "argv": ["--note", name],
        },
        "schemes": [
            named(c.stem)
            | {
                "scheme": repr(c.scheme) if isinstance(c.scheme, otm.Verifier) else c.scheme,
                "label": str(c.scheme),
                "law": type(c.law).__name__,
                "k": c.law.k,
                "lossless": c.scheme.lossless if isinstance(c.scheme, otm.Verifier) else True,
                "optimum_column": c.optimum,
                "definition": c.definition,
            }
            for c in columns
        ],
        "statistics": [
            named(stem) | {"name": label, "unit": unit}
            for stem, label, unit in (*STATISTICS, *losses)
        ],
        "plan": {"num_prompts": 12, "prompts_per_shard": 4, "num_shards": planned},
    }


def hostile_manifest(folder: Path) -> None:
    """Put the hostile string into every name of the manifest that a reader sees."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for entry in manifest["schemes"]:
        entry["scheme"] += f"({HOSTILE})"
    seen = {"schemes": ("label", "law"), "statistics": ("name", "unit")}
    for part, names in seen.items():
        for entry in manifest[part]:
            entry |= {name: entry[name] + HOSTILE for name in names}
    manifest["provenance"] |= {HOSTILE: HOSTILE, "notes": [HOSTILE]}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    sealed(folder)
