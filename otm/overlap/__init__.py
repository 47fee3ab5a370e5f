"""The overlap curve H(t) = Σ min(q, t p), sorted or in bins: the base of results on i.i.d.
drafts.
"""

from otm.overlap.curve import Curve, OverlapCurve, Piece, overlap_at

__all__ = ["Curve", "OverlapCurve", "Piece", "overlap_at"]
