"""The table of draws: its names are the libraries', and its laws take what the libraries take."""

import inspect
import random

import numpy as np
import pytest
import torch

from otm.audit.tracing.intercept.laws import NUMPY, PYTHON, TORCH, Entry, uniform

TABLES = [(name, entry) for table in (NUMPY, PYTHON, TORCH) for name, entry in table.items()]
OWN = {"size", "dtype", "out", "method"}
"""Arguments of NumPy that are no parameters of a law."""


def test_every_name_is_one_of_its_library():
    assert NUMPY.keys() <= {*dir(np.random.Generator), *dir(np.random)}
    assert PYTHON.keys() <= set(dir(random.Random))
    for name in TORCH:
        assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, f"{name}_")


@pytest.mark.parametrize(("name", "entry"), TABLES)
def test_a_law_takes_the_arguments_that_are_named(name, entry):
    words = [word.partition("=") for word in entry.arguments.split()]
    named = {known or own for own, _, known in words} - OWN
    assert named <= set(inspect.signature(entry.law).parameters)


def test_arguments_are_bound_in_order_and_by_name():
    entry = Entry(uniform, "from=low to=high")
    given = entry.bound((1.0,), {"to": 3.0})
    assert given == {"from": 1.0, "to": 3.0}
    assert entry.parameters(given) == {"low": 1.0, "high": 3.0}
    with pytest.raises(TypeError, match="takes 2 arguments"):
        entry.bound((1.0, 2.0, 3.0), {})
