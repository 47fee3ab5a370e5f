"""The commands on language models as a list, one module each (`otm.commands`)."""

from __future__ import annotations

from functools import partial

from otm.commands import RECORDS, Command

MODELS, MEASURING, TRAINING = "On two models", "Measuring", "Training and papers"
_listed = partial(Command, extra="analysis")

COMMANDS = (
    _listed(
        "advise",
        f"{__name__}.advise:advise",
        MODELS,
        "Say whether to speculate here, with which scheme, and how much faster it is.",
    ),
    _listed(
        "compare",
        f"{__name__}.compare:compare",
        RECORDS,
        "Compare every scheme on two files of probabilities, or on two models after prompts.",
        extra="",  # files need no models
    ),
    _listed(
        "decode",
        f"{__name__}.decode:decode",
        MODELS,
        "Decode prompts with any decoder: tokens per call, speed-up over plain decoding.",
    ),
    _listed(
        "rules",
        f"{__name__}.rules:rules",
        MODELS,
        "Say which verification rule an engine runs, and what every other rule would give.",
    ),
    _listed(
        "score",
        f"{__name__}.score:score",
        MODELS,
        "Score an engine's texts with the target, for otm audit --same-text.",
    ),
    _listed(
        "measure",
        f"{__name__}.measure:measure",
        MEASURING,
        "Measure the exact acceptance of every scheme at every position of many prompts.",
    ),
    _listed(
        "merge",
        f"{__name__}.measure:merge",
        MEASURING,
        "Merge the parts of one run that several machines have measured.",
    ),
    _listed(
        "report",
        f"{__name__}.measure:report",
        MEASURING,
        "Write a measured run as one page, with a summary in Markdown.",
    ),
    _listed(
        "latency",
        f"{__name__}.latency:latency",
        MEASURING,
        "Time passes of both models by length, batch size and size of a draft tree.",
    ),
    _listed(
        "steps",
        f"{__name__}.steps:steps",
        MEASURING,
        "Compare decoders of several drafted sequences by tokens per call.",
    ),
    _listed(
        "train",
        f"{__name__}.train:train",
        TRAINING,
        "Train a small pair of models, or a draft for a target.",
    ),
    _listed(
        "fetch",
        f"{__name__}.train:fetch",
        TRAINING,
        "Fetch a public target model, once (93 MB, 540 MB on the disk).",
    ),
    _listed(
        "capture",
        f"{__name__}.experiment:capture",
        TRAINING,
        "Capture the distributions behind Figures 4 and 5 from a pair.",
    ),
    _listed(
        "experiment",
        f"{__name__}.experiment:experiment",
        TRAINING,
        "Run an experiment of the papers and write the data of its figure.",
    ),
)
"""The commands on language models."""
