"""One table of schemes: exact acceptance, proven bound, Monte Carlo interval and distance to the
optimum, side by side.

`rows` computes, `comparing` says of which schemes, `tables` and `picture` lay out, `result` holds
it all.
"""

from otm.comparison.comparing import compare as compare
from otm.comparison.result import Comparison as Comparison
from otm.comparison.rows import ComparisonRow as ComparisonRow

__all__ = ["Comparison", "ComparisonRow", "compare"]
