"""The tables of docs/broken_verifiers.md: the corpus against usual tests and against audits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from evidence.corpus.entries import BROKEN, CONTROLS
from evidence.corpus.mutant import Mutant
from evidence.corpus.usual_tests import USUAL, Noticed, noticed_by, run_usual_tests, sampled_of
from evidence.corpus.wholes import WHOLES, Whole
from otm._display.tabular import markdown, with_section
from otm.audit import exact, sequence
from otm.audit.batteries import battery
from otm.audit.end_to_end import JointAudit
from otm.audit.integration import ExactAudit, SequenceAudit
from otm.audit.tracing.answers import CandidateFailure
from otm.problem import Problem

_COLUMNS = ("verifier", "seen in", "total variation", *USUAL, "exact audit", "sampled audit")
_WHOLE_COLUMNS = ("code", "kind", "seen in", "total variation", *USUAL, "audit of the whole")
_NEVER = "·"
_FEW = 4
"""Tokens on which steps and trees meet the usual tests: every draw of theirs is branched on."""


def exact_of(mutant: Mutant) -> ExactAudit | SequenceAudit:
    """Audit a mutant exactly on its instance, in sequence mode where it verifies blocks."""
    instance = mutant.instance
    if isinstance(instance, Problem):
        return exact(mutant.candidate, instance)
    return sequence(
        mutant.candidate,
        draft=instance.draft,
        target=instance.target,
        num_drafts=instance.num_drafts,
    )


def corpus_table() -> str:
    """Return the table in Markdown: a row for each mutant, then the controls. Seeded, so the same
    on every call.

    Returns:
        Markdown; numbers are the percentage of runs in which a test fails.

    Cost: 15 seconds.
    """
    return markdown(_COLUMNS, [corpus_row(mutant) for mutant in (*BROKEN, *CONTROLS)])


def corpus_row(mutant: Mutant) -> list[str]:
    """Return the cells of one mutant; its samples are seeded by its name."""
    rng = np.random.default_rng(list(mutant.name.encode()))
    noticed = run_usual_tests(mutant, rng=rng)
    known, seen = exact_of(mutant), sampled_of(mutant, rng=rng)
    return [
        mutant.name if mutant.total_variation else f"*{mutant.name}* (lossless)",
        ", ".join(_link(source) for source in mutant.sources),
        str(mutant.total_variation),
        *_shares(noticed),
        "found" if known.verdict == "not lossless" else known.verdict,
        f"found in {seen.samples:,}"
        if seen.verdict == "not lossless"
        else f"nothing in {seen.samples:,}",
    ]


def wholes_table() -> str:
    """Return the table of steps and kernels of trees in Markdown; seeded, so the same on every
    call.
    """
    return markdown(_WHOLE_COLUMNS, map(whole_row, WHOLES))


def whole_row(whole: Whole) -> list[str]:
    """Return the cells of one of them; what tests of the text notice is drawn from the law of the
    first token.
    """
    found = whole.audited()
    rng = np.random.default_rng(list(whole.name.encode()))
    differs = whole.differs_when_certain
    try:
        noticed = noticed_by(whole.first_token_law, differs, rng=rng, num_tokens=_FEW)
    except CandidateFailure:  # which ends any test that draws
        noticed = Noticed(float(differs), 1.0, 1.0, 1.0, 1.0, 1.0)
    kind = f"tree, siblings {whole.siblings}" if whole.siblings else "step"
    verdict = "found" if found.verdict == "not lossless" else found.verdict
    said = (
        f"{verdict} by {found.cells} executions"
        if isinstance(found, JointAudit)
        else f"{verdict} in {found.samples:,}"
    )
    sources = ", ".join(_link(source) for source in whole.sources)
    return [whole.name, kind, sources, str(whole.total_variation), *_shares(noticed), said]


def _shares(noticed: Noticed) -> list[str]:
    shares = dataclasses.astuple(noticed)
    return [f"{100 * share:.3g} %" if share else _NEVER for share in shares]


def _link(source: str) -> str:
    found = re.fullmatch(r"([\w.-]+/([\w.-]+))#(\d+)", source)
    return (
        source
        if found is None
        else f"[{found[2]}#{found[3]}](https://github.com/{found[1]}/issues/{found[3]})"
    )


def example_report() -> str:
    """Return the report of one mutant on the standard instances, as the example of a report."""
    mutant = next(m for m in BROKEN if m.name == "residual removes the drafted token only")
    return str(battery(mutant.candidate))


def update(docs: Path) -> None:
    """Put fresh tables and a fresh example into the pages."""
    quoted = "\n".join(f"> {line}".rstrip() for line in example_report().splitlines())
    for page, name, body in (
        ("broken_verifiers", "corpus", corpus_table()),
        ("broken_verifiers", "wholes", wholes_table()),
        ("audit", "example", quoted),
    ):
        path = docs / f"{page}.md"
        path.write_text(
            with_section(path.read_text(encoding="utf-8"), name, body), encoding="utf-8"
        )
