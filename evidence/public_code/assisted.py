"""Hugging Face transformers under audit: its sampling function, and `generate` as users call it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

import otm
from analysis.errors import AnalysisError
from analysis.models.pair import Pair
from otm import audit
from otm._machine.arrays import to_numpy
from otm.audit import BlockCandidate
from otm.audit.log_audit import LogAudit
from otm.audit.sampled_audit import SampledAudit
from otm.audit.token_log import LogRecord

_NUM_DRAFTS = 4
MOST_BLOCKS = 4096


class Replay(TorchFunctionMode):
    """Serve `rand_like` and `multinomial` from given uniforms, in the order of use.

    After the last uniform `multinomial` is torch's own.
    """

    def __init__(self, uniforms: torch.Tensor) -> None:
        super().__init__()
        self.left = uniforms

    def _take(self, count: int) -> torch.Tensor:
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.rand_like:
            return self._take(args[0].numel()).reshape(args[0].shape).to(args[0].dtype)
        if func is torch.multinomial and self.left.numel():
            cumulative = args[0].cumsum(dim=-1)
            point = self._take(1).to(args[0].dtype) * cumulative[..., -1:]
            return torch.searchsorted(cumulative, point, right=True).clamp_max(
                args[0].shape[-1] - 1
            )
        return func(*args, **(kwargs or {}))


def sampling_function() -> Any:
    """Return the function of the installed transformers that verifies sampled drafts.

    Raises:
        AnalysisError: if this version has none of that name.
    """
    from transformers.generation import utils

    if "_speculative_sampling" not in vars(utils):
        import transformers

        raise AnalysisError(
            f"transformers {transformers.__version__} has no "
            "generation.utils._speculative_sampling. Install the version of "
            "constraints.txt, or adapt evidence/public_code/assisted.py to the new name."
        )
    return utils._speculative_sampling


def on_uniforms(draft: Any, target: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Run transformers' function in float64 on γ uniforms for drafts and one for the last token."""
    with Replay(torch.from_numpy(np.asarray(uniforms, dtype=np.float64))):
        return _call(draft, target, drafts)


def _call(draft: Any, target: Any, drafts: Any) -> tuple[list[int], int]:
    ids = torch.from_numpy(np.asarray(drafts, dtype=np.int64))[None]
    # zeros become −∞, as top-k makes them
    logits = [torch.from_numpy(np.asarray(law)).log()[None] for law in (draft, target)]
    tokens, matches = sampling_function()(ids, logits[0], ids.shape[1], logits[1])
    return tokens[0].tolist(), int(matches)


TRANSFORMERS = BlockCandidate(on_uniforms, name="transformers _speculative_sampling")
"""For the exact modes."""


def generate_tokens(
    pair: Pair, prompt: Sequence[int], *, num_tokens: int, temperature: float, top_k: int
) -> list[int]:
    """Return `num_tokens` tokens that `target.generate(assistant_model=draft)` samples.

    The end-of-sequence token does not end the text; randomness is torch's global generator.
    """
    ids = torch.tensor([list(prompt)], device=pair.device)
    pair.draft.generation_config.num_assistant_tokens = _NUM_DRAFTS
    pair.draft.generation_config.num_assistant_tokens_schedule = "constant"
    output = pair.target.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        assistant_model=pair.draft,
        do_sample=True,
        temperature=temperature,
        top_k=top_k,
        max_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return [int(token) for token in output[0, len(prompt) :]]


def processed(logits: torch.Tensor, *, temperature: float, top_k: int) -> NDArray[np.float64]:
    """Return the law `(..., V)` that temperature and top-k make of logits, in float64."""
    return to_numpy(otm.from_logits(logits.double(), temperature=temperature, top_k=top_k))


def exact_law(
    pair: Pair, prompt: Sequence[int], *, num_tokens: int, temperature: float, top_k: int
) -> tuple[dict[tuple[int, ...], int], NDArray[np.float64]]:
    """Enumerate the target's law of the first tokens after a prompt.

    Args:
        pair: its target is asked after every continuation of positive probability.
        prompt: tokens.
        num_tokens: L.
        temperature, top_k: of the law; top_k^L at most `MOST_BLOCKS`.

    Returns:
        The number of each block of L tokens, and the blocks' probabilities in that order, with a
        last entry 0 for all others.

    Raises:
        AnalysisError: if there are too many blocks.
    """
    if top_k**num_tokens > MOST_BLOCKS:
        raise AnalysisError(
            f"The law of the first tokens is enumerated up to {MOST_BLOCKS:,} blocks; top_k = "
            f"{top_k} and {num_tokens} tokens have "
            f"{top_k**num_tokens:,}. Lower one of them."
        )
    blocks: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(num_tokens):
        rows = torch.tensor([[*prompt, *block] for block in blocks])
        with torch.inference_mode():
            logits = (
                pair.target(rows.to(pair.device), use_cache=False)
                .logits[:, -1, : pair.num_tokens]
                .float()
            )
        laws = processed(logits, temperature=temperature, top_k=top_k)
        blocks = {
            (*block, int(token)): mass * float(law[token])
            for (block, mass), law in zip(blocks.items(), laws, strict=True)
            for token in np.flatnonzero(law)
        }
    return {block: i for i, block in enumerate(blocks)}, np.asarray([*blocks.values(), 0.0])


def audit_first_tokens(
    pair: Pair,
    prompt: Sequence[int],
    *,
    samples: int,
    num_tokens: int = 3,
    temperature: float = 1.0,
    top_k: int = 4,
    detect: float = 0.02,
) -> SampledAudit:
    """Audit the first tokens of whole generations after one prompt against their exact law.

    Args:
        pair: the models; each generation is a call of its own.
        prompt: tokens.
        samples: number of generations, fixed beforehand.
        num_tokens: L, the tokens compared: drafted, replaced and bonus tokens all occur from L = 2
            on.
        temperature, top_k: given to `generate`.
        detect: total variation not to miss; too few tokens to see it get no verdict.

    Returns:
        SampledAudit over blocks of L tokens; its `detect` is the total variation that is found with
        probability 1 − 1e-3.
    """
    numbers, law = exact_law(
        pair, prompt, num_tokens=num_tokens, temperature=temperature, top_k=top_k
    )
    outputs = [
        numbers.get(
            tuple(
                generate_tokens(
                    pair, prompt, num_tokens=num_tokens, temperature=temperature, top_k=top_k
                )
            ),
            len(law) - 1,
        )
        for _ in range(samples)
    ]
    return audit.outputs(
        np.asarray(outputs),
        target=law,
        name="transformers generate, first tokens",
        errors=audit.Errors(detect=detect),
    )


def audit_texts(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int = 50,
    detect: float = 0.02,
) -> LogAudit:
    """Audit every token of whole generations against the target's law at its place.

    Args:
        pair: the models.
        prompts: one text is generated after each.
        num_tokens: length of each text.
        temperature, top_k: given to `generate`.
        detect: total variation not to miss; too few tokens to see it get no verdict.

    Returns:
        LogAudit over `len(prompts) · num_tokens` tokens.
    """
    texts = (
        (
            prompt,
            generate_tokens(
                pair, prompt, num_tokens=num_tokens, temperature=temperature, top_k=top_k
            ),
        )
        for prompt in prompts
    )
    records = itertools.chain.from_iterable(
        records_of(pair, prompt, text, temperature=temperature, top_k=top_k)
        for prompt, text in texts
    )
    return audit.server_log(
        records, name="transformers generate, whole texts", errors=audit.Errors(detect=detect)
    )


def records_of(
    pair: Pair, prompt: Sequence[int], text: Sequence[int], *, temperature: float, top_k: int
) -> Iterator[LogRecord]:
    """Yield a log record for each token of a text: both models' laws there, and the token."""
    draft_logits, target_logits = pair.logits(torch.tensor([[*prompt, *text[:-1]]]))
    first = len(prompt) - 1
    p, q = (
        processed(logits[0, first:], temperature=temperature, top_k=top_k)
        for logits in (draft_logits, target_logits)
    )
    for i, token in enumerate(text):
        listed = np.flatnonzero((q[i] > 0) | (p[i] > 0))
        yield LogRecord(
            context=f"{i}",
            drafts=np.empty(0, dtype=np.int64),
            target=np.append(q[i, listed], 0.0),
            draft=np.append(p[i, listed], 0.0),
            tokens=listed,
            output=int(token),
        )
