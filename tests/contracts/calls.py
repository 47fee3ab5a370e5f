"""One valid call of every public function and class, as a place for wrong arguments."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import figure

import otm
from evidence.corpus import trees as broken_trees
from otm import (
    audit,
    bounds,
    continuous,
    divergences,
    engines,
    examples,
    losses,
    lossy,
    overlap,
    partial,
    plot,
    sequence,
    table,
    transport,
    trees,
    verifiers,
)
from otm.audit import tracing
from otm.audit.text_log import LoggedText
from otm.audit.token_log import parse_record

# --- what is public


def public_names() -> dict[str, Any]:
    """Return every name in an `__all__` by the first namespace with the name.

    These are verbs at the top level, the rest where a user would look.
    """
    found: dict[str, Any] = {}
    seen: list[object] = []
    inner = sorted(
        module.name
        for module in pkgutil.walk_packages(otm.__path__, "otm.")
        if not module.name.endswith("__main__")
    )
    for name in ["otm", *inner]:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name not in ("numba", "llvmlite"):  # which compiled modules begin with
                raise
            continue
        for exported in vars(module).get("__all__", []):
            thing = getattr(module, exported)
            if not any(thing is other for other in seen):
                seen.append(thing)
                found[f"{name}.{exported}"] = thing
    return found


def bounds_of_problems() -> list[Callable[[otm.Problem], Any]]:
    """Return the public bounds that are functions of a problem alone."""
    functions = [getattr(bounds, name) for name in bounds.__all__]
    return [
        function
        for function in functions
        if inspect.isfunction(function) and [*inspect.signature(function).parameters] == ["problem"]
    ]


def answers(bound: Callable[[otm.Problem], Any], problem: otm.Problem) -> bool:
    """Return True if a bound is about drafts of this law."""
    try:
        bound(problem)
    except otm.errors.Unsupported:
        return False
    return True


# --- what the calls share

P, Q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
PROBLEM = otm.Problem(draft=P, target=Q, law=otm.IID(2))
SINGLE = PROBLEM.with_law(otm.IID(1))
RACE = PROBLEM.with_law(otm.ThresholdRace(2))
DISTINCT = PROBLEM.with_law(otm.WithoutReplacement(2))
TOP = partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
PAIR = partial.PartialPair(draft=TOP, target=TOP, num_tokens=8)
MIXTURE = continuous.GaussianMixture(*np.array([[1.0], [0.0], [1.0]]))
SHAPE = trees.TreeShape([0, 0, 1])
VECTOR = [0.5, 0.25]
CHOSEN = {
    "acceptance": VECTOR,
    "draft_seconds": 0.1,
    "target_seconds": lambda n: 1.0 + 0.1 * n,
    "max_nodes": 4,
}
MARKOV = sequence.MarkovModel(np.array([[0.5, 0.5], [0.25, 0.75]]))
CHAIN = sequence.SpeculativeSampling(1)
MARKOV_PAIR = {"draft": MARKOV, "target": MARKOV}
MODELS: dict[str, Any] = MARKOV_PAIR | {"context": (0,)}
NOISES = [sequence.SharedNoise(seed) for seed in range(2)]
DRAFTED = sequence.NoiseTree(1, 1).draft(
    MARKOV, (0,), sequence.Sampled(np.random.default_rng(0), NOISES[0])
)
JOINT = np.full((2, 2), 0.25)
COUNTED = {"num_drafts": 2, "length": 1, "samples": 9, "confidence": 0.9}
TRACED = {"num_uniforms": 1, "most_slanted": 8, "most_work": 99, "most_seconds": 9.0}
ERRORS = audit.Errors(detect=0.5, false_alarm=0.1, missed=0.1)
LOGGED = [parse_record('{"output": 1, "target": [0.5, 0.5]}', 1)] * 3
SAME = [LoggedText((5, 9), ({5: -0.1, 7: -2.5}, {9: -0.7, 3: -0.75}))]
HISTOGRAM = engines.AcceptanceRecord(
    form="example",
    unit="request",
    parts=(engines.records.Tally.of_histogram([2, 2, 6], name="a"),),
    convention="",
)
RECORD = engines.AcceptanceRecord(
    form="",
    unit="request",
    parts=tuple(engines.records.Tally.of_steps([0, 1, 2], [2, 1, 2], name=name) for name in "ab"),
    convention="",
)
PLANNED = {
    "record": RECORD,
    "costs": engines.CostSurface.of_points(
        {(1, 0): 0.002}, {(1, 0, n): 0.020 for n in (1, 3)}, source=""
    ),
}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def axes() -> Any:
    return figure.Figure().subplots()


def below_half(uniforms: Any) -> bool:
    return bool(uniforms[0] < 0.5)


def first_matches(draft: Any, target: Any, drafts: Any, uniforms: Any) -> list[int]:
    """Keep every draft and add a token of the target, which is right where both models are one."""
    return [*(int(token) for token in drafts), int(uniforms[0] >= target[-1, 0])]


def letters(prompts: Any, length: Any, temperature: Any) -> list[list[int]]:
    """Write one letter again and again."""
    return [[4] * length for _ in prompts]


def written(writer: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a writer to write to a folder of its own where none is given."""

    def write(folder: Any) -> Any:
        if folder is not None:
            return writer(folder)
        with tempfile.TemporaryDirectory() as own:
            return [path.name for path in writer(own)]

    return named(writer, write)


ASKED = MARKOV_PAIR | {"candidate": first_matches}
BLOCKS = ASKED | {"num_drafts": 1, "context": (0,)}
TREE = {
    "candidate": broken_trees.recursive,
    "parents": (-1,),
    "rng": rng(),
    "replacement": True,
    "tolerance": 1e-9,
}


def on_a_file(reader: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reader to read a good file where no path is given."""
    good = {
        "read_acceptance": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}',
        "read_models": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}',
        "read_costs": engines.CostSurface.flat(draft=0.002, target=0.020).to_json(),
    }

    def read(path: Any) -> Any:
        if path is not None:
            return reader(path)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_text(good[reader.__name__], encoding="utf-8")
            return reader(file)

    return named(reader, read)


def listed(generator: Callable[..., Any]) -> Callable[..., Any]:
    return named(generator, lambda **arguments: list(generator(**arguments)))


def first_of(generator: Callable[..., Any]) -> Callable[..., Any]:
    return named(generator, lambda **arguments: next(generator(**arguments)))


def named(function: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    wrapped.__name__ = wrapped.__qualname__ = function.__name__
    return wrapped


# --- the calls

Call = tuple[Callable[..., Any], dict[str, Any]]

CALLS: list[Call] = [
    *(
        (verb, {"verifier": otm.RecursiveRejection(), "problem": PROBLEM})
        for verb in (
            otm.acceptance,
            otm.coupling,
            otm.prepare,
            lossy.distortion,
            lossy.output_law,
            trees.acceptance_vector,
        )
    ),
    (otm.acceptance, {"verifier": otm.KSeq(), "problem": PROBLEM, "by": "membership"}),
    (
        otm.acceptance_curve,
        {"verifier": otm.KSeq(), "problem": PROBLEM, "k": [1, 2], "by": "membership"},
    ),
    (
        otm.acceptance_table,
        {
            "draft": [P],
            "target": [Q],
            "k": [1, 2],
            "threads": 1,
            "log_draft": np.log([P]),
            "log_target": np.log([Q]),
        },
    ),
    (
        otm.audit.parametrize_with_checks,
        {
            "candidates": [otm.Maximal()],
            "only": "exact",
            "skip": ["zeros"],
            "expected_failures": {"ties": "for a reason"},
            "laws": [otm.IID(1)],
            "num_drafts": None,
            "seed": 0,
            "errors": otm.audit.Errors(),
            "tolerance": 1e-9,
            "seconds": 9.0,
        },
    ),
    (tracing.trace, {"function": below_half, **TRACED}),
    (tracing.contradicts_samples, {"laws": [tracing.trace(below_half, 1)]}),
    (
        otm.compare,
        {
            "draft": P,
            "target": Q,
            "verifiers": [otm.KSeq()],
            "laws": [otm.IID],
            "k": [1, 2],
            "samples": 0,
        },
    ),
    (
        otm.estimate,
        {
            "verifier": otm.KSeq(),
            "problem": PROBLEM,
            "samples": 9,
            "rng": rng(),
            "confidence": 0.9,
            "by": "rule",
        },
    ),
    (
        otm.from_callable,
        {
            "function": lambda p, q, drafts, uniforms: int(drafts[0]),
            "law": otm.IID,
            "name": "trusting",
        },
    ),
    (
        otm.from_logits,
        {
            "logits": [0.0, 1.0, 2.0],
            "temperature": 1.0,
            "top_k": 2,
            "top_p": 0.5,
            "min_p": 0.1,
            "order": "vllm",
        },
    ),
    (plot.curves, {"problem": PROBLEM, "verifiers": [otm.KSeq()], "k": [1], "ax": axes()}),
    (plot.overlap, {"problem": PROBLEM, "ax": axes()}),
    (plot.frontier, {"problem": PROBLEM, "verifiers": [], "ax": axes()}),
    (plot.pair, {"draft": P, "target": Q, "tokens": ["a", "b", "c"], "ax": axes()}),
    (
        plot.coupling,
        {
            "joint": otm.optimum(PROBLEM),
            "tokens": ["a", "b", "c"],
            "ax": axes(),
        },
    ),
    (plot.tree, {"drafted": SHAPE, "ax": axes()}),
    (otm.Processing, {"temperature": 1.0, "top_k": 2, "top_p": 0.5, "min_p": 0.1, "order": "vllm"}),
    (
        losses.acceptance_losses,
        {"draft_logits": [0.0, 1.0], "target_logits": [1.0, 0.0], "k": 2, "verifier": otm.KSeq()},
    ),
    (
        losses.best_temperature,
        {
            "draft_logits": [0.0, 1.0],
            "target": [0.5, 0.5],
            "k": 2,
            "draft": otm.Processing(),
            "tolerance": 1e-3,
        },
    ),
    (losses.best_ranked_acceptance, {"draft": P, "target": Q}),
    (losses.draft_rounding, {"draft": P, "target": Q, "dtype": "bfloat16"}),
    (losses.top_mass, {"target": Q, "k": 2}),
    (otm.kernel, {"verifier": otm.KSeq(), "problem": PROBLEM, "drafts": [0, 1]}),
    (otm.normalise, {"values": P}),
    *(
        (closed, {"problem": PROBLEM})
        for closed in (otm.optimal_acceptance, otm.optimum, otm.optimal_cut)
    ),
    (otm.optimum, {"problem": PROBLEM, "method": "sets"}),
    (otm.optimal_acceptance_curve, {"problem": PROBLEM, "k": [1, 2]}),
    (otm.sample, {"verifier": otm.KSeq(), "problem": PROBLEM, "size": 3, "rng": rng()}),
    (otm.Problem, {"draft": P, "target": Q, "law": otm.IID(2)}),
    *((law, {dataclasses.fields(law)[0].name: 2}) for law in otm.drafts.LAWS),
    (otm.BoundedRegret, {"regret": 0.5, "fallback": "target"}),
    (otm.Cactus, {"delta": 0.1}),
    (otm.Lantern, {"neighbours": [[1], [0]], "delta": 0.1}),
    (otm.Grouped, {"neighbours": [[1], [0]], "margin": 0.5}),
    (otm.ActionDistance, {"distance": 1}),
    (otm.Mars, {"theta": 0.9, "top_logit": 10.0, "fallback": "target"}),
    (otm.ThresholdMatching, {"single": 0.5, "accumulated": 0.9}),
    (otm.Cascade, {"rule": "opt", "alpha": 0.5}),
    (otm.Ensemble, {"weight": 0.5}),
    (otm.RelaxedAcceptance, {"top": 2, "delta": 0.5, "fallback": "greedy"}),
    (otm.TvOptimal, {"tv": 0.1}),
    (otm.Fuzzy, {"threshold": 0.1, "divergence": "js", "fallback": "target"}),
    (otm.KSeq, {"gamma": 1.5}),
    (otm.Lenience, {"lenience": 0.5, "residual": "plain"}),
    (otm.Mentored, {"kl": 0.1}),
    (otm.Optimal, {"bins": 8}),
    (otm.TypicalAcceptance, {"eps": 0.09, "delta": 0.3}),
    (otm.SelectThenReject, {"selection": None}),
    (otm.Tournament, {"tokens": 2}),
    (otm.WithoutReplacementOptimal, {"tolerance": 1e-4}),
    (
        audit.TokenCandidate,
        {"verify": lambda draft, target, drafts, uniforms: (int(drafts[0]), True), "name": "x"},
    ),
    (audit.BlockBatchCandidate, {"verify": lambda draft, target, drafts, rng: drafts, "name": "x"}),
    (
        audit.LogitCandidate,
        {
            "verify": lambda draft, target, drafts, uniforms, temperature: int(drafts[0]),
            "name": "x",
        },
    ),
    (audit.TreeCandidate, {"verify": broken_trees.recursive, "name": "x", "siblings": "without"}),
    (
        audit.acceptance_counts,
        {"record": HISTOGRAM, "expected": (0.9, 0.8), "name": "x", "errors": ERRORS},
    ),
    (audit.Errors, {"detect": 0.5, "false_alarm": 0.1, "missed": 0.1}),
    (audit.VerifierCandidate, {"verifier": otm.Maximal()}),
    (audit.classify, {"thing": first_matches, "name": "x"}),
    (
        audit.assert_lossless,
        {
            "candidate": otm.Maximal(),
            "laws": [otm.IID(1)],
            "seed": 1,
            "seconds": 9.0,
            "shrink_for": 0.0,
        },
    ),
    (
        audit.battery,
        {
            "candidate": otm.Maximal(),
            "only": "exact",
            "laws": [otm.IID(1)],
            "errors": ERRORS,
            "seed": 1,
            "seconds": 9.0,
            "shrink_for": 0.0,
        },
    ),
    (
        audit.LogitCandidate,
        {"verify": first_matches, "order": "vllm", "temperatures": [1.0, 0.5], "name": "first"},
    ),
    (audit.as_hf, {"model": sequence.ZerothOrder(P), "temperature": 0.5, "prompt": 1}),
    (audit.as_mlx, {"model": sequence.ZerothOrder(P), "temperature": 0.5, "prompt": 1}),
    (audit.engine, {"write": letters, "temperature": 0.0, "name": "x", "errors": ERRORS}),
    (written(audit.write_pair), {"folder": None}),
    (audit.exact, {"candidate": otm.Maximal(), "problem": SINGLE, "tolerance": 1e-9}),
    (audit.server_log, {"records": LOGGED, "name": "x", "law": otm.IID(1), "errors": ERRORS}),
    (
        audit.same_text,
        {
            "plain": SAME,
            "speculative": SAME,
            "same_seed": True,
            "tolerance": 0.1,
            "name": "x",
            "errors": ERRORS,
        },
    ),
    (
        audit.outputs,
        {
            "outputs": [0, 1, 1],
            "target": Q,
            "draft": P,
            "name": "x",
            "errors": ERRORS,
        },
    ),
    (audit.records_needed, {"errors": ERRORS}),
    (audit.rounding_tolerance, {"num_tokens": 3, "k": 2, "unit_roundoff": 1e-16}),
    (
        audit.sampled,
        {
            "candidate": otm.Maximal(),
            "problem": SINGLE,
            "rng": rng(),
            "errors": ERRORS,
        },
    ),
    (audit.library_sampler, {"verifier": otm.Maximal(), "problem": SINGLE, "tolerance": 1e-9}),
    (
        audit.samples_needed,
        {"mass": np.asarray(Q), "detect": 0.5, "false_alarm": 0.1, "missed": 0.1},
    ),
    (
        audit.tokens_to_mismatch,
        {"target": P, "served": Q, "missed": 0.1, "tolerance": 0.05},
    ),
    (audit.sampled_blocks, BLOCKS | {"rng": rng(), "errors": ERRORS}),
    (audit.sequence, ASKED | {"num_drafts": 1, "context": (0,), "tolerance": 1e-9}),
    (audit.tree_kernel, MARKOV_PAIR | TREE | {"errors": ERRORS}),
    (
        audit.several_steps,
        MARKOV_PAIR
        | {"candidate": first_matches, "shape": 1, "tokens": 2, "rng": rng(), "errors": ERRORS},
    ),
    (audit.shrink, {"candidate": otm.Maximal(), "law": otm.IID(1), "tolerance": 1e-9, "budget": 2}),
    (
        audit.shrink_sequence,
        {"candidate": first_matches, "num_drafts": (1,), "tolerance": 1e-9, "budget": 1},
    ),
    (bounds.kseq_factor, {"k": 2}),
    *(
        (bound, {"problem": next(each for each in (PROBLEM, SINGLE, RACE) if answers(bound, each))})
        for bound in bounds_of_problems()
    ),
    (bounds.optimal_bracket, {"problem": PROBLEM, "bins": 8}),
    (bounds.spectr_upper, {"problem": PROBLEM, "subset": [0]}),
    (divergences.harmonic_mean_distance, {"draft": P, "target": Q}),
    (divergences.kl_divergence, {"draft": P, "target": Q}),
    (divergences.total_variation, {"draft": P, "target": Q}),
    (divergences.hockey_stick, {"draft": P, "target": Q, "level": 1.5}),
    (examples.bernoulli, {"q": 0.25}),
    (examples.describe, {"mass": P}),
    (examples.dirichlet, {"num_tokens": 3, "rng": rng(), "concentration": 1.0, "rows": 2}),
    (examples.two_token_optimum, {"draft": 0.5, "target": 0.25, "k": 2}),
    (examples.uniform, {"num_tokens": 3, "vocabulary": 4}),
    (examples.uniform_optimum, {"ratio": 2.0, "k": 2}),
    (examples.zipf, {"num_tokens": 3, "exponent": 1.0}),
    (lossy.composed, {"target": Q, "output": P, "tokens": 5}),
    (lossy.kl_frontier, {"problem": PROBLEM, "kl": 0.1}),
    (lossy.kl_frontier_program, {"problem": PROBLEM, "kl": 0.1}),
    (lossy.tokens_to_detect, {"target": Q, "output": P, "power": 0.5, "level": 0.25}),
    (lossy.tv_frontier, {"problem": PROBLEM, "tv": 0.1}),
    (continuous.GaussianBlock, {"length": 2}),
    (
        continuous.GaussianBlock(2).verify,
        {
            "drafts": np.zeros((2, 2)),
            "draft_mean": np.zeros((2, 2)),
            "target_mean": np.ones((3, 2)),
            "scale": 1.0,
            "rng": rng(),
        },
    ),
    (continuous.GaussianBlock(2).survival, {"shifts": [0.5, 1.0]}),
    (continuous.GaussianCurve, {"shift": 1.0}),
    (continuous.GaussianKSeq, {"num_drafts": 2}),
    (continuous.GaussianMixture, {"weights": [1.0], "means": [0.0], "scales": [1.0]}),
    (continuous.GaussianOptimal, {"num_drafts": 2, "shifts": 1.0}),
    (continuous.GaussianReflection, {"num_drafts": 1}),
    (continuous.GaussianRejection, {"num_drafts": 2}),
    (
        continuous.GaussianKSeq(2).verify,
        {
            "drafts": np.zeros((2, 2)),
            "draft_mean": np.zeros(2),
            "target_mean": np.ones(2),
            "scale": 1.0,
            "rng": rng(),
        },
    ),
    (
        continuous.acceptance,
        {
            "verifier": otm.KSeq(),
            "curve": continuous.GaussianCurve(1.0),
            "law": otm.IID(2),
        },
    ),
    (
        continuous.enclosure,
        {"draft": MIXTURE, "target": MIXTURE, "law": otm.IID(2), "cells": 9},
    ),
    (
        continuous.optimal_acceptance,
        {"curve": continuous.GaussianCurve(1.0), "law": otm.IID(2)},
    ),
    (overlap.overlap_at, {"draft": np.asarray(P), "target": np.asarray(Q), "level": 1.0}),
    (
        partial.TopTokens,
        {
            "tokens": [0, 1],
            "probabilities": [0.5, 0.25],
            "tail": 0.25,
            "cap": 0.25,
            "rounding": 0.0,
        },
    ),
    (partial.TopTokens.of, {"pmf": P, "m": 2}),
    (partial.PartialPair, {"draft": TOP, "target": TOP, "num_tokens": 8}),
    (partial.acceptance, {"verifier": otm.KSeq(), "pair": PAIR, "k": [1, 2]}),
    (partial.divergences, {"pair": PAIR}),
    (partial.gamma_star, {"pair": PAIR, "k": [1, 2]}),
    (partial.optimal_acceptance, {"pair": PAIR, "k": [1, 2]}),
    (sequence.Absorbing, {"model": MARKOV, "eos": 1, "start": 0}),
    (
        sequence.BlockMarginals,
        {"rows": [[0.5, 0.5]], "start": 0, "transition": [[0.0, 1.0], [1.0, 0.0]]},
    ),
    (sequence.block_marginals, {"model": MARKOV, "context": (0,), "length": 2, "memory": 1}),
    (sequence.BlockKSeq, {"num_drafts": 2, "length": 1}),
    (sequence.Fly, {"length": 3, "window": 2, "entropy": 0.3, "samples": 1}),
    (
        sequence.RegretBudget,
        {"length": 3, "budget": 1.0, "gate": 2.0, "mismatches": 1, "spent": 0.5},
    ),
    (sequence.BlockVerification, {"length": 2}),
    (sequence.DraftSelection, {"num_drafts": 2, "length": 1, "verifier": otm.KSeq()}),
    (sequence.Ersd, {"tree": SHAPE}),
    (sequence.GreedyMultipath, {"num_drafts": 2, "length": 1, "stem": 1}),
    (sequence.Gsd, {"tree": SHAPE}),
    (sequence.LikeliestTree, {"size": 3, "length": 2, "width": 2}),
    (sequence.MarkovModel, {"table": np.array([[0.5, 0.5], [0.25, 0.75]])}),
    (sequence.Memoised, {"model": MARKOV}),
    (sequence.NoiseTree, {"size": 3, "length": 2, "scale": 0.5, "cells": 2}),
    (sequence.PrefixTree, {"factors": (2, 1), "verifier": otm.KSeq()}),
    (sequence.SampledTree, {"size": 2, "length": 2, "verifier": otm.Naive()}),
    (sequence.Staged, {"inner": CHAIN, "middle": MARKOV, "length": 2}),
    (
        sequence.expected_calls,
        {"decoder": sequence.Staged(CHAIN, MARKOV, 2), "draft": MARKOV, "context": (0,)},
    ),
    (sequence.StochasticBeam, {"num_drafts": 2, "length": 1}),
    (sequence.RefinedScores, {"num_drafts": 2, "length": 1, "cells": 4}),
    (sequence.SpeculativeSampling, {"length": 2, "verifier": otm.Maximal()}),
    (sequence.TableModel, {"table": {(): [0.5, 0.5]}}),
    (sequence.TraversalVerification, {"tree": SHAPE, "drafts": otm.WithoutReplacement(1)}),
    (sequence.TreeVerification, {"tree": SHAPE, "drafts": otm.IID(1), "verifier": otm.KSeq()}),
    (sequence.Sampled, {"rng": rng(), "noise": NOISES[0]}),
    (sequence.SharedNoise, {"seed": 7}),
    (sequence.ZerothOrder, {"mass": np.asarray(P)}),
    (sequence.best_step, {"decoder": CHAIN, **MODELS}),
    (sequence.expected_step, {"decoder": CHAIN, **MODELS}),
    (sequence.step_law, {"decoder": CHAIN, **MODELS}),
    (
        sequence.completed_law,
        {"law": sequence.step_law(CHAIN, **MODELS), "target": MARKOV, "context": (0,), "length": 2},
    ),
    (
        sequence.delayed_expansions,
        {
            "make": lambda stem, branches, length: sequence.GreedyMultipath(branches, length, stem),
            **MODELS,
            "num_nodes": 2,
            "draft_cost": 0.1,
        },
    ),
    (sequence.loose_step, {"decoder": sequence.Fly(2, samples=1), **MODELS}),
    (sequence.divergence_by_position, {"law": JOINT, "target": JOINT}),
    (sequence.belief_rows, {"tree": DRAFTED, "one": DRAFTED.step_along([1], 0)}),
    (sequence.fit_scale, {"rows": [P, Q], "tokens": [0, 1], "confidence": 0.9}),
    (sequence.Jacobi, {"window": 2, "coupling": "maximal"}),
    (
        sequence.jacobi_generate,
        {
            "scheme": sequence.Jacobi(2),
            "model": MODELS["target"],
            "context": [0],
            "num_tokens": 2,
            "rng": rng(),
        },
    ),
    (
        sequence.jacobi_law,
        {
            "scheme": sequence.Jacobi(1),
            "model": MODELS["target"],
            "context": [0],
            "length": 1,
        },
    ),
    (
        sequence.generate,
        {
            "decoder": CHAIN,
            **MODELS,
            "num_tokens": 2,
            "rng": rng(),
            "noise": NOISES[0],
            "eos": 1,
        },
    ),
    (sequence.generated_law, {"decoder": CHAIN, **MODELS, "length": 2}),
    (sequence.level_cut_upper, {**MODELS, **COUNTED, "rng": rng()}),
    (
        sequence.markov_pair,
        {"num_tokens": 2, "order": 1, "similarity": 0.5, "concentration": 1.0, "rng": rng()},
    ),
    (listed(sequence.outcomes), {"run": lambda randomness: 0}),
    (sequence.matched_tokens, {"decoder": sequence.LikeliestTree(2, 2), **MODELS}),
    (
        sequence.noise_tokens,
        {"decoder": sequence.NoiseTree(2, 2), **MODELS, "noises": NOISES, "confidence": 0.9},
    ),
    (sequence.rank_decoders, {"decoders": [CHAIN], **MODELS}),
    (sequence.sequence_law, {"model": MARKOV, "context": (0,), "length": 2}),
    (sequence.step, {"decoder": CHAIN, **MODELS, "randomness": sequence.Sampled(rng()), "eos": 1}),
    (
        first_of(sequence.steps),
        {"decoder": CHAIN, **MODELS, "rng": rng(), "noise": NOISES[0], "eos": 1},
    ),
    (table.table_columns, {"k": [1, 2]}),
    (transport.certify_exactly, {"problem": PROBLEM, "solved": otm.optimum(PROBLEM)}),
    (transport.optimum_program, {"problem": PROBLEM}),
    (trees.TreeShape, {"parents": [0, 0, 1]}),
    (engines.PositionAcceptance, {"survival": [0.5, 0.25]}),
    (engines.chain_expected_tokens, {"acceptance": 0.5, "length": 2}),
    (engines.chain_speedup, {"acceptance": 0.5, "length": 2, "cost_ratio": 0.1}),
    (trees.check_acceptance, {"acceptance": VECTOR}),
    (trees.choose_tree, CHOSEN | {"max_depth": 2, "max_width": 2}),
    (trees.empirical_acceptance, {"accepted": [1, 1], "tried": [3, 2]}),
    (trees.entropy_bits, {"mass": P}),
    (trees.even_spread, {"acceptance": VECTOR, "num_explored": 2}),
    (trees.leaf_entropy, {"acceptance": VECTOR, "shape": SHAPE}),
    (trees.level_order, {"shape": SHAPE}),
    (engines.optimal_chain_length, {"acceptance": 0.5, "cost_ratio": 0.1, "max_length": 9}),
    (trees.optimal_tree, {"acceptance": VECTOR, "num_nodes": 3, "max_depth": 2, "max_width": 2}),
    (trees.rank_counts, {"ranks": [0, 1, -1], "num_children": [2, 2, 1]}),
    (trees.rejected_mass, {"acceptance": VECTOR}),
    (trees.target_seconds_at, {"target_seconds": {1: 1.0, 8: 2.0}, "num_nodes": [1, 2]}),
    (trees.tree_acceptance, {"acceptance": VECTOR, "shape": SHAPE}),
    (trees.tree_expected_tokens, {"acceptance": VECTOR, "shape": SHAPE}),
    (
        trees.tunstall_explored_upper,
        {"acceptance": VECTOR, "num_nodes": 3, "num_explored": 2, "num_extra": 1},
    ),
    (
        trees.tunstall_minimum_upper,
        {"acceptance": VECTOR, "num_nodes": 3, "num_explored": 2, "least_extra": 1},
    ),
    (trees.tunstall_upper, {"acceptance": VECTOR, "num_nodes": 3, "max_width": 2}),
    (verifiers.gamma_star, {"problem": PROBLEM}),
    (
        verifiers.prepare_batch,
        {
            "verifier": otm.Optimal(bins=8),
            "problem": otm.Problem(draft=[P], target=[Q], law=otm.IID(2)),
        },
    ),
    (
        verifiers.rao_blackwell_acceptance,
        {"problem": DISTINCT, "samples": 9, "rng": rng(), "confidence": 0.9},
    ),
    (verifiers.selection_with_law, {"problem": PROBLEM, "law": P}),
    (engines.estimate_tokens, {"record": RECORD}),
    (engines.kaplan_meier, {"record": RECORD}),
    (engines.survival_bounds, {"record": RECORD}),
    (engines.request_mean, {"record": RECORD, "confidence": 0.9}),
    (engines.mean_bounds, {"record": RECORD, "drafts": 2}),
    (engines.check_lengths, {"record": RECORD, "confidence": 0.9}),
    (engines.compare_records, {"record": RECORD, "other": 2.0, "confidence": 0.9}),
    (engines.record_of_counts, {"accepted": 5, "steps": 3, "drafts": 2}),
    (engines.record_of_mean, {"mean": 2.4, "drafts": 2}),
    (engines.record_of_means, {"means": {1: 1.8, 3: 2.8}}),
    (engines.record_of_rates, {"rates": [0.8, 0.6]}),
    (
        engines.parse_acceptance,
        {"text": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}'},
    ),
    (
        engines.parse_models,
        {"text": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}'},
    ),
    (on_a_file(engines.read_acceptance), {"path": None}),
    (on_a_file(engines.read_models), {"path": None}),
    (otm.show_versions, {}),
    (on_a_file(engines.read_costs), {"path": None}),
    (
        engines.plan_lengths,
        PLANNED | {"batches": [1], "contexts": [0], "extend": 2, "confidence": 0.9},
    ),
    (engines.plan_mean, PLANNED | {"batch": 1, "context": 0, "drafts": 2}),
    (engines.vllm_lengths, PLANNED | {"context": 0, "max_batch": 1}),
    (engines.PositionAcceptance([0.5, 0.25]).extended, {"length": 3}),
    (engines.CostSurface.flat, {"draft": 0.002, "target": 0.020}),
    (engines.records.Tally.of_steps, {"accepted": [0, 1], "drafted": [1, 1], "name": ""}),
    (engines.records.Tally.of_mean, {"mean": 2.4, "name": ""}),
    (engines.records.Tally.of_histogram, {"counts": [2, 1], "name": "", "offered": [0, 3]}),
    (
        engines.records.Tally.of_survivors,
        {"survivors": [2, 1], "steps": 3, "name": "", "accepted": 3},
    ),
]
"""Called functions, with arguments by name."""
