"""``python -m evidence.corpus``: print the corpus against usual tests and audits, or write it
into the documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evidence.corpus.report import corpus_table, update, wholes_table


def main() -> None:
    """Print the tables, or write tables and example between the markers of the documents."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.corpus", description="The corpus of broken verifiers as a table."
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="put tables and example between the markers of the pages in this folder",
    )
    path = parser.parse_args().write
    if path is None:
        print(f"{corpus_table()}\n\n{wholes_table()}")
    else:
        update(path)


if __name__ == "__main__":
    main()
