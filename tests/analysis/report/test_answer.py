"""The answer: what can be drafted, what it costs, which is the fastest, and what is said of it."""

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from analysis.advise import end_to_end as written_by
from analysis.advise.costs import StepModel
from analysis.advise.families import FAMILIES
from analysis.errors import AnalysisError
from analysis.report import advice_record
from analysis.report.advice_record import read_advice
from analysis.report.aggregate import Aggregates, aggregate
from analysis.report.answer import CHECKING, DRAFTING, answer_run, slider_answers, slider_stops
from analysis.report.call_costs import Costs, measured_costs, read_latency
from analysis.report.page_texts import _short_trees
from analysis.report.plans import MOST_NODES, TreePlan, TreePlans, plans_of, single_draft
from analysis.report.reading import Run, open_run
from analysis.report.summary import schemes_of
from analysis.report.verdict_card import (
    BINDS,
    CHEAP,
    DEAR,
    DEPENDS,
    PROBABLY,
    SPECULATE,
    STOP,
    UNDECIDED,
    Speed,
    card,
    over_chain,
    over_plain,
)
from analysis.report.write import write_report
from analysis.run.tree_names import tree_statistics
from otm.engines import CostSurface, chain_expected_tokens
from otm.results.statistics import Estimate
from otm.trees import optimal_tree, tree_expected_tokens
from tests.analysis.report.records import advice, latency, written
from tests.analysis.report.synthetic_run import write_run

PROMPTS = 40


class Planned(NamedTuple):
    """A run, its averages and the plans at its only setting."""

    run: Run
    found: Aggregates
    plans: TreePlans

    def mean(self, name):
        names = [column.name for column in self.run.schemes]
        return float(self.found.lower[0].value[names.index(name)])

    def of(self, name):
        """The plans of one scheme, by the name of its first column."""
        labels = [self.run.schemes[scheme.columns[0]].name for scheme in schemes_of(self.run)]
        return [plan for plan in self.plans.all if plan.scheme == labels.index(name)]


def planned(folder, *, prompts, ks=(1, 2, 4)):
    run = open_run(
        write_run(folder, prompts=prompts, positions=10, ks=ks, temperatures=(1.0,), seed=2)
    )
    found = aggregate(run)
    return Planned(run, found, plans_of(run, found, 0, 2.0))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return planned(tmp_path_factory.mktemp("plans") / "run", prompts=PROMPTS)


def test_chains_are_leviathans(data):
    alpha = data.mean("optimum_iid_k1")
    chains = [plan for plan in data.plans.all if plan.kind == "chain"]
    assert [plan.depth for plan in chains] == list(range(1, MOST_NODES + 1))
    for plan in chains:
        expected = float(chain_expected_tokens(alpha, length=plan.depth))
        assert plan.tokens == pytest.approx(expected, abs=1e-8)
        assert (plan.widths, plan.nodes) == ((1,) * plan.depth, plan.depth)
        assert plan.name == f"chain of {plan.depth}"


def test_levels_are_those_that_their_widths_say(data):
    """The numbers of drafts by level, read off the widths, give tokens and nodes; nothing is larger
    than the budget.
    """
    mine = data.of("kseq_iid_k1")
    assert {plan.kind for plan in mine} == {"levels"} and max(plan.depth for plan in mine) > 3
    names = {plan.name for plan in mine}
    assert {"2 sequences of 3", "4 drafts, 1 deep"} <= names
    assert any(name.startswith("tree of") for name in names)
    for plan in mine:
        below = [*plan.widths[1:], plan.nodes - sum(plan.widths[1:])]
        counts = [after // width for width, after in zip(plan.widths, below, strict=True)]
        alphas = [data.mean(f"kseq_iid_k{count}") for count in counts]
        assert plan.tokens == pytest.approx(1 + np.cumprod(alphas).sum(), abs=1e-8)
        assert counts == sorted(counts, reverse=True) and plan.nodes <= MOST_NODES


def by_rank(one, two, four):
    """A(1), A(2) and, halfway, A(3) = A(4)."""
    return [one, two - one, (four - two) / 2, (four - two) / 2]


def test_trees_by_rank_are_the_librarys_optimal_ones(data):
    vector = by_rank(*(data.mean(f"recursive_rejection_iid_k{k}") for k in (1, 2, 4)))
    mine = data.of("recursive_rejection_iid_k1")
    assert {plan.kind for plan in mine} == {"ranks"}
    assert max(plan.nodes for plan in mine) == MOST_NODES
    for plan in mine:
        tree = optimal_tree(vector, num_nodes=plan.nodes, max_depth=plan.depth)
        assert plan.tokens == pytest.approx(tree.expected_tokens, abs=1e-8)
        levels = tree.shape.levels[tree.shape.num_children > 0]
        assert plan.widths == tuple(np.bincount(levels, minlength=plan.depth))


def test_nothing_lossy_is_planned_and_no_plan_is_dominated(data):
    schemes = schemes_of(data.run)
    used = {schemes[plan.scheme].kind for plan in data.plans.all if plan.scheme >= 0}
    assert used == {"optimum", "verifier"}
    # there should be something to leave out
    assert {scheme.kind for scheme in schemes} == used | {"lossy", "bound"}
    for name in ("optimum_iid_k1", "recursive_rejection_iid_k1"):
        sizes = np.array([(p.nodes, p.depth, sum(p.widths), -p.tokens) for p in data.of(name)])
        assert ((sizes[:, None] <= sizes).all(axis=-1).sum(axis=0) == 1).all()


def test_increasing_ranks_are_drafted_level_by_level(data):
    """Four drafts that add more than two did are no case for a greedy tree."""
    names = [column.name for column in data.run.schemes]
    value = data.found.lower[0].value.copy()
    value[names.index("recursive_rejection_iid_k4")] = 0.999
    lower = (dataclasses.replace(data.found.lower[0], value=value),)
    found = dataclasses.replace(data.found, lower=lower)
    changed = data._replace(plans=plans_of(data.run, found, 0, 2.0))
    assert {plan.kind for plan in changed.of("recursive_rejection_iid_k1")} == {"levels"}


def test_variances_are_those_of_what_each_prompt_moves(data):
    """Each prompt pulls the means towards its own; what this does to the logarithm of the tokens,
    by central differences, is independent from prompt to prompt.
    """
    names = ["prompt", *(column.name for column in data.run.schemes)]
    batches = list(data.run.batches(names))
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    own = [{n: rows[n][rows["prompt"] == c].mean() for n in names} for c in range(PROMPTS)]
    whole = {name: float(np.mean([one[name] for one in own])) for name in names}

    def moved(tokens):
        step = 1e-5
        ends = [
            [
                np.log(tokens({n: whole[n] + sign * step * (one[n] - whole[n]) for n in names}))
                for one in own
            ]
            for sign in (1, -1)
        ]
        return (np.array(ends[0]) - ends[1]) / (2 * step) / np.sqrt(PROMPTS * (PROMPTS - 1))

    def ranks(mean):
        return by_rank(*(mean[f"recursive_rejection_iid_k{k}"] for k in (1, 2, 4)))

    chain = next(plan for plan in data.plans.all if plan.name == "chain of 3")
    pairs = next(plan for plan in data.of("kseq_iid_k1") if plan.name == "2 sequences of 3")
    tree = max(data.of("recursive_rejection_iid_k1"), key=lambda p: (p.nodes <= 12, p.nodes))
    shape = optimal_tree(ranks(whole), num_nodes=tree.nodes, max_depth=tree.depth).shape
    one = moved(lambda mean: float(np.exp(mean["optimum_iid_k1"])))
    logs = {
        chain: moved(lambda mean: sum(mean["optimum_iid_k1"] ** i for i in range(4))),
        pairs: moved(
            lambda mean: 1 + mean["kseq_iid_k2"] * sum(mean["kseq_iid_k1"] ** i for i in range(3))
        ),
        tree: moved(lambda mean: tree_expected_tokens(ranks(mean), shape=shape)),
    }
    assert data.plans.variance == pytest.approx(one @ one, rel=1e-6)
    for plan, log in logs.items():
        assert plan.variance == pytest.approx(log @ log, rel=1e-5)
        assert plan.covariance == pytest.approx(log @ one, rel=1e-5)
    assert chain.slope == pytest.approx((logs[chain] @ one) / (one @ one), rel=1e-5)


def test_one_prompt_has_no_variance_and_no_single_draft_no_chain(tmp_path):
    lonely = planned(tmp_path / "one", prompts=1, ks=(1, 2))
    assert {plan.variance for plan in lonely.plans.all} == {None}
    several = planned(tmp_path / "two", prompts=3, ks=(2,))
    assert single_draft(several.run) is None
    assert {plan.kind for plan in several.plans.all} == {"levels", "ranks"}


PLAN = TreePlan("a verifier", 0, "levels", "a tree", 6, 2, (1, 2), 2.5, 2.5, None, None, 0.0)


def test_a_record_of_latency_is_read_in_steps_of_plain_decoding(tmp_path):
    """Drafting at one vertex and at two, checking six between one and seven: .2 + .3 + 1.1 +
    .3·5/6.
    """
    costs = read_latency(written(tmp_path / "a.json", latency()))
    assert costs.most_nodes == 7 and costs.source == "otm latency on a board"
    assert costs.models == {"draft": "dddddddd", "target": "tttttttt"}
    assert costs.of_call(PLAN) == pytest.approx(0.2 + 0.3 + 1.1 + 0.3 * 5 / 6, rel=1e-14)


def test_the_rest_of_a_step_is_that_of_its_kind():
    rest = {"levels": (0.5, 0.01, 0.002), "chain": (9.0, 9.0, 9.0)}
    costs = measured_costs({1: 0.1}, {0: 1.0, 8: 1.4}, source="here", rest=rest)
    assert costs.of_call(PLAN) == pytest.approx(0.2 + 1.3 + 0.5 + 0.02 + 0.012, rel=1e-14)
    one = {"nodes": 1, "depth": 1, "widths": (1,)}
    alone = [dataclasses.replace(PLAN, kind=kind, **one) for kind in ("chain", "levels", "ranks")]
    assert len({costs.of_call(plan) for plan in alone}) == 1  # one draft is one scheme
    own = dataclasses.replace(costs, rest=rest | {"K-SEQ": (0.0, 0.0, 0.0)})
    kseq = dataclasses.replace(PLAN, verifier="K-SEQ (i.i.d.)")
    assert own.of_call(kseq) == pytest.approx(0.2 + 1.3, rel=1e-14)


def test_a_cost_surface_is_read_at_batch_1_and_its_first_context(tmp_path):
    places = [(batch, context) for batch in (1, 2) for context in (0, 9)]
    target = {(b, c, n): 0.02 + 0.001 * (n - 1) + c for b, c in places for n in (1, 5)}
    draft = {(batch, context): 0.004 * batch for batch, context in places}
    surface = CostSurface.of_points(draft, target, source="by hand")
    costs = read_latency(written(tmp_path / "surface.json", json.loads(surface.to_json())))
    assert costs.most_nodes == 4 and costs.drafting(3) == pytest.approx(0.2)
    assert [costs.checking(n) for n in range(5)] == pytest.approx([1.0, 1.05, 1.1, 1.15, 1.2])


NO_RECORDS = [
    *(
        (read_latency, record)
        for record in (
            [],
            {"nothing": 1},
            latency(nodes=[1, 2, 7]),
            latency(nodes=[0]),
            latency(tree={"draft": [{"median": 1.0}]}),
            latency(tree={"draft": [{"median": -1.0}] * 3, "target": [{"median": 1.0}] * 3}),
            latency(tree={"draft": [{"median": 1.0}] * 3, "target": [{"median": math.nan}] * 3}),
            latency(manifest={}),
        )
    ),
    *(
        (read_advice, record)
        for record in (
            [],
            {"format": "otm.advice", "version": 2},
            advice(best=None),
            advice(step_model={}),
            advice(rows=[{}]),
            advice(manifest=[]),
            advice(plain={"seconds_per_token": 0}),
        )
    ),
]


@pytest.mark.parametrize(("read", "record"), NO_RECORDS)
def test_what_is_no_record_is_refused_in_one_sentence(read, record, tmp_path):
    with pytest.raises(AnalysisError, match=r"\A[^\n]+\Z"):
        read(written(tmp_path / "record.json", record))


@pytest.mark.parametrize("name", ["torn.json", "missing.json", "/dev/zero"])
def test_missing_torn_and_endless_files_are_refused(name, tmp_path):
    (tmp_path / "torn.json").write_text('{"tree": ', encoding="utf-8")
    with pytest.raises(AnalysisError, match=r"cannot be read as a record .*Pass its JSON file"):
        read_latency(tmp_path / name)


CHAIN = TreePlan("chains", -1, "chain", "chain of 1", 1, 1, (1,), 1.5, 1.5, 1e-4, 2e-4, 0.7)
TREE = TreePlan(
    "trees", 0, "ranks", "tree of 3 tokens, 2 deep", 3, 2, (1, 1), 2.0, 2.0, 4e-4, 3e-4, 0.0
)
PLANS = TreePlans((CHAIN, TREE), 3e-4, 2.0, False)


def test_intervals_by_hand():
    """σ = .02, so a factor exp(.04) on either side; of the ratio √(4e-4 − 2·.7·3e-4 + .49·3e-4) =
    √1.27e-4.
    """
    costs = Costs.of_ratios(0.1, 0.01)
    plain, chain = over_plain(TREE, PLANS, costs), over_chain(TREE, CHAIN, PLANS, costs)
    assert (plain.value, plain.low, plain.high) == pytest.approx(
        [2 / 1.23, 2 / 1.23 / math.exp(0.04), 2 / 1.23 * math.exp(0.04)]
    )
    half = math.exp(2 * math.sqrt(1.27e-4))
    assert (chain.value, chain.low, chain.high) == pytest.approx(
        [x * (2 / 1.23) / (1.5 / 1.11) for x in (1, 1 / half, half)]
    )
    wide = dataclasses.replace(TREE, variance=100.0)
    assert over_plain(wide, PLANS, costs) == Speed(2 / 1.23, 2 / 1.23, 1 / 1.23, 3 / 1.23), (
        "a call yields 1 to 3 tokens"
    )
    assert over_chain(wide, CHAIN, PLANS, costs).high == pytest.approx(3 / 1.23 * 1.11)


def test_certified_ends_reach_from_the_worst_to_the_best_case():
    tree = dataclasses.replace(TREE, tokens_upper=2.4, variance=None)
    chain, costs = dataclasses.replace(CHAIN, tokens_upper=1.6), Costs.of_ratios(0.0, 0.0)
    plans = dataclasses.replace(PLANS, certified=True)
    assert over_plain(tree, plans, costs) == Speed(2.0, 2.4, 2.0, 2.4)
    assert over_chain(tree, chain, plans, costs) == Speed(
        2.0 / 1.6, 2.4 / 1.5, 2.0 / 1.6, 2.4 / 1.5
    )


@pytest.mark.parametrize(
    ("draft", "title"),
    [(0.1, SPECULATE), (0.49, SPECULATE + PROBABLY), (0.51, STOP + PROBABLY), (0.6, STOP)],
)
def test_verdicts_by_what_a_draft_pass_costs(draft, title):
    """A tree of two levels and a chain of one break even at c = .5: 2/(1 + 2c), 1.5/(1 + c)."""
    told = card(PLANS, Costs.of_ratios(draft, 0.0), 64)
    assert told.title == title
    assert (told.what == "plain decoding") == title.startswith(STOP)
    lonely = dataclasses.replace(
        PLANS, all=tuple(dataclasses.replace(plan, variance=None) for plan in PLANS.all)
    )
    assert card(lonely, Costs.of_ratios(draft, 0.0), 64).title.endswith(PROBABLY), (
        "one prompt decides nothing"
    )


def test_the_budget_and_the_chain_are_kept():
    costs = Costs.of_ratios(0.1, 0.0)
    told, less = card(PLANS, costs, 3), card(PLANS, costs, 2)
    assert (
        told.what == "tree of 3 tokens, 2 deep"
        and told.boxes[1].value == f"{2 / 1.2 / (1.5 / 1.1):.2f}×"
    )
    assert (
        less.what == "chain of 1"
        and less.boxes[1].label.endswith("which this is")
        and less.rows[0][2] == ""
    )
    assert told.basis.endswith(BINDS) and BINDS not in card(PLANS, costs, 64).basis + less.basis
    assert told.boxes[2].note == "3 drafted" and [row[0] for row in told.rows] == [
        "trees",
        "chains",
    ]


def test_without_costs_both_ends_are_told_and_costs_asked_for():
    def told(**tokens):
        plans = [one for one in PLANS.all if one.kind in tokens]
        changed = [
            dataclasses.replace(one, tokens=tokens[one.kind], tokens_upper=tokens[one.kind])
            for one in plans
        ]
        return card(dataclasses.replace(PLANS, all=tuple(changed)), None, 64)

    cheap, dear = (2.8 / (1 + 2 * c + 3 * v) for c, v in (CHEAP, DEAR))
    good = told(chain=1.9, ranks=2.8)
    assert good.title == DEPENDS and good.tone == "maybe", "even where both ends would be above 1"
    assert good.what.endswith(f"make it {max(dear, 1.9 / 1.55):.2f} to {cheap:.2f}× plain decoding")
    assert "--latency" in good.ask and "0.02" in good.basis and "0.5 and 0.05" in good.basis
    assert told(chain=1.2).title == DEPENDS and told().title == UNDECIDED
    assert told(chain=1.01).title in (STOP, STOP + PROBABLY)


def test_the_recommendation_is_the_fastest_by_brute_force(data):
    """Chains and levels of a real run, every shape of at most five levels enumerated here, at
    random costs.
    """
    few = [plan for plan in data.plans.all if plan.kind != "ranks" and plan.depth <= 5]
    levels = dataclasses.replace(data.plans, all=tuple(few))
    rng = np.random.default_rng(3)
    for _ in range(20):
        c, v, budget = rng.uniform(0, 0.5), rng.uniform(0, 0.1), int(rng.integers(1, 65))
        best = 0.0
        for stem in ("optimum_iid", "kseq_iid", "greedy_optimal_greedy"):
            alpha = {k: data.mean(f"{stem}_k{k}") for k in (1, 2, 4)}
            # width, nodes, product, tokens, last k
            shapes = [(1, 0, 1.0, 1.0, 4)]
            for level in range(1, 6):
                shapes = [
                    (w * k, n + w * k, p * alpha[k], t + p * alpha[k], k)
                    for w, n, p, t, last in shapes
                    for k in (1, 2, 4)
                    if k <= last and n + w * k <= budget
                ]
                best = max([best, *(t / (1 + level * c + n * v) for _, n, _, t, _ in shapes)])
        told = card(levels, Costs.of_ratios(c, v), budget)
        assert told.boxes[0].value == f"{best:.2f}×"


def test_intervals_are_beaten_only_if_their_upper_ends_are(tmp_path):
    run = open_run(write_run(tmp_path / "run", width=0.9, temperatures=(1.0,), prompts=4))
    plans = plans_of(run, aggregate(run), 0, 2.0)
    names = ["optimum_iid_k1_lower", "optimum_iid_k1_upper"]
    (batch,) = run.batches(["prompt", *names])
    means = [[batch[name][batch["prompt"] == c].mean() for c in range(4)] for name in names]
    errors = [stats.sem(one) / (1 + np.mean(one)) for one in means]
    assert plans.all[0].variance == pytest.approx(max(errors) ** 2)  # of the chain of one
    titles = [card(plans, Costs.of_ratios(c, 0.01), 64).title for c in (0.0, 0.6, 2.0)]
    assert titles[1:] == [UNDECIDED, STOP] and titles[0] in (SPECULATE, SPECULATE + PROBABLY)


def test_the_record_is_the_one_that_advise_writes():
    assert (advice_record.FORMAT, advice_record.VERSION) == (written_by.FORMAT, written_by.VERSION)
    assert set(advice_record._KINDS.values()) <= {family.name for family in FAMILIES}
    assert {"draft", "target", "rest"} == {field.name for field in dataclasses.fields(StepModel)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice") / "run"
    sizes = {"prompts": 5, "positions": 6, "ks": (1, 2), "temperatures": (0.7, 1.0)}
    run = open_run(write_run(folder, **sizes, top_ps=(0.9, 1.0)))
    return run, aggregate(run)


@pytest.fixture
def advised(measured, tmp_path):
    """Where the advice is, the advice, and the answer with it."""
    path = written(tmp_path / "advice.json", advice())
    told = read_advice(path)
    return path, told, answer_run(*measured, None, told)


def test_the_answer_stands_at_its_own_setting_and_its_costs_at_the_others(
    measured, advised, tmp_path
):
    (run, found), (path, told, answer) = measured, advised
    assert found.strata.settings[answer.first] == (0.7, 0.9) and answer.advised == answer.first
    own, said = answer.cards[answer.first], ("Speculate", "tree of 4 nodes, depth 2")
    assert "5 prompts, 77 plans" in own.basis and (own.title, own.what) == said
    assert [box.value for box in own.boxes] == ["1.30×", "1.10×", "2.25"]
    assert [box.note for box in own.boxes] == ["95 %: 1.20 to 1.40", "", "4 drafted"]
    basis = "otm advise on a board. In steps of plain decoding, a draft pass takes 0.20"
    others = [one for one in answer.cards if one is not own]
    assert len(others) == 3 and all(one.basis.startswith(basis) for one in others)
    assert not any("1.30" in one.boxes[0].value or one.what == own.what for one in others)
    assert told.costs.most_nodes == 8 == answer.budget
    assert told.costs.rest["ranks"] == pytest.approx((0.0, 0.2, 0.0))
    assert (told.costs.drafting(2), told.costs.checking(4)) == pytest.approx((0.25, 1.0))
    report = write_report(run.folder, out=tmp_path / "out", advice=path)
    assert report.findings[0] == "Speculate: tree of 4 nodes, depth 2"
    assert "of 4 measured the one that the advice is for" in report.findings[-1]
    page = report.html.read_text(encoding="utf-8")
    assert page.count("<div hidden><label") == 2 and "as otm advise timed them" in page


def test_the_sliders_stops_hold_what_the_card_says_there(measured, advised):
    (run, found), (_, _, answer) = measured, advised
    answers, stops = slider_answers(run, answer), slider_stops(answer)
    assert stops["budgets"] == [1, 2, 4, 8] and len(answers) == len(answer.plans)
    own = [points[0]["cards"][-1] for points in answers]
    assert own == [one.to_json() for one in answer.cards]
    costs, place = Costs.of_ratios(DRAFTING[2], CHECKING[3]), 1 + 2 * len(CHECKING) + 3
    there = answers[1][place]
    assert there["cards"][2] == card(answer.plans[1], costs, 4).to_json()
    for line in there["lines"]:
        mine = [one for one in answer.plans[1].all if one.scheme == line["scheme"]]
        best = max(one.tokens / costs.of_call(one) for one in mine if one.nodes <= 8)
        assert line["y"][-1] == pytest.approx(best, abs=1e-4)
        assert line["y"] == sorted(line["y"])
    assert there["lines"][0]["label"] == "best chain" and len(there["lines"]) == 5
    assumed = slider_answers(run, answer_run(run, found, None, None))[0][0]["lines"]
    assert [line["label"] for line in assumed] == [
        f"best {shape} if {end}" for end in ("cheap", "dear") for shape in ("tree", "chain")
    ]


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"top_k": 20}, {"order": "vllm"}, {"draft": 0.9}]
)
def test_advice_at_another_setting_gives_costs_only_and_says_so(change, measured, tmp_path):
    record = advice()
    sides = record["manifest"]["processing"]
    own = {"temperature": change["draft"]} if "draft" in change else change
    sides["draft"] = sides["draft"] | own
    if "draft" not in change:
        sides["target"] = sides["target"] | change
    answer = answer_run(*measured, None, read_advice(written(tmp_path / "a.json", record)))
    assert answer.advised is None and answer.costs is not None
    assert "only its costs are used" in answer.warnings[0]


@pytest.mark.parametrize(("target", "said"), [("target", 0), ("elsewhere", 1)])
def test_costs_of_other_weights_are_pointed_at(target, said, measured, advised):
    (run, found), (_, told, _) = measured, advised
    weights = {"weights": {"draft": "draft", "target": target}}
    manifest = run.manifest | {"provenance": run.section("provenance") | weights}
    same = dataclasses.replace(run, manifest=manifest)
    assert len(answer_run(same, found, None, told).warnings) == said


@pytest.mark.parametrize(
    ("verdict", "plain", "title"),
    [
        ("do not speculate", 0.9, "Do not speculate"),
        ("undecided", 1.02, "Speculate, probably"),
        ("undecided", 0.98, "Do not speculate, probably"),
    ],
)
def test_do_not_speculate_stands_where_the_recommendation_stands(verdict, plain, title, tmp_path):
    record = advice(verdict=verdict)
    record["best"]["over_plain"]["value"] = plain
    told = read_advice(written(tmp_path / "a.json", record)).card
    assert told.title == title and told.boxes[0].value == f"{plain:.2f}×"
    assert (told.what == "plain decoding") == title.startswith("Do not")


@pytest.mark.parametrize(
    ("noise", "ending"),
    [
        (2.9, "trees on shared noise, 24 nodes, scale 0.8."),
        (2.3, "the likeliest tree, 24 nodes."),
        (np.nan, None),
    ],
)
def test_the_tree_that_yields_more_is_named_with_its_scale(noise, ending):
    values = np.array([noise, 2.4, 3.0, 0.8])
    names = [SimpleNamespace(name=name) for name, _, _ in tree_statistics((24,))]
    run = SimpleNamespace(statistics=names)
    found = SimpleNamespace(statistics=[Estimate(values, values - 0.1, values + 0.1)])
    lines = _short_trees(run, found, 0)
    assert len(lines) == (ending is not None)
    for line in lines:
        assert line.endswith(f"Of those that only match: {ending}")
        tokens = f"{noise:.2f} ({noise - 0.1:.2f} to {noise + 0.1:.2f}) tokens by a tree on shared"
        assert tokens in line and "2.40 (2.30 to 2.50) by the likeliest" in line
