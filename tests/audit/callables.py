"""Verifiers in the form that users pass to an audit, and a way to run an audit's counterexample."""

from typing import Any

import numpy as np

from evidence.corpus.one_token import speculative_sampling
from otm.audit import exports

maximal = speculative_sampling


def as_floats(verify: Any) -> Any:
    """Wrap a verifier behind a conversion to plain floats, as tensor code has: a black box."""
    return lambda p, q, drafts, uniforms: verify(
        p, q, drafts, np.asarray(uniforms, dtype=np.float64)
    )


def carry_out(counterexample: Any, name: str, **mended: Any) -> None:
    """Run the kept test of a counterexample on the imported callable or a mended one."""
    names: dict[str, Any] = {}
    exec(exports.as_test(counterexample, name), names)
    names |= mended
    next(test for key, test in names.items() if key.startswith("test_"))()
