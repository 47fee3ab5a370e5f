"""Fine-tune a draft by different losses, on the same batches, to see which accepts most.

A draft model is usually trained by cross-entropy, or to imitate the target by its forward KL
divergence. Neither is what decoding pays for, the acceptance of k drafts, which `otm`
differentiates exactly (docs/theory.md, "Gradients"). Here copies of one draft are fine-tuned side
by side, one for each loss; a step's batch and the target's distributions on it are the same for
all. Learning rates are chosen from the same list for every loss, by the same figure on windows that
no step sees.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import otm
from otm._progress import counted
from otm.statistics import ratio_of_means

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR, make_folder, open_atomically, write_json
from ..models.pair import Pair, load_pair
from ..provenance import environment, file_digest, origin
from ..statistics import limits
from .corpus import Corpus
from .resumable import Learner, Training, learning_rate_at, make_optimiser
from .training import acceptance_curves, batch, encode

EVALUATED_K = (1, 4, 8)
TRAINED_K = 4
CHOSEN_BY = ("optimum", 4)
"""What picks a learning rate: the optimal acceptance of so many drafts, on windows that neither
steps nor figures see.
"""


Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""The mean loss of draft logits `(n, V)`, given the target's distributions `(n, V)` and the tokens
that follow `(n,)`.
"""


def _cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, following: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, following)


def _forward_divergence(
    logits: torch.Tensor, target: torch.Tensor, following: torch.Tensor
) -> torch.Tensor:
    # D(q‖p) but for the entropy of q, which no step changes
    return torch.nn.functional.cross_entropy(logits, target)


def _loss_of(acceptance: Callable[[torch.Tensor], torch.Tensor], k: int) -> Loss:
    """Return the mean of a function of the optimal acceptance of k i.i.d. drafts as a loss."""

    def loss(logits: torch.Tensor, target: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        problem = otm.Problem(draft=torch.softmax(logits, dim=-1), target=target, law=otm.IID(k))
        return acceptance(otm.optimal_acceptance(problem)).mean()

    return loss


LOSSES: dict[str, Loss] = {
    "cross-entropy": _cross_entropy,
    "forward KL": _forward_divergence,
} | {
    f"{name}, k = {k}": _loss_of(function, k)
    for k in (1, TRAINED_K)
    for name, function in (
        ("-log acceptance", lambda acceptance: -torch.log(acceptance)),
        ("1 - acceptance", lambda acceptance: 1.0 - acceptance),
    )
}
"""Every loss by name: the one that the shipped draft was trained by, the usual one of distillation,
and two of the acceptance.
"""

BASELINE = "forward KL"
"""What the gains of other losses are measured from: the divergence that a draft is usually
distilled by.
"""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that determines the figures besides the models and the text.

    Attributes:
        steps, batch, context: length of a run, windows of a step, tokens of a window.
        rates: the learning rates that every loss chooses from.
        trial_steps: length of the runs that they are chosen by.
        seeds: seeds of the batches of the runs whose figures count; the rates are chosen on
            another.
        windows: windows that rates are chosen on.
    """

    steps: int = 200
    batch: int = 2
    context: int = 128
    rates: tuple[float, ...] = (1e-3, 3e-3, 9e-3)
    trial_steps: int = 66
    seeds: tuple[int, ...] = (0, 1, 2)
    windows: int = 40


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A copy of the draft in training."""

    loss: str
    rate: float

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.loss} at {self.rate:g}"


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
    """What all runs share: models, training tokens, windows to choose rates and to report on."""

    pair: Pair
    plan: Plan
    tokens: NDArray[np.uint16]
    chosen_on: NDArray[np.int64]
    reported_on: NDArray[np.int64]
    identity: str


def prepare_bench(
    gather: Callable[[], Corpus], plan: Plan, *, work: Path, draft: str
) -> tuple[Bench, dict[str, Any]]:
    """Load the models and cut a corpus: the last windows choose rates, the rest is trained on.

    Figures are reported on the pair's held-out text, which lies beside it.

    Args:
        gather: returns the corpus; called once, its training side is kept in `work`.
        plan: what the runs are.
        work: folder of what is finished.
        draft: folder of the draft model.

    Returns:
        The bench, and where its texts come from.

    Raises:
        AnalysisError: if there are too few tokens.
    """
    pair = load_pair(draft=draft, device="cpu")
    tokens, source = _tokens(gather, pair, make_folder(work))
    kept = plan.windows * plan.context
    if len(tokens) < kept + 2 * plan.context:
        raise AnalysisError(
            f"Fine-tuning needs more than {kept + 2 * plan.context} tokens; the text has "
            f"{len(tokens)}. Give more text."
        )
    held_out = np.asarray(pair.encode((SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8")))
    bench = Bench(
        pair=pair,
        plan=plan,
        tokens=tokens[:-kept],
        chosen_on=_windows(tokens[-kept:], plan.context),
        reported_on=_windows(held_out, plan.context),
        identity=json.dumps(
            dataclasses.asdict(plan)
            | {
                "draft": file_digest(Path(draft) / "model.safetensors"),
                "tokens": int(np.sum(tokens, dtype=np.int64)),
            },
            sort_keys=True,
        ),
    )
    return bench, source


def _tokens(
    gather: Callable[[], Corpus], pair: Pair, work: Path
) -> tuple[NDArray[np.uint16], dict[str, Any]]:
    """Return a corpus' training side as tokens and its provenance, from `work` if there."""
    cache = work / "corpus.npz"
    if not cache.is_file():
        corpus = gather()
        source = {
            "kind": corpus.provenance["kind"],
            "sha256": corpus.digest,
            "documents": len(corpus.documents),
        }
        tokens = encode(pair.tokenizer, corpus.texts(held_out=False))
        with open_atomically(cache) as file:
            np.savez(file, tokens=tokens, source=json.dumps(source))
    with np.load(cache, allow_pickle=False) as stored:
        return stored["tokens"], json.loads(str(stored["source"]))


def fine_tune(bench: Bench, *, work: Path, losses: Sequence[str] = tuple(LOSSES)) -> dict[str, Any]:
    """Choose a rate for each loss, fine-tune with every seed, and return figures with intervals.

    What is finished is kept in `work`; a killed run goes on from its last checkpoint.
    """
    plan = bench.plan
    start = _cached(
        work / "start.json", bench, lambda: acceptance_by_window(bench, {"start": bench.pair.draft})
    )["start"]
    trials = [Candidate(loss, rate) for loss in losses for rate in plan.rates]

    def tune() -> dict[str, Any]:
        seed = max(plan.seeds) + 1
        trained = train_side_by_side(
            bench, trials, seed=seed, steps=plan.trial_steps, folder=work / "rates"
        )
        found = acceptance_by_window(
            bench, {each.name: model for each, model in trained.items()}, choosing=True
        )
        return {name: float(np.mean(values[_key(*CHOSEN_BY)])) for name, values in found.items()}

    tuned = _cached(work / "rates.json", bench, tune)
    chosen = {
        loss: max(plan.rates, key=lambda rate: tuned[Candidate(loss, rate).name]) for loss in losses
    }
    runs = []
    for seed in plan.seeds:
        candidates = [Candidate(loss, chosen[loss]) for loss in losses]

        def run(seed: int = seed, candidates: Sequence[Candidate] = candidates) -> dict[str, Any]:
            trained = train_side_by_side(
                bench, candidates, seed=seed, steps=plan.steps, folder=work / f"seed{seed}"
            )
            return acceptance_by_window(
                bench, {candidate.loss: model for candidate, model in trained.items()}
            )

        runs.append(_cached(work / f"seed{seed}.json", bench, run))
    return summary(start, runs, losses) | {
        "rates": chosen,
        "tuning": tuned,
        "plan": dataclasses.asdict(plan),
    }


def train_side_by_side(
    bench: Bench,
    candidates: Sequence[Candidate],
    *,
    seed: int,
    steps: int,
    folder: Path,
) -> dict[Candidate, Any]:
    """Fine-tune a copy of the draft for each candidate on the same batches.

    It resumes from the folder's checkpoint.

    Every batch is a function of (seed, step) alone.
    """
    plan, device = bench.plan, bench.pair.device
    models = {candidate: copy.deepcopy(bench.pair.draft).train() for candidate in candidates}
    learners = {
        f"{candidate.name}/": Learner(
            model,
            make_optimiser(model, candidate.rate),
            functools.partial(learning_rate_at, candidate.rate, steps=steps),
        )
        for candidate, model in models.items()
    }

    def gradients(step: int) -> float:
        rows = batch(bench.tokens, plan, seed, step).to(device)
        with torch.inference_mode():
            logits = bench.pair.target(rows[:, :-1], use_cache=False).logits[
                ..., : bench.pair.num_tokens
            ]
            target = torch.softmax(logits.float().flatten(0, 1), dim=-1)
        target = target.clone()  # an ordinary tensor, which may take part in what is differentiated
        for candidate, model in models.items():
            logits = model(rows[:, :-1], use_cache=False).logits[..., : bench.pair.num_tokens]
            loss = LOSSES[candidate.loss](
                logits.float().flatten(0, 1), target, rows[:, 1:].flatten()
            )
            loss.backward()
        return loss.item()

    names = [candidate.name for candidate in candidates]
    identity = json.dumps([bench.identity, seed, steps, names])
    training = Training(learners, steps, identity, folder.name)
    training.run(
        gradients,
        first=training.resume(folder),
        folder=lambda step: folder,
        figure=f"loss of {candidates[-1].loss}:",
    )
    return {candidate: model.eval() for candidate, model in models.items()}


@torch.inference_mode()
def acceptance_by_window(
    bench: Bench, drafts: Mapping[str, Any], *, choosing: bool = False
) -> dict[str, dict[str, list[float]]]:
    """Return by draft each window's mean acceptance of every scheme and mean forward KL."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in drafts}
    windows = bench.chosen_on if choosing else bench.reported_on
    for window in counted(windows, "windows of acceptance"):
        row = torch.from_numpy(window)[None].to(bench.pair.device)
        q = _distributions(bench, bench.pair.target, row)
        for name, draft in drafts.items():
            p = _distributions(bench, draft, row)
            values = {
                _key(scheme, k): float(np.mean(curve))
                for scheme, curves in acceptance_curves(p, q, EVALUATED_K).items()
                for k, curve in zip(EVALUATED_K, curves, strict=True)
            }
            values["forward KL"] = float(np.mean(otm.divergences.kl_divergence(draft=p, target=q)))
            for figure, value in values.items():
                found[name].setdefault(figure, []).append(value)
    return found


def _distributions(bench: Bench, model: Any, row: torch.Tensor) -> NDArray[np.float64]:
    logits = model(row, use_cache=False).logits[0, :, : bench.pair.num_tokens]
    return torch.softmax(logits.double(), dim=-1).cpu().numpy()


def summary(
    start: Mapping[str, list[float]], runs: Sequence[Mapping[str, Any]], losses: Sequence[str]
) -> dict[str, Any]:
    """Return means over windows and seeds, and each loss's gain over the baseline, paired.

    Windows are the clusters: what differs between seeds is averaged in each window first, and
    reported beside.
    """
    rows = []
    for name in start:
        # (seeds, windows)
        table = {loss: np.asarray([run[loss][name] for run in runs]) for loss in losses}
        baseline = table[BASELINE]
        for loss in losses:
            mean, gain = (
                _interval(table[loss].mean(axis=0)),
                _interval((table[loss] - baseline).mean(axis=0)),
            )
            by_seed = (table[loss] - baseline).mean(axis=1).tolist()
            rows.append(
                {"figure": name, "loss": loss, **mean, "gain": gain, "gain_by_seed": by_seed}
            )
        rows.append({"figure": name, "loss": "start", **_interval(np.asarray(start[name]))})
    return {"rows": rows, "baseline": BASELINE, "num_windows": len(next(iter(start.values())))}


def write_fine_tuning(
    bench: Bench, *, work: Path, out: Path, corpus: Mapping[str, Any], losses: Sequence[str]
) -> tuple[Path, dict[str, Any]]:
    """Run everything and write what the figure shows to `out/fine_tuning.json`.

    Raises:
        AnalysisError: on the name of no loss, or without the baseline.
    """
    unknown = [name for name in losses if name not in LOSSES]
    if unknown or BASELINE not in losses:
        raise AnalysisError(
            f"Losses must be among {', '.join(map(repr, LOSSES))}, and {BASELINE!r} one of them; "
            f"got {list(losses)}. Choose some."
        )
    record = fine_tune(bench, work=work, losses=losses)
    manifest = environment() | origin() | {"corpus": dict(corpus)}
    return write_json(
        out / "fine_tuning.json", {"experiment": "finetune", "manifest": manifest} | record
    ), record


def _interval(values: NDArray[np.float64]) -> dict[str, float | None]:
    return limits(ratio_of_means(values[:, None], np.ones((len(values), 1))).at(0))


def _cached(path: Path, bench: Bench, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a file of the same run holds, or compute and write it."""
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["identity"] != bench.identity:
            raise AnalysisError(
                f"{path} belongs to another run. Choose another work folder, or delete it."
            )
    else:
        record = {"identity": bench.identity, "values": compute()}
        write_json(path, record, indent=None)
    values: dict[str, Any] = record["values"]
    return values


def _windows(tokens: NDArray[Any], context: int) -> NDArray[np.int64]:
    whole = len(tokens) // context * context
    return np.asarray(tokens[:whole], dtype=np.int64).reshape(-1, context)


def _key(scheme: str, k: int) -> str:
    return f"{scheme}, k = {k}"
