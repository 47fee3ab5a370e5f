"""A text corpus that every checkout has offline: docstrings of installed Python packages.

A docstring corpus needs no download, its licences are those of the packages that the project
depends on anyway, and it is large enough (some ten million tokens) to train two small models that
disagree in the way real draft and target models do.
"""

from __future__ import annotations

import ast
import hashlib
import io
import platform
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from otm._display.tabular import markdown
from otm._machine.progress import with_progress

from ..errors import AnalysisError
from ..files import read_small, shortened

HELD_OUT_PERCENT = 2
_SHORTEST_DOCSTRING = 40
_LARGEST_TEXT = 1 << 33
_BUILD_TOOLS = ("hatchling",)
"""Pinned for building the wheel only; their docstrings are not part of the corpus."""


@dataclass(frozen=True)
class Document:
    """A text with the package of origin, the side of the split, and the kind."""

    source: str
    text: str
    held_out: bool
    kind: str = "text"


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order, with versions and licences of the sources."""

    documents: tuple[Document, ...]
    provenance: dict[str, object]

    def texts(self, *, held_out: bool, kind: str = "text") -> list[str]:
        """Return the texts of one side of the split and of one kind, in order."""
        wanted = (kind, held_out)
        return [own.text for own in self.documents if (own.kind, own.held_out) == wanted]

    @property
    def digest(self) -> str:
        """SHA-256 over the texts in order, to tell whether two corpora are the same."""
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(document.text.encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()


def requirement_closure(names: Iterable[str]) -> list[str]:
    """Return the installed packages among `names` and all requirements of these, sorted."""
    found: set[str] = set()
    queue = [canonicalize_name(name) for name in names]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        for line in requirements:
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                queue.append(canonicalize_name(requirement.name))
    return sorted(found)


def pinned_names(constraints: Path) -> list[str]:
    """Return the distribution names pinned in a pip constraints file."""
    try:
        text = read_small(constraints, _LARGEST_TEXT).decode("utf-8")
        lines = (line.split("#")[0].strip() for line in text.splitlines())
        return [Requirement(line).name for line in lines if line]
    except (OSError, ValueError) as error:  # an invalid requirement is a ValueError
        raise AnalysisError(
            f"Constraints are a pip file with a pinned package a line; {shortened(constraints)} is "
            f"not: {error!s:.300}. Correct it."
        ) from error


def from_installed_packages(constraints: Path) -> Corpus:
    """Gather the docstrings of the standard library and of the closure of the pinned packages.

    Exact duplicates are kept once. A file lies wholly on one side of the split, chosen by the hash
    of its name, so that no held-out text shares a file with a training text; near-copies between
    files of one package do remain (the model card says so).
    """
    names = requirement_closure(
        name for name in pinned_names(constraints) if name not in _BUILD_TOOLS
    )
    files = [("python", path) for path in _standard_library_files()]
    for name in names:
        files += [(name, path) for path in _distribution_files(name)]
    seen: set[bytes] = set()
    documents: list[Document] = []
    characters: Counter[str] = Counter()
    for source, path in with_progress(files, "files with docstrings"):
        texts = [text for text in _docstrings(path) if _is_new(text, seen)]
        if texts:
            label = f"{source}:{path.name}:{len(documents)}"
            side = held_out(f"{source}/{path.parent.name}/{path.name}")
            documents.append(Document(source=label, text="\n\n".join(texts), held_out=side))
            characters[source] += len(documents[-1].text)
    provenance: dict[str, object] = {
        "kind": "docstrings of installed packages",
        "python": sys.version.split()[0],
        "platform": platform.machine(),
        "packages": {name: metadata.version(name) for name in names},
        "licences": {name: _licence(name) for name in names} | {"python": "PSF-2.0"},
        "characters": dict(characters.most_common()),
    }
    return Corpus(documents=tuple(documents), provenance=provenance)


def from_text_files(paths: Sequence[Path]) -> Corpus:
    """Read UTF-8 text files, cut at blank lines into documents that a hash deals to both sides."""
    documents = []
    for path in paths:
        try:
            data = read_small(path, _LARGEST_TEXT)
            text = io.TextIOWrapper(
                io.BytesIO(data), encoding="utf-8-sig"
            ).read()  # with the line ends of any system
        except (OSError, ValueError) as error:
            raise AnalysisError(
                f"A training text must be a readable UTF-8 file; {shortened(path)} is not "
                f"({error!s:.300}). Convert it, or name "
                "another file."
            ) from error
        for number, block in enumerate(_blocks(text)):
            documents.append(
                Document(source=f"{path.name}:{number}", text=block, held_out=held_out(block))
            )
    if not any(d.held_out for d in documents) or all(d.held_out for d in documents):
        # A text too short for the 2 % split still trains: every 20th block is held out instead.
        documents = [
            Document(source=d.source, text=d.text, held_out=number % 20 == 0)
            for number, d in enumerate(documents)
        ]
    names = [path.name for path in paths]
    if len(documents) < 2:
        raise AnalysisError(
            "A training text must have at least two blocks separated by blank lines, one to train "
            "on and one to hold out; "
            f"{', '.join(names) or 'no file'} gave {len(documents)}. Give more text."
        )
    return Corpus(documents=tuple(documents), provenance={"kind": "text files", "files": names})


def _blocks(text: str) -> Iterator[str]:
    block: list[str] = []
    size = 0
    for paragraph in text.split("\n\n"):
        block.append(paragraph)
        size += len(paragraph)
        if size >= 2000:
            yield "\n\n".join(block)
            block, size = [], 0
    if any(part.strip() for part in block):
        yield "\n\n".join(block)


def _standard_library_files() -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "__pycache__", "test", "tests"}
    return sorted(
        path
        for path in root.rglob("*.py")
        if not skipped.intersection(path.relative_to(root).parts)
    )


def _distribution_files(name: str) -> list[Path]:
    files = metadata.files(name) or []
    return sorted(
        Path(str(file.locate()))
        for file in files
        if file.suffix == ".py" and ".." not in file.parts
    )


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            # invalid escapes in other people's files are not ours to report
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= _SHORTEST_DOCSTRING:
                yield text


def _is_new(text: str, seen: set[bytes]) -> bool:
    key = hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    if key in seen:
        return False
    seen.add(key)
    return True


def held_out(key: str) -> bool:
    """Return True if a key is held out: `HELD_OUT_PERCENT` in a hundred, by hash."""
    digest = hashlib.sha1(key.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return digest[0] * 256 + digest[1] < HELD_OUT_PERCENT * 65536 // 100


def _licence(name: str) -> str:
    fields = metadata.metadata(name)

    def said(field: str) -> list[str]:
        return [text for text in fields.get_all(field) or [] if text]

    classified = ", ".join(
        c.split("::")[-1].strip() for c in said("Classifier") if c.startswith("License")
    )
    free = [text.splitlines()[0][:80] for text in said("License")]
    return next(filter(None, [*said("License-Expression"), classified, *free]), "see the package")


def sources_table(provenance: Mapping[str, Any]) -> str:
    """Return a corpus's sources and licences as a Markdown table, empty for text files."""
    versions, licences = provenance.get("packages", {}), provenance.get("licences", {})
    rows = [
        (
            name,
            versions.get(name, provenance.get("python", "")),
            f"{size:,}",
            licences.get(name, ""),
        )
        for name, size in provenance.get("characters", {}).items()
    ]
    return markdown(("source", "version", "characters", "licence as declared"), rows)
