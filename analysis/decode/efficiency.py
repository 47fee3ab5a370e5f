"""Block efficiency: decoded tokens per serial call of the target, with an interval over prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, jackknife_error, t_quantile

from ..errors import AnalysisError
from ..statistics import Groups, means_by_group
from .decoder_text import most_tokens
from .plain import PLAIN
from .results import TextRecord


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Tokens per serial call of the target, with an interval over prompts.

    Attributes:
        decoder: its text.
        tokens_per_call: total tokens / total calls, texts weighted by their calls, with a 95 %
            interval over prompts, see `tokens_per_call`.
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


def tokens_per_call(spent: Floats, prompts: Groups, *, most: int) -> Estimate:
    """Return tokens per target call with a 95 % interval over prompts.

    Σ tokens / Σ calls ± t · standard error, clustered by prompt as texts of one prompt depend on
    each other; its ends are cut to [1, most], outside which no mean can lie.

    Args:
        spent: `(texts, 2)`, decoded tokens and serial target calls, at least one call in all.
        prompts: the prompt of each text.
        most: tokens that one call can yield at most.
    """
    tokens, calls = spent[:, :1], spent[:, 1:]
    return means_by_group(tokens, calls, prompts).at(0).clipped(1.0, most)


def efficiency(records: Iterable[TextRecord], *, decoder: str) -> Efficiency:
    """Return the mean number of decoded tokens per target call, with an interval over prompts.

    Raises:
        AnalysisError: if there is no record of the decoder.
    """
    mine = [record for record in records if record.task.decoder == decoder]
    if not mine:
        raise AnalysisError(f"There is no record of {decoder}; decode with it first.")
    spent = np.array([[sum(record.lengths), record.num_calls] for record in mine], dtype=float)
    prompts = [record.task.prompt for record in mine]
    most = max(most_tokens(decoder, record.drafted) for record in mine)
    return Efficiency(
        decoder=decoder,
        tokens_per_call=tokens_per_call(spent, prompts, most=most),
        num_prompts=len({*prompts}),
        num_texts=len(mine),
        num_calls=int(spent[:, 1].sum()),
        accepted=sum(sum(record.accepted) for record in mine) / float(spent[:, 1].sum()),
        tokens_per_second=float(spent[:, 0].sum()) / sum(record.seconds for record in mine),
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
