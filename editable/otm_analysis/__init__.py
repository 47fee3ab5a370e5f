"""The folder `analysis/` under the name that it has in the wheel, for editable installations."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "analysis")]
