"""What can be drafted: tokens, shapes and intervals against formulas, enumerated trees, the
library, and the bootstrap.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import otm
from analysis.report.aggregate import Aggregates, aggregate
from analysis.report.plans import MOST_NODES, Plan, Plans, plans_of, single_draft
from analysis.report.reading import Run, open_run
from analysis.report.summary import schemes_of
from otm.engines import chain_expected_tokens
from otm.trees import optimal_tree
from tests.analysis.report.synthetic_run import write_run

PROMPTS = 40
T = 2.0226908  # the 97.5 % quantile of Student's t with 39 degrees of freedom


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("plans") / "run"
    return open_run(
        write_run(folder, prompts=PROMPTS, positions=10, ks=(1, 2, 4), temperatures=(1.0,))
    )


@pytest.fixture(scope="module")
def found(run: Run) -> Aggregates:
    return aggregate(run)


@pytest.fixture(scope="module")
def plans(run: Run, found: Aggregates) -> Plans:
    return plans_of(run, found, 0, T)


def mean(run: Run, found: Aggregates, name: str) -> float:
    return float(found.lower[0].value[[column.name for column in run.schemes].index(name)])


def of(plans: Plans, run: Run, name: str) -> list[Plan]:
    """The plans of one scheme, by the name of its first column."""
    labels = [run.schemes[scheme.columns[0]].name for scheme in schemes_of(run)]
    return [plan for plan in plans.all if plan.scheme == labels.index(name)]


def test_chains_are_leviathans(run: Run, found: Aggregates, plans: Plans) -> None:
    alpha = mean(run, found, "optimum_iid_k1")
    chains = [plan for plan in plans.all if plan.kind == "chain"]
    assert [plan.depth for plan in chains] == list(range(1, MOST_NODES + 1))
    for plan in chains:
        assert plan.tokens == pytest.approx(
            float(chain_expected_tokens(alpha, length=plan.depth)), abs=1e-8
        )
        assert (
            plan.widths == (1,) * plan.depth
            and plan.nodes == plan.depth
            and plan.name == f"chain of {plan.depth}"
        )


def test_levels_are_those_that_their_widths_say(run: Run, found: Aggregates, plans: Plans) -> None:
    """The numbers of drafts by level, read off the widths, give tokens and nodes; nothing is larger
    than the budget.
    """
    mine = of(plans, run, "kseq_iid_k1")
    assert {plan.kind for plan in mine} == {"levels"} and max(plan.depth for plan in mine) > 3
    names = {plan.name for plan in mine}
    assert (
        "2 sequences of 3" in names
        and any(name.startswith("tree of") for name in names)
        and "4 drafts, 1 deep" in names
    )
    for plan in mine:
        last = plan.nodes - sum(plan.widths[1:])
        counts = [
            after // width
            for width, after in zip(plan.widths, [*plan.widths[1:], last], strict=True)
        ]
        alphas = [mean(run, found, f"kseq_iid_k{count}") for count in counts]
        assert plan.tokens == pytest.approx(1 + np.cumprod(alphas).sum(), abs=1e-8)
        assert counts == sorted(counts, reverse=True) and plan.nodes <= MOST_NODES


def test_trees_by_rank_are_the_librarys_optimal_ones(
    run: Run, found: Aggregates, plans: Plans
) -> None:
    """A(1), A(2) and, halfway, A(3) = A(4); the tokens of each plan are those of the optimal tree
    of its size and depth.
    """
    one, two, four = (mean(run, found, f"recursive_rejection_iid_k{k}") for k in (1, 2, 4))
    vector = [one, two - one, (four - two) / 2, (four - two) / 2]
    mine = of(plans, run, "recursive_rejection_iid_k1")
    assert {plan.kind for plan in mine} == {"ranks"} and max(
        plan.nodes for plan in mine
    ) == MOST_NODES
    for plan in mine:
        tree = optimal_tree(vector, num_nodes=plan.nodes, max_depth=plan.depth)
        assert plan.tokens == pytest.approx(tree.expected_tokens, abs=1e-8)
        drafting = tree.shape.num_children > 0
        assert plan.widths == tuple(
            int((drafting & (tree.shape.levels == level)).sum()) for level in range(plan.depth)
        )


def test_nothing_lossy_is_planned_and_no_plan_is_dominated(run: Run, plans: Plans) -> None:
    schemes = schemes_of(run)
    used = {schemes[plan.scheme].kind for plan in plans.all if plan.scheme >= 0}
    assert used == {"optimum", "verifier"}
    assert {scheme.kind for scheme in schemes} == used | {"lossy", "bound"}, (
        "there should be something to leave out"
    )
    for name in ("optimum_iid_k1", "recursive_rejection_iid_k1"):
        mine = of(plans, run, name)
        for a in mine:
            assert not any(
                b is not a
                and b.nodes <= a.nodes
                and b.depth <= a.depth
                and sum(b.widths) <= sum(a.widths)
                and b.tokens >= a.tokens
                for b in mine
            )


def test_increasing_ranks_are_drafted_level_by_level(
    run: Run, found: Aggregates, tmp_path: Path
) -> None:
    """Four drafts that add more than two did are no case for a greedy tree."""
    column = [column.name for column in run.schemes].index("recursive_rejection_iid_k4")
    lower = found.lower[0].value.copy()
    try:
        found.lower[0].value[column] = 0.999
        assert {
            plan.kind for plan in of(plans_of(run, found, 0, T), run, "recursive_rejection_iid_k1")
        } == {"levels"}
    finally:
        found.lower[0].value[:] = lower


def test_variances_agree_with_the_bootstrap_over_prompts(
    run: Run, found: Aggregates, plans: Plans
) -> None:
    """Prompts are drawn with replacement and the plans evaluated on their means.

    The spread of 2,000 draws is known to 1.6 % (one standard error); the linear formula differs by
    the curvature of a logarithm at a relative error of 3 %, and by the factor √(39/40) that the
    bootstrap lacks: 10 % is six standard errors.
    """
    batches = list(run.batches([column.lower for column in run.schemes] + ["prompt"]))
    prompt = np.concatenate([batch["prompt"] for batch in batches])
    values = {c.name: np.concatenate([batch[c.lower] for batch in batches]) for c in run.schemes}
    by_prompt = {
        name: np.array([rows[prompt == i].mean() for i in range(PROMPTS)])
        for name, rows in values.items()
    }
    rng = np.random.default_rng(5)
    draws = rng.integers(PROMPTS, size=(2_000, PROMPTS))
    means = {name: rows[draws].mean(axis=1) for name, rows in by_prompt.items()}
    chain = next(plan for plan in plans.all if plan.name == "chain of 3")
    tree = max(
        of(plans, run, "recursive_rejection_iid_k1"),
        key=lambda plan: (plan.nodes <= 12, plan.nodes),
    )
    sequences = next(
        plan for plan in of(plans, run, "kseq_iid_k1") if plan.name == "2 sequences of 3"
    )
    shape = optimal_tree(
        _ranks({k: mean(run, found, f"recursive_rejection_iid_k{k}") for k in (1, 2, 4)}),
        num_nodes=tree.nodes,
        max_depth=tree.depth,
    ).shape
    one = means["optimum_iid_k1"]
    drawn = {
        chain: np.log(1 + one + one**2 + one**3),
        sequences: np.log(
            1 + means["kseq_iid_k2"] * (1 + means["kseq_iid_k1"] + means["kseq_iid_k1"] ** 2)
        ),
        tree: np.log(
            [
                otm.trees.tree_expected_tokens(
                    _ranks({k: means[f"recursive_rejection_iid_k{k}"][i] for k in (1, 2, 4)}),
                    shape=shape,
                )
                for i in range(len(draws))
            ]
        ),
    }
    for plan, logs in drawn.items():
        assert (
            plan.variance is not None and plan.covariance is not None and plans.variance is not None
        )
        assert np.sqrt(plan.variance) == pytest.approx(logs.std(), rel=0.1)
        both = plan.variance - 2 * chain.slope * plan.covariance + chain.slope**2 * plans.variance
        assert np.sqrt(max(0.0, both)) == pytest.approx(
            (logs - drawn[chain]).std(), rel=0.1, abs=1e-9
        )
    apart = np.hypot(drawn[tree].std(), drawn[chain].std())
    assert (drawn[tree] - drawn[chain]).std() < 0.6 * apart, "that they share prompts should matter"


def _ranks(alpha: dict[int, float]) -> list[float]:
    return [alpha[1], alpha[2] - alpha[1], (alpha[4] - alpha[2]) / 2, (alpha[4] - alpha[2]) / 2]


def test_one_prompt_has_no_variance_and_no_single_draft_no_chain(tmp_path: Path) -> None:
    lonely = open_run(
        write_run(tmp_path / "one", prompts=1, positions=4, ks=(1, 2), temperatures=(1.0,))
    )
    assert {plan.variance for plan in plans_of(lonely, aggregate(lonely), 0, T).all} == {None}
    several = open_run(
        write_run(tmp_path / "two", prompts=3, positions=4, ks=(2,), temperatures=(1.0,))
    )
    assert single_draft(several) is None
    kinds = {plan.kind for plan in plans_of(several, aggregate(several), 0, T).all}
    assert kinds == {"levels", "ranks"}
