"""Pictures: what they show is what the library says, labels are where lines end and cover none,
small ones too.
"""

import itertools
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import otm
from otm import plot
from otm._display import drawing

ZIPF = otm.examples.zipf(8)
PROBLEM = otm.Problem(draft=ZIPF, target=ZIPF[::-1].copy(), law=otm.IID(3))
SINGLE = PROBLEM.with_law(otm.IID(1))
SMALL = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=otm.IID(2))
SCHEMES = [otm.Optimal(), otm.KSeq(), otm.RecursiveRejection(), otm.NaiveTree(), otm.ListRace()]

PICTURES = {
    "curves": lambda ax: plot.curves(PROBLEM, verifiers=SCHEMES, k=[1, 2, 4], ax=ax),
    "pair": lambda ax: plot.pair(draft=ZIPF, target=ZIPF[::-1].copy(), ax=ax),
    "coupling": lambda ax: plot.coupling(otm.optimum(SMALL), ax=ax),
    "tree": lambda ax: plot.tree(otm.trees.optimal_tree([0.6, 0.25, 0.1], num_nodes=12), ax=ax),
    "overlap": lambda ax: plot.overlap(PROBLEM, ax=ax),
    "frontier": lambda ax: plot.frontier(SINGLE, ax=ax),
    "frontier by KL": lambda ax: plot.frontier(
        SINGLE, by="kl", verifiers=[otm.Lenience(), otm.Mentored()], ax=ax
    ),
}


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("size", [(5.6, 3.6), (3.2, 2.3)], ids=["full", "small"])
def test_every_picture_fits_and_no_label_covers_another(name, size):
    canvas = Figure(figsize=size, layout="constrained")
    given = canvas.subplots()
    assert PICTURES[name](given) is given
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw_without_rendering()
    page = canvas.bbox
    boxes = [Text.get_window_extent(text, renderer) for text in given.texts if text.get_text()]
    assert all(
        box.x1 <= page.x1 + 2 and box.y0 >= page.y0 - 2 and box.y1 <= page.y1 + 2 for box in boxes
    )
    assert given.get_window_extent(renderer).width > 0.25 * page.width
    if name not in ("coupling", "tree"):  # whose texts stand in cells and vertices
        for one, other in itertools.combinations(boxes, 2):
            shared = min(one.y1, other.y1) - max(one.y0, other.y0)
            assert shared < 0.5 * min(one.height, other.height) or min(one.x1, other.x1) <= max(
                one.x0, other.x0
            )


def test_curves_are_the_acceptances(ax):
    plot.curves(PROBLEM, verifiers=SCHEMES[1:3], k=[1, 2, 4], ax=ax)
    shown = {
        text.get_text(): line
        for text, line in zip(ax.texts, ax.lines[::2][:1] + ax.lines[1::2], strict=True)
    }
    assert list(shown) == ["optimum", "K-SEQ", "recursive rejection"]
    assert shown["optimum"].get_ydata() == pytest.approx(
        otm.optimal_acceptance_curve(PROBLEM, k=[1, 2, 4]), abs=1e-15
    )
    assert shown["K-SEQ"].get_ydata() == pytest.approx(
        otm.acceptance_curve(otm.KSeq(), PROBLEM, k=[1, 2, 4]), abs=1e-15
    )


def test_curves_of_a_comparison_and_at_most_six(ax):
    found = otm.compare(draft=ZIPF, target=ZIPF[::-1].copy(), laws=[otm.IID], k=[1, 2], samples=0)
    plot.curves(found, ax=ax)
    assert len(ax.texts) == drawing.MOST_LINES
    assert ax.texts[0].get_text() == "optimum, attained"
    with pytest.raises(otm.errors.InvalidParameter, match="room for 5 verifiers; got 6"):
        plot.curves(PROBLEM, verifiers=[*SCHEMES, otm.Naive()], ax=ax)


def test_a_scheme_without_an_exact_value_is_drawn_with_its_interval(ax):
    mine = otm.from_callable(
        lambda p, q, drafts, u: int(drafts[int(len(drafts) * np.float64(u[0]))]), name="mine"
    )
    plot.curves(PROBLEM, verifiers=[mine], k=[1, 4], samples=200, ax=ax)
    assert [text.get_text() for text in ax.texts] == ["optimum", "mine, lossy"]
    (bars,) = ax.containers
    assert bars[0].get_xdata().tolist() == [4.0]  # exact at k = 1


def test_pair_shows_what_both_have(ax):
    wide = otm.examples.zipf(50)
    plot.pair(draft=wide, target=wide[::-1].copy(), ax=ax)
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert len(labels) == drawing.MOST_BARS
    assert labels[-1] == "rest"
    common = float(np.minimum(wide, wide[::-1]).sum())
    assert ax.get_title() == f"Σ min(p, q) = {common:.4f}"
    heights = [bar.get_height() for bar in ax.containers[-1]]
    assert sum(heights) == pytest.approx(common, abs=1e-15)


def test_coupling_is_the_joint_law(ax):
    joint = otm.coupling(otm.KSeq(), SMALL)
    plot.coupling(joint, tokens=["a", "b", "c"], ax=ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b", "c"]
    top, side = ax.child_axes
    assert [bar.get_height() for bar in top.patches] == pytest.approx(
        joint.output_marginal, abs=1e-15
    )
    assert [bar.get_width() for bar in side.patches] == pytest.approx(
        joint.draft_marginal, abs=1e-15
    )
    many = Figure().subplots()  # as the likeliest and the rest
    plot.coupling(otm.coupling(otm.KSeq(), PROBLEM.with_law(otm.IID(2))), ax=many)
    widths = [bar.get_width() for bar in many.child_axes[1].patches]
    assert len(widths) == 33 and sum(widths) == pytest.approx(1.0, abs=1e-12)
    shade = ax.images[0].get_array()
    blue = shade[..., 2] > shade[..., 0] + 1e-9
    hits = (joint.drafts[:, :, None] == np.arange(3)).any(axis=1) & (joint.joint.toarray() > 0)
    assert np.array_equal(blue, hits)


def test_points_sit_on_the_overlap_curve(ax):
    plot.overlap(PROBLEM, ax=ax)
    shown = dict(text.get_text().rsplit(" ", 1) for text in ax.texts)
    for name, value in (
        ("one draft", otm.acceptance(otm.Maximal(), SINGLE)),
        ("recursive rejection", otm.acceptance(otm.RecursiveRejection(), PROBLEM, by="rule")),
        ("K-SEQ", otm.acceptance(otm.KSeq(), PROBLEM, by="rule")),
        ("optimum", otm.optimal_acceptance(PROBLEM)),
    ):
        assert shown[name] == f"{value:.4f}"
    with pytest.raises(otm.errors.Unsupported, match=r"otm\.IID\(2\)"):
        plot.overlap(PROBLEM.with_law(otm.TopK(2)), ax=ax)


def test_no_scheme_stands_above_the_frontier():
    for by in ("tv", "kl"):
        ax = Figure().subplots()
        plot.frontier(SINGLE, by=by, ax=ax)
        x, best = ax.lines[0].get_data()
        for point in ax.lines[2:]:
            (at,), (height,) = point.get_data()
            # by KL the chord lies a little below the curve
            assert height <= np.interp(at, x, best) + 2e-3, point
    with pytest.raises(otm.errors.InvalidParameter, match="by must be 'tv' or 'kl'"):
        plot.frontier(SINGLE, by="js", ax=ax)


def test_an_infinite_divergence_is_named(ax):
    problem = otm.Problem(draft=[0.5, 0.5, 0.0], target=[0.3, 0.3, 0.4], law=otm.IID(1))
    plot.frontier(problem, by="kl", verifiers=[otm.Lenience(0.1)], ax=ax)
    lost = otm.lossy.distortion(otm.Lenience(0.1), problem).kl
    assert np.isinf(lost) == ("KL = ∞: lenience" in ax.get_title())


def test_trees_of_every_kind(ax):
    shape = otm.trees.TreeShape([0, 0, 1])
    assert [text.get_text() for text in plot.tree(shape, ax=ax).texts] == ["0", "1", "0"]
    drafted = otm.sequence.DraftTree(
        shape=shape, context=(), tokens=np.array([-1, 2, 0, 1]), draft={}
    )
    named = plot.tree(drafted, tokens=["a", "b", "c"], ax=Figure().subplots())
    assert [text.get_text() for text in named.texts] == ["c", "a", "b"]
    with pytest.raises(otm.errors.TooLarge, match="up to 400 vertices; this tree has 401"):
        plot.tree(otm.trees.TreeShape.chain(401), ax=ax)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda ax: plot.pair([0.5, 0.5], [0.5, 0.5]),
            "keyword-only, because the literature swaps p and q",
        ),
        (
            lambda ax: plot.pair(draft=[0.5, 0.5], target=[0.5, 0.5], ax="ax"),
            "ax must be matplotlib axes",
        ),
        (
            lambda ax: plot.pair(draft=[0.5, 0.5], target=[0.5, 0.5], tokens=["a"], ax=ax),
            "tokens must be 2 names",
        ),
        (
            lambda ax: plot.pair(draft=[0.5, 0.5], target=[0.5, 0.5], tokens="ab", ax=ax),
            "tokens must be 2 names",
        ),
        (lambda ax: plot.coupling(PROBLEM, ax=ax), r"otm\.coupling or otm\.optimum"),
        (lambda ax: plot.tree([0, 1], ax=ax), "TreeShape, OptimalTree or DraftTree"),
    ],
)
def test_what_is_wrong_is_said(call, message, ax):
    with pytest.raises(otm.errors.InvalidParameter, match=message):
        call(ax)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(otm.errors.MissingPackage, match="Run `pip install matplotlib`") as found:
        plot.pair(draft=[1.0], target=[1.0])
    assert isinstance(found.value, ImportError)


def test_a_dollar_sign_in_a_name_begins_no_formula(ax):
    fraction = otm.from_callable(
        lambda p, q, d, u: (int(d[0]), True), law=otm.IID(1), name=r"$\frac{x$"
    )
    table = otm.compare(
        draft=[0.75, 0.25],
        target=[0.5, 0.5],
        verifiers=[fraction, otm.Maximal()],
        k=[1],
        laws=[otm.IID],
    )
    table.plot(ax)
    ax.get_figure(root=True).canvas.draw()
