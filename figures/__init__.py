"""The papers' figures, rebuilt from scripts: one module per figure, `compute` for the numbers,
`draw` for the picture.
"""
