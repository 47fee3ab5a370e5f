"""Fine-tuning by different losses: the same batches for all, resumed bit for bit, intervals that
are those of paired windows.
"""

import dataclasses

import numpy as np
import pytest
import torch

from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.train import corpus as texts, fine_tuning
from analysis.train.fine_tuning import LOSSES, Candidate, Plan

PLAN = Plan(
    steps=4, batch=1, context=24, rates=(1e-3, 5e-3), trial_steps=2, seeds=(0, 1), windows=2
)
DRAFT = str(SHIPPED_PAIR / "draft_small")


@pytest.fixture(scope="module")
def bench(text, tmp_path_factory):
    torch.set_num_threads(1)
    work = tmp_path_factory.mktemp("work")
    found, source = fine_tuning.prepare_bench(
        lambda: texts.from_text_files([text]), PLAN, work=work, draft=DRAFT
    )
    assert source["kind"] == "text files"
    # Read again from the folder: the text is not asked for.
    again, _ = fine_tuning.prepare_bench(
        lambda: pytest.fail("gathered twice"), PLAN, work=work, draft=DRAFT
    )
    assert again.identity == found.identity
    np.testing.assert_array_equal(again.tokens, found.tokens)
    assert len(found.chosen_on) == PLAN.windows
    return dataclasses.replace(found, reported_on=found.reported_on[:3])


def test_a_resumed_run_equals_an_uninterrupted_one(bench, tmp_path, interrupted):
    candidates = [Candidate("forward KL", 1e-3), Candidate("1 - acceptance, k = 4", 2e-3)]

    def once(folder):
        return fine_tuning.train_side_by_side(
            bench, candidates, seed=0, steps=4, folder=tmp_path / folder
        )

    whole = once("whole")
    with interrupted(2):
        once("cut")
    resumed = once("cut")
    start = bench.pair.draft.state_dict()
    for candidate in candidates:
        left, right = whole[candidate].state_dict(), resumed[candidate].state_dict()
        assert all(torch.equal(left[name], right[name]) for name in left)
        assert any(not torch.equal(left[name], start[name]) for name in left)
    with pytest.raises(AnalysisError, match="same recipe"):
        fine_tuning.train_side_by_side(
            bench, candidates[:1], seed=0, steps=4, folder=tmp_path / "cut"
        )


def test_what_trains_beside_a_candidate_does_not_matter(bench, tmp_path):
    candidates = [Candidate(loss, 1e-3) for loss in LOSSES]
    together = fine_tuning.train_side_by_side(
        bench, candidates, seed=3, steps=2, folder=tmp_path / "together"
    )
    alone = fine_tuning.train_side_by_side(
        bench, candidates[-1:], seed=3, steps=2, folder=tmp_path / "alone"
    )
    left, right = (found[candidates[-1]].state_dict() for found in (together, alone))
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_falls_where_it_is_descended(loss):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 50, generator=generator).requires_grad_()
    target = torch.softmax(2 * torch.randn(6, 50, generator=generator), dim=-1)
    given = target, target.argmax(dim=-1)
    value = LOSSES[loss](logits, *given)
    (slope,) = torch.autograd.grad(value, logits)
    assert LOSSES[loss](logits - slope / slope.norm(), *given) < value - 0.1 * slope.norm()


def test_the_whole_way(bench, tmp_path, monkeypatch):
    losses = ("cross-entropy", "forward KL", "1 - acceptance, k = 4")
    record = fine_tuning.fine_tune(bench, work=tmp_path, losses=losses)
    assert set(record["rates"]) == set(losses)
    for loss, rate in record["rates"].items():
        tried = {other: record["tuning"][Candidate(loss, other).name] for other in PLAN.rates}
        assert tried[rate] == max(tried.values())
    rows = {(row["figure"], row["loss"]): row for row in record["rows"]}
    for k in fine_tuning.EVALUATED_K:
        best = rows[f"optimum, k = {k}", "1 - acceptance, k = 4"]
        assert best["low"] < best["mean"] < best["high"]
        assert np.mean(best["gain_by_seed"]) == pytest.approx(best["gain"]["mean"])
        assert best["mean"] - rows[f"optimum, k = {k}", record["baseline"]][
            "mean"
        ] == pytest.approx(best["gain"]["mean"])
        # No scheme beats the optimum, and the baseline gains nothing over itself.
        assert (
            rows[f"K-SEQ, k = {k}", "start"]["mean"]
            <= rows[f"optimum, k = {k}", "start"]["mean"] + 1e-12
        )
        assert rows[f"optimum, k = {k}", record["baseline"]]["gain"] == {
            "mean": 0.0,
            "low": 0.0,
            "high": 0.0,
        }
    start = fine_tuning.acceptance_by_window(bench, {"start": bench.pair.draft})
    assert np.mean(start["start"]["optimum, k = 4"]) == pytest.approx(
        rows["optimum, k = 4", "start"]["mean"], rel=1e-12
    )
    # What is finished is read, not computed again; another plan does not take it.
    monkeypatch.setattr(
        fine_tuning, "train_side_by_side", lambda *_, **__: pytest.fail("trained twice")
    )
    assert fine_tuning.fine_tune(bench, work=tmp_path, losses=losses) == record
    with pytest.raises(AnalysisError, match="another run"):
        fine_tuning.fine_tune(
            dataclasses.replace(bench, identity="other"), work=tmp_path, losses=losses
        )


def test_short_text_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("One block.\n\nAnother.")
    with pytest.raises(AnalysisError, match="Give more text"):
        fine_tuning.prepare_bench(
            lambda: texts.from_text_files([path]), PLAN, work=tmp_path, draft=DRAFT
        )
