"""One file for each engine that runs the shipped pair, in the environment of its runner."""
