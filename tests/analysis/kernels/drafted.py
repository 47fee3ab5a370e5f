"""Every K sequences that a toy draft can draw, as one batch, and grids of bins."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import chi2

import otm
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import Scored
from analysis.kernels.step import Verified, rows
from analysis.kernels.vocabulary import TorchRows
from otm.sequence import TableModel, outcomes
from otm.sequence.block_verification import verify_block
from otm.sequence.models import Context
from tests.analysis.kernels.steps import check_nodes, completion, texts_differ


class Drafted:
    """Every K sequences of L tokens that a toy draft can draw, as one batch.

    Sequence k has nodes 1 + kL to (k + 1)L.
    """

    def __init__(self, draft: TableModel, target: TableModel, k: int, length: int) -> None:
        self.draft, self.target, self.k, self.length = draft, target, k, length
        one = list(itertools.product(range(draft.num_tokens), repeat=length))
        chances = [self.chance(path) for path in one]
        live = [i for i, chance in enumerate(chances) if chance > 0.0]
        self.drafts = list(itertools.product([one[i] for i in live], repeat=k))
        by = itertools.product([chances[i] for i in live], repeat=k)
        self.mass = np.array([np.prod(chance) for chance in by])
        paths = 1 + torch.arange(k * length).view(k, length)
        self.paths = paths.expand(len(self.drafts), -1, -1)
        tokens = [[-1, *itertools.chain(*paths)] for paths in self.drafts]
        self.candidates = torch.tensor(tokens)
        self.p, self.q = (
            torch.tensor(
                np.array(
                    [
                        [model.next(())]
                        + [model.next(path[: i + 1]) for path in paths for i in range(length)]
                        for paths in self.drafts
                    ]
                )
            )
            for model in (draft, target)
        )

    def chance(self, path: Context) -> float:
        steps = (self.draft.next(path[:i])[token] for i, token in enumerate(path))
        return float(np.prod(list(steps)))

    def enumerated(self, grid: ScoreGrid) -> tuple[np.ndarray, float]:
        """The law of the step's text, completed by the target, and the mean number of tokens, by
        the winners' probabilities and the library's block verification on the winner's law.
        """
        both = TorchRows(self.q, self.p, self.candidates)
        found = Scored.of(self.candidates, self.paths, both, grid)
        assert found.sound.all()
        np.testing.assert_allclose(found.wins.sum(dim=1).numpy(), 1.0, atol=1e-12)
        law, tokens = np.zeros((self.draft.num_tokens,) * (self.length + 1)), 0.0
        for k in range(self.k):
            way = torch.nn.functional.pad(self.paths[:, k, :-1], (1, 0))
            chosen = torch.full((len(way), 1), k)
            selected = found.selected(chosen, grid).at(rows(self.q, way), rows(self.p, way)).numpy()
            for b, paths in enumerate(self.drafts):
                contexts = [paths[k][:i] for i in range(self.length + 1)]
                mass = self.mass[b] * float(found.wins[b, k])
                for text, share in outcomes(functools.partial(self.step, contexts, selected[b])):
                    law[text] += mass * share * completion(self.target, text, self.length + 1)
                    tokens += mass * share * len(text)
        return law, tokens

    def steps(self, kernel: Callable[..., Verified], size: int, grid: ScoreGrid) -> Verified:
        """Run steps in float32 on random drafts, and check nodes and texts.

        The told nodes are those of the drafts, and the texts have the target's law, χ² at 10⁻⁶.
        """
        rng, number = np.random.default_rng(0), 1 + self.k * self.length
        chosen = torch.from_numpy(rng.choice(len(self.mass), size, p=self.mass))
        candidates = self.candidates[chosen]
        found = kernel(
            candidates,
            self.paths[:1].expand(size, -1, -1),
            self.q[chosen].float(),
            self.p[chosen].float(),
            torch.rand((size, number), generator=torch.Generator().manual_seed(1)),
            torch.rand(size, generator=torch.Generator().manual_seed(2)),
            grid,
        )
        check_nodes(found, candidates)
        texts = self.draft.num_tokens ** (self.length + 1)
        assert texts_differ(found, self.target, rng) <= chi2.isf(1e-6, texts - 1)
        return found

    def step(
        self, contexts: list[Context], selected: np.ndarray, randomness: otm.sequence.Randomness
    ) -> Context:
        kept, after = verify_block(
            contexts, lambda context: selected[len(context)], self.target.next, randomness
        )
        return (*contexts[kept], randomness.choose(after))


GRIDS = {"usual": {}, "coarse": {"cells": 4, "octaves": 1, "per_octave": 1, "groups": 1}}
