"""The tables of `docs/steps.md`, `docs/howto/matching.md` and `docs/audit_engines.md` from the
data: K drafted sequences of L tokens on both pairs, all schemes by verified nodes, single tokens by
mean drafts, and known noise.

`python -m figures.steps_tables` writes the tables anew; a test fails where they differ from the
data.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from figures import kinds, nodes, quality
from figures.captures import captures
from figures.paths import DATA, ROOT
from otm._display.tabular import markdown, with_section

PAGE = ROOT.parent / "docs" / "steps.md"
SIZES = ((4, 4), (8, 8))
"""K and L of the columns; rows descend in the last, below the bound."""

LISTED = (1.0, 0.6, 0.3)
"""Temperatures of single tokens."""
COMPARED = nodes.NODES

Record = dict[str, Any]


SHOWN = {nodes.BOUND: nodes.SHOWN[nodes.BOUND]}
"""Names of rows that pages write in another way."""


def of_size(record: Record, num_drafts: int, length: int) -> dict[str, Record]:
    """Return the rows of one size of a pair's record, by name."""
    (table,) = (
        one
        for one in record["tables"]
        if (one["num_drafts"], one["length"]) == (num_drafts, length)
    )
    return {row["name"]: row for row in table["rows"]}


def table(record: Record) -> str:
    """Return the table of a pair's record, in Markdown."""
    columns = [of_size(record, *size) for size in SIZES]
    head = ["tokens per call"]
    for k, length in SIZES:
        head += [f"K = {k}, L = {length}", "against refined scores"]
    rows = [
        (SHOWN.get(name, name), *(cell for rows in columns for cell in _cells(rows[name])))
        for name in columns[-1]
    ]
    return markdown(head, rows)


def _cells(row: Record) -> tuple[str, str]:
    against = f"{signed(-row['less'])} ± {written(row['less_half'])}" if row["less_half"] else ""
    return f"{written(row['mean'])} ± {written(row['half'])}", against


def written(value: float) -> str:
    """Write a number as the page does.

    >>> written(-0.154), written(2.3)
    ('−.15', '2.30')
    """
    return re.sub(r"^(−?)0", r"\1", f"{value:.2f}".replace("-", "−"))


def signed(value: float) -> str:
    """Write a difference with a sign, 0 without.

    >>> signed(0.154), signed(-2.3), signed(-0.001)
    ('+.15', '−2.30', '.00')
    """
    shown = written(abs(value))
    return shown if float(shown) == 0 else ("−" if value < 0 else "+") + shown


def nodes_table(record: Record) -> str:
    """Return tokens per call by scheme and verified nodes, with differences at one budget."""
    rows = record["tables"][0]["rows"]
    budgets = sorted({row["nodes"] for row in rows})
    by_name: dict[str, dict[int, Record]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["nodes"]] = row
    names = sorted(
        by_name, key=lambda name: (name != nodes.BOUND, -by_name[name][COMPARED]["mean"])
    )
    head = ["tokens per call, nodes:", *map(str, budgets), f"against shared noise, {COMPARED}"]
    table_rows = []
    for name in names:
        one = by_name[name]
        against = "" if name == nodes.NOISE_TREE else _against(one[COMPARED])
        means = (written(one[budget]["mean"]) for budget in budgets)
        table_rows.append((SHOWN.get(name, name), *means, against))
    return markdown(head, table_rows)


def quality_table(tables: list[Record]) -> str:
    """Return tokens per call within one budget by scheme and overlap of the draft."""
    rows = [{row["name"]: row for row in one["rows"] if row["nodes"] == COMPARED} for one in tables]
    names = sorted(rows[-1], key=lambda name: (name != nodes.BOUND, -rows[-1][name]["mean"]))
    head = [f"tokens per call, {COMPARED} nodes, overlap:"]
    head += [written(one["overlap"]) for one in tables]
    return markdown(
        head, [(SHOWN.get(name, name), *(_interval(one[name]) for one in rows)) for name in names]
    )


def difference_table(record: Record, reference: str) -> str:
    """Return tokens per call by variant and budget, each with the difference from the reference."""
    rows = record["tables"][0]["rows"]
    budgets = sorted({row["nodes"] for row in rows})
    by_name = {(row["name"], row["nodes"]): row for row in rows}
    names = sorted(
        {name for name, _ in by_name},
        key=lambda name: (name != nodes.BOUND, -by_name[name, budgets[-1]]["mean"]),
    )
    head = ["tokens per call"]
    for budget in budgets:
        head += [f"{budget} nodes", f"against {reference}"]
    return markdown(
        head,
        [
            (
                SHOWN.get(name, name),
                *(
                    cell
                    for budget in budgets
                    for cell in (
                        _interval(by_name[name, budget]),
                        "" if name == reference else _against(by_name[name, budget]),
                    )
                ),
            )
            for name in names
        ],
    )


def lists_table(records: dict[float, Record]) -> str:
    """Return the acceptance of one token by law, verifier, temperature and mean drafts."""
    tables = {value: record["tables"][0] for value, record in records.items()}
    rows = {
        (row["name"], value, row["drafts"]): row
        for value, one in tables.items()
        for row in one["rows"]
    }
    drafts = sorted({number for _, _, number in rows if number > 1})
    columns = [(value, number) for value in tables for number in drafts]
    names = {name for name, _, _ in rows if all((name, *column) in rows for column in columns)}
    order = sorted(names, key=lambda name: -rows[name, *columns[-1]]["mean"])
    head = ["acceptance, temperature × mean drafts:", *(f"{t:g} × {k}" for t, k in columns)]
    body = [
        (name, *(f"{rows[name, *column]['mean']:.3f}".lstrip("0") for column in columns))
        for name in order
    ]
    # A record's numbers begin with one draft, which needs no column of its own here.
    different = [f"{found:.1f}" for one in tables.values() for found in one["different"][1:]]
    return markdown(head, [*body, ("*different ones among i.i.d. drafts*", *different)])


def known_noise_table(record: Record) -> str:
    """Return tokens until a mismatch by case and tolerance, beside a log's records."""
    head = ["served", "total variation"]
    head += [f"tokens, τ = {nats:g}" for nats in record["tolerances"]]
    rows = [
        (
            row["case"],
            f"{row['tv']:.4f}".lstrip("0") if row["tv"] else "0",
            *(_whole(number) for number in (*row["tokens"], row["records"])),
        )
        for row in record["rows"]
    ]
    return markdown([*head, "records without the noise, at least"], rows)


def _whole(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def matching_table(found: dict[float, Record], budgets: tuple[int, ...]) -> str:
    """Return both trees that need nothing but matching, by temperature and budget."""
    rows = []
    for temperature, record in found.items():
        by_name = {(row["name"], row["nodes"]): row for row in record["tables"][0]["rows"]}
        for budget in budgets:
            usual, noise = by_name.get((nodes.LIKELIEST, budget)), by_name[nodes.NOISE_TREE, budget]
            usual = usual or noise
            more = "0" if usual is noise else _interval(usual, "less_")
            cells = (written(usual["mean"]), written(noise["mean"]), more)
            rows.append((f"{temperature:g}", str(budget), *cells))
    head = ["temperature", "nodes", nodes.LIKELIEST, "on shared noise", "more"]
    return markdown(head, rows)


def _interval(row: Record, name: str = "") -> str:
    half = 0.5 * (row[f"{name}high"] - row[f"{name}low"])
    return f"{written(row[name.rstrip('_') or 'mean'])} ± {written(half)}"


def _against(row: Record) -> str:
    """Return a row's excess over the reference, with the half-width."""
    half = 0.5 * (row["less_high"] - row["less_low"])
    return f"{signed(-row['less'])} ± {written(half)}"


def page(text: str) -> str:
    """Return the page with all tables from the data."""
    for name, record in zip(("shipped", "public"), captures("steps").values(), strict=True):
        text = with_section(text, name, table(record))
    by_temperature = nodes.read("nodes", nodes.TEMPERATURES)
    text = with_section(text, "nodes", "\n\n".join(map(_titled, by_temperature.items())))
    public = nodes.read("nodes-smollm2", nodes.TEMPERATURES)
    text = with_section(text, "public nodes", "\n\n".join(map(_titled, public.items())))
    for section, files in (("quality", quality.FILES), ("kinds", kinds.FILES)):
        parts = [
            f"{_contexts(title, found)}\n\n{quality_table(quality.tables(found))}"
            for title, found in quality.records(files).items()
        ]
        text = with_section(text, section, "\n\n".join(parts))
    for name, reference in (("refined", nodes.REFINED), ("beliefs", nodes.NOISE_TREE)):
        for record in nodes.read(name, (1.0,)).values():
            text = with_section(text, name, difference_table(record, reference))
    for section, stem in (("lists", "lists"), ("public lists", "lists-smollm2")):
        text = with_section(text, section, lists_table(nodes.read(stem, LISTED)))
    return text


def _contexts(title: str, found: list[Record]) -> str:
    """Return a sentence on the contexts of some tables."""
    first = quality.tables(found)[0]
    return f"{title.capitalize()}, {first['contexts']} contexts, {first['entropy']:.2f} nats:"


def _titled(found: tuple[float, Record]) -> str:
    """Return a temperature's table under a title sentence."""
    temperature, record = found
    (one,) = record["tables"]
    scales = " and ".join(written(scale) for scale in one["scales"])
    fitted = f", {one['noises']} noises each, scales {scales}" if one["scales"] else ""
    title = f"At temperature {temperature:g}, {one['contexts']} contexts{fitted}:"
    return f"{title}\n\n{nodes_table(record)}"


def matching_page(text: str) -> str:
    """Return the page for engines that match, with the tables from the data."""
    stems = ("nodes", "nodes-smollm2")
    shipped, public = (nodes.read(stem, nodes.TEMPERATURES) for stem in stems)
    text = with_section(text, "matching", matching_table(shipped, (8, 16, 32, 64)))
    return with_section(text, "public matching", matching_table(public, (4, 16, 64)))


def audit_page(text: str) -> str:
    """Return the page on engines' audits with the table of known noise."""
    record = json.loads((DATA / "known_noise.json").read_text(encoding="utf-8"))
    return with_section(text, "known noise", known_noise_table(record))


PAGES = {
    PAGE: page,
    PAGE.parent / "howto" / "matching.md": matching_page,
    PAGE.parent / "audit_engines.md": audit_page,
}


def main() -> int:
    """Write the tables into the pages."""
    for path, made in PAGES.items():
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
