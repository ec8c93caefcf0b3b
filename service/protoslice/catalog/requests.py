"""The requests for new stores, their validation, and their results."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.catalog.syntax import check_tag
from protoslice.defaults import MAX_CHUNK, MAX_FILES, MIN_CHUNK
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.facts import UNKNOWN, ModelReport, Store
from protoslice.file_names import check_file_path, check_form

TAGS_AT_ONCE: Final = 64
"""Largest number of tags that one request may set."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """The options of an ingest, such as type, root, tags and chunk sizes."""

    type: str | None = None
    root: str | None = None
    tags: tuple[str, ...] = ()
    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    plan: str | None = None
    """`policy` splits a chunked root again by the chunk sizes; None keeps the plan of the uploaded file."""
    rules: tuple[str, ...] | None = None
    """Splitting rules that have priority over the chunk sizes and over a chunked root's own plan.

    None applies the rules that are stored for the root's type; an empty tuple applies no rules.
    """
    source: str = "upload"
    report: bool = False
    """True if the response must include a report on the model."""
    of_commit: bool = False
    """True if a commit or manifest makes the store; the store is then removed together with its last name."""
    strict: bool = False
    """True to refuse a model that lacks files or that does not match its own checksums."""

    @property
    def names_a_root(self) -> bool:
        """True if the client names the root, its type or rules; a store without a root is then an error."""
        return self.root is not None or self.type is not None or bool(self.rules)

    def type_or(self, detected: str | None) -> str | None:
        """Return the requested type of the root, else the detected type; return None if the request says `unknown`."""
        return None if self.type == UNKNOWN else self.type or detected


@dataclass(frozen=True, slots=True)
class Created:
    """The store that an upload made; `created` is False if the store already existed."""

    store: Store
    created: bool
    report: ModelReport | None = None
    """Report on the model, or None if the client did not request it."""


class FilePaths:
    """The file paths of one store, which are all different.

    No path is at the same time a folder of another path, so that all files can be written to one disk.
    """

    def __init__(self) -> None:
        # Separators are replaced by NUL, which sorts first: a folder's files then directly follow the folder's name.
        self._sorted: list[str] = []

    def add(self, path: str) -> None:
        """Add a path.

        Raise `InvalidInput` if it is malformed or conflicts with another path, and `LimitExceeded` if there are too
        many paths.
        """
        if len(self._sorted) >= MAX_FILES:
            raise LimitExceeded(f"a store holds at most {MAX_FILES} files")
        name = check_file_path(path).replace("/", "\0")
        place = bisect_left(self._sorted, name)
        if self._sorted[place : place + 1] == [name]:
            raise InvalidInput(f"The upload contains the file {path!r} twice")
        for file, inside in ((self._sorted[place - 1 : place], [name]), ([name], self._sorted[place : place + 1])):
            if file and inside and inside[0].startswith(file[0] + "\0"):
                one, other = file[0].replace("\0", "/"), inside[0].replace("\0", "/")
                raise InvalidInput(
                    f"The upload contains the file {one!r}, but the file {other!r} needs a folder of the same name"
                )
        self._sorted.insert(place, name)


def check_request(request: IngestRequest) -> None:
    """Raise `InvalidInput` for invalid chunk sizes, rules, tags or root paths, before any byte of a file is read."""
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
