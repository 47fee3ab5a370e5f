"""The papers' figures from scripts: a module each, `compute` for numbers, `draw` for pictures."""
