"""The papers' decoding experiments on a pair, each condensed to the data of a figure or table.

Prompts are windows of the held-out text. Lossless decoders are not run: the target's texts are
sampled once and what each decoder is expected to do along them is exact (`along`). Lossy ones write
texts of their own, so `mentored` decodes, through the same results files as `otm
decode`, and times it. What remains is condensed to one small JSON file that a figure draws; figures
need no torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import otm
from otm._machine.arrays import Floats, to_numpy
from otm.results.statistics import Estimate, t_quantile
from otm.sequence import Decoder, SpeculativeSampling
from otm.trees import TreeShape
from otm.trees.optimal import optimal_tree

from ..advise.laws import RankLaw
from ..advise.walk import along_all_lengths, tree_gains
from ..decode.decode_run import run_decode
from ..decode.efficiency import efficiency, measured_speedup, tokens_per_call
from ..decode.plain import PLAIN
from ..decode.results import Task, TextRecord, prompt_name
from ..errors import AnalysisError
from ..files import SHIPPED_PAIR, json_values, write_json
from ..models.names import SIDES, model_places
from ..models.pair import Pair
from ..models.source import PairSource, load_source
from ..provenance import environment, published_origin, require_quiet, weights_digest
from ..statistics import clustered_error, limits, means_by_group, sums_by_group
from ..steps.contexts import stretches
from .known_noise import measure_known_noise
from .lossy_rules import contexts_along, measure_rules
from .text_laws import laws_along

PROMPT_TOKENS = 32
NUM_TOKENS = 64

TABLE2_LENGTHS = (4, 8)
TABLE2_DRAFTS = (1, 2, 4, 8)
SEEDS = (0, 1, 2)
OPTIMAL_SEEDS = (0,)
"""Seeds of texts for the optimal verifier, whose law is the slowest."""

ERSD_LENGTH = 16
"""The longest sequence, and the widest batch."""
ERSD_SPECINFER = (2, 3, 4, 5, 6, 8, 10, 12)
ERSD_NODES = 32
ERSD_METHODS = ("GSD", "ERSD")
_AT_ONCE = 200
"""Texts that are walked along together."""

MENTORED_BUDGETS = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0)
MENTORED_LENIENCES = (0.8, 0.5, 0.25)
MENTORED_LENGTH = 5
MENTORED_PROMPTS = 60
MENTORED_SEEDS = (0,)

LOSSY_PROMPTS = 40


def run_experiment(
    name: str,
    *,
    work: Path,
    out: Path,
    num_prompts: int | None = None,
    drafts: Path | None = None,
    target: str | None = None,
    any_load: bool = False,
) -> Path:
    """Run one experiment and write the data to `out/NAME.json`.

    For another target than the shipped one the file is `out/NAME-TARGET.json`.

    Args:
        name: which one.
        work, out: folders of the results files and of the figure's data.
        num_prompts: prompts cut from the shipped held-out text, which any tokenizer can read; all
            that it holds by default.
        drafts: folder with draft models for table2; the default is the shipped ones, or the one
            that belongs to the target.
        target: hub name, folder or short name of the target; the shipped one by default.
        any_load: time on a busy machine too.

    Raises:
        AnalysisError: if what is timed is asked for on a busy machine, or as decoding does.
    """
    if name in TIMED:
        require_quiet(any_load=any_load)
    laboratory = Laboratory(work=work, num_prompts=num_prompts, drafts=drafts, target=target)
    load = os.getloadavg()
    data = EXPERIMENTS[name](laboratory)
    record = {
        "experiment": name,
        "prompt_tokens": PROMPT_TOKENS,
        "num_tokens": NUM_TOKENS,
        "manifest": environment() | published_origin(load),
    }
    suffix = "" if target is None else f"-{Path(target).name}"
    return write_json(out / f"{name}{suffix}.json", record | data)


@dataclasses.dataclass(frozen=True)
class Laboratory:
    """Settings of an experiment: folder, number of prompts, target and draft models."""

    work: Path
    num_prompts: int | None
    drafts: Path | None
    target: str | None

    def load(self, draft: str | None = None) -> Pair:
        """Load the target with a draft model, by default the draft that belongs to the target."""
        pair: Pair = load_source(PairSource(draft, self.target, "cpu"))
        return pair

    def draft_models(self) -> dict[str, Path]:
        """Return the draft models by name, smallest first.

        They are the subfolders `draft*` with weights, or the one of the target.
        """
        if self.drafts is None and self.target is not None:
            return {"draft": Path(model_places(None, self.target)["draft"])}
        folder = SHIPPED_PAIR if self.drafts is None else self.drafts
        found = [
            path for path in sorted(folder.glob("draft*")) if (path / "model.safetensors").is_file()
        ]
        if not found:
            raise AnalysisError(
                f"{folder} holds no draft models: they are folders draft* with model.safetensors. "
                "Check --draft-folder."
            )
        return {path.name: path for path in sorted(found, key=_num_parameters)}

    def laws(
        self, kinds: Sequence[str], *, draft: str | None = None, seeds: Sequence[int], longest: int
    ) -> Iterable[tuple[int, int, dict[str, Any]]]:
        """Yield the prompt number, the seed and the laws of every text.

        Texts are `longest` tokens longer than `NUM_TOKENS`, so that every step that starts within
        `NUM_TOKENS` sees its end.
        """
        pair = self.load(draft)
        places = model_places(draft, self.target)
        return laws_along(
            pair,
            held_out_prompts(pair, self.num_prompts),
            kinds=kinds,
            seeds=seeds,
            num_tokens=NUM_TOKENS + longest,
            folder=self.work,
            determining=[weights_digest(places[side]) for side in SIDES],
        )


def held_out_prompts(pair: Pair, count: int | None = None) -> list[list[int]]:
    """Return windows of `PROMPT_TOKENS` tokens of the held-out text in a fixed random order.

    There are `count` windows, or all.

    A larger number only adds prompts, so an experiment can be continued.

    Raises:
        AnalysisError: if the text has fewer windows.
    """
    tokens = pair.encode((SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8"))
    held = len(tokens) // PROMPT_TOKENS
    if count is not None and held < count:
        raise AnalysisError(
            f"The held-out text holds {held} prompts; {count} are asked for. Take fewer."
        )
    found = stretches(
        tokens, PROMPT_TOKENS, held if count is None else count, np.random.default_rng(0)
    )
    return [list(prompt) for prompt in found]


def table2(laboratory: Laboratory) -> dict[str, Any]:
    """Return tokens per call for K drafts of L tokens by draft model: SpecTr's Tables 2 and 4.

    K = 1 is speculative decoding.
    """
    rows = []
    longest = max(TABLE2_LENGTHS)
    for name, folder in laboratory.draft_models().items():
        about = {"draft": name, "parameters": _num_parameters(folder)}
        everything, same, optimal = (
            _walks(laboratory.laws((kind,), draft=str(folder), seeds=seeds, longest=longest), kind)
            for kind, seeds in (
                ("K-SEQ", SEEDS),
                ("K-SEQ", OPTIMAL_SEEDS),
                ("Optimal", OPTIMAL_SEEDS),
            )
        )
        for (count, length), tally in everything.items():
            plan = about | {"K": count, "L": length}
            rows.append(plan | {"verifier": "K-SEQ"} | tally.row(most=length + 1))
            if count > 1:
                row = relative_row(
                    optimal[count, length], same[count, length], tally, most=length + 1
                )
                rows.append(plan | {"verifier": "Optimal"} | row)
    return {
        "rows": rows,
        "seeds": list(SEEDS),
        "optimal_seeds": list(OPTIMAL_SEEDS),
        "target_parameters": _num_parameters(Path(model_places(None, laboratory.target)["target"])),
    }


def _walks(
    texts: Iterable[tuple[int, int, dict[str, Any]]], kind: str
) -> dict[tuple[int, int], TextSums]:
    """Return expected tokens and steps by (K, L)."""
    plans = list(itertools.product(TABLE2_DRAFTS, TABLE2_LENGTHS))
    prompts, sums = list[int](), {plan: list[list[float]]() for plan in plans}
    for prompt, _, laws in texts:
        prompts.append(prompt)
        for count, length in plans:
            walk = along_all_lengths(laws[kind], num_drafts=count, most=length, starts=NUM_TOKENS)[
                -1
            ]
            sums[count, length].append([walk.steps, walk.tokens - walk.steps])
    return {plan: TextSums(prompts, np.array(rows)) for plan, rows in sums.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class TextSums:
    """Sums over the steps of texts.

    Attributes:
        prompts: the prompt of each text.
        values: `(texts, n + 1)`, the number of steps, then accepted drafts.
    """

    prompts: Sequence[int]
    values: Floats

    @property
    def totals(self) -> Floats:
        """Sums by prompt, `(prompts, n + 1)`."""
        return sums_by_group(self.values, self.prompts)

    def row(self, *, most: int) -> dict[str, Any]:
        """Return tokens per step with an interval over prompts."""
        spent = np.stack([self.values.sum(axis=1), self.values[:, 0]], axis=1)
        tokens = tokens_per_call(spent, self.prompts, most=most)
        return limits(tokens) | {
            "num_prompts": len({*self.prompts}),
            "num_texts": len(self.prompts),
        }


def relative_row(
    one: TextSums, same: TextSums, everything: TextSums, *, most: int
) -> dict[str, Any]:
    """Return tokens per step of a decoder that walked along some texts only.

    A second decoder that walked along these and all other texts narrows the interval.

    m = m₁ · m₂(all)/m₂(same): on the same texts two verifiers differ little from prompt to prompt,
    so the texts that the second alone has seen narrow the interval of the first. The interval is
    that of the product, by the influence of each prompt.

    Args:
        one, same: the first and the second decoder on the texts that both have walked along.
        everything: the second on all texts, of the same prompts.
        most: tokens that one step can yield at most.
    """
    means, influences = [], []
    for tally in (one, same, everything):
        tokens, steps = tally.totals.sum(axis=1), tally.totals[:, 0]
        means.append(tokens.sum() / steps.sum())
        influences.append((tokens / means[-1] - steps) / steps.sum())
    mean = float(means[0] * means[2] / means[1])
    relative = influences[0] - influences[1] + influences[2]
    count = len(relative)
    reach = mean * float(clustered_error(relative)) * float(t_quantile(count))
    tokens = Estimate(mean, mean - reach, mean + reach).clipped(1.0, most)
    return limits(tokens) | {"num_prompts": count, "num_texts": len(one.prompts)}


def _num_parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as file:
        return sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118 not a dictionary


def ersd(laboratory: Laboratory) -> dict[str, Any]:
    """Return tokens per call against drafted tokens for four strategies: ERSD's Figures 3 and 4.

    The values of the 0-th order theory stand beside the measured values.
    """
    texts: dict[str, list[tuple[int, RankLaw]]] = {method: [] for method in ERSD_METHODS}
    for prompt, _, laws in laboratory.laws(ERSD_METHODS, seeds=SEEDS, longest=ERSD_LENGTH + 1):
        for method in ERSD_METHODS:
            texts[method].append((prompt, laws[method]))
    methods = {}
    for method, rows in texts.items():
        sequence, batch = (
            _gains(rows, make(ERSD_LENGTH)).totals.sum(axis=0)
            for make in (TreeShape.chain, TreeShape.batch)
        )
        vector = rank_acceptance(sequence, batch)
        best = optimal_tree(vector, num_nodes=ERSD_NODES)
        shapes = [
            *(("batch", TreeShape.batch(n)) for n in range(1, ERSD_LENGTH + 1)),
            *(("sequence", TreeShape.chain(n)) for n in range(1, ERSD_LENGTH + 1)),
            *(("SpecInfer", TreeShape.specinfer(n)) for n in ERSD_SPECINFER),
            *(("optimal", best.first(n).shape) for n in range(1, best.shape.num_nodes + 1)),
        ]
        runs = [
            _ersd_run(rows, strategy, shape)
            for strategy, shape in shapes
            if shape.num_nodes <= ERSD_NODES
        ]
        methods[method] = {"acceptance": vector.tolist(), "runs": runs}
    return {"methods": methods, "seeds": list(SEEDS)}


def rank_acceptance(sequence: Floats, batch: Floats) -> Floats:
    """Return the sorted acceptance vector A of the 0-th order theory, from sequences and batches.

    A(1) is the share of the vertices looked at that accept their first child, in sequences and
    batches together. A batch tells later ranks only of vertices whose first child is rejected,
    which gives A(i) = (1 − A(1)) Pr(i | not 1).

    Args:
        sequence, batch: sums over steps, the number of steps first and then how many accept each
            vertex.

    >>> import numpy as np
    >>> rank_acceptance(np.array([4.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.0])).tolist()
    [0.5, 0.25]
    """
    # a vertex's child is looked at whenever the vertex is accepted
    looked_at = sequence[:-1].sum() + batch[0]
    first = (sequence[1:].sum() + batch[1]) / looked_at
    later = (1.0 - first) * batch[2:] / (batch[0] - batch[1])
    vector: Floats = np.sort(np.append(first, later))[::-1]
    return vector


def _gains(rows: Sequence[tuple[int, RankLaw]], shape: TreeShape) -> TextSums:
    prompts, laws = zip(*rows, strict=True)
    sums = [
        tree_gains(laws[start : start + _AT_ONCE], shape=shape, starts=NUM_TOKENS)
        for start in range(0, len(laws), _AT_ONCE)
    ]
    return TextSums(prompts, np.concatenate(sums))


def _ersd_run(
    rows: Sequence[tuple[int, RankLaw]], strategy: str, shape: TreeShape
) -> dict[str, Any]:
    tally = _gains(rows, shape)
    steps = np.repeat(tally.values[:, :1], shape.num_nodes, axis=1)
    gains = means_by_group(tally.values[:, 1:], steps, tally.prompts)
    return tally.row(most=shape.depth + 1) | {
        "strategy": strategy,
        "drafted": shape.num_nodes,
        "parents": shape.parents.tolist(),
        "gain": {
            "mean": json_values(gains.value.tolist()),
            "low": json_values(gains.low.tolist()),
            "high": json_values(gains.high.tolist()),
        },
    }


def mentored(laboratory: Laboratory) -> dict[str, Any]:
    """Return speed, distortion and quality of lossy verifiers on the pair.

    Tokens per call, tokens per second beside plain decoding, the exact KL per verified token, and
    the target's own perplexity of the written texts.
    """
    verifiers: dict[str, otm.Verifier] = {
        "speculative": otm.Maximal(),
        **{f"Mentored({budget})": otm.Mentored(budget) for budget in MENTORED_BUDGETS},
        **{f"Lenience({value})": otm.Lenience(value) for value in MENTORED_LENIENCES},
        "TypicalAcceptance()": otm.TypicalAcceptance(),
        "Fuzzy(0.4)": otm.Fuzzy(0.4),
    }
    decoders: dict[str, Decoder] = {
        label: SpeculativeSampling(MENTORED_LENGTH, one) for label, one in verifiers.items()
    }
    pair = laboratory.load()
    prompts = held_out_prompts(pair, laboratory.num_prompts or MENTORED_PROMPTS)
    records = run_decode(
        pair,
        decoders,
        prompts,
        num_tokens=NUM_TOKENS,
        seeds=MENTORED_SEEDS,
        out=laboratory.work / "mentored.jsonl",
    )
    surprise = _surprises(pair, prompts, records)
    contexts = contexts_along(pair, prompts)
    problems = [otm.Problem(draft=p, target=q, law=otm.IID(1)) for p, q, _ in contexts]
    rows = []
    for label in (PLAIN, *verifiers):
        found = efficiency(records, decoder=label)
        row: dict[str, Any] = {"decoder": label} | limits(found.tokens_per_call)
        counted = ("num_prompts", "num_texts", "num_calls", "accepted", "tokens_per_second")
        row |= {name: getattr(found, name) for name in counted} | {"label": label}
        row["speedup"] = limits(measured_speedup(records, decoder=label))
        row["perplexity"] = _perplexity(
            [(one, surprise[one.task]) for one in records if one.task.decoder == label]
        )
        row["kl"] = (
            0.0
            if label == PLAIN or verifiers[label].lossless
            else _mean_divergence(verifiers[label], problems)
        )
        # an infinite divergence: a token of the target never comes out
        rows.append(json_values(row))
    return {
        "rows": rows,
        "length": MENTORED_LENGTH,
        "seeds": list(MENTORED_SEEDS),
        "num_prompts": len(prompts),
    }


def _surprises(
    pair: Pair, prompts: Sequence[Sequence[int]], records: Iterable[TextRecord]
) -> dict[Task, float]:
    """Return −Σ log q(token) of every text, by the target."""
    named = {prompt_name(prompt): prompt for prompt in prompts}
    found = {}
    for record in records:
        prompt = named[record.task.prompt]
        with torch.inference_mode():
            rows = torch.tensor([[*prompt, *record.tokens[:-1]]], device=pair.device)
            logits = (
                pair.target(rows, use_cache=False)
                .logits[0, len(prompt) - 1 :, : pair.num_tokens]
                .float()
            )
        law = to_numpy(otm.from_logits(logits.double()))
        found[record.task] = -float(
            np.log(law[np.arange(len(record.tokens)), list(record.tokens)]).sum()
        )
    return found


def _perplexity(texts: Sequence[tuple[TextRecord, float]]) -> dict[str, float | None]:
    """Return the perplexity of texts, with an interval over prompts."""
    spent = np.array([[surprise, len(record.tokens)] for record, surprise in texts])
    prompts = [record.task.prompt for record, _ in texts]
    mean = means_by_group(spent[:, :1], spent[:, 1:], prompts).at(0)
    return limits(Estimate(*np.exp([mean.value, mean.low, mean.high]).tolist()))


def _mean_divergence(verifier: otm.Verifier, problems: Sequence[otm.Problem]) -> float:
    return float(np.mean([otm.lossy.distortion(verifier, problem).kl for problem in problems]))


def lossy_rules(laboratory: Laboratory) -> dict[str, Any]:
    """Return acceptance and distance from the target of lossy rules; no text is decoded."""
    pair = laboratory.load()
    name = "shipped pair" if laboratory.target is None else Path(laboratory.target).name
    prompts = held_out_prompts(pair, laboratory.num_prompts or LOSSY_PROMPTS)
    return {"pair": name, "num_prompts": len(prompts)} | measure_rules(pair, prompts)


def known_noise(laboratory: Laboratory) -> dict[str, Any]:
    """Count the tokens after which a seeded sampler is known to serve another target."""
    pair = laboratory.load()
    prompts = held_out_prompts(pair, laboratory.num_prompts or LOSSY_PROMPTS)
    return measure_known_noise(pair, prompts)


EXPERIMENTS: dict[str, Callable[[Laboratory], dict[str, Any]]] = {
    "table2": table2,
    "ersd": ersd,
    "mentored": mentored,
    "lossy_rules": lossy_rules,
    "known_noise": known_noise,
}
"""Every experiment by name; the figure or table that shows it has its name, or names it."""

TIMED = frozenset({"mentored"})
"""Experiments that need a quiet machine."""
