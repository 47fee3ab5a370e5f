"""Verifiers as a user would pass them to an audit, beside those of the corpus, and what is done
with an audit's counterexample.
"""

from typing import Any

import numpy as np

from evidence.corpus.one_token import speculative_sampling
from otm.audit import exports

maximal = speculative_sampling


def as_floats(verify: Any) -> Any:
    """The same code behind a conversion to plain floats, as tensor code has it: a black box."""
    return lambda p, q, drafts, uniforms: verify(
        p, q, drafts, np.asarray(uniforms, dtype=np.float64)
    )


def carry_out(counterexample: Any, name: str, **mended: Any) -> None:
    """Run a counterexample's test to keep, of the callable that it imports or of a mended one."""
    names: dict[str, Any] = {}
    exec(exports.as_test(counterexample, name), names)
    names |= mended
    next(test for key, test in names.items() if key.startswith("test_"))()
