"""The accuracy page: what every public function promises, by what it is held against it, and how
far the worst answer was off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from evidence.torture.promises import Statement, statements
from evidence.torture.results import Summary, Total, shown_ratio
from otm._display.tabular import markdown

COLUMNS = (
    "function",
    "direction",
    "promised bound",
    "proved or stated in",
    "witness",
    "inputs tried",
    "worst",
)

HEAD = """# Accuracy

What each public function promises, and how far its worst answer was off when the harness tried it
([extending.md](extending.md#what-a-function-promises)). Written by `python -m
evidence.torture page --out FOLDER` from the promises in `evidence/torture/families` and the
trials in FOLDER; not by hand. The last table of trials: [torture.md](torture.md); what longer runs
before it observed is kept here.

u = 2⁻⁵³. ν is what a sum over the vocabulary errs by: at most V + 1 and at most 64 units
([theory.md](theory.md#accuracy)).
*Direction*: exact to rounding, a bound from below or above, an interval, or an estimate with a
stated probability of missing.
*Worst* is the largest error ÷ promised bound over all inputs; for what is rounded to its own side
any excess at all would be ∞.
"""


NOT_TRIED: dict[str, str] = {
    "otm.Law": "abstract",
    "otm.Processing": "`otm.from_logits`, with its arguments kept",
    "otm.Verifier": "abstract",
    "otm.drafts.CountedLaw": "abstract",
    "otm.OtmError": "an error",
    "otm.show_versions": "a list of what is installed",
    "otm.prepare": "its rules are tried through `otm.kernel`, `otm.coupling` and `otm.sample`",
    "otm.from_callable": "holds a function; what it is found to accept is `otm.audit.exact`",
    "otm.audit.as_hf": "held against its model (tests/audit/test_hugging_face.py)",
    "otm.audit.as_mlx": "held against its model (tests/audit/test_mlx_face.py)",
    "otm.audit.engine": "held against known laws (tests/audit/test_engine_audit.py)",
    "otm.audit.write_pair": "writes two models (tests/audit/test_engine_audit.py)",
    "otm.audit.tracing.TraceAborted": "an error",
    "otm.audit.tracing.TracedLaw": "a result",
    "otm.audit.tracing.contradicts_samples": "held against executions (tests/audit/tracing)",
    "otm.audit.tracing.trace": "held against known laws (tests/audit/tracing)",
    "otm.audit.AcceptanceInterval": "a result",
    "otm.audit.CallableVerifier": "holds a function",
    "otm.acceptance": "each verifier has a row of its own",
    "otm.bounds.Bracket": "a result",
    "otm.comparison.Comparison": "a result",
    "otm.comparison.ComparisonRow": "a result",
    "otm.audit.BatchCandidate": "holds a function",
    "otm.audit.BlockBatchCandidate": "holds a function",
    "otm.audit.BlockCandidate": "holds a function",
    "otm.audit.GenerationCandidate": "holds a function",
    "otm.audit.LogitCandidate": "holds a function",
    "otm.audit.StepCandidate": "holds a function",
    "otm.audit.TokenCandidate": "holds a function",
    "otm.audit.TreeCandidate": "holds a function",
    "otm.audit.Candidate": "abstract",
    "otm.audit.Check": "holds an audit to carry out",
    "otm.audit.Deadline": "counts seconds",
    "otm.audit.DetectionBudget": "holds levels and a time",
    "otm.audit.Errors": "holds probabilities",
    "otm.audit.Scope": "holds what is asked of a candidate",
    "otm.audit.VerifierCandidate": "holds a verifier",
    "otm.audit.acceptance_counts": (
        "its error rates are tested by simulation (tests/audit/test_log_audit.py)"
    ),
    "otm.audit.classify": "says of which kind a function is (tests/audit/test_classification.py)",
    "otm.audit.parametrize_with_checks": (
        "the checks of `otm.audit.battery` as tests (tests/audit/test_testing.py)"
    ),
    "otm.audit.assert_lossless": "`otm.audit.battery`, and an assertion",
    "otm.audit.battery": (
        "the audits of its kinds on fixed instances (tests/audit/test_batteries.py)"
    ),
    "otm.audit.generate": "held against exact laws of texts (tests/audit/test_generations.py)",
    "otm.audit.several_steps": "held against fractions (tests/audit/test_draft_noise.py)",
    "otm.audit.step": "held against exact laws of steps (tests/audit/test_end_to_end.py)",
    "otm.audit.tree_kernel": (
        "held against stated distances (tests/evidence/corpus/test_wholes.py)"
    ),
    "otm.audit.server_log": (
        "its error rates are tested by simulation (tests/audit/test_log_audit.py)"
    ),
    "otm.audit.records_needed": "held against simulated logs (tests/audit/test_log_audit.py)",
    "otm.audit.same_text": (
        "its error rates are tested by simulation (tests/audit/test_same_text_audit.py)"
    ),
    "otm.audit.sampled_blocks": "`otm.audit.sampled` on blocks (tests/audit/test_blocks.py)",
    "otm.audit.sampled": (
        "its error rates are tested by simulation (tests/audit/test_sampled_audit.py)"
    ),
    "otm.audit.sequence": "held against exact laws of blocks (tests/audit/test_blocks.py)",
    "otm.audit.shrink": "a search",
    "otm.audit.shrink_sequence": "a search",
    "otm.continuous.Density": "abstract",
    "otm.continuous.Enclosure": "a result",
    "otm.continuous.GaussianBlock": "held against exact laws, digits, samples (tests/continuous)",
    "otm.continuous.GaussianBlockSamples": "a result",
    "otm.continuous.GaussianCurve": "held against 60 digits (tests/continuous)",
    "otm.continuous.GaussianKSeq": "held against exact laws and samples (tests/continuous)",
    "otm.continuous.GaussianMixture": "held against quadrature (tests/continuous)",
    "otm.continuous.GaussianOptimal": "held against exact laws and samples (tests/continuous)",
    "otm.continuous.GaussianReflection": "held against samples (tests/continuous)",
    "otm.continuous.GaussianRejection": "held against exact laws and samples (tests/continuous)",
    "otm.continuous.GaussianSamples": "a result",
    "otm.continuous.acceptance": "held against 60 digits (tests/continuous)",
    "otm.continuous.enclosure": "held against closed forms (tests/continuous)",
    "otm.continuous.optimal_acceptance": "held against 60 digits (tests/continuous)",
    "otm.examples.dirichlet": "random numbers; their law is tested in tests/test_examples.py",
    "otm.losses.BestTemperature": "a result",
    "otm.losses.Losses": "a result",
    "otm.losses.Rounding": "a result",
    "otm.losses.acceptance_losses": (
        "differences of optima; their sum and signs are held in tests/test_losses.py"
    ),
    "otm.losses.best_ranked_acceptance": "held against a linear program (tests/test_losses.py)",
    "otm.losses.best_temperature": (
        "both ends are held against grids and fractions (tests/test_losses.py)"
    ),
    "otm.losses.draft_rounding": "held against torch's rounding (tests/test_losses.py)",
    "otm.losses.top_mass": "a sum; `otm.optimal_acceptance` of `otm.TopK` is the same",
    "otm.lossy.Composed": "a result",
    "otm.lossy.Distortion": "a result",
    "otm.lossy.KlFrontier": "a result",
    "otm.lossy.KlProgram": "a result",
    "otm.lossy.tokens_to_detect": "a search over `otm.lossy.composed`",
    "otm.overlap.Curve": "abstract",
    "otm.overlap.Piece": "a result",
    "otm.partial.Completion": "a result",
    "otm.partial.Interval": "a result",
    "otm.partial.PartialDivergences": "a result",
    "otm.partial.PartialPair": (
        "holds what is known; its two completions are tried through the intervals"
    ),
    "otm.partial.TopTokens": "holds what is known; what it must refuse is tried",
    "otm.plot.coupling": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.plot.curves": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.plot.frontier": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.plot.overlap": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.plot.pair": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.plot.tree": "a picture; its numbers are tested in tests/test_plot.py",
    "otm.results.Certified": "abstract",
    "otm.results.Coupling": "a result",
    "otm.results.Estimate": "a result",
    "otm.results.Optimum": "a result",
    "otm.results.Samples": "a result",
    "otm.sequence.Absorbing": "a model",
    "otm.sequence.BestStep": "a result",
    "otm.sequence.BlockMarginals": "a model, read from a table",
    "otm.sequence.Decoder": "abstract",
    "otm.sequence.DecoderRanking": "a result",
    "otm.sequence.DeferredDecoder": "abstract",
    "otm.sequence.DelayedExpansion": "a result",
    "otm.sequence.DraftTree": "holds a drafted tree",
    "otm.sequence.Enumerated": "a source of randomness",
    "otm.sequence.ExpectedStep": "a result",
    "otm.sequence.Fly": (
        "held against the enumeration of its steps (tests/sequence/test_greedy_chain.py)"
    ),
    "otm.sequence.Generation": "a result",
    "otm.sequence.GreedyChain": "abstract",
    "otm.sequence.MatchingDecoder": "abstract",
    "otm.sequence.Jacobi": "its law is held against the target's by `otm.sequence.jacobi_law`",
    "otm.sequence.JacobiDraft": "a result",
    "otm.sequence.JacobiLaw": "a result",
    "otm.sequence.JacobiState": "a result",
    "otm.sequence.jacobi_generate": "held against exact laws (tests/sequence/test_jacobi.py)",
    "otm.sequence.LanguageModel": "a protocol",
    "otm.sequence.LevelCutBound": "a result",
    "otm.sequence.level_cut_upper": (
        "held against the exact bound, and its coverage simulated "
        "(tests/sequence/test_level_cuts.py)"
    ),
    "otm.sequence.LooseStep": "a result",
    "otm.sequence.SharedNoise": (
        "held against published words and integers (tests/sequence/test_shared_noise.py)"
    ),
    "otm.sequence.belief_rows": "what a step says, as `fit_scale` reads it",
    "otm.sequence.fit_scale": (
        "scores vanish, and coverage is simulated (tests/sequence/test_noise_tree.py)"
    ),
    "otm.sequence.MarkovModel": "a model, read from a table",
    "otm.sequence.Memoised": "a model",
    "otm.sequence.PredictableTree": "abstract",
    "otm.sequence.Randomness": "a source of randomness",
    "otm.sequence.RankedDecoder": "a result",
    "otm.sequence.RegretBudget": (
        "held against the enumeration of its steps (tests/sequence/test_greedy_chain.py)"
    ),
    "otm.sequence.Sampled": "a source of randomness",
    "otm.sequence.StaticDecoder": "abstract",
    "otm.sequence.Step": "a result",
    "otm.sequence.StepLaw": "a result",
    "otm.sequence.TableModel": "a model, read from a table",
    "otm.sequence.TreeCut": "a result",
    "otm.sequence.VertexDecoder": "abstract",
    "otm.sequence.ZerothOrder": "a model, read from a table",
    "otm.sequence.block_marginals": "sums of `otm.sequence.sequence_law`",
    "otm.sequence.delayed_expansions": "ranks what `otm.sequence.expected_step` says",
    "otm.sequence.expected_calls": (
        "counted by enumeration, held against formulas (tests/sequence/test_staged.py)"
    ),
    "otm.sequence.loose_step": "held against enumeration (tests/sequence/test_greedy_chain.py)",
    "otm.sequence.matched_tokens": (
        "held against `otm.sequence.expected_step` (tests/sequence/test_matching.py)"
    ),
    "otm.sequence.noise_tokens": (
        "held against steps on the same noises (tests/sequence/test_noise_tree.py)"
    ),
    "otm.sequence.outcomes": "what `step_law` enumerates with",
    "otm.sequence.step": "one step of `otm.sequence.generate`",
    "otm.sequence.steps": "the steps of `otm.sequence.generate`",
    "otm.table.AcceptanceTable": "a result",
    "otm.table.TableColumn": "a result",
    "otm.table.table_columns": "names, no numbers",
    "otm.transport.TransportProgram": "a program",
    "otm.transport.optimum_program": (
        "a program; its solution is held against `otm.optimum` in tests/transport"
    ),
    "otm.engines.AcceptanceRecord": "a record",
    "otm.engines.CostSurface": "measured costs",
    "otm.trees.ExploredBound": "a result",
    "otm.engines.LengthCheck": "a result",
    "otm.engines.RecordDifference": "a result",
    "otm.engines.StepRecord": "writes; read again in tests/engines/test_recording.py",
    "otm.engines.compare_records": "by simulation (tests/engines/test_difference.py)",
    "otm.engines.parse_models": "`otm.engines.parse_acceptance`, by model",
    "otm.engines.read_models": "`otm.engines.read_acceptance`, by model",
    "otm.engines.record_of_counts": "builds a record (tests/engines/records/test_typed.py)",
    "otm.engines.record_of_mean": "builds a record (tests/engines/records/test_typed.py)",
    "otm.engines.record_of_means": "builds a record (tests/engines/records/test_typed.py)",
    "otm.engines.record_of_rates": "builds a record (tests/engines/records/test_typed.py)",
    "otm.engines.LengthChoice": "a result",
    "otm.engines.LengthPlan": "a result",
    "otm.engines.MeanPlan": "a result",
    "otm.trees.OptimalTree": "a result",
    "otm.trees.PathAcceptance": "a type",
    "otm.engines.PositionAcceptance": (
        "reads and writes engines' counts; tests/engines/test_positions.py"
    ),
    "otm.engines.SurvivalBounds": "a result",
    "otm.engines.TokensBounds": "a result",
    "otm.engines.TokensEstimate": "a result",
    "otm.trees.TreeChoice": "a result",
    "otm.trees.TreeShape": "a shape, no numbers",
    "otm.trees.check_acceptance": "a gate",
    "otm.engines.check_lengths": (
        "its error rate is tested by simulation (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.estimate_tokens": (
        "held against enumerated processes (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.kaplan_meier": (
        "held against enumerated processes (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.mean_bounds": (
        "held against every record of a few steps (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.parse_acceptance": (
        "reads a record; damaged ones are tried as `otm.engines.read_acceptance`"
    ),
    "otm.engines.plan_lengths": "held against every length (tests/engines/test_planning.py)",
    "otm.engines.plan_mean": "`otm.engines.mean_bounds` at a cost (tests/engines/test_planning.py)",
    "otm.trees.rank_counts": "counts integers",
    "otm.engines.read_acceptance": "reads a record; damaged ones are tried",
    "otm.engines.read_costs": "reads measured costs (tests/engines/test_surface.py)",
    "otm.engines.records.Form": "a form of record",
    "otm.engines.records.Tally": "counts",
    "otm.engines.request_mean": (
        "its coverage is tested by simulation (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.survival_bounds": (
        "held against every completion of a record (tests/engines/records/test_estimates.py)"
    ),
    "otm.engines.vllm_lengths": "the plan of every batch size (tests/engines/test_planning.py)",
    "otm.verifiers.BatchedOptimalRule": "made and tried by `otm.verifiers.prepare_batch`",
    "otm.verifiers.Conditional": "abstract",
    "otm.verifiers.CurvedVerifier": "abstract",
    "otm.verifiers.Rule": "abstract",
    "otm.verifiers.Shared": "abstract",
}
"""Public names without a row of numbers, each with the reason; constants and errors need none."""


def spoken_for() -> set[str]:
    """Return the public names that the page has a row or a reason for."""
    return {statement.name for statement in statements()} | set(NOT_TRIED)


def page(total: Summary, before: str = "") -> str:
    """Return the page in Markdown; functions that have not been tried keep what the page said
    before, or have a dash.
    """
    kept = _observed(before)
    by_name: dict[str, list[Statement]] = defaultdict(list)
    for statement in statements():
        by_name[statement.name].append(statement)
    rows = [
        _row(name, said, total.functions.get(name), kept.get(name, ("–", "–")))
        for name, said in sorted(by_name.items())
    ]
    without = markdown(
        ("name", "why"), [(f"`{name}`", why) for name, why in sorted(NOT_TRIED.items())]
    )
    return f"{HEAD}\n{markdown(COLUMNS, rows, right=(5, 6))}\n\nWithout a row:\n\n{without}\n"


def _observed(text: str) -> dict[str, tuple[str, str]]:
    """Return the last two cells of every row that begins with a name and has all columns."""
    rows = [
        line.strip("| ").replace(r"\|", "").split(" | ")
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {
        cells[0].strip("`"): (cells[-2], cells[-1]) for cells in rows if len(cells) == len(COLUMNS)
    }


def _row(
    name: str, said: Sequence[Statement], total: Total | None, kept: tuple[str, str]
) -> list[str]:
    cells = [
        _each(getattr(s, field) for s in said)
        for field in ("direction", "said", "source", "witness")
    ]
    observed = kept if total is None else (f"{total.inputs:,}", shown_ratio(total.worst))
    return [f"`{name}`", *cells, *observed]


def _each(values: object) -> str:
    return "; ".join(dict.fromkeys(values))  # type: ignore[call-overload]
