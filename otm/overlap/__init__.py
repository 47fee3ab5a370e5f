"""The overlap curve H(t) = Σ min(q, t p), sorted or in bins: what every question about i.i.d.
drafts is asked of.
"""

from otm.overlap.curve import Curve, OverlapCurve, Piece, overlap_at

__all__ = ["Curve", "OverlapCurve", "Piece", "overlap_at"]
