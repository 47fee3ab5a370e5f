"""The report's explanations: terms for newcomers, and how the numbers were made."""

from __future__ import annotations

from otm.verifiers import VERIFIERS

from ..run.manifest import class_of
from .aggregate import Aggregates
from .reading import Run
from .summary import ATTAINED, LAWS, Scheme

_TERMS = {
    "Draft and target": "A small draft model proposes tokens, a large target model checks them. "
    "The check is arranged so that "
    "the text that comes out has exactly the target's distribution (lossless), however bad the "
    "draft is; a bad draft only "
    "costs time.",
    "Acceptance": "The probability that the token which comes out is among the k drafts, so that "
    "the target pass yields one "
    "more token. Schemes marked “by rule” count only tokens that the scheme's own accept step "
    "took, not lucky residual draws.",
    "k": "The number of alternative drafts for one and the same position.",
    "Optimum": "The largest acceptance that any lossless scheme can reach with these drafts, "
    "computed exactly. It depends on both "
    "models and on how drafts are drawn, not on the verifier. "
    "otm.Optimal() attains it for i.i.d. drafts and otm.GreedyOptimal() for greedy ones, at any "
    "vocabulary size.",
    "Gap": "Optimum minus acceptance: what a better verifier on the same drafts would still win.",
    "Target call": "One pass of the target model over the drafted tokens. Tokens per target call "
    "(block efficiency) count the "
    "accepted drafts and the one token that the target always adds.",
    "Entropy": "How spread out the target's distribution is, in nats: 0 if one token is certain, "
    "ln n if n tokens are equally "
    "likely.",
    "TV, KL": "Distances between the two distributions: total variation, 0 if equal and 1 if "
    "disjoint; Kullback–Leibler "
    "divergence in nats, infinite where one gives probability to a token that the other excludes, "
    "as top-p sampling often "
    "does. The optimum for one draft is 1 − TV.",
    "Temperature, top-p": "How both models' logits become probabilities: temperatures below 1 "
    "sharpen; top-p p keeps the most "
    "likely tokens that together have mass p. All numbers are for the processed distributions.",
}

LOST = (
    "Exact at every position: with one draft, what the best verifier does not accept is lost to "
    "the parts in turn, from what no "
    "draft over the same tokens could win to what the filters of the target refuse. They make 1 "
    "together with what is accepted."
)

LIKELIEST = (
    "What k drafts win: drawn from this draft and verified in the best way, or chosen without "
    "chance by one that knows the target, "
    "whose k likeliest tokens they are"
)

TREES = (
    "Tokens per target call of the optimal tree of each size, every vertex taken as independent "
    "with the mean acceptance by rank, "
    "and what no tree of that size and at most so many children a vertex passes, by the entropy of "
    "that acceptance (Tunstall's "
    "bound for source codes; ERSD, Theorem 4.1 and Lemma 4.2). Between measured numbers of drafts "
    "the optimal tree takes "
    "acceptance as linear; the bound does not. Of the schemes that accept by rank, the one whose "
    "largest tree yields most."
)

TREES_HEAD = (
    "drafted tokens",
    "depth",
    "optimal tree: tokens (95 % interval)",
    "no such tree passes (95 % interval)",
)

_LAW_TERMS = {
    "IID": "each draft drawn independently from the draft model; the same token may come twice",
    "WithoutReplacement": "drafts drawn one after another, none twice",
    "Greedy": "the k − 1 most likely tokens of the draft model, then one draw from the rest",
    "TopK": "the k most likely tokens of the draft model, nothing drawn",
    "ThresholdRace": "every token that comes before k times the first in the draft model's race; "
    "their number is random, k counts them with repetitions on average",
}

_POSITIONS = {
    "text": "Both models were compared along the given text (teacher forcing). The numbers "
    "describe how well the draft "
    "predicts the target on this text; text that neither model would write can be harder or easier "
    "than what a decoder meets.",
    "target": "Both models were compared along continuations sampled from the target, at each "
    "row's own temperature and "
    "top-p. This is the text that lossless decoding "
    "produces, whatever the scheme.",
    "draft": "Both models were compared along continuations sampled from the draft, at each row's "
    "own temperature and top-p, so at "
    "contexts that the draft likes. A decoder meets the target's text instead; expect a "
    "difference.",
    "on-policy": "Positions are those that a verifier examines while single-draft speculative "
    "decoding runs at each row's own "
    "temperature and top-p. Positions right after a rejection and those deep in a block are met as "
    "often as a decoder meets "
    "them; bonus positions, where nothing is drafted, are not among them.",
    "trace": "Positions are those of a recorded trace; what they stand for is up to the trace.",
}


def terms(schemes: tuple[Scheme, ...]) -> list[tuple[str, str]]:
    """Return (term, explanation) for everything that the page of these schemes uses."""
    laws = list(dict.fromkeys(scheme.law for scheme in schemes))
    told = [
        (f"Drafts “{LAWS[law]}”", _LAW_TERMS[law][0].upper() + _LAW_TERMS[law][1:] + ".")
        for law in laws
        if law in _LAW_TERMS
    ]
    lossy = (
        "Lossy: the output no longer has the target's distribution. Shown for comparison, "
        "never recommended."
    )
    summaries = {verifier.__name__: verifier.summary for verifier in VERIFIERS}
    seen: dict[str, str] = {}
    # An optimum that a verifier attains is explained as that verifier, which readers can choose.
    for scheme in (scheme for scheme in schemes if scheme.kind != "bound"):
        verifier = (
            ATTAINED[scheme.law].removeprefix("otm.")
            if scheme.kind == "optimum" and scheme.usable
            else scheme.identity
        )
        known = summaries.get(class_of(verifier))
        parts = [
            known[0].upper() + known[1:] + "." if known else "",
            lossy if scheme.kind == "lossy" else "",
        ]
        if any(parts):
            seen[scheme.name] = " ".join(part for part in parts if part)
    bounds = ", ".join(dict.fromkeys(scheme.name for scheme in schemes if scheme.kind == "bound"))
    proven = (
        [(bounds, "Proven lower bounds on the acceptance of races and lists, not schemes.")]
        if bounds
        else []
    )
    return [*_TERMS.items(), *told, *seen.items(), *proven]


def interval_words(run: Run, found: Aggregates) -> str:
    """Explain the computation of acceptance in this run, and the bands of the charts."""
    if found.strata.num_prompts < 2:
        words = "All positions come from one prompt, so no interval over prompts can be given."
    else:
        words = "" if run.is_interval else "Bands are 95 % intervals over prompts."
    if run.is_interval:
        return (
            "The run knows only the most likely tokens and the mass of the rest, so acceptance is "
            "certified between two ends. "
            f"{words}"
        ).strip()
    return (
        "It is computed exactly at every position from both models' distributions, then "
        f"averaged. {words}"
    )


def band_words(run: Run, found: Aggregates) -> str:
    """Explain lines and bands in the charts of a run of intervals; empty for any other run."""
    if not run.is_interval:
        return ""
    widened = "" if found.strata.num_prompts < 2 else ", widened by the 95 % interval over prompts"
    return f"Line: certified lower end. Band: from there to the certified upper end{widened}."


def setting_words(label: str, settings: int, *, advised: bool) -> str:
    """Name the sampling setting that is shown first, with the reason."""
    if settings == 1:
        return f"Sampling: {label}"
    which = "the one that the advice is for" if advised else "the nearest to plain sampling"
    return f"Sampling: {label}, of {settings} measured {which}"


def method(run: Run, found: Aggregates) -> list[str]:
    """Return the paragraphs on positions, intervals and completeness."""
    note = run.manifest.get("position_note")
    noted = f"{note.rstrip('.')}." if isinstance(note, str) and note else ""
    positions = _POSITIONS.get(str(run.section("settings").get("positions", "")), noted)
    lines = [f"Positions: {positions}" if positions else ""]
    prompts = found.strata.num_prompts
    if prompts > 1:
        shared = (
            ""
            if found.num_clusters == prompts
            else (
                f" The {prompts} prompts were spread over {found.num_clusters} "
                "clusters to bound memory; that "
                "changes the width of an interval by a few per cent at most."
            )
        )
        lines.append(
            "Intervals: positions of one prompt resemble each other, so the interval of a mean "
            "treats prompts, not positions, "
            "as the independent observations: cluster-robust standard error of a ratio of totals, "
            "t quantile with one degree "
            f"of freedom less than clusters, 95 % coverage.{shared} Intervals say how the mean "
            "would move with other prompts "
            "of the same kind; they know nothing of other kinds of text."
        )
    exact = "is exact for its position up to floating-point rounding"
    if run.is_interval:
        exact = (
            "lies between the two ends, whatever the probabilities of the tokens that were "
            "not "
            "recorded"
        )
    lines.append(
        f"Values: every acceptance {exact}; nothing was sampled except, where said above, the text "
        "itself."
    )
    return [line for line in lines if line]


def warnings(run: Run, found: Aggregates) -> list[str]:
    """List the warnings that a reader needs before any number."""
    told = []
    if len(run.shards) < run.num_shards_planned:
        told.append(
            f"Unfinished run: {len(run.shards)} of {run.num_shards_planned} shards. The numbers "
            "are for the prompts measured "
            "so far."
        )
    prompts = found.strata.num_prompts
    if 1 < prompts < 20:
        told.append(f"Only {prompts} prompts: intervals over so few clusters are rough.")
    notes = run.section("provenance").get("notes")
    return told + [str(note) for note in notes if note] if isinstance(notes, list) else told
