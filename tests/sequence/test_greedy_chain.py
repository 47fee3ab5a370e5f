"""Greedy chains: what a step wins and loses against the enumerated text and a linear program for
the frontier; FLy's windows and ASD's budget against the loops of the public code.
"""

import itertools

import numpy as np
import pytest
import scipy

import otm
from otm.sequence import (
    DECODERS,
    LOSSY_DECODERS,
    Fly,
    GreedyChain,
    RegretBudget,
    ZerothOrder,
    completed_law,
    expected_step,
    loose_step,
    sequence_law,
    step_law,
)
from tests.sequence.toys import asked, bias, distance, random_models, smooth_models

CHAINS = [
    Fly(3, window=1, entropy=0.2, samples=1),
    Fly(3, window=2, entropy=0.5, samples=2),
    Fly(3, window=4, samples=1),
    Fly(3, window=1),
    RegretBudget(3, mismatches=2),
]


@pytest.mark.parametrize("decoder", CHAINS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_against_the_enumerated_text(decoder, seed):
    draft, target = random_models(3, 4, np.random.default_rng([12, seed]))
    found = loose_step(decoder, **asked((draft, target)))
    law = expected_step(decoder, **asked((draft, target))).law
    text = completed_law(law, target=target, context=[], length=4)
    wanted = sequence_law(target, [], 4)
    assert found.block_efficiency == pytest.approx(law.block_efficiency, abs=1e-14)
    assert found.total_variation == pytest.approx(0.5 * np.abs(text - wanted).sum(), abs=1e-14)
    assert found.kl == pytest.approx(
        otm.divergences.kl_divergence(target=wanted.ravel(), draft=text.ravel()), abs=1e-12
    )
    # The best text within the distance: maximise the expected length of the common prefix with the
    # chain.
    chain = []
    for _ in range(decoder.length):
        chain.append(int(np.argmax(draft.next(chain))))
    agreeing = np.array(list(np.ndindex(*wanted.shape)))[:, :3] == chain
    common = agreeing.cumprod(axis=1).sum(axis=1)
    size = wanted.size
    program = scipy.optimize.linprog(  # the text, and the mass by which it exceeds the target
        np.concatenate([-common, np.zeros(size)]),
        A_ub=np.block([[np.eye(size), -np.eye(size)], [np.zeros((1, size)), np.ones((1, size))]]),
        b_ub=np.concatenate([wanted.ravel(), [found.total_variation]]),
        A_eq=np.concatenate([np.ones((1, size)), np.zeros((1, size))], axis=1),
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    # 244 rows, each off by 1e-10 at most, and L = 3
    assert found.frontier == pytest.approx(1.0 - program.fun, abs=1e-7)
    assert found.block_efficiency <= found.frontier + 1e-12


@pytest.mark.parametrize("samples", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_the_law_is_that_of_the_steps(window, samples):
    for seed, entropy in enumerate((0.0, 0.6)):
        size = 2 if samples == 2 else 3
        models = asked(random_models(size, 5, np.random.default_rng([9, seed])))
        decoder = Fly(4, window, entropy, samples)
        found = expected_step(decoder, **models)
        assert distance(found.law, step_law(decoder, **models)) < 1e-14
        reached = [found.law.mass[found.law.accepted >= level].sum() for level in range(5)]
        np.testing.assert_allclose(found.reached, reached, atol=1e-14)


def shipped(accepted, closed, window):
    """Drafts kept by the mask as the public code builds it: the pattern FTT…T but not in the last
    places, and the gate.
    """
    length = len(accepted)
    pattern = [False, *[True] * (window - 1)]
    mask = accepted.copy()
    for start in range(length - window):
        mask[start] |= accepted[start : start + window] == pattern
    kept = [
        there and (was or not shut) for there, shut, was in zip(mask, closed, accepted, strict=True)
    ]
    return [*kept, False].index(False)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
@pytest.mark.parametrize("shut", [(), (1,), (0, 3)])
def test_every_pattern_of_matches(window, shut):
    length = 6
    closed = [place in shut for place in range(length)]
    for matches in itertools.product((False, True), repeat=length):
        rows = np.array([[0.98, 0.02] if c else [0.6, 0.4] for c in closed])
        rows[~np.array(matches)] = rows[~np.array(matches), ::-1]
        kept = Fly(length, window, entropy=0.3).kept_law(np.zeros(length, dtype=np.int64), rows)
        assert kept[shipped(list(matches), closed, window)] == 1.0, matches


def test_one_sample_that_forgives_nothing_is_lossless_two_are_not():
    """A draft of probability q comes out with 2q − q²: at most ¼ off, at q = ½."""
    draft, target = smooth_models(3, 4, 2)
    assert bias(Fly(3, window=4, samples=1), draft, target, step=expected_step) < 1e-14
    half = ZerothOrder([0.5, 0.5])
    law = expected_step(Fly(1, samples=2), **asked((half, half))).law
    np.testing.assert_allclose(
        completed_law(law, target=half, context=[], length=1), [0.75, 0.25], atol=1e-15
    )


def published(regrets, mismatched, decoder):
    """The loop of the reference code: gate, budget before and after, and the cap, in this order."""
    total, relaxed = 0.0, 0
    remaining = decoder.budget - decoder.spent
    for index, regret in enumerate(regrets):
        if mismatched[index]:
            before = total
            total += regret
            relaxed += 1
            worthwhile = regret / ((len(regrets) - index) / len(regrets)) <= decoder.gate
            if not (
                worthwhile
                and before < remaining
                and total <= remaining
                and relaxed <= decoder.mismatches
            ):
                return index
    return len(regrets)


@pytest.mark.parametrize("seed", range(40))
def test_the_budget_s_loop_and_its_law(seed):
    random = np.random.default_rng([77, seed])
    length = int(random.integers(1, 5))
    budget = float(random.choice([0.0, 0.3, 1.0, 3.0]))
    gate, most = float(random.choice([0.0, 0.5, 2.0])), int(random.integers(0, 4))
    spent = float(random.uniform(0, budget)) if seed % 2 else 0.0
    decoder = RegretBudget(length, budget, gate, most, spent=spent)
    draft, target = random_models(3, length + 1, random)
    found = expected_step(decoder, **asked((draft, target))).law
    assert distance(found, step_law(decoder, **asked((draft, target)))) == 0.0
    context = []
    regrets, mismatched = [], []
    for _ in range(length):
        token, row = int(np.argmax(draft.next(context))), target.next(context)
        with np.errstate(divide="ignore"):
            regrets.append(float(np.log(row.max()) - np.log(row[token])))
        mismatched.append(token != int(np.argmax(row)))
        context.append(token)
    kept = published(regrets, mismatched, decoder)
    following = int(np.argmax(target.next(context[:kept])))
    assert found.accepted.tolist() == [kept]
    assert found.tokens[0].tolist() == [*context[:kept], following]


REGRET = float(np.log(0.55) - np.log(0.45))


@pytest.mark.parametrize(
    ("decoder", "tokens"),
    [
        # no budget is greedy decoding
        (RegretBudget(3, budget=0.0), [1]),
        (RegretBudget(3, mismatches=0), [1]),
        (RegretBudget(3, budget=1.0, spent=1.0), [1]),
        # what is spent to the last bit is not too much
        (RegretBudget(1, REGRET, gate=REGRET), [0, 1]),
        # a mismatch and a half pay for one of three
        (RegretBudget(3, 1.5 * REGRET, gate=4 * REGRET, mismatches=3), [0, 1]),
    ],
)
def test_the_ends_of_a_budget(decoder, tokens):
    law = step_law(decoder, **asked((ZerothOrder([0.6, 0.4]), ZerothOrder([0.45, 0.55]))))
    assert law.tokens.tolist() == [tokens]


def test_the_registry_holds_all_greedy_chains_and_no_lossless_decoder():
    assert set(LOSSY_DECODERS) == set(GreedyChain.__subclasses__())
    assert not any(decoder.lossless for decoder in LOSSY_DECODERS)
    assert not set(LOSSY_DECODERS) & set(DECODERS)


def test_what_is_surely_kept_leaves_no_other_token():
    sure = ZerothOrder([1.0, 0.0])
    found = loose_step(Fly(1, samples=2), **asked((sure, sure)))
    assert (found.block_efficiency, found.total_variation, found.kl) == (2.0, 0.0, 0.0)
