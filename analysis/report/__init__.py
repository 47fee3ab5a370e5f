"""A measured run as a page that opens from disk and as Markdown; schemes after one prompt."""
