"""The payload that vLLM's per-request metrics and AIPerf's records share.

It holds a histogram, sums, and in detail every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otm.engines.positions import MAX_POSITIONS
from otm.engines.records.document import count, integers
from otm.engines.records.tally import Tally
from otm.errors import InvalidParameter

KEYS = ("acceptance_histogram", "num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
"""Keys of the payload that both forms always have."""


def payload_tally(payload: dict[str, Any], *, name: str) -> Tally:
    """Return the counts of one request, after checking that they agree with each other.

    Args:
        payload: an object with `KEYS`; with "per_step_accepted" and "per_step_drafted" as lists
            where every step is listed.
        name: what the request is called.

    Raises:
        InvalidParameter: if the histogram, the sums and the steps contradict each other.

    >>> keys = {"num_spec_steps": 10, "num_accepted_draft_tokens": 14, "num_draft_tokens": 20}
    >>> payload_tally({"acceptance_histogram": [2, 2, 6]} | keys, name="a").mean
    2.4
    """
    steps, accepted, drafted = (count(payload[key], key) for key in KEYS[1:])
    histogram = _dense(payload["acceptance_histogram"])
    if sum(histogram) != steps or sum(j * found for j, found in enumerate(histogram)) != accepted:
        raise InvalidParameter(
            "acceptance_histogram must count num_spec_steps steps and num_accepted_draft_tokens "
            f"drafts; {name} counts {sum(histogram)} of {steps} and "
            f"{sum(j * n for j, n in enumerate(histogram))} of {accepted}. Check the export."
        )
    taken, tried = payload.get("per_step_accepted"), payload.get("per_step_drafted")
    if taken is None or tried is None:
        return Tally.of_histogram(_at_length(histogram, payload), name=name, drafted=drafted)
    tally = Tally.of_steps(
        integers(taken, "per_step_accepted"), integers(tried, "per_step_drafted"), name=name
    )
    if (tally.steps, tally.accepted, tally.drafted) != (steps, accepted, drafted):
        raise InvalidParameter(
            "The steps must add up to num_spec_steps, num_accepted_draft_tokens and "
            f"num_draft_tokens, {steps}, {accepted} and {drafted}; {name} lists {tally.steps:g}, "
            f"{tally.accepted:g} and {tally.drafted:g}. Check the export."
        )
    listed = [taken.count(j) for j in range(len(histogram))]
    if listed != histogram:
        raise InvalidParameter(
            f"The steps must be those of acceptance_histogram; {name} counts {histogram[:8]} and "
            f"lists {listed[:8]}. Check the export."
        )
    return tally


def length_of(payloads: Sequence[dict[str, Any]]) -> int | None:
    """Return the draft length that all payloads were set to, None if they differ or do not say.

    >>> length_of([{"num_spec_tokens": 3}, {"num_spec_tokens": 3}])
    3
    """
    lengths = {payload.get("num_spec_tokens") for payload in payloads}
    (only,) = lengths if len(lengths) == 1 else (None,)
    return None if only is None else count(only, "num_spec_tokens")


def _dense(histogram: object) -> list[int]:
    """Return counts by accepted drafts from a dense list or a sparse object."""
    if isinstance(histogram, dict):
        pairs = {
            count(j, "a key of acceptance_histogram"): count(n, "acceptance_histogram")
            for j, n in histogram.items()
        }
        if max(pairs, default=0) > MAX_POSITIONS:
            raise InvalidParameter(
                f"A step accepts up to {MAX_POSITIONS:,} drafts; got {max(pairs)}. Check the "
                "export."
            )
        return [pairs.get(j, 0) for j in range(max(pairs, default=0) + 1)]
    return integers(histogram, "acceptance_histogram")


def _at_length(histogram: list[int], payload: dict[str, Any]) -> list[int]:
    """Return the histogram up to the length that is set, with positions never accepted."""
    length = count(payload.get("num_spec_tokens") or 0, "num_spec_tokens")
    return histogram + [0] * (min(length, MAX_POSITIONS) + 1 - len(histogram))
