"""The map of `guide/which.md`: from what is drafted to the verifiers that fit."""

from __future__ import annotations

from docutils import nodes
from reference import public_names
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from otm._display.tabular import markdown

MAP: dict[str, dict[str, tuple[str, ...]]] = {
    "One token, output exactly the target's law": {
        "a single draft": ("Maximal",),
        "a single draft, the verifier does not see p": ("Race", "MinHash"),
        "k i.i.d. drafts": ("Optimal", "KSeq"),
        "k i.i.d. drafts, the verifier does not see p": ("Race", "ListRace"),
        "k distinct sampled drafts": ("WithoutReplacementOptimal", "Race"),
        "k − 1 likeliest tokens, one sample": ("GreedyOptimal", "SpecHub"),
        "the k likeliest tokens": ("Naive",),
        "different drafters, or any law, small V": ("TransportPlan", "SelectThenReject"),
    },
    "One token, the law may move a little": {
        "within a total variation": ("TvOptimal",),
        "within a KL divergence": ("Mentored",),
        "as engines do it, measured": ("Lenience", "TypicalAcceptance", "RelaxedAcceptance"),
        "by thresholds of probability": ("ThresholdMatching", "Mars", "BoundedRegret"),
        "as a mixture or a cascade": ("Ensemble", "Cascade", "Cactus", "Fuzzy"),
        "where tokens stand for each other: images, actions": (
            "Lantern",
            "Grouped",
            "ActionDistance",
        ),
    },
    "Several tokens": {
        "one drafted sequence": ("BlockVerification", "SpeculativeSampling"),
        "K i.i.d. sequences": ("RefinedScores", "DraftSelection"),
        "a tree of distinct samples": ("TraversalVerification", "Gsd"),
        "a tree of the likeliest paths": ("LikeliestTree",),
        "drafts on noise that the target shares": ("NoiseTree", "Ersd"),
        "a chain of models": ("Staged",),
        "a greedy chain, lossy": ("Fly", "RegretBudget"),
    },
}
"""What is verified: by what is drafted, verifiers or decoders, the first of them first."""


def as_tables() -> list[str]:
    """Write the map as a table for each kind of output."""
    lines = []
    for kind, cases in MAP.items():
        rows = [
            (case, ", ".join(f"{{py:obj}}`{name} <{public_names()[name]}>`" for name in names))
            for case, names in cases.items()
        ]
        lines += [*markdown((kind, "start with"), rows).splitlines(), ""]
    return lines


class Map(SphinxDirective):
    """`{map}`: the tables, whose names are links."""

    def run(self) -> list[nodes.Node]:
        """Parse the tables."""
        return self.parse_text_to_nodes("\n".join(as_tables()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("map", Map)
    return {"parallel_read_safe": True}
