"""A measured run: positions of prompts or of a trace, shard by shard, into a folder."""
