"""Files from elsewhere: what is written reads back, and what is hostile, damaged or of another
convention is refused.
"""

from __future__ import annotations

import ast
import inspect
import json
import math

import numpy as np
import pytest
from hypothesis import given

import otm
from otm.engines import positions
from otm.engines.positions import (
    PositionAcceptance,
)
from otm.engines.records import document, parse_acceptance
from otm.trees import interchange
from otm.trees.interchange import (
    acceptance_from_sequoia,
    acceptance_from_sequoia_static,
    acceptance_to_sequoia,
    sequoia_growmap,
    shape_from_successors,
    tree_from_json,
    tree_to_json,
)
from otm.trees.shape import TreeShape, level_order
from otm.trees.vector import check_acceptance
from tests.trees.instances import shapes, vectors

HEAD = '{"format": "otm.draft-tree", "version": 1, '


@given(vectors(is_sorted=False), shapes())
def test_json_reads_back_exactly(acceptance: np.ndarray, shape: TreeShape) -> None:
    record = tree_from_json(tree_to_json(acceptance=acceptance, shape=shape))
    assert record.acceptance.tolist() == check_acceptance(acceptance).tolist()
    assert record.shape == shape


def test_either_part_may_be_missing() -> None:
    assert tree_from_json(tree_to_json(shape=TreeShape([]))).shape == TreeShape([])
    assert tree_from_json(tree_to_json(acceptance=[0.5])).shape is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="truncated"),
        pytest.param("[" * 100_000, id="nested"),
        pytest.param('{"a":' * 100_000, id="nested objects"),
        pytest.param("[]", id="not an object"),
        pytest.param("{}", id="no format"),
        pytest.param('{"format": "other", "version": 1}', id="another format"),
        pytest.param('{"format": "otm.draft-tree", "version": 2}', id="a later version"),
        pytest.param('{"format": "otm.draft-tree", "version": true}', id="version true"),
        pytest.param('{"format": "otm.draft-tree", "version": 1.0}', id="version 1.0"),
        pytest.param(HEAD + '"extra": 1}', id="unknown key"),
        pytest.param(HEAD + '"parents": [0], "parents": [0, 1]}', id="duplicate key"),
        pytest.param(HEAD + '"parents": [1]}', id="its own parent"),
        pytest.param(HEAD + '"parents": [2, 1]}', id="a cycle"),
        pytest.param(HEAD + '"parents": [0, -1]}', id="negative parent"),
        pytest.param(HEAD + '"parents": [0, true]}', id="boolean parent"),
        pytest.param(HEAD + '"parents": [0.0]}', id="float parent"),
        pytest.param(HEAD + '"parents": ["0"]}', id="text parent"),
        pytest.param(HEAD + '"parents": [[0]]}', id="nested parents"),
        pytest.param(HEAD + '"parents": {"0": 0}}', id="object of parents"),
        pytest.param(HEAD + '"parents": null}', id="null"),
        pytest.param(HEAD + f'"parents": [{2**70}]}}', id="64 bits are not enough"),
        pytest.param(HEAD + f'"parents": [{"9" * 5000}]}}', id="thousands of digits"),
        pytest.param(HEAD + '"acceptance": [NaN]}', id="NaN"),
        pytest.param(HEAD + '"acceptance": [Infinity]}', id="Infinity"),
        pytest.param(HEAD + '"acceptance": [1e999]}', id="overflows"),
        pytest.param(HEAD + f'"acceptance": [{"9" * 400}]}}', id="a huge integer"),
        pytest.param(HEAD + '"acceptance": [-0.5]}', id="negative"),
        pytest.param(HEAD + '"acceptance": [0.7, 0.7]}', id="sums above 1"),
        pytest.param(HEAD + '"acceptance": []}', id="no rank"),
        pytest.param(HEAD + '"acceptance": [true]}', id="boolean acceptance"),
        pytest.param(HEAD + '"acceptance": 0.5}', id="a scalar"),
    ],
)
def test_hostile_documents_are_refused(text: str) -> None:
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.InvalidDistribution)):
        tree_from_json(text)


def test_masks_are_spelled_out_up_to_a_limit() -> None:
    chain = TreeShape(np.arange(interchange.MAX_MASK + 1))
    with pytest.raises(otm.errors.TooLarge, match="up to 5,000 vertices; this tree has 5,001"):
        sequoia_growmap(chain)


def test_size_and_type_are_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="must be text"):
        tree_from_json(tree_to_json().encode())
    monkeypatch.setattr(interchange, "MAX_TEXT", 10)
    with pytest.raises(otm.errors.TooLarge):
        tree_from_json(tree_to_json())
    monkeypatch.setattr(positions, "MAX_TEXT", 10)
    monkeypatch.setattr(document, "MAX_TEXT", 10)
    for reader in (parse_acceptance, PositionAcceptance.from_csv):
        with pytest.raises(otm.errors.TooLarge):
            reader("x" * 11)
        with pytest.raises(otm.errors.InvalidParameter):
            reader(b"x")


def test_nothing_is_unpickled() -> None:
    for module in (interchange, positions):
        imported = {
            name.name.split(".")[0]
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names
            )
        }
        assert imported <= {
            "__future__",
            "collections",
            "csv",
            "dataclasses",
            "io",
            "json",
            "math",
            "numpy",
            "otm",
            "re",
            "typing",
        }


class TestSequoia:
    measured = np.array(
        [0.0, 0.62, 0.2, 0.08, 0.1], dtype=np.float32
    )  # 0, A(1..3), rejected: as test_accept.py saves it

    def test_the_measured_layout(self) -> None:
        acceptance = acceptance_from_sequoia(self.measured)
        np.testing.assert_allclose(acceptance, [0.62, 0.2, 0.08], rtol=2e-7)
        np.testing.assert_allclose(acceptance_to_sequoia(acceptance), self.measured, atol=1e-7)
        # Sequoia's tree_search.py drops the last entry and calls p[i] the acceptance of the i-th
        # child, i ≥ 1.
        np.testing.assert_allclose(
            acceptance_to_sequoia(acceptance)[:-1][1:], acceptance, rtol=1e-15
        )

    def test_the_static_layout_lacks_the_rejected_mass(self) -> None:
        static = self.measured[:-1]
        with pytest.raises(
            otm.errors.InvalidDistribution, match=r"fast_test\.py.*acceptance_from_sequoia_static"
        ):
            acceptance_from_sequoia(static)
        np.testing.assert_allclose(
            acceptance_from_sequoia_static(static), [0.62, 0.2, 0.08], rtol=1e-6
        )

    @pytest.mark.parametrize(
        "bad",
        [[], [0.0], [0.5, 0.5, 0.0], [[0.0, 0.5, 0.5]], [0.0, math.nan, 1.0], [0.0, -0.5, 1.5]],
        ids=repr,
    )
    def test_other_arrays_are_refused(self, bad: object) -> None:
        for reader in (acceptance_from_sequoia, acceptance_from_sequoia_static):
            with pytest.raises(otm.errors.InvalidDistribution):
                reader(bad)

    @given(vectors(is_sorted=False))
    def test_vectors_read_back(self, acceptance: np.ndarray) -> None:
        np.testing.assert_allclose(
            acceptance_from_sequoia(acceptance_to_sequoia(acceptance)), acceptance, atol=1e-15
        )

    @given(shapes())
    def test_grow_maps(self, shape: TreeShape) -> None:
        growmap = sequoia_growmap(shape)
        tree = level_order(shape)
        assert shape_from_successors(growmap["Successors"]) == tree
        assert growmap["size"] == shape.num_nodes + 1
        assert growmap["depth"] == tree.levels.tolist()
        assert sorted(v for level in growmap["roots"] for v in level) == list(
            range(shape.num_nodes + 1)
        )
        assert [
            [len(growmap["Successors"][v]) for v in level] for level in growmap["roots"]
        ] == growmap["branches"]
        for vertex in range(shape.num_nodes + 1):
            above, here = {vertex}, vertex
            while here:
                here = int(tree.parents[here - 1])
                above.add(here)
            assert {i for i, seen in enumerate(growmap["mask"][vertex]) if seen} == above
        json.dumps(growmap)  # plain lists and integers

    @pytest.mark.parametrize(
        "successors",
        [
            [],
            [[1]],
            [[1], [1]],
            [[], [2], [1]],
            [[1, 1], []],
            [[0]],
            [[2], []],
            [[1, 2], [], [1]],
            [[True], []],
            [[1.0], []],
        ],
        ids=repr,
    )
    def test_what_is_no_tree_is_refused(self, successors: list[list[int]]) -> None:
        with pytest.raises(otm.errors.InvalidParameter):
            shape_from_successors(successors)


@pytest.mark.parametrize("values", [["a"], [object()], [0, 1j], None])
def test_sequoia_vectors_that_hold_no_numbers(values: object) -> None:
    for read in (interchange.acceptance_from_sequoia, interchange.acceptance_from_sequoia_static):
        with pytest.raises(otm.errors.InvalidDistribution):
            read(values)


@pytest.mark.parametrize("successors", [None, [1, 2], 3])
def test_successors_that_are_no_lists(successors: object) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="lists of vertices"):
        interchange.shape_from_successors(successors)
