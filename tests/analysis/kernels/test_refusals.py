"""Rows of sharp models: every step that was drafted from them is answered, by the target's law."""

import itertools
import json

import numpy as np
import pytest
import torch

from analysis.kernels import generation
from analysis.kernels.generation import Speculative
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.vertices import optimal_by_vertex
from benchmarks import refusals
from otm.errors import InvalidDistribution
from tests.analysis.kernels.steps import KERNELS, TREE, Requests, every_kernel
from tests.analysis.kernels.tiny_llamas import llama, p_value
from tests.paths import ROOT

NAMES = [name for name, _ in refusals.kernels(1)]


@pytest.mark.parametrize("type_", refusals.TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_no_sharp_row_is_refused(name, type_):
    """A few requests of each kind of the committed table; its script has all of them."""
    generator = torch.Generator().manual_seed(7)
    known = (dict(refusals.kernels(k)) for k in (1, 2, 8))
    draftings = [drafting[name] for drafting in known if name in drafting]
    for logits in refusals.models(30, generator):
        for heat, kept in itertools.product((1.0, 0.1, 0.01), refusals.FILTERS.values()):
            draft, target = (
                refusals.laws(one, heat, kept, refusals.TYPES[type_]) for one in logits
            )
            for drafting in draftings:
                given = refusals.step(drafting, draft, target, 6, generator)
                assert drafting.verify(*given).count.all()


def test_the_committed_table_is_of_every_kernel_and_nothing_is_refused():
    rows = json.loads((ROOT / "benchmarks/results/refusals.json").read_text())["rows"]
    assert {row["kernel"] for row in rows} == set(NAMES)
    assert not any(row["refused"] for row in rows)
    page = (ROOT / "docs/howto/kernels.md").read_text(encoding="utf-8")
    for name in NAMES:
        number = sum(row["requests"] for row in rows if row["kernel"] == name)
        assert f"| {name} | {number:,} |" + 3 * " 0, 0, 0 |" in page


@pytest.mark.parametrize("kernel", [refined_scores, optimal_by_vertex])
@pytest.mark.parametrize("target", [-40.01, -33.2, -80.0, -20.0])
def test_two_tokens_one_of_them_sure(kernel, target):
    """One draft, the sure token: it is kept, and a token after it is drawn."""
    p, q = (
        torch.softmax(torch.tensor([0.0, tail], dtype=torch.float64), dim=0).expand(1, 2, 2)
        for tail in (-40.0, target)
    )
    half = torch.full((1, 2), 0.5, dtype=torch.float64)
    tokens, path = torch.tensor([[0, 0]]), torch.ones((1, 1, 1), dtype=torch.int64)
    found = kernel(tokens, path, q, p, half, half[:, 0], ScoreGrid.of(1, "cpu"))
    assert found.tokens.tolist() == [[0, 0]]


@every_kernel
def test_drafts_of_tiny_mass_are_answered(name):
    """A draft's own probability may be the smallest float, and the target's may be 0."""
    kernel, shape = KERNELS[name]
    requests = Requests.random(shape, 60, 4, 5, distinct=shape is TREE)
    parents = torch.tensor(shape.parents)
    tokens, every = requests.candidates[:, 1:].clamp(min=0), torch.arange(60)[:, None]
    for smallest in (5e-324, 1e-300):
        draft = torch.ones_like(requests.draft)
        draft[every, parents, tokens] = 0.0
        draft /= draft.sum(dim=-1, keepdim=True)
        draft[every, parents, tokens] = smallest
        found = kernel(requests.candidates, requests.target, draft, *requests.arguments[3:])
        assert found.count.all()


def sharp_llama(rows):
    """A model of order one with given logits: its layer adds nothing to the embedding."""
    model = llama(0)
    size = model.config.hidden_size
    for weight in (model.model.layers[0].self_attn.o_proj, model.model.layers[0].mlp.down_proj):
        torch.nn.init.zeros_(weight.weight)
    number = len(rows)
    model.model.embed_tokens.weight.data = torch.eye(number, size)
    model.lm_head.weight.data = torch.zeros((number, size))
    # the norm makes √size of a unit vector
    model.lm_head.weight.data[:, :number] = torch.tensor(rows).mT / size**0.5
    return model


SHARP = 0, 1
"""After these tokens both models are sure."""


def pair():
    """Draft and target over six tokens, sure of the third after half of what is drafted first."""
    rows = [[-39.0 - x for x in range(6)] for _ in range(6)]
    for row in rows:
        row[2] = 0.0
    others = [list(row) for row in rows]
    for after in set(range(6)) - set(SHARP):
        rows[after], others[after] = [0.0] * 6, [0.0, 0.5, 0.0, 0.3, 0.0, 0.4]
    others[0][0], others[1][3] = -41.3, -44.0
    return sharp_llama(rows), sharp_llama(others), others


def texts(loop, target, number):
    torch.manual_seed(0)
    found = target.generate(
        torch.tensor([[2, 4]]),
        num_return_sequences=number,
        custom_generate=loop,
        do_sample=True,
        top_k=0,
        max_new_tokens=2,
        eos_token_id=None,
        pad_token_id=0,
    )
    return np.bincount((6 * found[:, -2] + found[:, -1]).numpy(), minlength=36)


@pytest.mark.filterwarnings("ignore")
def test_texts_of_sharp_models_have_the_target_s_law(monkeypatch):
    """χ² of two tokens at 10⁻⁶; a step that is refused ends the text with an error, as whether one
    is depends on the drafts.
    """
    draft, target, logits = pair()
    rows = torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=-1).numpy()
    law = (rows[4][:, None] * rows).reshape(-1)
    loop = Speculative(draft, num_drafts=2, length=2)
    assert p_value(texts(loop, target, 300), law) > 1e-6

    def refusing(candidates, *rest):
        found = refined_scores(candidates, *rest)
        return found.where(
            (candidates[:, 1:3, None] == torch.tensor(SHARP)).any(-1).any(-1).logical_not()
        )

    monkeypatch.setattr(generation, "refined_scores", refusing)
    with pytest.raises(InvalidDistribution, match="refined scores refused one after 2 tokens"):
        texts(loop, target, 20)
