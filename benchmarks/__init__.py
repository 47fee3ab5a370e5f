"""Side-by-side timings against what a user would pick instead; not tests, and no test asserts a
time.
"""

from otm._machine.compiled import load_at_once

load_at_once()  # where little is asked, too: what it takes to load is timed by itself
