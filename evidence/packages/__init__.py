"""Audits of packages of the index, each installed in an environment of its own: shims, the runner,
the table of `docs/packages.md`.
"""
