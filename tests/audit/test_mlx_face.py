"""Code written for mlx-lm's models, with their caches; MLX's arrays are NumPy's where it is not
installed.
"""

import sys
import types

import numpy as np
import pytest

from otm import audit
from otm.audit.generations import ToyLanguage


@pytest.fixture(autouse=True)
def arrays(monkeypatch):
    """Let NumPy stand for MLX: the model makes arrays, and nothing else."""
    core = types.SimpleNamespace(array=np.asarray)
    monkeypatch.setitem(sys.modules, "mlx", types.SimpleNamespace(core=core))
    monkeypatch.setitem(sys.modules, "mlx.core", core)


@pytest.fixture(scope="module")
def pair():
    """Laws that depend on every token and its place."""
    rng = np.random.default_rng(5)
    return [ToyLanguage(rng.dirichlet([1.0, 1.0], size=5)) for _ in range(2)]


def softmax(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def test_logits_are_those_of_the_law_with_and_without_a_cache(pair):
    model, ids = audit.as_mlx(pair[0], temperature=2.0), np.asarray([[0, 1, 0, 1]])
    whole = model(ids)
    assert whole.shape == (1, 4, 2)
    np.testing.assert_allclose(softmax(whole[0, 2] / 2.0), pair[0].next([1, 0]), atol=1e-7)
    cache = model.make_cache()
    parts = [model(ids[:, :1], cache=cache), model(ids[:, 1:], cache=cache)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert cache[0].offset == 4
    assert cache[0].is_trimmable()
    assert (cache[0].trim(2), cache[0].offset) == (2, 2)
    np.testing.assert_array_equal(model(ids[:, 2:], cache=cache), whole[:, 2:])
    assert cache[0].trim(9) == 4
    assert cache[0].state == ()


@pytest.mark.parametrize(("trimmed_by", "verdict"), [(0, "rounding"), (1, "not lossless")])
def test_a_cache_that_keeps_a_rejected_draft_is_found(pair, trimmed_by, verdict):
    """Two steps of one draft, matched with a sample of the target, as mlx-lm has it."""

    def step(draft_model, target_model, rng):
        models = [audit.as_mlx(one) for one in (draft_model, target_model)]
        caches, text = [model.make_cache() for model in models], []

        def sample(logits):
            return int(rng.choice(2, p=softmax(logits)))

        last = [0]
        for _ in range(2):
            x = sample(models[0](np.asarray([last]), cache=caches[0])[0, -1])
            models[0](np.asarray([[x]]), cache=caches[0])
            rows = models[1](np.asarray([[*last, x]]), cache=caches[1])[0, -2:]
            text.append(sample(rows[0]))
            if text[-1] == x:
                text.append(sample(rows[1]))
            else:
                for cache in caches:
                    cache[0].trim(1 - trimmed_by)
            last = text[-1:]
        return text

    found = audit.step(step, draft=pair[0], target=pair[1], length=4, rng=0)
    assert found.verdict == verdict, str(found)
