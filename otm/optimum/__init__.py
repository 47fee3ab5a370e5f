"""The best acceptance that any verifier can reach: value, couplings, certificates, closed forms."""
