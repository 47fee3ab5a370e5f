"""The shipped pair, loaded once."""

import pytest

from analysis.models.pair import Pair, load_pair


@pytest.fixture(scope="session")
def pair() -> Pair:
    return load_pair(device="cpu")
