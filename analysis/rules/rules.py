"""The rules that engines run, and the walk of each along a text of the target.

All are lossless, so they write the same texts and differ in how many calls it takes: a text is
sampled once, and every rule walks along it (`analysis.advise`). Refined scores alone decode a text
of their own; each step counts with the expectation given its drafts.

Two rules of one name elsewhere are one here: to verify a draft as if it had been certain is to
match it, argmax or sampled. A sampled draft x stands with probability q(x), else the output is q
without x, so whatever x was the output is q; a certain one stands with q(x) as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from otm import Processing
from otm._machine.arrays import Floats
from otm.sequence import RefinedScores

from ..advise.laws import race_agreement, single_survivors
from ..advise.sampled_texts import sample_text
from ..advise.walk import Walk, along_all_lengths, along_block, along_scores
from ..errors import AnalysisError
from ..models.causal import CausalModel
from ..models.engines import Engine
from ..models.from_logits import Limited, shared_positions
from ..models.processing import Setting
from ..models.translated import SharedTokens
from ..steps.likeliest_trees import match_law
from ..steps.noise_trees import noise_given, noise_law, noise_scale
from ..steps.texts import SampledText

NOTHING, NOISE = "nothing", "shared noise"
PROBABILITIES, TREES = "draft probabilities", "tree attention"

BLOCK = "block"
"""The best of all rules for one sequence."""

Agreement = Callable[[Floats, Floats, Floats], Floats]
"""(draft's distributions, its logits, target's distributions), `(n, V)` each → Pr(the draft and the
output are both this token).
"""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule: name, description, needs beyond a draft model, most drafted nodes of a call.

    Acceptance along a given text is exact unless the rule is `sampled`.
    """

    name: str
    words: str
    needs: str
    nodes: int
    sampled: bool = False


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of drafts and numbers of texts.

    Attributes:
        length: L, drafts in a row.
        nodes: drafted tokens of a tree.
        sequences: K, of refined scores.
        num_tokens: steps start within this many tokens of a text.
        texts: number of sampled texts, the prompts in turns.
        seed: of all sampling.
    """

    length: int = 4
    nodes: int = 16
    sequences: int = 4
    num_tokens: int = 64
    texts: int = 10
    seed: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class ReadText:
    """A sampled text of a prompt, with the draft's logits at each token in single precision.

    Attributes:
        prompt: its number.
        text: with both models' distributions.
        logits: `(n, V)`.
    """

    prompt: int
    text: SampledText
    logits: Floats


class Reader:
    """A reader of texts that walks along each by every rule.

    Args:
        draft, target: the models.
        setting: of both.
        sizes: how much is drafted and read.
        eos: the token that ends a text.
        limits: penalties and grammar of the target, as `Limited` takes them; empty without.
        aware: whether drafts are under them too.
        engine: whose rules are candidates; None for all.

    Attributes:
        rules: in the order of the walks.
    """

    def __init__(
        self,
        draft: CausalModel | SharedTokens,
        target: CausalModel,
        *,
        setting: Setting,
        sizes: Sizes,
        eos: int | None,
        limits: Mapping[str, Any] | None = None,
        aware: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self.draft, self.target, self.setting = draft, target, setting
        self.engine = engine
        self.sizes, self.eos = sizes, eos
        self.limits, self.aware = dict(limits or {}), aware
        size, length, number = sizes.nodes, sizes.length, sizes.sequences
        self._chains = _chains(setting, length)
        nodes = f"tree of {size} nodes"
        both = f"{TREES}, draft probs"
        self.rules = (
            *(rule for rule, _ in self._chains),
            Rule(BLOCK, "block verification", PROBABILITIES, length),
            Rule("likeliest-tree", f"match, {nodes}, the likeliest paths", TREES, size),
            Rule("noise-tree", f"match, {nodes} on shared noise", f"{TREES}, {NOISE}", size, True),
            Rule(
                "refined-scores",
                f"refined scores, {number} sequences of {length}",
                both,
                number * length,
                True,
            ),
        )
        if isinstance(draft, SharedTokens):
            words = "match of texts (SLEM), argmax draft in its own tokens"
            self.rules += (Rule("string-match", words, NOTHING, length),)
        self._heard: list[tuple[SampledText, Floats]] = []

    def after(self, begin: int) -> tuple[Any, Any]:
        """Return draft and target under the limits, for a prompt of `begin` tokens."""
        if not self.limits:
            return self.draft, self.target
        target = Limited(self.target, begin, **self.limits)
        return (Limited(self.draft, begin, **self.limits) if self.aware else self.draft), target

    def sample(self, prompts: Sequence[Sequence[int]], number: int) -> SampledText | None:
        """Continue a prompt by the target; None if there is no room for a text.

        Args:
            prompts: their tokens; texts take them in turns.
            number: of the text, which seeds it.
        """
        prompt = prompts[number % len(prompts)]
        return sample_text(
            *self.after(len(prompt)),
            prompt,
            num_tokens=self.sizes.num_tokens + self.sizes.length,
            eos=self.eos,
            seed=[self.sizes.seed, 1 + number, 0],
        )

    def given(self, prompt: Sequence[int], tokens: Sequence[int]) -> SampledText | None:
        """Return a text that an engine wrote, whose first token came of the prompt's own pass.

        None where there is no other token.

        Raises:
            AnalysisError: if the target with these settings cannot have written it.
        """
        if len(tokens) < 2:
            return None
        prefix, rest = (*prompt, *tokens[:1]), np.array(tokens[1:], dtype=np.int64)
        contexts = [(*prefix, *tokens[1 : 1 + place]) for place in range(len(rest))]
        models = self.after(len(prompt))
        for model in models:
            model.forget()
        draft, target = (np.asarray(one.next_batch(contexts)) for one in models)
        never = np.flatnonzero(target[np.arange(len(rest)), rest] <= 0.0)
        if len(never):
            place = int(never[0])
            raise AnalysisError(
                "The texts must be the target's own; as it is set here it never writes token "
                f"{rest[place]}, which comes after {1 + place} others. Pass the temperature and "
                "filters of the engine."
            )
        return SampledText(prefix, rest, draft, target)

    def read(
        self, text: SampledText, owner: int, number: int, begin: int
    ) -> tuple[ReadText, tuple[Walk, ...]]:
        """Walk along a text by every rule.

        Args:
            text: the target's.
            owner: the number of its prompt.
            begin: where the prompt ends.
            number: of the text, which seeds noise and drafts.
        """
        sizes, eos = self.sizes, self.eos
        seed = [sizes.seed, 1 + number]
        contexts = [text.context(place) for place in range(len(text.tokens))]
        draft, target = self.after(begin)
        logits = draft.logits(contexts).double().cpu().numpy()
        # of two passes over one context the rows differ by rounding
        text = dataclasses.replace(text, draft=np.asarray(self.setting.draft(logits)))
        starts, length = sizes.num_tokens, sizes.length
        walks = [
            chain_walk(rule(text.draft, logits, text.target), text, length, starts, eos)
            for _, rule in self._chains
        ]
        walks.append(along_block(text, most=length, starts=starts, eos=eos)[-1])
        trees: dict[str, Any] = {"sizes": (sizes.nodes,), "depth": length}
        trees |= {"starts": starts, "eos": eos}
        # a path is ranked by the draft's own masses, which a temperature of 0 would not tell apart
        own = self.setting.draft
        ranking = draft.processed(_unfiltered(own, own.temperature or 1.0))
        usual = match_law(ranking, text, **trees)
        ranked = dataclasses.replace(text, draft=np.asarray(ranking.processing(logits)))
        noise = noise_given(text, np.random.default_rng([*seed, 1]))
        scale = noise_scale(*zip(*self._heard, strict=True)) if self._heard else 1.0
        noisy = noise_law(ranking, ranked, noise=noise, scale=scale, **trees)
        walks += [Walk.of(*law.at(size=sizes.nodes, depth=length)) for law in (usual, noisy)]
        walks.append(
            along_scores(
                draft,
                target,
                text.prefix,
                decoder=RefinedScores(sizes.sequences, length),
                starts=-(-starts // 2),  # its steps cost more than all other rules together
                longest=shared_positions(draft, target),
                eos=eos,
                rng=np.random.default_rng([*seed, 2]),
            )
        )
        if isinstance(self.draft, SharedTokens):
            walks.append(along_strings(self.draft, text, length=length, starts=starts, eos=eos))
        self._heard = [*self._heard, (ranked, noise)][-4:]
        return ReadText(owner, text, logits.astype(np.float32)), tuple(walks)


def chain_walk(joint: Floats, text: SampledText, length: int, starts: int, eos: int | None) -> Walk:
    """Return the walk of a chain whose drafts stand alone.

    Args:
        joint: `(n, V)`, Pr(the draft and the output are both this token).
        text: along which it is walked.
        length, starts: as for `analysis.advise.walk.along_all_lengths`.
        eos: the token that ends a text; None if none does.
    """
    law = single_survivors(joint, text.target, text.tokens, eos=eos)
    return along_all_lengths(law, num_drafts=1, most=length, starts=starts)[-1]


def _chains(setting: Setting, length: int) -> list[tuple[Rule, Agreement]]:
    """Return the rules for one sequence that look at one draft at a time."""
    target = setting.target
    alike = "filtered as the target" if setting.draft == target else "as set"
    drafts: dict[Processing, tuple[str, str]] = {}
    for processing, name, words in (
        (setting.draft, "rejection", alike),
        (target, "rejection-filtered", "filtered as the target"),
        (_unfiltered(target, target.temperature), "rejection-unfiltered", "unfiltered"),
        (_unfiltered(target, 1.0), "rejection-plain", "at temperature 1"),
    ):
        drafts.setdefault(processing, (name, words))
    return [
        (Rule("match-independent", "match, sampled draft", NOTHING, length), lambda p, z, q: p * q),
        (
            Rule("match-argmax", "match, argmax draft", NOTHING, length),
            lambda p, z, q: np.minimum(likeliest(p), q),
        ),
        (
            Rule("match-noise", "match, draft on shared noise", NOISE, length),
            lambda p, z, q: race_agreement(p, q),
        ),
        *(
            (Rule(name, f"rejection, draft {words}", PROBABILITIES, length), _rejection(processing))
            for processing, (name, words) in drafts.items()
        ),
        (
            Rule("rejection-bfloat16", "rejection, draft in bfloat16", PROBABILITIES, length),
            lambda p, z, q: np.minimum(in_bfloat16(p), q),
        ),
    ]


def _unfiltered(processing: Processing, temperature: float) -> Processing:
    return dataclasses.replace(
        processing, temperature=temperature, top_k=None, top_p=None, min_p=None
    )


def _rejection(processing: Processing) -> Agreement:
    return lambda p, z, q: np.minimum(np.asarray(processing(z)), q)


def likeliest(masses: Floats) -> Floats:
    """Put mass 1 on the likeliest token of each row."""
    certain = np.zeros_like(masses)
    np.put_along_axis(certain, masses.argmax(axis=1)[:, None], 1.0, axis=1)
    return certain


def in_bfloat16(masses: Floats) -> Floats:
    """Round rows to bfloat16 and normalise the result."""
    import torch

    rounded = torch.from_numpy(masses).float().bfloat16().double().numpy()
    return np.asarray(rounded / rounded.sum(axis=1, keepdims=True))


def along_strings(
    draft: SharedTokens, text: SampledText, *, length: int, starts: int, eos: int | None
) -> Walk:
    """Walk by string-level exact match (SLEM): a draft with another tokenizer writes text.

    It writes its L likeliest next tokens, which the target's tokenizer reads, as L of its own at
    most; such a drafted token stands if the target's own sample is the same. Nothing of it is
    random given the text, so that, as for trees of likeliest paths,

        S_i(t) = [the text's next i − 1 tokens are drafted] · q(the i-th drafted token).

    Args:
        draft: with its own tokenizer.
        text: along which it is walked.
        length: L.
        starts: steps start before this position.
        eos: the token that ends a text.

    Cost: L draft calls over all starts together.

    Reference: SLEM of Timor et al. 2025 (2502.05202), section 3.
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
