"""The look of pictures and tables."""
