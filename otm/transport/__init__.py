"""Optimal couplings by linear programming, with certificates independent of the solver."""

from otm.transport.certify import certify_exactly
from otm.transport.lp import optimum
from otm.transport.program import TransportProgram, optimum_program

__all__ = ["TransportProgram", "certify_exactly", "optimum", "optimum_program"]
