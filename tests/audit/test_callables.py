"""A function as a verifier: the laws it is found to have, what it is refused for, and that it goes
wherever a verifier goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from otm.audit.callables import unwrapped
from otm.audit.candidate import CandidateFailure
from otm.audit.instances import MOST_SEQUENCES

DRAFT, TARGET = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


def recursive(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    """Recursive rejection, written as one would."""
    left = target.copy()
    for x, u in zip(drafts, uniforms, strict=False):
        if u * draft[x] < left[x]:
            return int(x), True
        left = np.maximum(left - draft, 0.0)
        left = left / left.sum()
    return int(np.searchsorted(np.cumsum(left), uniforms[-1])), False


def trusting(draft: Any, target: Any, drafts: Any, uniforms: Any) -> int:
    return int(drafts[0])


def problem(k: int) -> otm.Problem:
    return otm.Problem(draft=DRAFT, target=TARGET, law=otm.IID(k))


class TestLaw:
    @pytest.mark.parametrize("k", [1, 2, 3])
    @pytest.mark.parametrize("by", ["membership", "rule"])
    def test_a_known_scheme_has_its_closed_form(self, k: int, by: Any) -> None:
        mine = otm.from_callable(recursive)
        assert otm.acceptance(mine, problem(k), by=by) == pytest.approx(
            otm.acceptance(otm.RecursiveRejection(), problem(k), by=by), abs=1e-13
        )

    def test_the_coupling_is_that_of_the_scheme(self) -> None:
        mine, known = (
            otm.coupling(v, problem(2))
            for v in (otm.from_callable(recursive), otm.RecursiveRejection())
        )
        assert np.array_equal(mine.drafts, known.drafts)
        assert mine.joint.toarray() == pytest.approx(known.joint.toarray(), abs=1e-14)

    def test_without_a_flag_a_drafted_token_counts_as_accepted(self) -> None:
        mine = otm.from_callable(trusting)
        assert otm.acceptance(mine, problem(2), by="rule") == pytest.approx(1.0, abs=1e-14)
        assert otm.lossy.output_law(mine, problem(2)) == pytest.approx(DRAFT, abs=1e-14)
        assert (
            otm.estimate(
                mine, problem(2), samples=50, rng=np.random.default_rng(0), by="rule"
            ).value
            == 1.0
        )

    def test_other_laws(self) -> None:
        mine = otm.from_callable(trusting, law=(otm.WithoutReplacement, otm.TopK(2)))
        assert [
            mine.supports(law)
            for law in (otm.WithoutReplacement(3), otm.TopK(2), otm.TopK(1), otm.IID(2))
        ] == [
            True,
            True,
            False,
            False,
        ]
        for law in (otm.WithoutReplacement(2), otm.TopK(2)):
            assert otm.acceptance(mine, problem(2).with_law(law)) == pytest.approx(1.0, abs=1e-14)

    def test_it_is_run_once_for_all_that_is_asked_of_a_problem(self) -> None:
        calls = []

        def counted(*arguments: Any) -> int:
            calls.append(1)
            return trusting(*arguments)

        mine, single = otm.from_callable(counted), problem(2)
        otm.acceptance(mine, single)
        before = len(calls)
        (
            otm.acceptance(mine, single, by="rule"),
            otm.lossy.distortion(mine, single),
            otm.coupling(mine, single),
        )
        assert len(calls) == before > 0


class TestEverywhere:
    def test_audits_ask_the_function_itself(self) -> None:
        for verdict, function in (
            ("lossless", otm.RecursiveRejection().title),
            ("not lossless", "trusting"),
        ):
            audit = otm.audit.exact(
                otm.from_callable(
                    {"trusting": trusting}.get(function, _lossless), law=otm.IID(1), name=function
                ),
                problem(1),
            )
            assert (audit.verdict, audit.method, audit.name) == (verdict, "traced", function)
        battery = otm.audit.exact_battery(
            otm.from_callable(trusting, law=otm.TopK(1)), shrink_for=0.0
        )
        assert battery.verdict == "not lossless"
        sampled = otm.audit.sampled(
            otm.from_callable(trusting), problem(1), rng=np.random.default_rng(0)
        )
        assert sampled.verdict == "not lossless"

    def test_compare_shows_it_beside_the_others(self) -> None:
        rows = otm.compare(
            draft=DRAFT,
            target=TARGET,
            verifiers=[otm.Maximal(), otm.from_callable(_lossless)],
            laws=[otm.IID],
            k=[1],
            samples=0,
        ).rows
        assert rows[1].exact == pytest.approx(rows[0].exact, abs=1e-14)
        assert "_lossless" in str(rows[1].verifier)

    @pytest.mark.parametrize("by", ["membership", "rule"])
    def test_eight_drafts_are_exact(self, by: Any) -> None:
        mine, eight = otm.from_callable(recursive), problem(8)
        exact = otm.acceptance(otm.RecursiveRejection(), eight, by=by)
        assert otm.acceptance(mine, eight, by=by) == pytest.approx(exact, abs=1e-13)
        assert otm.lossy.output_law(mine, eight) == pytest.approx(TARGET, abs=1e-13)
        audit = otm.audit.exact(recursive, eight)
        assert (audit.verdict, audit.method) == ("lossless", "traced")
        assert (audit.membership if by == "membership" else audit.rule) == pytest.approx(
            exact, abs=1e-13
        )

    def test_eight_drafts_that_are_all_looked_at_are_estimated(self) -> None:
        calls = []

        def every(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
            calls.append(1)
            return recursive(draft, target, [int(x) for x in drafts], uniforms)

        mine, eight = otm.from_callable(every), problem(8)
        with pytest.raises(
            otm.errors.TooLarge,
            match=r"65,536 draft sequences \(it goes too many ways: .*; otm\.estimate gives",
        ):
            otm.acceptance(mine, eight)
        before = len(calls)
        with pytest.raises(otm.errors.TooLarge):
            otm.coupling(mine, eight)
        assert len(calls) == before  # what cannot be followed is not tried again
        with pytest.raises(otm.errors.TooLarge, match=r"otm\.audit\.sampled a verdict"):
            otm.audit.exact(lambda p, q, drafts, u: int(float(u[0]) * 4), problem(8))
        found = otm.estimate(mine, problem(8), samples=500, rng=np.random.default_rng(0))
        assert found.low <= otm.acceptance(otm.RecursiveRejection(), problem(8)) <= found.high

    def test_only_what_can_be_drafted_counts(self) -> None:
        draft = np.zeros(40)
        draft[:4] = DRAFT
        wide = otm.Problem(draft=draft, target=np.full(40, 1 / 40), law=otm.IID(3))
        assert wide.law.num_sequences(40) > MOST_SEQUENCES
        assert otm.acceptance(otm.from_callable(trusting), wide) == pytest.approx(1.0, abs=1e-14)


def _lossless(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[int, bool]:
    return recursive(draft, target, drafts[:1], uniforms)


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (1.0, "it returned 1.0"),
            (None, "None"),
            ([0, True], r"\[0, True\]"),
            (9, r"outside \[0, 4\)|it returned 9"),
        ],
        ids=repr,
    )
    def test_what_is_no_token_is_said(self, answer: Any, message: str) -> None:
        mine = otm.from_callable(lambda p, q, drafts, u: answer)
        for ask in (
            lambda: otm.acceptance(mine, problem(1)),
            lambda: otm.estimate(mine, problem(1), samples=2, rng=np.random.default_rng(0)),
        ):
            with pytest.raises(CandidateFailure, match=message):
                ask()

    @pytest.mark.parametrize("flag", ["False", 0.3, float("nan"), -1, 2])
    def test_what_is_no_flag_is_said(self, flag: Any) -> None:
        with pytest.raises(otm.errors.OtmError, match="True or False"):
            otm.acceptance(
                otm.from_callable(lambda p, q, d, u: (0, flag), law=otm.IID(1)),
                otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)),
            )

    def test_a_flag_given_now_and_then(self) -> None:
        """Where it is missing a drafted token counts as accepted, exactly and in samples, whatever
        else is in the batch.
        """

        def mixed(draft: Any, target: Any, drafts: Any, uniforms: Any) -> Any:
            return (0, False) if drafts[0] == 0 else int(drafts[0])

        verifier = otm.from_callable(mixed, law=otm.IID(1))
        problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
        exact = otm.acceptance(verifier, problem, by="rule")
        found = otm.estimate(
            verifier,
            problem,
            samples=2_000,
            rng=np.random.default_rng(0),
            by="rule",
            confidence=1 - 1e-9,
        )  # false alarm 1e-9
        assert exact == pytest.approx(0.25, abs=1e-12)
        assert found.low <= exact <= found.high < 0.5

    def test_scalars_of_any_kind_and_a_list_of_one(self) -> None:
        import torch

        for answer in (np.int32(0), [0], torch.tensor(0), (torch.tensor([0]), torch.tensor(True))):
            mine = otm.from_callable(lambda p, q, drafts, u, answer=answer: answer)
            assert otm.acceptance(mine, problem(1)) == pytest.approx(DRAFT[0], abs=1e-14)

    def test_what_cannot_be_followed_to_the_end_is_no_exact_number(self) -> None:
        mine = otm.from_callable(lambda p, q, drafts, u: int(u[0] * u[1] < 0.3))
        with pytest.raises(
            otm.errors.TooLarge, match=r"known to .* only, not exactly; otm\.estimate"
        ):
            otm.acceptance(mine, problem(1))

    @pytest.mark.parametrize("law", [2, (), "IID", (otm.IID, 3), otm.KSeq], ids=repr)
    def test_law(self, law: Any) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter, match=r"law must be a draft law such as otm\.IID"
        ):
            otm.from_callable(trusting, law=law)

    def test_names(self) -> None:
        mine = otm.from_callable(
            trusting, law=(otm.IID, otm.TopK(2)), name="mine", num_uniforms=lambda k, V: 7
        )
        assert (str(mine), repr(mine)) == ("mine", "from_callable(mine, law=(IID, TopK(k=2)))")
        assert otm.prepare(mine, problem(1)).num_uniforms == 7
        assert unwrapped(mine).verify is trusting
        with pytest.raises(otm.errors.InvalidParameter, match="function verify"):
            otm.from_callable(otm.KSeq())  # type: ignore[arg-type]
