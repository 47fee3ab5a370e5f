"""Block efficiency: decoded tokens per serial call of the target, with an interval over prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, jackknife_error, ratio_of_means, t_quantile

from ..errors import AnalysisError
from .decoder_text import most_tokens
from .plain import PLAIN
from .results import TextRecord


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Tokens per serial call of the target, with an interval over prompts.

    Attributes:
        decoder: its text.
        tokens_per_call: total tokens / total calls, texts weighted by their calls, with a 95 %
            interval over prompts, see `block_efficiency`.
        num_prompts, num_texts, num_calls: behind the mean.
        accepted: accepted drafts per call.
        tokens_per_second: wall time included; a property of the machine as well.
    """

    decoder: str
    tokens_per_call: Estimate
    num_prompts: int
    num_texts: int
    num_calls: int
    accepted: float
    tokens_per_second: float


def block_efficiency(tokens: Floats, calls: Floats, *, most: int) -> Estimate:
    """Return tokens per target call with a 95 % interval over prompts.

    Σ tokens / Σ calls ± t · standard error, clustered by prompt as texts of one prompt depend on
    each other; its ends are cut to [1, most], outside which no mean can lie.

    Args:
        tokens, calls: `(prompts,)`, decoded tokens and serial target calls of each prompt, at least
            one call in all.
        most: tokens that one call can yield at most.
    """
    return ratio_of_means(tokens[:, None], calls[:, None]).at(0).clipped(1.0, most)


def efficiency(records: Iterable[TextRecord], *, decoder: str) -> Efficiency:
    """Return the mean number of decoded tokens per target call, with an interval over prompts.

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
    most = max(most_tokens(decoder, record.drafted) for record in mine)
    return Efficiency(
        decoder=decoder,
        tokens_per_call=block_efficiency(tokens, calls, most=most),
        num_prompts=len(prompts),
        num_texts=len(mine),
        num_calls=int(calls.sum()),
        accepted=sum(sum(record.accepted) for record in mine) / float(calls.sum()),
        tokens_per_second=float(tokens.sum()) / sum(record.seconds for record in mine),
    )


def measured_speedup(records: Iterable[TextRecord], *, decoder: str) -> Estimate:
    """Return the speed-up of a decoder over plain decoding of the same prompts.

    (seconds per token of plain decoding) / (seconds per token of the decoder) · exp(± t · standard
    error), with the jackknife of the logarithm over prompts: a 95 % interval.

    Returns:
        The ratio of totals and the ends of its interval; NaN without plain decoding of its prompts,
        NaN for the ends with one.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    for record in records:
        if (side := {PLAIN: 0, decoder: 1}.get(record.task.decoder)) is not None:
            entry = sums.setdefault(record.task.prompt, np.zeros((2, 2)))
            spent = record.seconds, sum(record.lengths)
            entry[side if decoder != PLAIN else slice(None)] += spent
    totals = np.array([entry for entry in sums.values() if (entry > 0).all()])
    if not len(totals):
        return Estimate(np.nan, np.nan, np.nan)

    def log_ratio(whole: Floats) -> Floats:
        logs = np.log(whole)
        return np.asarray(logs[..., 0, 0] + logs[..., 1, 1] - logs[..., 1, 0] - logs[..., 0, 1])

    value = float(np.exp(log_ratio(totals.sum(axis=0))))
    if len(totals) == 1:
        return Estimate(value, np.nan, np.nan)
    error = jackknife_error(log_ratio(totals.sum(axis=0) - totals))
    reach = float(np.exp(t_quantile(len(totals)) * error))
    return Estimate(value, value / reach, value * reach)
