"""The headline above a picture: the module's message, a sentence with a number from the data."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure

_SIZE, _PER_INCH = 11, 11.5


def headline(canvas: Figure, message: str) -> None:
    """Write the message above the picture, wrapped to the picture's width."""
    text = textwrap.fill(message, round(_PER_INCH * canvas.get_figwidth()))
    canvas.suptitle(text.replace("$", r"\$"), x=0.01, ha="left", fontsize=_SIZE)
