"""The tables of docs/steps.md, and what its text says of the pairs, are those of the committed
records.
"""

import json
import re

import pytest

from figures import figure5, kinds, nodes, quality
from figures.captures import captures
from figures.paths import DATA
from figures.steps_tables import LISTED, PAGES, SIZES, of_size, written
from tests.paths import ROOT, says


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_data(path):
    text = path.read_text(encoding="utf-8")
    assert text == PAGES[path](text), "run python -m figures.steps_tables"


def test_the_text_says_what_the_records_say():
    shipped, public = captures("steps").values()
    ((held_out,), (same,)) = (
        {table["contexts"] for table in record["tables"]} for record in (shipped, public)
    )
    left = [written(-of_size(shipped, *size)[nodes.BOUND]["less"]) for size in SIZES]
    small = of_size(shipped, 2, 2)
    optimal, greedy, bound = (
        f"{written(abs(small[name]['less']))} ± {written(small[name]['less_half'])}"
        for name in (
            "optimal, vertex by vertex",
            "greedy multi-path block verification",
            nodes.BOUND,
        )
    )
    says(
        "docs/steps.md",
        f"{held_out} contexts of 64 tokens, the same for all rows",
        f"on the same text; {same} contexts,",
        f"the bound leaves {left[0]} tokens at K = L = 4 and {left[1]} at K = L = 8",
        f"they gain {optimal} over the optimal verifier vertex by vertex and {greedy} over "
        "greedy multi-path",
        f"and {bound} is left to the bound",
    )


def test_the_same_decoder_on_other_texts_is_said_where_each_number_stands():
    shipped, _ = captures("steps").values()
    held_out = written(of_size(shipped, 8, 8)["K-SEQ, vertex by vertex"]["mean"])
    rows = captures("table2")["shipped pair"]["rows"]
    (own,) = (
        row["mean"]
        for row in rows
        if (row["K"], row["L"], row["verifier"], row["draft"]) == (8, 8, "K-SEQ", "draft")
    )
    said = f"K-SEQ at K = L = 8 is {held_out} here and {own:.3f} along the target's own"
    says("docs/steps.md", said)
    said = f"K-SEQ at K = L = 8 on the shipped pair {held_out} tokens ([steps](steps.md))"
    says("docs/papers.md", said)


def test_the_readme_s_picture_of_nodes_is_the_record_s():
    """Caption and alternative text; the picture's own headline is made of the same numbers."""
    record = nodes.read("nodes", (1.0,))[1.0]
    means = {
        row["name"]: f"{row['mean']:.2f}"
        for row in record["tables"][0]["rows"]
        if row["nodes"] == nodes.NODES
    }
    likeliest, noise, refined = (
        means[name] for name in ("likeliest tree", "tree on shared noise", "refined scores")
    )
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    (alt,) = re.findall(r"!\[([^]]*)\]\(docs/images/nodes\.png\)", text)
    assert f"shared noise {noise}" in alt and f"likeliest tree {likeliest}" in alt
    caption = text.partition("docs/images/nodes.png)")[2].partition("##")[0]
    assert nodes.NODES == 64 and "*Sixty-four drafted tokens verified in one call" in caption
    assert re.findall(r"\d\.\d+", caption) == [likeliest, noise, refined]


def test_what_is_said_of_the_public_pair_is_its_record_s():
    (table,) = nodes.read("nodes-smollm2", (1.0,))[1.0]["tables"]
    rows = {row["name"]: row for row in table["rows"] if row["nodes"] == nodes.NODES}
    behind = [
        _less(row)
        for stem, temperature in (("nodes", 0.3), ("nodes-smollm2", 0.6))
        for row in nodes.read(stem, (temperature,))[temperature]["tables"][0]["rows"]
        if (row["name"], row["nodes"]) == (nodes.LIKELIEST, nodes.NODES)
    ]
    says(
        "docs/steps.md",
        f"(overlap {written(table['overlap'])}; it learnt along",
        f"and knows {figure5.head():,} of 49,152 tokens",
        f"less sure ({table['entropy']:.2f} nats)",
        f"noise is {_less(rows[nodes.LIKELIEST])} tokens ahead of the likeliest tree",
        f"and {_ahead(rows['refined scores'])} behind refined scores",
        "at .3 it is {} behind at 64 nodes, on SmolLM2 at .6 {}.".format(*behind),
    )


def test_what_is_said_of_lists_is_their_records():
    """The page for engines that match names three laws with four drafts at three temperatures."""
    found = nodes.read("lists", LISTED)
    assert list(found) == list(LISTED)
    said = {
        name: [
            f"{row['mean']:.3f}".lstrip("0")
            for record in found.values()
            for row in record["tables"][0]["rows"]
            if (row["name"], row["drafts"]) == (name, 4)
        ]
        for name in ("threshold race, matched", "naive, top k", "best for i.i.d. drafts")
    }
    for temperature, *row in zip(LISTED, *said.values(), strict=True):
        says("docs/howto/matching.md", f"| {temperature:g} | {' | '.join(row)} |")


def test_the_first_pages_say_what_the_optimum_is_above_kseq_in_the_mean():
    (table,) = nodes.read("lists", (1.0,))[1.0]["tables"]
    means = {(row["name"], row["drafts"]): row["mean"] for row in table["rows"]}
    gains = [
        f"{100 * (means['best for i.i.d. drafts', k] - means['K-SEQ, i.i.d.', k]):.1f}"
        for k in (2, 4, 8)
    ]
    for page in ("README.md", "docs/index.md"):
        says(
            page,
            f"In the mean over {table['contexts']} contexts the gap is {gains[0]}, {gains[1]} and "
            f"{gains[2]} points with two, four and eight drafts",
        )


def test_the_text_says_what_beliefs_win_and_lose():
    (table,) = nodes.read("beliefs", (1.0,))[1.0]["tables"]
    less = {
        row[
            "name"
        ]: f"{written(abs(row['less']))} ± {written(0.5 * (row['less_high'] - row['less_low']))}"
        for row in table["rows"]
        if row["nodes"] == nodes.NODES
    }
    wrong = [less[f"{factor} times the scale"] for factor in ("1.4", "2")]
    says(
        "docs/steps.md",
        f"{table['contexts']} contexts of the shipped pair at temperature 1, two draws",
        f"1.4 times {wrong[0]} at {nodes.NODES} nodes, twice {wrong[1]}",
        f"and the features {less['log p, noise, depth and entropy']}",
    )


def test_the_page_on_audits_says_what_known_noise_saves():
    record = json.loads((DATA / "known_noise.json").read_text(encoding="utf-8"))
    last = record["rows"][-1]
    assert last["tokens"][-1] is None
    says(
        "docs/audit_engines.md",
        f"{record['contexts']:,} contexts of held-out text",
        f"It takes {last['tokens'][0]:,.0f} tokens instead of {last['records']:,} records",
    )


def test_the_text_says_where_the_likeliest_tree_is_as_good():
    behind, used, overlaps, told = [], [], [], dict[str, dict[str, str]]()
    for kind, found in quality.records(kinds.FILES).items():
        tables = quality.tables(found)
        rows = [{row["name"]: row for row in table["rows"]} for table in tables]
        behind.append([_less(rows[place][nodes.LIKELIEST]) for place in (0, -1)])
        told[kind] = {
            written(table["overlap"]): _ahead(one["refined scores"])
            for table, one in zip(tables, rows, strict=True)
            if one["refined scores"]["less_high"] < 0
        }
        used.append({f"{one['refined scores']['used']:.0f}" for one in rows[1:]})
        overlaps.append(written(tables[0]["overlap"]))
        assert all(one["refined scores"]["less_low"] < 0 for one in rows)
        assert all(table["texts"] == 12 and table["contexts"] >= 35 for table in tables)
    (code, best), (lists, better), (prose, good) = behind
    assert used == [{"48"}, {"57"}, {"61"}]
    of_code, of_lists, of_prose = told.values()
    ((at, gain),) = of_lists.items()
    first, second, third = (f"{gain} at {at}" for at, gain in of_prose.items())
    assert not of_code
    says(
        "docs/steps.md",
        "agree: 48 after code with the better drafts, 57 after lists, 61 after prose",
        f"(overlap {overlaps[0]}), where",
        f"it is {code} behind; after lists {lists} and after prose {prose}.",
        f"it is {best} behind after code, {better} after lists and {good} after prose",
        f"by {gain} after lists at overlap {at}",
        f"after prose by {first}, {second} and {third}.",
    )


def _less(row):
    half = 0.5 * (row["less_high"] - row["less_low"])
    return f"{written(row['less'])} ± {written(half)}"


def _ahead(row):
    return _less(row | {"less": -row["less"]})
