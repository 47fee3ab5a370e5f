"""What one call of the target yields: schemes side by side on the same contexts and drafts."""
