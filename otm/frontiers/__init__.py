"""How much acceptance a given distance to the target's law can buy: the ceilings of lossy schemes."""
