"""Results as tables: in a notebook, in LaTeX, as data frames, as pictures; one mechanism for all of
them.
"""

import inspect
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import otm
from otm._display.tabular import OneTable, Table, Tabular, latex_escaped, markdown
from otm.audit.text_log import LoggedText
from otm.sequence import BlockVerification, SpeculativeSampling, ZerothOrder, rank_decoders

PROBLEM = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=otm.IID(2))
LONGEST_REPR = 140


def trusting(draft, target, drafts, uniforms):
    return int(drafts[0])


def block(draft, target, drafts, uniforms):
    return [*(int(token) for token in drafts), 0]


def step(draft, target, rng):
    return [int(rng.choice(2, p=draft.next([])))]


MODELS = {"draft": ZerothOrder([0.5, 0.5]), "target": ZerothOrder([0.25, 0.75])}


RESULTS = {
    "Comparison": lambda: otm.compare(draft=[0.5, 0.5], target=[0.25, 0.75], k=[1, 2], samples=0),
    "Coupling": lambda: otm.coupling(otm.KSeq(), PROBLEM),
    "Optimum": lambda: otm.optimum(PROBLEM),
    "Estimate": lambda: otm.estimate(otm.KSeq(), PROBLEM, samples=50, rng=np.random.default_rng(0)),
    "AcceptanceTable": lambda: otm.acceptance_table(
        draft=[[0.5, 0.5], [0.75, 0.25]], target=[[0.25, 0.75]], k=[1, 2]
    ),
    "Losses": lambda: otm.losses.acceptance_losses(np.zeros((3, 4)), np.arange(12.0).reshape(3, 4)),
    "DecoderRanking": lambda: rank_decoders(
        [SpeculativeSampling(2), BlockVerification(2)], **MODELS, context=[]
    ),
    "ExactAudit": lambda: otm.audit.exact(trusting, PROBLEM),
    "SampledAudit": lambda: otm.audit.sampled(trusting, PROBLEM, rng=np.random.default_rng(0)),
    "SequenceAudit": lambda: otm.audit.sequence(block, **MODELS, num_drafts=1),
    "BatteryAudit": lambda: otm.audit.battery(
        trusting, only="exact", laws=[otm.IID(1)], shrink_for=0.0
    ),
}


@pytest.fixture(scope="module", params=RESULTS)
def result(request):
    found = RESULTS[request.param]()
    assert type(found).__name__ == request.param
    return found


def test_a_notebook_shows_tables_and_a_repr_is_short(result):
    page = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")  # every tag is closed
    assert len([*page.iter("td"), *page.iter("th")]) > 4
    assert len(repr(result)) <= LONGEST_REPR
    assert "src=" not in result._repr_html_()


def test_pandas_holds_the_data(result):
    frame, table = result.to_pandas(), result.data()
    assert list(frame.columns) == list(table.columns)
    assert len(frame) == len(table.rows) > 0
    for name, dtype in frame.dtypes.items():
        column = [value for value in frame[name] if value is not None]
        if column and all(isinstance(value, float) for value in column):
            assert dtype == np.dtype(float), name


def test_latex_is_booktabs_and_escaped(result):
    text = "\n".join(line for line in result.to_latex().splitlines() if not line.startswith("%"))
    assert (
        text.count(r"\toprule")
        == text.count(r"\bottomrule")
        == text.count(r"\begin{tabular}")
        == len(result.tables())
    )
    for body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        for line in body[1].splitlines():
            if line.endswith(r"\\"):
                assert len(re.findall(r"(?<!\\)&", line)) == len(body[0]) - 1
    assert not re.search(r"(?<!\\)[_%#]", text)
    assert text.isascii()


def test_it_is_drawn_into_the_axes_given(result):
    ax = Figure().subplots()
    assert result.plot(ax) is ax
    assert ax.has_data()


def test_all_results_that_the_audits_give_are_tables():
    """What is not made above inherits the same, and says how it is drawn."""
    classes = {
        cls
        for cls in _subclasses(Tabular)
        if not inspect.isabstract(cls) and cls.__module__.startswith("otm")
    }
    assert {cls.__name__ for cls in classes} == {
        *RESULTS,
        "JointAudit",
        "LogAudit",
        "AcceptanceAudit",
        "SameTextAudit",
    }


def _subclasses(cls):
    return {cls}.union(*(_subclasses(sub) for sub in cls.__subclasses__()))


def test_audits_of_records_logs_and_steps_are_drawn(tmp_path):
    written = tmp_path / "outputs.jsonl"
    written.write_text('{"output": 1, "target": [0.5, 0.5]}\n' * 80, encoding="utf-8")
    log = otm.audit.server_log(written)
    stepped = otm.audit.step(step, **MODELS, length=1, rng=np.random.default_rng(0))
    texts = [LoggedText((5,), ({5: -0.5, 7: -1.0},))]
    for audit in (log, stepped, otm.audit.same_text(texts, texts)):
        ax = Figure().subplots()
        assert audit.plot(ax) is ax
        assert audit.data().rows[0][1] == audit.verdict


TABLE = Table(
    columns=("name", "value"),
    rows=(("a & b", 0.25), ("100 %", None)),
    title="A title",
    best=frozenset({(0, 1)}),
)


def test_a_table_as_text():
    assert TABLE.text().splitlines() == [
        "A title",
        "name      value",
        "─────  ─────────",
        "a & b  0.250000★",
        "100 %         —",
    ]


def test_a_table_in_latex():
    assert TABLE.latex().splitlines() == [
        "% A title",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"name & value \\",
        r"\midrule",
        r"a \& b & \textbf{0.250000} \\",
        r"100 \% & --- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert (
        latex_escaped("a_b{c}\\^~")
        == r"a\_b\{c\}\textbackslash{}\textasciicircum{}\textasciitilde{}"
    )


def test_remarks_and_long_names_are_whole_on_paper_and_wrapped_in_print():
    name, note = "a name that is longer than what is printed", "a remark " * 20
    table = Table(columns=("name",), rows=((name,),), notes=(note,), longest=20)
    text, paper = table.text().splitlines(), table.latex()
    assert text[2] == "a name that is long…"
    assert len(text) == 6 and max(map(len, text)) <= 100
    assert text[-1] == f"… {name}"  # what a row cuts stands below
    assert name in paper and rf"\par{{\footnotesize {note}\par}}" in paper
    assert name in table.html() and note in table.html()


def test_a_table_in_html():
    text = TABLE.html()
    assert "a &amp; b" in text and "<b>0.250000</b>" in text and "—" in text


def test_losses_print_a_line_each():
    found = otm.losses.acceptance_losses(
        np.log([0.6, 0.4, 1e-300]), np.log([0.5, 0.25, 0.25]), draft=otm.Processing(top_k=2)
    )
    text = str(found)
    assert text.startswith("k = 1, mean of 1 positions\n")
    assert re.search(r"^acceptance +0\.750000$", text, re.MULTILINE)
    assert re.search(r"^lost to truncation +0\.250000$", text, re.MULTILINE)


def test_a_ranking_is_a_sequence():
    ranking = RESULTS["DecoderRanking"]()
    assert isinstance(ranking, OneTable)
    assert [row.decoder for row in ranking] == [row.decoder for row in ranking.rows]
    assert str(ranking).splitlines()[0].split("  ")[0] == "decoder"


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(otm.errors.MissingPackage, match="Run `pip install pandas`"):
        RESULTS["Estimate"]().to_pandas()


def test_a_cell_of_markdown_stays_one_cell():
    written = markdown(("P(a | b)", ""), [("two\nlines", r"\| escaped")], right=[1]).splitlines()
    assert written == [r"| P(a \| b) | |", "|---|---:|", r"| two lines | \| escaped |"]
