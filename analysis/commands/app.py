"""Every command of `python -m analysis` as one application."""

from __future__ import annotations

import typer

from .advise import advise
from .compare import compare
from .decode import decode
from .experiment import capture, experiment
from .latency import latency
from .measure import measure, merge, report
from .rules import rules
from .score import score
from .steps import steps
from .train import fetch, train

app = typer.Typer(
    help="Speculative decoding on real language models: advice, exact measurements, decoding runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    advise,
    compare,
    measure,
    merge,
    report,
    decode,
    score,
    steps,
    rules,
    experiment,
    latency,
    train,
    fetch,
    capture,
):
    app.command()(command)
