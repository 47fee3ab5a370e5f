"""The papers' decoding experiments, on the shipped pair or another: what is run, and what the figures keep of it.

Every experiment decodes prompts cut from the pair's held-out text with a list of decoders, through the same results files as
`python -m analysis decode`, and condenses them to one small JSON file that its figure draws. Figures need no torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import otm
from otm.sequence import Decoder, DraftSelection, Ersd, Gsd, SpeculativeSampling, StaticDecoder
from otm.trees import TreeShape
from otm.trees.optimal import optimal_tree

from ..decode.decode_run import RunSettings, run_decode
from ..decode.efficiency import efficiency
from ..decode.results import TextRecord
from ..errors import AnalysisError
from ..files import write_json
from ..layout import SHIPPED_PAIR
from ..models.names import local_folders
from ..models.pair import Pair, load_pair
from ..provenance import environment, origin

PROMPT_TOKENS = 32
NUM_TOKENS = 64

TABLE2_LENGTHS = (4, 8)
TABLE2_DRAFTS = (1, 2, 4, 8)
TABLE2_SEEDS = (0, 1, 2)

ERSD_BATCH = (1, 2, 4, 8, 16)
ERSD_SEQUENCE = (1, 2, 4, 8, 16)
ERSD_SPECINFER = (3, 4, 6)
ERSD_OPTIMAL = (1, 2, 4, 8, 16, 32)
ERSD_METHODS: dict[str, Callable[[TreeShape], StaticDecoder]] = {"GSD": Gsd, "ERSD": Ersd}

MENTORED_BUDGETS = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0)
MENTORED_LENIENCES = (0.8, 0.5, 0.25)
MENTORED_LENGTH = 5


def run_experiment(
    name: str, *, work: Path, out: Path, num_prompts: int, drafts: Path | None = None, target: str | None = None
) -> Path:
    """Run one experiment and write its data to `out/NAME.json`, `out/NAME-TARGET.json` for another target than the shipped one.

    Args:
        name: which one.
        work, out: folders of the results files and of the figure's data.
        num_prompts: prompts cut from the shipped held-out text, which any tokenizer can read.
        drafts: folder with draft models for table2; the default is the shipped ones, or the one that belongs to the target.
        target: hub name, folder or short name of the target; the shipped one by default.

    Raises:
        AnalysisError: on an unknown name, or as decoding does.
    """
    if name not in EXPERIMENTS:
        raise AnalysisError(f"There are the experiments {', '.join(EXPERIMENTS)}; got {name!r}. Choose one.")
    laboratory = Laboratory(work=work, num_prompts=num_prompts, drafts=drafts, target=target)
    data = EXPERIMENTS[name](laboratory)
    record = {
        "experiment": name,
        "num_prompts": num_prompts,
        "prompt_tokens": PROMPT_TOKENS,
        "num_tokens": NUM_TOKENS,
        "manifest": environment() | origin(),
    }
    suffix = "" if target is None else f"-{Path(target).name}"
    return write_json(out / f"{name}{suffix}.json", record | data)


@dataclasses.dataclass(frozen=True)
class Laboratory:
    """Where an experiment runs: the folder of its results files, how many prompts, the target and where its draft models lie."""

    work: Path
    num_prompts: int
    drafts: Path | None
    target: str | None

    def load(self, draft: str | None = None) -> Pair:
        """Load the target with a draft, by default its own."""
        return load_pair(draft=draft, target=self.target, device="cpu")

    def draft_models(self) -> dict[str, Path]:
        """Return the draft models by name, smallest first: every subfolder `draft*` with weights, or the one of the target."""
        if self.drafts is None and self.target is not None:
            return {"draft": local_folders(None, self.target)[0]}
        folder = SHIPPED_PAIR if self.drafts is None else self.drafts
        found = [path for path in sorted(folder.glob("draft*")) if (path / "model.safetensors").is_file()]
        if not found:
            raise AnalysisError(
                f"{folder} holds no draft models: they are folders draft* with model.safetensors. Check --drafts."
            )
        return {path.name: path for path in sorted(found, key=_num_parameters)}

    def decode(
        self, label: str, decoders: Mapping[str, Decoder], *, draft: str | None = None, seeds: Sequence[int]
    ) -> list[TextRecord]:
        """Decode the experiment's prompts."""
        pair = self.load(draft)
        prompts = held_out_prompts(pair, self.num_prompts)
        settings = RunSettings(draft=draft, target=self.target, num_tokens=NUM_TOKENS, dtype=str(pair.target.dtype))
        return run_decode(pair, decoders, prompts, settings=settings, seeds=seeds, out=self.work / f"{label}.jsonl")


def held_out_prompts(pair: Pair, count: int) -> list[list[int]]:
    """Return `count` of the windows of 32 tokens into which the pair's held-out text falls, in a fixed shuffled order.

    More prompts extend fewer, so an experiment can be continued with a larger number.

    Raises:
        AnalysisError: if the text has fewer windows.
    """
    tokens = pair.encode((SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8"))
    starts = np.random.default_rng(0).permutation(len(tokens) // PROMPT_TOKENS) * PROMPT_TOKENS
    if len(starts) < count:
        raise AnalysisError(f"The held-out text holds {len(starts)} prompts; {count} are asked for. Take fewer.")
    return [tokens[start : start + PROMPT_TOKENS] for start in starts[:count].tolist()]


def table2(laboratory: Laboratory) -> dict[str, Any]:
    """SpecTr's Tables 2 and 4: tokens per call for K drafts of L tokens, K = 1 being speculative decoding, per draft model."""
    decoders: dict[str, Decoder] = {}
    for length in TABLE2_LENGTHS:
        for count in TABLE2_DRAFTS:
            one: Decoder = SpeculativeSampling(length) if count == 1 else DraftSelection(count, length)
            decoders[f"K={count} L={length}"] = one
    rows = []
    for name, folder in laboratory.draft_models().items():
        records = laboratory.decode(f"table2-{name}", decoders, draft=str(folder), seeds=TABLE2_SEEDS)
        parameters = _num_parameters(folder)
        for label in decoders:
            count, length = (int(part.split("=")[1]) for part in label.split())
            row = dataclasses.asdict(efficiency(records, decoder=label))
            rows.append(row | {"draft": name, "parameters": parameters, "K": count, "L": length})
    return {
        "rows": rows,
        "seeds": list(TABLE2_SEEDS),
        "target_parameters": _num_parameters(local_folders(None, laboratory.target)[1]),
    }


def _num_parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as file:
        return sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118 not a dictionary


def ersd(laboratory: Laboratory) -> dict[str, Any]:
    """ERSD's Figures 3 and 4: tokens per call against drafted tokens for four strategies, measured and as the 0-th order says."""
    methods = {}
    for method, make in ERSD_METHODS.items():
        batches = {f"{method} batch {n}": make(TreeShape.batch(n)) for n in ERSD_BATCH}
        records = laboratory.decode("ersd", batches, seeds=(0,))
        acceptance = batch_acceptance(records, f"{method} batch {max(ERSD_BATCH)}", max(ERSD_BATCH))
        best = optimal_tree(np.minimum.accumulate(acceptance), num_nodes=max(ERSD_OPTIMAL))
        others = {
            **{f"{method} sequence {n}": make(TreeShape.chain(n)) for n in ERSD_SEQUENCE},
            **{f"{method} SpecInfer {TreeShape.specinfer(n).num_nodes}": make(TreeShape.specinfer(n)) for n in ERSD_SPECINFER},
            # The tree depends on the measured acceptance: its name says which, so that no other tree's record is taken for it.
            **{
                f"{method} optimal {n} {hash_of(best.first(n).shape)}": make(best.first(n).shape)
                for n in ERSD_OPTIMAL
                if n <= best.shape.num_nodes
            },
        }
        records += laboratory.decode("ersd", others, seeds=(0,))
        runs = [_ersd_run(records, name, decoder) for name, decoder in (batches | others).items()]
        methods[method] = {"acceptance": acceptance.tolist(), "runs": runs}
    return {"methods": methods}


def _ersd_run(records: Sequence[TextRecord], name: str, decoder: StaticDecoder) -> dict[str, Any]:
    mine = [record for record in records if record.task.decoder == name]
    return dataclasses.asdict(efficiency(mine, decoder=name)) | {
        "strategy": name.split()[1],
        "drafted": decoder.shape.num_nodes,
        "parents": decoder.shape.parents.tolist(),
        "vertex_acceptance": vertex_acceptance(mine, decoder.shape).tolist(),
    }


def batch_acceptance(records: Sequence[TextRecord], decoder: str, width: int) -> np.ndarray:
    """Return the measured acceptance of each rank, from a run that drafted a batch of `width` alternatives.

    A(i) = Pr(the i-th draft is the accepted one): vertex i of a batch is its i-th draft.
    """
    vertices = np.concatenate([record.vertices for record in records if record.task.decoder == decoder]).astype(np.int64)
    share: np.ndarray = np.bincount(vertices, minlength=width + 1)[1:] / len(vertices)
    return share


def vertex_acceptance(records: Sequence[TextRecord], shape: TreeShape) -> np.ndarray:
    """Return how often each vertex of a tree was accepted per target call, `(n + 1,)`, 1 at the root."""
    counts: np.ndarray = np.zeros(shape.num_nodes + 1)
    for record in records:
        np.add.at(counts, np.asarray(record.vertices, dtype=np.int64), 1.0)
    for vertex in range(shape.num_nodes, 0, -1):  # a vertex is accepted whenever a descendant is
        counts[shape.parents[vertex - 1]] += counts[vertex]
    share: np.ndarray = counts / counts[0]
    return share


def hash_of(shape: TreeShape) -> str:
    """Return a short name of a shape."""
    return hashlib.sha256(shape.parents.tobytes()).hexdigest()[:8]


def mentored(laboratory: Laboratory) -> dict[str, Any]:
    """Speed against distortion of mentored decoding on the pair: tokens per call, and the exact KL per verified token."""
    verifiers: dict[str, otm.Verifier] = {
        "speculative": otm.Maximal(),
        **{f"Mentored({budget})": otm.Mentored(budget) for budget in MENTORED_BUDGETS},
        **{f"Lenience({value})": otm.Lenience(value) for value in MENTORED_LENIENCES},
        "TypicalAcceptance()": otm.TypicalAcceptance(),
        "Fuzzy(0.4)": otm.Fuzzy(0.4),
    }
    decoders: dict[str, Decoder] = {label: SpeculativeSampling(MENTORED_LENGTH, one) for label, one in verifiers.items()}
    records = laboratory.decode("mentored", decoders, seeds=(0, 1))
    pair = laboratory.load()
    problems = _held_out_problems(pair, laboratory.num_prompts)
    rows = []
    for label, verifier in verifiers.items():
        mean = _mean_divergence(verifier, problems)
        rows.append(dataclasses.asdict(efficiency(records, decoder=label)) | {"kl": mean, "label": label})
    return {"rows": rows, "length": MENTORED_LENGTH}


def _held_out_problems(pair: Pair, num_prompts: int) -> list[otm.Problem]:
    """Return both next-token laws along the held-out prompts: contexts of the target's world, as the chain rule asks for."""
    import torch

    from ..models.pair import to_numpy

    found = []
    for prompt in held_out_prompts(pair, num_prompts):
        draft, target = (to_numpy(otm.from_logits(z.double()))[0] for z in pair.logits(torch.tensor([prompt])))
        found += [otm.Problem(draft=p, target=q, law=otm.IID(1)) for p, q in zip(draft[7::8], target[7::8], strict=True)]
    return found


def _mean_divergence(verifier: otm.Verifier, problems: Sequence[otm.Problem]) -> float:
    return float(np.mean([otm.lossy.distortion(verifier, problem).kl for problem in problems]))


def lossy_rules(laboratory: Laboratory) -> dict[str, Any]:
    """What lossy rules accept on the pair, and how far from the target; no text is decoded."""
    from .lossy_rules import measured

    pair = laboratory.load()
    name = "shipped pair" if laboratory.target is None else Path(laboratory.target).name
    return {"pair": name} | measured(pair, held_out_prompts(pair, laboratory.num_prompts))


EXPERIMENTS: dict[str, Callable[[Laboratory], dict[str, Any]]] = {
    "table2": table2,
    "ersd": ersd,
    "mentored": mentored,
    "lossy_rules": lossy_rules,
}
"""Every experiment by name; the figure that draws it has its name, or names it."""
