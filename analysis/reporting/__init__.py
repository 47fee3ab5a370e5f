"""What `python -m analysis report` is made of: reading a run, averaging it, and writing it as a page and as Markdown."""
