"""Families of trials; every module here is imported by `benchmarks.torture.frame.families`, so a
new one needs no entry.
"""
