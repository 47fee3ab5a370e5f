"""Block efficiency: decoded tokens per serial call of the target, with an interval over prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..errors import AnalysisError
from ..statistics import Floats, clustered_means, t_quantile
from .decoder_text import most_tokens
from .plain import PLAIN
from .results import TextRecord


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Tokens per serial call of the target, with an interval over prompts.

    Attributes:
        decoder: its text.
        mean: total tokens / total calls, texts weighted by their calls.
        low, high: 95 % interval over prompts, see `block_efficiency`; None for one prompt.
        num_prompts, num_texts, num_calls: behind the mean.
        accepted: accepted drafts per call.
        tokens_per_second: wall time included; a property of the machine as well.
    """

    decoder: str
    mean: float
    low: float | None
    high: float | None
    num_prompts: int
    num_texts: int
    num_calls: int
    accepted: float
    tokens_per_second: float


def block_efficiency(
    tokens: Floats, calls: Floats, *, most: int
) -> tuple[float, float | None, float | None]:
    """Return tokens per target call with a 95 % interval over prompts, the one that tables and
    reports show.

    Σ tokens / Σ calls ± t · standard error, clustered by prompt as texts of one prompt depend on
    each other; its ends are cut to [1, most], outside which no mean can lie.

    Args:
        tokens, calls: `(prompts,)`, decoded tokens and serial target calls of each prompt, at least
            one call in all.
        most: tokens that one call can yield at most.

    Returns:
        The mean and both ends of its interval, None for one prompt.
    """
    means = clustered_means(tokens[:, None], calls[:, None])
    mean, low, high = (float(value[0]) for value in (means.mean, means.low, means.high))
    if not np.isfinite(low):
        return mean, None, None
    return mean, max(1.0, low), min(float(most), high)


def efficiency(records: Iterable[TextRecord], *, decoder: str) -> Efficiency:
    """Return block efficiency, the mean number of decoded tokens per target call, with an interval
    over prompts.

    Raises:
        AnalysisError: if there is no record of the decoder.
    """
    mine = [record for record in records if record.task.decoder == decoder]
    if not mine:
        raise AnalysisError(f"There is no record of {decoder}; decode with it first.")
    prompts = sorted({record.task.prompt for record in mine})
    place = {prompt: i for i, prompt in enumerate(prompts)}
    tokens, calls = np.zeros(len(prompts)), np.zeros(len(prompts))
    for record in mine:
        tokens[place[record.task.prompt]] += sum(record.lengths)
        calls[place[record.task.prompt]] += record.num_calls
    mean, low, high = block_efficiency(
        tokens, calls, most=max(most_tokens(decoder, record.drafted) for record in mine)
    )
    return Efficiency(
        decoder=decoder,
        mean=mean,
        low=low,
        high=high,
        num_prompts=len(prompts),
        num_texts=len(mine),
        num_calls=int(calls.sum()),
        accepted=sum(sum(record.accepted) for record in mine) / float(calls.sum()),
        tokens_per_second=float(tokens.sum()) / sum(record.seconds for record in mine),
    )


def measured_speedup(
    records: Iterable[TextRecord], *, decoder: str
) -> tuple[float | None, float | None, float | None]:
    """Return how much faster a decoder is than plain decoding of the same prompts, with a 95 %
    interval over prompts.

    (seconds per token of plain decoding) / (seconds per token of the decoder) · exp(± t · standard
    error), by the jackknife of the logarithm over prompts.

    Returns:
        The ratio of totals and the ends of its interval; None without plain decoding of its
        prompts, None for the ends with one.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    for record in records:
        if (side := {PLAIN: 0, decoder: 1}.get(record.task.decoder)) is not None:
            entry = sums.setdefault(record.task.prompt, np.zeros((2, 2)))
            entry[side if decoder != PLAIN else slice(None)] += (
                record.seconds,
                sum(record.lengths),
            )
    totals = np.array([entry for entry in sums.values() if (entry > 0).all()])
    if not len(totals):
        return None, None, None

    def log_ratio(whole: Floats) -> Floats:
        seconds, tokens = whole[..., 0], whole[..., 1]
        return np.asarray(
            np.log(seconds[..., 0] * tokens[..., 1]) - np.log(seconds[..., 1] * tokens[..., 0])
        )

    value, count = float(np.exp(log_ratio(totals.sum(axis=0)))), len(totals)
    if count == 1:
        return value, None, None
    without = log_ratio(totals.sum(axis=0) - totals)
    error = float(np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum()))
    reach = float(np.exp(t_quantile(count) * error))
    return value, value / reach, value * reach
