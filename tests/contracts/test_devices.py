"""No batched function waits for a device more often than it says, or mixes devices; a device
computes what the host does.

The first is shown on torch's fake tensors, which have a device and no data, the second on the CPU,
told to be a device.
"""

import itertools

import numpy as np
import pytest
import torch

import otm
from otm import IID, Problem
from otm.table.table import RequestedColumns, unchecked_table
from tests.contracts.values import CURVES, VALUES
from tests.devices import Watch, fake_cuda, no_host
from tests.overlap.instances import problems, slack as rounding_of

BINNED = 1 + otm.overlap.rows.SHORTEST_BINNED


def bare_problem(draft, target, law):
    """Return a problem past the gate, which fake tensors cannot pass: they have no sums."""
    problem = object.__new__(Problem)
    for name, value in (("draft", draft), ("target", target), ("law", law)):
        object.__setattr__(problem, name, value)
    return problem


def one(law, function, k=1):
    return lambda problem: function(problem.with_law(law(k)))


CALLS = {
    **VALUES,
    **CURVES,
    "gamma_star": otm.verifiers.gamma_star,
    "acceptance_table": lambda p: (
        otm.acceptance_table(draft=p.draft, target=p.target, k=[1, 2, 4]).values
    ),
    "unchecked_table": lambda p: (
        unchecked_table(p.draft, p.target, None, None, RequestedColumns.of([1, 2, 8], None)).values
    ),
    "optimal_bracket": lambda p: otm.bounds.optimal_bracket(p, bins=64).lower,
    "list_matching_lower": otm.bounds.list_matching_lower,
    "poisson_matching_lower": one(IID, otm.bounds.poisson_matching_lower),
    "tv_frontier": lambda p: otm.lossy.tv_frontier(p, tv=0.1),
    "Problem": lambda p: Problem(draft=p.draft, target=p.target, law=p.law).draft,
    "from_logits": lambda p: otm.from_logits(p.draft, temperature=0.5, top_p=0.9),
    "Naive": lambda p: otm.acceptance(otm.Naive(), p),
    "NaiveTree": lambda p: otm.acceptance(otm.NaiveTree(), p),
    "ListRace by rule": lambda p: otm.acceptance(otm.ListRace(), p, by="rule"),
    "Race": one(otm.WithoutReplacement, lambda p: otm.acceptance(otm.Race(), p)),
    "MinHash": one(IID, lambda p: otm.acceptance(otm.MinHash(), p)),
    "Lenience": one(IID, lambda p: otm.acceptance(otm.Lenience(), p)),
    "TypicalAcceptance": one(IID, lambda p: otm.acceptance(otm.TypicalAcceptance(), p)),
    "Ensemble": one(IID, lambda p: otm.acceptance(otm.Ensemble(), p)),
    "Cascade": one(IID, lambda p: otm.acceptance(otm.Cascade(), p)),
    "Cascade, OPT": one(IID, lambda p: otm.acceptance(otm.Cascade(rule="opt"), p)),
    "RelaxedAcceptance": one(IID, lambda p: otm.acceptance(otm.RelaxedAcceptance(), p)),
    "BoundedRegret": one(IID, lambda p: otm.acceptance(otm.BoundedRegret(), p)),
    "Mars": one(IID, lambda p: otm.acceptance(otm.Mars(), p)),
    "ThresholdMatching": one(otm.TopK, lambda p: otm.acceptance(otm.ThresholdMatching(), p), 2),
    "Cactus": one(IID, lambda p: otm.acceptance(otm.Cactus(), p)),
    "Lantern": one(IID, lambda p: otm.acceptance(otm.Lantern(), p)),
    "Grouped": one(IID, lambda p: otm.acceptance(otm.Grouped(), p)),
    "ActionDistance": one(IID, lambda p: otm.acceptance(otm.ActionDistance(), p)),
    "TvOptimal": lambda p: otm.acceptance(otm.TvOptimal(), p),
    "Fuzzy": one(IID, lambda p: otm.acceptance(otm.Fuzzy(), p)),
    "optimum of Greedy": one(otm.Greedy, otm.optimal_acceptance, 2),
    "optimum of TopK": one(otm.TopK, otm.optimal_acceptance, 2),
    "GreedyOptimal": one(otm.Greedy, lambda p: otm.acceptance(otm.GreedyOptimal(), p), 2),
    "SpecHub": one(otm.Greedy, lambda p: otm.acceptance(otm.SpecHub(), p), 2),
}

GATE = {
    "total_variation",
    "kl_divergence",
    "harmonic_mean_distance",
    "acceptance_table",
    "Problem",
    "from_logits",
}
OPTIMA = {
    "optimal_acceptance",
    "optimal_acceptance, k = 200",
    "optimal_acceptance_curve",
    "tv_frontier",
    "TvOptimal",
}
BY_BINS = OPTIMA | {"gamma_star"} | {name for name in CALLS if name.startswith("KSeq")}
CHECKED_GAMMA = {"KSeq(gamma)", "KSeq(gamma) by rule"}


@pytest.mark.parametrize("name", CALLS)
def test_a_device_is_waited_for_as_often_as_is_said(name):
    for dtype, width in itertools.product((torch.float32, torch.float64), (8, BINNED)):
        with fake_cuda() as (_, watch):
            draft, target = (torch.empty(2, 3, width, dtype=dtype, device="cuda") for _ in range(2))
            values = CALLS[name](bare_problem(draft, target, IID(4)))
            assert values.device.type == "cuda", (dtype, width)
            binned = name in BY_BINS and width >= BINNED
            waits = (name in GATE) + binned + (name in CHECKED_GAMMA)
            assert len(watch.waits) == waits, (dtype, width, watch.waits)
        assert len(watch.sends) <= 6, "numbers of drafts and edges of bins, never rows"


def test_normalising_waits_once():
    with fake_cuda(copied=np.ones) as (_, watch):
        assert otm.normalise(torch.empty(2, 8, device="cuda")).device.type == "cuda"
    assert watch.waits == ["to_numpy"]


def test_the_number_of_waits_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(otm._machine.arrays, "CHUNK_ON_DEVICE", 2 * BINNED)
    for name in ("optimal_acceptance_curve", "KSeq curve", "acceptance_table", "kl_divergence"):
        counts = []
        for rows in (1, 9):
            with fake_cuda() as (_, watch):
                draft, target = (torch.empty(rows, BINNED, device="cuda") for _ in range(2))
                CALLS[name](bare_problem(draft, target, IID(4)))
            counts.append(len(watch.waits))
        assert counts[0] == counts[1], name


def test_the_watch_sees():
    for name, offence in {
        "item": lambda x: x.sum().item(),
        "bool": lambda x: bool((x > 0).any()),
        "nonzero": lambda x: x.nonzero(),
        "mask": lambda x: x[x > 0],
        "cpu": lambda x: x.cpu(),
        "two devices": lambda x: x + torch.zeros(3),
    }.items():
        with fake_cuda() as (_, watch):
            array = torch.empty(3, device="cuda")
            try:
                offence(array)
            except (RuntimeError, TypeError):  # fake tensors refuse what depends on values
                watch.waits.append("refused")
            assert watch.waits, name


def device_rows(width, seed):
    _, drafts, targets = zip(*problems(width, seed), strict=True)
    return torch.asarray(np.stack(drafts)), torch.asarray(np.stack(targets))


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name not in ("gamma_star", "from_logits", "Problem")]
)
def test_a_device_computes_what_the_host_does(name):
    for width in (40, BINNED, 3000):
        draft, target = device_rows(width, width)
        problem = Problem(draft=draft, target=target, law=IID(4))
        host = CALLS[name](problem)
        with no_host(), Watch() as watch:
            device = CALLS[name](problem)
        asked = "aten::_local_scalar_dense" not in watch.waits
        assert not asked or name not in BY_BINS or width < BINNED, "the host was asked after all"
        finite = torch.isfinite(host)
        assert torch.equal(finite, torch.isfinite(device)), width
        slack = {"rtol": 1e-12, "atol": 4 * rounding_of(width, 200)}
        np.testing.assert_allclose(device[finite], host[finite], **slack, err_msg=str(width))


def test_a_device_finds_the_same_root():
    """Where γ* is well conditioned: language models, flat pairs, zeros."""
    draft, target = device_rows(3000, 1)
    problem = Problem(draft=draft[[0, 1, 7]], target=target[[0, 1, 7]], law=IID(8))
    host = otm.verifiers.gamma_star(problem)
    with no_host():
        device = otm.verifiers.gamma_star(problem)
    np.testing.assert_allclose(device, host, rtol=1e-9)


@pytest.mark.parametrize("num_rows", [1, 9, 40])
def test_a_prepared_batch_sends_masses_of_bins_and_waits_for_no_row(num_rows):
    bins, width = 64, 3000

    def masses(shape):
        """Bins of equal mass, nothing undrafted: some masses must come back for the host to build
        scores of.
        """
        return np.full(shape, 1.0 / bins) * (np.arange(shape[-1]) < 2 * bins)

    with fake_cuda(copied=masses) as (_, watch):
        draft, target = (
            torch.empty(num_rows, width, dtype=torch.float32, device="cuda") for _ in range(2)
        )
        rule = otm.verifiers.prepare_batch(
            otm.Optimal(bins=bins), bare_problem(draft, target, IID(3))
        )
        assert watch.waits == ["to_numpy"] * min(
            num_rows, 4 if num_rows % 4 == 0 or num_rows < 4 else 3
        )
        assert len(watch.sends) <= 6
        watch.waits.clear()
        drafts = torch.empty(num_rows, 3, dtype=torch.int64, device="cuda")
        uniforms = torch.empty(num_rows, rule.num_uniforms, dtype=torch.float64, device="cuda")
        assert rule.select(drafts, uniforms[:, :3]).device.type == "cuda"
        assert watch.waits == ["aten::_local_scalar_dense"]
        watch.waits.clear()
        assert rule.lower.device.type == rule.selection_law.device.type == "cuda"
        assert watch.waits == []


def test_a_prepared_batch_on_a_device_is_that_of_the_host():
    draft, target = device_rows(3000, 2)
    problem = Problem(draft=draft, target=target, law=IID(4))
    rng = np.random.default_rng(0)
    host = otm.verifiers.prepare_batch(otm.Optimal(bins=256), problem)
    drafts = torch.multinomial(draft + 1e-300, 4, replacement=True)
    uniforms = torch.asarray(rng.random((len(draft), host.num_uniforms)))
    wanted = host.lower, *host.verify(drafts, uniforms)
    with no_host(), Watch() as watch:
        device = otm.verifiers.prepare_batch(otm.Optimal(bins=256), problem)
        watch.waits.clear()
        output, accepted = device.verify(drafts, uniforms)
        assert watch.waits == ["aten::_local_scalar_dense", "aten::nonzero"]
        lower = device.lower
    np.testing.assert_allclose(lower, wanted[0], atol=1e-12)
    assert torch.equal(output, wanted[1])
    assert torch.equal(accepted, wanted[2])
