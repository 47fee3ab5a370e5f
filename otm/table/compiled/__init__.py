"""The table's columns (`otm.table.arrays`) compiled for the host by numba: row by row, in a few
sequential reads and at most one sort.

NumPy pays a pass over memory for every operation. Here the interpreter is left alone, so that
threads add up, and a row is read as it is given (`driver`):

* once for all that needs no order (`first_pass`): its sums, the schemes of one draft, entropies and
  divergences (a logarithm of a block is a polynomial, four or eight at a time), and powers (1 −
  p)^k, whose series in p lets all k share the moments Σ q p^n. If its sums say that it is no
  distribution (weights, float32), it is divided and read again; where that is known before, sums
  are taken first;
* once along the order of q/p (`second_pass`), after a sort of the tokens by counting. Only the
  races need it: their terms depend on every token's rank. On a stretch of the order where the match
  probability h = c (1 + y) hardly changes all k share the moments Σ q y^n; a threshold race merges
  the order with itself, once for each c. Without races the first pass puts tokens into bins of the
  ratio.

What is left of the order are the masses at the ends of its blocks or bins. The optimum looks into
the few that can hold it; K-SEQ, recursive rejection, lenience and the greedy optimum find theirs
(`otm.overlap.walk`), and the gate of `Fuzzy` most often needs none. Arrays of a row's length are
made for one row at a time.

Floating-point sums may be reordered (`reassoc`) and fused (`contract`), nothing else: infinities
and NaN are meant and kept.
"""
