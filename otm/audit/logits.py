"""Candidates that take raw logits: their processing of logits is audited with the rest."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from otm.audit import standard_problems as standard
from otm.audit.blocks import BlockCandidate, sequence
from otm.audit.candidate import Check, Scope, UniformsCandidate, answered_axes
from otm.audit.integration import IntegratedAudit
from otm.audit.one_token import TokenCandidate, exact, group_of
from otm.drafts import IID, Law
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import plain_reals
from otm.problem import Problem
from otm.sequence.models import TableModel
from otm.tracing.answers import CandidateFailure

_SHIFT = 2.0
"""Added to logarithms of probabilities, so that raw logits are not normalised."""

LAWS = (IID(1), IID(2))
"""How drafts are drawn unless laws are given."""


@dataclasses.dataclass(frozen=True, eq=False)
class LogitCandidate(UniformsCandidate):
    """A verifier that takes raw logits and does temperature, top-k, top-p and min-p by itself.

    What it should do with them is `otm.Processing`, of both models alike.

    Args:
        verify: the callable, `verify(draft_logits, target_logits, drafts, uniforms, temperature)`,
            of one token `(V,)` or of a block `(γ, V)`, `(γ+1, V)`.
        name: what to call it in reports; the function's own name if empty.
        num_uniforms: as of `TokenCandidate`.
        top_k, top_p, min_p: what it applies; None for nothing.
        order: in which order, as of `otm.Processing`.
        temperatures: which ones a battery audits it at.

    Raises:
        InvalidParameter: if `verify` cannot be called, or what it applies is out of range.

    >>> LogitCandidate(
    ...     lambda draft, target, drafts, uniforms, temperature: int(drafts[0]), name="trusting"
    ... ).name
    'trusting'
    """

    description: ClassVar[str] = "a verifier that takes raw logits"
    called: ClassVar[str] = "verify(draft_logits, target_logits, drafts, uniforms, temperature)"

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    order: str | Sequence[str] = "transformers"
    temperatures: Sequence[float] = standard.TEMPERATURES

    def __post_init__(self) -> None:
        super().__post_init__()
        heats = plain_reals(self.temperatures, "temperatures")
        if heats.ndim != 1 or not heats.size:
            raise InvalidParameter(
                "temperatures must be a sequence that holds at least one; got "
                f"{self.temperatures!r:.80}. Pass [1.0, 0.0], say."
            )
        object.__setattr__(self, "temperatures", tuple(heats.tolist()))
        for temperature in self.temperatures:
            self.processing(temperature)

    def processing(self, temperature: float) -> Processing:
        """Return what the verifier should do with either model's logits at a temperature."""
        return Processing(
            temperature=temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            order=self.order,
        )

    def on(
        self, *, draft: object, target: object, law: Law, temperature: float
    ) -> tuple[TokenCandidate, Problem]:
        """Return the candidate on these raw logits, and the problem that it should solve on them.

        Args:
            draft, target: logits `(V,)`.
            law: how the drafts are drawn, from the draft's processed law.
            temperature: T ≥ 0.
        """
        logits = np.asarray(draft, dtype=np.float64), np.asarray(target, dtype=np.float64)
        p, q = map(self.processing(temperature), logits)

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            return self.verify(logits[0].copy(), logits[1].copy(), drafts, uniforms, temperature)

        name = f"{self.name} at temperature {temperature:g}"
        problem = Problem(draft=p, target=q, law=law)
        return TokenCandidate(verify, name, self.num_uniforms), problem

    def on_models(
        self,
        *,
        draft: Mapping[tuple[int, ...], Any],
        target: Mapping[tuple[int, ...], Any],
        temperature: float,
    ) -> tuple[BlockCandidate, TableModel, TableModel]:
        """Return the candidate on blocks with these raw logits, and the laws of both models.

        Args:
            draft, target: logits `(V,)` by the tokens before.
            temperature: T ≥ 0.
        """
        processed = [
            TableModel({c: self.processing(temperature)(row) for c, row in table.items()})
            for table in (draft, target)
        ]

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            before = [tuple(int(token) for token in drafts[:i]) for i in range(len(drafts) + 1)]
            rows = np.stack([draft[c] for c in before[:-1]]), np.stack([target[c] for c in before])
            return self.verify(*rows, drafts, uniforms, temperature)

        name = f"{self.name} at temperature {temperature:g}"
        return BlockCandidate(verify, name, self.num_uniforms), processed[0], processed[1]

    @functools.cached_property
    def takes_blocks(self) -> bool:
        """Whether it fails on one token and answers a block, of which it is tried."""
        for block in (False, True):
            try:
                axes = answered_axes(
                    lambda p, q, drafts, uniforms: self.verify(
                        np.log(p), np.log(q), drafts, uniforms, 1.0
                    ),
                    self.num_uniforms,
                    block=block,
                    num_drafts=2 if block else 1,
                )
            except CandidateFailure:
                continue
            if block or 0 in axes:  # a single token, as no block is returned
                return block
        return False

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield integrations at each temperature, of one token or of blocks, whichever it takes.

        Raises:
            InvalidParameter: if samples are asked for.
        """
        if scope.sampled:
            raise InvalidParameter(
                f"Code that takes logits is integrated; samples of {self.name!r} were asked for. "
                "Drop only='sampled'."
            )
        for heat in self.temperatures:
            at = f"temperature {heat:g}"
            if self.takes_blocks:
                for gamma in scope.num_drafts or standard.BLOCKS[:2]:
                    for name, pair in standard.few_models(gamma).items():
                        run = functools.partial(self._on_block, pair, gamma, heat, scope.tolerance)
                        yield Check(name, f"γ = {gamma}, {at}", "exact", f"γ = {gamma}", run)
            else:
                for name, law in itertools.product(standard.LOGITS, scope.laws or LAWS):
                    run = functools.partial(self._on_token, name, law, heat, scope.tolerance)
                    yield Check(name, f"{law!r}, {at}", "exact", group_of(law), run)

    def _on_token(
        self, name: str, law: Law, heat: float, tolerance: float | None
    ) -> IntegratedAudit:
        """Audit it on an instance whose logarithms are the logits."""
        with np.errstate(divide="ignore"):
            p, q = (_SHIFT + np.log(mass) for mass in standard.instance(name))
        handed, problem = self.on(draft=p, target=q, law=law, temperature=heat)
        return exact(handed, problem, tolerance=tolerance)

    def _on_block(
        self,
        pair: tuple[TableModel, TableModel],
        gamma: int,
        heat: float,
        tolerance: float | None,
    ) -> IntegratedAudit:
        """Audit it on models whose logarithms are the logits."""
        with np.errstate(divide="ignore"):
            draft, target = (
                {c: _SHIFT + np.log(np.asarray(row)) for c, row in model.table.items()}
                for model in pair
            )
        handed, p, q = self.on_models(draft=draft, target=target, temperature=heat)
        return sequence(handed, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)
