"""Choice of a model's root among its files: ranking by name, kind and size."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from protoslice.formats.coreml.packages import LARGEST_MANIFEST, is_manifest, named_root

__all__ = ["Candidate", "likeliest_first", "manifests_of", "tried"]

_TRIES: Final = 64
"""Files that are opened in search of a root, when the caller names none."""

_NAMES: Final = (
    "saved_model.cpb",
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "__model__.json",
)
_PACKAGED: Final = "Data/com.apple.CoreML/model.mlmodel"
_ENDINGS: Final = (".cpb", ".onnx", ".pdmodel", ".mlmodel", ".caffemodel", ".index")
_LOOKS: Final = {"proto": 0, "riegeli": 0, "text": 1, "json": 1, "table": 1, "paddle": 2}
"""Ranks of kinds; parameters come after the JSON of a program, which has their names."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be the root."""

    path: str
    kind: str
    """The kind of file, from `schema.detect`."""
    size: int


def manifests_of(files: Iterable[Candidate]) -> list[Candidate]:
    """Manifests of Core ML packages among `files`: their contents name roots."""
    return [file for file in files if is_manifest(file.path) and file.size <= LARGEST_MANIFEST]


def likeliest_first(files: Iterable[Candidate], manifests: Mapping[str, bytes]) -> list[Candidate]:
    """The files sorted: known names first, then by kind (protos first), then by size, the largest first.

    `manifests` holds the contents of `manifests_of(files)` by path.
    """
    declared = {named_root(path, content) for path, content in manifests.items()}
    return sorted(files, key=lambda file: _rank(file, declared))


def tried(ranked: Iterable[Candidate]) -> list[Candidate]:
    """The first 64 of the `ranked` files that detection did not refuse."""
    return [file for file in ranked if file.kind != "refused"][:_TRIES]


def _rank(file: Candidate, declared: Collection[str | None]) -> tuple[int, int, int, str]:
    looks = _LOOKS.get(file.kind, 3)
    return _named(file.path, file.path in declared) if looks < 2 else 100, looks, -file.size, file.path


def _named(path: str, declared: bool) -> int:
    """Rank of a file by its name; the lowest is the likeliest root."""
    tests = (
        *(_is_called(path, name) for name in _NAMES),
        declared,
        _is_called(path, _PACKAGED),
        *(path.endswith(ending) for ending in _ENDINGS),
        True,
    )
    return tests.index(True)


def _is_called(path: str, name: str) -> bool:
    return path == name or path.endswith("/" + name)
