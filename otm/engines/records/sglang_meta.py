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

from collections.abc import Sequence
from typing import Any

from otm.engines.records.document import Document
from otm.engines.records.fields import Fields, form_of_objects
from otm.engines.records.record import REQUEST
from otm.engines.records.tally import Tally

_FIELDS = Fields(
    steps=("spec_verify_ct",),
    accepted=("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    histogram=("spec_correct_drafts_histogram", "spec_accept_histogram"),
    offered=("spec_cap_lens_histogram",),
    emitted=("completion_tokens",),
    mean=("spec_accept_length",),
    part=("id",),
    proposed=("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
    sums=False,
)


def _find(document: Document) -> list[dict[str, Any]]:
    """Return the fields of each request, once where a response repeats meta_info."""
    metas = [found["meta_info"] for found in document.objects("meta_info")]
    inside = [meta for meta in metas if isinstance(meta, dict) and "spec_verify_ct" in meta]
    return inside or list(document.objects("spec_verify_ct"))


def _about(found: Sequence[dict[str, Any]], parts: Sequence[Tally]) -> dict[str, Any]:
    notes = []
    if not any(part.offered is not None for part in parts):
        notes.append(
            "spec_proposed_drafts is what was configured: whether steps drafted fewer is not "
            "recorded."
        )
    if any(part.survivors is None for part in parts):
        notes.append(
            "Some requests have no histogram: means only. completion tokens include that of the "
            "prefill."
        )
    return {"notes": tuple(notes)}


FORM = form_of_objects(
    name="SGLang meta_info",
    marks='JSON with "spec_verify_ct" ("spec_accept_histogram", …)',
    unit=REQUEST,
    convention="spec_accept_length counts the root; the histogram does not",
    fields=_FIELDS,
    find=_find,
    about=_about,
)
