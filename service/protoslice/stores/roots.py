"""Which file of an upload is the root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from protoslice.errors import InvalidInput, NotFound
from protoslice.formats.packages import LARGEST, is_manifest, named_root
from protoslice.formats.roots import rank
from protoslice.stores.model import Stored
from protoslice.stores.objects import StoredObject
from protoslice.stores.receive import Received
from protoslice.stores.runner import Worker

__all__ = ["choose_root"]

Open = Callable[[Stored], Awaitable[StoredObject]]


async def choose_root(files: Sequence[Received], wanted: str | None, *, opened: Open, worker: Worker) -> Received:
    """The root of `files`: the one at the path `wanted`, else the one whose name, content or package says so best.

    `opened` gives what has been stored of a file.
    """
    if not files:
        raise InvalidInput("the upload holds no file")
    if wanted is not None:
        found = next((file for file in files if file.info.path == wanted), None)
        if found is None:
            raise NotFound(f"the upload holds no file {wanted!r}, which is to be its root")
        return found
    manifests = [file for file in files if is_manifest(file.info.path) and file.info.size <= LARGEST]
    declared = {named_root(file.info.path, await _content(await opened(file.stored), worker)) for file in manifests}
    return min(files, key=lambda file: rank(file.info.path, file.detection.kind, file.info.size, declared=declared))


async def _content(stored: StoredObject, worker: Worker) -> bytes:
    try:
        return await worker.run(lambda: stored.read(0, stored.size))
    finally:
        stored.close()
