"""The commands of the library, one a file: `register` adds one to the parser, `run` carries it out
and returns its exit status.

They read words and print; what they print is worked out in the rooms below. Started by
`otm.__main__`.
"""
