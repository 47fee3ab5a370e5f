"""Randomness of somebody's own: code that draws from torch, NumPy or `random` gets numbers that can
be followed (`intercepted`).

A uniform becomes a number that records how it is compared (`otm.tracing.traced_numbers`); so do
exponential, Gumbel and normal noise, which are functions of one. Where code draws one of several
outcomes (`multinomial`, `choice`, `randint`) it gets the outcome that the execution chose, with its
exact probability. What is drawn any other way stops the execution: nothing is followed in part.

Generators keep their meaning. The real one moves on with every draw, and its state is the name of
what was drawn: a generator that is seeded again, or set back, yields *the same* numbers again, not
new ones. That seeds themselves are uniformly distributed is taken for granted; what a fixed one
leads to, the executions on real randomness show (`otm.tracing.branching`).
"""
