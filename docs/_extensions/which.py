"""The map of `guide/which.md`: questions and verifiers as a drawing whose boxes are links, and the
same as a list.
"""

from __future__ import annotations

import dataclasses
import html
from typing import Any

from docutils import nodes
from reference import page_of, public_names
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with its answers: further questions, or names of verifiers and decoders."""

    text: str
    answers: tuple[Question | tuple[str, ...], ...]


MAP = Question(
    "How many tokens does a step verify?",
    (
        Question(
            "one token, output exactly the target's law",
            (
                Question("a single draft", (("Maximal",),)),
                Question("… and the verifier must not see p", (("Race", "MinHash"),)),
                Question("k i.i.d. drafts", (("Optimal", "KSeq"),)),
                Question("… and the verifier must not see p", (("Race", "ListRace"),)),
                Question("k distinct sampled drafts", (("WithoutReplacementOptimal", "Race"),)),
                Question("k − 1 likeliest tokens, one sample", (("GreedyOptimal", "SpecHub"),)),
                Question("the k likeliest tokens", (("Naive",),)),
                Question(
                    "different drafters, or any law, small V",
                    (("TransportPlan", "SelectThenReject"),),
                ),
            ),
        ),
        Question(
            "one token, the law may move a little",
            (
                Question("within a total variation", (("TvOptimal",),)),
                Question("within a KL divergence", (("Mentored",),)),
                Question(
                    "as engines do it, measured",
                    (("Lenience", "TypicalAcceptance", "RelaxedAcceptance"),),
                ),
                Question(
                    "… by thresholds of probability",
                    (("ThresholdMatching", "Mars", "BoundedRegret"),),
                ),
                Question(
                    "as a mixture or a cascade", (("Ensemble", "Cascade", "Cactus", "Fuzzy"),)
                ),
                Question(
                    "where tokens stand for each other: images, actions",
                    (("Lantern", "Grouped", "ActionDistance"),),
                ),
            ),
        ),
        Question(
            "several tokens",
            (
                Question("one drafted sequence", (("BlockVerification", "SpeculativeSampling"),)),
                Question("K i.i.d. sequences", (("RefinedScores", "DraftSelection"),)),
                Question("a tree of distinct samples", (("TraversalVerification", "Gsd"),)),
                Question("a tree of the likeliest paths", (("LikeliestTree",),)),
                Question("drafts on noise that the target shares", (("NoiseTree", "Ersd"),)),
                Question("a chain of models", (("Staged",),)),
                Question("a greedy chain, lossy", (("Fly", "RegretBudget"),)),
            ),
        ),
    ),
)

_ROW, _BOX, _WIDTHS, _GAPS = 40, 30, (250, 265, 168), (30, 30)
_LINE = 'fill="none" stroke="currentColor" stroke-opacity="0.45" stroke-width="1.3"'


def _drawing(link: Any) -> str:
    parts: list[str] = []
    height = 0.0

    def box(x: float, y: float, width: float, text: str, href: str | None) -> None:
        fill = "#0b5394" if href else "none"
        ink = "#ffffff" if href else "currentColor"
        rect = (
            f'<rect x="{x}" y="{y - _BOX / 2}" width="{width}" height="{_BOX}" rx="5" '
            f'fill="{fill}" stroke="currentColor"/>'
        )
        label = (
            f'<text x="{x + width / 2}" y="{y + 4.5}" text-anchor="middle" '
            f'fill="{ink}">{html.escape(text)}</text>'
        )
        parts.append(f'<a href="{href}">{rect}{label}</a>' if href else rect + label)

    x1 = _WIDTHS[0] + _GAPS[0]
    x2 = x1 + _WIDTHS[1] + _GAPS[1]
    leaf = (_WIDTHS[2], 8)
    widest = 0.0
    for branch in MAP.answers:
        assert isinstance(branch, Question)
        rows = [height + _ROW * (i + 0.6) for i in range(len(branch.answers))]
        middle = (rows[0] + rows[-1]) / 2
        box(
            0,
            middle,
            _WIDTHS[0],
            branch.text.replace("output exactly the target's law", "lossless").replace(
                "the law may", "may"
            ),
            None,
        )
        for y, question in zip(rows, branch.answers, strict=True):
            assert isinstance(question, Question)
            parts.append(
                f'<path d="M{_WIDTHS[0]},{middle} C{x1 - 8},{middle} {_WIDTHS[0] + 8},{y} '
                f'{x1},{y}" {_LINE}/>'
            )
            box(x1, y, _WIDTHS[1], question.text, None)
            parts.append(f'<path d="M{x1 + _WIDTHS[1]},{y} H{x2}" {_LINE}/>')
            (names,) = question.answers
            assert isinstance(names, tuple)
            for i, name in enumerate(names):
                box(x2 + i * (leaf[0] + leaf[1]), y, leaf[0], name, link(name))
            widest = max(widest, x2 + len(names) * (leaf[0] + leaf[1]))
        height = rows[-1] + _ROW * 0.9
    return (
        f'<div class="map"><svg viewBox="-2 0 {widest} {height}" role="img" aria-label="Map from '
        'drafts to verifiers" '
        f'font-family="inherit" font-size="13.5">{"".join(parts)}</svg></div>'
    )


def as_list() -> list[str]:
    """Return the lines of the map as a list."""
    lines = []
    for branch in MAP.answers:
        assert isinstance(branch, Question)
        lines += [f"**{branch.text[0].upper() + branch.text[1:]}**", ""]
        for question in branch.answers:
            assert isinstance(question, Question)
            (names,) = question.answers
            assert isinstance(names, tuple)
            lines.append(
                f"* {question.text}: "
                + ", ".join(f"{{py:obj}}`{name} <{public_names()[name]}>`" for name in names)
            )
        lines.append("")
    return lines


class Map(SphinxDirective):
    """`{map}`: the drawing, and below it the list for narrow screens and readers of text."""

    def run(self) -> list[nodes.Node]:
        """Return both."""
        up = "../" * self.env.docname.count("/")

        def link(name: str) -> str:
            full = public_names()[name]
            return f"{up}{page_of(full)}.html#{full}"

        return [
            nodes.raw("", _drawing(link), format="html"),
            *self.parse_text_to_nodes("\n".join(as_list())),
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("map", Map)
    return {"parallel_read_safe": True}
