"""Side-by-side timings against what a user would pick instead; not tests, and no test asserts a
time.
"""
