"""The rules for file paths in stores: their form, and which paths belong to version control."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from protoslice.errors import InvalidInput

T = TypeVar("T")
_LONGEST: Final = 1024
CONTROL_FOLDERS: Final = (".git", ".hg", ".jj")
"""The folders of git, Mercurial and Jujutsu.

Settings in these folders can contain commands, which, for example, the next `git status` runs.
"""
# NTFS accepts other names for these folders (git: is_ntfs_dotgit). It has short names such as `git~1`, ignores dots and
# blanks at the end, and puts the name of a stream after a colon. If the short names with small numbers are taken,
# Windows creates short names with four digits of a checksum.
_CONTROL: Final = re.compile(
    r"(?:\A|[/\\])(?:\.(?:git|hg|jj)|(?:git|hg|jj|(?:gi|hg|jj)[0-9a-f]{4})~[0-9]+)[. ]*(?::[^/\\]*)?(?:\Z|[/\\])"
)
# The file system HFS+ ignores these characters in names (git: next_hfs_char).
_IGNORED: Final = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)


def check_file_path(path: str) -> str:
    """Return `path` unchanged; raise `InvalidInput` if it is malformed or belongs to version control."""
    check_form(path)
    if is_version_control(path):
        raise InvalidInput(
            f"Invalid file path {path!r}: downloaded folders of version control can run commands. "
            f"Leave out {', '.join(CONTROL_FOLDERS)} and names like them"
        )
    return path


def check_form(path: str) -> str:
    """Return `path` unchanged; raise `InvalidInput` if its form is invalid.

    A valid path is relative, normalized and printable, and has at most 1024 bytes.
    """
    segments = path.split("/")
    plain = all(
        segment not in {"", ".", ".."} and segment.isprintable() and "\\" not in segment for segment in segments
    )
    if not plain or len(path.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise InvalidInput(f"Invalid file path {path!r}: it must be relative, without '.' or '..'")
    return path


def is_version_control(path: str) -> bool:
    """Return True if a segment of `path` names a folder of version control on any common file system."""
    return _CONTROL.search((path if path.isascii() else path.translate(_IGNORED)).casefold()) is not None


def without_version_control(files: Mapping[str, T]) -> Mapping[str, T]:
    """Return `files` without files of version control, which older versions of the service accepted."""
    return {path: file for path, file in files.items() if not is_version_control(path)}
