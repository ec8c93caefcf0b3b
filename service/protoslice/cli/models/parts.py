"""Parts of a store, written as files into a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from protoslice.cli.models.output import write_content
from protoslice.cli.progress import Progress

_NAME: Final = re.compile(r'filename="([^"]{1,200})"')
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AT_ONCE: Final = 1000
"""Parts of one request, at most."""


@dataclass(frozen=True, slots=True)
class _Content:
    size: int
    parts: Iterator[bytes]

    def pieces(self) -> Iterator[memoryview]:
        """The bytes, in pieces."""
        return map(memoryview, self.parts)

    def read(self) -> bytes:
        """All bytes."""
        return b"".join(self.parts)


def pull_parts(client: Any, ref: str, views: Sequence[str], folder: Path, *, force: bool) -> list[tuple[Path, int]]:
    """Write `views` of a store into `folder`; paths and sizes of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written, taken = list[tuple[Path, int]](), set[str]()
    store = client.store(ref, names=False).id  # a tag may move between two requests
    with Progress("pulling") as progress:
        for at in range(0, len(views), _AT_ONCE):
            with closing(client.parts(store, views[at : at + _AT_ONCE])) as parts:
                for part in parts:
                    name = _unused(part.headers.get("content-disposition", ""), taken)
                    content = _Content(part.size, part.pieces)
                    write_content(content, str(folder / name), progress, force=force, quiet=True)
                    written.append((folder / name, part.size))
    return written


def _unused(disposition: str, taken: set[str]) -> str:
    """A file name that no other part has, after the one that the service suggests."""
    found = _NAME.search(disposition)
    plain = _ODD.sub("_", found[1] if found else "part").lstrip(".-") or "part"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{number}-{plain}"
    taken.add(name)
    return name
