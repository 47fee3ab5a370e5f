"""Evidence beside the suite: hours of trials, public code, broken verifiers and mutants."""
