"""Every command with arguments nobody should give, in surroundings nobody chooses: an exit status
and a message, no more.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer

# before the hub's client is imported, which waits for networks
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "100",
}

import analysis.__main__ as analysis_commands
import figures.__main__ as figure_commands
import otm
import otm.__main__ as otm_commands
from analysis.commands.app import app
from benchmarks.torture import readers
from benchmarks.torture.isolation import scratch
from otm.commands.audit import probabilities
from tests.paths import ROOT

Random = np.random.Generator

# fmt: off
COUNTS = ("-1", "0", "1", "2", "x", "", "1.5", "nan", "9" * 20, "1e3", "２", "1_0", "+1", " 2 ",
"0x10", "-0", (
    "None"
))
LISTS = (
    "1",
    "1,2",
    "0",
    "-1",
    "",
    ",",
    "1,,2",
    "1-",
    "-",
    "3-1",
    "1-99999999",
    "9" * 30,
    "1,x",
    "nan",
    "1.5",
    "2,2,2",
    "1 2",
    "4,1",
)
REALS = ("1", "0", "0.7", "-1", "nan", "inf", "-inf", "1e400", "1e-320", "x", "", "0.7,1.0",
"1,,2", "٣", "1e999", "0.5", (
    "2"
))
TEXTS = (
    "", " ", "x", "\ud800", "\0", "n" * 5_000, "../..", "/", ".", "~", "-", "--", "--out",
    "é\u202e", "a\nb", "NaN", (
        "'"
    ),
    "{}", "%s", "\udcff",
)
PATHS = (
    *TEXTS, "nowhere", "nowhere/else", "folder", "pipe", "loop", "/dev/null", "/dev/zero",
    "/proc/self/mem", (
        "prompts.txt"
    ),
    "empty", "noise",
)
DECODERS = (
    "SpeculativeSampling(2)", "DraftSelection(2, 2)", "Gsd(batch(2))", "Gsd(tree('tree.json'))", (
        "Gsd(tree('../x'))"
    ),
    "Gsd(chain(10**9))", "Gsd(chain(999999999999))", "DraftSelection(4, 99999999999)",
    "SpeculativeSampling(-1)", (
        "Gsd("
    ),
    "(" * 3_000,
    "SpeculativeSampling()", "__import__('os').getcwd()", "Gsd(batch(nan))", "Gsd(parents([5]))",
    "SpeculativeSampling(2, KSeq(gamma=0))",
    "Optimal()", "", "\ud800", "SpeculativeSampling(True)", "SpeculativeSampling(1.5)",
    "Gsd(parents('x'))", (
        "PrefixTree(())"
    ),
    "Ersd(batch(2), 1)", "[1]", "-'x'",
)
CALLABLES = (
    "otm:Maximal", "otm:KSeq", "otm:Optimal", "otm:Fuzzy", "nosuch:thing", "otm", ":", "a:", ":b", (
        "otm:nosuch"
    ),
    "otm.pmf:normalise", "",
    "os.path:join", "\ud800:x", "json:dumps", "otm:Problem", "..:x", "otm.:x", "builtins:print",
    "n" * 500 + ":f", (
        "otm:IID"
    ),
    "math:pi",
)
LAWS = (
    "3/4,1/4", "1/2,1/2", "0.5,0.5", "1", "1,0", "0,0", "-1,2", "nan,1", "inf,0", "1/0,1", "", ",",
    "x", "1e-320,1", (
        "0.1,0.2"
    ),
    "1/3,1/3,1/3",
)
# fmt: on

GIVEN: dict[str, tuple[str, ...]] = {
    "draft": ("models/draft", "models/target"),
    "target": ("models/target",),
    "prompts": ("prompts.txt", "prompts.jsonl"),
    "from_trace": ("trace.safetensors",),
    "decode": ("results.jsonl",),
    "recipe": ("recipe.json",),
    "text": ("text.txt",),
    "run": ("run",),
    "runs": ("run",),
    "out": ("new", "new/deep"),
    "work": ("new-work",),
    "plot": ("plot.png", "plot.svg"),
    "decoder": DECODERS[:4],
    "device": ("cpu",),
    "dtype": ("float32", "bfloat16"),
    "precision": ("float64", "float32"),
    "positions": ("text", "target", "on-policy"),
    "prompt": ("Return the",),
    "seconds": ("0",),
    "k": ("1", "1,2"),
    "lengths": ("1,4",),
    "batches": ("1",),
    "nodes": ("0,1",),
    "shards": ("0:1", "0:9"),
    "limit": ("1",),
    "context": ("8",),
    "samples": ("0", "20"),
    "field": ("text",),
    "temperature": ("1.0",),
    "top_p": ("0.9",),
    "callable": CALLABLES[:3],
    "log": ("log.jsonl",),
    "names": ("1",),
    "name": ("nosuch",),
    "pair": ("nowhere",),
    "drafts": ("1",),
    "num_tokens": ("4",),
    "max_tokens": ("8",),
    "new_tokens": ("3",),
    "max_nodes": ("3",),
    "max_depth": ("2",),
    "sequences": ("2",),
    "repeats": ("1",),
    "threads": ("1",),
    "mode": ("exact",),
    "law": ("iid",),
    "uniforms": ("1,1",),
    "tolerance": ("1e-9",),
    "detect": ("0.2",),
    "false_alarm": ("0.01",),
    "missed": ("0.1",),
}
"""Values that are right, for most of the options of a call, so that some calls get far."""

WRONG: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("decoder",), DECODERS),
    **dict.fromkeys(("callable",), CALLABLES),
    **dict.fromkeys(
        (
            "temperature",
            "draft_temperature",
            "top_p",
            "draft_top_p",
            "detect",
            "false_alarm",
            "missed",
            "tolerance",
        ),
        REALS,
    ),
    **dict.fromkeys(("k", "lengths", "batches", "nodes", "seeds"), LISTS),
    "seconds": ("-1", "nan", "x", "", "1e-320", "0"),
    # What is right and large takes minutes, and says nothing of how arguments are taken.
    **dict.fromkeys(
        ("max_nodes", "max_depth", "repeats"),
        ("-1", "0", "x", "", "1.5", "nan", "9" * 20, "1e3", "None"),
    ),
    "shards": ("1:0", "x", "", ":", "0:", "-1:2", "5:9", "0:" + "9" * 30, "0:1:2", "nan:1"),
    "scheduler": (
        "nonsense",
        "tcp://127.0.0.1:1",
        "tcp://",
        "x://y:1",
        "",
        "\ud800",
        "tcp://h:99999999",
        "127.0.0.1",
        "tcp://[::1",
        "//",
    ),
    "device": ("cuda", "tpu", "", "cuda:99", "cpu:7", "\ud800", "mps", "meta", "auto", "cpu"),
    "law": ("iid", "x", "", "top-k", "without-replacement", "greedy", "product"),
    "uniforms": ("1,1", "0,0", "-1,1", "x", "1", "1,1,1", "", "9" * 30 + ",1", "1.5,1"),
    "name": ("", "x", "table9", "\ud800", "../x"),
    "names": ("9", "figure", "0", "", "²", "\ud800", "1 2", "../figure1", "__main__", "-1"),
}

ALWAYS = {
    "otm advise": (
        "prompts",
        "out",
        "draft",
        "target",
        "device",
        "seconds",
        "num_tokens",
        "max_nodes",
        "max_depth",
        "sequences",
        "limit",
        "repeats",
        "threads",
    ),
    "otm measure": ("out", "draft", "target", "prompts", "device"),
    "otm decode": ("prompts", "out", "decoder", "draft", "target", "device", "num_tokens"),
    "otm compare": ("prompt", "draft", "target", "device", "samples", "plot"),
    "otm latency": (
        "seconds",
        "draft",
        "target",
        "device",
        "out",
        "context",
        "lengths",
        "batches",
        "nodes",
    ),
    "otm train": ("out", "work", "text", "recipe", "device"),
    "otm capture": ("draft", "target", "out"),
    "otm experiment": ("name", "work", "out"),
    "otm report": ("run",),
    "otm merge": ("runs", "out"),
    "otm audit": ("callable", "draft", "target"),
    "python -m figures": ("names", "out"),
}
"""What is given in nearly every call: what a command needs, and what keeps one that gets far from
taking minutes.
"""

LENGTHY = {
    "otm advise": ("seconds", "num_tokens", "max_nodes", "max_depth", "limit", "repeats"),
    "python -m figures": ("names",),
    "otm capture": ("target",),
    "otm experiment": ("name",),
    "otm train": ("recipe", "text"),
    "otm latency": ("seconds",),
}
"""Options that are never left out: without them a call is right and takes minutes."""


@functools.cache
def inputs() -> Path:
    """Return a folder with valid inputs and with things that are none."""
    folder = Path(tempfile.mkdtemp(prefix="torture-commands-", dir=scratch()))
    for name in (
        "analysis.run.merge.merge",
        "analysis.decode.results.ResultsFile",
        "otm.audit.server_log",
        "analysis.train.corpus.from_text_files",
    ):
        shutil.copytree(readers.template(name), folder, dirs_exist_ok=True)
    for name in ("txt", "jsonl"):
        shutil.copytree(
            readers.template(f"analysis.models.prompts.open_prompts, {name}"),
            folder,
            dirs_exist_ok=True,
        )
    for name in (
        "analysis.decode.decoder_text.decoder_from_text",
        "analysis.train.pair_training.recipe_from_json",
    ):
        shutil.copytree(readers.template(name), folder, dirs_exist_ok=True)
    shutil.copytree(readers.tiny_models(), folder / "models")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "noise").write_bytes(np.random.default_rng(0).bytes(1000))
    return folder


# --- the options there are


class Option:
    """An option or argument of a command: its name in the code, how it is written, and what it
    takes.
    """

    def __init__(
        self, name: str, flag: str | None, kind: str, choices: tuple[str, ...] = ()
    ) -> None:
        self.name, self.flag, self.kind, self.choices = name, flag, kind, choices

    def wrong(self) -> tuple[str, ...]:
        """Return values that it should not be given, most of them."""
        if self.name in WRONG:
            return WRONG[self.name]
        pools = {"path": PATHS, "integer": COUNTS, "float": REALS, "law": LAWS}
        return (*self.choices, *pools.get(self.kind, TEXTS))


@functools.cache
def options() -> dict[str, tuple[Option, ...]]:
    """Return the options of every command, from the parsers themselves."""
    found: dict[str, tuple[Option, ...]] = {}
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        entries = []
        for parameter in command.params:
            flag = next((text for text in parameter.opts if text.startswith("--")), None)
            said = str(parameter.type_descriptor.annotation).lower()
            kinds = {"path": "path", "int": "integer", "float": "float"}
            kind = (
                "flag"
                if getattr(parameter, "is_flag", False)
                else next((kind for word, kind in kinds.items() if word in said), "text")
            )
            entries.append(Option(parameter.name, flag, kind))
        found[f"otm {name}"] = tuple(entries)
    (subcommands,) = (
        a for a in otm_commands._parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    found["otm audit"] = _argparse(subcommands.choices["audit"])
    found["python -m figures"] = (
        Option("names", None, "text"),
        Option("fast", "--fast", "flag"),
        Option("seed", "--seed", "integer"),
        Option("out", "--out", "path"),
    )
    return found


def _argparse(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    entries = []
    for action in parser._actions:
        flag = next((text for text in action.option_strings if text.startswith("--")), None)
        kind = {int: "integer", float: "float", probabilities: "law"}.get(action.type, "text")
        if action.nargs == 0:
            kind = "flag"
        if action.dest == "log":
            kind = "path"
        entries.append(Option(action.dest, flag, kind, tuple(map(str, action.choices or ()))))
    return tuple(entries)


def arguments(command: str, random: Random) -> list[str]:
    """Return random arguments for a command."""
    if random.random() < 0.03:
        return [str(random.choice(["--help", "--version", "--nonsense", "-h", "--", ""]))]
    always, never_left = ALWAYS[command], LENGTHY.get(command, ())
    share = float(random.choice([0.0, 0.1, 0.3, 0.7]))
    bad = float(random.choice([0.1, 0.3, 0.6]))
    given: list[str] = []
    for option in options()[command]:
        if option.name in (
            "help",
            "dataset",
            "split",
            "device_map",
            "constraints",
            "trust_remote_code",
        ):
            continue
        if option.name not in never_left and random.random() > (
            0.95 if option.name in always else share
        ):
            continue
        if option.kind == "flag":
            given.append(str(option.flag))
            continue
        for _ in range(int(random.choice([1, 1, 1, 1, 2]))):
            right = GIVEN.get(option.name) if option.kind != "law" else LAWS[:3]
            pool = right if right and random.random() > bad else option.wrong()
            value = str(pool[int(random.integers(len(pool)))])
            match option.flag:
                case None:
                    given.append(value)
                case flag if random.random() < 0.3:
                    given.append(f"{flag}={value}")
                case flag:
                    given += [flag, value]
    if random.random() < 0.05:
        random.shuffle(given)
    return given


# --- one trial


def prepare() -> None:
    """Make the inputs, and compile what commands would compile."""
    inputs()
    otm.acceptance_table(draft=[0.5, 0.5], target=[0.5, 0.5], k=[1])
    options()
    # one thread here; what processes do is another family's
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forked  # type: ignore[assignment]


def trial(seed: int) -> dict[str, str]:
    """Call a random command with random arguments, in this process."""
    random = np.random.default_rng(seed)
    command = str(random.choice(list(ALWAYS)))
    given = arguments(command, random)
    return {"function": command, "fault": called(command, given), "arguments": json.dumps(given)}


def called(command: str, given: list[str]) -> str:
    """Return what is wrong with how a command takes its arguments, "" if nothing is."""
    with tempfile.TemporaryDirectory(prefix="box-", dir=scratch()) as place:
        box = Path(shutil.copytree(inputs(), Path(place) / "box"))
        os.mkfifo(box / "pipe")
        (box / "loop").symlink_to("loop")
        before, here = _state(Path(place)), Path.cwd()
        os.chdir(box)
        said, error = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
                status: Any = _call(command)(given)
        except SystemExit as stopped:
            status = stopped.code
        except BaseException:
            return traceback.format_exc(limit=-6)
        finally:
            os.chdir(here)
        changed = {
            path for path, content in _state(Path(place)).items() if before.get(path) != content
        }
        return _wrong(
            command, given, status or 0, said.getvalue(), error.getvalue(), changed, before.keys()
        )


def _call(command: str) -> Callable[[list[str]], Any]:
    program, name = command.rsplit(" ", 1)
    if name == "figures":
        return figure_commands.main
    if name == "audit":
        return lambda given: otm_commands.main(["audit", *given])
    del program
    return lambda given: analysis_commands.main([name, *given])


def _wrong(
    command: str,
    given: list[str],
    status: Any,
    said: str,
    error: str,
    changed: set[str],
    before: Any,
) -> str:
    statuses = (0, 1, 2) if command == "otm audit" else (0, 2)
    if status not in statuses:
        return f"status {status!r}: {error[-600:]}"
    if "Traceback" in error:
        return error[-2_000:]
    if status == 2 and not (error.strip() or said.strip()):
        return "status 2 without a word"
    if len(error) > 9_000:
        return f"{len(error)} characters of error: {error[:500]}"
    spoilt = sorted(
        path
        for path in changed
        if path in before and not path.startswith(("box/run", "box/results.jsonl"))
    )
    if spoilt and not any(path.removeprefix("box/") in " ".join(given) for path in spoilt):
        return f"inputs were changed: {spoilt[:5]}"
    allowed = [
        *(value.split("=", 1)[-1] for value in given),
        "comparison.png",
        "latency.json",
        "figures",
        "run",
    ]
    named = [os.path.normpath(f"box/{value}") for value in allowed if value and "\0" not in value]
    strays = [
        p
        for p in changed
        if p not in before
        and not any(p == n or p.startswith((f"{n}/", f"{n}.")) or n == "." for n in named)
    ]
    if strays and ".." not in " ".join(given):
        return f"written where nothing was named: {sorted(strays)[:5]}"
    return ""


def _state(place: Path) -> dict[str, str]:
    found = {}
    for path in place.rglob("*"):
        name = str(path.relative_to(place))
        plain = path.is_file() and not path.is_symlink()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else "other"
    return {name: content for name, content in found.items() if content != "other"}


# --- surroundings


CALLS: tuple[tuple[str, list[str]], ...] = (
    ("otm", ["audit", "otm:Maximal", "--draft", "3/4,1/4", "--target", "1/2,1/2"]),
    ("otm", ["audit", "--help"]),
    ("otm", ["--help"]),
    ("analysis", ["--help"]),
    ("analysis", ["measure", "--help"]),
    ("analysis", ["report", "run", "--out", "new"]),
    ("analysis", ["merge", "run", "--out", "new"]),
    ("analysis", ["measure", "--from-trace", "trace.safetensors", "--out", "new", "--k", "1"]),
    ("analysis", ["report", "nowhere"]),
    ("figures", ["house", "--out", "new"]),
    ("figures", ["--help"]),
)

SURROUNDINGS: tuple[dict[str, str | None], ...] = (
    {},
    {"HOME": None},
    {"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"},
    {"TERM": "dumb"},
    {"TERM": None},
    {"COLUMNS": "10"},
    {"COLUMNS": "0"},
    {"COLUMNS": "x"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"TMPDIR": "/nowhere"},
    {"PYTHONWARNINGS": "error::ResourceWarning"},
)


def outside(seed: int) -> dict[str, str]:
    """Run a command as a process whose output is closed early, without input, or in odd
    surroundings.
    """
    random = np.random.default_rng(seed)
    module, given = CALLS[int(random.integers(len(CALLS)))]
    surroundings = SURROUNDINGS[int(random.integers(len(SURROUNDINGS)))]
    ending = str(random.choice(["whole", "whole", "closed", "head", "full"]))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MPLCONFIGDIR": str(inputs()),
    }
    for name, value in surroundings.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    with tempfile.TemporaryDirectory(prefix="box-", dir=scratch()) as place:
        box = shutil.copytree(inputs(), Path(place) / "box")
        command = [sys.executable, "-m", module, *given]
        tail = {"whole": "", "closed": " >&-", "head": " | head -n 1", "full": " > /dev/full"}[
            ending
        ]
        feed = str(random.choice(["</dev/null", "<&-"]))
        script = f'"$@" {feed}{tail}'
        done = subprocess.run(
            ["bash", "-c", script, "bash", *command],
            cwd=box,
            env=environment,
            capture_output=True,
            check=False,
            timeout=120,
        )
    error = done.stderr.decode(errors="replace")
    fault = error[-2_000:] if re.search("Traceback|Exception ignored|Fatal", error) else ""
    program = (
        "python -m figures"
        if module == "figures"
        else f"otm {given[0]}"
        if not given[0].startswith("-")
        else "otm"
    )
    return {
        "function": program,
        "fault": fault,
        "arguments": f"{surroundings} python -m {module} {' '.join(given)} {feed}{tail}",
    }
