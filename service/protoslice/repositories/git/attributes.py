"""The file `.gitattributes`, by which git-lfs knows the pointers among the files of a commit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protoslice.repositories.git.rule import NAMES, SUFFIXES, is_text

ATTRIBUTES: Final = ".gitattributes"
_LFS: Final = "filter=lfs diff=lfs merge=lfs -text"
_PLAIN: Final = "!filter !diff !merge !text"
_HEAD: Final = "# Small text files are in git, all others in git-lfs.\n"


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
