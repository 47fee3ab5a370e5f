"""One table of schemes: exact acceptance, proven bound, Monte Carlo interval, optimum.

`comparing` chooses the schemes and computes a row for each; `result` holds the rows and lays them
out as tables and as a picture.
"""

from otm.comparison.comparing import compare as compare
from otm.comparison.result import Comparison as Comparison, ComparisonRow as ComparisonRow

__all__ = ["Comparison", "ComparisonRow", "compare"]
