"""Families of trials; every module here is imported by `evidence.torture.frame.families`, so a
new one needs no entry.
"""
