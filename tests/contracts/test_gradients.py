"""Gradients: of laws and verifiers that say they have them, exact; everywhere else a refusal, never
a tensor that lost its past.
"""

import contextlib
import functools
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

import otm
from otm.drafts import LAWS
from otm.engines import chain_expected_tokens, chain_speedup
from otm.trees import TreeShape, acceptance_vector, tree_expected_tokens
from otm.verifiers import VERIFIERS, gamma_star, rejection_without_replacement
from tests import exact
from tests.contracts import calls
from tests.tolerance import UNIT_ROUNDOFF

SHAPE = TreeShape.from_paths([(0,), (1,), (0, 0), (0, 1), (2,), (0, 0, 0)])
DIGITS = 60
# central differences err by its square, and by 10^(20 − 60) in rounding
STEP = mpmath.mpf(10) ** -20


def logits(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def problem(draft, target, law):
    return otm.Problem(
        draft=torch.softmax(draft, dim=-1), target=torch.softmax(target, dim=-1), law=law
    )


def pair(law, *leading, num_tokens=6, seed=0):
    return logits(*leading, *law.draft_shape(num_tokens), seed=seed), logits(
        *leading, num_tokens, seed=seed + 1
    )


ANSWERS = {
    f"optimum {law.title}": (otm.optimal_acceptance, tuple(law(k) for k in (1, 2, 3)))
    for law in LAWS
    if law.differentiable
} | {
    "optimum curve": (
        lambda given: otm.optimal_acceptance_curve(given, k=[1, 3, 8, 100]),
        (otm.IID(2),),
    ),
    "optimum, many drafts": (otm.optimal_acceptance, (otm.IID(9), otm.IID(70))),
    "K-SEQ": (
        lambda given: otm.acceptance(otm.KSeq(), given),
        (otm.IID(1), otm.IID(2), otm.IID(8)),
    ),
    "K-SEQ curve": (
        lambda given: otm.acceptance_curve(otm.KSeq(), given, k=[1, 2, 5]),
        (otm.IID(2),),
    ),
    "gamma star": (gamma_star, (otm.IID(2), otm.IID(8))),
    "recursive rejection": (
        lambda given: otm.acceptance(otm.RecursiveRejection(), given),
        (otm.IID(1), otm.IID(2), otm.IID(8)),
    ),
    "recursive rejection curve": (
        lambda given: otm.acceptance_curve(otm.RecursiveRejection(), given, k=[3, 1, 4]),
        (otm.IID(2),),
    ),
    "single draft": (lambda given: otm.acceptance(otm.Maximal(), given), (otm.IID(1),)),
    "total variation": (
        lambda given: otm.divergences.total_variation(draft=given.draft, target=given.target),
        (otm.IID(1),),
    ),
    "hockey stick": (
        lambda given: otm.divergences.hockey_stick(
            draft=given.draft, target=given.target, level=1.3
        ),
        (otm.IID(1),),
    ),
    "acceptance vector": (
        lambda given: acceptance_vector(otm.RecursiveRejection(), given),
        (otm.IID(3),),
    ),
    "tree": (
        lambda given: tree_expected_tokens(
            acceptance_vector(otm.RecursiveRejection(), given), shape=SHAPE
        ),
        (otm.IID(3),),
    ),
    "chain": (
        lambda given: chain_expected_tokens(otm.optimal_acceptance(given), length=5),
        (otm.IID(4),),
    ),
    "speed-up of a chain": (
        lambda given: chain_speedup(otm.acceptance(otm.KSeq(), given), length=5, cost_ratio=0.1),
        (otm.IID(4),),
    ),
}
"""Every answer that passes gradients on, and laws to ask it under."""

ONE_ROW = {
    "recursive rejection without replacement": (
        lambda given: otm.acceptance(otm.RecursiveRejection(), given),
        tuple(otm.WithoutReplacement(k) for k in (1, 2, 3, 4)),
    ),
    "tree without replacement": (
        lambda given: tree_expected_tokens(
            acceptance_vector(otm.RecursiveRejection(), given), shape=SHAPE
        ),
        (otm.WithoutReplacement(3),),
    ),
}


@pytest.mark.parametrize("name", ANSWERS | ONE_ROW)
def test_finite_differences_and_values(name):
    """Row by row, along a random direction of a batch, and beside the values without gradients: to
    the rounding of sums over six tokens, and powers of them, since on the host the cut is searched
    in NumPy, not in torch.
    """
    answer, laws = (ANSWERS | ONE_ROW)[name]
    for law in laws:
        ask = functools.partial(asked, answer, law)
        assert torch.autograd.gradcheck(ask, pair(law, num_tokens=5)), law
        if name in ANSWERS:
            # rows of a batch do not mix; one target for all
            rows = pair(law, 2, 2)[0], pair(law)[1]
            assert torch.autograd.gradcheck(ask, rows, fast_mode=True), law
        given = problem(*pair(law), law)
        plain = given.with_law(law)
        for side in ("draft", "target"):
            # a new problem would divide by sums once more
            object.__setattr__(plain, side, getattr(given, side).detach())
        found, wanted = answer(given), answer(plain)
        assert found.requires_grad, law
        assert not torch.is_tensor(wanted) or not wanted.requires_grad, law
        slack = 8 * law.size * 6 * UNIT_ROUNDOFF
        np.testing.assert_allclose(found.detach().numpy(), np.asarray(wanted), rtol=0, atol=slack)


def asked(answer, law, draft, target):
    return answer(problem(draft, target, law))


class TestSixtyDigits:
    """Against independent definitions in 60 digits: subsets enumerated, residuals subtracted, roots
    bracketed.
    """

    @pytest.mark.parametrize("k", [1, 2, 5, 70])
    def test_the_optimum(self, k):
        assert_gradient(otm.optimal_acceptance, lambda p, q: exact.optimum_iid(p, q, k), otm.IID(k))

    @pytest.mark.parametrize("k", [1, 2, 5, 30])
    def test_kseq(self, k):
        def acceptance(p, q):
            return 1 - (1 - overlap(p, q, root(p, q, k)) / root(p, q, k)) ** k

        assert_gradient(lambda given: otm.acceptance(otm.KSeq(), given), acceptance, otm.IID(k))
        assert_gradient(
            gamma_star, lambda p, q: root(p, q, k), otm.IID(k), rounding=1e-10 if k == 30 else 1e-13
        )

    @pytest.mark.parametrize(
        "law", [otm.IID(1), otm.IID(2), otm.IID(6), *map(otm.WithoutReplacement, (2, 3))], ids=str
    )
    def test_recursive_rejection(self, law, monkeypatch):
        # as many as two rejected drafts of five tokens have
        monkeypatch.setattr(rejection_without_replacement, "MAX_DIFFERENTIATED_PATHS", 20)
        assert_gradient(
            lambda given: otm.acceptance(otm.RecursiveRejection(), given),
            lambda p, q: exact.recursive_rejection(
                p, q, law.k, distinct=isinstance(law, otm.WithoutReplacement)
            ),
            law,
        )

    def test_tokens_of_a_tree(self):
        def tokens(p, q):
            survival = [1 - overlap(p, q, 1)]
            level = 1 + survival[0]
            for _ in range(2):
                survival.append(1 - overlap(p, q, level))
                level += survival[-1]
            vector = [a - b for a, b in itertools.pairwise([mpmath.mpf(1), *survival])]
            return sum(
                functools.reduce(lambda mass, rank: mass * vector[rank], path, mpmath.mpf(1))
                for path in SHAPE.paths()
            )

        answer, (law,) = ANSWERS["tree"]
        assert_gradient(answer, tokens, law)


def overlap(p, q, level):
    return sum(min(level * x, y) for x, y in zip(p, q, strict=True))


def root(p, q, k):
    """Return γ*."""
    return exact.gamma_star(p, q, k, digits=DIGITS)[0]


def assert_gradient(
    answer,
    oracle,
    law,
    rounding=1e-13,
):
    """Compare gradients by all logits of a pair with central differences of its exact answer;
    `rounding` is absolute.
    """
    for seed in (0, 10):
        draft, target = pair(law, num_tokens=5, seed=seed)
        found = torch.autograd.grad(answer(problem(draft, target, law)), (draft, target))
        with mpmath.workdps(DIGITS):
            given = [[mpmath.mpf(value) for value in side.tolist()] for side in (draft, target)]

            def at(side, token, step, given=given):
                moved = [list(values) for values in given]
                moved[side][token] += step
                masses = [[mpmath.exp(value) for value in values] for values in moved]
                return oracle(*([mass / sum(side) for mass in side] for side in masses))

            wanted = [
                [
                    float((at(side, token, STEP) - at(side, token, -STEP)) / (2 * STEP))
                    for token in range(5)
                ]
                for side in (0, 1)
            ]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=0, atol=rounding)


class TestKinks:
    def test_equal_distributions_are_a_maximum(self):
        draft = logits(3, 7, seed=4)
        for k in (1, 2, 8):
            for answer in (
                otm.optimal_acceptance,
                ANSWERS["K-SEQ"][0],
                ANSWERS["recursive rejection"][0],
            ):
                value = answer(problem(draft, draft.detach(), otm.IID(k)))
                (slope,) = torch.autograd.grad(value.sum(), draft)
                assert slope.abs().max() < 1e-15

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_at_ties_the_optimum_falls_at_least_as_fast_in_every_direction(self, k):
        """α* is a minimum of smooth functions: a one-sided derivative is at most that of any
        function that attains it.
        """
        p, q = [[Fraction(value, 16) for value in side] for side in ((8, 4, 4), (4, 4, 8))]
        given = otm.Problem(
            draft=torch.tensor([float(x) for x in p], dtype=torch.float64).requires_grad_(),
            target=torch.tensor([float(x) for x in q], dtype=torch.float64).requires_grad_(),
            law=otm.IID(k),
        )
        slopes = torch.autograd.grad(otm.optimal_acceptance(given), (given.draft, given.target))
        best = exact.optimum_iid(p, q, k)
        active = [
            c
            for c in exact.subsets(3)
            if 1 + sum(q[y] for y in c) - sum(p[y] for y in c) ** k == best
        ]
        assert len(active) > 1 or k > 1  # token 1 has q = p
        for i, j in itertools.permutations(range(3), 2):
            for side in (0, 1):
                along = float(slopes[side][i] - slopes[side][j])
                moved = [(i in c) - (j in c) for c in active]
                if side == 0:
                    one_sided = min(
                        float(-k * sum(p[y] for y in c) ** (k - 1)) * m
                        for c, m in zip(active, moved, strict=True)
                    )
                else:
                    one_sided = min(float(m) for m in moved)
                assert one_sided <= along + 1e-12

    def test_forbidden_tokens_and_disjoint_supports_leave_gradients_finite(self):
        draft, target = logits(6, seed=1), logits(6, seed=2)
        holes = torch.tensor([0.0, 0.0, -torch.inf, 0.0, -torch.inf, 0.0], dtype=torch.float64)
        apart = torch.tensor(
            [0.0, 0.0, 0.0, -torch.inf, -torch.inf, -torch.inf], dtype=torch.float64
        )
        nowhere = torch.zeros(6, dtype=torch.float64)
        for mask, other in ((holes, nowhere), (apart, apart.flip(0)), (apart, nowhere)):
            for answer, laws in (ANSWERS | ONE_ROW).values():
                for law in laws:
                    if not law.one_drafter:
                        continue
                    given = otm.Problem(
                        draft=otm.from_logits(draft + mask),
                        target=otm.from_logits(target + other),
                        law=law,
                    )
                    value = answer(given).sum()
                    for slope in torch.autograd.grad(value, (draft, target), allow_unused=True):
                        assert slope is None or bool(torch.isfinite(slope).all())


class TestArrays:
    def test_float32(self):
        """Masses of float32 are those of float64 to 6e-8, and so is what is summed; levels move as
        little as they do.
        """
        for name, (answer, laws) in ANSWERS.items():
            for law in laws:
                wide = pair(law, 5, num_tokens=50)
                narrow = [side.detach().float().requires_grad_() for side in wide]
                value = answer(problem(*narrow, law))
                assert value.dtype == torch.float64
                found, wanted = (
                    torch.autograd.grad(
                        answer(problem(*sides, law)).sum(), sides, materialize_grads=True
                    )
                    for sides in (tuple(narrow), wide)
                )
                for one, other in zip(found, wanted, strict=True):
                    assert one.dtype == torch.float32
                    scale = float(other.abs().max())
                    torch.testing.assert_close(
                        one.double(),
                        other,
                        rtol=0,
                        atol=2e-5 * scale,
                        msg=lambda m, n=name: f"{n}: {m}",
                    )

    def test_under_no_grad_there_is_none(self):
        draft, target = logits(6, seed=0), logits(6, seed=1)
        with torch.no_grad():
            leaf = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64, requires_grad=True)
            assert isinstance(otm.optimal_acceptance(problem(draft, target, otm.IID(2))), float)
            assert isinstance(
                otm.optimal_acceptance(otm.Problem(draft=leaf, target=leaf, law=otm.IID(2))), float
            )
            assert otm.trees.check_acceptance(leaf).tolist() == [0.5, 0.25, 0.25]

    def test_a_gradient_is_that_of_what_is_normalised(self):
        """The gate divides by the sum: moving all masses by one factor changes nothing, also where
        the sum is 1 already.
        """
        p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64, requires_grad=True)
        q = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64, requires_grad=True)
        value = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(2)))
        for mass, slope in zip((p, q), torch.autograd.grad(value, (p, q)), strict=True):
            assert float((mass * slope).sum().detach()) == pytest.approx(0.0, abs=1e-15)

    def test_logits_and_weights_pass_gradients_on(self):
        given = logits(2, 5, seed=2)
        for call in (
            otm.from_logits,
            functools.partial(otm.from_logits, temperature=0.7, top_k=3, top_p=0.9),
        ):
            assert torch.autograd.gradcheck(call, (given,))
        assert torch.autograd.gradcheck(lambda values: otm.normalise(values.exp()), (given,))


class TestLongRows:
    """Rows that are long enough for the search in bins, where numba is installed, and for chunks of
    rows.
    """

    @pytest.mark.parametrize("k", [1, 2, 8, 100])
    def test_the_optimum_moves_with_its_cut(self, k):
        draft, target = logits(3, 5000, seed=0), logits(3, 5000, seed=1)
        found = torch.autograd.grad(
            otm.optimal_acceptance(problem(3 * draft, 3 * target, otm.IID(k))).sum(),
            (draft, target),
        )
        p, q = torch.softmax(3 * draft, dim=-1), torch.softmax(3 * target, dim=-1)
        cuts = [
            otm.optimal_cut(otm.Problem(draft=x.detach(), target=y.detach(), law=otm.IID(k)))
            for x, y in zip(p, q, strict=True)
        ]
        members = torch.from_numpy(np.asarray(cuts))
        value = (q * members).sum(-1) - (p * members).sum(-1) ** k
        wanted = torch.autograd.grad(value.sum(), (draft, target))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-15)

    @pytest.mark.parametrize(
        "answer", ["K-SEQ curve", "gamma star", "recursive rejection curve", "total variation"]
    )
    def test_others_along_a_direction(self, answer):
        function, (law, *_) = ANSWERS[answer]
        draft, target = logits(2, 3000, seed=0), logits(2, 3000, seed=1)
        assert torch.autograd.gradcheck(
            lambda p, q: function(problem(p, q, law)), (draft, target), fast_mode=True
        )


class TestRefusals:
    def test_optima_without_a_gradient(self):
        for law in (law(2) for law in LAWS if not law.differentiable):
            given = problem(*pair(law), law)
            with pytest.raises(otm.errors.Unsupported, match=r"\.detach\(\)"):
                otm.optimal_acceptance(given)
            with pytest.raises(otm.errors.Unsupported, match=r"\.detach\(\)"):
                otm.optimal_acceptance_curve(given, k=[2])

    def test_verifiers(self):
        """Each passes gradients on or refuses, as it says."""
        for kind, law in itertools.product(VERIFIERS, [law(k) for law in LAWS for k in (1, 2)]):
            verifier = kind()
            if not verifier.supports(law):
                continue
            given = problem(*pair(law), law)
            for call in (
                otm.acceptance,
                lambda one, given: otm.acceptance_curve(one, given, k=[given.law.size]),
            ):
                if verifier.differentiable:
                    assert call(verifier, given).requires_grad
                else:
                    with pytest.raises(otm.errors.Unsupported, match=r"\.detach\(\)"):
                        call(verifier, given)
        with pytest.raises(otm.errors.Unsupported, match=r"\.detach\(\)"):
            otm.acceptance(otm.KSeq(gamma=3.0), problem(*pair(otm.IID(2)), otm.IID(2)))

    def test_no_public_function_loses_a_gradient(self):
        """Where distributions go in that require gradients, one comes out, or an error that says
        what to call.
        """
        for function, arguments in calls.CALLS:
            changed = {name: tracked(name, value) for name, value in arguments.items()}
            # overlap_at works on masses that have passed the gate
            same = all(changed[name] is value for name, value in arguments.items())
            if function is otm.overlap.overlap_at or same:
                continue
            try:
                answer = function(**changed)
            except otm.OtmError as error:
                assert ".detach()" in str(error), function
                continue
            sides = isinstance(answer, otm.Problem)
            for part in (answer.draft, answer.target) if sides else (answer,):
                assert isinstance(part, torch.Tensor), function
                assert part.requires_grad, function


DISTRIBUTIONS = {
    "acceptance", "draft", "law", "logits", "mass", "pmf", "survival", "target", "values",
}  # fmt: skip
"""Names of arguments that may be distributions."""


def tracked(name, value):
    """Return what requires gradients in the place of a distribution, all else as it is."""
    if isinstance(value, otm.Problem):
        sides = {side: tracked(side, getattr(value, side)) for side in ("draft", "target")}
        return otm.Problem(**sides, law=value.law)
    if name in DISTRIBUTIONS:
        with contextlib.suppress(TypeError, ValueError):
            return torch.tensor(np.asarray(value, dtype=np.float64)).requires_grad_()
    return value


@pytest.mark.parametrize("k", [64, 1000, 100_000])
def test_where_every_draft_is_accepted_to_rounding(k):
    """(1 − β)^k is lost, γ* is the largest ratio q/p, here of token 1, and nothing is
    left to gain.
    """
    rows = {"draft": [9 / 14, 5 / 14], "target": [4 / 11, 7 / 11]}
    p, q = (torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in rows.values())
    problem = otm.Problem(draft=p, target=q, law=otm.IID(k))
    gamma = otm.verifiers.gamma_star(problem)
    assert float(gamma.detach()) == pytest.approx(98 / 55, abs=1e-8)
    found = torch.autograd.grad(gamma, (p, q), retain_graph=True)
    expected = torch.autograd.grad((q / q.sum())[1] / (p / p.sum())[1], (p, q))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    for slope in torch.autograd.grad(otm.acceptance(otm.KSeq(), problem), (p, q)):
        assert slope.abs().max() < 1e-9
