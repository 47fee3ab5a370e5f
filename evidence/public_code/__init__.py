"""Audits of public code: shims, a run over a folder of checkouts, the table of
`docs/public_code.md`; the code is not here.
"""
