"""A measured run: positions of prompts or of a trace, shard by shard, into a folder."""

MOST_THREADS = 1024
"""Most threads or processes that may be asked for: more than machines have cores."""
