"""What is audited: each package at its version, the callable, and the shim that fits it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, final

from evidence.public_code.registry import Subject

SUBJECTS: dict[str, PackageSubject] = {}

PACKAGES: dict[str, tuple[str, ...]] = {
    "flashspec": ("flashspec==0.3.1", "pydantic==2.13.4", "pydantic-core==2.46.4"),
    "specdec": ("specdec==0.2.0",),
    "mini-infer": ("mini-infer==0.2.5",),
    "dflash": ("dflash==0.1.0",),
    "sequential-speculative-decoding": ("sequential-speculative-decoding==0.1.1",),
    "rotalabs-accel": ("rotalabs-accel==1.1.1",),
    "naive-speculate": ("naive-speculate==0.1.0", "pydantic==2.13.4", "pydantic-core==2.46.4"),
    "srep-moe": ("srep-moe==0.1.0",),
    "litgpt": (
        "litgpt==0.5.13",
        "lightning==2.6.6",
        "lightning-utilities==0.15.3",
        "torchmetrics==1.9.0",
        "jsonargparse==4.53.0",
        "psutil==7.2.2",
        "pytorch-lightning==2.6.6",
    ),
    "speculative-decoding": ("speculative-decoding==0.2.0", "beartype==0.23.1", "einops==0.8.2"),
    "dspark-mlx": ("dspark-mlx==0.1.0", "mlx==0.32.4", "mlx-cpu==0.32.4", "mlx-lm==0.32.2"),
    "mlx-dspark": (
        "mlx-dspark==0.20.3",
        "mlx==0.32.4",
        "mlx-cpu==0.32.4",
        "mlx-lm==0.32.2",
        "mlx-vlm==0.7.10",
    ),
    "core-deepinfer": ("core-deepinfer==0.1.0",),
    "autodraft-sd": ("autodraft-sd==1.1.1",),
    "uarc": ("uarc==0.3.0",),
    "medusa-llm": ("medusa-llm==0.1",),
    "flashspec-asm-kernel": (
        "flashspec-asm-kernel==0.1.2",
        "flashspec==0.3.1",
        "pydantic==2.13.4",
        "pydantic-core==2.46.4",
    ),
    "divine-mtp": ("divine-mtp==0.1.0",),
    "flashmap": ("flashmap==0.1.0",),
    "specforge": ("specforge==0.2.0",),
    "economize": ("economize==0.3.2",),
    "mtplx": ("mtplx==2.12.2", "mlx==0.32.4", "mlx-cpu==0.32.4"),
    "tightwad": ("tightwad==0.5.4",),
    "dejavuu": ("dejavuu==0.2.0", "loguru==0.7.3"),
    "eagle-harness": ("eagle-harness==0.1.3",),
    "csaq-quant": ("csaq-quant==0.6.0", "psutil==7.2.2", "accelerate==1.15.0"),
    "nunspark": ("nunspark==0.13.0", "mlx==0.32.4", "mlx-cpu==0.32.4", "mlx-lm==0.32.2"),
    "yunshu": ("yunshu==0.1.5", "mlx==0.32.4", "mlx-cpu==0.32.4"),
    "mlx-vlm": ("mlx-vlm==0.7.10", "mlx==0.32.4", "mlx-cpu==0.32.4", "mlx-lm==0.32.2"),
}
"""What is installed for each package: itself, and what its audited code imports that the audits do
not.
"""


@final
@dataclasses.dataclass(frozen=True)
class PackageSubject(Subject):
    """One audit of a package's callable; `repository` is the package, `revision` its version, and
    the shim is the callable that is audited.

    Attributes:
        rule: by which drafts are kept.
        uncovered: what this audit leaves out beside what the page says of all.
    """

    rule: str
    uncovered: str

    @property
    def statements(self) -> int:
        """Count the statements of the shim."""
        text = inspect.getsource(getattr(self.shim, "func", self.shim))
        return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text))) - 1


def package(
    key: str,
    name: str,
    code: str,
    kind: str,
    *,
    rule: str,
    uncovered: str,
    meant: str = "lossless",
    **options: Any,
) -> Callable[[Any], Any]:
    """Enter a shim; `code` is MODULE:FUNCTION."""

    def enter(shim: Any) -> Any:
        version = PACKAGES[name][0].partition("==")[2]
        given = name, version, code, kind, meant, shim, options, rule, uncovered
        SUBJECTS[key] = PackageSubject(key, *given)
        return shim

    return enter
