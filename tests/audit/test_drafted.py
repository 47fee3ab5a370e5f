"""Kernels whose generators cannot be followed: no law is taken for theirs."""

import functools
import itertools

import pytest

import otm
from evidence import hidden_generators as hidden
from otm import audit


@pytest.fixture(autouse=True, scope="module")
def loaded():
    """Load what is compiled: an audit that is out of time would interrupt it."""
    otm.optimal_acceptance(otm.Problem(draft=[0.5, 0.5], target=[0.25, 0.75], law=otm.IID(3)))


@pytest.mark.parametrize("kind", [hidden.token, hidden.step, hidden.tree])
@pytest.mark.parametrize("generator", [hidden.splitmix64, hidden.of_child])
def test_a_lossless_kernel_is_no_false_alarm(kind, generator):
    """Where the time for branching is spent at once, too."""
    found = hidden.audited(kind, generator, biased=False, seed=0, seconds=0.5)
    assert found.verdict != "not lossless", str(found)


@pytest.mark.long
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", hidden.KINDS)
@pytest.mark.parametrize("generator", hidden.GENERATORS)
def test_kernels_with_hidden_generators(kind, generator, biased):
    found = hidden.audited(kind, generator, biased=biased, seed=1, seconds=6.0)
    assert (found.verdict == "not lossless") == biased, str(found)


def test_what_agrees_by_chance_on_laws_of_the_users_is_not_trusted():
    kernel = functools.partial(hidden.tree, hidden.splitmix64, False)
    pair = {"draft": [0.6, 0.4], "target": [0.99999, 0.00001]}
    found = audit.battery(audit.TreeCandidate(kernel, "tree"), seconds=1.0, **pair)
    assert found.verdict in ("little power", "no difference found", "no verdict")
    assert {means for means, _ in found.coverage.by} == {"samples"}


def test_what_contradicts_a_law_is_trusted_on_no_instance():
    """Laws are found for one shape, before the code draws from elsewhere on the next."""
    drawn, shapes = itertools.count(), set()

    def late(tree, rng):
        shapes.add(tuple(tree.parents))
        elsewhere = len(shapes) > 1 and next(drawn) % 3 == 0
        return [0 if elsewhere else int(rng.choice(tree.target.shape[1], p=tree.target[0]))]

    found = audit.battery(late, seconds=6.0, shrink_for=0.0)
    assert {means for means, _ in found.coverage.by} == {"samples"}
    assert any(s in found.reason for s in ("another answer", "contradict", "second execution"))
