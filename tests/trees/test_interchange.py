"""Files from elsewhere: what is written reads back, and what is hostile, damaged or of another
convention is refused.
"""

import pytest
from hypothesis import given

import otm
from otm.trees import interchange
from otm.trees.interchange import tree_from_json, tree_to_json
from otm.trees.shape import TreeShape
from otm.trees.vector import check_acceptance
from tests.trees.instances import shapes, vectors

HEAD = '{"format": "otm.draft-tree", "version": 1, '


@given(vectors(is_sorted=False), shapes())
def test_json_reads_back_exactly(acceptance, shape):
    record = tree_from_json(tree_to_json(acceptance=acceptance, shape=shape))
    assert record.acceptance.tolist() == check_acceptance(acceptance).tolist()
    assert record.shape == shape


def test_either_part_may_be_missing():
    assert tree_from_json(tree_to_json(shape=TreeShape([]))).shape == TreeShape([])
    assert tree_from_json(tree_to_json(acceptance=[0.5])).shape is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="truncated"),
        pytest.param('{"a":' * 100_000, id="nested"),
        pytest.param("[]", id="not an object"),
        pytest.param('{"format": "other", "version": 1}', id="another format"),
        pytest.param('{"format": "otm.draft-tree", "version": 2}', id="a later version"),
        pytest.param('{"format": "otm.draft-tree", "version": true}', id="version true"),
        pytest.param('{"format": "otm.draft-tree", "version": 1.0}', id="version 1.0"),
        pytest.param(HEAD + '"extra": 1}', id="unknown key"),
        pytest.param(HEAD + '"parents": [0], "parents": [0, 1]}', id="duplicate key"),
        pytest.param(HEAD + '"parents": [2, 1]}', id="a cycle"),
        pytest.param(HEAD + '"parents": [0, true]}', id="boolean parent"),
        pytest.param(HEAD + '"parents": [0.0]}', id="float parent"),
        pytest.param(HEAD + '"parents": {"0": 0}}', id="object of parents"),
        pytest.param(HEAD + '"parents": null}', id="null"),
        pytest.param(HEAD + f'"parents": [{2**70}]}}', id="64 bits are not enough"),
        pytest.param(HEAD + f'"parents": [{"9" * 5000}]}}', id="thousands of digits"),
        pytest.param(HEAD + '"acceptance": [NaN]}', id="NaN"),
        pytest.param(HEAD + '"acceptance": [1e999]}', id="overflows"),
        pytest.param(HEAD + f'"acceptance": [{"9" * 400}]}}', id="a huge integer"),
        pytest.param(HEAD + '"acceptance": [0.7, 0.7]}', id="sums above 1"),
        pytest.param(HEAD + '"acceptance": []}', id="no rank"),
        pytest.param(HEAD + '"acceptance": [true]}', id="boolean acceptance"),
        pytest.param(HEAD + '"acceptance": 0.5}', id="a scalar"),
    ],
)
def test_hostile_documents_are_refused(text):
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.InvalidDistribution)):
        tree_from_json(text)


def test_size_and_type_are_checked_first(monkeypatch):
    with pytest.raises(otm.errors.InvalidParameter, match="must be text"):
        tree_from_json(tree_to_json().encode())
    monkeypatch.setattr(interchange, "MAX_TEXT", 10)
    with pytest.raises(otm.errors.TooLarge):
        tree_from_json(tree_to_json())
