"""Models made of others: penalties and a grammar change logits as engines do, a draft on another
vocabulary answers for the tokens that both know; what it costs that drafts know of neither.
"""

import json

import numpy as np
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.models.causal import pair_models
from analysis.models.from_logits import Limited
from analysis.models.pair import load_pair
from analysis.models.processing import AS_THEY_ARE, Setting
from analysis.models.translated import SharedTokens, shared_tokens
from analysis.rules.answer import place_of, read_rules
from analysis.rules.rules import Reader, Sizes
from analysis.rules.screen import rules_screen
from otm import Processing
from otm.sequence import MarkovModel
from tests.analysis.toys import Toy, toy_reader

PROMPT = (0, 3)
LIMITS = {"repetition": 1.5, "presence": 0.25, "frequency": 0.5}


def odd(written):
    """Allow odd tokens after an even number of tokens, and all after others."""
    return list(range(1, 5, 2)) if len(written) % 2 == 0 else list(range(5))


def by_hand(logits, context):
    """Return the changed logits, token by token."""
    found, written = logits.copy(), list(context[len(PROMPT) :])
    for token in range(len(found)):
        if token in context:
            found[token] *= 1.0 / 1.5 if found[token] > 0 else 1.5
        found[token] -= 0.25 * (token in written) + 0.5 * written.count(token)
        if token not in odd(tuple(written)):
            found[token] = -np.inf
    return found


def test_logits_change_by_hand():
    """Prompt tokens are penalised by repetition alone; what may follow depends on the text."""
    model = Toy(MarkovModel(np.random.default_rng(0).dirichlet(np.ones(5), size=5)), Processing())
    contexts = [PROMPT, (*PROMPT, 1), (*PROMPT, 1, 1, 2)]
    limited = Limited(model, len(PROMPT), **LIMITS, allowed=odd)
    before = model.logits(contexts).numpy()
    hand = np.array([by_hand(*one) for one in zip(before, contexts, strict=True)])
    np.testing.assert_allclose(limited.logits(contexts).numpy(), hand, rtol=1e-15)
    processing = Processing(temperature=0.7)
    again = limited.processed(processing).next_batch([contexts[2], contexts[0], contexts[2]])
    np.testing.assert_allclose(again, np.asarray(processing(hand))[[2, 0, 2]], atol=1e-15)
    free = Limited(model, len(PROMPT)).next_batch(contexts)
    np.testing.assert_allclose(free, model.next_batch(contexts), atol=1e-15)


def test_what_drafts_lose_that_know_no_limits():
    """First drafts against the library's acceptance on rows made by hand, both ways, paired."""
    sizes = Sizes(length=2, nodes=2, sequences=2, num_tokens=12, texts=4)
    setting = Setting(Processing(temperature=0.8), Processing(temperature=0.8))
    toys = toy_reader(sizes, setting=setting, num_tokens=5)
    limits = {**LIMITS, "allowed": odd}
    readers = [
        Reader(
            toys.draft,
            toys.target,
            setting=setting,
            sizes=sizes,
            eos=None,
            limits=limits,
            aware=aware,
        )
        for aware in (False, True)
    ]
    with np.errstate(divide="ignore"):
        read = read_rules(readers[0], [list(PROMPT)], beside=readers[1])
    text = read.passages[0].text
    contexts = [text.context(place) for place in range(sizes.num_tokens)]
    own, verified = (one.logits(contexts).numpy() for one in (toys.draft, toys.target))
    known, hand = (
        np.array([by_hand(*one) for one in zip(rows, contexts, strict=True)])
        for rows in (own, verified)
    )
    p, z, q = (np.asarray(setting.target(rows)) for rows in (own, known, hand))
    np.testing.assert_allclose(text.target[: len(q)], q, atol=1e-12)
    rule = place_of(read.rules, "rejection")
    for draft, walks in ((p, read.walks[0]), (z, readers[1].read(text, 0, 1, len(PROMPT))[1])):
        problem = otm.Problem(draft=draft, target=q, law=otm.IID(1))
        exact = np.asarray(otm.acceptance(otm.Maximal(), problem))
        np.testing.assert_allclose(walks[rule].gained[0], exact, atol=1e-12)
    gain = read.gain_beside(rule)
    assert gain is not None and gain.value > 0.1
    said = " ".join(rules_screen(read, None).split())
    assert "penalties repetition 1.5, presence 0.25, frequency 0.5, and a grammar; drafts" in said
    assert "drafts under the same limits yield more" in said


def test_another_target_writes_its_own_texts():
    """By the same random numbers: the same target again gains nothing, a colder one something."""
    sizes = Sizes(length=2, nodes=2, sequences=2, num_tokens=12, texts=4)
    first, same, other = (toy_reader(sizes, num_tokens=6) for _ in range(3))
    other.target = first.draft  # what drafts know for certain
    found = [read_rules(first, [[0], [1]], beside=one) for one in (same, other)]
    gains = [one.gain_beside(place_of(one.rules, "rejection")) for one in found]
    assert gains[0] is not None and gains[0].value == pytest.approx(0.0, abs=1e-12)
    assert gains[1] is not None and gains[1].value > 0.3
    assert "the other target yields more" in " ".join(rules_screen(found[1], None).split())


class Words:
    """A tokenizer of a list of texts, the longest that fits first; the last where none does."""

    bos_token = None

    def __init__(self, *words, end=None):
        self.words, self.eos_token_id = words, end

    def get_vocab(self):
        return {word: number for number, word in enumerate(self.words)}

    def decode(self, tokens, **options):
        return "".join(self.words[token] for token in tokens).replace("▁", " ").replace("Ġ", " ")

    def __call__(self, text):
        found = []
        spelled = [word.replace("▁", " ").replace("Ġ", " ") for word in self.words]
        while text:
            fits = [word for word in spelled if text.startswith(word)] or [text[0]]
            best = max(fits, key=len)
            found.append(spelled.index(best) if best in spelled else len(spelled) - 1)
            text = text[len(best) :]
        return {"input_ids": found}


TARGET = Words("a", "b", "ab", "▁c", "d", "</s>", end=5)
OWN = Words("Ġc", "b", "a", "<end>", "cc", end=3)


def test_shared_tokens_are_spelled_alike_and_texts_end_alike():
    found = shared_tokens(OWN, TARGET, limits=(5, 6))
    assert found.T.tolist() == [[0, 3], [1, 1], [2, 0], [3, 5]]
    # a token that a model does not score is not shared
    assert shared_tokens(OWN, TARGET, limits=(2, 6)).T.tolist() == [[0, 3], [1, 1]]


def test_the_law_is_the_draft_s_own_on_shared_tokens():
    """After "ab", one token of the target, the draft stands behind its own "b"."""
    rows = np.random.default_rng(0).dirichlet(np.ones(5), size=5)
    draft = SharedTokens(Toy(MarkovModel(rows), Processing()), OWN, TARGET, 6)
    after_b, after_c = rows[1], rows[0]
    found = draft.next_batch([(0, 2), (1, 3), (0, 1)])
    for law, own in zip(found, (after_b, after_c, after_b), strict=True):
        kept = np.array([own[2], own[1], 0.0, own[0], 0.0, own[3]])
        np.testing.assert_allclose(law, kept / kept.sum(), atol=1e-14)
    np.testing.assert_array_equal(draft.next((0, 2)), found[0])
    cold = draft.processed(Processing(temperature=0.0)).next((0, 2))
    assert cold.max() == 1.0 and cold.argmax() == found[0].argmax()


def test_rules_are_walked_with_two_vocabularies():
    """The first draft's acceptance is the library's, and at most what the shared tokens hold."""
    sizes = Sizes(length=2, nodes=2, sequences=2, num_tokens=12, texts=3)
    rng = np.random.default_rng(1)
    own = Toy(MarkovModel(rng.dirichlet(np.ones(5), size=5)), Processing())
    draft = SharedTokens(own, OWN, TARGET, 6)
    target = toy_reader(sizes, num_tokens=6).target
    reader = Reader(draft, target, setting=AS_THEY_ARE, sizes=sizes, eos=None)
    with np.errstate(divide="ignore", invalid="ignore"):
        read = read_rules(reader, [[0], [1]])
    text = read.passages[0].text
    problem = otm.Problem(draft=text.draft, target=text.target, law=otm.IID(1))
    exact = np.asarray(otm.acceptance(otm.Maximal(), problem))[: sizes.num_tokens]
    found = read.walks[0][place_of(read.rules, "rejection")].gained[0]
    np.testing.assert_allclose(found, exact, atol=1e-12)
    lost = text.target[:, [2, 4]].sum(axis=1)
    assert (found <= 1.0 - lost[: sizes.num_tokens] + 1e-12).all()
    whole = np.concatenate([one.text.target[:, [2, 4]].sum(axis=1) for one in read.passages])
    assert read.vocabulary_loss == pytest.approx(whole.mean())
    # of texts: what the draft writes after each place, in the target's tokens, by hand
    match = read.walks[0][place_of(read.rules, "string-match")]
    drafted = draft.continued([text.context(place) for place in range(12)], 2)
    for place, tokens in enumerate(drafted):
        held = [*tokens, -1, -1][:2]
        first = 0.0 if held[0] < 0 else text.target[place, held[0]]
        assert match.gained[0, place] == first
        assert match.reached[2, place] == (held == text.tokens[place : place + 2].tolist())


def test_a_draft_in_its_own_tokens_is_read_as_text():
    """The draft writes " c", "a", "b" in turns; "ab" is one token of the target, and an "a" before
    a "b" would read otherwise.
    """
    after = np.eye(5)[[2, 0, 1, 3, 3]]
    with np.errstate(divide="ignore"):
        draft = SharedTokens(Toy(MarkovModel(after), Processing()), OWN, TARGET, 6)
        assert draft.continued([(0, 2), (1,), (0,)], 3) == [[3, 2], [3, 2], []]
        ended = MarkovModel(np.eye(5)[[3, 0, 1, 3, 3]])
        assert SharedTokens(Toy(ended, Processing()), OWN, TARGET, 6).continued([(1,)], 3) == [[3]]


def test_a_pair_of_two_tokenizers(copied_draft):
    """Of the shipped draft two tokens change their numbers: its law on the target's does not."""
    kept, draft = copied_draft / "tokenizer.json", str(copied_draft)
    settings = json.loads(kept.read_text(encoding="utf-8"))
    vocabulary, usual = settings["model"]["vocab"], load_pair(device="cpu")
    numbers = [vocabulary["Ġthe"], vocabulary["Ġof"]]
    vocabulary["Ġof"], vocabulary["Ġthe"] = numbers
    kept.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(AnalysisError, match=r"must share one tokenizer.*\b2 differ"):
        load_pair(draft=draft, device="cpu")
    pair = load_pair(draft=draft, device="cpu", two_tokenizers=True)
    context = usual.encode("return a list")
    found, plain = (pair_models(two)[0].next(context) for two in (pair, usual))
    plain[numbers] = plain[numbers[::-1]]
    np.testing.assert_allclose(found, plain, atol=1e-12)
