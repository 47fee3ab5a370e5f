"""One file for each engine that runs trained pairs, in the environment of its runner."""
