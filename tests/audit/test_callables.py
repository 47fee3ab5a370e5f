"""A function as a verifier: the laws it is found to have, what it is refused for, and that it goes
wherever a verifier goes.
"""

import functools

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.callables import MOST_SEQUENCES, output_law_on
from otm.audit.tracing.answers import CandidateFailure, read_token
from otm.audit.tracing.branching import trace
from otm.drafts.base import live_drafts
from tests.optional import needs

DRAFT, TARGET = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


def recursive(draft, target, drafts, uniforms):
    """Recursive rejection, written as one would."""
    left = target.copy()
    for x, u in zip(drafts, uniforms, strict=False):
        if u * draft[x] < left[x]:
            return int(x), True
        left = np.maximum(left - draft, 0.0)
        left = left / left.sum()
    return int(np.searchsorted(np.cumsum(left), uniforms[-1])), False


def trusting(draft, target, drafts, uniforms):
    return int(drafts[0])


def _lossless(draft, target, drafts, uniforms):
    return recursive(draft, target, drafts[:1], uniforms)


def problem(k):
    return otm.Problem(draft=DRAFT, target=TARGET, law=otm.IID(k))


def backwards(draft, target, drafts, uniforms):
    """The last draft is looked at first, and the others where it is rejected."""
    x = int(drafts[len(drafts) - 1])
    return x if uniforms[0] * draft[x] < target[x] else int(drafts[0])


class TestLaw:
    @pytest.mark.parametrize("k", [1, 2, 6])
    def test_a_known_scheme_has_its_closed_form(self, k):
        """Exactly so where its draft sequences are thousands, too."""
        mine = otm.from_callable(recursive)
        assert problem(6).law.num_sequences(4) > MOST_SEQUENCES
        for by in ("membership", "rule"):
            exact = otm.acceptance(otm.RecursiveRejection(), problem(k), by=by)
            assert otm.acceptance(mine, problem(k), by=by) == pytest.approx(exact, abs=1e-13)
        assert otm.lossy.output_law(mine, problem(k)) == pytest.approx(TARGET, abs=1e-13)

    def test_it_is_run_once_for_all_that_is_asked_of_a_problem(self):
        """And a token without a flag counts as accepted if it was drafted."""
        calls = []

        def counted(*arguments):
            calls.append(1)
            return trusting(*arguments)

        mine, single = otm.from_callable(counted), problem(2)
        assert otm.acceptance(mine, single) == pytest.approx(1.0, abs=1e-14)
        before = len(calls)
        assert otm.acceptance(mine, single, by="rule") == pytest.approx(1.0, abs=1e-14)
        assert otm.lossy.output_law(mine, single) == pytest.approx(DRAFT, abs=1e-14)
        otm.coupling(mine, single)
        assert len(calls) == before > 0

    def test_the_laws_that_were_said(self):
        mine = otm.from_callable(trusting, law=(otm.WithoutReplacement, otm.TopK(2)))
        laws = (otm.WithoutReplacement(3), otm.TopK(2), otm.TopK(1), otm.IID(2))
        assert [mine.supports(law) for law in laws] == [True, True, False, False]
        for law in laws[:2]:
            assert otm.acceptance(mine, problem(2).with_law(law)) == pytest.approx(1.0, abs=1e-14)


class TestEverywhere:
    @pytest.mark.parametrize(
        ("function", "verdict"), [(_lossless, "lossless"), (trusting, "not lossless")]
    )
    def test_audits_ask_the_function_itself(self, function, verdict):
        mine = otm.from_callable(function, law=otm.IID(1), name="mine")
        audit = otm.audit.exact(mine, problem(1))
        assert (audit.verdict, audit.method, audit.name) == (verdict, "traced", "mine")

    @pytest.mark.parametrize("by", ["membership", "rule"])
    def test_an_interval_is_narrowed_by_more_seconds(self, by):
        mine, six = otm.from_callable(recursive), problem(6)
        exact = otm.acceptance(otm.RecursiveRejection(), six, by=by)
        found = [mine.acceptance_interval(six, by=by, seconds=time) for time in (1e-3, 30, 1e-3)]
        assert all(one.lower <= exact <= one.upper for one in found)
        # what was found is kept
        assert found[0].gap > 0.01 > 1e-11 > found[1].gap == found[2].gap

    def test_eight_drafts_that_are_all_looked_at_are_estimated(self, monkeypatch):
        monkeypatch.setattr(otm.audit.callables, "MOST_SECONDS", 0.5)
        calls = []

        def every(draft, target, drafts, uniforms):
            calls.append(1)
            return recursive(draft, target, [int(x) for x in drafts], uniforms)

        mine, eight = otm.from_callable(every), problem(8)
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"65,536 draft sequences is known to .* only, not exactly; otm\.estimate gives",
        ):
            otm.acceptance(mine, eight)
        before = len(calls)
        with pytest.raises(otm.errors.TooLarge):
            otm.coupling(mine, eight)
        assert len(calls) == before  # what cannot be followed is not tried again
        with pytest.raises(otm.errors.TooLarge, match=r"otm\.audit\.sampled a verdict"):
            otm.audit.exact(lambda p, q, drafts, u: int(np.float64(u[0]) * 4), problem(8))

    def test_only_what_can_be_drafted_counts(self):
        draft = np.zeros(40)
        draft[:4] = DRAFT
        wide = otm.Problem(draft=draft, target=np.full(40, 1 / 40), law=otm.IID(3))
        assert wide.law.num_sequences(40) > MOST_SEQUENCES
        assert otm.acceptance(otm.from_callable(trusting), wide) == pytest.approx(1.0, abs=1e-14)


def _of(q, u):
    return int(np.searchsorted(np.cumsum(q), u))


def by_numbers(p, q, drafts, u):
    return recursive(p, q, [int(x) for x in drafts], u)


def by_ratio(p, q, drafts, u):
    p *= 2.0  # its own copy
    for i, x in enumerate(drafts):
        if min(1, q[x] / (p[i, x] if p.ndim == 2 else p[x])) >= u[i]:
            return x
    return int((np.cumsum(q) > u[-1]).argmax())


def naive(p, q, drafts, u):
    y = _of(q, u[-1])
    return y, y in drafts


def by_torch(p, q, drafts, u):
    import torch

    some = torch.as_tensor(drafts)
    return (int(some[0]), True) if u[0] < 0.5 * q[int(some[1])] else (int(some.max()), False)


class TestDrawnDrafts:
    """Drafts that are drawn while the function is traced: the law is that of each by itself."""

    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch):
        monkeypatch.setattr(otm.audit.callables, "MOST_SEQUENCES", 0)

    def joint(self, code, single):
        table = live_drafts(single.law, single.draft)
        verifier = otm.from_callable(code, law=type(single.law))
        law = output_law_on(verifier.code, single, table.tokens, table.mass, tolerance=1e-13)
        found = np.zeros((len(table.mass), 4))
        for rows, (token, _), masses in law.found:
            found[rows, token] += masses
        return law, found

    @pytest.mark.parametrize(
        ("code", "law"),
        [
            *((code, otm.IID(2)) for code in (recursive, by_numbers, naive)),
            pytest.param(by_torch, otm.IID(2), marks=needs("torch")),
            *((by_ratio, make(3)) for make in (otm.WithoutReplacement, otm.Greedy, otm.TopK)),
            (backwards, otm.WithoutReplacement(3)),
            (by_ratio, otm.Product(2)),
        ],
        ids=lambda thing: getattr(thing, "__name__", repr(thing)),
    )
    def test_the_law_is_that_of_every_sequence_by_itself(self, code, law):
        draft = np.stack([DRAFT, TARGET]) if isinstance(law, otm.Product) else DRAFT
        single = otm.Problem(draft=draft, target=TARGET, law=law)
        found, joint = self.joint(code, single)
        assert found.error < 1e-14
        table = live_drafts(law, single.draft)
        alone = np.zeros((len(table.mass), 4))
        for row, drafts, mass in zip(alone, table.tokens, table.mass, strict=True):

            def run(u, drafts=drafts):
                return read_token(code(single.draft.copy(), TARGET.copy(), drafts.copy(), u), 4)

            for (token, _), share in trace(run, single.num_drafts + 1).mass.items():
                row[token] += mass * share
        assert joint == pytest.approx(alone, abs=1e-14)

    def test_what_is_too_unlikely_to_be_drawn_counts_as_error(self, monkeypatch):
        monkeypatch.setattr(otm.audit.callables, "_MOST_DRAWN", 600)
        law, joint = self.joint(trusting, problem(5))
        assert 0.0 < law.error == pytest.approx(1.0 - joint.sum(), abs=1e-14)
        found = otm.from_callable(trusting).acceptance_interval(problem(5))
        assert (found.lower, found.upper) == (pytest.approx(joint.sum(), abs=1e-12), 1.0)

    def test_drafts_that_are_not_looked_at_divide_nothing(self):
        few, _ = self.joint(lambda p, q, drafts, u: int(drafts[-1]), problem(6))
        assert few.cells == 4
        some, every = (self.joint(code, problem(4))[0] for code in (recursive, by_numbers))
        assert some.cells < 0.5 * every.cells

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (lambda p, q, drafts, u: drafts[int(np.float64(u[0]) < 0.5)], "plain float"),
            (lambda p, q, drafts, u: int(type(drafts) is np.ndarray), "another answer"),
            (lambda p, q, drafts, u: drafts.fill(1) or int(drafts[0]), "another answer"),
        ],
        ids=["float", "type", "write"],
    )
    def test_what_cannot_be_followed_is_refused(self, code, reason):
        with pytest.raises(otm.errors.TooLarge, match=f"cannot be followed on 16.*{reason}"):
            self.joint(code, problem(2))

    def test_failures_are_named(self):
        with pytest.raises(CandidateFailure, match=r"ZeroDivisionError.*probability 0\.4 "):
            self.joint(lambda p, q, drafts, u: 1 // drafts[1].item(), problem(2))
        rare = otm.from_callable(lambda p, q, drafts, u: 1 // int(u[0] > 7e-14))  # of 4.6e-14
        with pytest.raises(CandidateFailure, match="ZeroDivisionError"):
            otm.kernel(rare, problem(1), np.array([[0]]))


def test_a_seed_of_the_drafts_is_no_randomness(monkeypatch):
    """Code that draws for itself is followed; where each of 144 sequences of drafts has a seed of
    its own, executions on real randomness tell.
    """
    monkeypatch.setattr(otm.audit.callables, "MOST_SEQUENCES", 143)  # drawn, or nothing
    rng = np.random.default_rng(5)
    draft, target = rng.dirichlet(np.ones(12), size=2)
    single = otm.Problem(draft=draft, target=target, law=otm.IID(2))

    def drawing(draft, target, drafts, uniforms, seeded=False):
        rng = np.random.default_rng([int(x) for x in drafts] if seeded else None)
        return recursive(draft, target, drafts, rng.random(3))

    assert audit.exact(drawing, single).verdict == "lossless"
    with pytest.raises(otm.errors.TooLarge, match="contradict the law found"):
        audit.exact(functools.partial(drawing, seeded=True), single)


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (1.0, "it returned 1.0"),
            (None, "None"),
            ([0, True], r"\[0, True\]"),
            (9, r"outside \[0, 4\)|it returned 9"),
            ((0, "False"), "True or False"),
            ((0, 0.3), "True or False"),
            ((0, 2), "True or False"),
        ],
        ids=repr,
    )
    def test_what_is_no_token_or_no_flag_is_said(self, answer, message):
        mine = otm.from_callable(lambda p, q, drafts, u: answer)
        with pytest.raises(otm.errors.OtmError, match=message):
            otm.acceptance(mine, problem(1))
        with pytest.raises(otm.errors.OtmError, match=message):
            otm.estimate(mine, problem(1), samples=2, rng=np.random.default_rng(0))

    def test_a_flag_given_now_and_then(self):
        """Where it is missing a drafted token counts as accepted, exactly and in samples, whatever
        else is in the batch.
        """

        def mixed(draft, target, drafts, uniforms):
            return (0, False) if drafts[0] == 0 else int(drafts[0])

        verifier = otm.from_callable(mixed)
        single = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
        assert otm.acceptance(verifier, single, by="rule") == pytest.approx(0.25, abs=1e-12)
        # false alarm 1e-9
        found = otm.estimate(
            verifier,
            single,
            samples=2_000,
            rng=np.random.default_rng(0),
            by="rule",
            confidence=1 - 1e-9,
        )
        assert found.low <= 0.25 <= found.high < 0.5

    def test_what_cannot_be_followed_to_the_end_is_no_exact_number(self, monkeypatch):
        monkeypatch.setattr(otm.audit.callables, "MOST_SECONDS", 0.5)
        mine = otm.from_callable(lambda p, q, drafts, u: int(u[0] * u[1] < 0.3))
        with pytest.raises(
            otm.errors.TooLarge, match=r"known to .* only, not exactly; otm\.estimate"
        ):
            otm.acceptance(mine, problem(1))

    @pytest.mark.parametrize("law", [2, (), "IID", (otm.IID, 3), otm.KSeq], ids=repr)
    def test_law(self, law):
        with pytest.raises(
            otm.errors.InvalidParameter, match=r"law must be a draft law such as otm\.IID"
        ):
            otm.from_callable(trusting, law=law)

    def test_names(self):
        mine = otm.from_callable(
            trusting, law=(otm.IID, otm.TopK(2)), name="mine", num_uniforms=lambda k, V: 0
        )
        assert (str(mine), repr(mine)) == ("mine", "from_callable(mine, law=(IID, TopK(k=2)))")
        assert otm.prepare(mine, problem(1)).num_uniforms == 0
        again, other = (otm.from_callable(mine.code, name=name) for name in ("", "other"))
        assert (again.code, str(other), other.code.verify) == (mine.code, "other", trusting)
        with pytest.raises(otm.errors.InvalidParameter, match="function verify"):
            otm.from_callable(otm.KSeq())
