"""Greedy multi-path block verification and closed forms of acceptances: this library against public
code, on the same instances.

The code is that of Rmuk655/Distill-Spec-Research, at the revisions below, loaded from a folder of
checkouts (`--checkouts`) and run as it is, on tensors in double precision; milliseconds are of one
thread's processor time. A step verifies K drafted sequences of four tokens, each context with laws
of its own. *Differs by* is the largest difference of the law of the selected sequence's first
token, or of the acceptance: what is behind it stands in docs/claims.md.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from benchmarks.timing import medians
from evidence.public_code.checkouts import folder, load
from otm.sequence import GreedyMultipath, Sampled
from otm.sequence.greedy_multipath import RankedTokens
from otm.sequence.models import OneByOne

REPOSITORY = "Rmuk655/Distill-Spec-Research"
REVISIONS = {
    "verifiers/verifier.py": "08571bb7c182457493043fe15e9cda871e82b4df",
    "verifiers/node.py": "06c57254ed1fd6c266f23f5d87ac9f41bd3811b2",
}
"""Of each file; the class `Node` that the former takes from the latter holds a token and its place
in the tree there.
"""

SAID = {
    "clock": "processor time of one thread",
    **{f"{REPOSITORY}/{file}": pin for file, pin in REVISIONS.items()},
}

LENGTH = 4
SEQUENCES = ((2, 1_000), (4, 1_000), (4, 32_000), (4, 128_256))
ACCEPTANCES = ((4, 32_000), (16, 32_000))


def run(*, seconds: float, checkouts: Path) -> list[dict[str, Any]]:
    """Time the tasks and return one row each."""
    import torch

    torch.set_num_threads(1)
    root = folder(checkouts, REPOSITORY)
    code = load(
        root, "verifiers/verifier.py", module="verifier", siblings=("node=verifiers/node.py",)
    )
    steps = [_step(code.TreeVerifier, torch, k, num_tokens, seconds) for k, num_tokens in SEQUENCES]
    node = code.Node(0, "0", 0, 0)
    return steps + [
        row
        for k, num_tokens in ACCEPTANCES
        for row in _acceptances(node, torch, k, num_tokens, seconds)
    ]


class Pair(OneByOne):
    """Draft and target after every context, made when asked for, and kept."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.both = functools.cache(self._both)

    def _both(self, context: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rng = np.random.default_rng([7, *context])
        target = rng.permutation(otm.examples.zipf(self.num_tokens))
        draft = target * rng.lognormal(0.0, 1.0, self.num_tokens)
        return draft / draft.sum(), target

    def next(self, context: Any) -> NDArray[np.float64]:
        """Return the draft's law."""
        return self.both(tuple(int(token) for token in context))[0]


def _step(verifier: Any, torch: Any, k: int, num_tokens: int, seconds: float) -> dict[str, Any]:
    pair, scheme, rng = Pair(num_tokens), GreedyMultipath(k, LENGTH), np.random.default_rng(0)
    tree = scheme.draft(pair, (0,), Sampled(rng))
    contexts = [context for context in tree.contexts() if context is not None]
    leaves = [context for context in contexts if len(context) == LENGTH + 1]
    names = [",".join(map(str, context)) for context in dict.fromkeys(contexts)]
    tensors = {
        name: [torch.tensor(law) for law in pair.both(tuple(map(int, name.split(","))))]
        for name in names
    }
    draft, target = ({name: laws[which] for name, laws in tensors.items()} for which in (0, 1))

    def theirs() -> Any:
        return verifier([list(leaf) for leaf in leaves], names, draft, target)

    times = medians(
        {
            "ours": lambda: scheme.verify(
                tree, lambda context: pair.both(tuple(context))[1], Sampled(rng)
            ),
            "other": lambda: theirs().verify("gbv"),
        },
        seconds=seconds,
        clock=time.process_time,
    )
    one = theirs()
    root, (p, q) = one.nodes[0], pair.both((0,))
    order = np.argsort(q / p, kind="stable")
    root.q_joint, root.q_joint_cdf, root.q_cdf = (
        torch.tensor(1.0),
        torch.tensor(1.0),
        torch.empty(num_tokens),
    )
    root.q_cdf = torch.tensor(np.cumsum(p[order])[np.argsort(order)])
    selected = np.asarray(one.compute_skew(root))
    return _row(
        f"one step of greedy multi-path block verification, K = {k}, V = {num_tokens:,}",
        "GreedyMultipath.verify",
        'TreeVerifier(…).verify("gbv")',
        REVISIONS["verifiers/verifier.py"],
        times,
        float(np.abs(selected - RankedTokens.of(p, q, 0.0, k).selected).max()),
    )


def _acceptances(
    node: Any, torch: Any, k: int, num_tokens: int, seconds: float
) -> list[dict[str, Any]]:
    draft, target = Pair(num_tokens).both((0,))
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
    p, q = torch.tensor(draft), torch.tensor(target)
    rows = []
    for scheme, name in (
        (otm.NaiveTree(), "naive_otlp_accept"),
        (otm.RecursiveRejection(), "specinfer_otlp_accept"),
        (otm.KSeq(), "spectr_otlp_accept"),
    ):
        function = getattr(node, name)
        difference = abs(float(otm.acceptance(scheme, problem)) - function(q, p, k))
        times = medians(
            {
                "ours": lambda s=scheme: otm.acceptance(s, problem),
                "other": lambda f=function: f(q, p, k),
            },
            seconds=seconds,
            clock=time.process_time,
        )
        task = f"acceptance of {scheme}, K = {k}, V = {num_tokens:,}"
        rows.append(
            _row(
                task,
                f"acceptance({scheme!r})",
                name,
                REVISIONS["verifiers/node.py"],
                times,
                difference,
            )
        )
    return rows


def _row(
    task: str, ours: str, other: str, revision: str, times: dict[str, float], difference: float
) -> dict[str, Any]:
    return {
        "task": task,
        "this library": ours,
        "ms": times["ours"],
        "alternative": f"{other} at {revision[:7]}",
        "alternative ms": times["other"],
        "ratio": times["ours"] / times["other"],
        "differs by": difference,
    }
