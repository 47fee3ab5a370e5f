#!/usr/bin/env bash
# highspy 1.16.0 writes a banner to the standard output of any process that solves, with output off.
#
# HiGHS is told to be silent by output_flag = false and log_to_console = false, before any model is
# passed. Version 1.15.1 then prints nothing. Version 1.16.0 prints two lines, its name with the
# revision and the licences of what it includes, once a process, straight to file descriptor 1: a
# redirection of sys.stdout does not catch them, and a program whose standard output is JSON or CSV
# hands its reader an invalid document.
#
# Seen with Python 3.11 on Linux, numpy 2.4.6:
#   highspy 1.15.1: 0 lines on standard output
#   highspy 1.16.0: 2 lines on standard output, the first: Running HiGHS 1.16.0 (git hash: …): …
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat > "$place/solve.py" <<'PYTHON'
import contextlib
import io

import highspy

with contextlib.redirect_stdout(io.StringIO()):
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("log_to_console", False)
    x = solver.addVariable(lb=0.0, ub=1.0)
    solver.maximize(x)
    assert solver.getSolution().col_value == [1.0]
PYTHON
lines_of() {
  python3 -m venv "$place/$1"
  "$place/$1/bin/python" -m pip install --quiet numpy==2.4.6 "highspy==$1"
  "$place/$1/bin/python" "$place/solve.py" > "$place/out-$1"
  wc -l < "$place/out-$1"
}
before=$(lines_of 1.15.1)
after=$(lines_of 1.16.0)
echo "highspy 1.15.1: $before lines on standard output"
echo "highspy 1.16.0: $after lines on standard output, the first: $(head -n 1 "$place/out-1.16.0" | cut -c1-60)"
[ "$before" -eq 0 ]
[ "$after" -eq 2 ]
