"""`python -m analysis report`: a measured run as a page that opens from disk, and as a Markdown summary.

`reading` reads, `aggregate` averages, `summary`, `view` and `words` say it, `page` and `markdown` write it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..errors import AnalysisError
from ..files import make_folder, write_atomically
from . import markdown, page
from .aggregate import aggregate
from .decoded import read_decode
from .reading import open_run
from .summary import payload
from .view import view

_PAGES = (".html", ".htm", ".md")


@dataclasses.dataclass(frozen=True)
class Report:
    """Where a report was written, and its main findings.

    Attributes:
        html, markdown: the two files.
        findings: the sentences under "In short".
    """

    html: Path
    markdown: Path
    findings: tuple[str, ...]


def write_report(run: Path, *, out: Path | None = None, decode: Path | None = None) -> Report:
    """Write the report of a run as `report.html` and `report.md`.

    Args:
        run: folder that `python -m analysis measure` wrote; an unfinished one gives a report of what is there.
        out: folder for the two files, made if absent. Default: the run's.
        decode: results file of `python -m analysis decode`, to compare predictions with.

    Returns:
        The files' paths and the main findings.

    Raises:
        AnalysisError: if the run or the decode file cannot be read, is too large to report, or `out` is no folder or cannot be
            written.

    Cost: two passes over the shards. Memory: bounded, whatever the size of the run; see `analysis.report.aggregate`.
    """
    if out is not None and not out.is_dir() and (out.exists() or out.suffix.lower() in _PAGES):
        raise AnalysisError(f"--out must be a folder, for report.html and report.md; got {str(out)!r}. Pass a folder.")
    opened = open_run(run)
    decoded = None if decode is None else read_decode(decode)
    found = aggregate(opened)
    shown = view(opened, found, decoded)
    folder = out or run
    html, summary = make_folder(folder) / "report.html", folder / "report.md"
    write_atomically(html, page.render(shown, payload(opened, found, decoded)).encode())
    write_atomically(summary, markdown.render(shown).encode())
    return Report(html, summary, tuple(shown["short"]))
