"""The entries of the corpus, with where they were seen and their exact total variation."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from evidence.corpus import blocks, one_token
from evidence.corpus.mutant import Mutant, ToyModels
from otm.audit import BlockCandidate, TokenCandidate
from otm.audit.candidate import UniformsCandidate
from otm.audit.standard_problems import table_model
from otm.drafts import IID, TopK, WithoutReplacement
from otm.problem import Problem

DRAFT = [1 / 2, 3 / 10, 3 / 20, 1 / 20]
TARGET = [1 / 5, 7 / 20, 1 / 5, 1 / 4]
PAIR = Problem(draft=DRAFT, target=TARGET, law=IID(1))
LARGE_VOCABULARY = 1 << 17
TILED_VOCABULARY = 72

NO_REPORT = "no report known"

ROUNDED = np.array([2048.0, 1232.0, 616.0, 205.0]) / 4101
"""(1/2, 3/10, 3/20, 1/20) rounded to bfloat16, in 4096ths, and normalised as sampling does."""

CORRECT = TokenCandidate(one_token.speculative_sampling)
RECURSIVE = TokenCandidate(one_token.recursive_rejection)


def markov_models(num_drafts: int) -> ToyModels:
    """Return two chains on two tokens, each token with its own law; the first token as after token
    0, but even for the target.
    """

    def draft(context: tuple[int, ...]) -> list[float]:
        return [1 / 2, 1 / 2] if context and context[-1] else [3 / 4, 1 / 4]

    def target(context: tuple[int, ...]) -> list[float]:
        return ([1 / 4, 3 / 4], [3 / 4, 1 / 4])[context[-1]] if context else [1 / 2, 1 / 2]

    return ToyModels(
        table_model(draft, 2, num_drafts), table_model(target, 2, num_drafts), num_drafts
    )


def _point_and_rest(num_tokens: int) -> Problem:
    """Return a pair on the first two of `num_tokens` tokens."""
    draft, target = np.zeros(num_tokens), np.zeros(num_tokens)
    draft[:2], target[:2] = (0.5, 0.5), (0.25, 0.75)
    return Problem(draft=draft, target=target, law=IID(1))


def _far_token(num_tokens: int) -> Problem:
    """Return a pair on two tokens and, for the target, the last of the vocabulary."""
    draft, target = np.zeros(num_tokens), np.zeros(num_tokens)
    draft[:2], target[:2], target[-1] = 0.5, (0.25, 0.5), 0.25
    return Problem(draft=draft, target=target, law=IID(1))


def _plain(
    candidate: UniformsCandidate,
    description: str,
    total_variation: Fraction,
    *sources: str,
    name: str,
    instance: Problem = PAIR,
) -> Mutant:
    """Return a fault of the kernel itself, which a test of the kernel runs as it is."""
    return Mutant(
        name, description, sources, candidate, instance, total_variation, candidate, instance.law
    )


def _block(
    candidate: UniformsCandidate,
    description: str,
    total_variation: Fraction,
    *sources: str,
    name: str,
    num_drafts: int = 2,
) -> Mutant:
    """Return a fault of a block verifier, which tests of the kernel run as it is."""
    return Mutant(
        name,
        description,
        sources,
        candidate,
        markov_models(num_drafts),
        total_variation,
        candidate,
        IID(1),
    )


BROKEN: tuple[Mutant, ...] = (
    Mutant(
        "raw target",
        "The target's temperature (here 1/2) is not applied before verification.",
        ("vllm-project/vllm#9834", "vllm-project/vllm#10198"),
        TokenCandidate(one_token.raw_target),
        Problem(draft=[2 / 5, 2 / 5, 1 / 5], target=[1 / 9, 4 / 9, 4 / 9], law=IID(1)),
        Fraction(4, 45),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "temperature twice",
        "The target's temperature (here 1/2) is applied once by whoever calls the verifier, and "
        "once more by itself.",
        ("Adibvafa/CodonTransformer#20",),
        TokenCandidate(one_token.temperature_twice),
        Problem(draft=[2 / 5, 2 / 5, 1 / 5], target=[1 / 9, 4 / 9, 4 / 9], law=IID(1)),
        Fraction(8, 99),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "top-p on the draft only",
        "The draft obeys top-p, the target is verified whole.",
        ("vllm-project/vllm#10198",),
        TokenCandidate(one_token.top_p_on_draft_only),
        Problem(draft=[1 / 2, 1 / 2, 0.0], target=[5 / 8, 3 / 8, 0.0], law=IID(1)),
        Fraction(1, 5),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "raw draft",
        "Drafts are drawn after top-k and verified with the probabilities before it.",
        ("huggingface/transformers#47932", "huggingface/transformers#47961"),
        TokenCandidate(one_token.raw_draft),
        Problem(draft=[5 / 8, 3 / 8, 0.0, 0.0], target=TARGET, law=IID(1)),
        Fraction(11, 80),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "zero-filled padding",
        "Rows that pad the vocabulary have logit 0 instead of −∞ (a tenth of the mass here).",
        ("vllm-project/vllm#5203", "vllm-project/vllm#42775"),
        TokenCandidate(one_token.zero_filled_padding),
        Problem(draft=[1 / 2, 1 / 4, 1 / 4, 0.0], target=[1 / 4, 1 / 4, 1 / 2, 0.0], law=IID(1)),
        Fraction(1, 10),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "argmax draft as a sample",
        "The drafter takes its most likely token, the verifier believes that it sampled.",
        (
            "huggingface/transformers#32867",
            "jaymody/speculative-sampling#3",
            "z-lab/dflash#74",
            "alibaba/rtp-llm#1295",
        ),
        CORRECT,
        Problem(draft=[1 / 2, 3 / 10, 1 / 5], target=[1 / 5, 7 / 20, 9 / 20], law=TopK(1)),
        Fraction(1, 4),
        CORRECT,
        IID(1),
    ),
    _plain(
        TokenCandidate(one_token.one_hot_ratio),
        "A sampled draft is accepted as if it were certain (one-hot), its residual still subtracts "
        "p. (One-hot in both places, as "
        "in the source, is lossless.)",
        Fraction(317, 1200),
        "vllm-project/vllm#40149",
        name="one-hot ratio for a sampled draft",
    ),
    _plain(
        TokenCandidate(one_token.either_of_two_samples),
        "Two samples of the target are drawn, and a draft that equals either is a match.",
        Fraction(551, 8000),
        "AMD-AGI/FLy",
        name="either of two samples",
    ),
    _plain(
        TokenCandidate(one_token.accept_everything),
        "The count of matches is wrong, so that every draft passes.",
        Fraction(3, 10),
        "huggingface/transformers#28508",
        name="everything accepted",
    ),
    _plain(
        TokenCandidate(one_token.resample_target),
        "After a rejection the target is sampled, not the residual.",
        Fraction(1, 8),
        "eth-sri/language-model-arithmetic#14",
        name="no residual",
    ),
    _plain(
        TokenCandidate(one_token.remove_drafted_token),
        "The residual is the target without the drafted token; p is not subtracted elsewhere.",
        Fraction(17, 160),
        "SafeAILab/EAGLE#20",
        name="residual removes the drafted token only",
    ),
    _plain(
        TokenCandidate(one_token.unnormalised_residual),
        "The residual's cumulative sum is inverted without its total; what is left goes to the "
        "last token.",
        Fraction(7, 100),
        "iree-org/iree-turbine#890",
        name="residual not renormalised",
    ),
    _plain(
        TokenCandidate(one_token.lenient),
        "Acceptance min(1, q/(l·p)) with l = 4/5, the residual unchanged.",
        Fraction(1, 20),
        "Leviathan et al. 2023, Appendix A.5",
        "vllm-project/vllm#35355",
        name="lenience",
    ),
    _plain(
        TokenCandidate(one_token.threshold_below_one),
        "Acceptance of a draft taken as certain with min(1, q/t), t = 1/2.",
        Fraction(6187, 62400),
        "sgl-project/sglang#8068",
        "sgl-project/sglang#35771",
        name="threshold below 1",
    ),
    dataclasses.replace(
        _plain(
            TokenCandidate(one_token.clamped_residual),
            "The residual is clamped at 1e-8 from below: every impossible token becomes possible. "
            "The error grows with V.",
            Fraction(3, 10**8 + 12),
            "vllm-project/vllm#2336",
            "vectorch-ai/ScaleLLM#202",
            name="clamp at 1e-8",
            instance=_point_and_rest(4),
        ),
        sampled_on=_point_and_rest(LARGE_VOCABULARY),
    ),
    _plain(
        TokenCandidate(one_token.same_uniform_for_residual),
        "The uniform that rejected the draft also draws the replacement.",
        Fraction(1, 10),
        "vllm-project/vllm-ascend#16370",
        name="one uniform for rejection and residual",
    ),
    _plain(
        TokenCandidate(one_token.one_uniform_for_all_drafts),
        "Two drafts for one position are compared with the same uniform.",
        Fraction(2, 75),
        NO_REPORT,
        name="one uniform for all drafts",
        instance=Problem(draft=DRAFT, target=TARGET, law=IID(2)),
    ),
    _plain(
        TokenCandidate(one_token.winner_as_a_draft),
        "The better of two drafts is selected, and verified with p as if it had been drafted "
        "alone.",
        Fraction(61, 400),
        NO_REPORT,
        name="winner verified as a draft",
        instance=Problem(draft=DRAFT, target=TARGET, law=IID(2)),
    ),
    _plain(
        TokenCandidate(one_token.mixed_target),
        "The target is mixed with the draft, 3/4 to 1/4, to accept more.",
        Fraction(3, 40),
        "huggingface/transformers#45979",
        name="target mixed with the draft",
    ),
    _plain(
        TokenCandidate(one_token.relaxed),
        "One of the target's two likeliest tokens passes unverified if it is within 1/8 of the "
        "likeliest.",
        Fraction(1, 10),
        "vllm-project/vllm#45752",
        name="relaxed acceptance",
        instance=Problem(draft=DRAFT, target=[2 / 5, 1 / 5, 3 / 10, 1 / 10], law=IID(1)),
    ),
    Mutant(
        "top-p before temperature",
        "The nucleus is taken of the raw target, the temperature (here 1/2) applied to what is "
        "left.",
        ("NVIDIA/FasterTransformer#234",),
        TokenCandidate(one_token.top_p_before_temperature),
        Problem(draft=DRAFT, target=[16 / 25, 9 / 25, 0.0, 0.0], law=IID(1)),
        Fraction(4, 29),
        CORRECT,
        IID(1),
    ),
    Mutant(
        "bfloat16 drafts, float32 ratios",
        "Drafts are drawn from probabilities in bfloat16 and verified with those in float32.",
        ("deepseek-ai/DeepSpec#31",),
        TokenCandidate(one_token.bfloat16_drafts),
        Problem(draft=ROUNDED, target=TARGET, law=IID(1)),
        Fraction(41, 82020),
        CORRECT,
        IID(1),
        beyond_samples="a total variation of 1/2,000 takes tens of millions of samples to tell "
        "from chance",
    ),
    _plain(
        TokenCandidate(one_token.first_tile_only),
        "A kernel reads the first 64 tokens of a row only: an offset that is right up to a size.",
        Fraction(1, 4),
        "vllm-project/vllm#48055",
        name="first 64 tokens only",
        instance=_far_token(TILED_VOCABULARY),
    ),
    _plain(
        TokenCandidate(one_token.draft_vocabulary_only),
        "The target's law is cut to the tokens of a shorter draft vocabulary.",
        Fraction(1, 4),
        "vllm-project/vllm, rejection_sampler_utils.py at v0.33.0",
        name="draft vocabulary only",
        instance=Problem(draft=[1 / 2, 1 / 2, 0.0], target=[1 / 4, 1 / 2, 1 / 4], law=IID(1)),
    ),
    Mutant(
        "a fifth draft unverified",
        "Four drafts are verified, a fifth is taken as it is. (Tests try two.)",
        (NO_REPORT,),
        TokenCandidate(one_token.last_drafts_unverified),
        Problem(draft=[3 / 4, 1 / 4], target=[1 / 2, 1 / 2], law=IID(5)),
        Fraction(81, 1024),
        TokenCandidate(one_token.last_drafts_unverified),
        IID(2),
    ),
    Mutant(
        "wrong law without replacement",
        "The second draft is drawn from what is left, and verified as if drawn from p.",
        ("SafeAILab/EAGLE#74",),
        RECURSIVE,
        Problem(draft=DRAFT, target=TARGET, law=WithoutReplacement(2)),
        Fraction(7, 76),
        RECURSIVE,
        IID(2),
    ),
    Mutant(
        "top-k drafts as samples",
        "The two most likely tokens are drafted, and verified as if drawn from p.",
        ("SafeAILab/EAGLE#221", "SafeAILab/EAGLE#110"),
        RECURSIVE,
        Problem(draft=DRAFT, target=TARGET, law=TopK(2)),
        Fraction(239, 1140),
        RECURSIVE,
        IID(2),
    ),
    _block(
        BlockCandidate(blocks.one_uniform_for_all_positions),
        "Every position of a block is compared with the same uniform.",
        Fraction(1, 16),
        NO_REPORT,
        name="one uniform for all positions",
    ),
    _block(
        BlockCandidate(blocks.target_row_ahead),
        "Draft i is verified against the target after draft i.",
        Fraction(1, 4),
        "huggingface/transformers#28166",
        name="target one position ahead",
    ),
    _block(
        BlockCandidate(blocks.first_draft_unverified),
        "The loop starts at the second draft.",
        Fraction(1, 4),
        "ohdearquant/lattice#243",
        name="first draft not verified",
    ),
    _block(
        BlockCandidate(
            blocks.bonus_after_rejection, num_uniforms=lambda gamma, num_tokens: gamma + 2
        ),
        "A rejection at the last position is followed by a bonus token, drawn after the rejected "
        "draft.",
        Fraction(1, 8),
        'docs/theory.md, "Errors in the sources"',
        "flashinfer-ai/flashinfer#879",
        name="bonus token after a rejection",
        num_drafts=1,
    ),
    _block(
        BlockCandidate(blocks.argmax_bonus),
        "A block that is accepted whole is followed by the target's likeliest token.",
        Fraction(7, 64),
        "shreyansh26/Speculative-Decoding, common/verification.py at 76335be",
        name="argmax bonus",
    ),
    _block(
        BlockCandidate(blocks.greedy_but_for_the_bonus),
        "Drafts are compared with the target's likeliest tokens, at any temperature; only the "
        "token after the last one is sampled.",
        Fraction(9, 16),
        "ROCm/ATOM, model_ops/rejection_sampler.py at ffdf3bb",
        name="greedy but for the bonus",
    ),
    _block(
        BlockCandidate(blocks.uncapped_last_ratio),
        "A block is kept by its joint ratio, not divided by the largest of the ratios before it.",
        Fraction(1, 16),
        "ZhouYuxuanYX/Hierarchical-Speculative-Decoding, generation/utils.py at b8575e2",
        name="uncapped last ratio",
    ),
)
"""Broken verifiers seen in public code, with exact errors."""

CONTROLS: tuple[Mutant, ...] = (
    _plain(
        CORRECT,
        "Correct.",
        Fraction(0),
        "Leviathan et al. 2023, Theorem 3.5",
        name="speculative sampling",
    ),
    _plain(
        TokenCandidate(one_token.one_hot_draft),
        "A sampled draft is treated as certain, in the ratio and in the residual: lossless, with "
        "acceptance Σ pq.",
        Fraction(0),
        "vllm-project/vllm#40149",
        "SafeAILab/EAGLE#283",
        name="one-hot draft throughout",
    ),
    _plain(
        TokenCandidate(one_token.sample_and_match),
        "The target is sampled and the draft compared with it: lossless, with acceptance Σ pq.",
        Fraction(0),
        "ml-explore/mlx-swift-lm#459",
        "lablup/mlxcel#992",
        name="sample and match",
    ),
    _plain(
        TokenCandidate(one_token.kept_at_equality),
        "≤ for <: another rule where a uniform is exactly 0, once in 2^24 draws of float32. "
        "Integration over [0, 1) gives that no "
        "volume, and no sample of a feasible size meets it.",
        Fraction(0),
        '"Two verifiers, audited", below',
        name="≤ for < at u = 0",
    ),
    Mutant(
        "top-k before temperature",
        "Temperature keeps the order of tokens, so that top-k before it keeps the same ones.",
        ("Blaizzy/mlx-vlm#2029",),
        TokenCandidate(one_token.top_k_before_temperature),
        Problem(draft=DRAFT, target=[16 / 25, 9 / 25, 0.0, 0.0], law=IID(1)),
        Fraction(0),
        CORRECT,
        IID(1),
    ),
    _block(
        BlockCandidate(blocks.chain),
        "Correct.",
        Fraction(0),
        "Leviathan et al. 2023, Algorithm 1",
        name="chain",
    ),
    _block(
        BlockCandidate(blocks.hierarchy),
        "Correct: hierarchical verification, with the ratios divided by their running maximum.",
        Fraction(0),
        "arXiv:2601.05724",
        name="hierarchy",
    ),
)
"""Lossless verifiers, some of which have been reported as lossy: an audit must not accuse them."""
