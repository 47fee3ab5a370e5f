"""The table of schemes: its rows, its print, its refusals."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

import otm
from otm import (
    IID,
    KSeq,
    Lenience,
    Maximal,
    Mentored,
    Problem,
    RecursiveRejection,
    TransportPlan,
    compare,
)
from otm.comparison.comparing import DEFAULT_SAMPLES
from tests import instances
from tests.tolerance import CERTIFIED_GAP

DRAFT, TARGET = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
QUADRATURE = 2e-12  # what the values of races are accurate to (otm/races.py)
SCHEMES = [Maximal(), KSeq(), RecursiveRejection(), TransportPlan()]
PLANS = [make for make in otm.verifiers.VERIFIERS if make.is_plan]
BOUNDED = [make() for make in otm.verifiers.VERIFIERS if make.proven_lower]


@pytest.fixture(scope="module")
def table() -> otm.comparison.Comparison:
    return compare(
        draft=DRAFT,
        target=TARGET,
        verifiers=SCHEMES,
        laws=[IID],
        k=(1, 2, 4),
        samples=2000,
        rng=np.random.default_rng(0),
    )


class TestRows:
    def test_one_row_per_supported_triple(self, table: otm.comparison.Comparison) -> None:
        found = [(row.law, row.verifier) for row in table.rows]
        assert found == [(IID(k), v) for k in (1, 2, 4) for v in SCHEMES if v.supports(IID(k))]
        assert len(found) == 10

    def test_every_cell_is_what_the_single_functions_say(
        self, table: otm.comparison.Comparison
    ) -> None:
        for row in table.rows:
            problem = otm.Problem(draft=DRAFT, target=TARGET, law=row.law)
            assert row.exact == pytest.approx(otm.acceptance(row.verifier, problem), abs=1e-15)
            assert row.optimum == pytest.approx(otm.optimal_acceptance(problem), abs=1e-15)
            assert row.gap == pytest.approx(max(0.0, row.optimum - row.exact), abs=1e-15)
            assert row.monte_carlo is not None
            assert row.monte_carlo.samples == 2000
            assert row.lower == (
                pytest.approx(otm.bounds.kseq_lower(problem)) if row.verifier == KSeq() else None
            )
            assert row.note == ""

    def test_records_hold_the_same(self, table: otm.comparison.Comparison) -> None:
        records = table.records()
        assert len(records) == len(table.rows)
        for record, row in zip(records, table.rows, strict=True):
            assert record["k"] == row.law.k
            assert record["verifier"] == repr(row.verifier)
            assert (record["exact"], record["optimum"], record["gap"]) == (
                row.exact,
                row.optimum,
                row.gap,
            )
            assert record["monte_carlo_low"] <= record["monte_carlo"] <= record["monte_carlo_high"]

    def test_the_same_generator_gives_the_same_table(self) -> None:
        left, right = (
            compare(
                draft=DRAFT,
                target=TARGET,
                verifiers=[KSeq()],
                laws=[IID],
                k=[2],
                samples=100,
                rng=np.random.default_rng(7),
            )
            for _ in range(2)
        )
        assert left == right

    def test_samples_are_drawn_where_no_value_is_known_unless_asked_for(self) -> None:
        pair = {
            "draft": otm.examples.zipf(60),
            "target": otm.examples.uniform(60),
            "laws": [IID],
            "k": [4],
        }
        named = {"verifiers": [otm.SelectThenReject(), otm.Tournament(), KSeq()]}
        plan, tournament, kseq = compare(**pair, **named).rows
        assert kseq.exact is not None and kseq.monte_carlo is None
        # what needs a program cannot be sampled either
        assert plan.exact is None and plan.monte_carlo is None
        assert tournament.exact is None and tournament.monte_carlo.samples == DEFAULT_SAMPLES
        shown = str(compare(**pair, **named))
        assert f"≈{tournament.monte_carlo.value:.4f}" in shown

    def test_without_samples_there_is_no_monte_carlo(self) -> None:
        (row,) = compare(
            draft=DRAFT, target=TARGET, verifiers=[KSeq()], laws=[IID], k=[2], samples=0
        ).rows
        assert row.monte_carlo is None
        assert (
            compare(
                draft=DRAFT, target=TARGET, verifiers=[KSeq()], laws=[IID], k=[2], samples=0
            ).records()[0]["monte_carlo"]
            is None
        )

    def test_torch_tensors_and_a_row_of_float32(self) -> None:
        import torch

        (row,) = compare(
            draft=torch.tensor(DRAFT),
            target=torch.tensor(TARGET),
            verifiers=[KSeq()],
            laws=[IID],
            k=[2],
            samples=10,
        ).rows
        assert row.exact == pytest.approx(
            otm.acceptance(KSeq(), otm.Problem(draft=DRAFT, target=TARGET, law=IID(2))), abs=2e-5
        )


class TestDefaults:
    def test_they_cover_the_registries_and_never_raise(self) -> None:
        # Small k for the slow laws; every registered verifier appears with some law.
        table = compare(
            draft=DRAFT, target=TARGET, k=(1, 2), samples=50, rng=np.random.default_rng(0)
        )
        assert {type(row.verifier) for row in table.rows} == set(otm.verifiers.VERIFIERS)
        assert str(table)
        for row in table.rows:
            if row.verifier.lossless and row.gap is not None:
                assert row.exact <= row.optimum + 1e-9
        (note,) = table.left_out
        assert "do not fit" in note  # what the caller did not name is left out silently


class TestRegistries:
    def test_plans_are_the_verifiers_without_a_rule_beyond_the_enumeration(self) -> None:
        """IID(2) has 9 million sequences at V = 3000, its greedy drafts 2,999: only what enumerates
        the former is refused.
        """
        V = 3000
        problem = otm.Problem(
            draft=otm.examples.zipf(V), target=otm.examples.uniform(V), law=IID(2)
        )
        refused = set()
        for make in otm.verifiers.VERIFIERS:
            if make().supports(problem.law):
                try:
                    otm.prepare(make(), problem)
                except otm.errors.TooLarge:
                    refused.add(make)
        assert refused == set(PLANS)

    def test_the_value_of_a_plan_is_the_optimum(self) -> None:
        problem = otm.Problem(draft=DRAFT, target=TARGET, law=IID(2))
        for make in PLANS:
            assert otm.acceptance(make(), problem) == pytest.approx(
                otm.optimal_acceptance(problem), abs=CERTIFIED_GAP
            )

    @pytest.mark.parametrize("verifier", BOUNDED, ids=repr)
    def test_proven_bounds_hold_under_every_law(self, verifier: otm.Verifier) -> None:
        bound = getattr(otm.bounds, verifier.proven_lower)
        checked = 0
        for law in filter(verifier.supports, instances.laws()):
            for name, problem in instances.named_problems(law):
                low = float(bound(problem))
                assert -1e-15 <= low <= otm.acceptance(verifier, problem) + QUADRATURE, (law, name)
                checked += low > 0.1
        assert checked > 10  # the bounds say something on most of these

    def test_a_new_bound_is_one_attribute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(otm.bounds, "eighth_lower", lambda problem: 0.125, raising=False)
        monkeypatch.setattr(RecursiveRejection, "proven_lower", "eighth_lower")
        table = compare(
            draft=DRAFT,
            target=TARGET,
            verifiers=[RecursiveRejection(), KSeq(gamma=4.0)],
            laws=[IID],
            k=[2],
            samples=0,
        )
        # the bound of KSeq() is not one for another γ
        assert [row.lower for row in table.rows] == [
            0.125,
            None,
        ]


def blocks(table: otm.comparison.Comparison) -> list[list[str]]:
    """The printed tables, each as its lines; the remarks at the end are one more."""
    return [block.splitlines() for block in str(table).split("\n\n")]


class TestPrint:
    def test_columns_are_aligned(self, table: otm.comparison.Comparison) -> None:
        for shown in (table, dataclasses.replace(table, full=True)):
            lines = blocks(shown)[0]
            spans = [match.span() for match in re.finditer("─+", lines[1])]
            assert len(spans) == (7 if shown.full else 4)
            for line in [lines[0], *lines[2:]]:
                padded = line.ljust(len(lines[1]))
                assert len(padded) == len(lines[1])
                for (_, end), (start, _) in itertools.pairwise(spans):
                    assert padded[end:start] in ("  ", "──"), line

    def test_the_matrix_holds_the_numbers_and_marks_the_best(
        self, table: otm.comparison.Comparison
    ) -> None:
        head, _, optimum, gap, _, *lines = blocks(table)[0]
        assert re.split("  +", head) == ["drafts: i.i.d.", "k = 1", "k = 2", "k = 4"]
        best = {row.law.k: row.optimum for row in table.rows}
        assert re.split("  +", optimum) == ["optimum", *(f"{best[k]:.6f}" for k in (1, 2, 4))]
        assert re.split("  +", gap) == ["gap of the best", *["0.000000"] * 3]  # a plan attains it
        assert len(lines) == len(SCHEMES)
        for verifier in SCHEMES:
            line = next(line for line in lines if line.startswith(f"{verifier}  "))
            for row in (row for row in table.rows if row.verifier == verifier):
                assert f"{row.exact:.6f}{'★' * (row.gap < 1e-9)}" in line
        assert lines[0].startswith("transport plan")  # the best first

    def test_everything_is_printed_where_it_is_asked_for(
        self, table: otm.comparison.Comparison
    ) -> None:
        text = str(dataclasses.replace(table, full=True))
        for row in table.rows:
            assert row.gap is not None and row.monte_carlo is not None
            line = next(
                x
                for x in text.splitlines()
                if x.split()[:1] == [str(row.law.k)] and f"  {row.verifier}  " in x
            )
            for number in (row.exact, row.optimum, row.gap):
                assert f"{number:.6f}" in line
            assert f"{row.monte_carlo.low:.4f}–{row.monte_carlo.high:.4f}" in line
            if row.lower is not None:
                assert f"{row.lower:.6f}" in line

    def test_a_rule_separates_numbers_of_drafts_where_everything_is_printed(
        self, table: otm.comparison.Comparison
    ) -> None:
        lines = blocks(dataclasses.replace(table, full=True))[0]
        assert [i for i, line in enumerate(lines) if line.startswith("─")] == [
            1,
            2 + 4,
            2 + 4 + 1 + 3,
        ]

    def test_it_fits_a_hundred_columns_and_no_row_stands_twice(self) -> None:
        for full in (False, True):
            table = compare(
                draft=[0.4, 0.3, 0.2, 0.1],
                target=[0.1, 0.2, 0.3, 0.4],
                k=(1, 2, 2),
                samples=40,
                full=full,
            )
            assert max(map(len, str(table).splitlines())) <= 100
            rows = [(row.law, row.verifier) for row in table.rows]
            assert len(set(rows)) == len(rows)
            for block in blocks(table)[:-1]:
                lines = [line for line in block if not line.startswith("─")]
                assert len(set(lines)) == len(lines)
        assert not any(
            isinstance(row.law, otm.WithoutReplacement) and row.law.k == 1 for row in table.rows
        )

    def test_schemes_that_agree_share_a_row_unless_they_were_named(self) -> None:
        pair = {"draft": DRAFT, "target": TARGET, "k": (1, 2), "laws": [IID], "samples": 0}
        text = str(compare(**pair))
        assert "optimal = " in text and "= transport plan" in text
        assert not any(line.startswith("transport plan ") for line in text.splitlines())
        named = str(compare(**pair, verifiers=[otm.Optimal(), TransportPlan()]))
        assert any(line.startswith("transport plan ") for line in named.splitlines())

    def test_the_intervals_of_the_default_seed_hold_the_values(self) -> None:
        """On the README's pair; one in ten seeds has an interval that does not."""
        zipf = otm.examples.zipf(8)
        table = compare(draft=zipf, target=zipf[::-1].copy(), full=True, k=(2, 4))
        sampled = [row for row in table.rows if row.exact is not None]
        assert len(sampled) > 20
        assert all(row.monte_carlo.low <= row.exact <= row.monte_carlo.high for row in sampled)
        assert str(table) == str(compare(draft=zipf, target=zipf[::-1].copy(), full=True, k=(2, 4)))

    def test_no_trailing_blanks(self, table: otm.comparison.Comparison) -> None:
        assert all(line == line.rstrip() for line in str(table).splitlines())

    def test_what_cannot_be_computed_is_a_dash_with_a_reason(self) -> None:
        V = 3000
        table = compare(
            draft=otm.examples.zipf(V),
            target=otm.examples.uniform(V),
            verifiers=[TransportPlan(), KSeq()],
            laws=[IID],
            k=[2],
            samples=10,
        )
        plan, kseq = table.rows
        assert plan.exact is None
        assert plan.gap is None
        assert plan.monte_carlo is None
        assert plan.optimum == pytest.approx(kseq.optimum)
        assert kseq.exact is not None
        text = str(table)
        assert re.search("transport plan +—", text)
        assert "limited to 4,000,000" in " ".join(text.split())
        assert "— transport plan, i.i.d., k = 2: " in text

    def test_a_scheme_that_accepts_less_of_more_drafts_says_what_limits_it(self) -> None:
        pair = {
            "draft": otm.examples.zipf(5),
            "target": otm.examples.uniform(5),
            "laws": [IID],
            "k": (1, 2, 4),
        }
        found = otm.compare(**pair, verifiers=[otm.Tournament(3), KSeq()])
        said = (
            "— tournament (tokens = 3), i.i.d.: accepts less of 4 drafts than of 2: tokens = 3 may "
            "be why"
        )
        values = {
            row.law.k: row.exact for row in found.rows if isinstance(row.verifier, otm.Tournament)
        }
        assert values[4] < values[2] and said in " ".join(str(found).split())
        assert said.replace("—", "---") in found.to_latex() and said in found._repr_html_()
        assert "accepts less" not in str(otm.compare(**pair, verifiers=[otm.Tournament(5), KSeq()]))

    def test_what_is_said_below_the_tables_is_said_on_paper_too(self) -> None:
        pair = {"draft": [0.75, 0.25], "target": [0.5, 0.5]}
        found = otm.compare(**pair, verifiers=[otm.ThresholdMatching()], laws=[IID], k=(1,))
        assert (
            "frontier: min(1, optimum + TV)" in found.to_latex()
            and "frontier: min(1, optimum + TV)" in found._repr_html_()
        )
        name = "sample and match with thresholds (single = 0.5, accumulated = 0.8)"
        assert name in found.to_latex()
        # cut in its row
        assert [line for line in str(found).splitlines() if name in line] == [f"… {name}"]

    def test_named_pairs_that_do_not_fit_are_listed(self) -> None:
        table = compare(
            draft=DRAFT,
            target=TARGET,
            verifiers=[Maximal(), KSeq()],
            laws=[IID],
            k=[1, 2],
            samples=0,
        )
        assert table.left_out == (
            "left out: single-draft rejection for drafts i.i.d. (k = 2), which it does not verify",
        )
        assert str(table).splitlines()[-1] == table.left_out[0]


class TestErrors:
    def test_a_named_pair_that_fits_for_no_k(self) -> None:
        with pytest.raises(
            otm.errors.Unsupported,
            match=r"Maximal\(\) does not verify drafts drawn by IID\(k=2\).*Choose",
        ):
            compare(draft=DRAFT, target=TARGET, verifiers=[Maximal()], laws=[IID], k=[2, 4])
        with pytest.raises(otm.errors.Unsupported, match=r"Maximal\(\)"):
            compare(draft=DRAFT, target=TARGET, verifiers=[Maximal()], k=[2])

    @pytest.mark.parametrize("empty", [{"verifiers": []}, {"laws": []}])
    def test_nothing_to_compare(self, empty: dict) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter,
            match=r"at least one verifier and one law; one list is empty\. Leave it out",
        ):
            compare(draft=DRAFT, target=TARGET, **empty)

    @pytest.mark.parametrize("bad", [[], [0], [1, 2.5], 4, [True]], ids=repr)
    def test_k(self, bad: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match=r"^k must .*Pass k="):
            compare(draft=DRAFT, target=TARGET, k=bad)  # type: ignore[arg-type]

    @pytest.mark.parametrize("bad", [-1, 2.5, True, "10"], ids=repr)
    def test_samples(self, bad: object) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter, match="samples must be an integer of at least 1; got"
        ):
            compare(draft=DRAFT, target=TARGET, samples=bad)  # type: ignore[arg-type]

    def test_distributions(self) -> None:
        with pytest.raises(otm.errors.InvalidDistribution, match="draft must sum to 1"):
            compare(draft=[0.5, 0.6], target=[0.5, 0.5])
        with pytest.raises(otm.errors.ShapeMismatch, match="share one vocabulary"):
            compare(draft=[1.0], target=[0.5, 0.5])
        with pytest.raises(otm.errors.ShapeMismatch, match=r"otm\.compare needs one pair.*\(2,\)"):
            compare(draft=[[0.5, 0.5]] * 2, target=[0.5, 0.5], verifiers=[KSeq()], laws=[IID])


class TestInTheTable:
    def test_lossy_rows_show_their_distances_and_their_gap_is_to_the_frontier(self) -> None:
        p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
        table = otm.compare(
            draft=p,
            target=q,
            verifiers=[otm.Maximal(), Mentored(0.05), Lenience(0.5)],
            laws=[IID],
            k=[1],
            samples=0,
        )
        exact_row, *rows = table.rows
        assert exact_row.distortion is None
        assert exact_row.frontier == exact_row.optimum
        for row in rows:
            problem = Problem(draft=p, target=q, law=IID(1))
            assert row.distortion == otm.lossy.distortion(row.verifier, problem)
            assert row.frontier == pytest.approx(
                otm.lossy.tv_frontier(problem, tv=row.distortion.total_variation), abs=1e-15
            )
            assert row.gap == pytest.approx(max(0.0, row.frontier - row.exact), abs=1e-15)
            assert row.exact > row.optimum
        text = str(table)
        for row in rows:
            line = next(line for line in text.splitlines() if line.startswith(f"{row.verifier}  "))
            for number in (
                row.exact,
                row.frontier,
                row.distortion.total_variation,
                row.distortion.kl,
            ):
                assert f"{number:.6f}" in line
        top, apart, remarks = text.split("\n\n")
        # no optimum stands above an acceptance that exceeds it
        assert "optimum" in top and "lenience" not in top
        assert apart.startswith("lossy, drafts: i.i.d.") and "optimum" not in apart
        assert remarks == "frontier: min(1, optimum + TV), which no scheme of this TV exceeds."
        record = table.records()[1]
        assert record["total_variation"] == rows[0].distortion.total_variation
        assert record["frontier"] == rows[0].frontier

    def test_without_lossy_rows_there_are_no_such_columns(self) -> None:
        table = otm.compare(
            draft=[0.5, 0.5],
            target=[0.4, 0.6],
            verifiers=[otm.Maximal()],
            laws=[IID],
            k=[1],
            samples=0,
        )
        assert "TV" not in str(table)
        assert "KL" not in str(table)

    def test_more_distinct_drafts_than_tokens_are_left_out_unless_named(self) -> None:
        table = otm.compare(draft=[0.5, 0.5], target=[0.4, 0.6], k=[4], samples=0)
        assert {type(row.law) for row in table.rows} == {
            law for law in otm.drafts.SINGLE_DRAFTER_LAWS if not law.distinct
        }
        with pytest.raises(otm.errors.InvalidParameter, match="k ≤ V"):
            otm.compare(
                draft=[0.5, 0.5], target=[0.4, 0.6], laws=[otm.WithoutReplacement], k=[4], samples=0
            )


def test_a_lossy_scheme_that_cannot_be_enumerated_has_no_distance() -> None:
    """One from outside, without a closed law: its acceptance stands, its distance is unknown."""

    class Outside(otm.KSeq):
        lossless = False

    rng = np.random.default_rng(0)
    draft, target = rng.dirichlet(np.ones(4096), size=2)
    (row,) = otm.compare(draft=draft, target=target, verifiers=[Outside()], k=[2], samples=0).rows
    assert row.distortion is None
    assert row.exact == pytest.approx(
        float(otm.acceptance(otm.KSeq(), otm.Problem(draft=draft, target=target, law=otm.IID(2))))
    )


def test_nothing_is_best_beside_a_sampled_scheme_that_may_be_better() -> None:
    rng = np.random.default_rng(0)
    draft = rng.dirichlet(np.full(400, 0.3))
    target = 0.5 * rng.dirichlet(np.full(400, 0.3)) + 0.5 * draft
    verifiers = [otm.RecursiveRejection(), otm.Naive()]
    text = str(
        compare(
            draft=draft,
            target=target,
            k=[1, 4],
            verifiers=verifiers,
            laws=[otm.WithoutReplacement],
            samples=400,
        )
    )
    gap, sampled, naive = (
        next(x for x in text.splitlines() if x.startswith(name))
        for name in ("gap", "recursive", "naive")
    )
    assert "≈" in gap
    assert "≈" in sampled
    assert "★" not in naive


def test_of_equals_the_one_called_optimal_stands_for_the_others() -> None:
    lines = str(
        compare(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], k=(1, 2), laws=[IID], samples=0)
    ).splitlines()
    assert any(line.startswith("optimal  ") for line in lines)
