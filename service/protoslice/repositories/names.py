"""Validation of the names of repositories, branches and tags."""

from __future__ import annotations

import re
from typing import Final

from protoslice.errors import InvalidInput

VIEWS: Final = "views/"
"""Begin of revisions that are views, and of no branch or tag: of the branch `main`, `views/main`."""
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_REF: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SHORT: Final = re.compile(r"[0-9a-f]{7,39}")
_LONGEST_NAME: Final = 200
_LONGEST_REF: Final = 128


def check_repository(name: str) -> str:
    """`name` unchanged; `InvalidInput` unless it may name a repository."""
    segments = name.split("/")
    if len(name) > _LONGEST_NAME or ".." in name or not all(map(_SEGMENT.fullmatch, segments)):
        raise InvalidInput(
            f"Invalid repository name {name[:_LONGEST_NAME]!r}: use letters, digits and ._- with slashes "
            f"between parts; at most {_LONGEST_NAME} characters"
        )
    return name


def check_ref(name: str) -> str:
    """`name` unchanged; `InvalidInput` unless it may name a branch or tag."""
    if len(name) > _LONGEST_REF or ".." in name or not _REF.fullmatch(name) or is_commit(name):
        raise InvalidInput(
            f"Invalid branch or tag name {name[:_LONGEST_REF]!r}: use letters, digits and ._+- with "
            f"slashes between parts, at most {_LONGEST_REF} characters, and nothing that looks like a "
            "commit id"
        )
    if name.startswith(VIEWS):
        raise InvalidInput(f"{name!r} is reserved for a view: choose a name that does not start with 'views/'")
    return name


def is_commit(revision: str) -> bool:
    """True when `revision` has the form of a commit's id, or of a store's."""
    return _COMMIT.fullmatch(revision) is not None


def is_short_commit(revision: str) -> bool:
    """True when `revision` has the form of the first digits of a commit's id."""
    return _SHORT.fullmatch(revision) is not None
