"""The plan as a verifier: it chooses among the drafts alone."""

import itertools

import numpy as np

import otm
from otm import IID, Problem, TransportPlan


def test_the_plan_chooses_among_the_drafts_alone():
    rows = otm.examples.dirichlet(4, rng=np.random.default_rng(0), rows=2)
    problem = Problem(draft=rows[0], target=rows[1], law=IID(3))
    rule = otm.prepare(TransportPlan(), problem)
    sequences = np.array(list(itertools.product(range(4), repeat=3)))
    accepted, residual = rule.split(sequences)
    outside = np.array([[y not in row for y in range(4)] for row in sequences.tolist()])
    assert (accepted[outside] == 0).all()
    # The same set gives the same row, whatever the order of the drafts.
    order = rule.split(sequences[:, ::-1])
    np.testing.assert_array_equal(accepted, order[0])
    np.testing.assert_array_equal(residual, order[1])
    # No residual draw can land on a draft: the plan would have accepted it instead.
    mass = np.prod(rows[0][sequences], axis=1)
    assert mass @ (residual * ~outside).sum(axis=1) <= 1e-9
