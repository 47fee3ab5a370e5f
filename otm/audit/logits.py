"""Candidates that take raw logits: temperature and filters are audited with the verifier."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.blocks import BlockCandidate, Models
from otm.audit.candidate import Check, Scope, UniformsCandidate, answers_blocks
from otm.audit.drafted import Instance
from otm.audit.integration import IntegratedAudit
from otm.audit.one_token import TokenCandidate
from otm.drafts import IID
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import plain_reals
from otm.problem import Problem
from otm.sequence.models import TableModel

_SHIFT = 2.0
"""Added to logarithms of probabilities, so that raw logits are not normalised."""

INFINITE = ", logits of −∞"
"""End of the name of a group of instances that have some."""

LAWS = (IID(1), IID(2))
"""Default draft laws."""


@dataclasses.dataclass(frozen=True, eq=False)
class LogitCandidate(UniformsCandidate):
    """A verifier that takes raw logits and applies temperature, top-k, top-p and min-p by itself.

    The right processing, the same for both models, is `otm.Processing`.

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

    >>> trusting = lambda draft, target, drafts, uniforms, temperature: int(drafts[0])  # noqa: E731
    >>> LogitCandidate(trusting, name="trusting").name
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
        """Return the right processing of either model's logits at a temperature."""
        return Processing(
            temperature=temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            order=self.order,
        )

    @functools.cached_property
    def takes_blocks(self) -> bool:
        """True if the verifier fails on one token and answers a block in trial calls."""

        def on_laws(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
            return self.verify(np.log(p), np.log(q), drafts, uniforms, 1.0)

        return bool(answers_blocks(on_laws, self.num_uniforms, {}))

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield integrations at each temperature, of one token or of blocks.

        Raises:
            InvalidParameter: if samples are asked for.
        """
        if scope.sampled:
            raise InvalidParameter(
                f"Code that takes logits is integrated; samples of {self.name!r} were asked for. "
                "Drop only='sampled'."
            )
        for heat in self.temperatures:
            for one in self._instances(scope):
                run = functools.partial(self._audited, one.given, heat, scope.tolerance)
                setting = f"{one.setting}, temperature {heat:g}"
                # code that branches before takes some temperatures, or finite logits only
                group = f"temperature {heat:g}, {one.group}{INFINITE * _has_zeros(one.given)}"
                yield Check(one.name, setting, group, "exact", run)

    def _instances(self, scope: Scope) -> list[Instance]:
        """Return the instances at every temperature: models, or problems."""
        # the same instances as of a candidate that is handed laws, a few of them
        kind = BlockCandidate if self.takes_blocks else TokenCandidate
        few = dataclasses.replace(scope, laws=scope.laws or LAWS)
        if self.takes_blocks:
            few = dataclasses.replace(
                scope, laws=None, num_drafts=scope.num_drafts or standard.BLOCKS[:2]
            )
        names = (*standard.LOGITS, *standard.FEW_MODELS)
        return [
            one
            for group in kind(self.verify, self.name).instances("integrable", few)
            for one in group
            if scope.pair is not None or one.name in names
        ]

    def _audited(self, instance: Any, heat: float, tolerance: float | None) -> IntegratedAudit:
        """Carry out an audit, and record the temperature."""
        on: Callable[..., tuple[IntegratedAudit, str]] = (
            self._on_block if self.takes_blocks else self._on_token
        )
        found, given = on(instance, heat, tolerance)
        tested = dataclasses.replace(
            found.tested,
            temperatures=(heat,),
            untested=tuple(x for x in found.tested.untested if x != "processing of logits"),
        )
        filters = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        told = [f"{name}={value!r}" for name, value in filters.items() if value is not None]
        if self.order != "transformers":
            told.append(f"order={self.order!r}")
        made = ", ".join(["{}", f"temperatures=[{heat!r}]", *told])
        again = (
            f"verifier = otm.audit.LogitCandidate({made})\n"
            f"result = otm.audit.battery(verifier, {given})"
        )
        return dataclasses.replace(found, tested=tested, again=again)

    def _on_token(
        self, problem: Problem, heat: float, tolerance: float | None
    ) -> tuple[IntegratedAudit, str]:
        """Audit the verifier on raw logits that are the logarithms of a problem's laws."""
        p, q, process = _logits(problem.draft), _logits(problem.target), self.processing(heat)

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            return self.verify(p.copy(), q.copy(), drafts, uniforms, heat)

        handed = TokenCandidate(verify, f"{self.name} at temperature {heat:g}", self.num_uniforms)
        processed = dataclasses.replace(problem, draft=process(p), target=process(q))
        given = (
            f"draft={problem.draft.tolist()}, target={problem.target.tolist()}, "
            f"laws=[otm.{problem.law!r}]"
        )
        return handed.integrated(processed, tolerance), given

    def _on_block(
        self, models: Models, heat: float, tolerance: float | None
    ) -> tuple[IntegratedAudit, str]:
        """Audit the verifier on raw logits that are the logarithms of two models' laws."""
        tables: list[Any] = [models.draft, models.target]
        gamma = models.num_drafts
        logits = [{c: _logits(row) for c, row in model.table.items()} for model in tables]
        process = self.processing(heat)
        processed = [TableModel({c: process(row) for c, row in rows.items()}) for rows in logits]

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            before = [tuple(int(token) for token in drafts[:i]) for i in range(gamma + 1)]
            p = np.stack([logits[0][context] for context in before[:gamma]])
            q = np.stack([logits[1][context] for context in before])
            return self.verify(p, q, drafts, uniforms, heat)

        handed = BlockCandidate(verify, f"{self.name} at temperature {heat:g}", self.num_uniforms)
        rows = [
            [model.next([token]).tolist() for token in range(model.num_tokens)] for model in tables
        ]
        given = f"draft={rows[0]}, target={rows[1]}, num_drafts=[{gamma}]"
        return handed.integrated(Models(processed[0], processed[1], gamma), tolerance), given


def _has_zeros(given: Any) -> bool:
    """True if a problem or one of two models has a token without mass, a logit of −∞."""
    pair = given.draft, given.target
    laws = pair if isinstance(given, Problem) else [law for m in pair for law in m.table.values()]
    return not all(np.all(law) for law in laws)


def _logits(mass: Any) -> NDArray[np.float64]:
    """Return raw, unnormalised logits of a distribution at temperature 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(_SHIFT + np.log(mass))
