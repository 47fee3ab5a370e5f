"""The table of schemes: its rows, its print, its refusals."""

import contextlib
import dataclasses
import re

import numpy as np
import pytest

import otm
from otm import (
    IID,
    KSeq,
    Lenience,
    Maximal,
    RecursiveRejection,
    TransportPlan,
    WithoutReplacement,
    compare,
)
from otm.comparison import comparing
from otm.comparison.comparing import DEFAULT_SAMPLES
from otm.comparison.result import Comparison, ComparisonRow, _curves
from tests import instances
from tests.tolerance import CERTIFIED_GAP

PAIR = {"draft": [0.5, 0.3, 0.2], "target": [0.2, 0.2, 0.6]}
MIXED = (Lenience(0.5), otm.ThresholdMatching())
QUADRATURE = 2e-12  # what the values of races are accurate to (otm/races.py)
SCHEMES = [Maximal(), KSeq(), RecursiveRejection(), TransportPlan()]
PLANS = [make for make in otm.verifiers.VERIFIERS if make.is_plan]
BOUNDED = [make() for make in otm.verifiers.VERIFIERS if make.proven_lower]


def small(*verifiers, k=(1, 2), **more):
    """Compare these under i.i.d. drafts, without samples; all verifiers if none is named."""
    named = {"verifiers": verifiers} if verifiers else {}
    return compare(**{**PAIR, "laws": [IID], "k": k, "samples": 0, **named, **more})


def problem(k):
    return otm.Problem(law=IID(k), **PAIR)


def test_every_cell_is_what_the_single_functions_say():
    table = small(*SCHEMES, k=(1, 2, 4), samples=2000, rng=np.random.default_rng(0))
    assert [(row.law, row.verifier) for row in table.rows] == [
        (IID(k), verifier) for k in (1, 2, 4) for verifier in SCHEMES if verifier.supports(IID(k))
    ]
    for row, record in zip(table.rows, table.records(), strict=True):
        one = otm.Problem(law=row.law, **PAIR)
        assert row.exact == pytest.approx(otm.acceptance(row.verifier, one), abs=1e-15)
        assert row.optimum == pytest.approx(otm.optimal_acceptance(one), abs=1e-15)
        assert row.gap == pytest.approx(max(0.0, row.optimum - row.exact), abs=1e-15)
        assert row.lower == (
            pytest.approx(otm.bounds.kseq_lower(one)) if row.verifier == KSeq() else None
        )
        assert row.monte_carlo is not None and row.monte_carlo.samples == 2000
        assert [*record.values()] == [
            *(repr(row.law), repr(row.verifier), row.law.size, row.exact, row.lower, row.optimum),
            *(row.frontier, row.gap, None, None),
            *(row.monte_carlo.value, row.monte_carlo.low, row.monte_carlo.high, ""),
        ]
    assert table == small(*SCHEMES, k=(1, 2, 4), samples=2000, rng=np.random.default_rng(0))
    # where everything is printed
    lines = re.findall(r"^\d  .*", str(dataclasses.replace(table, full=True)), re.MULTILINE)
    for row, line in zip(table.rows, lines, strict=True):
        assert line.endswith(f"{row.monte_carlo.low:.4f}–{row.monte_carlo.high:.4f}")


def test_lossy_rows_are_held_against_the_frontier_at_their_own_distance():
    first, *rows = small(Maximal(), otm.Mentored(0.05), Lenience(0.5), k=(1,)).rows
    assert first.distortion is None and first.frontier == first.optimum
    for row in rows:
        assert row.distortion == otm.lossy.distortion(row.verifier, problem(1))
        assert row.frontier == pytest.approx(
            otm.lossy.tv_frontier(problem(1), tv=row.distortion.total_variation), abs=1e-15
        )
        assert row.gap == pytest.approx(max(0.0, row.frontier - row.exact), abs=1e-15)
        assert row.exact > row.optimum


def test_samples_are_drawn_where_no_value_is_known_unless_asked_for():
    wide = {"draft": otm.examples.zipf(60), "target": otm.examples.uniform(60), "samples": None}
    table = small(otm.SelectThenReject(), otm.Tournament(), KSeq(), k=(4,), **wide)
    plan, tournament, kseq = table.rows
    assert kseq.exact is not None and kseq.monte_carlo is None
    # what needs a program cannot be sampled either
    assert plan.exact is None and plan.monte_carlo is None and plan.gap is None
    assert plan.optimum == kseq.optimum
    assert tournament.exact is None and tournament.monte_carlo.samples == DEFAULT_SAMPLES
    text = str(table)
    assert f"≈{tournament.monte_carlo.value:.4f}" in text
    assert re.search("select, then reject +—", text)
    assert "— select, then reject, i.i.d., k = 4: " in text
    assert "≈: by Monte Carlo, where no exact value was computed; full=True shows" in text


def test_plans_are_the_verifiers_without_a_rule_beyond_the_enumeration():
    """IID(2) has 9 million sequences at V = 3000, its greedy drafts 2,999: only what enumerates
    the former is refused.
    """
    wide = otm.Problem(draft=otm.examples.zipf(3000), target=otm.examples.uniform(3000), law=IID(2))
    for make in filter(lambda make: make().supports(wide.law), otm.verifiers.VERIFIERS):
        too_large = pytest.raises(otm.errors.TooLarge) if make.is_plan else contextlib.nullcontext()
        with too_large:
            otm.prepare(make(), wide)
    for make in PLANS:
        assert otm.acceptance(make(), problem(2)) == pytest.approx(
            otm.optimal_acceptance(problem(2)), abs=CERTIFIED_GAP
        )


@pytest.mark.parametrize("verifier", BOUNDED, ids=repr)
def test_proven_bounds_hold_under_every_law(verifier):
    bound = getattr(otm.bounds, verifier.proven_lower)
    checked = 0
    for law in filter(verifier.supports, instances.laws()):
        for name, one in instances.named_problems(law):
            low = float(bound(one))
            assert -1e-15 <= low <= otm.acceptance(verifier, one) + QUADRATURE, (law, name)
            checked += low > 0.1
    assert checked > 10  # the bounds say something on most of these


def test_a_new_bound_is_one_attribute(monkeypatch):
    monkeypatch.setattr(otm.bounds, "eighth_lower", lambda problem: 0.125, raising=False)
    monkeypatch.setattr(RecursiveRejection, "proven_lower", "eighth_lower")
    table = small(RecursiveRejection(), KSeq(gamma=4.0), k=(2,))
    # the bound of KSeq() is not one for another γ
    assert [row.lower for row in table.rows] == [0.125, None]


PRINTED = """\
drafts: i.i.d.             k = 1      k = 2
──────────────────────  ─────────  ─────────
optimum                 0.600000   0.760000
gap of the best         0.000000   0.051938
──────────────────────  ─────────  ─────────
K-SEQ                   0.600000★  0.708062★
recursive rejection     0.600000★  0.680000
single-draft rejection  0.600000★

lossy, drafts: i.i.d.                               k  acceptance  frontier        TV  KL (nats)
──────────────────────────────────────────────────  ─  ──────────  ────────  ────────  ─────────
lenience (lenience = 0.5)                           1    0.900000  0.900000  0.300000   0.196166
sample and match with thresholds (single = 0.5, a…  1    0.400000  0.650000  0.050000   0.005642
… sample and match with thresholds (single = 0.5, accumulated = 0.8)

frontier: min(1, optimum + TV), which no scheme of this TV exceeds.
left out: lenience (lenience = 0.5) for drafts i.i.d. (k = 2), which it does not verify
left out: sample and match with thresholds (single = 0.5, accumulated = 0.8) for drafts i.i.d. (k =
  2), which it does not verify
left out: single-draft rejection for drafts i.i.d. (k = 2), which it does not verify"""

WHOLE = """\
k  drafts: i.i.d.          accepted   optimum       gap  proven ≥  99.9 % MC
─  ──────────────────────  ────────  ────────  ────────  ────────  ─────────
1  single-draft rejection  0.600000  0.600000  0.000000
1  K-SEQ                   0.600000  0.600000  0.000000  0.600000
1  recursive rejection     0.600000  0.600000  0.000000
─  ──────────────────────  ────────  ────────  ────────  ────────  ─────────
2  K-SEQ                   0.708062  0.760000  0.051938  0.600000
2  recursive rejection     0.680000  0.760000  0.080000

k  lossy, drafts: i.i.d.                          accepted  frontier  TV      KL      99.9 % MC
─  ─────────────────────────────────────────────  ────────  ────────  ──────  ──────  ─────────
1  lenience (lenience = 0.5)                      0.900000  0.900000  0.3000  0.1962
1  sample and match with thresholds (single = 0…  0.400000  0.650000  0.0500  0.0056
… sample and match with thresholds (single = 0.5, accumulated = 0.8)
"""


def test_it_prints_a_matrix_the_lossy_apart_or_every_figure_of_every_row():
    table = small(*SCHEMES[:3], *MIXED)
    assert str(table) == PRINTED
    whole = str(dataclasses.replace(table, full=True))
    assert whole == WHOLE + PRINTED[PRINTED.index("\nfrontier") :]
    assert "frontier" not in str(small(KSeq()))
    # on pages every name is whole, and what is said below is said there, too
    for page in (table.to_latex(), table._repr_html_()):
        assert str(MIXED[1]) in page and "frontier: min(1, optimum + TV)" in page
    assert repr(table) == "Comparison(7 rows: 5 verifiers, 1 laws, k = 1, 2)"


def test_by_default_every_verifier_appears_and_no_row_twice():
    pair = {"draft": [0.4, 0.3, 0.2, 0.1], "target": [0.1, 0.2, 0.3, 0.4]}
    table = compare(**pair, k=(1, 2, 2), samples=40)
    everywhere = {make for make in otm.verifiers.VERIFIERS if make.equivariant}
    assert {type(row.verifier) for row in table.rows} == everywhere
    rows = [(row.law, row.verifier) for row in table.rows]
    assert len(set(rows)) == len(rows)
    laws = dict(rows)
    # one draft without replacement is an i.i.d. one, the likeliest token is not
    assert otm.WithoutReplacement(1) not in laws and otm.TopK(1) in laws
    assert all(row.exact <= row.optimum + 1e-9 for row in table.rows if row.verifier.lossless)
    alike, placed, unfit = table.left_out
    assert "places: LANTERN (delta = 0.1), action distance (distance = 9); verifiers=" in placed
    assert alike.endswith("i.i.d. there: without replacement, greedy, threshold race")
    assert "do not fit" in unfit
    for shown in (table, dataclasses.replace(table, full=True)):
        *blocks, _ = str(shown).split("\n\n")
        assert max(map(len, str(shown).splitlines())) <= 100
        for block in blocks:
            lines = [line for line in block.splitlines() if not line.startswith("─")]
            assert len(set(lines)) == len(lines)


def test_on_a_large_vocabulary_what_takes_more_than_a_sort_is_left_out_by_name(
    monkeypatch,
):
    monkeypatch.setattr(comparing, "_MOST_TOKENS_BY_DEFAULT", 3)
    pair = {"draft": [0.4, 0.3, 0.2, 0.1], "target": [0.1, 0.2, 0.3, 0.4]}
    table = compare(**pair, k=(1, 2))
    rows = {(type(row.law), type(row.verifier)) for row in table.rows}
    fast = {
        (make, kind)
        for kind in otm.verifiers.VERIFIERS
        for make in otm.drafts.SINGLE_DRAFTER_LAWS
        if comparing._is_a_column(kind(), make)
    }
    assert rows == fast and (otm.IID, otm.KSeq) in rows and (otm.Greedy, otm.SpecHub) in rows
    assert (otm.IID, otm.ListRace) not in rows  # its column is by rule
    told = [note for note in table.left_out if "at 4 tokens" in note]
    (independent,) = (note for note in told if "for drafts IID " in note)
    assert "transport plan" in independent and "list race" in independent
    assert len(told) == len(otm.drafts.SINGLE_DRAFTER_LAWS)
    named = compare(**pair, k=2, verifiers=[otm.ListRace()], laws=[otm.IID])
    assert [type(row.verifier) for row in named.rows] == [otm.ListRace] and not named.left_out


def test_what_takes_seconds_is_left_out_by_name_and_nothing_at_twenty_tokens():
    rng = np.random.default_rng(0)
    slow = (otm.Race, WithoutReplacement), (otm.WithoutReplacementOptimal, WithoutReplacement)
    for size, gone in ((20, ()), (2_100, (*slow, (otm.Tournament, IID)))):
        p, q = rng.dirichlet(np.ones(size), 2)
        table = compare(draft=p, target=q, k=(2,), samples=0)
        pairs = {(type(row.verifier), type(row.law)) for row in table.rows}
        left = " ".join(note for note in table.left_out if f"at {size:,} tokens" in note)
        for kind, law in (*slow, (otm.Tournament, IID)):
            assert ((kind, law) not in pairs) == ((kind, law) in gone)
            assert (str(kind()) in left) == ((kind, law) in gone)


def test_schemes_that_agree_share_a_row_unless_they_were_named():
    text = str(small())
    lines = text.splitlines()
    # of equals the one that is called optimal stands for the others
    assert any(line.startswith("optimal  ") for line in lines)
    assert any(line.startswith("K-SEQ  ") for line in lines)  # it agrees for one draft alone
    equal = [line.split(" = ") for line in lines]
    assert any({"naive tree", "recursive rejection"} <= set(names) for names in equal)
    # one that takes a single draft agrees there
    assert "single-draft rejection (k = 1)" in " ".join(text.split())
    assert not any(line.startswith("transport plan ") for line in lines)
    assert "transport plan  " in str(small(otm.Optimal(), TransportPlan()))


def test_a_scheme_that_accepts_less_of_more_drafts_says_what_limits_it():
    pair = {"draft": otm.examples.zipf(5), "target": otm.examples.uniform(5), "k": (1, 2, 4)}
    said = (
        "— tournament (tokens = 3), i.i.d.: accepts less of 4 drafts than of 2: tokens = 3 may "
        "be why, the optimum never falls."
    )
    assert said in " ".join(str(small(otm.Tournament(3), KSeq(), **pair)).split())
    assert "accepts less" not in str(small(otm.Tournament(5), KSeq(), **pair))


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (
            {"verifiers": [Maximal()], "laws": [IID], "k": [2, 4]},
            otm.errors.Unsupported,
            r"Maximal\(\) does not verify drafts drawn by IID\(k=2\).*Choose",
        ),
        ({"verifiers": [Maximal()], "k": [2]}, otm.errors.Unsupported, r"Maximal\(\)"),
        (
            {"verifiers": [KSeq()], "laws": [IID, otm.TopK], "k": [2]},
            otm.errors.Unsupported,
            r"KSeq\(.*\) does not verify drafts drawn by TopK\(k=2\)",
        ),
        ({"verifiers": []}, otm.errors.InvalidParameter, "at least one verifier and one law"),
        ({"laws": []}, otm.errors.InvalidParameter, "at least one verifier and one law"),
        ({"k": [1, 2.5]}, otm.errors.InvalidParameter, "k must be an integer"),
        ({"k": []}, otm.errors.InvalidParameter, "k must name at least one"),
        ({"samples": True}, otm.errors.InvalidParameter, "samples must be an integer of at least"),
        ({"samples": -1}, otm.errors.InvalidParameter, "samples must be an integer of at least"),
        ({"draft": [[1.0, 0, 0]] * 2}, otm.errors.ShapeMismatch, r"otm\.compare needs one pair"),
        ({"laws": [otm.WithoutReplacement], "k": [4]}, otm.errors.InvalidParameter, "k ≤ V"),
    ],
)
def test_what_is_refused(asked, error, said):
    with pytest.raises(error, match=said):
        compare(**{**PAIR, **asked})


def test_laws_that_do_not_fit_are_left_out_unless_named():
    assert {type(row.law) for row in compare(**PAIR, verifiers=[KSeq()], k=[2]).rows} == {IID}
    table = compare(**PAIR, k=[4], samples=0)
    assert {type(row.law) for row in table.rows} == {
        law
        for law in otm.drafts.SINGLE_DRAFTER_LAWS
        if not issubclass(law, otm.drafts.base.DistinctDrafts)
    }


def test_a_lossy_scheme_that_cannot_be_enumerated_has_no_distance():
    """One from outside, without a closed law: its acceptance stands, its distance is unknown."""

    class Outside(otm.KSeq):
        lossless = False

    draft, target = np.random.default_rng(0).dirichlet(np.ones(4096), size=2)
    wide = {"draft": draft, "target": target, "k": (2,)}
    (row,) = small(Outside(), **wide).rows
    assert row.distortion is None
    assert row.exact == small(KSeq(), **wide).rows[0].exact


def test_a_scheme_that_promises_nothing_stands_where_it_is_found():
    def keeping(draft, target, drafts, uniforms):
        return int(drafts[0]) if uniforms[0] * draft[drafts[0]] < target[drafts[0]] else 1

    def trusting(draft, target, drafts, uniforms):
        return int(drafts[0])

    pair = {"draft": [0.75, 0.25], "target": [0.5, 0.5], "k": (1,)}
    kept, lossy, _ = str(small(*map(otm.from_callable, (keeping, trusting)), **pair)).split("\n\n")
    assert "keeping, lossless here" in kept and "keeping" not in lossy
    assert "trusting" in lossy and "trusting" not in kept


def test_nothing_is_best_beside_a_sampled_scheme_that_may_be_better():
    rng = np.random.default_rng(0)
    draft, other = rng.dirichlet(np.full(400, 0.3), size=2)
    sides = {"draft": draft, "target": 0.5 * other + 0.5 * draft, "k": (1, 4), "samples": 400}
    table = small(RecursiveRejection(), otm.Naive(), **sides, laws=[otm.WithoutReplacement])
    gap, sampled, naive = (
        next(line for line in str(table).splitlines() if line.startswith(name))
        for name in ("gap", "recursive", "naive")
    )
    assert "≈" in sampled and "★" not in naive.split()[-1]
    *_, row, exact = table.rows
    largest = max(row.monte_carlo.value, exact.exact)
    assert gap.split()[-1] == f"≈{max(0.0, row.optimum - largest):.4f}"


def eager(draft, target, drafts, uniforms):
    """Recursive rejection without an update of the residual: lossless with one draft alone."""
    for x, u in zip(drafts, uniforms, strict=False):
        if u * draft[x] < target[x]:
            return x, True
    residual = np.maximum(target - draft, 0)
    x = np.searchsorted(np.cumsum(residual / residual.sum()), uniforms[-1], side="right")
    return int(x), False


MINE = otm.from_callable(eager, name="eager")


def test_a_rule_of_ones_own_is_lossless_only_where_that_is_known():
    p, q = np.random.default_rng(0).dirichlet(np.ones(100), 2)
    given = {"laws": [otm.IID], "k": (1, 2), "verifiers": [MINE, otm.Optimal()], "samples": 0}
    table = otm.compare(draft=p, target=q, **given)
    lossless, others = str(table).split("lossy", 1)
    assert "eager" not in lossless
    assert "whether it is lossless is not known at k = 2" in " ".join(others.split())
    assert "lossless here" not in table.to_latex()


def test_more_than_the_certified_optimum_proves_a_loss():
    text = " ".join(str(Comparison((a_row(MINE, None, 0.8), a_row(otm.Optimal(), 0.6)))).split())
    assert "accepts more than any lossless scheme at k = 2: it is lossy" in text


def a_row(verifier, exact, sampled=None, k=2):
    interval = sampled and otm.results.statistics.Estimate(sampled, sampled - 0.1, 1.0, 100, 0.999)
    return ComparisonRow(otm.IID(k), verifier, exact, None, 0.6, interval)


def test_samples_never_stand_above_the_certified_optimum():
    rows = a_row(otm.RecursiveRejection(), None, 0.7), a_row(otm.Optimal(), 0.6)
    text = str(Comparison(rows))
    assert text.index("optimal") < text.index("recursive rejection")
    assert "0.600000★" in text
    assert "≈0.6000" in text
    assert Comparison(rows)._tables()[0].rows[1][1] == 0.0  # the gap of the best is exact


def test_a_curve_is_named_by_schemes_that_are_that_curve():
    """The plan of transport is known at k = 1 alone, where it meets the naive tree."""
    rows = [a_row(otm.NaiveTree(), 0.5, k=k) for k in (1, 2)]
    lines = _curves([*rows, a_row(otm.TransportPlan(), 0.5, k=1)], [1, 2])
    assert [line.label for line in lines] == ["naive tree", "transport plan"]
