"""What a draft scheme is worth under a cost model: expected tokens per target call, and speed-up over plain decoding.

One target call verifies L levels of drafts, k for each surviving vertex. If every level is accepted with probability α,
independently, the call yields

    E = 1 + α + α² + … + α^L

tokens (the 1 is the corrected or bonus token) and costs, in units of a target pass over a single token,

    1 + L·c + n·v,    n = k + k² + … + k^L drafted tokens,

c the cost of one draft pass (the drafts of a level are one batch) and v that of verifying one more token. For k = 1 and v = 0 this
is [Leviathan et al. 2023, Theorem 3.8]. For L = 1 it needs no independence: E = 1 + α_k exactly. The page computes the same in the
reader's browser.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs in units of one target pass over a single token.

    Attributes:
        draft: c, one draft pass.
        verify: v, one more token in a target pass.
        levels: L, drafted levels per target call.
    """

    draft: float = 0.1
    verify: float = 0.01
    levels: int = 1


def tokens_per_call(acceptance: float, levels: int) -> float:
    """Return 1 + α + … + α^L.

    >>> tokens_per_call(0.5, 3)
    1.875
    """
    return sum(acceptance**i for i in range(levels + 1))


def drafted_tokens(k: int, levels: int) -> int:
    """Return k + k² + … + k^L, the tokens drafted for one target call.

    >>> drafted_tokens(2, 3)
    14
    """
    return sum(k**i for i in range(1, levels + 1))


def speed_up(acceptance: float, k: int, costs: Costs) -> float:
    """Return tokens per unit of cost; plain decoding has 1.

    >>> round(speed_up(0.8, 2, Costs(draft=0.1, verify=0.05, levels=1)), 6)
    1.5
    """
    cost = 1 + costs.levels * costs.draft + drafted_tokens(k, costs.levels) * costs.verify
    return tokens_per_call(acceptance, costs.levels) / cost
