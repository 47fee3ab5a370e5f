"""Tracing: the exact law of a sampler's answers, by following random numbers through the code.

A sampler compares uniforms with thresholds and with each other, draws from weights, and answers
something. `trace` runs it on numbers that record how they are compared, in every way that they may
come out, and adds up the probabilities of the answers: exactly, with nothing sampled. It need not
be written for this: it may take its uniforms as an argument or draw them itself from NumPy,
`random` or torch, whose draws are intercepted while it runs.

>>> import numpy as np
>>> def keep_or_draw(uniforms):  # accept token 0 with probability 3/5, or draw from two others
...     if uniforms[0] * 0.5 < 0.3:
...         return 0
...     return int(np.random.default_rng().choice([1, 2], p=[0.25, 0.75]))
>>> law = trace(keep_or_draw, num_uniforms=1)
>>> {token: round(mass, 12) for token, mass in sorted(law.mass.items())}, law.error
({0: 0.6, 1: 0.1, 2: 0.3}, 0.0)

What the numbers are, module by module:

* `execution`: one run, the box of uniforms that it is in, and the parts set aside for later;
* `traced_numbers`: arithmetic and comparisons of numbers that know only their box;
* `exponentials`: races of exponential variables (``argmin E/w``, Gumbel noise), exactly;
* `intercept`: what NumPy, `random` and torch draw, in one table;
* `branching`: `trace`, which goes through all parts;
* `probing`: black boxes, which turn their numbers into plain floats, on a grid;
* `output_law`: the answers to many drafts, traced where that is possible, else probed;
* `drawn_row`: rows of integers that are drawn as code looks at them.

`TraceAborted` says why a sampler cannot be followed. A law holds for the randomness that was seen:
`contradicts_samples` holds it against executions on real randomness, which show a fixed seed or
hidden state.
"""

from otm.audit.tracing.branching import TracedLaw, contradicts_samples, trace
from otm.audit.tracing.execution import TraceAborted

__all__ = ["TraceAborted", "TracedLaw", "contradicts_samples", "trace"]
