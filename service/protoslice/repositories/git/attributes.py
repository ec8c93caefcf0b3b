"""Which files git has as they are and which as pointers of git-lfs, and the file `.gitattributes` that says so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

PLAIN_BYTES: Final = 64 << 10
"""Bytes of the largest file that is in git as it is."""
SUFFIXES: Final = (
    "cfg", "csv", "html", "ini", "jinja", "json", "jsonl", "md", "pbtxt", "prototxt", "py", "rst", "sh", "toml", "tsv",
    "txt", "xml", "yaml", "yml",
)  # fmt: skip
NAMES: Final = (".gitattributes", ".gitignore", "LICENSE", "Makefile", "NOTICE", "README")
ATTRIBUTES: Final = ".gitattributes"
_LFS: Final = "filter=lfs diff=lfs merge=lfs -text"
_PLAIN: Final = "!filter !diff !merge !text"
_HEAD: Final = "# Small text files are in git, all others in git-lfs.\n"


def is_text(path: str) -> bool:
    """True for names of text files."""
    name = path.rpartition("/")[2]
    return name in NAMES or (name.rpartition(".")[2] in SUFFIXES and "." in name)


def is_plain(path: str, size: int) -> bool:
    """True for small text files, and for empty files, of which git-lfs has none."""
    return size == 0 or (size <= PLAIN_BYTES and is_text(path))


def attributes_of(pointers: Iterable[str]) -> bytes:
    """Return the file for a commit that has `pointers`."""
    lines = [f"* {_LFS}", *(f"*.{suffix} {_PLAIN}" for suffix in SUFFIXES), *(f"{name} {_PLAIN}" for name in NAMES)]
    lines += [f"{_pattern(path)} {_LFS}" for path in sorted(pointers) if is_text(path)]
    return (_HEAD + "\n".join(lines) + "\n").encode()


def _pattern(path: str) -> str:
    """Return the pattern that only one path matches, quoted as strings of C if need be."""
    pattern = "/" + re.sub(r"([*?\[\\])", r"\\\1", path)
    if not re.search(r'[\s"]', pattern):
        return pattern
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'
