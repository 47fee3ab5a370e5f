"""SGLang's `meta_info` of every response, as JSON or JSON lines.

`spec_verify_ct` verifications; `spec_accept_histogram` (`spec_correct_drafts_histogram` since the
two were told apart): steps by accepted drafts, the root not counted; `spec_accept_length` =
completion tokens over verifications, which counts the root, and the token of the prefill as well,
so that it exceeds 1 + accepted/steps by 1/steps. The histogram grows as far as it needs: positions
that were drafted and never accepted are missing. `spec_proposed_drafts` is verifications × (drafted
tokens − 1) as configured, not what a step drafted, so it cannot show that draft lengths differ;
`spec_cap_lens_histogram` does: steps by the number of drafts that were to be verified, the root not
counted (`spec_cap_length`, a mean, counts it).

Source of the form: github.com/sgl-project/sglang,
python/sglang/srt/managers/tokenizer_manager_components/spec_decoding_meta.py at 9155cf0e, and
`update_spec_cap_lens_histogram` of python/sglang/srt/managers/schedule_batch.py.
"""

from __future__ import annotations

from typing import Any

from otm.engines.records.document import Document, Form, count, integers, number
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import Tally

_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")


def _requests(document: Document) -> list[dict[str, Any]]:
    """Return what is told of each request, once where a response repeats its meta_info."""
    inside = [
        found["meta_info"]
        for found in document.objects("meta_info")
        if isinstance(found["meta_info"], dict)
    ]
    return [meta for meta in inside if "spec_verify_ct" in meta] or list(
        document.objects("spec_verify_ct")
    )


def _read(document: Document) -> AcceptanceRecord:
    found = _requests(document)
    parts = tuple(_tally(meta, f"request {i}") for i, meta in enumerate(found, start=1))
    notes, length = [], _configured(found)
    if not any(part.offered is not None for part in parts):
        notes.append(
            "spec_proposed_drafts is what was configured: whether steps drafted fewer is not "
            "recorded."
        )
        if length is not None:
            notes.append(f"Configured: {length} drafts a step, taken as a chain.")
    if any(part.survivors is None for part in parts):
        notes.append(
            "Some requests have no histogram: means only. completion tokens include that of the "
            "prefill."
        )
    return AcceptanceRecord(
        form="SGLang meta_info",
        unit=REQUEST,
        parts=parts,
        convention="spec_accept_length counts the root; the histogram does not",
        length=length,
        notes=tuple(notes),
    )


def _configured(found: list[dict[str, Any]]) -> int | None:
    """Return the drafts per step that all requests were configured for, None without such."""
    lengths = set()
    for meta in found:
        proposed = next((meta[key] for key in _PROPOSED if meta.get(key)), None)
        steps = count(meta["spec_verify_ct"], "spec_verify_ct")
        if proposed is not None and steps:
            lengths.add(count(proposed, "spec_proposed_drafts") / steps)
    (only,) = lengths if len(lengths) == 1 else (0.5,)
    return int(only) if only == int(only) else None


def _tally(meta: dict[str, Any], name: str) -> Tally:
    steps = count(meta["spec_verify_ct"], "spec_verify_ct")
    if not steps:
        return Tally(name=name, steps=0.0, accepted=0.0)
    histogram = next((meta[key] for key in _HISTOGRAMS if meta.get(key)), None)
    if histogram is not None:
        caps = meta.get("spec_cap_lens_histogram") or None
        offered = None if caps is None else integers(caps, "spec_cap_lens_histogram")
        return Tally.of_histogram(
            integers(histogram, "spec_accept_histogram"), name=name, offered=offered
        )
    for key in _ACCEPTED:
        if meta.get(key) is not None:
            return Tally(name=name, steps=float(steps), accepted=float(count(meta[key], key)))
    if meta.get("completion_tokens") is not None:
        tokens = count(meta["completion_tokens"], "completion_tokens")
        return Tally(name=name, steps=float(steps), accepted=float(max(0, tokens - 1 - steps)))
    mean = number(meta.get("spec_accept_length"), "spec_accept_length")
    return Tally(name=name, steps=float(steps), accepted=max(0.0, (mean - 1.0) * steps))


FORM = Form(
    name="SGLang meta_info",
    marks='JSON with "spec_verify_ct" ("spec_accept_histogram", …)',
    recognises=lambda document: bool(_requests(document)),
    read=_read,
)
