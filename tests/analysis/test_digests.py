"""The digest of a file's content, by the definition: SHA-256 of what it says and of each column's
name and bytes.
"""

import hashlib

import numpy as np

from analysis.digests import content_digest


def test_the_digest_is_that_of_names_and_bytes() -> None:
    column = np.arange(3.0)
    expected = hashlib.sha256(b"{}" + hashlib.sha256(b"a" + column.tobytes()).digest()).hexdigest()
    assert content_digest(b"{}", ["a"], [{"a": column}]) == expected
    changed = column.copy()
    changed[1] = np.nextafter(1.0, 2.0)
    assert content_digest(b"{}", ["a"], [{"a": changed}]) != expected
    assert content_digest(b"{}", ["b"], [{"b": column}]) != expected
