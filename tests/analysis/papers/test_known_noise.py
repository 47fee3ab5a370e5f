"""Known noise on the shipped pair: what rounding does, and the rule whose mismatches are its
distance.
"""

from __future__ import annotations

import math

import pytest
import torch

from analysis.models.pair import load_pair
from analysis.papers.experiments import held_out_prompts
from analysis.papers.known_noise import TOLERANCES, measure_known_noise, to_int8
from otm import audit


def test_one_prompt_of_the_shipped_pair() -> None:
    pair = load_pair(device="cpu")
    found = measure_known_noise(pair, held_out_prompts(pair, 1))
    rows = {row["case"]: row for row in found["rows"]}
    assert found["contexts"] == 32
    stored = rows["weights in float16"]  # as the shipped ones are
    assert (stored["tv"], stored["tokens"], stored["records"]) == (0.0, [None] * 3, None)
    *_, (name, rule) = rows.items()
    assert "drafts pass within" in name
    assert rule["tv"] == pytest.approx(0.02, abs=1e-9)
    assert rule["tokens"][0] == math.ceil(math.log(found["missed"]) / math.log1p(-0.02))
    assert rule["records"] == audit.records_needed()
    coarse, fine = rows["matrices in int8"], rows["weights in bfloat16"]
    assert coarse["tv"] > fine["tv"] > 0.0
    for row in rows.values():
        tokens = [math.inf if n is None else n for n in row["tokens"]]
        assert tokens == sorted(tokens) and len(tokens) == len(TOLERANCES)
        if row["tv"]:  # between the distance and twice it, in every context, so in the mean
            off = -math.expm1(math.log(found["missed"]) / tokens[0])
            assert 0.99 * row["tv"] < off * (1 + 2 / tokens[0]) and off < 2 * row["tv"]


def test_rounding_to_int8() -> None:
    weight = torch.tensor([[127.0, 3.4, -0.6], [0.0, 0.0, 0.0]])
    assert to_int8(weight).tolist() == [[127.0, 3.0, -1.0], [0.0, 0.0, 0.0]]
