"""A measured run: positions of many prompts or of a trace, shard by shard, into a folder that a
killed process goes on from.
"""
