"""What every law says about inclusion, values and itself, and laws from outside."""

import dataclasses
import inspect
import itertools

import numpy as np
import pytest

import otm
from otm.audit.shrinking import small_problems
from otm.audit.standard_problems import one_per_drafter, problems_under
from otm.drafts.base import PAD, collapse, enumerate_drafts, members, padded, readable
from otm.verifiers.base import check_drafts
from tests import instances
from tests.tolerance import rounding


def _outside(make):
    """A law that says of itself what `make` says and is no relative of it: what is true of one must
    be done for the other.
    """
    base = otm.drafts.CountedLaw if issubclass(make, otm.drafts.CountedLaw) else otm.Law
    methods = {
        name: inspect.getattr_static(make, name)
        for name in base.__abstractmethods__ | {"one_drafter", "distinct"}
    }
    if base is otm.Law:
        methods["__annotations__"] = {"c": float}
    return dataclasses.dataclass(frozen=True)(type(f"Outside{make.__name__}", (base,), methods))


class TestLawsFromOutside:
    def test_independent_drafts_are_never_missing(self):
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=_outside(otm.IID)(2))
        assert check_drafts([0, 1], problem).tolist() == [[0, 1]]
        with pytest.raises(otm.errors.InvalidParameter, match=r"must lie in \[0, 2\); got -1 to 0"):
            check_drafts([0, PAD], problem)

    @pytest.mark.parametrize("make", otm.drafts.LAWS)
    def test_instances_have_the_shape_that_the_law_takes(self, make):
        law = _outside(make)(2)
        for mine, named in (
            (small_problems(law), small_problems(make(2))),
            (_standard(law), _standard(make(2))),
        ):
            for problem, wanted in itertools.islice(zip(mine, named, strict=True), 200):
                assert problem.draft.shape == problem.law.draft_shape(problem.num_tokens)
                np.testing.assert_array_equal(problem.draft, wanted.draft)
                np.testing.assert_array_equal(problem.target, wanted.target)

    def test_different_drafters_differ(self):
        drafts = one_per_drafter([0.5, 0.3, 0.2], otm.Product(2))
        np.testing.assert_array_equal(drafts, [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]])
        np.testing.assert_array_equal(one_per_drafter([0.5, 0.3, 0.2], otm.IID(2)), [0.5, 0.3, 0.2])

    def test_which_laws_have_one_drafter(self):
        assert set(otm.drafts.LAWS) - set(otm.drafts.SINGLE_DRAFTER_LAWS) == {otm.Product}
        for make in otm.drafts.LAWS:
            assert _outside(make)(3).one_drafter == (make is not otm.Product)


def _standard(law):
    return (problem for _, problem in problems_under(law))


@pytest.mark.parametrize("law", instances.law_params())
def test_inclusion_is_what_the_enumeration_says(law):
    for name, problem in instances.named_problems(law):
        table = enumerate_drafts(law, problem.draft)
        drafted = table.mass @ members(table.tokens, problem.num_tokens)
        np.testing.assert_allclose(
            law.inclusion(problem.draft),
            drafted,
            atol=rounding(problem.num_tokens, law.size),
            err_msg=name,
        )
        for x in range(problem.num_tokens):
            T = np.arange(problem.num_tokens) != x
            assert law.containment(problem.draft, T) == pytest.approx(
                1 - drafted[x], abs=rounding(problem.num_tokens, law.size)
            )


@pytest.mark.parametrize("law", instances.law_params((2, 3)))
def test_values_on_every_kind_of_array(law, backend):
    rng = np.random.default_rng(4)
    rows, targets = (
        otm.examples.dirichlet(6, rng=rng, rows=3),
        otm.examples.dirichlet(6, rng=rng, rows=4),
    )
    plain = instances.make_problem(law, rows, targets[0])
    drafts = np.broadcast_to(plain.draft, (4, *plain.draft.shape))
    wanted = otm.optimal_acceptance(otm.Problem(draft=drafts, target=targets, law=law))
    problem = otm.Problem(draft=backend.array(drafts), target=backend.array(targets), law=law)
    included = law.inclusion(drafts)
    for found, exact in (
        (otm.optimal_acceptance(problem), wanted),
        (law.inclusion(problem.draft), included),
        (otm.acceptance(otm.Naive(), problem), (targets[:, None] @ included[..., None])[:, 0, 0]),
    ):
        assert backend.is_own(found)
        np.testing.assert_allclose(backend.numpy(found), exact, atol=backend.tolerance)


@pytest.mark.parametrize("make", [otm.WithoutReplacement, otm.Greedy, otm.TopK])
def test_more_distinct_drafts_than_tokens_are_an_error(make):
    with pytest.raises(
        otm.errors.InvalidParameter, match="Distinct drafts need k ≤ V; got k = 3 with V = 2"
    ):
        otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(3))
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(1))
    with pytest.raises(otm.errors.InvalidParameter, match="k ≤ V"):
        otm.optimal_acceptance_curve(problem, k=[1, 2, 3])


def test_a_set_that_is_not_drafted_is_not_found_where_keys_of_64_bits_would_wrap():
    """In base 2, that of the one set drafted, (8 + 1) 2⁶¹ is 2⁶¹ once more."""
    table = collapse(otm.WithoutReplacement(62).enumerate(np.eye(62)[0]))
    assert table.find(padded(np.array([[0], [8]]), 62)).tolist() == [0, -1]


def test_sizes_of_many_digits_are_told_by_their_power():
    assert readable(10**18 - 1) == "999,999,999,999,999,999"
    assert readable(10**18) == "about 10^18"
