"""Which file of an upload is the root."""

from __future__ import annotations

from collections.abc import Sequence

from protoslice.errors import InvalidInput, NotFound
from protoslice.formats.roots import rank
from protoslice.stores.receive import Received

__all__ = ["choose_root"]


def choose_root(files: Sequence[Received], wanted: str | None) -> Received:
    """The root of `files`: the one at the path `wanted`, else the one whose name or content says so best."""
    if not files:
        raise InvalidInput("the upload holds no file")
    if wanted is not None:
        found = next((file for file in files if file.info.path == wanted), None)
        if found is None:
            raise NotFound(f"the upload holds no file {wanted!r}, which is to be its root")
        return found
    return min(files, key=lambda file: rank(file.info.path, file.detection.kind, file.info.size))
