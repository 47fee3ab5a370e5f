"""A measured run as a page that opens from disk, and as a Markdown summary; the comparison of
schemes after one prompt.
"""
