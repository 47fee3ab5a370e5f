"""Same text or not on real numerics: greedy decoding with and without drafts on the shipped pair,
right and with planted faults, and the target along the text.
"""

import dataclasses
import json

import pytest
import torch

from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.forced import forced_text
from otm import audit
from otm.audit.text_log import LoggedText, read_texts

LENGTH, FAULTY, PROMPTS = 56, 20, 2


@torch.inference_mode()
def decode(pair, prompt, *, drafts=0, fault=""):
    """Decode greedily; drafts are what followed the last token where it stood before. From token
    `FAULTY` on there may be a fault.
    """
    cache = None
    context, block, start = list(prompt), list(prompt), 0
    tokens = []
    top = []
    while len(tokens) < LENGTH:
        spoiled = len(tokens) > FAULTY
        at = torch.arange(start, start + len(block))[None]
        found = pair.target(
            torch.tensor([block]),
            past_key_values=cache,
            position_ids=at + int(spoiled and fault == "position"),
            use_cache=True,
        )
        cache, guessed = found.past_key_values, block[1:] if start else []
        rows = found.logits[0, -1 - len(guessed) :]
        best = rows.argmax(dim=-1).tolist()
        kept = next((i for i, x in enumerate(guessed) if x != best[i]), len(guessed))
        values, names = torch.log_softmax(rows.double(), dim=-1).topk(5)
        # the context has a bonus token that the text misses
        told = kept + 1 - int(spoiled and fault == "bonus" and 0 < kept == len(guessed))
        lists = zip(names.tolist()[:told], values.tolist()[:told], strict=True)
        top += [dict(zip(*one, strict=True)) for one in lists]
        tokens += best[:told]
        context += best[: kept + 1]
        rejected = len(guessed) - kept
        if rejected:
            if spoiled and fault == "stale":  # a rejected row in place of the last accepted one
                for layer in cache.layers:
                    layer.keys[:, :, -rejected - 1] = layer.keys[:, :, -rejected]
                    layer.values[:, :, -rejected - 1] = layer.values[:, :, -rejected]
            cache.crop(-rejected)
        start = len(context) - 1
        block = [context[-1], *seen_before(context, drafts)]
    return LoggedText(tuple(tokens[:LENGTH]), tuple(top[:LENGTH]), prompt, "length")


def seen_before(written, most):
    """Return what followed the last token where it stood before."""
    places = [i for i in range(len(written) - 1) if written[i] == written[-1]]
    return written[places[-1] + 1 : places[-1] + 1 + most] if places and most else []


@pytest.fixture(scope="module")
def prompts(pair):
    held_out = (SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8").split("\n\n")
    rows = (pair.encode(text)[:16] for text in held_out if len(text) > 200)
    return [next(rows) for _ in range(PROMPTS)]


@pytest.fixture(scope="module")
def plain(pair, prompts):
    return [decode(pair, prompt) for prompt in prompts]


@pytest.mark.parametrize("fault", ["", "position", "stale", "bonus"])
def test_planted_faults_are_found_and_other_shapes_are_rounding(fault, pair, prompts, plain):
    drafted = [decode(pair, prompt, drafts=4, fault=fault) for prompt in prompts]
    found = audit.same_text(plain, drafted)
    assert found.limit is not None and found.limit < 1e-3  # float32
    assert (found.verdict == "fault") == bool(fault) == bool(found.faults)
    assert all(one.token > FAULTY for one in found.faults)


def test_the_target_along_a_text_is_a_forced_run(pair, plain, tmp_path, command):
    """A token that the target does not prefer is found behind other differences, from the files."""
    changed = list(plain[0].tokens)
    for place in (30, 50):
        changed[place] = (changed[place] + 1) % pair.num_tokens
    text = dataclasses.replace(plain[0], tokens=tuple(changed))
    line = {"tokens": changed, "prompt": list(text.prompt), "top": [[] for _ in changed]}
    (tmp_path / "run.jsonl").write_text(json.dumps(line), encoding="utf-8")
    forced = tmp_path / "forced.jsonl"
    ended = command("score", "--texts", tmp_path / "run.jsonl", "--out", forced, "--device", "cpu")
    assert ended.code == 0, ended.err
    found = audit.same_text(forced, tmp_path / "run.jsonl", tolerance=0.001)
    assert found.verdict == "fault" and {30, 50} <= {one.token for one in found.faults}
    (scored,) = read_texts(forced)
    assert scored.forced and scored.top[:30] == forced_text(pair, text).top[:30]
    with pytest.raises(AnalysisError, match="prompt_token_ids"):
        forced_text(pair, dataclasses.replace(text, prompt=None))
