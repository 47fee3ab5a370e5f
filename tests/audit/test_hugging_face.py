"""Code written for transformers' models, with their caches, is audited exactly."""

import dataclasses
import functools
import types

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.generations import ToyLanguage
from otm.audit.tracing.answers import CandidateFailure

torch = pytest.importorskip("torch")
PROMPT = torch.tensor([[0]])


@pytest.fixture(scope="module")
def pair():
    """Laws that depend on every token and its place."""
    rng = np.random.default_rng(5)
    return [ToyLanguage(rng.dirichlet([1.0, 1.0], size=5)) for _ in range(2)]


def speculative(draft, target, *, temperature=1.0, crop_by=0, shift=0):
    """Write two iterations of a draft each, as public loops do: a cache for each model."""

    def law(output):
        return torch.softmax(output.logits[0, -1] / temperature, -1)

    text, after_draft, after_target = [], draft(PROMPT), target(PROMPT)
    caches = [after_draft.past_key_values, after_target.past_key_values]
    for _ in range(2):
        p, q = law(after_draft), law(after_target)
        x, kept = torch.multinomial(p, 1), caches[1].get_seq_length()
        places = torch.arange(kept, kept + 1)[None] + shift
        checked = target(x[None], past_key_values=caches[1], position_ids=places)
        draft(x[None], past_key_values=caches[0])
        if torch.rand(()) * p[x] < q[x]:
            text.append(int(x))
            kept, rest = kept + 1, law(checked)
        else:
            rest = (q - p).clamp(min=0)
        text.append(int(torch.multinomial(rest, 1)))
        if crop_by is not None:
            for cache in caches:
                cache.crop(kept + crop_by)
        given = torch.tensor([text[-1:]])
        after_draft = draft(given, past_key_values=caches[0])
        after_target = target(given, past_key_values=caches[1])
    return text


@pytest.mark.parametrize(
    ("faults", "verdict"),
    [
        ({}, "lossless"),
        ({"temperature": 0.5}, "lossless"),
        ({"crop_by": -1}, "not lossless"),
        ({"crop_by": 1}, "not lossless"),
        ({"crop_by": None}, "not lossless"),
        ({"shift": 1}, "not lossless"),
    ],
    ids=["right", "at 1/2", "one too few", "one too many", "no crop", "shifted places"],
)
def test_the_cache_is_part_of_what_is_audited(pair, faults, verdict):
    heat = faults.get("temperature", 1.0)

    def step(draft_model, target_model, rng):
        models = (audit.as_hf(one, temperature=heat) for one in (draft_model, target_model))
        return speculative(*models, **faults)

    draft, target = pair
    found = audit.step(step, draft=draft, target=target, length=4, rng=0)
    assert found.verdict == verdict and found.method == "branched"


def test_logits_are_those_of_the_law_with_padding_masked(pair):
    model, wanted = audit.as_hf(pair[0], temperature=2.0), pair[0].next([1, 0])
    plain = model(torch.tensor([[0, 1, 0]])).logits[0, -1]
    padded = torch.tensor([[1, 1, 1, 0, 1, 0], [0, 1, 0, 0, 1, 0]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    several = model(padded, attention_mask=mask).logits[:, -1]
    for logits in (plain, *several):
        np.testing.assert_allclose(torch.softmax(logits / 2.0, -1), wanted, rtol=1e-14)
    unmasked = torch.softmax(model(padded).logits[0, -1] / 2.0, -1).numpy()
    assert abs(unmasked - wanted).max() > 0.01


def test_a_cache_grows_and_may_be_pairs_of_keys_and_values(pair):
    model, ids = audit.as_hf(pair[0]), torch.tensor([[0, 1, 0, 1]])
    whole = model(ids).logits
    first = model(ids[:, :2])
    cache = first.past_key_values
    rest = model(ids[:, 2:], past_key_values=cache)
    assert rest.past_key_values is cache and cache.get_seq_length() == 4
    assert torch.equal(torch.cat([first.logits, rest.logits], 1), whole)
    cache.crop(0)  # nothing, as in transformers 5.23.0
    assert cache.get_seq_length() == 4
    cache.crop(-2)
    pairs = tuple((keys[:, :, :2], values[:, :, :2]) for keys, values in cache)
    again = model(ids[:, 2:], past_key_values=pairs)
    assert torch.equal(again.logits, rest.logits) and len(again.past_key_values) == 1
    assert again.past_key_values[0][0].shape == (1, 1, 4, 2)


def test_rows_of_a_batch_are_kept_or_put_in_another_order(pair):
    model, ids, new = audit.as_hf(pair[0]), torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1]])
    whole = [model(torch.cat([row[None], new], 1)).logits[0, -1] for row in ids]
    cache = model(ids).past_key_values
    cache.reorder_cache(torch.tensor([1, 0]))
    both = model(new.expand(2, 1), past_key_values=cache).logits[:, -1]
    assert torch.equal(both[0], whole[1]) and torch.equal(both[1], whole[0])
    cache.crop(2)
    cache.batch_select_indices(torch.tensor([1]))
    assert torch.equal(model(new, past_key_values=cache).logits[0, -1], whole[0])


def test_what_is_no_model_is_told(pair):
    with pytest.raises(otm.errors.InvalidParameter, match="must have num_tokens, next"):
        audit.as_hf(np.ones(2))
    with pytest.raises(otm.errors.InvalidParameter, match="temperature"):
        audit.as_hf(pair[0], temperature=0.0)
    with pytest.raises(otm.errors.InvalidParameter, match=r"attention_mask must be \(1, 2\)"):
        audit.as_hf(pair[0])(torch.tensor([[0, 1]]), attention_mask=torch.ones(1, 3))


class TestFirstIteration:
    """Of a loop, which drafts one token at a time; its models are asked at a temperature."""

    @staticmethod
    def loop(draft, target, rng, temperature, **options):
        """Call the loop, whose draft model catches up before the draft is judged."""
        models = audit.as_hf(draft), audit.as_hf(target)
        return speculative(*models, temperature=temperature, **options)

    @staticmethod
    def catching_up_late(draft, target, rng, temperature, stale=False):
        """Write two iterations, the draft model being asked when drafting only."""

        def law(model, context):
            with np.errstate(divide="ignore"):
                return otm.from_logits(np.log(model.next(context)), temperature=temperature)

        text = []
        for iteration in range(2):
            p, q = law(draft, text), law(target, text[: len(text) - stale * iteration])
            x = int(rng.choice(len(p), p=p))
            after = law(target, [*text, x])
            accepted = bool(rng.random() * p[x] < q[x])
            rest = after if accepted else np.maximum(q - p, 0.0)
            text += [x] * accepted + [int(rng.choice(len(p), p=rest / rest.sum()))]
        return text

    @pytest.mark.parametrize("name", ["loop", "catching_up_late"])
    def test_it_is_lossless_at_every_temperature(self, name, pair):
        candidate = audit.classify(getattr(self, name))
        assert candidate.temperatures == (1.0, 0.5, 0.0)
        candidate = dataclasses.replace(candidate, first_iteration=True, temperatures=(1.0, 0.5))
        for temperature in candidate.temperatures:
            found = audit.step(
                candidate,
                draft=pair[0],
                target=pair[1],
                length=2,
                rng=np.random.default_rng(0),
                temperature=temperature,
            )
            assert found.verdict == "lossless", str(found)
            assert found.coverage.temperatures == (temperature,)
            assert "what it writes after the first iteration" in found.coverage.untested
            assert "processing of logits" not in found.coverage.untested

    def test_a_temperature_that_is_not_applied_is_found_where_it_is_asked_for(self, pair):
        def warm(draft, target, rng, temperature):
            return self.catching_up_late(draft, target, rng, 1.0)

        candidate = audit.StepCandidate(warm, temperatures=(1.0, 0.5), first_iteration=True)
        found = audit.battery(candidate, seconds=30.0)
        assert found.verdict == "not lossless"
        assert found.failed
        assert all("temperature 0.5" in name for name in found.failed)

    def test_what_fails_later_is_no_part_of_it(self, pair):
        """The second draft is held against a law of the text before."""
        stale = functools.partial(self.catching_up_late, stale=True)
        candidate = audit.StepCandidate(stale, "stale", first_iteration=True)
        options = {"draft": pair[0], "target": pair[1], "temperature": 1.0}
        rng = np.random.default_rng(0)
        assert audit.step(candidate, **options, length=2, rng=rng).verdict == "lossless"
        whole = dataclasses.replace(candidate, first_iteration=False)
        assert audit.step(whole, **options, length=4, rng=rng).verdict == "not lossless"

    @pytest.mark.parametrize(
        "written",
        [
            lambda text: [0] * len(text),
            lambda text: text[1:],
            lambda text: [text[0], 1 - text[1], *text[2:]],
        ],
        ids=["overwritten", "lacks the first", "second turned"],
    )
    def test_a_text_that_is_not_what_was_drafted_on_is_no_first_iteration(self, pair, written):
        def step(draft, target, rng):
            return written(self.catching_up_late(draft, target, rng, 1.0))

        candidate = audit.StepCandidate(step, first_iteration=True)
        options = {"draft": pair[0], "target": pair[1], "length": 2, "rng": 0}
        with pytest.raises(CandidateFailure, match="without first_iteration"):
            audit.step(candidate, **options)

    def test_a_draft_model_that_sees_a_window_is_no_first_iteration(self, pair):
        def step(draft, target, rng):
            near = types.SimpleNamespace(next=lambda text: draft.next(text[-1:]))
            return self.catching_up_late(near, target, rng, 1.0)

        candidate = audit.StepCandidate(step, first_iteration=True)
        with pytest.raises(CandidateFailure, match="without first_iteration"):
            audit.step(candidate, draft=pair[0], target=pair[1], length=2, rng=0)

    def test_a_draft_model_asked_while_drafts_are_judged_is_no_first_iteration(self, pair):
        def lazy(draft, target, rng):
            text = [int(rng.choice(2, p=draft.next([])))]
            text.append(int(rng.choice(2, p=draft.next(text))))
            q, _, after = (target.next(text[:n]) for n in range(3))
            p = draft.next([])
            if rng.random() * p[text[0]] >= q[text[0]]:
                rest = np.maximum(q - p, 0.0)
                return [int(rng.choice(2, p=rest / rest.sum()))]
            draft.next(text[:1])  # and accepts the second draft, whatever it is
            return [*text, int(rng.choice(2, p=after))]

        candidate = audit.StepCandidate(lazy, first_iteration=True)
        with pytest.raises(CandidateFailure, match="without first_iteration"):
            audit.step(candidate, draft=pair[0], target=pair[1], length=3, rng=0)

    def test_trial_calls_are_at_the_temperature_of_the_step(self, pair):
        options = {"draft": pair[0], "target": pair[1], "length": 2, "temperature": 0.5}
        one = audit.StepCandidate(self.loop, first_iteration=True)
        assert audit.step(one, **options, rng=0).verdict == "lossless"

    def test_a_temperature_is_checked(self):
        with pytest.raises(otm.errors.InvalidParameter, match="temperature"):
            audit.StepCandidate(self.loop, temperatures=(-1.0,))
