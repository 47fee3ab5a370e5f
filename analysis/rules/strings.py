"""String-level exact match (SLEM): a draft with another tokenizer writes text, which is matched.

The draft continues the text by its likeliest tokens, in tokens of its own; the target's tokenizer
reads what it wrote, and a drafted token stands if the target's own sample is the same. Nothing of
it is random given the text, so that, as for trees of likeliest paths,

    S_i(t) = [the text's next i − 1 tokens are drafted] · q(the i-th drafted token).

Reference: SLEM of Timor et al. 2025 (2502.05202), section 3.
"""

from __future__ import annotations

import numpy as np

from ..advise.walk import Walk
from ..models.translated import SharedTokens
from ..steps.texts import SampledText


def along_strings(
    draft: SharedTokens, text: SampledText, *, length: int, starts: int, eos: int | None
) -> Walk:
    """Walk with drafts of L tokens of the draft's own, of which at most L of the target's count.

    Args:
        draft: with its own tokenizer.
        text: along which it is walked.
        length: L.
        starts: steps start before this position.
        eos: the token that ends a text.

    Cost: L draft calls over all starts together.
    """
    number = len(text.tokens)
    starts = min(starts, number)
    reached, gained = np.zeros((length + 1, starts)), np.zeros((length, starts))
    reached[0] = 1.0
    written = draft.continued([text.context(start) for start in range(starts)], length)
    for start, tokens in enumerate(written):
        for place, token in enumerate(tokens[: min(length, number - start)]):
            gained[place, start] = text.target[start + place, token] * (token != eos)
            if token != text.tokens[start + place]:
                break
            reached[place + 1, start] = 1.0
    return Walk.of(reached, gained)
