"""`otm report`: a measured run as a page and as a Markdown summary.

`reading` reads, `aggregate` averages, `plans` and `call_costs` weigh, `verdict_card` answers,
`summary`, `page_texts` and `explanations` say it, `page` and `markdown` write it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from otm._machine.progress import report_phase

from ..errors import AnalysisError
from ..files import make_folder, write_atomically
from . import markdown, page
from .advice_record import read_advice
from .aggregate import aggregate
from .answer import answer_run, slider_answers, slider_stops
from .call_costs import read_latency
from .page_texts import view
from .reading import open_run
from .summary import measured_data

_PAGES = (".html", ".htm", ".md")


@dataclasses.dataclass(frozen=True)
class Report:
    """The files of a written report, and the answer.

    Attributes:
        html, markdown: the two files.
        findings: the card, line by line.
    """

    html: Path
    markdown: Path
    findings: tuple[str, ...]


def write_report(
    run: Path,
    *,
    out: Path | None = None,
    latency: Path | None = None,
    advice: Path | None = None,
) -> Report:
    """Write the report of a run as `report.html` and `report.md`.

    Args:
        run: folder that `otm measure` wrote; an unfinished one gives a report of
            what is there.
        out: folder for the two files, made if absent. Default: the run's.
        latency: record of `otm latency`, or any cost surface: without costs the
            answer is a range.
        advice: record of `otm advise`: the answer at its sampling setting, costs at
            the others.

    Returns:
        The files' paths and the answer.

    Raises:
        AnalysisError: if the run or another file cannot be read, is too large to report, or `out`
            is no folder or cannot be written.

    Cost: two passes over the shards. Memory: bounded, whatever the size of the run; see
        `analysis.report.aggregate`.
    """
    if out is not None and not out.is_dir() and (out.exists() or out.suffix.lower() in _PAGES):
        raise AnalysisError(
            f"--out must be a folder, for report.html and report.md; got {str(out)!r}. Pass a "
            "folder."
        )
    report_phase("finished shards: reading")
    opened = open_run(run)
    costs = None if latency is None else read_latency(latency)
    advised = None if advice is None else read_advice(advice)
    report_phase("averages")
    found = aggregate(opened)
    report_phase("answer and pages")
    answer = answer_run(opened, found, costs, advised)
    shown = view(opened, found, answer)
    page_data = {
        "answer": slider_stops(answer),
        "measured": measured_data(opened, found),
    }
    folder = out or run
    html, summary = make_folder(folder) / "report.html", folder / "report.md"
    write_atomically(
        html, page.render_page(shown, page_data, slider_answers(opened, answer)).encode()
    )
    write_atomically(summary, markdown.render_markdown(shown).encode())
    return Report(html, summary, (*shown["card"].lines, shown["setting_words"]))
