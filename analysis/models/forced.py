"""Forced log-probabilities: a model's likeliest tokens along given texts.

Behind the first difference of two texts the contexts differ, and the log-probabilities that a
server wrote can no longer be compared. The model's own along one of the texts can, at every token.
"""

from __future__ import annotations

import torch

from otm.audit.text_log import LoggedText

from ..errors import AnalysisError
from .pair import Pair

_LIKELIEST = 5


@torch.inference_mode()
def forced_text(pair: Pair, text: LoggedText) -> LoggedText:
    """Return a text with the target's log-probabilities of the likeliest tokens at each place.

    Args:
        pair: whose target is evaluated, in one pass.
        text: with its prompt, as a text or as tokens, and the numbers of its tokens.

    Raises:
        AnalysisError: as `token_numbers`.

    Cost: one pass over prompt and text.
    """
    prompt, tokens = token_numbers(pair, text)
    row = [*prompt, *tokens]
    logits = pair.target(torch.tensor([row], device=pair.device), use_cache=False).logits
    places = logits[0, len(prompt) - 1 : -1, : pair.num_tokens].double()
    values, names = torch.log_softmax(places, dim=-1).topk(_LIKELIEST)
    top = [
        dict(zip(*one, strict=True)) for one in zip(names.tolist(), values.tolist(), strict=True)
    ]
    return LoggedText(text.tokens, tuple(top), prompt, text.finish, forced=True)


def token_numbers(pair: Pair, text: LoggedText) -> tuple[list[int], list[int]]:
    """Return the token numbers of a text's prompt and of the text.

    Raises:
        AnalysisError: if the text has no prompt, or no numbers of the target's tokens.
    """
    prompt = pair.encode(text.prompt) if isinstance(text.prompt, str) else text.prompt
    row = [*(prompt or ()), *text.tokens]
    if not prompt or not all(type(x) is int and 0 <= x < pair.num_tokens for x in row):
        raise AnalysisError(
            "A text is read after its prompt, by the numbers of its tokens below "
            f"{pair.num_tokens}; this one has the prompt {text.prompt!r:.40} and the tokens "
            f"{text.tokens!r:.60}. Log prompt_token_ids and token ids."
        )
    return row[: len(prompt)], row[len(prompt) :]
