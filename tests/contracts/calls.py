"""One valid call of every public function, and of every class that takes what a user has: where to
put wrong arguments.
"""

from __future__ import annotations

import inspect
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import figure

import otm
from benchmarks.corpus import trees as broken_trees
from otm import (
    audit,
    bounds,
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

P, Q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
PROBLEM = otm.Problem(draft=P, target=Q, law=otm.IID(2))
SINGLE = PROBLEM.with_law(otm.IID(1))
TOP = partial.TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25])
PAIR = partial.PartialPair(draft=TOP, target=TOP, num_tokens=8)
SHAPE = trees.TreeShape([0, 0, 1])
MARKOV = sequence.MarkovModel(np.array([[0.5, 0.5], [0.25, 0.75]]))
CHAIN = sequence.SpeculativeSampling(1)
MARKOV_PAIR = {"draft": MARKOV, "target": MARKOV}
MODELS = MARKOV_PAIR | {"context": (0,)}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def first_matches(draft: Any, target: Any, drafts: Any, uniforms: Any) -> list[int]:
    """Keep every draft and add a token of the target: right where both models are one."""
    return [*(int(token) for token in drafts), int(uniforms[0] >= target[-1, 0])]


Call = tuple[Callable[..., Any], Callable[[], dict[str, Any]]]


def _calls() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Yield what is called and its arguments by name."""
    for verb in (
        otm.acceptance,
        otm.coupling,
        otm.prepare,
        lossy.distortion,
        lossy.output_law,
        trees.acceptance_vector,
    ):
        verifier = otm.RecursiveRejection()
        yield verb, {"verifier": verifier, "problem": PROBLEM}
    yield otm.acceptance, {"verifier": otm.KSeq(), "problem": PROBLEM, "by": "membership"}
    yield (
        otm.acceptance_curve,
        {"verifier": otm.KSeq(), "problem": PROBLEM, "k": [1, 2], "by": "membership"},
    )
    logs = {"log_draft": np.log([P]), "log_target": np.log([Q])}
    yield otm.acceptance_table, {"draft": [P], "target": [Q], "k": [1, 2], "threads": 1, **logs}
    yield (
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
    )
    steps = {"num_uniforms": 1, "most_slanted": 8, "most_work": 99, "most_seconds": 9.0}
    yield otm.tracing.trace, {"function": lambda uniforms: bool(uniforms[0] < 0.5), **steps}
    law = otm.tracing.trace(lambda uniforms: bool(uniforms[0] < 0.5), 1)
    yield otm.tracing.contradicts_samples, {"laws": [law]}
    yield (
        otm.compare,
        {
            "draft": P,
            "target": Q,
            "verifiers": [otm.KSeq()],
            "laws": [otm.IID],
            "k": [1, 2],
            "samples": 0,
        },
    )
    yield (
        otm.estimate,
        {
            "verifier": otm.KSeq(),
            "problem": PROBLEM,
            "samples": 9,
            "rng": rng(),
            "confidence": 0.9,
            "by": "rule",
        },
    )
    yield (
        otm.from_callable,
        {
            "function": lambda p, q, drafts, uniforms: int(drafts[0]),
            "law": otm.IID,
            "name": "trusting",
        },
    )
    yield (
        otm.from_logits,
        {
            "logits": [0.0, 1.0, 2.0],
            "temperature": 1.0,
            "top_k": 2,
            "top_p": 0.5,
            "min_p": 0.1,
            "order": "vllm",
        },
    )
    few: dict[str, dict[str, Any]] = {
        "curves": {"verifiers": [otm.KSeq()], "k": [1]},
        "frontier": {"verifiers": []},
    }
    for picture in (plot.curves, plot.overlap, plot.frontier):
        named = few.get(picture.__name__, {})
        yield picture, {"problem": PROBLEM, **named, "ax": figure.Figure().subplots()}
    yield (
        plot.pair,
        {"draft": P, "target": Q, "tokens": ["a", "b", "c"], "ax": figure.Figure().subplots()},
    )
    yield (
        plot.coupling,
        {
            "joint": otm.optimum(PROBLEM),
            "tokens": ["a", "b", "c"],
            "ax": figure.Figure().subplots(),
        },
    )
    yield plot.tree, {"drafted": SHAPE, "ax": figure.Figure().subplots()}
    yield (
        otm.Processing,
        {"temperature": 1.0, "top_k": 2, "top_p": 0.5, "min_p": 0.1, "order": "vllm"},
    )
    yield (
        losses.acceptance_losses,
        {"draft_logits": [0.0, 1.0], "target_logits": [1.0, 0.0], "k": 2, "verifier": otm.KSeq()},
    )
    yield (
        losses.best_temperature,
        {"draft_logits": [0.0, 1.0], "target": [0.5, 0.5], "k": 2, "draft": otm.Processing()},
    )
    yield losses.best_ranked_acceptance, {"draft": P, "target": Q}
    yield losses.draft_rounding, {"draft": P, "target": Q, "dtype": "bfloat16"}
    yield losses.top_mass, {"target": Q, "k": 2}
    yield otm.kernel, {"verifier": otm.KSeq(), "problem": PROBLEM, "drafts": [0, 1]}
    yield otm.normalise, {"values": P}
    for closed in (
        otm.optimal_acceptance,
        otm.optimum,
        otm.optimal_cut,
        bounds.index_entropy_lower,
        bounds.index_entropy_upper,
    ):
        yield closed, {"problem": PROBLEM}
    yield otm.optimum, {"problem": PROBLEM, "method": "sets"}
    yield otm.optimal_acceptance_curve, {"problem": PROBLEM, "k": [1, 2]}
    yield otm.sample, {"verifier": otm.KSeq(), "problem": PROBLEM, "size": 3, "rng": rng()}
    yield otm.Problem, {"draft": P, "target": Q, "law": otm.IID(2)}
    for law in otm.drafts.LAWS:
        yield law, {"k": 2}
    yield otm.BoundedRegret, {"regret": 0.5, "fallback": "target"}
    yield otm.Cactus, {"delta": 0.1}
    yield otm.Mars, {"theta": 0.9, "top_logit": 10.0, "fallback": "target"}
    yield otm.ThresholdMatching, {"single": 0.5, "accumulated": 0.9}
    yield otm.Cascade, {"rule": "opt", "alpha": 0.5}
    yield otm.Ensemble, {"weight": 0.5}
    yield otm.RelaxedAcceptance, {"top": 2, "delta": 0.5, "fallback": "greedy"}
    yield otm.TvOptimal, {"tv": 0.1}
    yield otm.Fuzzy, {"threshold": 0.1, "divergence": "js", "fallback": "target"}
    yield otm.KSeq, {"gamma": 1.5}
    yield otm.Lenience, {"lenience": 0.5, "residual": "plain"}
    yield otm.Mentored, {"kl": 0.1}
    yield otm.Optimal, {"bins": 8}
    yield otm.TypicalAcceptance, {"eps": 0.09, "delta": 0.3}
    yield otm.SelectThenReject, {"selection": None}
    yield otm.Tournament, {"tokens": 2}
    yield otm.WithoutReplacementOptimal, {"tolerance": 1e-4}

    yield (
        audit.TokenCandidate,
        {"verify": lambda draft, target, drafts, uniforms: (int(drafts[0]), True), "name": "x"},
    )
    yield (
        audit.BlockBatchCandidate,
        {"verify": lambda draft, target, drafts, rng: drafts, "name": "x"},
    )
    yield (
        audit.LogitCandidate,
        {
            "verify": lambda draft, target, drafts, uniforms, temperature: int(drafts[0]),
            "name": "x",
        },
    )
    yield (
        audit.TreeCandidate,
        {"verify": broken_trees.recursive, "name": "x", "siblings": "without"},
    )
    errors = audit.Errors(detect=0.5, false_alarm=0.1, missed=0.1)
    tally = engines.records.Tally.of_histogram([2, 2, 6], name="a")
    record = otm.engines.AcceptanceRecord(
        form="example", unit="request", parts=(tally,), convention=""
    )
    yield (
        audit.acceptance_counts,
        {"record": record, "expected": (0.9, 0.8), "name": "x", "errors": errors},
    )
    yield audit.Errors, {"detect": 0.5, "false_alarm": 0.1, "missed": 0.1}
    yield audit.VerifierCandidate, {"verifier": otm.Maximal()}
    yield audit.classify, {"thing": first_matches, "name": "x"}
    yield (
        audit.assert_lossless,
        {
            "candidate": otm.Maximal(),
            "laws": [otm.IID(1)],
            "seed": 1,
            "seconds": 9.0,
            "shrink_for": 0.0,
        },
    )
    yield (
        audit.battery,
        {
            "candidate": otm.Maximal(),
            "only": "exact",
            "laws": [otm.IID(1)],
            "errors": errors,
            "seed": 1,
            "seconds": 9.0,
            "shrink_for": 0.0,
        },
    )
    yield (
        audit.LogitCandidate,
        {"verify": first_matches, "order": "vllm", "temperatures": [1.0, 0.5], "name": "first"},
    )
    yield audit.exact, {"candidate": otm.Maximal(), "problem": SINGLE, "tolerance": 1e-9}
    yield (
        audit.server_log,
        {"records": _records(), "name": "x", "law": otm.IID(1), "errors": errors},
    )
    yield (
        audit.outputs,
        {
            "outputs": [0, 1, 1],
            "target": Q,
            "draft": P,
            "name": "x",
            "errors": errors,
        },
    )
    yield audit.records_needed, {"errors": errors}
    yield audit.rounding_tolerance, {"num_tokens": 3, "k": 2, "unit_roundoff": 1e-16}
    yield (
        audit.sampled,
        {
            "candidate": otm.Maximal(),
            "problem": SINGLE,
            "rng": rng(),
            "errors": errors,
        },
    )
    yield audit.library_sampler, {"verifier": otm.Maximal(), "problem": SINGLE, "tolerance": 1e-9}
    yield (
        audit.samples_needed,
        {"mass": np.asarray(Q), "detect": 0.5, "false_alarm": 0.1, "missed": 0.1},
    )
    blocks = {
        "candidate": first_matches,
        "draft": MARKOV,
        "target": MARKOV,
        "num_drafts": 1,
        "context": (0,),
    }
    yield (
        audit.sampled_blocks,
        blocks | {"rng": rng(), "errors": errors},
    )
    asked = {"candidate": first_matches, "draft": MARKOV, "target": MARKOV}
    yield audit.sequence, asked | {"num_drafts": 1, "context": (0,), "tolerance": 1e-9}
    tree = {
        "candidate": broken_trees.recursive,
        "parents": (-1,),
        "rng": rng(),
        "replacement": True,
        "tolerance": 1e-9,
    }
    yield audit.tree_kernel, MARKOV_PAIR | tree | {"errors": errors}
    yield (
        audit.shrink,
        {"candidate": otm.Maximal(), "law": otm.IID(1), "tolerance": 1e-9, "budget": 2},
    )
    yield (
        audit.shrink_sequence,
        {"candidate": first_matches, "num_drafts": (1,), "tolerance": 1e-9, "budget": 1},
    )

    yield bounds.kseq_factor, {"k": 2}
    for name in bounds.__all__:
        bound = getattr(bounds, name)
        if inspect.isfunction(bound) and [*inspect.signature(bound).parameters] == ["problem"]:
            yield bound, {"problem": _answered(bound)}
    yield bounds.optimal_bracket, {"problem": PROBLEM, "bins": 8}
    yield bounds.spectr_upper, {"problem": PROBLEM, "subset": [0]}
    for divergence in (
        divergences.harmonic_mean_distance,
        divergences.kl_divergence,
        divergences.total_variation,
    ):
        yield divergence, {"draft": P, "target": Q}
    yield divergences.hockey_stick, {"draft": P, "target": Q, "level": 1.5}
    yield examples.bernoulli, {"q": 0.25}
    yield examples.describe, {"mass": P}
    yield examples.dirichlet, {"num_tokens": 3, "rng": rng(), "concentration": 1.0, "rows": 2}
    yield examples.two_token_optimum, {"draft": 0.5, "target": 0.25, "k": 2}
    yield examples.uniform, {"num_tokens": 3, "vocabulary": 4}
    yield examples.uniform_optimum, {"ratio": 2.0, "k": 2}
    yield examples.zipf, {"num_tokens": 3, "exponent": 1.0}
    yield lossy.kl_frontier, {"problem": PROBLEM, "kl": 0.1}
    yield lossy.kl_frontier_program, {"problem": PROBLEM, "kl": 0.1}
    yield lossy.tv_frontier, {"problem": PROBLEM, "tv": 0.1}
    yield overlap.overlap_at, {"draft": np.asarray(P), "target": np.asarray(Q), "level": 1.0}

    yield (
        partial.TopTokens,
        {
            "tokens": [0, 1],
            "probabilities": [0.5, 0.25],
            "tail": 0.25,
            "cap": 0.25,
            "rounding": 0.0,
        },
    )
    yield partial.TopTokens.of, {"pmf": P, "m": 2}
    yield partial.PartialPair, {"draft": TOP, "target": TOP, "num_tokens": 8}
    yield partial.acceptance, {"verifier": otm.KSeq(), "pair": PAIR, "k": [1, 2]}
    yield partial.divergences, {"pair": PAIR}
    yield partial.gamma_star, {"pair": PAIR, "k": [1, 2]}
    yield partial.optimal_acceptance, {"pair": PAIR, "k": [1, 2]}

    yield sequence.Absorbing, {"model": MARKOV, "eos": 1, "start": 0}
    yield sequence.BlockMarginals, {"rows": [[0.5, 0.5]], "start": 0}
    yield sequence.block_marginals, {"model": MARKOV, "context": (0,), "length": 2}
    yield (
        sequence.BestVerification,
        {"num_drafts": 2, "length": 1, "drafter": MARKOV, "judge": MARKOV},
    )
    yield sequence.BlockKSeq, {"num_drafts": 2, "length": 1}
    yield sequence.Fly, {"length": 3, "window": 2, "entropy": 0.3, "samples": 1}
    yield (
        sequence.RegretBudget,
        {"length": 3, "budget": 1.0, "gate": 2.0, "mismatches": 1, "spent": 0.5},
    )
    yield sequence.BlockVerification, {"length": 2}
    yield sequence.DraftSelection, {"num_drafts": 2, "length": 1, "verifier": otm.KSeq()}
    yield sequence.Ersd, {"tree": SHAPE}
    yield sequence.GreedyMultipath, {"num_drafts": 2, "length": 1, "stem": 1}
    yield sequence.Gsd, {"tree": SHAPE}
    yield sequence.LikeliestTree, {"size": 3, "length": 2, "width": 2}
    yield sequence.MarkovModel, {"table": np.array([[0.5, 0.5], [0.25, 0.75]])}
    yield sequence.Memoised, {"model": MARKOV}
    yield sequence.PrefixTree, {"factors": (2, 1), "verifier": otm.KSeq()}
    yield sequence.SampledTree, {"size": 2, "length": 2, "verifier": otm.Naive()}
    yield sequence.Staged, {"inner": CHAIN, "middle": MARKOV, "length": 2}
    yield (
        sequence.expected_calls,
        {"decoder": sequence.Staged(CHAIN, MARKOV, 2), "draft": MARKOV, "context": (0,)},
    )
    yield sequence.StochasticBeam, {"num_drafts": 2, "length": 1}
    yield sequence.RefinedScores, {"num_drafts": 2, "length": 1, "cells": 4}
    yield sequence.SpeculativeSampling, {"length": 2, "verifier": otm.Maximal()}
    yield sequence.TableModel, {"table": {(): [0.5, 0.5]}}
    yield sequence.TraversalVerification, {"tree": SHAPE, "drafts": otm.WithoutReplacement(1)}
    yield sequence.TreeVerification, {"tree": SHAPE, "drafts": otm.IID(1), "verifier": otm.KSeq()}
    yield sequence.Sampled, {"rng": rng()}
    yield sequence.ZerothOrder, {"mass": np.asarray(P)}
    for law_of in (sequence.best_step, sequence.expected_step, sequence.step_law):
        yield law_of, {"decoder": CHAIN, **MODELS}
    law = sequence.step_law(CHAIN, **MODELS)
    yield sequence.completed_law, {"law": law, "target": MARKOV, "context": (0,), "length": 2}
    joint = np.full((2, 2), 0.25)
    yield (
        sequence.delayed_expansions,
        {
            "make": lambda stem, branches, length: sequence.GreedyMultipath(branches, length, stem),
            **MODELS,
            "num_nodes": 2,
            "draft_cost": 0.1,
        },
    )
    yield sequence.loose_step, {"decoder": sequence.Fly(2, samples=1), **MODELS}
    yield sequence.divergence_by_position, {"law": joint, "target": joint}
    yield sequence.generate, {"decoder": CHAIN, **MODELS, "num_tokens": 2, "rng": rng(), "eos": 1}
    yield sequence.generated_law, {"decoder": CHAIN, **MODELS, "length": 2}
    counts = {"num_drafts": 2, "length": 1, "samples": 9, "confidence": 0.9}
    yield sequence.level_cut_upper, {**MODELS, **counts, "rng": rng()}
    yield (
        sequence.markov_pair,
        {"num_tokens": 2, "order": 1, "similarity": 0.5, "concentration": 1.0, "rng": rng()},
    )
    yield _all(sequence.outcomes), {"run": lambda randomness: 0}
    yield sequence.matched_tokens, {"decoder": sequence.LikeliestTree(2, 2), **MODELS}
    yield sequence.rank_decoders, {"decoders": [CHAIN], **MODELS}
    yield sequence.sequence_law, {"model": MARKOV, "context": (0,), "length": 2}
    yield (
        sequence.step,
        {"decoder": CHAIN, **MODELS, "randomness": sequence.Sampled(rng()), "eos": 1},
    )
    yield _first(sequence.steps), {"decoder": CHAIN, **MODELS, "rng": rng(), "eos": 1}
    yield table.table_columns, {"k": [1, 2]}
    yield transport.certify_exactly, {"problem": PROBLEM, "solved": otm.optimum(PROBLEM)}
    yield transport.optimum_program, {"problem": PROBLEM}

    vector = [0.5, 0.25]
    yield trees.TreeShape, {"parents": [0, 0, 1]}
    yield engines.PositionAcceptance, {"survival": [0.5, 0.25]}
    yield from _planning()
    yield engines.chain_expected_tokens, {"acceptance": 0.5, "length": 2}
    yield engines.chain_speedup, {"acceptance": 0.5, "length": 2, "cost_ratio": 0.1}
    yield trees.check_acceptance, {"acceptance": vector}
    chosen = {
        "acceptance": vector,
        "draft_seconds": 0.1,
        "target_seconds": lambda n: 1.0 + 0.1 * n,
        "max_nodes": 4,
    }
    yield trees.choose_tree, chosen | {"max_depth": 2, "max_width": 2}
    yield trees.empirical_acceptance, {"accepted": [1, 1], "tried": [3, 2]}
    yield trees.entropy_bits, {"mass": P}
    yield trees.even_spread, {"acceptance": vector, "num_explored": 2}
    yield trees.leaf_entropy, {"acceptance": vector, "shape": SHAPE}
    yield trees.level_order, {"shape": SHAPE}
    yield engines.optimal_chain_length, {"acceptance": 0.5, "cost_ratio": 0.1, "max_length": 9}
    yield trees.optimal_tree, {"acceptance": vector, "num_nodes": 3, "max_depth": 2, "max_width": 2}
    yield trees.rank_counts, {"ranks": [0, 1, -1], "num_children": [2, 2, 1]}
    yield trees.rejected_mass, {"acceptance": vector}
    yield trees.target_seconds_at, {"target_seconds": {1: 1.0, 8: 2.0}, "num_nodes": [1, 2]}
    yield trees.tree_acceptance, {"acceptance": vector, "shape": SHAPE}
    yield trees.tree_expected_tokens, {"acceptance": vector, "shape": SHAPE}
    yield trees.tree_from_json, {"text": trees.tree_to_json(acceptance=vector, shape=SHAPE)}
    yield trees.tree_program, {"acceptance": vector, "num_nodes": 3, "max_depth": 2, "max_width": 2}
    yield trees.tree_to_json, {"acceptance": vector, "shape": SHAPE}
    yield (
        trees.tunstall_explored_upper,
        {"acceptance": vector, "num_nodes": 3, "num_explored": 2, "num_extra": 1},
    )
    yield (
        trees.tunstall_minimum_upper,
        {"acceptance": vector, "num_nodes": 3, "num_explored": 2, "least_extra": 1},
    )
    yield trees.tunstall_upper, {"acceptance": vector, "num_nodes": 3, "max_width": 2}
    yield verifiers.gamma_star, {"problem": PROBLEM}
    yield (
        verifiers.prepare_batch,
        {
            "verifier": otm.Optimal(bins=8),
            "problem": otm.Problem(draft=[P], target=[Q], law=otm.IID(2)),
        },
    )
    distinct = PROBLEM.with_law(otm.WithoutReplacement(2))
    yield (
        verifiers.rao_blackwell_acceptance,
        {"problem": distinct, "samples": 9, "rng": rng(), "confidence": 0.9},
    )
    yield verifiers.selection_with_law, {"problem": PROBLEM, "law": P}


def _planning() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Yield what reads records of acceptance and plans with them."""
    steps = [engines.records.Tally.of_steps([0, 1, 2], [2, 1, 2], name=name) for name in "ab"]
    record = engines.AcceptanceRecord(form="", unit="request", parts=tuple(steps), convention="")
    costs = engines.CostSurface.of_points(
        {(1, 0): 0.002}, {(1, 0, n): 0.020 for n in (1, 3)}, source=""
    )
    chain = engines.PositionAcceptance([0.5, 0.25])
    for verb in (engines.estimate_tokens, engines.kaplan_meier, engines.survival_bounds):
        yield verb, {"record": record}
    for verb in (engines.request_mean, engines.check_lengths):
        yield verb, {"record": record, "confidence": 0.9}
    yield (
        engines.parse_acceptance,
        {"text": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}'},
    )
    for reader in (engines.read_acceptance, engines.read_costs):
        yield _on_a_file(reader), {"path": None}
    planned = {"record": record, "costs": costs}
    yield (
        engines.plan_lengths,
        planned | {"batches": [1], "contexts": [0], "extend": 2, "confidence": 0.9},
    )
    yield engines.plan_budget, {"record": record, "budget": 3}
    yield engines.split_budget, {"survival": [[0.5, 0.25]], "budget": 1}
    yield engines.vllm_lengths, planned | {"context": 0, "max_batch": 1}
    yield chain.extended, {"length": 3}
    yield engines.CostSurface.flat, {"draft": 0.002, "target": 0.020}
    yield engines.records.Tally.of_steps, {"accepted": [0, 1], "drafted": [1, 1], "name": ""}
    yield engines.records.Tally.of_histogram, {"counts": [2, 1], "name": "", "offered": [0, 3]}
    yield (
        engines.records.Tally.of_survivors,
        {"survivors": [2, 1], "steps": 3, "name": "", "accepted": 3},
    )


def _on_a_file(reader: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader that is given a good file where it is given no path."""
    good = {
        "read_acceptance": '{"spec_verify_ct": 4, "spec_accept_histogram": [2, 1, 1]}',
        "read_costs": engines.CostSurface.flat(draft=0.002, target=0.020).to_json(),
    }

    def read(path: Any) -> Any:
        if path is not None:
            return reader(path)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_text(good[reader.__name__], encoding="utf-8")
            return reader(file)

    return _named(reader, read)


def _records() -> list[Any]:
    from otm.audit.token_log import parse_record

    return [parse_record('{"output": 1, "target": [0.5, 0.5]}', 1)] * 3


def _all(generator: Callable[..., Any]) -> Callable[..., Any]:
    return _named(generator, lambda **arguments: list(generator(**arguments)))


def _first(generator: Callable[..., Any]) -> Callable[..., Any]:
    return _named(generator, lambda **arguments: next(generator(**arguments)))


def _named(function: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    wrapped.__name__ = wrapped.__qualname__ = function.__name__
    return wrapped


def _answered(bound: Callable[[otm.Problem], Any]) -> otm.Problem:
    """Return a problem under a law that the bound is about."""
    try:
        bound(PROBLEM)
    except otm.errors.Unsupported:
        return SINGLE
    return PROBLEM


def public() -> set[str]:
    """Return the names of every public function of the library."""
    found: set[str] = set()

    def visit(module: types.ModuleType) -> None:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                visit(thing)
            elif inspect.isfunction(thing):
                found.add(thing.__name__)

    visit(otm)
    return found


CALLS = list(_calls())
