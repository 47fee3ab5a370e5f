"""Numbers in texts are the constants' numbers: whoever changes a constant is told which sentences
say it.
"""

import importlib
import re
from fractions import Fraction

from tests.paths import ROOT

# constant: {the way it is written: [file: sentence in which {} stands for it]}
SAID = {
    "otm.pmf.SUM_TOLERANCE_FLOAT64": {
        "1e-9": [
            "otm/pmf.py: misses 1 by more than {} (float64)",
            "otm/partial/top.py: misses 1 by more than {} (float64)",
            "otm/trees/vector.py: {} (3e-5 in float32)",
        ],
    },
    "otm.pmf.SUM_TOLERANCE_FLOAT32": {
        "3e-5": [
            "otm/pmf.py: (float64) or {} (float32)",
            "otm/partial/top.py: (float64) or {} (float32)",
            "otm/trees/vector.py: ({} in float32)",
        ],
    },
    "otm.verbs.MAX_ENTRIES": {
        "2^27": [
            "otm/verbs.py: TooLarge: beyond {} entries",
            "otm/lossy/output.py: of races beyond {} entries",
        ],
    },
    "otm.drafts.base.MAX_SEQUENCES": {
        "four million": [
            "otm/drafts/base.py: TooLarge: beyond {} sequences",
            "otm/verifiers/base.py: `TooLarge` beyond {} sequences",
            "otm/verifiers/callables.py: beyond {} draft sequences, or",
            "otm/verifiers/select_then_reject.py: beyond {} draft sequences",
            "otm/verifiers/tournament.py: beyond {} draft sequences",
            "otm/verifiers/optimal/verifier.py: beyond {} draft sequences",
            "otm/transport/certify.py: beyond {} draft sequences",
            "otm/audit/one_token.py: beyond {} draft sequences",
            "otm/audit/blocks.py: beyond {} blocks",
            "otm/audit/draft_noise.py: beyond {} texts",
            "otm/audit/end_to_end.py: beyond {} blocks",
            "otm/audit/generations.py: beyond {} texts",
            "otm/audit/trees.py: beyond {} paths",
            "otm/bounds/spectr.py: beyond {} sequences.",
            "otm/bounds/spectr.py: beyond {} sequences, where",
            "docs/theory.md: At {} sequences, the most that are enumerated",
        ],
    },
    "otm.verifiers.base.MOST_SETS_OF": {
        "14": [
            "otm/verifiers/race.py: the sets of more than {} draftable tokens",
            "otm/verifiers/optimal/verifier.py: the sets of more than {} draftable tokens",
        ],
    },
    "otm.drafts.product_cut.MAX_TOKENS_TWO_DRAFTERS": {
        "4,096": [
            "otm/drafts/product.py: two different drafters up to {} tokens",
            "docs/schemes.md: two drafters up to V = {}",
        ],
    },
    "otm.drafts.product_cut.MAX_TOKENS_MORE_DRAFTERS": {
        "128": [
            "otm/drafts/product.py: more up to {} tokens",
            "docs/schemes.md: more up to V = {} by a search",
        ],
    },
    "otm.drafts.product_cut.CERTIFIED_GAP": {"1e-11": ["otm/drafts/product.py: certified to {}"]},
    "otm.overlap.curve.LARGEST_MULTIPLIED_POWER": {"64": ["docs/theory.md: 2k u·[k ≤ {}]"]},
    "otm.drafts.successive_cut._QUADRATURE_ERROR": {
        "1e-15": ["otm/drafts/successive_cut.py: keeps the error below {}"]
    },
    "otm.drafts.successive_cut._NEGLIGIBLE": {
        "1e-18": ["otm/drafts/successive_cut.py: has fallen below {}"]
    },
    "otm.drafts.successive_cut._LAST_EXPONENT": {
        "50": ["otm/drafts/successive_cut.py: no node beyond c t = {}"]
    },
    "otm.races.QUADRATURE_ERROR": {
        "1e-12": ["otm/sequence/exact_laws.py: races: {}"],
    },
    "otm.verifiers.tournament.MOST_TOKENS": {
        "64": ["otm/verifiers/tournament.py: an integer in [1, {}]"]
    },
    "otm.transport.lp.MAX_VARIABLES": {
        "four million": [
            "otm/transport/lp.py: beyond {} variables",
            "docs/schemes.md: up to {} variables",
        ],
    },
    "otm.transport.lp.GAP_TOLERANCE": {
        "1e-9": [
            "otm/transport/lp.py: a gap above {} is an error",
            "otm/transport/lp.py: upper − lower ≤ {}",
            "otm/results.py: gap is at most {}",
            "otm/verifiers/transport_plan.py: within the certified gap, {}",
        ],
    },
    "otm.transport.lp._SCALE": {
        "2^20": ["otm/transport/lp.py: multiplied by {}"],
        "2²⁰": ["docs/theory.md: right-hand sides by {}"],
    },
    "otm.transport.program.MAX_ENTRIES": {
        "a million": ["otm/transport/program.py: beyond {} entries of π"]
    },
    "otm.lossy.composition.MAX_COMPOSED": {
        "10^7": [
            "otm/lossy/composition.py: T, at most {}.",
            "otm/lossy/composition.py: infinite where {} tokens are too few",
        ]
    },
    "otm.lossy.frontiers.MAX_PREFIXES": {
        "4,096": [
            "otm/lossy/frontiers.py: beyond {} tokens",
            "otm/lossy/frontiers.py: at most {} tokens",
        ],
    },
    "otm.verifiers.rejection_without_replacement.MAX_PATHS": {
        "ten million": [
            "otm/verifiers/recursive_rejection.py: at most {} (else `TooLarge`",
            "otm/verifiers/rejection_without_replacement.py: beyond {} paths",
        ],
        "10⁷": ["docs/schemes.md: path states, up to {}"],
    },
    "otm.verifiers.race.MAX_DRAFTABLE": {
        "512": [
            "otm/verifiers/race.py: with more than {} draftable tokens",
            "otm/verifiers/race.py: about a second at n = {}",
            "otm/verifiers/race.py: beyond {} tokens with p > 0",
            "docs/schemes.md: O(V²k·nodes), V ≤ {}",
        ],
    },
    "otm.verifiers.race.MAX_PATHS": {
        "200,000": ["otm/verifiers/race.py: with more than {} entries"]
    },
    "otm.verifiers.select_then_reject.MAX_PLANNED_SEQUENCES": {
        "250,000": ["otm/verifiers/select_then_reject.py: ({} with None)"],
    },
    "otm.verifiers.select_then_reject._WEIGHT_TOLERANCE": {
        "1e-9": ["otm/verifiers/select_then_reject.py: It meets s to {}"]
    },
    "otm.verifiers.optimal.verifier._LARGEST_EXACT_KERNEL": {
        "512": ["otm/verifiers/optimal/verifier.py: for the kernel given more than {} drafts"],
    },
    "otm.verifiers.optimal.bins._MOST_BINS": {
        "2²⁰": ["otm/verifiers/optimal/verifier.py: an integer from 1 to {}"]
    },
    "otm.comparison.comparing._MOST_SEQUENCES_BY_DEFAULT": {
        "4,096": ["otm/comparison/comparing.py: beyond {} draft sequences"]
    },
    "otm.comparison.comparing._MOST_TOKENS_BY_DEFAULT": {
        "16,384": ["otm/comparison/comparing.py: and beyond {} tokens"]
    },
    "otm.losses.ROUNDED_MOST": {
        "1/510": [
            "otm/losses.py: {} for bfloat16",
            "analysis/run/loss_columns.py: drafts drawn from masses in bfloat16, at most {} either",
            "analysis/run/loss_columns.py: with such drafts, at most {}",
            "docs/theory.md: For bfloat16, u = 2⁻⁸: {}.",
        ],
    },
    "otm.losses._SEARCHED": {
        "73": [
            "otm/losses.py: Cost: {} optimal acceptances a row",
            "otm/losses.py: Cost: {} batches of",
            "analysis/run/loss_columns.py: alone takes some {} optimal acceptances a row",
            "analysis/advise/losses.py: Cost: {} optimal acceptances of one draft at each position",
            "docs/runs.md: the best temperature takes {} optimal acceptances a row",
        ],
    },
    "otm.plot._MOST_NODES": {
        "400": [
            "otm/plot.py: TooLarge: beyond {} vertices",
            "otm/plot.py: drafted tokens; up to {}",
        ]
    },
    "otm.comparison.comparing.DEFAULT_SAMPLES": {
        "20,000": ["otm/comparison/comparing.py: None takes {} where no exact value"]
    },
    "otm.verifiers.callables.MOST_SEQUENCES": {
        "512": [
            "otm/verifiers/callables.py: Up to {} draft sequences are run one by one",
            "otm/verifiers/callables.py: beyond {} draft sequences, of code that cannot be traced",
            "otm/verifiers/callables.py: probed as a black box on up to {} draft sequences",
            "otm/audit/one_token.py: of code that cannot be traced beyond {}",
            "docs/audit.md: Beyond {} draft sequences the drafts are drawn while it runs",
        ]
    },
    "otm.audit.standard_problems.SECONDS": {"18": ["docs/audit.md: other code within {} (`"]},
    "otm.audit.standard_problems.SHRINKING": {"8": ["docs/audit.md: follows for at most {}"]},
    "otm.audit.standard_problems.FLOOR": {"0.05": ["docs/audit.md: own randomness: {} or more"]},
    "otm.audit.standard_problems.FLOOR_LARGE": {"0.02": ["docs/audit.md: small instance, {} on a"]},
    "otm.audit.standard_problems.FLOOR_BESIDE": {
        "0.06": ["docs/audit.md: a total variation of {} or more on a long tail"]
    },
    "otm.audit.budget.ENOUGH": {"0.2": ["docs/audit.md: asked for, {} or less"]},
    "otm.audit.integration.NEARLY": {"1e-6": ["docs/audit.md: exactly, and by {} at most"]},
    "otm.audit.integration.UNFOLLOWED": {"1e-8": ["docs/audit.md: at most, {} or less of any"]},
    "otm.tracing.branching.MOST_SECONDS": {
        "20": [
            "otm/verifiers/callables.py: takes more than {} seconds",
            "otm/verifiers/callables.py: some thousands of ways within the {} seconds",
            "otm/audit/one_token.py: At most some {} seconds",
            "docs/audit.md: After {} seconds `acceptance` raises",
        ]
    },
    "otm.trees.shape.MAX_NODES": {
        "fifty million": [
            "otm/trees/shape.py: beyond {} vertices",
            "otm/trees/optimal.py: beyond {} vertices",
            "otm/trees/interchange.py: or {} vertices",
        ],
    },
    "otm.trees.shape.MAX_PATHS": {"100,000": ["otm/trees/shape.py: beyond {} entries"]},
    "otm.trees.vector.MAX_RANKS": {"ten million": ["otm/trees/vector.py: beyond {} ranks"]},
    "otm.trees.cost.MAX_BUDGETS": {"a million": ["otm/trees/cost.py: beyond {} budgets"]},
    "otm.trees.tunstall._LARGEST_EXTRA": {"2^53": ["otm/trees/tunstall.py: m would exceed {}"]},
    "analysis.run.checks.DRAWS": {"500": ["docs/runs.md: scheme's column with {} draws"]},
    "analysis.run.checks.WALKS": {"500": ["docs/runs.md: and the tokens of {} decoded"]},
    "analysis.run.checks.FALSE_ALARM": {"1e-9": ["docs/runs.md: miss with probability {} at most"]},
    "analysis.run.checks.NODES": {"8": ["docs/runs.md: optimal tree of {} drafted tokens"]},
    "otm.trees.markov.MAX_STEPS": {
        "50,000": [
            "otm/trees/tunstall.py: beyond {} ranks over all states",
        ],
    },
    "otm.trees.program.MAX_OPERATIONS": {
        "a billion": ["otm/trees/program.py: beyond {} comparisons"]
    },
    "otm.trees.interchange.MAX_TEXT": {
        "64 Mi": ["otm/trees/interchange.py: beyond {} characters or"]
    },
    "otm.engines.chain.MAX_LENGTH": {
        "10,000": [
            "otm/engines/chain.py: considered, at most {};",
            "otm/engines/chain.py: max_length is beyond {}.",
            "otm/engines/planning.py: beyond {} measured positions",
        ]
    },
    "otm.engines.records.estimates.MAX_TABLE": {
        "2^25": [
            "otm/engines/records/estimates.py: beyond {} numbers",
        ],
    },
    "otm.engines.records.document.MAX_TEXT": {
        "256 Mi": [
            "otm/engines/records/reader.py: beyond {} characters.",
            "otm/audit/text_log.py: beyond {} characters.",
        ]
    },
    "otm.engines.records.document.MAX_CELLS": {
        "ten million": ["otm/engines/records/document.py: beyond {} cells"]
    },
    "otm.sequence.models.MAX_LAW": {
        "2²⁴": [
            "otm/sequence/models.py: more than {} probabilities",
            "otm/sequence/models.py: beyond {} sequences",
            "otm/sequence/exact_laws.py: beyond {} sequences",
        ]
    },
    "otm._time.PATIENCE": {
        "60": [
            "otm/sequence/randomness.py: more than {} seconds",
            "otm/sequence/exact_laws.py: more than {} seconds",
            "otm/sequence/jacobi.py: more than {} seconds",
            "otm/sequence/best_step_lp.py: {} seconds of drafted trees",
        ],
    },
    "otm.sequence.exact_laws.MAX_CONTEXTS": {
        "a million": ["otm/sequence/exact_laws.py: beyond {} contexts"]
    },
    "otm.sequence.best_step_lp.MAX_VARIABLES": {
        "a million": ["otm/sequence/best_step_lp.py: beyond {} variables"]
    },
    "otm.sequence.best_step_lp.GAP_TOLERANCE": {
        "1e-9": ["otm/sequence/best_step_lp.py: upper − lower, is at most {}"],
    },
    "otm.sequence.best_step_lp.MOST_GAP": {
        "1e-6": [
            "otm/sequence/best_step_lp.py: at most 1e-9, and {}",
            "otm/sequence/best_step_lp.py: does not certify to {}",
        ],
    },
    "otm.audit.sampled_audit.MOST_SAMPLES": {
        "ten billion": ["otm/audit/one_token.py: if n exceeds {}"]
    },
    "otm.audit.sampled_audit._FIRST_LOOK": {
        "500": ["otm/audit/one_token.py: is looked at after {}, 1,000"]
    },
    "otm.audit.sampled_audit.LARGEST_BATCH": {
        "20,000": ["otm/audit/one_token.py: gets up to {} rows a call"]
    },
    "otm.audit.shrinking.BUDGET": {
        "300": [
            "otm/audit/batteries.py: For a counterexample up to {}",
        ],
    },
    "otm.tracing.probing.GRID": {
        "64": [
            "otm/tracing/probing.py: no cell is narrower than 1/{}.",
            "otm/tracing/probing.py: at least 1/{} apart",
            "otm/tracing/probing.py: Cells at least 1/{} wide are found",
            "otm/tracing/probing.py: narrower than 1/{} along an axis",
            "otm/tracing/probing.py: about {} · 12 calls",
            "otm/audit/integration.py: narrower than 1/{} along an",
        ],
    },
    "otm.tracing.probing._PROBES": {
        "12": [
            "otm/tracing/probing.py: · {} calls for each axis",
            "otm/tracing/probing.py: 53 · {} per",
        ]
    },
    "otm.tracing.probing.FALSE_ALARM": {
        "1e-9": [
            "otm/audit/integration.py: at most {}; 0 where it was no black box",
            "otm/tracing/output_law.py: a probability of at most {}; 0 where it was no black box",
        ]
    },
    "benchmarks.corpus.one_token.CLAMP": {
        "1e-8": [
            "benchmarks/corpus/one_token.py: residual at {}",
            "benchmarks/corpus/entries.py: clamped at {}",
        ],
    },
    "benchmarks.corpus.usual_tests._SAMPLES": {
        "10,000": [
            "benchmarks/corpus/usual_tests.py: more often in {} samples",
            "benchmarks/corpus/usual_tests.py: level 0.01 with {} samples",
            "benchmarks/corpus/usual_tests.py: total variation of {} samples",
            "docs/audit.md: more often in {} samples",
            "docs/audit.md: level .01, {} samples",
        ],
    },
    "benchmarks.corpus.usual_tests._BLOCKS": {
        "12,000": [
            "benchmarks/corpus/usual_tests.py: on {} blocks otherwise",
            "docs/audit.md: ({} blocks for faults",
        ],
    },
    "benchmarks.corpus.entries.LARGE_VOCABULARY": {
        "131,072": ["docs/audit.md: the clamp at V = {}"]
    },
    "analysis.run.shards.ROWS_AT_ONCE": {
        "16,384": ["analysis/report/reading.py: at most {} rows at a time"]
    },
    "analysis.report.aggregate._MOST_BYTES": {
        "512 Mi": ["analysis/report/aggregate.py: at most about {}B of tables"]
    },
    "analysis.statistics.MOST_CLUSTERS": {
        "512": ["docs/runs.md: beyond {} prompts it groups them"]
    },
    "analysis.provenance._LARGEST_DIGESTED": {
        "40 Gi": ["analysis/provenance.py: names and sizes beyond {}B"]
    },
    "analysis.statistics.CONFIDENCE": {
        "95 %": [
            "analysis/decode/efficiency.py: with a {} interval over prompts",
            "analysis/report/explanations.py: Bands are {} intervals over prompts",
            "analysis/report/explanations.py: widened by the {} interval over prompts",
            "analysis/report/explanations.py: than clusters, {} coverage",
            "analysis/report/page.html: with {} intervals over prompts",
            "analysis/report/page.html: Mean acceptance and its {} interval",
        ],
    },
    "figures.figure1.SIZE": {"120": ["docs/figures.md: U({}) drafting"]},
    "figures.figure2.DRAFT": {"0.25": ["docs/figures.md: Ber({}) drafting"]},
}

ENTRIES = [
    (constant, written, place)
    for constant, ways in SAID.items()
    for written, places in ways.items()
    for place in places
]

NUMBERS = {"a": 1, "four": 4, "ten": 10, "twenty": 20, "fifty": 50}
UNITS = {"%": Fraction(1, 100), "million": 10**6, "billion": 10**9, "Mi": 2**20, "Gi": 2**30}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def value_of(written):
    """Read a number as texts write it: four million, 64 Mi, 2²⁴, 2^20, 4,096, 1e-9, 95 %."""
    number, _, unit = written.partition(" ")
    power = re.fullmatch(r"(2|10)(?:\^(\d+)|([⁰¹²³⁴⁵⁶⁷⁸⁹]+))", number)
    if power:
        return float(int(power[1]) ** int(power[2] or power[3].translate(SUPERSCRIPTS)))
    return float(Fraction(NUMBERS.get(number) or number.replace(",", "")) * UNITS.get(unit, 1))


def test_texts_say_the_constants():
    wrong = []
    for constant, written, place in ENTRIES:
        module, _, name = constant.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if value_of(written) != value:
            wrong.append(f"{constant} is {value}: change {written!r} here and in {place}")
        path, _, sentence = place.partition(": ")
        said = sentence.format(written)
        text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
        if not re.search(rf"(?<![\w,.]){re.escape(said)}", text):
            wrong.append(f"{path} lacks {said!r}")
    assert not wrong, "\n".join(wrong)


def test_every_limit_in_a_docstring_is_a_constant_s():
    """`TooLarge: … beyond NUMBER`: the number stands in the table above, or the text names the
    constant.
    """
    number = r"(?:a|four|ten|twenty|fifty) (?:million|billion)|\d+ Mi|2[⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d[\d,]*\d"
    known = {(place.partition(":")[0], written) for _, written, place in ENTRIES}
    found = 0
    for path in sorted((ROOT / "otm").rglob("*.py")):
        for limit in re.findall(
            rf"TooLarge: [^.]*?(?:beyond|more than|exceeds?) ({number})",
            path.read_text(encoding="utf-8"),
        ):
            found += 1
            name = str(path.relative_to(ROOT))
            assert (name, limit) in known, (
                f"{name}: whose number is {limit!r}? Name the constant, or add it to SAID"
            )
    assert found > 20
