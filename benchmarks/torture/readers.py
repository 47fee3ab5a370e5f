"""Every reader of files, what it must make of a damaged one, and one trial of it.

A reader may refuse a damaged file by a typed error that names it, or give an answer that is right.
Where a digest is carried, right is the answer of the undamaged file. Where none is, a damaged file
may be another valid one: then the answer must differ by what the files differ by (`accounted`), be
that of another reading (`agrees`), or at least be of its kind (`holds`).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import shutil
import tempfile
import traceback
import unittest.mock as mock
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import otm
from analysis.commands.options import integers  # noqa: F401 (imported here, so that no trial waits for it)
from analysis.decode.decoder_text import decoder_from_text
from analysis.decode.results import ResultsFile, Task, TextRecord, open_results, prompt_name
from analysis.errors import AnalysisError
from analysis.models.pair import load_pair
from analysis.models.prompts import Digest, open_prompts, prompts
from analysis.models.source import PairSource
from analysis.report.aggregate import aggregate
from analysis.report.decode_results import read_decode
from analysis.report.reading import open_run, read_prompts
from analysis.run.merge import merge
from analysis.run.runs import measure_prompts, measure_trace_file
from analysis.run.settings import Settings
from analysis.run.shards import read_shard, shard_path
from analysis.trace.traces import open_trace, write_manifest
from analysis.train import corpus as texts, resumable, training
from analysis.train.pair_training import recipe_from_json
from benchmarks.torture import damage
from benchmarks.torture.damage import Damage
from benchmarks.torture.isolation import scratch
from otm import audit
from otm.audit.token_log import read_log
from otm.engines import PositionAcceptance, parse_acceptance
from otm.trees import TreeShape, tree_from_json, tree_to_json
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace

Fault = str
"""Why an answer is wrong; empty where it is right."""

Promise = Callable[[Path, Path, Any, Any], Fault]
"""Says what is wrong with the answer to a folder, given the undamaged one, the answer, and that to
the undamaged one.
"""

NOBODY = 65_534
TYPED = (AnalysisError, otm.OtmError)


@dataclasses.dataclass(frozen=True)
class Reader:
    """One reader.

    Args:
        function: its public name.
        make: writes valid files into a folder.
        read: reads them; the answer is compared as `plain` has it.
        files: how each may be damaged.
        right: what is promised of an answer to damaged files.
        place: whether files can be replaced by what is none: the reader is given a path.
        foreign: makes another valid set of files, whose parts may be mixed in.
        weight: how often it is tried.
    """

    function: str
    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    files: Mapping[str, tuple[Damage, ...]]
    right: Sequence[Promise]
    place: bool = True
    foreign: Callable[[Path], object] | None = None
    weight: float = 1.0


def same(box: Path, whole: Path, found: Any, expected: Any) -> Fault:
    """Only the undamaged files' answer is right."""
    return (
        ""
        if plain(found) == plain(expected)
        else f"a damaged file gave another answer: {_differing(found, expected)}"
    )


def plain(value: Any) -> Any:
    """Return nested tuples in which NaN equals itself and arrays are their bytes."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (
            type(value).__name__,
            *(
                (f.name, plain(getattr(value, f.name)))
                for f in dataclasses.fields(value)
                if f.name not in ("folder", "path")
            ),
        )
    if isinstance(value, dict):
        return ("dict", *sorted(((plain(k), plain(v)) for k, v in value.items()), key=repr))
    if isinstance(value, list | tuple):
        return ("list", *(plain(v) for v in value))
    return (
        ("nan",)
        if isinstance(value, float) and math.isnan(value)
        else (type(value).__name__, value)
    )


def _differing(found: Any, expected: Any) -> str:
    left, right = repr(found), repr(expected)
    place = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    return (
        f"…{left[max(0, place - 60) : place + 100]} for …{right[max(0, place - 60) : place + 100]}"
    )


# --- one trial


@functools.cache
def _home() -> Path:
    """Return a folder that goes when this process does."""
    place = Path(tempfile.mkdtemp(prefix="torture-", dir=scratch()))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


@functools.cache
def template(name: str, foreign: bool = False) -> Path:
    """Return a folder with a reader's valid files, made once per process."""
    folder = _home() / ("foreign" if foreign else "valid") / name.replace(" ", "-")
    folder.mkdir(parents=True)
    make = READERS[name].foreign if foreign else READERS[name].make
    assert make is not None
    make(folder)
    return folder


@functools.cache
def undamaged(name: str) -> Any:
    """Return the answer of a reader on its valid files."""
    box = _home() / "undamaged" / name.replace(" ", "-")
    shutil.copytree(template(name), box)
    return READERS[name].read(box)


def prepare(name: str) -> None:
    """Make what the trials of a reader share."""
    template(name)
    undamaged(name)
    if READERS[name].foreign is not None:
        template(name, foreign=True)


def trial(name: str, seed: int) -> dict[str, str]:
    """Damage files at random and read them; say what was done and what was wrong with the outcome,
    if anything.
    """
    reader = READERS[name]
    prepare(name)
    steps = int(np.random.default_rng(seed).choice([1, 1, 1, 2, 3]))
    fault, done, damaged = _attempt(name, seed, range(steps))
    if fault and steps > 1:  # one of them alone will do
        for step in range(steps):
            alone = _attempt(name, seed, [step])
            if alone[0]:
                fault, done, damaged = alone
                break
    reproduce = ""
    if fault and damaged is not None and len(damaged[1]) < 4_000:
        reproduce = (
            f"from benchmarks.torture.readers import judged\n\nassert judged({name!r}, "
            f"{{{damaged[0]!r}: {damaged[1]!r}}}) == ''"
        )
    elif fault:
        reproduce = (
            f"from benchmarks.torture.readers import trial\n\nassert not trial({name!r}, "
            f"{seed})['fault']"
        )
    return {"function": reader.function, "fault": fault, "damage": done, "reproduce": reproduce}


def _attempt(name: str, seed: int, steps: Any) -> tuple[Fault, str, tuple[str, bytes] | None]:
    reader = READERS[name]
    with _copy(name) as box:
        random = np.random.default_rng([seed, 1])
        file = str(random.choice(sorted(reader.files)))
        path = box / file
        if reader.foreign is not None and random.random() < 0.08:
            other = str(random.choice(sorted(reader.files)))
            shutil.copy(
                (template(name, foreign=True) if random.random() < 0.5 else template(name)) / other,
                path,
            )
            return judge(name, box, path), f"{other} of another set in place of {file}", None
        if reader.place and random.random() < 0.08:
            kind = damage.replaced(path, random)
            return judge(name, box, path, kind), f"{file}: {kind}", None
        data, done = path.read_bytes(), []
        for step in steps:
            own = np.random.default_rng([seed, 2, step])
            hurt = reader.files[file][int(own.integers(len(reader.files[file])))]
            data = hurt(data, own)
            done.append(hurt.__name__)
        path.write_bytes(data)
        return judge(name, box, path), f"{file}: {', '.join(done)}", (file, data)


def judged(name: str, files: Mapping[str, bytes]) -> Fault:
    """Return what is wrong when a reader meets these files in place of its own."""
    with _copy(name) as box:
        for file, data in files.items():
            (box / file).write_bytes(data)
        return judge(name, box, box / next(iter(files)))


@contextlib.contextmanager
def _copy(name: str) -> Any:
    place = Path(tempfile.mkdtemp(prefix="box-", dir=_home()))
    try:
        yield Path(shutil.copytree(template(name), place / "box"))
    finally:
        shutil.rmtree(place)


def judge(name: str, box: Path, path: Path, kind: str = "") -> Fault:
    """Read, and say what is wrong with the outcome."""
    reader = READERS[name]
    expected = undamaged(name)
    try:
        with _nobody(box) if kind == "forbidden" else contextlib.nullcontext():
            found = reader.read(box)
    except TYPED as error:
        return _unhelpful(str(error), box, reader) if reader.place else ""
    except Exception:
        return traceback.format_exc(limit=-6)
    if kind == "gone":
        return ""  # a run may be unfinished, and says so
    if kind == "kernel":
        # what the kernel offers as a file may be read as an empty one, if only its end is not
        # waited for
        return ""
    if kind in ("zeros", "loop", "chain", "nowhere", "pipe", "socket", "folder"):
        return same(box, box, found, expected)
    if plain(found) == plain(expected) and same in reader.right:
        return ""
    faults = [promise(box, template(name), found, expected) for promise in reader.right]
    return next(filter(None, faults), "")


def _unhelpful(message: str, box: Path, reader: Reader) -> Fault:
    names = {part for file in reader.files for part in (Path(file).name, Path(file).stem)} | {
        box.name
    }
    if len(message) > 4_000:
        return f"an error of {len(message)} characters: {message[:300]}…"
    if not any(name in message for name in names):
        return f"the error names no file: {message}"
    return ""


@contextlib.contextmanager
def _nobody(box: Path) -> Any:
    """Be a user who may not read everything; the folder stays open to him."""
    if os.geteuid() != 0:
        yield
        return
    for place in (_home(), box.parent, box, *(p for p in box.rglob("*") if p.is_dir())):
        place.chmod(0o777)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# --- what an answer must be where no digest protects the file

Leaf = tuple[str, Any]


class _Loose(Exception):
    """The text is not strict JSON."""


def strictly(data: bytes) -> Any:
    """Parse JSON, or lines of it, that names no key twice and no number that is none."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise _Loose("a key twice")
        return dict(pairs)

    def finite(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise _Loose(digits)
        return float(digits)

    def parse(text: str) -> Any:
        return json.loads(text, object_pairs_hook=once, parse_float=finite, parse_constant=finite)

    try:
        text = data.decode("utf-8-sig")
        with contextlib.suppress(ValueError):
            return parse(text)
        return [parse(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise _Loose(str(error)) from error


def leaves(value: Any, keys: Collection[str] | None = None, inside: bool = False) -> Counter[Leaf]:
    """Count numbers, truths and texts, of the values under these keys if some are named."""
    taken = inside or keys is None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.astuple(value)
    if isinstance(value, dict):
        parts = [leaves(part, keys, taken or key in (keys or ())) for key, part in value.items()]
    elif isinstance(value, list | tuple | np.ndarray):
        parts = [leaves(part, keys, inside) for part in value]
    elif value is None or not taken:
        return Counter()
    elif isinstance(value, bool | str):
        return Counter([(type(value).__name__, value)])
    else:
        return Counter([("number", float(value))])
    return sum(parts, Counter())


def accounted(
    file: str, *, keys: Collection[str] | None = None, defaults: Any = (), torn: bool = False
) -> Promise:
    """Promise that the file is strict JSON, and that an answer differs from that of the undamaged
    file by what the files differ by: nothing is ignored, taken for something else or made up.

    Args:
        file: its name.
        keys: what of the file is in the answer; all of it if None.
        defaults: what stands in an answer where the file says nothing.
        torn: whether a last line without an end is left out.
    """

    def right(box: Path, whole: Path, found: Any, expected: Any) -> Fault:
        try:
            data = (box / file).read_bytes()
            damaged = leaves(strictly(data[: data.rfind(b"\n") + 1] if torn else data), keys)
        except _Loose as loose:
            return f"accepted, though {loose}"
        before = leaves(strictly((whole / file).read_bytes()), keys)
        found_leaves, expected_leaves = leaves(found), leaves(expected)
        spare = leaves(defaults)
        for leaf in damaged | before | found_leaves | expected_leaves:
            more = found_leaves[leaf] - expected_leaves[leaf] - damaged[leaf] + before[leaf]
            if more and not (more > 0 and leaf in spare):
                return f"{leaf!r:.80} is not accounted for: {_differing(found, expected)}"
        return ""

    return right


def holds(predicate: Callable[[Any], bool]) -> Promise:
    """Promise something of the answer itself: what is read of loose texts must at least be of its
    kind.
    """
    return lambda box, whole, found, expected: (
        "" if predicate(found) else f"cannot be: {repr(found)[:300]}"
    )


def agrees(reading: Callable[[Path], Any]) -> Promise:
    """Promise the answer of another reading of the same files, which must take them, too."""

    def right(box: Path, whole: Path, found: Any, expected: Any) -> Fault:
        try:
            due = reading(box)
        except (*TYPED, ValueError) as error:
            return f"accepted, though {error}"
        return "" if plain(found) == plain(due) else f"misread: {_differing(found, due)}"

    return right


def is_law(masses: Any, *, whole: bool = False) -> bool:
    """Say whether these are masses of one distribution, or of a part of one."""
    total = math.fsum(masses)
    return min(masses) >= 0 and (abs(total - 1) < 1e-4 if whole else total <= 1 + 1e-5)


# --- audit logs


def _make_log(folder: Path) -> None:
    random = np.random.default_rng(0)
    lines = []
    for number in range(12):
        target, draft = (random.dirichlet(np.ones(6)).tolist() for _ in range(2))
        record: dict[str, Any] = {
            "context": f"request {number}",
            "drafts": [number % 6],
            "output": number % 5,
            "target": target,
        }
        if number % 3 == 0:
            record["target"] = {
                "tokens": [4, 1, 0],
                "probabilities": [0.5, 0.25, 0.125],
                "tail": 0.125,
            }
        if number % 4:
            record["draft"] = draft
        lines.append(json.dumps(record))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")


def _read_log(folder: Path) -> Any:
    path = folder / "log.jsonl"
    records = list(read_log(path))
    with contextlib.suppress(otm.OtmError):  # too short a log is no verdict
        str(audit.server_log(path))
    laws = [np.asarray(record.target, dtype=float) for record in records]
    assert all(is_law(law, whole=True) for law in laws), "no distribution"
    return [(record.drafts, record.output) for record in records]


# --- trees and positions


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _read_tree(folder: Path) -> Any:
    record = tree_from_json(_text(folder / "tree.json"))
    return (
        None if record.acceptance is None else record.acceptance.tolist(),
        None if record.shape is None else record.shape.parents.tolist(),
    )


def _is_tree(found: Any) -> bool:
    acceptance, parents = found
    return (acceptance is None or is_law(acceptance)) and all(
        0 <= parent <= vertex for vertex, parent in enumerate(parents or ())
    )


def _chains(path: Path) -> Any:
    """Return the survivals of every part of a record."""
    parts = [part.survivors for part in parse_acceptance(_text(path)).parts]
    return [PositionAcceptance(one).survival.tolist() for one in parts if one is not None]


def _chain(path: Path) -> Any:
    return [parse_acceptance(_text(path)).survival.survival.tolist()]


def _are_survivals(found: Any) -> bool:
    return all(
        chain and 0 <= min(chain) <= max(chain) <= 1 and sorted(chain, reverse=True) == chain
        for chain in found
    )


METRICS = 'vllm:spec_decode_num_drafts_total{engine="0"} 10.0\n' + "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {count}\n'
    for i, count in enumerate([8.0, 6.0, 1.0])
)


# --- traces


def _read_trace(path: Path) -> Any:
    trace = open_trace(path)
    batches = [
        [
            *(
                (s.tokens, s.probabilities, s.tail, s.cap)
                for s in (batch.pair.draft, batch.pair.target)
            ),
            batch.prompt,
            batch.position,
            batch.path,
        ]
        for batch in trace.batches(rows=8)
    ]
    return trace.num_tokens, dict(trace.metadata), batches


def _make_trace_folder(folder: Path, seed: int = 0) -> None:
    names = [f"shard-0000{number}.safetensors" for number in range(2)]
    for number, name in enumerate(names):
        write_small_trace(folder / name, positions=10, seed=seed + number)
    write_manifest(folder, names)


def _as_prompt_logprobs(laws: list[list[float]]) -> Any:
    entries = [
        {str(t): {"logprob": x, "rank": t + 1, "decoded_token": "a"} for t, x in enumerate(law)}
        for law in laws
    ]
    return {
        "text": "",
        "prompt_logprobs": [None, *entries],
        "prompt_token_ids": [0, 1, 2, 3, 0],
    }


def _as_chat(laws: list[list[float]]) -> Any:
    def token(number: int, value: float) -> dict[str, Any]:
        return {"token": f"token_id:{number}", "bytes": None, "logprob": value}

    content = [
        token(0, law[0]) | {"top_logprobs": [token(t, x) for t, x in enumerate(law)]}
        for law in laws
    ]
    return {"logprobs": {"content": content}}


def _as_completion(laws: list[list[float]]) -> Any:
    logprobs = {
        "tokens": ["token_id:0"] * 4,
        "token_logprobs": [law[0] for law in laws],
        "top_logprobs": [{f"token_id:{t}": x for t, x in enumerate(law)} for law in laws],
    }
    return {"logprobs": logprobs}


def _make_lines(folder: Path) -> None:
    random = np.random.default_rng(0)
    lines: dict[str, list[str]] = {"draft": [], "target": []}
    for form in 2 * (_as_prompt_logprobs, _as_chat, _as_completion):
        for written in lines.values():
            laws = np.log(np.sort(random.dirichlet(np.ones(9), size=4))[:, :-5:-1])
            written.append(json.dumps({"choices": [form(laws.tolist())]}))
    for side, written in lines.items():
        (folder / f"{side}.jsonl").write_text("\n".join(written) + "\n")
    manifest = {"format": "otm-trace", "schema": 1, "form": "jsonl", "num_tokens": 64}
    sides = {side: f"{side}.jsonl" for side in lines}
    about = {"rounding": 2e-06, "metadata": {"draft_model": "small"}}
    (folder / "trace.json").write_text(json.dumps(manifest | sides | about))


def _are_engines_laws(found: Any) -> bool:
    for batch in found[2]:
        for tokens, masses, tail, cap in batch[:2]:
            for row, mass, rest, most in zip(tokens, masses, tail, cap, strict=True):
                listed = row[row >= 0].tolist()
                if len(set(listed)) < len(listed) or (mass[row < 0] != 0).any():
                    return False
                if not is_law(mass) or max(rest, most) > 1:
                    return False
    return True


def _lines_are_strict(box: Path, whole: Path, found: Any, expected: Any) -> Fault:
    try:
        for file in ("trace.json", "draft.jsonl", "target.jsonl"):
            # engines write it
            strictly(re.sub(rb"-Infinity", b"-1e308", (box / file).read_bytes()))
    except _Loose as loose:
        return f"accepted, though {loose}"
    return ""


# --- prompts


TEXTS = [
    "Return the number of elements.",
    "If True, the array is sorted.",
    "Raises an error if x < 0.",
    "naïve — ‘quoted’ \u2028 text",
]


def _make_prompts(folder: Path, kind: str) -> None:
    path = folder / f"prompts.{kind}"
    lines = [*TEXTS[:2], "", *TEXTS[2:]]
    if kind == "jsonl":
        lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(TEXTS)]
    if kind == "parquet":
        pq.write_table(pa.table({"id": range(4), "text": TEXTS}), path)
    else:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read_prompts(folder: Path, kind: str) -> Any:
    digest, found = Digest(), []
    for prompt in prompts(open_prompts(folder / f"prompts.{kind}")):
        digest.update(prompt)
        found.append(prompt.text)
    assert len(digest.hexadecimal) == 64
    return found


def _lines_of(folder: Path) -> Any:
    """Read the text file of prompts line by line."""
    text = (folder / "prompts.txt").read_bytes().decode("utf-8-sig")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _are_texts(found: Any) -> bool:
    """Parquet pages carry no digest of their own: what comes must at least be prompts."""
    return all(text.strip() and text.encode("utf-8", "ignore") == text.encode() for text in found)


# --- runs


def _make_run(folder: Path, seed: int = 0) -> None:
    trace = write_small_trace(folder / "trace.safetensors", positions=30, seed=seed)
    measure_trace_file(folder / "run", trace=trace, settings=SETTINGS)


_make_another_run = functools.partial(_make_run, seed=1)


def _read_report(folder: Path) -> Any:
    run = open_run(folder / "run")
    found = aggregate(run)
    names = read_prompts(run, [0, 1])
    about = {part: run.manifest.get(part) for part in ("settings", "plan", "position_note")}
    means = [
        (m.value, m.low, m.high)
        for m in (*found.lower, *found.upper, *found.gap_low, *found.gap_high, *found.statistics)
    ]
    # labels are for readers, and may change
    schemes = [dataclasses.replace(column, label="") for column in run.schemes]
    return about, schemes, run.statistics, run.num_rows, run.num_shards_planned, names, means


def _read_measure(folder: Path) -> Any:
    summary = measure_trace_file(
        folder / "run", trace=folder / "trace.safetensors", settings=SETTINGS
    )
    return summary.num_shards, summary.finished, _contents(folder / "run")


def _read_merge(folder: Path) -> Any:
    merged = merge([folder / "run"], folder / "merged")
    return merged, _contents(folder / "merged")


def _contents(run: Path) -> Any:
    """Return what a run's files say: a bit of a file's statistics or padding may be another."""
    parts = {path.name: read_shard(path) for path in sorted((run / "shards").glob("*"))}
    return parts, _read_trace(run / "logits") if (run / "logits").exists() else None


def _read_shards(folder: Path) -> Any:
    return [read_shard(shard_path(folder / "run", index)) for index in range(4)]


_RUN = {
    "run/manifest.json": damage.JSON,
    **{f"run/shards/shard-0000{i}.parquet": damage.ANY for i in range(4)},
}


# --- runs of models, with their logits


SIZE: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "feed_forward": 32,
    "learning_rate": 0.01,
}
RECIPE: dict[str, Any] = {"vocabulary": 300, "context": 16, "batch": 2}
"""Of models that are made in a moment."""

LOGITS = Settings(k=(1, 2), shard_prompts=1, max_tokens=12, save_logits=8)


@functools.cache
def tiny_models() -> Path:
    """Return a folder with a tiny draft and a tiny target, of one tokenizer."""
    folder = Path(tempfile.mkdtemp(prefix="models-", dir=_home()))
    tokenizer = training.train_tokenizer([" ".join(TEXTS[:3])] * 3, 300)
    size = training.Size(**SIZE, steps=1)
    recipe = training.Recipe(**RECIPE | {"context": 64}, draft=size, target=size)
    for seed, side in enumerate(("draft", "target")):
        model = training.build_model(size, recipe, len(tokenizer), seed)
        for parameter in model.parameters():
            parameter.data *= 20  # of the initial weights alone nothing follows but uniform laws
        model.save_pretrained(folder / side)
        tokenizer.save_pretrained(folder / side)
    return folder


def _make_models_run(folder: Path, first: int = 0) -> None:
    (folder / "prompts.txt").write_text("\n".join(TEXTS[first : first + 3]) + "\n")
    _measure_models(folder)


_make_another_models_run = functools.partial(_make_models_run, first=1)


def _measure_models(folder: Path) -> Any:
    draft, target = (str(tiny_models() / side) for side in ("draft", "target"))
    models, source = PairSource(draft, target, device="cpu"), open_prompts(folder / "prompts.txt")
    return measure_prompts(folder / "run", source=source, models=models, settings=LOGITS)


def _read_models_run(folder: Path) -> Any:
    summary = _measure_models(folder)
    return summary.num_shards, summary.finished, _contents(folder / "run")


_MODELS_RUN = {
    "run/logits/trace.json": damage.JSON,
    **{f"run/logits/shard-0000{i}.safetensors": damage.ANY for i in range(3)},
    "run/shards/shard-00001.parquet": damage.ANY,
}


# --- decoded texts


def _make_results(folder: Path, shift: int = 0) -> None:
    path = folder / "results.jsonl"
    settings = {
        "num_tokens": 8,
        "temperature": 1.0,
        "top_p": None,
        "weights": {"draft": "a", "target": "b"},
    }
    file = ResultsFile(path, settings=settings, provenance={"host": "here"})
    for prompt in range(3):
        for decoder in ("SpeculativeSampling(3)", "DraftSelection(4, 2)"):
            task = Task(decoder, prompt_name([prompt + shift]), 0)
            file.append(TextRecord(task, (5, 6, 7, 8), (3, 1), (2, 0), (2, 0), 3, False, 0.25))


def _read_results(folder: Path) -> Any:
    header, records = open_results(folder / "results.jsonl")
    return dict(header), [_in_the_files_words(record) for record in records]


def _in_the_files_words(record: TextRecord) -> dict[str, Any]:
    assert sum(record.lengths) >= len(record.tokens)
    assert len(record.lengths) == len(record.accepted) == len(record.vertices)
    return dataclasses.asdict(record)


def _read_decoded(folder: Path) -> Any:
    run = read_decode(folder / "results.jsonl")
    return [(row.decoder, row.prompts, row.target_calls) for row in run.rows]


def _decoded_due(folder: Path) -> Any:
    records = list(open_results(folder / "results.jsonl")[1])
    rows = []
    for decoder in dict.fromkeys(record.task.decoder for record in records):
        mine = [record for record in records if record.task.decoder == decoder]
        calls = sum(len(record.lengths) for record in mine)
        rows.append((decoder, len({record.task.prompt for record in mine}), calls))
    return [row for row in rows if row[2]]


def _resume_results(folder: Path) -> Any:
    valid = template("analysis.decode.results.ResultsFile") / "results.jsonl"
    settings = json.loads(valid.read_text().split("\n")[0])["settings"]
    file = ResultsFile(folder / "results.jsonl", settings=settings, provenance={})
    return sorted(file.done, key=repr)


def _resume_due(folder: Path) -> Any:
    records = list(open_results(folder / "results.jsonl")[1])
    return sorted({record.task for record in records}, key=repr)


def _read_decoder(folder: Path) -> Any:
    decoder: Any = decoder_from_text("Gsd(tree('tree.json'))", folder=folder)
    return decoder.shape.parents.tolist()


def _parents_of_the_tree(folder: Path) -> Any:
    shape = tree_from_json((folder / "tree.json").read_text(encoding="utf-8")).shape
    return None if shape is None else shape.parents.tolist()


# --- training


def _make_recipe(folder: Path) -> None:
    size = SIZE | {"steps": 12}
    (folder / "recipe.json").write_text(json.dumps(RECIPE | {"draft": size, "target": size}))


def _read_recipe(folder: Path) -> Any:
    return dataclasses.asdict(recipe_from_json(folder / "recipe.json"))


def _is_recipe(found: Any) -> bool:
    sizes = [found[side] for side in ("draft", "target")]
    counts = [found[name] for name in ("vocabulary", "context", "batch")]
    counts += [value for size in sizes for name, value in size.items() if name != "learning_rate"]
    rates = [size["learning_rate"] for size in sizes]
    return all(type(count) is int for count in counts) and min(*counts, *rates) > 0


def _make_text(folder: Path) -> None:
    (folder / "text.txt").write_text(
        "\n\n".join(f"Paragraph {i}: return the {i % 7}th value." * 20 for i in range(12))
    )


def _read_corpus(folder: Path) -> Any:
    corpus = texts.from_text_files([folder / "text.txt"])
    return "".join("".join(document.text for document in corpus.documents).split())


def _text_of_the_file(folder: Path) -> Any:
    return "".join((folder / "text.txt").read_text(encoding="utf-8-sig").split())


def _are_names(found: Any) -> bool:
    return all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) for name in found)


def _recipe() -> training.Recipe:
    size = training.Size(**SIZE, steps=4)
    changed = {"context": 8, "precision": "float32"}
    return training.Recipe(**RECIPE | changed, draft=size, target=size)


class _Stop(Exception):
    """Training stops here."""


def _train(folder: Path, stop: int | None = None) -> Any:
    recipe, write = _recipe(), resumable.write_checkpoint
    tokens = np.random.default_rng(0).integers(0, 300, size=400).astype(np.uint16)

    def stopping(place: Path, *tensors: Any, step: int, **options: Any) -> None:
        write(place, *tensors, step=step, **options)
        if step == stop:
            raise _Stop

    saving = mock.patch.multiple(resumable, SAVE_EVERY=0.0, write_checkpoint=stopping)
    with saving, contextlib.suppress(_Stop):
        model = training.train_model(recipe.draft, recipe, tokens, 300, folder=folder / "work")
        return {name: value.detach().numpy() for name, value in model.named_parameters()}
    return None


def _tokens_of_the_text(folder: Path) -> Any:
    return training.prepare_tokens(
        texts.from_text_files([folder / "text.txt"]), _recipe(), folder / "work"
    )


def _make_cache(folder: Path) -> None:
    _make_text(folder)
    _tokens_of_the_text(folder)
    (cache,) = (folder / "work").glob("tokens-*.npz")
    cache.rename(folder / "work" / "cache.npz")


def _read_cache(folder: Path) -> Any:
    corpus, cache = texts.from_text_files([folder / "text.txt"]), folder / "work" / "cache.npz"
    if cache.exists() or cache.is_symlink():
        cache.rename(cache.with_name(f"tokens-{corpus.digest[:16]}-{RECIPE['vocabulary']}.npz"))
    tokenizer, *rest = _tokens_of_the_text(folder)
    return tokenizer.get_vocab(), *rest


def _read_pair(folder: Path) -> Any:
    pair = load_pair(draft=str(folder / "draft"), target=str(folder / "target"), device="cpu")
    return [logits.numpy() for logits in pair.next_logits(pair.encode("Return the"))]


def _are_logits(found: Any) -> bool:
    """Weights of others carry no digest: what was loaded is some model, and gives logits for every
    token.
    """
    return all(side.ndim == 1 for side in found)


READERS: dict[str, Reader] = {
    "otm.audit.server_log": Reader("otm.audit.server_log", _make_log, _read_log,
    {"log.jsonl": damage.JSON}, [accounted("log.jsonl", keys=("drafts", "output"))], weight=2),
    "otm.trees.tree_from_json": Reader(
        "otm.trees.tree_from_json",
        lambda folder: (folder / "tree.json").write_text(
            tree_to_json(acceptance=[0.5, 0.25, 0.125], shape=TreeShape([0, 0, 1, 1, 2]))
        ),
        _read_tree,
        {"tree.json": damage.JSON},
        [accounted("tree.json", keys=("acceptance", "parents")), holds(_is_tree)],
        place=False,
        weight=2,
    ),
    "otm.engines.read_acceptance, CSV by position": Reader(
        "otm.engines.read_acceptance",
        lambda folder: (folder / "rates.csv").write_text(
            PositionAcceptance([0.8, 0.6, 0.1]).to_csv()
        ),
        lambda folder: _chains(folder / "rates.csv"),
        {"rates.csv": damage.TEXT},
        [holds(_are_survivals)],
        place=False,
        weight=2,
    ),
    "otm.engines.read_acceptance, CSV by run": Reader(
        "otm.engines.read_acceptance",
        lambda folder: (folder / "wide.csv").write_text(
            "dataset,pos_0,pos_1,pos_2\nmt_bench,0.8,0.6,0.1\ngsm8k,0.9,0.7,\n"
        ),
        lambda folder: _chains(folder / "wide.csv"),
        {"wide.csv": damage.TEXT},
        [holds(_are_survivals)],
        place=False,
    ),
    "otm.engines.read_acceptance, log": Reader(
        "otm.engines.read_acceptance",
        lambda folder: (folder / "server.log").write_text(
            "noise\n acc per pos = (0.700, 0.300)\nnoise\n"
        ),
        lambda folder: _chain(folder / "server.log"),
        {"server.log": damage.TEXT},
        [holds(_are_survivals)],
        place=False,
    ),
    "otm.engines.read_acceptance, counters": Reader(
        "otm.engines.read_acceptance",
        lambda folder: (folder / "metrics").write_text(METRICS),
        lambda folder: _chain(folder / "metrics"),
        {"metrics": damage.TEXT},
        [holds(_are_survivals)],
        place=False,
    ),
    "analysis.trace.traces.open_trace, file": Reader(
        "analysis.trace.traces.open_trace",
        lambda folder: write_small_trace(folder / "trace.safetensors", positions=20),
        lambda folder: _read_trace(folder / "trace.safetensors"),
        {"trace.safetensors": damage.ANY},
        [same],
        foreign=lambda folder: write_small_trace(folder / "trace.safetensors", positions=20),
        weight=2,
    ),
    "analysis.trace.traces.open_trace, folder": Reader(
        "analysis.trace.traces.open_trace",
        _make_trace_folder,
        _read_trace,
        {"trace.json": damage.JSON, "shard-00000.safetensors": damage.ANY,
        "shard-00001.safetensors": damage.ANY},
        [same],
        foreign=functools.partial(_make_trace_folder, seed=7),
        weight=2,
    ),
    "analysis.trace.traces.open_trace, lines": Reader(
        "analysis.trace.traces.open_trace",
        _make_lines,
        _read_trace,
        {"trace.json": damage.JSON, "draft.jsonl": damage.JSON, "target.jsonl": damage.JSON},
        [_lines_are_strict, holds(_are_engines_laws)],
        weight=2,
    ),
    **{
        f"analysis.models.prompts.open_prompts, {kind}": Reader(
            "analysis.models.prompts.open_prompts",
            functools.partial(_make_prompts, kind=kind),
            functools.partial(_read_prompts, kind=kind),
            {f"prompts.{kind}": hurt},
            right,
        )
        for kind, hurt, right in (
            ("txt", damage.TEXT, [agrees(_lines_of), holds(_are_texts)]),
            ("jsonl", damage.JSON, [accounted("prompts.jsonl", keys=("text",)), holds(_are_texts)]),
            ("parquet", damage.ANY, [holds(_are_texts)]),
        )
    },
    "analysis.report.reading.open_run": Reader(
        "analysis.report.reading.open_run", _make_run, _read_report,
        _RUN | {"run/prompts.parquet": damage.ANY}, [same],
        foreign=_make_another_run, weight=2,
    ),
    "analysis.run.merge.merge": Reader(
        "analysis.run.merge.merge", _make_run, _read_merge, _RUN, [same], foreign=_make_another_run
    ),
    "analysis.run.runs.measure_trace_file": Reader(
        "analysis.run.runs.measure_trace_file",
        _make_run,
        _read_measure,
        _RUN | {"trace.safetensors": damage.ANY},
        [same],
        foreign=_make_another_run,
    ),
    "analysis.run.shards.read_shard": Reader(
        "analysis.run.shards.read_shard",
        _make_run,
        _read_shards,
        {name: hurt for name, hurt in _RUN.items() if "shard-" in name},
        [same],
    ),
    "analysis.run.runs.measure_prompts": Reader(
        "analysis.run.runs.measure_prompts",
        _make_models_run,
        _read_models_run,
        _MODELS_RUN,
        [same],
        foreign=_make_another_models_run,
        weight=0.5,
    ),
    "analysis.run.merge.merge, logits": Reader(
        "analysis.run.merge.merge", _make_models_run, _read_merge, _MODELS_RUN, [same],
        foreign=_make_another_models_run, weight=0.5
    ),
    "analysis.trace.traces.open_trace, logits": Reader(
        "analysis.trace.traces.open_trace",
        _make_models_run,
        lambda folder: _read_trace(folder / "run" / "logits"),
        {name: hurt for name, hurt in _MODELS_RUN.items() if "logits" in name},
        [same],
        foreign=_make_another_models_run,
    ),
    "analysis.decode.results.open_results": Reader(
        "analysis.decode.results.open_results", _make_results, _read_results,
        {"results.jsonl": damage.JSON}, [accounted("results.jsonl", torn=True)]
    ),
    "analysis.report.decode_results.read_decode": Reader(
        "analysis.report.decode_results.read_decode", _make_results, _read_decoded,
        {"results.jsonl": damage.JSON}, [agrees(_decoded_due)]
    ),
    "analysis.decode.results.ResultsFile": Reader(
        "analysis.decode.results.ResultsFile", _make_results, _resume_results,
        {"results.jsonl": damage.JSON}, [agrees(_resume_due)]
    ),
    "analysis.decode.decoder_text.decoder_from_text": Reader(
        "analysis.decode.decoder_text.decoder_from_text",
        lambda folder: (folder / "tree.json").write_text(tree_to_json(shape=TreeShape([0, 0, 1, 1,
        2]))),
        _read_decoder,
        {"tree.json": damage.JSON},
        [agrees(_parents_of_the_tree)],
    ),
    "analysis.train.pair_training.recipe_from_json": Reader(
        "analysis.train.pair_training.recipe_from_json", _make_recipe, _read_recipe,
        {"recipe.json": damage.JSON},
        [
            accounted("recipe.json", defaults=dataclasses.asdict(training.Recipe())),
            holds(_is_recipe),
        ],
    ),
    "analysis.train.corpus.from_text_files": Reader(
        "analysis.train.corpus.from_text_files", _make_text, _read_corpus,
        {"text.txt": damage.TEXT}, [agrees(_text_of_the_file)]
    ),
    "analysis.train.corpus.pinned_names": Reader(
        "analysis.train.corpus.pinned_names",
        lambda folder: (folder / "constraints.txt").write_text(
            "numpy==2.1.0\nscipy==1.14.0  # a comment\n\ntorch==2.13.0\n"
        ),
        lambda folder: texts.pinned_names(folder / "constraints.txt"),
        {"constraints.txt": damage.TEXT},
        [holds(_are_names)],
    ),
    "analysis.train.training.train_model": Reader(
        "analysis.train.training.train_model",
        lambda folder: _train(folder, 1),
        _train,
        {"work/checkpoint.safetensors": damage.ANY},
        [same],
        weight=0.7,
    ),
    "analysis.train.training.prepare_tokens": Reader(
        "analysis.train.training.prepare_tokens",
        _make_cache,
        _read_cache,
        {"work/cache.npz": damage.ANY},
        [same],
        weight=0.5,
    ),
    "analysis.models.pair.load_pair": Reader(
        "analysis.models.pair.load_pair",
        lambda folder: shutil.copytree(tiny_models(), folder, dirs_exist_ok=True),
        _read_pair,
        {
            "draft/config.json": damage.JSON,
            "draft/model.safetensors": damage.ANY,
            "draft/tokenizer.json": damage.JSON,
            "target/tokenizer_config.json": damage.JSON,
        },
        [holds(_are_logits)],
        weight=0.4,
    ),
}  # fmt: skip


torch.set_num_threads(1)
