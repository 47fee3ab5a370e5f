"""Code that draws by itself: steps, kernels of trees, and what they share with generations in the
battery. Passed when right, found when wrong (in the tests of the corpus, with their distances in
fractions), sampled with the reason where it has no branches.
"""

import functools
import time

import numpy as np
import pytest

import otm
from evidence import hidden_generators as hidden
from evidence.corpus import steps, trees
from otm import audit
from otm.audit.budget import ENOUGH
from otm.audit.end_to_end import JointAudit
from otm.audit.standard_problems import CHAINED, MarkovModel
from otm.audit.templates import step as step_template
from otm.audit.tracing.answers import CandidateFailure
from otm.sequence import ZerothOrder
from tests.audit.callables import carry_out

SECONDS = 120.0
"""Enough on a busy machine; a few are used."""

DRAFT, TARGET = (MarkovModel(rows) for rows in CHAINED["after the token before"])


def audited(candidate, **options):
    given = {"draft": DRAFT, "target": TARGET, "length": 2, "rng": np.random.default_rng(0)}
    return audit.step(candidate, **given | options)


@pytest.mark.parametrize(
    ("candidate", "means"),
    [
        (steps.step, "a step that drafts by itself, 3 tokens"),
        (trees.recursive, "a tree of 2 drafts"),
    ],
)
def test_what_is_right_is_lossless(candidate, means):
    found = audit.battery(candidate, seconds=SECONDS)
    assert found.verdict == "lossless", str(found)
    assert means in str(found.coverage)
    assert "by branching on draws" in str(found.coverage)
    assert not found.left_out


@pytest.mark.parametrize("gamma", [5, pytest.param(10, marks=pytest.mark.long)])
def test_long_steps_are_told_by_a_few_positions_at_a_time(gamma, monkeypatch):
    """Right, or wrong in the last token only: 3^γ drafts are too many to branch on, windows of a
    few are not.
    """
    monkeypatch.setattr(step_template, "GAMMA", gamma)

    def bonus_of_the_draft(draft, target, rng):
        *tokens, last = step_template.candidate(draft, target, rng)
        if len(tokens) == gamma:
            last = int(rng.choice(draft.num_tokens, p=draft.next(tokens)))
        return [*tokens, last]

    found = audit.battery(step_template.candidate, seconds=SECONDS)
    assert (found.verdict, found.left_out) == ("lossless", ())
    assert found.coverage.by[0][0] == "branching on draws"
    assert found.coverage.tokens == (gamma + 1,)
    wrong = audit.battery(bonus_of_the_draft, seconds=SECONDS)
    assert wrong.verdict == "not lossless"
    assert {label for label in wrong.failed if "tokens" in label} == {
        label for label in wrong.audits if label.endswith(f"to {gamma + 1}")
    }
    carry_out(wrong.counterexample, "candidate", candidate=step_template.candidate)


@pytest.mark.parametrize(("over", "verdict"), [(False, "lossless"), (True, "not lossless")])
def test_nothing_follows_the_end_of_sequence(over, verdict):
    def plain(draft, target, rng):
        x = int(rng.choice(3, p=target.next([])))
        if x == 2 and not over:
            return [x]
        return [x, int(rng.choice(3, p=TARGET.next([0, x])))]

    assert audited(plain, end=2).verdict == verdict


def test_a_loop_that_is_left_by_luck_comes_to_an_end():
    """It goes on with probability .55: the likelier part alone would be followed for ever."""

    def after_a_wait(draft, target, rng):
        while rng.random() < 0.55:
            pass
        return [int(rng.random() < 0.5)]

    fair = ZerothOrder([0.5, 0.5])
    found = audited(after_a_wait, draft=fair, target=fair, length=1, seconds=30.0)
    assert (found.verdict, type(found)) == ("lossless", JointAudit)


def summed(draft, target, rng):
    """Sample the target by a sum of uniforms, which has no branches."""
    u = (rng.random() + rng.random()) % 1.0
    return [int(np.searchsorted(np.cumsum(target.next([]))[:-1], u, side="right"))]


def test_what_has_no_branches_is_sampled_and_says_why():
    def floating(draft, target, rng):
        u = np.float64(rng.random())
        return [int(np.searchsorted(np.cumsum(draft.next([])), u, side="right"))]

    found = audited(floating, errors=audit.Errors(detect=0.2))
    assert found.verdict == "not lossless"
    assert "plain float" in found.reason
    assert str(found).splitlines()[3] == f"Not traced, since {found.reason}."
    right = audit.battery(summed, seconds=SECONDS, errors=audit.Errors(detect=0.2))
    assert (right.verdict, right.coverage.detect) == ("no difference found", 0.2)
    assert 0.0 < right.false_alarm <= 1e-9 + 1e-15
    assert "samples" in right.summary()


def test_samples_find_what_their_time_allows_or_what_is_asked():
    def slow(draft, target, rng):
        time.sleep(1e-4)
        return summed(draft, target, rng)

    model, levels = ZerothOrder([0.5, 0.5]), (0.1, 0.2, 0.3)
    plans = {
        level: audit.samples_needed(
            np.full(2, 0.5), detect=level, false_alarm=1e-9 / 6, missed=1e-3
        )
        for level in levels
    }
    for seconds, detect in ((1e6, 0.1), (0.0, 0.3)):
        errors = audit.Errors(detect=audit.DetectionBudget(levels, seconds))
        found = audited(slow, draft=model, target=model, length=1, errors=errors)
        # what is chosen by the time alone clears nobody where it is large
        verdict = "no difference found" if detect <= ENOUGH else "little power"
        assert (found.verdict, found.asked, found.planned) == (verdict, detect, plans[detect])
        assert found.errors.false_alarm <= 1e-9 / 3


def path_down(candidate, *parents, replacement=True):
    rng, options = np.random.default_rng(0), {"replacement": replacement}
    return audit.tree_kernel(
        candidate, draft=DRAFT, target=TARGET, parents=parents, rng=rng, **options
    )


def test_a_tree_is_given_as_engines_have_it():
    seen = []

    def look(tree, rng):
        seen.append(tree)
        return trees.recursive(tree, rng)

    path_down(look, -1, 0, 0, 1)
    tree = seen[-1]
    links = (tree.first_child.tolist(), tree.next_sibling.tolist(), tree.children(0))
    assert links == ([1, 3, -1, -1], [-1, 2, -1, -1], [1, 2])
    assert tree.tokens[0] == 0  # a token, as kernels look one up
    assert tree.target[3] == pytest.approx(TARGET.next(tree.tokens[[1, 3]].tolist()))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: audited(lambda draft, target, rng: [0, 0, 0]), "1 to 2 tokens"),
        (
            lambda: audit.battery(lambda tree, rng: tree.tokens[0] + 1 // 0),
            r"ZeroDivisionError.*test_end_to_end.py:\d+ in ",
        ),
    ],
)
def test_what_fails_everywhere_says_so(ask, said):
    with pytest.raises(CandidateFailure, match=said):
        ask()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: audited(7), "needs a function"),
        (lambda: audited(steps.step, end=3), r"end must be a token in \[0, 3\)"),
        (lambda: audit.battery(steps.step, laws=[otm.IID(1)]), "drafts by itself"),
        (lambda: audit.battery(steps.step, only="sampled"), "its draws are branched on"),
        (lambda: audit.shrink(audit.TreeCandidate(trees.recursive)), "a kernel of trees"),
        (lambda: audit.TreeCandidate(steps.step, siblings="some"), "must be 'with'"),
        (lambda: path_down(trees.recursive), "parents must be"),
        (lambda: path_down(trees.recursive, 0), "parents must be"),
        (lambda: path_down(trees.recursive, -1, 1), "parents must be"),
        (lambda: path_down(trees.recursive, -1, -1), "parents must be"),
        (  # of the arguments, not of the kernel, which is not called
            lambda: path_down(lambda tree, rng: 1 // 0, -1, 0, 0, 0, 0, replacement=False),
            "has 4 children, all different; after \\(\\) the draft has 3 tokens",
        ),
    ],
)
def test_what_is_not_of_wholes_is_refused(ask, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        ask()


@pytest.mark.parametrize("generator", hidden.GENERATORS[:4])
def test_numbers_from_elsewhere_are_told_where_nearly_all_is_certain(generator):
    """Every execution writes the same text, as the law of one seed has it."""
    kernel = functools.partial(hidden.step, generator, False)
    pair = {"draft": ZerothOrder([0.999, 0.001]), "target": ZerothOrder([0.9995, 0.0005])}
    found = audit.step(kernel, length=3, rng=np.random.default_rng(0), **pair)
    assert found.verdict == "no difference found"
    assert found.reason == "it drew a seed, and nothing that is followed"


def test_what_draws_nothing_is_exact():
    greedy = audited(lambda draft, target, rng: [int(target.next([]).argmax())])
    assert isinstance(greedy, JointAudit)
