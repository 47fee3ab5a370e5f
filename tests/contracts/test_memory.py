"""Batches are processed in chunks of rows: peak extra memory stays below four times the input."""

import tracemalloc

import numpy as np
import pytest
import torch

import otm
from otm import Problem

ROWS, NUM_TOKENS = 48, 64_000


def in_torch(problem):
    return Problem(
        draft=torch.from_numpy(problem.draft),
        target=torch.from_numpy(problem.target),
        law=problem.law,
    )


def without_numba(function, problem):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otm.overlap.rows, "compiled", lambda _, seconds: None)
        return function(problem)


CALLS = {
    "optimal_acceptance": otm.optimal_acceptance,
    "optimal_acceptance_curve": lambda p: otm.optimal_acceptance_curve(p, k=range(1, 9)),
    "optimal_acceptance of torch": lambda p: otm.optimal_acceptance(in_torch(p)),
    "optimal_acceptance without numba": lambda p: without_numba(otm.optimal_acceptance, p),
    "KSeq without numba": lambda p: without_numba(lambda p: otm.acceptance(otm.KSeq(), p), p),
    "optimal_bracket": otm.bounds.optimal_bracket,
    "KSeq": lambda p: otm.acceptance(otm.KSeq(), p),
    "KSeq, gamma given": lambda p: otm.acceptance(otm.KSeq(gamma=8.0), p),
    "RecursiveRejection": lambda p: otm.acceptance(otm.RecursiveRejection(), p),
    "Naive": lambda p: otm.acceptance(otm.Naive(), p),
    "NaiveTree": lambda p: otm.acceptance(otm.NaiveTree(), p),
    "Maximal": lambda p: otm.acceptance(otm.Maximal(), p.with_law(otm.IID(1))),
    "Race": lambda p: otm.acceptance(otm.Race(), p.with_law(otm.IID(1))),
    "total_variation": lambda p: otm.divergences.total_variation(draft=p.draft, target=p.target),
    "kl_divergence": lambda p: otm.divergences.kl_divergence(draft=p.draft, target=p.target),
    "harmonic_mean_distance": lambda p: otm.divergences.harmonic_mean_distance(
        draft=p.draft, target=p.target
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_peak_extra_memory(dtype):
    random = np.random.default_rng(0)
    logits = 3.0 * random.standard_normal((ROWS, NUM_TOKENS), dtype=np.float32).astype(dtype)
    problem = Problem(
        draft=otm.from_logits(logits), target=otm.from_logits(logits[::-1].copy()), law=otm.IID(8)
    )
    given = problem.draft.nbytes + problem.target.nbytes
    for name, call in CALLS.items():
        peak = _peak(lambda call=call: call(problem))
        assert peak < 4 * given, f"{name}: {peak / given:.2f} times the input"


def test_a_table_takes_no_more_memory_for_more_rows():
    """Chunks of rows are done one after the other, in each thread."""
    logits = np.random.default_rng(0).standard_normal((ROWS, NUM_TOKENS), dtype=np.float32)
    draft, target = otm.from_logits(logits), otm.from_logits(logits[::-1].copy())
    otm.acceptance_table(draft=draft, target=target, k=range(1, 9))  # what is kept is not counted
    peaks = []
    for rows in (ROWS // 3, ROWS):
        some = {"draft": draft[:rows], "target": target[:rows], "k": range(1, 9)}
        peaks.append(_peak(lambda some=some: otm.acceptance_table(**some)))
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 3 * draft.nbytes


def test_an_optimum_of_many_sets_holds_no_table_of_sets_and_tokens():
    problem = Problem(
        draft=otm.examples.zipf(5000), target=otm.examples.uniform(5000), law=otm.IID(1)
    )
    otm.optimum(problem)  # what is imported and kept is not counted
    assert _peak(lambda: otm.optimum(problem)) < 5000**2 / 4  # a quarter of one byte an entry


def test_a_list_race_is_integrated_node_by_node():
    problem = Problem(
        draft=otm.examples.zipf(200), target=otm.examples.uniform(200), law=otm.IID(1)
    )
    otm.coupling(otm.ListRace(), problem)
    # some hundred nodes
    assert _peak(lambda: otm.coupling(otm.ListRace(), problem)) < 10 * 8 * 200**2


def _peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
