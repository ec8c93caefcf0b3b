"""Names of the files of stores: which paths are valid, and which ones version control uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from protoslice.errors import InvalidInput

T = TypeVar("T")
_LONGEST: Final = 1024
CONTROL_FOLDERS: Final = (".git", ".hg", ".jj")
"""Folders of git, Mercurial and Jujutsu. Their settings name commands, which the next `git status` runs."""
# NTFS has short names, ignores dots and blanks at the end, and puts streams behind a colon (git: is_ntfs_dotgit).
# The names with four digits of a checksum are those that Windows makes when the first are taken.
_CONTROL: Final = re.compile(
    r"(?:\A|[/\\])(?:\.(?:git|hg|jj)|(?:git|hg|jj|(?:gi|hg|jj)[0-9a-f]{4})~[0-9]+)[. ]*(?::[^/\\]*)?(?:\Z|[/\\])"
)
# HFS+ ignores these characters in names (git: next_hfs_char).
_IGNORED: Final = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)


def check_file_path(path: str) -> str:
    """Return `path` unchanged; raise `InvalidInput` if it is malformed or used by version control."""
    check_form(path)
    if is_version_control(path):
        raise InvalidInput(
            f"Invalid file path {path!r}: a folder of version control may run commands where it is downloaded; "
            f"leave out {', '.join(CONTROL_FOLDERS)} and names like them"
        )
    return path


def check_form(path: str) -> str:
    """Return `path` unchanged; raise `InvalidInput` unless it is relative, normalized, printable and short enough."""
    segments = path.split("/")
    plain = all(
        segment not in {"", ".", ".."} and segment.isprintable() and "\\" not in segment for segment in segments
    )
    if not plain or len(path.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise InvalidInput(f"Invalid file path {path!r}: it must be relative, without '.' or '..'")
    return path


def is_version_control(path: str) -> bool:
    """Return True if, on some file system, a segment of `path` is a folder of version control."""
    return _CONTROL.search((path if path.isascii() else path.translate(_IGNORED)).casefold()) is not None


def without_version_control(files: Mapping[str, T]) -> Mapping[str, T]:
    """Return the files to write, without those of version control that older versions accepted."""
    return {path: file for path, file in files.items() if not is_version_control(path)}
