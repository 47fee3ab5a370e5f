"""`python -m analysis score`: what the target says along texts that an engine wrote."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import counted, say

from ..models.source import PairSource
from .options import grouped, output_option


@grouped
def score(
    *,
    texts: Annotated[
        Path, typer.Option(help="An engine's responses, in a form of otm.audit.text_log.")
    ],
    models: PairSource,
    out: Annotated[Path, output_option("Where to write the scored texts.")] = Path("forced.jsonl"),
) -> None:
    """Score an engine's texts with the target, for otm audit --same-text."""
    from otm.audit.text_log import read_texts

    from ..files import write_atomically
    from ..models.forced import forced_text
    from ..models.source import load_source

    source = dataclasses.replace(models, draft=models.draft or models.target)
    pair = load_source(source)
    scored = [forced_text(pair, text) for text in counted(read_texts(texts), "texts")]
    lines = [
        dataclasses.asdict(text) | {"top": [list(top.items()) for top in text.top]}
        for text in scored
    ]
    write_atomically(out, "".join(json.dumps(line) + "\n" for line in lines).encode())
    say(f"{out}: {len(scored)} texts scored; otm audit --same-text {out} {texts}")
