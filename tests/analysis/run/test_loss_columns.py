"""What acceptance is lost to, as columns: parts that add up, in the order of positions and
settings, whatever is taken at once.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.models.processing import Setting
from analysis.run import loss_columns as losses
from analysis.run.loss_columns import PARTS, loss_columns, loss_statistics
from otm import Processing

KS = (1, 3)
SETTINGS = (
    Setting(),
    Setting(Processing(top_k=4), Processing(temperature=0.7, min_p=0.1)),
    Setting(Processing(top_p=0.8, order="llama.cpp"), Processing(top_p=0.9, order="vllm")),
)


def logits() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    draft, target = 2.0 * rng.standard_normal((2, 5, 12))
    draft[:, -3:] = -np.inf
    return draft, target


def test_the_parts_add_up_to_what_is_not_accepted() -> None:
    draft, target = logits()
    columns = loss_columns(draft, target, SETTINGS, KS)
    assert list(columns) == [name for name, _, _ in loss_statistics(KS)]
    whole = sum(columns[f"lost_{name}"] for name in PARTS).reshape(5, len(SETTINGS))
    for place, setting in enumerate(SETTINGS):
        p, q = setting.draft(draft), setting.target(target)
        # 1 less sums of 12 masses in [0, 1].
        np.testing.assert_allclose(whole[:, place], 1.0 - np.minimum(p, q).sum(axis=-1), atol=1e-14)
        for k in KS:
            np.testing.assert_allclose(
                columns[f"likeliest_k{k}"].reshape(5, -1)[:, place],
                np.sort(q, axis=-1)[:, -k:].sum(axis=-1),
                atol=1e-14,
            )
        rounded = otm.losses.draft_rounding(draft=p, target=q)
        np.testing.assert_array_equal(
            columns["rounding_tv"].reshape(5, -1)[:, place], rounded.output_tv
        )
        np.testing.assert_array_equal(
            columns["lost_rounding"].reshape(5, -1)[:, place], -rounded.gain
        )
    unknown = columns["lost_vocabulary"].reshape(5, -1)
    np.testing.assert_allclose(
        unknown[:, 0], SETTINGS[0].target(target)[:, -3:].sum(axis=-1), atol=1e-14
    )
    assert (
        columns["lost_truncation"].reshape(5, -1)[:, 0].max()
        < 1e-15
        < columns["lost_truncation"].reshape(5, -1)[:, 1].max()
    )
    assert columns["lost_excluded"].reshape(5, -1)[:, 1].max() > 0.01


def test_rows_are_independent_of_how_many_are_taken_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = loss_columns(*logits(), SETTINGS, KS)
    monkeypatch.setattr(losses, "_NUMBERS_AT_ONCE", 24)
    for name, values in loss_columns(*logits(), SETTINGS, KS).items():
        np.testing.assert_array_equal(values, whole[name])
