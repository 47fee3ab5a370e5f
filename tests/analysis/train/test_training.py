"""Training: a killed run continues on the trajectory of an uninterrupted one, bit for bit."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import load_file

from analysis.errors import AnalysisError
from analysis.train import corpus, pair_training, training
from tests.paths import ROOT

TINY = training.Size(width=16, layers=1, heads=2, feed_forward=32, steps=12, learning_rate=1e-2)
RECIPE = training.Recipe(vocabulary=300, context=16, batch=2, draft=TINY, target=TINY)


@pytest.fixture(scope="module")
def tokens(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    return training.prepare_tokens(corpus.from_text_files([text]), RECIPE, folder)


def test_killed_process_resumes(tokens, text, tmp_path):
    """SIGKILL in the middle: the checkpoint is whole, the next run finishes, and the result is the
    uninterrupted one.

    The processes are forks of one that has imported everything and computed nothing.
    """
    program = f"""
        import os, signal, sys
        from pathlib import Path
        from analysis.train import corpus, pair_training, resumable
        from analysis.train.training import Recipe, Size
        write = resumable.write_checkpoint
        def killed(folder, *arguments, step, **options):
            write(folder, *arguments, step=step, **options)
            if step == 6 and folder.name == "target" and mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        resumable.SAVE_EVERY, resumable.write_checkpoint = 0.0, killed
        recipe = {RECIPE}
        for folder, mode in (("cut", "kill"), ("cut", "go on"), ("whole", "go on")):
            child = os.fork()
            if child == 0:
                here, status = Path({str(tmp_path)!r}) / folder, 1
                try:
                    pair_training.train_pair(
                        corpus.from_text_files([Path({str(text)!r})]), recipe,
                        out=here / "out", work=here / "work", device="cpu", threads=1)
                    status = 0
                finally:
                    os._exit(status)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.split() == [str(-signal.SIGKILL), "0", "0"], done.stderr
    for name in ("draft", "target"):
        left, right = (
            load_file(tmp_path / f / "out" / name / "model.safetensors") for f in ("cut", "whole")
        )
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)
    record = json.loads((tmp_path / "cut" / "out" / "training.json").read_text())
    assert record["recipe"]["batch"] == 2
    assert record["held_out"]["draft"]["bits_per_byte"] > 0


def test_training_lowers_the_loss(tokens, tmp_path):
    tokenizer, train, held_out, num_bytes = tokens
    size = training.Size(width=32, layers=1, heads=2, feed_forward=64, steps=60, learning_rate=2e-2)
    recipe = training.Recipe(vocabulary=300, context=16, batch=8, draft=size, target=size)
    before = training.evaluate(
        training.build_model(size, recipe, len(tokenizer), 0).eval(), held_out[:400], num_bytes, 16
    )
    model = training.train_model(size, recipe, train, len(tokenizer), folder=tmp_path)
    after = training.evaluate(model, held_out[:400], num_bytes, 16)
    assert after.nats_per_token < 0.6 * before.nats_per_token


def test_batches_depend_on_seed_and_step_only(tokens):
    _, train, _, _ = tokens
    assert torch.equal(training.batch(train, RECIPE, 1, 3), training.batch(train, RECIPE, 1, 3))
    assert not torch.equal(training.batch(train, RECIPE, 1, 3), training.batch(train, RECIPE, 1, 4))


def test_docstrings_are_gathered_once_each_and_split_by_file(tmp_path):
    long = "Return a value that is long enough to be worth keeping."
    (tmp_path / "a.py").write_text(
        f'"""{long}"""\ndef f():\n    """{long}"""\nclass A:\n    """Another {long}"""\n'
    )
    seen = set()
    texts = [t for t in corpus._docstrings(tmp_path / "a.py") if corpus._is_new(t, seen)]
    assert texts == [long, f"Another {long}"]
    (tmp_path / "bad.py").write_text("def (")
    assert list(corpus._docstrings(tmp_path / "bad.py")) == []
    shares = [corpus.held_out(f"file{i}.py") for i in range(20_000)]
    # Binomial(20000, 0.02) leaves [280, 520] with probability below 1e-9.
    assert 280 < sum(shares) < 520


def test_closure_holds_what_pinned_packages_pull_in():
    names = corpus.requirement_closure(corpus.pinned_names(ROOT / "constraints.txt"))
    assert {"numpy", "torch", "sympy", "contourpy"} <= set(names)
    assert names == sorted(names)


def test_a_checkpoint_of_another_recipe_or_text_or_with_another_weight_is_refused(tokens, tmp_path):
    tokenizer, train, _, _ = tokens

    def trained(size=TINY, on=train):
        training.train_model(size, RECIPE, on, len(tokenizer), folder=tmp_path)

    trained()
    path = tmp_path / "checkpoint.safetensors"
    data = path.read_bytes()
    longer = dataclasses.replace(TINY, steps=13)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    for size, on, written, message in (
        (longer, train, data, "same recipe and text"),
        (TINY, train[1:], data, "same recipe and text"),
        (TINY, train, flipped, "another digest"),
        (TINY, train, data[:-1], r"checkpoint\.safetensors must be a checkpoint"),
    ):
        path.write_bytes(written)
        with pytest.raises(AnalysisError, match=message):
            trained(size, on)


def test_what_was_prepared_and_is_damaged_is_prepared_again(text, tmp_path):
    source = corpus.from_text_files([text])
    tokenizer, train, held_out, _ = training.prepare_tokens(source, RECIPE, tmp_path)
    (cache,) = tmp_path.glob("tokens-*.npz")
    whole = cache.read_bytes()
    before, after = (word.encode("utf-32-le") for word in ("return", "nruter"))
    assert before in whole
    for damaged in (whole, whole.replace(before, after), whole[:-30]):
        cache.write_bytes(damaged)
        again = training.prepare_tokens(source, RECIPE, tmp_path)
        assert again[0].get_vocab() == tokenizer.get_vocab()
        assert again[0].special_tokens_map == tokenizer.special_tokens_map
        assert (again[1] == train).all() and (again[2] == held_out).all()


@pytest.mark.parametrize(
    "change",
    [
        '"momentum": 1',
        '"vocabulary": "300"',
        '"vocabulary": 1e3',
        '"vocabulary": 70000',
        '"batch": 0',
        '"batch": 2, "batch": 3',
        '"seed": -1',
        '"precision": "int8"',
        '"context": true',
        '"draft": {"learning_rate": NaN}',
        '"draft": {"width": 15}',
        '"draft": {"steps": null}',
    ],
)
def test_a_recipe_with_values_that_no_training_has_is_refused(tmp_path, change):
    path = tmp_path / "recipe.json"
    path.write_text("{" + change + "}")
    with pytest.raises(AnalysisError, match=r"A recipe is .*recipe\.json is not: "):
        pair_training.recipe_from_json(path)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (corpus.from_text_files, b"caf\xe9", "UTF-8"),
        (corpus.from_text_files, b"one block", "at least two blocks"),
        (corpus.pinned_names, b"numpy ~~ 2\n", r"some\.txt is not"),
        (corpus.pinned_names, b"\xff", r"some\.txt is not"),
        (corpus.from_text_files, None, "UTF-8"),
    ],
)
def test_short_or_unreadable_files_are_refused(tmp_path, read, content, message):
    path = tmp_path / ("none.txt" if content is None else "some.txt")
    (tmp_path / "some.txt").write_bytes(content or b"")
    with pytest.raises(AnalysisError, match=message):
        read([path] if read == corpus.from_text_files else path)
