"""Which files git has as they are, and which as pointers of git-lfs."""

from __future__ import annotations

from typing import Final

PLAIN_BYTES: Final = 64 << 10
"""Bytes of the largest file that is in git as it is."""
SUFFIXES: Final = (
    "cfg", "csv", "html", "ini", "jinja", "json", "jsonl", "md", "pbtxt", "prototxt", "py", "rst", "sh", "toml", "tsv",
    "txt", "xml", "yaml", "yml",
)  # fmt: skip
NAMES: Final = (".gitattributes", ".gitignore", "LICENSE", "Makefile", "NOTICE", "README")


def is_text(path: str) -> bool:
    """True for names of text files."""
    name = path.rpartition("/")[2]
    return name in NAMES or (name.rpartition(".")[2] in SUFFIXES and "." in name)


def is_plain(path: str, size: int) -> bool:
    """True for small text files, and for empty files, of which git-lfs has none."""
    return size == 0 or (size <= PLAIN_BYTES and is_text(path))
