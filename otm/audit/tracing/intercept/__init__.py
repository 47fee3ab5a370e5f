"""Interception: code that draws from NumPy, `random` or torch gets numbers that can be followed.

While `intercepted` is open, the drawing functions of these libraries take their values from an
execution. Which function draws what stands in one table (`tracing.intercept.laws`).

A uniform becomes a number that records how it is compared (`tracing.traced_numbers`); so do
exponential, Gumbel and normal noise, which are functions of one. Where code draws one of several
outcomes (`multinomial`, `choice`, `randint`) it gets the outcome that the execution chose, with its
exact probability. What is drawn any other way stops the execution: nothing is followed in part.

Generators keep their meaning. The real one moves on with every draw, and its state is the name of
what was drawn: a generator that is seeded again, or set back, yields *the same* numbers again, not
new ones. That seeds themselves are uniformly distributed is taken for granted; what a fixed one
leads to, the executions on real randomness show (`tracing.branching`).
"""
