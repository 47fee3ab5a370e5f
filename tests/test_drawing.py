"""What pictures share."""

from typing import Any

import matplotlib as mpl
import pytest

from otm import drawing


def test_pyplot_is_loaded_outside_the_style(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's backend turns on what shows pictures as it is loaded; inside the style that would be undone at once."""
    found: dict[str, Any] = {}
    load = drawing.matplotlib_module

    def watched(name: str) -> Any:
        found[name] = mpl.rcParams["font.size"]
        return load(name)

    monkeypatch.setattr(drawing, "matplotlib_module", watched)
    with mpl.rc_context({"backend": "agg", "font.size": 7.25}):
        axes = drawing.axes_or_new(None)
        load("matplotlib.pyplot").close(axes.figure)
    assert found["matplotlib.pyplot"] == 7.25
