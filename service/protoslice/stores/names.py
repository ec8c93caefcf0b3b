"""Validation of requests: paths of files, tags, chunk sizes."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from protoslice import _core
from protoslice.catalog.syntax import check_tag
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.file_names import check_file_path, check_form
from protoslice.stores.requests import TAGS_AT_ONCE, IngestRequest

DEFAULT_SPACE: Final = "default"
"""Name of the space at the root of the storage."""


class FilePaths:
    """File paths of one store: unique, and none a folder of another, so that all fit on one disk."""

    def __init__(self) -> None:
        # Separators become NUL, which sorts first, so that the contents of a folder follow its name.
        self._sorted: list[str] = []

    def add(self, path: str) -> None:
        """Add a path; `InvalidInput` when malformed or in conflict with another, `LimitExceeded` for too many."""
        if len(self._sorted) >= MAX_FILES:
            raise LimitExceeded(f"a store holds at most {MAX_FILES} files")
        name = check_file_path(path).replace("/", "\0")
        place = bisect_left(self._sorted, name)
        if self._sorted[place : place + 1] == [name]:
            raise InvalidInput(f"The upload contains {path!r} twice")
        for file, inside in ((self._sorted[place - 1 : place], [name]), ([name], self._sorted[place : place + 1])):
            if file and inside and inside[0].startswith(file[0] + "\0"):
                one, other = file[0].replace("\0", "/"), inside[0].replace("\0", "/")
                raise InvalidInput(
                    f"The upload contains the file {one!r} and also {other!r}, which needs a folder of that name"
                )
        self._sorted.insert(place, name)


def check_request(request: IngestRequest) -> None:
    """Raise `InvalidInput` for bad chunk sizes, rules, tags or root path, before any byte is read."""
    if request.min_chunk < 1 or request.max_chunk < request.min_chunk:
        raise InvalidInput("min_chunk must be at least 1, and max_chunk no smaller than min_chunk")
    if len(request.tags) > TAGS_AT_ONCE:
        raise InvalidInput(f"Too many tags: {len(request.tags)} requested, at most {TAGS_AT_ONCE} per request")
    check_plan(request.plan)
    _core.Plan.rules(request.rules or ())
    for name in request.tags:
        check_tag(name)
    if request.root is not None:
        check_form(request.root)


def check_plan(plan: str | None) -> None:
    """Raise `InvalidInput` unless `plan` is None or `policy`."""
    if plan not in {None, "policy"}:
        raise InvalidInput(
            f"Invalid plan {plan!r}: use `policy` to split by chunk sizes, or leave plan out to keep the "
            "chunks of the uploaded file"
        )
