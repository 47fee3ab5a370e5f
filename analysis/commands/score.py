"""`otm score`: the target's log-probabilities along texts of an engine."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from otm._machine.progress import say, with_progress

from .options import (
    PairSource,
    Texts,
    grouped,
    models_of,
    output_file,
)


@grouped(models=models_of, without=("chat_template",))
def score(
    *,
    texts: Texts,
    out: Annotated[Path, output_file("File of the scored texts.")] = Path("forced.jsonl"),
    models: PairSource,
) -> None:
    """Score an engine's texts with the target."""
    from otm.audit.text_log import read_texts

    from ..files import write_atomically
    from ..models import forced, source as sources

    assert texts is not None
    source = dataclasses.replace(models, draft=models.draft or models.target)
    pair = sources.load_source(source)
    scored = [forced.forced_text(pair, text) for text in with_progress(read_texts(texts), "texts")]
    lines = [
        dataclasses.asdict(text) | {"top": [list(top.items()) for top in text.top]}
        for text in scored
    ]
    write_atomically(out, "".join(json.dumps(line) + "\n" for line in lines).encode())
    say(f"{out}: {len(scored)} texts scored; otm audit --same-text {out} {texts}")
